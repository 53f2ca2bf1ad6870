"""One node's cost, formula by formula, with the numbers that went in and the sources of the hardware's.

Nothing is computed here but by the functions of `halley.formulas`; what they say of themselves is quoted from their docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from halley.cost.estimate import Estimate
from halley.cost.events import PIPELINE, Access, Event, LinkTraffic, PortTraffic, Work
from halley.cost.figures import resource_name
from halley.cost.resources import energy_of
from halley.formulas.collectives import collective_time
from halley.formulas.energy import action_energy
from halley.formulas.engines import pipeline_latency, systolic_cycles, vector_cycles
from halley.formulas.timing import busy_time, phase_time, pipeline_time, total
from halley.ir.array import side_text
from halley.ir.hardware import Chip, axis_group
from halley.ir.mapping import Compute, Hold, Overlap, Parallel, Pipeline, Sequence
from halley.report.hardware import tables_at
from halley.report.mapping.tree import TreeLine, path_name
from halley.report.table import Table, percent
from halley.units import format_bytes, format_energy, format_frequency, format_rate, format_time


@dataclass(frozen=True, slots=True)
class Description:
    """What a formula's docstring says."""

    title: str
    equation: str
    symbols: str
    source: str


def describe(formula: Callable[..., Any]) -> Description:
    """The parts of a formula's docstring.

    >>> describe(busy_time).equation
    't = D / B'
    """
    text = " ".join((formula.__doc__ or "").split(">>>")[0].split())
    title = text.split(". ")[0].split(".. math::")[0].strip(" .")
    equation = re.search(r"\.\. math:: (.*?) (?=Symbols:|where |Holds|Source:|Does not|$)", text)
    symbols = re.search(r"Symbols: (.*?)(?= Source:| Holds for:| Does not model:|$)", text)
    source = re.search(r"Source: (.*)", text)
    return Description(title, *(found[1].strip(" .") if found else "" for found in (equation, symbols, source)))


@dataclass(frozen=True, slots=True)
class Step:
    """One use of a formula: what it gives, the numbers put in, the value, and the hardware numbers among them."""

    what: str
    formula: Callable[..., Any] | None
    numbers: str
    value: str
    hardware: tuple[str, ...] = ()


def explanation(chip: Chip, estimate: Estimate, line: TreeLine) -> tuple[Table, ...]:
    """The tables that explain a node: its place, the formulas with their numbers, the sources."""
    steps = list(_steps(chip, estimate, line))
    used = list(dict.fromkeys(step.formula for step in steps if step.formula is not None))
    whole = float(estimate.time)
    about = (
        ("node", line.text.strip()),
        ("place", f"line {line.number}, path {path_name(line.path)}"),
        ("entered", f"{float(line.cost.entries):,.0f} times by the first member of each axis"),
        *_laid(line),
        ("time", f"{format_time(line.time)}, {percent(line.time, whole)} of the whole"),
        ("set by", resource_name(line.bound) if line.bound else "the work inside"),
    )
    formulas = []
    for formula in used:
        said = describe(formula)
        formulas += [(formula.__name__, f"{said.title}: {said.equation}"), ("", said.symbols), ("", f"source: {said.source}")]
    rows = tuple((s.what, s.formula.__name__ if s.formula else "", s.numbers, s.value) for s in steps)
    tables = [
        Table("Node", ("", ""), about),
        Table("Numbers put in", ("what", "formula", "numbers", "value"), rows, frozenset({3})),
    ]
    if formulas:
        tables.append(Table("Formulas", ("", ""), tuple(formulas)))
    return (*tables, *tables_at(chip, (path for step in steps for path in step.hardware)))


def _laid(line: TreeLine) -> Iterator[tuple[str, str]]:
    """What a contraction has on the array, where its mapping says so."""
    if isinstance(line.node, Compute) and line.node.array:
        rows, columns = map(side_text, line.node.array)
        yield "on the array", f"{rows} on the rows, {columns} on the columns; other dims of their roles are walked"


def _steps(chip: Chip, estimate: Estimate, line: TreeLine) -> Iterator[Step]:
    for event in estimate.events:
        if event.path == line.path:
            yield from _event(chip, event)
    yield from _composition(estimate, line)
    cost, parts = line.cost, line.cost.limiting
    busy = cost.busy if parts is cost else {}  # between barriers, the work contains what resources add
    busiest = max((float(value) for value in busy.values()), default=0.0)
    numbers = (
        f"n = {float(cost.entries):,.0f}, U = {format_time(float(parts.ramp_up))}, V = {format_time(float(parts.ramp_down))}, "
        f"W = {format_time(float(parts.work))}, max b = {format_time(busiest)}"
    )
    value = phase_time(cost.entries, parts.ramp_up, parts.ramp_down, parts.work, busy.values())
    yield Step("time as a phase of its own", phase_time, numbers, format_time(float(value)))


