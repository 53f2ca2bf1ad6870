"""The figures of RTL as Halley mappings: a reduction along a row of four tiles, in the network, and a GEMM on one tile's engine.

The links' 64 bytes, the start-up of a transfer and the cycle of a hop are published. The latency and bandwidth of the adders in
the network and the latency of the engine are not: they were fitted on every second figure, from the first; the others judge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from validation.mesh import runs
from validation.outcome import Case, Line, Outcome, positive, read_figures, whole

from halley.cost.evaluate import evaluate
from halley.cost.events import LinkTraffic, Work
from halley.errors import BadInput, Fault
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip, Exchange, Level
from halley.ir.mapping import Node
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.workloads.gemm import gemm

HERE = Path(__file__).parent
REDUCTION, ENGINE = "row reduction", "matrix engine"

CLOCK = 1e9
"""The chip's clock [Hz]: cycles are what is compared."""

FITTED = 2
"""The constants were fitted on every second figure, from the first."""

REDUCTIONS, ENGINES = (0.06, 0.12), (0.02, 0.05)
"""The mean and worst error that are allowed."""

ROW = """
hold dram: A B C
  hold l1: C
    sequence
      spread k by 1 over tile.x
        hold l1: A B
          compute gemm
      reduce C over tile.x with multicast
"""

ONE = """
hold dram: A B C
  hold l1: A B C
    compute gemm
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """Cycles of a reduction of so many bytes in each of four tiles, or of a GEMM of rows x columns, summed over depth."""

    what: str
    rows: int
    columns: int
    depth: int
    size: int
    cycles: float

    @property
    def name(self) -> str:
        return f"{self.size} B" if self.what == REDUCTION else f"{self.rows} x {self.columns} x {self.depth}"


def figures(path: Path = HERE / "figures.csv") -> tuple[Figure, ...]:
    """The rows of the table. Raises BadInput: a row that is not one."""
    found = []
    for number, row in enumerate(read_figures(path, ("what", "cycles")), start=1):
        where = f"{path}, row {number}"
        if row["what"] == REDUCTION:
            sizes = (0, 0, 0, whole(row, "bytes", where))
        elif row["what"] == ENGINE:
            sizes = (whole(row, "rows", where), whole(row, "columns", where), whole(row, "depth", where), 0)
        else:
            raise BadInput(Fault(f"{where}, what", f"{REDUCTION!r} or {ENGINE!r}", repr(row["what"])))
        found.append(Figure(row["what"], *sizes, positive(row, "cycles", where)))
    return tuple(found)


def chip() -> Chip:
    return load_chip(HERE / "tile.yaml")


def with_adders(base: Chip, adder: float, beat: float) -> Chip:
    """The chip with adders in the network of another latency [cycles], which take so many cycles for 64 bytes."""

    def changed(level: Level) -> Level:
        if level.network is None:
            return level
        given = level.network.axes[0].exchange
        exchange = Exchange(given.startup, given.barrier, adder / CLOCK, 64 * CLOCK / beat)
        return replace(level, network=replace(level.network, axes=(replace(level.network.axes[0], exchange=exchange),)))

    return replace(base, levels=tuple(changed(level) for level in base.levels))


def with_latency(base: Chip, cycles: float) -> Chip:
    """The chip with a matrix engine of another latency [cycles]."""
    return replace(base, matrix=replace(base.matrix, latency=cycles / CLOCK) if base.matrix else None)


def problem(figure: Figure) -> tuple[Workload, Node]:
    """What a figure measures, and how it runs: fp16; each tile of a row has a part of the sum."""
    if figure.what == REDUCTION:
        return gemm(figure.size // 128, 64, 4, dtype="fp16"), parse(ROW)
    return gemm(figure.rows, figure.columns, figure.depth, dtype="fp16"), parse(ONE)


def predicted(figure: Figure, machine: Chip) -> float:
    """Cycles of the collective, or of the engine."""
    workload, tree = problem(figure)
    kind = LinkTraffic if figure.what == REDUCTION else Work
    return sum(float(event.time) for event in evaluate(workload, machine, tree).events if isinstance(event, kind)) * CLOCK


def line(quantity: str, chosen: tuple[Figure, ...], machine: Chip, allowed: tuple[float, float]) -> Line:
    return Line(quantity, tuple(Case(item.name, predicted(item, machine), item.cycles) for item in chosen), *allowed)


def fit(every: tuple[Figure, ...]) -> tuple[int, float, int]:
    """Latency of an adder [cycles], cycles for 64 bytes in steps of 0.005, latency of the engine [cycles]: those of least mean
    error on every second figure."""
    base = chip()

    def error(what: str, machine: Chip) -> float:
        return line(what, _of(every, what)[::FITTED], machine, (1, 1)).mean_error

    adders = product(range(13), [1 + step / 200 for step in range(41)])
    adder, beat = min(adders, key=lambda pair: error(REDUCTION, with_adders(base, *pair)))
    latency = min(range(160), key=lambda cycles: error(ENGINE, with_latency(base, cycles)))
    return adder, beat, latency


def _of(every: tuple[Figure, ...], what: str) -> tuple[Figure, ...]:
    return tuple(figure for figure in every if figure.what == what)


def rtl_lines(path: Path = HERE / "figures.csv") -> tuple[Line, ...]:
    """The figures of RTL that were not fitted, of both kinds."""
    every, machine = figures(path), chip()
    held_out = {what: tuple(f for at, f in enumerate(_of(every, what)) if at % FITTED) for what in (REDUCTION, ENGINE)}
    return (
        line("row reductions, held out", held_out[REDUCTION], machine, REDUCTIONS),
        line("row reductions, no adders", held_out[REDUCTION], with_adders(machine, 0, 1), (0.2, 0.25)),
        line("matrix engine, held out", held_out[ENGINE], machine, ENGINES),
    )


def compare() -> Outcome:
    """Parts against RTL, and attention on the whole mesh against a simulator that was calibrated to it."""
    return Outcome("mesh", (*rtl_lines(), *runs.lines()))


__all__ = [
    "Figure", "chip", "compare", "figures", "fit", "line", "predicted", "problem", "rtl_lines", "with_adders", "with_latency",
]  # fmt: skip
