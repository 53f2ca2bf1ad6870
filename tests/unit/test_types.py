"""The type checker sees the physics: a formula takes and gives numbers and arrays of numbers, nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SNIPPET = """
import numpy as np

from halley.cost.estimate import Estimate
from halley.formulas.numbers import ceil_div
from halley.formulas.timing import busy_time, longest
from halley.network.time.axis import busiest
from halley.pipeline.iteration import Optimizer


def numbers(estimate: Estimate) -> None:
    busy_time(3, 2.0) + busy_time(np.ones(3), 2.0)
    tiles: int = ceil_div(13, 5)
    slowest: float = longest([3.0, 5.0])
    estimate.time + 2 * np.ones(3)
    Optimizer(1e9)


def mistakes(estimate: Estimate, rate: float | None) -> None:
    busy_time("1 GB", 2.0)  # rejected
    busy_time(1e9, None)  # rejected
    busy_time(1e9, rate)  # rejected
    busy_time(1e9, [2.0])  # rejected
    busy_time(1e9, estimate)  # rejected
    busy_time(1e9, 2.0) + " s"  # rejected
    busy_time(1e9, 2.0) + estimate.events  # rejected
    busy_time(1e9, 2.0).seconds  # rejected
    words: str = busy_time(1e9, 2.0)  # rejected
    tiles: int = ceil_div(13.0, 5.0)  # rejected
    longest(["3 s"])  # rejected
    estimate.time + None  # rejected
    busiest((), len)  # rejected
    Optimizer("1 GB/s")  # rejected
"""


@pytest.mark.medium
def test_mypy_rejects_what_is_not_a_number(tmp_path):
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--no-error-summary", str(snippet)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    reported = {int(line.split(":")[1]) for line in found.stdout.splitlines() if ": error:" in line and "snippet.py" in line}
    expected = {number for number, line in enumerate(SNIPPET.splitlines(), 1) if line.endswith("# rejected")}
    assert reported == expected, found.stdout + found.stderr