def _composition(estimate: Estimate, line: TreeLine) -> Iterator[Step]:
    """How the times inside make up the node's work."""
    node, cost = line.node, line.cost
    inside = [estimate.nodes[path] for path in sorted(estimate.nodes) if path[:-1] == line.path and path]
    times = ", ".join(format_time(float(child.time)) for child in inside)
    match node:
        case Sequence():
            yield Step("work: its children one after the other", total, times, format_time(float(cost.work)))
        case Overlap() | Parallel():
            yield Step("work: the longest child", None, times, format_time(float(cost.work)))
        case Pipeline():
            yield Step("work: its stages as a pipeline", pipeline_time, times, format_time(float(cost.work)))
        case Hold() if node.buffers == 1:
            serial = float(cost.work) - float(inside[0].time)
            yield Step(
                "work: inside, and fills and drains", total, f"{times}, {format_time(serial)}", format_time(float(cost.work))
            )
        case _:
            return


def _event(chip: Chip, event: Event) -> Iterator[Step]:
    match event:
        case Access():
            yield from _access(chip, event)
        case PortTraffic():
            yield from _passage(chip, event)
        case LinkTraffic():
            link = chip.axis(event.level, event.axis).link
            at = f"levels.{event.level}.network.axes.{axis_group(event.axis)[0]}"
            rate, latency = format_rate(link.bandwidth), format_time(link.latency)
            numbers = f"{format_bytes(float(event.total))} over all links, B = {rate}, {latency} a hop"
            what = f"collective over {event.level}.{event.axis}"
            yield Step(what, collective_time, numbers, format_time(float(event.time)), (at,))
            yield _energy(chip, event, f"{event.level} network", (f"{at}.link.energy",))
        case Work():
            yield from _engine(chip, event)


def _access(chip: Chip, event: Access) -> Iterator[Step]:
    memory = chip.memory(event.memory)
    verb = "read" if event.is_read else "write"
    bandwidth = memory.read_bandwidth if event.is_read else memory.write_bandwidth
    at = f"levels.{chip.levels[chip.depth(event.memory)].name}.memories.{event.memory}"
    numbers = f"D = {format_bytes(float(event.moved_critical))}, B = {format_rate(bandwidth)}"
    keys = [f"{at}.{verb}_bandwidth"]
    if event.bursts_critical is not None:
        numbers += f"; whole bursts of {format_bytes(memory.burst)} for {format_bytes(float(event.critical))}"
        keys.append(f"{at}.burst")
    value = format_time(float(busy_time(event.moved_critical, bandwidth)))
    yield Step(f"{event.cause}: {verb} {event.tensor} in {event.memory}", busy_time, numbers, value, tuple(keys))
    yield _energy(chip, event, event.memory, (f"{at}.{verb}_energy",))


def _passage(chip: Chip, event: PortTraffic) -> Iterator[Step]:
    network = chip.level(event.level).network
    if network is None or network.port is None:
        return
    at = f"levels.{event.level}.network.port"
    way = "down" if event.down else "up"
    numbers = f"D = {format_bytes(float(event.critical))}, B = {format_rate(network.port.bandwidth)}"
    value = format_time(float(busy_time(event.critical, network.port.bandwidth)))
    yield Step(f"{event.level} port {way}", busy_time, numbers, value, (f"{at}.bandwidth",))
    yield _energy(chip, event, f"{event.level} port", (f"{at}.energy",))


def _engine(chip: Chip, event: Work) -> Iterator[Step]:
    matrix = chip.matrix is not None and event.engine == chip.matrix.name
    engine = chip.matrix if matrix else chip.vector
    if engine is None:
        return
    if event.function == PIPELINE:
        tiles = f"n = {float(event.time) / engine.latency:,.0f} tiles, {format_time(engine.latency)} each"
        at = f"engines.{'matrix' if matrix else 'vector'}.latency"
        yield Step(f"{event.engine} engine: latency", pipeline_latency, tiles, format_time(float(event.time)), (at,))
        return
    clock = engine.clock
    count = f"{float(event.count):,.0f} {event.function}, {float(event.time) * clock:,.0f} cycles at {format_frequency(clock)}"
    if chip.matrix is not None and matrix:
        numbers = f"{count}, R = {chip.matrix.rows}, C = {chip.matrix.cols}, {chip.matrix.dataflow.value}"
        used = ("rows", "cols", "clock", "dataflow", "prefetch", *(("back_to_back",) if chip.matrix.back_to_back else ()))
        keys = tuple(f"engines.matrix.{key}" for key in (*used, f"rate.{event.dtype}"))
        energy = f"engines.matrix.energy.{event.dtype}"
    else:
        numbers = count
        warp = ("engines.vector.warp",) if chip.vector is not None and chip.vector.warp else ()
        keys = ("engines.vector.lanes", *warp, "engines.vector.clock", f"engines.vector.rate.{event.function}")
        energy = f"engines.vector.energy.{event.function}"
    formula = systolic_cycles if matrix else vector_cycles
    yield Step(f"{event.engine} engine: {event.function}", formula, numbers, format_time(float(event.time)), keys)
    yield _energy(chip, event, event.engine, (energy,))


def _energy(chip: Chip, event: Event, what: str, hardware: tuple[str, ...]) -> Step:
    moved = event.moved if isinstance(event, Access) else 0 if isinstance(event, Work) else event.total
    count = float(event.count if isinstance(event, Work) else moved)
    amount = f"{count:,.0f} op" if isinstance(event, Work) else format_bytes(count)
    energy = format_energy(float(energy_of(chip, event)[1]))
    return Step(f"energy of {what}", action_energy, f"n = {amount} in all", energy, hardware)
