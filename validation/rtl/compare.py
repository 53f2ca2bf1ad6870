"""The artefact's runs as Halley mappings: one tree for all of them, with the run's sizes and tiles.

Loops over tiles of the result, then over the contraction; both operands' tiles are loaded on each step, the result's tile stays
until its sum is complete. Inside, 16 rows of the result and 16 of the contraction lie on the array, and columns stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from validation.outcome import Case, Line, Outcome, positive, read_figures, whole
from validation.rtl import chains

from halley.cost.evaluate import evaluate
from halley.errors import BadInput, Fault
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip, Level
from halley.ir.mapping import Node
from halley.ir.text import parse
from halley.workloads.gemm import gemm

HERE = Path(__file__).parent
TABLE = Path("rtl") / "rtl_single_gemm_16x16.csv"
"""Where the table lies in the folder of data."""

SIZES = ("M", "N", "K", "micro_M", "micro_N", "micro_K")

MEAN, WORST = 0.006, 0.13
"""What is allowed."""

MEAN_UNFITTED, WORST_UNFITTED = 0.03, 0.16
"""What is allowed with both fitted constants left out."""

FITTED = 16
"""The two constants were fitted on every sixteenth run, from the first; the others judge."""

LARGEST = (16, 128)
"""Bounds of the search for the two constants [cycles]."""

CLOCK = 1e9
"""The chip's clock [Hz]: cycles are what is compared."""

TREE = """
hold dram: A B C
  for m by {m}
    for n by {n}
      hold buffer x2: C
        for k by {k}
          hold buffer x2: A B
            for m by 16
              for k by 16
                spread m by 1 over pe.x
                  spread k by 1 over pe.y
                    hold register x4: A
                      compute gemm
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: a GEMM of M x N x K in tiles of m x n x k, and the cycles that the RTL took."""

    M: int
    N: int
    K: int
    m: int
    n: int
    k: int
    cycles: float

    @property
    def name(self) -> str:
        return f"{self.M} x {self.N} x {self.K} by {self.m} x {self.n} x {self.k}"


def runs(path: Path) -> tuple[Run, ...]:
    """The rows of the table. Raises BadInput: a row that is not a run, a size of 0."""
    found = []
    for number, row in enumerate(read_figures(path, (*SIZES, "rtl_cycles")), start=1):
        where = f"{path}, row {number}"
        sizes = [whole(row, column, where) for column in SIZES]
        if 0 in sizes:
            raise BadInput(Fault(where, "sizes of at least 1", "0"))
        cycles = positive(row, "rtl_cycles", where)
        found.append(Run(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], cycles))
    return tuple(found)


def chip() -> Chip:
    return load_chip(HERE / "accelerator.yaml")


def with_latencies(base: Chip, dram: float, buffer: float) -> Chip:
    """The chip with other values of the two fitted constants [cycles]: latency of DRAM, and of the buffer to the array."""
    cycles = {"dram": dram, "buffer": buffer}

    def changed(level: Level) -> Level:
        memories = (replace(m, latency=cycles[m.name] / CLOCK) if m.name in cycles else m for m in level.memories)
        return replace(level, memories=tuple(memories))

    return replace(base, levels=tuple(changed(level) for level in base.levels))


def tree(run: Run) -> Node:
    return parse(TREE.format(m=run.m, n=run.n, k=run.k))


def predicted(run: Run, machine: Chip) -> float:
    """Cycles that Halley says the run takes."""
    return float(evaluate(gemm(run.M, run.N, run.K, dtype="fp16"), machine, tree(run)).time) * CLOCK


def line(quantity: str, chosen: tuple[Run, ...], machine: Chip, mean: float, worst: float) -> Line:
    return Line(quantity, tuple(Case(run.name, predicted(run, machine), run.cycles) for run in chosen), mean, worst)


def fit(chosen: tuple[Run, ...]) -> tuple[int, int]:
    """The two constants [whole cycles], each below `LARGEST`, with the least mean error on these runs: every latency of DRAM, and
    for each the best of the buffer by bisection (the error falls, then rises)."""
    base = chip()

    @cache
    def error(dram: int, buffer: int) -> float:
        return line("cycles", chosen, with_latencies(base, dram, buffer), 1, 1).mean_error

    found = []
    for dram in range(LARGEST[0]):
        low, high = 0, LARGEST[1] - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if error(dram, middle) <= error(dram, middle + 1) else (middle + 1, high)
        found.append((error(dram, low), dram, low))
    return min(found)[1:]


def compare(data: Path | None) -> Outcome:
    """Every run of the tables that the folder of data has: single GEMMs, and chains of two."""
    singles, pairs = ((data / table if data else None) for table in (TABLE, chains.TABLE))
    lines: list[Line] = []
    if singles and singles.is_file():
        lines += single_gemms(singles)
    if pairs and pairs.is_file():
        lines.append(chains.line(pairs, chip(), CLOCK))
    if not lines:
        return Outcome("rtl", skipped=f"no data: {TABLE.as_posix()}")
    return Outcome("rtl", tuple(lines))


def single_gemms(path: Path) -> tuple[Line, Line]:
    """Every run of the table that the constants were not fitted on, with these constants and without."""
    every, machine = runs(path), chip()
    held_out = tuple(run for index, run in enumerate(every) if index % FITTED)
    if not held_out:
        raise BadInput(Fault(str(path), "runs beside the first, which the constants were fitted on", "none"))
    return (
        line("cycles", held_out, machine, MEAN, WORST),
        line("cycles, no constants", held_out, with_latencies(machine, 0, 0), MEAN_UNFITTED, WORST_UNFITTED),
    )


__all__ = ["Run", "chip", "compare", "fit", "line", "predicted", "runs", "single_gemms", "tree", "with_latencies"]
