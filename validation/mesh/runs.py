"""Times of attention on a mesh of tiles against those of SoftHier, a simulator whose parts were calibrated against RTL.

Two constants are fitted: the efficiency of HBM on the runs of FlashAttention, and the barrier on one run of FlatAttention with
collectives in hardware. All others are published or fitted to RTL (`validation.mesh.compare`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from validation.mesh.attention import FLASH, FLAT, FLAT_ASYNCHRONOUS, FLAT_HARDWARE, Run, largest_slice, mapping, workload
from validation.outcome import Case, Line, positive, read_figures, whole

from halley.cost.evaluate import evaluate
from halley.errors import BadInput, Fault
from halley.io.chips.load import load_chip
from halley.ir.hardware import Axis, Chip, Exchange, Level, Link
from halley.simulate.simulation import simulate

HERE = Path(__file__).parent
CLOCK = 1e9
"""Cycles per second of the chips."""

CHIPS = {32: "tile-mesh", 16: "tile-mesh-16", 8: "tile-mesh-8"}
"""Chip by tiles of a side."""

CHANNEL = 64e9
"""Bandwidth of a channel of HBM [B/s]."""

EFFICIENCY = 0.82
"""Fraction of the bandwidth of HBM, fitted to the runs of FlashAttention."""

BARRIER = 328
"""Cycles of a barrier of 32 x 32 tiles, fitted to one run: FlatAttention with collectives in hardware, S 1024, D 64."""

BARRIERS = {FLAT: 12 / 8, FLAT_HARDWARE: 12 / 8, FLAT_ASYNCHRONOUS: 7 / 8}
"""Barriers for each collective in the published software: 12 or 7 around 8 collectives of a block."""

SOFTWARE_BARRIER = 36
"""Cycles between the steps of a collective in software, fitted to RTL by the authors of Picobello (arXiv 2603.26438)."""

SIMULATED_HEADS = (4, 8)
"""A group with more heads than the second is simulated with each of these numbers; the time is linear in between and beyond."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A run and its published time [s]; ``channels`` of HBM."""

    run: Run
    channels: int
    time: float

    @property
    def work(self) -> float:
        """Operations of both products [1]."""
        return 4.0 * self.run.batch * self.run.heads * self.run.head * self.run.sequence**2


def figures(path: Path = HERE / "attention.csv") -> tuple[Figure, ...]:
    """The runs of a table: that of this folder, or one with the columns of its source. Other rows are left out.

    Raises BadInput: no such table, or a row that is not a run.
    """
    found = []
    for number, row in enumerate(read_figures(path, ("kind", "metric")), start=1):
        if (row["kind"], row["metric"], row["component"]) != ("mha_prefill", "runtime", "total"):
            continue
        where = f"{path}, row {number}"
        unit = {"ms": 1e-3, "us": 1e-6}.get(row["unit"])
        if unit is None:
            raise BadInput(Fault(f"{where}, unit", "ms or us", repr(row["unit"])))
        tiles, group = (_side(row, column, where) for column in ("tiles", "group"))
        west, _, south = row["hbm_channels"].partition("x")
        sizes = {key: whole(row, column, where) for key, column in COLUMNS.items()}
        run = Run(row["dataflow"], tiles=tiles, group=group, largest=_largest(tiles, sizes["head"]), **sizes)
        found.append(Figure(run, int(west) * int(south or 1), positive(row, "value", where) * unit))
    return tuple(found)


COLUMNS = {"batch": "B", "heads": "H", "sequence": "S", "head": "D"}


def _side(row: dict[str, str], column: str, where: str) -> int:
    side, _, other = row[column].partition("x")
    if side != other or not side.isdigit():
        raise BadInput(Fault(f"{where}, {column}", "a square, such as 32x32", repr(row[column])))
    return int(side)


def _largest(tiles: int, head: int) -> int:
    if tiles not in CHIPS:
        raise BadInput(Fault("table of runs, tiles", f"one of {', '.join(f'{n}x{n}' for n in CHIPS)}", f"{tiles}x{tiles}"))
    return largest_slice(shipped(tiles), head)


@cache
def shipped(tiles: int) -> Chip:
    """The chip that ships, by tiles of a side."""
    return load_chip(CHIPS[tiles])


def machine(figure: Figure, efficiency: float = EFFICIENCY, barrier: float = BARRIER) -> Chip:
    """The chip of a run: its channels at their efficiency, and the barriers of its software.

    A collective in software takes a step for each tile. The first tile sends to all others, one after the other, so that a step
    passes half of the row on average.
    """
    run = figure.run
    between = BARRIERS.get(run.dataflow, 1.0) * barrier

    def axis(each: Axis) -> Axis:
        if run.dataflow != FLAT:
            return replace(each, exchange=replace(each.exchange, barrier=between / CLOCK))
        step = SOFTWARE_BARRIER + between / (each.size - 1)
        hops = replace(each.link, latency=each.link.latency * each.size / 2)
        return replace(each, link=hops, exchange=replace(each.exchange, barrier=step / CLOCK))

    chip = shipped(run.tiles)
    outer, tile = chip.levels
    assert tile.network is not None
    bandwidth = figure.channels * CHANNEL * efficiency
    memories = tuple(replace(each, read_bandwidth=bandwidth, write_bandwidth=bandwidth) for each in outer.memories)
    inner = replace(tile, network=replace(tile.network, axes=tuple(map(axis, tile.network.axes))))
    return replace(chip, levels=(replace(outer, memories=memories), inner))


