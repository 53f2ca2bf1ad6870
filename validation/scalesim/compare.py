"""SCALE-Sim's cases as Halley mappings: the whole GEMM is one tile of the array, which folds it.

Conventions, for every case:

- SCALE-Sim numbers cycles from 0 and reports the last number: its total is one less than the cycles that pass.
- Results leave an output-stationary array through a drain that SCALE-Sim counts as R + C further writes of the output buffer per
  fold. Halley counts the bytes of results alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from validation.outcome import Case, Line, Outcome, read_figures, whole

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.cost.events import Work
from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip, Dataflow
from halley.ir.mapping import Node
from halley.ir.text import parse
from halley.workloads.gemm import gemm

HERE = Path(__file__).parent
DATAFLOWS = {"os": Dataflow.OUTPUT, "ws": Dataflow.WEIGHT, "is": Dataflow.INPUT}
SIZES = ("array_rows", "array_cols", "M", "N", "K", "total_cycles", "sram_ifmap_reads", "sram_filter_reads", "sram_ofmap_writes")

TREE = """
hold dram: A B C
  hold ifmap: A
    hold filter: B
      hold ofmap: C
        compute gemm
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of SCALE-Sim: R x C array, GEMM of M x N x K, and the figures it reported."""

    dataflow: str
    array_rows: int
    array_cols: int
    M: int
    N: int
    K: int
    total_cycles: int
    sram_ifmap_reads: int
    sram_filter_reads: int
    sram_ofmap_writes: int

    @property
    def name(self) -> str:
        return f"{self.dataflow} {self.M} x {self.N} x {self.K} on {self.array_rows} x {self.array_cols}"


def runs(path: Path = HERE / "figures.csv") -> Iterator[Run]:
    """The rows of a table of SCALE-Sim's figures. Raises BadInput: a row that is not one."""
    for number, row in enumerate(read_figures(path, ("dataflow", *SIZES)), start=1):
        where = f"{path}, row {number}"
        if row["dataflow"] not in DATAFLOWS:
            remedy = did_you_mean(row["dataflow"], DATAFLOWS)
            raise BadInput(Fault(f"{where}, dataflow", "os, ws or is", repr(row["dataflow"]), remedy))
        yield Run(row["dataflow"], *(whole(row, column, where) for column in SIZES))


def chip(run: Run) -> Chip:
    """The array of a run."""
    base = load_chip(HERE / "array.yaml")
    if base.matrix is None:
        raise BadInput(Fault("array.yaml", "a matrix engine", "none"))
    engine = replace(base.matrix, rows=run.array_rows, cols=run.array_cols, dataflow=DATAFLOWS[run.dataflow])
    return replace(base, matrix=engine)


def tree() -> Node:
    return parse(TREE)


def estimate(run: Run) -> Estimate:
    return evaluate(gemm(run.M, run.N, run.K, dtype="int8"), chip(run), tree())


def cycles(found: Estimate, clock: float) -> int:
    """Cycles of the array in SCALE-Sim's count, which starts at 0."""
    return round(sum(float(event.time) for event in found.events if isinstance(event, Work)) * clock) - 1


def output_drain(run: Run) -> int:
    """Writes that SCALE-Sim adds to the output buffer's: R + C per fold of an output-stationary array."""
    if run.dataflow != "os":
        return 0
    folds = math.ceil(run.M / run.array_rows) * math.ceil(run.N / run.array_cols)
    return folds * (run.array_rows + run.array_cols)


def compare(path: Path = HERE / "figures.csv") -> Outcome:
    """Every row of a table of SCALE-Sim's figures; all must be equal."""
    found = [(run, estimate(run), chip(run)) for run in runs(path)]
    clock = {run: machine.matrix.clock if machine.matrix else 0.0 for run, _, machine in found}

    def line(quantity: str, pairs: Iterator[tuple[Run, float, float]]) -> Line:
        return Line(quantity, tuple(Case(run.name, halley, figure) for run, halley, figure in pairs))

    return Outcome(
        "scalesim",
        (
            line("compute cycles", ((r, cycles(e, clock[r]), r.total_cycles) for r, e, _ in found)),
            line("input buffer reads", ((r, e.reads()["ifmap", "A", "operand"], r.sram_ifmap_reads) for r, e, _ in found)),
            line("filter buffer reads", ((r, e.reads()["filter", "B", "operand"], r.sram_filter_reads) for r, e, _ in found)),
            line(
                "output buffer writes",
                ((r, e.writes()["ofmap", "C", "result"] + output_drain(r), r.sram_ofmap_writes) for r, e, _ in found),
            ),
        ),
    )


__all__ = ["Run", "chip", "compare", "cycles", "estimate", "output_drain", "runs", "tree"]
