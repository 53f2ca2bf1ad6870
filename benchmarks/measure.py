"""One measurement, the machine that it was made on, and code that is timed in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Measurement:
    """``target`` is a bound: ``most`` says whether the value should stay below it; None where there is none. ``peer``: what
    another tool says of the same."""

    name: str
    value: float
    unit: str
    target: float | None = None
    most: bool = True
    peer: float | None = None

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value <= self.target if self.most else self.value >= self.target

    def row(self) -> dict[str, object]:
        target = None if self.target is None else f"{'<=' if self.most else '>='} {self.target:g}"
        peer = {} if self.peer is None else {"peer": self.peer, "ratio": self.value / self.peer}
        return {"name": self.name, "value": self.value, "unit": self.unit, "target": target, **peer, "machine": machine()}

    def __str__(self) -> str:
        text = f"{self.name:64s} {self.value:14,.4g} {self.unit}"
        if self.peer is not None:
            text += f"   peer {self.peer:,.6g}, ratio {self.value / self.peer:.4g}"
        if self.target is not None:
            text += f"   target {'<=' if self.most else '>='} {self.target:g}"
        return text if self.met else f"{text}   MISSED"


@cache
def machine() -> str:
    """Processor, cores, system and versions, in one line."""
    model = platform.processor() or platform.machine()
    cpu_list = Path("/proc/cpuinfo")
    if cpu_list.exists():
        names = [line.partition(":")[2].strip() for line in cpu_list.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, NumPy {np.__version__}"


def per_second(work: Callable[[], Any], items: int, seconds: float = 1.0) -> float:
    """Items per second of repeated calls, each of which does ``items``; the best of three spells, as noise only slows."""
    work()
    best = 0.0
    for _ in range(3):
        calls, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds / 3:
            work()
            calls += 1
        best = max(best, items * calls / spent)
    return best


def environment(*paths: Path) -> dict[str, str]:
    """The environment of a process with these import paths: one thread, and compiled modules are kept, as an installation keeps
    them. Without that, compiling them would be half of the time of an import."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def in_new_process(*arguments: str) -> Any:
    """What ``python ARGUMENTS`` prints, read as JSON; one thread."""
    own = environment(ROOT / "src", ROOT)
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=own, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)