def without_latency(chip: Chip) -> Chip:
    """The chip without latencies, start-ups and barriers: bandwidths and rates alone."""

    def level(each: Level) -> Level:
        memories = tuple(replace(memory, latency=0.0) for memory in each.memories)
        if each.network is None:
            return replace(each, memories=memories)
        axes = tuple(
            replace(axis, link=_at_once(axis.link), exchange=Exchange(add_bandwidth=axis.exchange.add_bandwidth))
            for axis in each.network.axes
        )
        port = _at_once(each.network.port) if each.network.port else None
        return replace(each, memories=memories, network=replace(each.network, axes=axes, port=port))

    matrix = replace(chip.matrix, latency=0.0) if chip.matrix else None
    return replace(chip, levels=tuple(map(level, chip.levels)), matrix=matrix)


def _at_once(link: Link) -> Link:
    return replace(link, latency=0.0)


def formula_time(figure: Figure, chip: Chip) -> float:
    """Time [s] by the formulas."""
    return float(evaluate(workload(figure.run), chip, mapping(figure.run)).time)


def simulated_time(figure: Figure, chip: Chip) -> float:
    """Time [s] by the simulation. Of many heads one after the other in a group, the first ones are simulated."""
    run = figure.run
    parallel = run.lanes * (run.tiles // run.group) ** 2
    rounds = run.batch * run.heads // parallel
    few, many = SIMULATED_HEADS
    if run.dataflow in FLASH or rounds <= many:
        return simulate(workload(run), chip, mapping(run)).time
    shorter = (replace(run, batch=1, heads=count * parallel) for count in SIMULATED_HEADS)
    first, second = (simulate(workload(each), chip, mapping(each)).time for each in shorter)
    return second + (second - first) * (rounds - many) / (many - few)


def line(
    quantity: str, chosen: tuple[Figure, ...], allowed: tuple[float, float], simulated: bool = True, bare: bool = False
) -> Line:
    """Errors of times [ms]; ``bare``: without latencies, start-ups and barriers."""
    time = simulated_time if simulated else formula_time

    def case(figure: Figure) -> Case:
        chip = without_latency(machine(figure)) if bare else machine(figure)
        return Case(figure.run.name, time(figure, chip) * 1e3, figure.time * 1e3)

    return Line(quantity, tuple(map(case, chosen)), *allowed)


def lines() -> tuple[Line, ...]:
    """The runs of this folder: FlashAttention, which the efficiency was fitted to; FlatAttention without the run that the barrier
    was fitted to, by the simulation, by the formulas, and without latencies."""
    every = figures()
    flash = tuple(each for each in every if each.run.dataflow in FLASH)
    flat = tuple(each for each in every if each.run.dataflow not in FLASH and not is_fitted(each))
    return (
        line("FlashAttention, simulated", flash, (0.10, 0.15)),
        line("FlatAttention, simulated", flat, (0.15, 0.30)),
        line("FlashAttention, formulas", flash, (0.10, 0.15), simulated=False),
        line("FlatAttention, formulas", flat, (0.15, 0.30), simulated=False),
        line("FlatAttention, no latencies or barriers", flat, (0.90, 0.95), simulated=False, bare=True),
    )


def is_fitted(figure: Figure) -> bool:
    """Whether the barrier was fitted to the run."""
    return figure.run.dataflow == FLAT_HARDWARE and (figure.run.sequence, figure.run.head) == (1024, 64)


def fit(every: tuple[Figure, ...]) -> tuple[float, int]:
    """The efficiency of HBM, in hundredths, of least mean error on the runs of FlashAttention; the barrier [cycles] with which
    the run that it is fitted to has its published time. Both by the formulas."""
    flash = tuple(each for each in every if each.run.dataflow in FLASH)
    (own,) = (each for each in every if is_fitted(each))

    def error(efficiency: float) -> float:
        return sum(abs(formula_time(each, machine(each, efficiency)) / each.time - 1) for each in flash)

    efficiency = min((step / 100 for step in range(60, 101)), key=error)
    low, high = (formula_time(own, machine(own, efficiency, barrier)) for barrier in (0, 1000))
    return efficiency, round(1000 * (own.time - low) / (high - low))


__all__ = [
    "Figure", "figures", "fit", "formula_time", "is_fitted", "line", "lines", "machine", "simulated_time", "without_latency",
]  # fmt: skip
