"""Plans with searched kernels: the joint proof over plans and mappings without kept kernels and with them, and its memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Measurement

CASES = (
    ("gpt3-175b", "64 x cloud, nvlink-4 8, infiniband-ndr", 512, 120.0, 5.0),
    ("gpt3-1t", "1024 x cloud, nvlink-4 8, infiniband-ndr", 2048, 180.0, 8.0),
)
"""Model, system, sequences of an iteration, and targets of CPU time [s] without kept kernels and with them."""

MEMORY = 1024.0
"""Target of memory [MiB]."""

SHARE = 2.0
"""Target of the share of kernels that are searched, of those that plans asked for [%]."""

CODE = "from halley.cli.start import main; main()"


def measurements() -> Iterator[Measurement]:
    for model, system, batch, cold, warm in CASES:
        what = f"{model} on {system.split(',')[0]}, searched kernels"
        with tempfile.TemporaryDirectory() as folder:
            seconds, size, effort, gap = _planned(model, system, batch, Path(folder))
            yield Measurement(f"{what}: joint proof", seconds, "s", cold)
            yield Measurement(f"{what}: memory of that", size, "MiB", MEMORY)
            yield Measurement(f"{what}: gap", 100 * gap, "%")
            yield Measurement(f"{what}: kernels searched", effort["kernels"], "")
            yield Measurement(f"{what}: of those asked for", 100 * effort["kernels"] / effort["asked"], "%", SHARE)
            seconds, size, effort, gap = _planned(model, system, batch, Path(folder))
            yield Measurement(f"{what}: with kept kernels", seconds, "s", warm)


def _planned(model: str, system: str, batch: int, folder: Path) -> tuple[float, float, dict[str, int], float]:
    """CPU time [s] and memory [MiB] of the command, with the effort and the gap of its certificate."""
    out = folder / "plan.json"
    words = ["plan", model, "--train", "--system", system, "--batch", str(batch), "--kernels", "searched", "-j", "1", "--force"]
    environment = {**os.environ, "HALLEY_CACHE": str(folder), "HALLEY_CACHE_SHARED": ""}
    command = [sys.executable, "-c", CODE, *words, "-o", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    certificate = json.loads(out.read_text(encoding="utf-8"))["certificate"]
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, certificate["effort"], certificate["gap"]
