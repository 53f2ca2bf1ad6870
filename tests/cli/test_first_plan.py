"""The plan of the first page: its figures are those that the command prints, and two runs need the same memory."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Training on a thousand chips")[2].partition("\n## ")[0]
EQUAL_MEMORY = 0.02
"""Relative difference of peak memory that allocators make in equal runs."""


def run(folder: Path, name: str, *options: str) -> tuple[str, int]:
    """What the command of the page prints in a process of its own, and the largest memory of that process."""
    command = next(line for line in SECTION.splitlines() if line.startswith("$ halley plan"))
    output = folder / f"{name}.txt"
    words = [sys.executable, "-m", "halley", *shlex.split(command)[2:], *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    with output.open("wb") as file, open(os.devnull, "wb") as nowhere:
        actions = [(os.POSIX_SPAWN_DUP2, file.fileno(), 1), (os.POSIX_SPAWN_DUP2, nowhere.fileno(), 2)]
        process = os.posix_spawn(sys.executable, words, environment, file_actions=actions)
        _, status, used = os.wait4(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return " ".join(output.read_text(encoding="utf-8").split()), used.ru_maxrss


@pytest.mark.medium
def test_the_plan_of_the_first_page(tmp_path: Path) -> None:
    (text, memory), (again, other) = (run(tmp_path, name) for name in ("first", "second"))
    said = " ".join(SECTION.split())
    dp, pp, chunks, tp, zero, time, gap, slower = re.search(  # type: ignore[union-attr]
        r"has (\d+) data-parallel ranks, (\d+) stages of (\d+) chunks and (\d+) tensor-parallel ranks, with ZeRO (\d)"
        r".*?: ([\d.]+) s, within ([\d.]+) % of the bound.*?ZeRO 3.*?takes ([\d.]+) % longer",
        said,
    ).groups()
    assert f"data {dp} x pipeline {pp} x model {tp} (TP+SP), microbatch 1, interleaved 1F1B, {chunks} chunks a stage" in text
    assert f"ZeRO {zero}, offload" in text
    assert f"iteration {time} s" in text
    assert f"gap {gap} %)" in text
    without_pipeline, _ = run(tmp_path, "without-pipeline", "--fix", "pp=1")
    longer = re.search(r"iteration ([\d.]+) s", without_pipeline)
    assert longer is not None
    assert f"{100 * (float(longer[1]) / float(time) - 1):.1f}" == slower
    assert "recompute full, ZeRO 3" in without_pipeline
    assert "`--fix pp=1`" in said
    assert abs(memory / other - 1) < EQUAL_MEMORY
    times = r"in [\d.]+ s bound"  # of the search
    assert re.sub(times, "", again) == re.sub(times, "", text)
