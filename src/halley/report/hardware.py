"""Chips as tables, each number with its source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from halley.ir.hardware import Axis, Chip, Die, Level, Link, Topology
from halley.report.rows import Row
from halley.report.table import Table
from halley.silicon.area import area_parts, silicon
from halley.units import (
    format_area,
    format_bytes,
    format_energy,
    format_energy_per_byte,
    format_frequency,
    format_power,
    format_rate,
    format_time,
)

Fact = tuple[str, str]
"""Dotted path of a number in the chip's file, and the number with its unit."""


def chip_list(chips: Sequence[Chip]) -> Table:
    """One chip a row."""
    rows = tuple((chip.name, _peak_text(chip), " > ".join(map(_level, chip.levels)), chip.description) for chip in chips)
    return Table("Chips", ("name", "MACs/s", "levels", "description"), rows, spare=frozenset({3}))


def chip_tables(chip: Chip) -> tuple[Table, ...]:
    """Every number of the chip with its source; the sources are numbered and listed below."""
    facts = tuple(chip_facts(chip))
    return _sourced("Numbers", chip, facts)


def area_table(chip: Chip) -> Table | None:
    """The area of the chip's die by its parts, beside the published one; None where its file does not say how it is built."""
    built = silicon(chip)
    if built is None or chip.die is None:
        return None
    parts = {name: area for name, area in area_parts(built).items() if area}
    total = sum(parts.values())
    rows = [(name, format_area(area), f"{100 * area / total:.0f} %") for name, area in parts.items()]
    rows.append(("total", format_area(total), ""))
    if chip.die.area:
        rows.append(("published", format_area(chip.die.area), f"{100 * (total / chip.die.area - 1):+.0f} %"))
    return Table("Area of the die, estimated", ("part", "area", ""), tuple(rows), frozenset({1, 2}))


def _sourced(title: str, chip: Chip, facts: Sequence[Fact]) -> tuple[Table, ...]:
    """The numbers, each with the number of its source, and the sources below."""
    sources = {path: source(chip, path) for path, _ in facts}
    numbers = {text: f"[{index}]" for index, text in enumerate(dict.fromkeys(sources.values()), 1)}
    rows = tuple((path, value, numbers[sources[path]]) for path, value in facts)
    return (
        Table(title, ("key", "value", "source"), rows, frozenset({1})),
        Table("Sources", ("", ""), tuple((number, text) for text, number in numbers.items())),
    )


def source(chip: Chip, path: str) -> str:
    """Where the number comes from. An engine's clock is the chip's where it has none of its own."""
    inherited = chip.sources.get("clock") if path.endswith(".clock") else None
    return chip.sources.get(path) or inherited or "not stated"


def chip_facts(chip: Chip) -> Iterator[Fact]:
    """Every number of the chip, by its dotted path in a chip file."""
    if chip.version > 1:
        yield "version", str(chip.version)
    yield "static_power", format_power(chip.static_power)
    if math.isfinite(chip.power_limit):
        yield "power_limit", format_power(chip.power_limit)
    if chip.streams:
        yield "streams", ", ".join(chip.streams)
    for level in chip.levels:
        for memory in level.memories:
            at = f"levels.{level.name}.memories.{memory.name}"
            yield f"{at}.capacity", format_bytes(memory.capacity)
            yield f"{at}.read_bandwidth", format_rate(memory.read_bandwidth)
            yield f"{at}.write_bandwidth", format_rate(memory.write_bandwidth)
            yield f"{at}.latency", format_time(memory.latency)
            yield f"{at}.read_energy", format_energy_per_byte(memory.read_energy)
            yield f"{at}.write_energy", format_energy_per_byte(memory.write_energy)
            for key, given in (("shared_bus", memory.shared_bus), ("lockstep", memory.lockstep), ("dma", memory.dma)):
                if given:
                    yield f"{at}.{key}", "true"
            if memory.buffers != 2:
                yield f"{at}.buffers", str(memory.buffers)
            if memory.burst:
                yield f"{at}.burst", format_bytes(memory.burst)
        if level.network is None:
            continue
        at = f"levels.{level.name}.network"
        for axis in level.network.axes:
            yield f"{at}.axes.{axis.name}.size", str(axis.size)
            yield f"{at}.axes.{axis.name}.topology", axis.topology.value
            if axis.topology is not Topology.NONE:
                yield from _link(f"{at}.axes.{axis.name}.link", axis.link)
            yield from _collectives(f"{at}.axes.{axis.name}.collectives", axis)
        if level.network.port is not None:
            yield from _link(f"{at}.port", level.network.port)
        yield f"{at}.multicast", str(level.network.multicast).lower()
        yield f"{at}.reduction", str(level.network.reduction).lower()
    yield from _engines(chip)
    if chip.die is not None:
        yield from _die(chip.die)


def _die(die: Die) -> Iterator[Fact]:
    yield "die.process", die.process
    if die.dram:
        yield "die.dram", die.dram
    if die.links:
        yield "die.links", format_rate(die.links)
    if die.clusters:
        yield "die.clusters", str(die.clusters)
    if die.simt:
        yield "die.simt", "true"
    if die.multipliers:
        yield "die.multipliers", die.multipliers
    if die.fp64 is not None:
        yield "die.fp64", str(die.fp64)
    if die.summed != 1:
        yield "die.summed", str(die.summed)
    if die.lanes is not None:
        yield "die.lanes", str(die.lanes)
    if die.area:
        yield "die.area", format_area(die.area)


def _collectives(at: str, axis: Axis) -> Iterator[Fact]:
    exchange = axis.exchange
    for key, time in (("startup", exchange.startup), ("barrier", exchange.barrier), ("adder", exchange.adder)):
        if time:
            yield f"{at}.{key}", format_time(time)
    if exchange.add_bandwidth < math.inf:
        yield f"{at}.add_bandwidth", format_rate(exchange.add_bandwidth)
    for key, able in (("multicast", axis.multicast), ("reduction", axis.reduction)):
        if able:
            yield f"{at}.{key}", "true"


def _link(at: str, link: Link) -> Iterator[Fact]:
    yield f"{at}.bandwidth", format_rate(link.bandwidth)
    yield f"{at}.latency", format_time(link.latency)
    yield f"{at}.energy", format_energy_per_byte(link.energy)


def _engines(chip: Chip) -> Iterator[Fact]:
    if chip.matrix is not None:
        at = "engines.matrix"
        yield f"{at}.rows", str(chip.matrix.rows)
        yield f"{at}.cols", str(chip.matrix.cols)
        yield f"{at}.clock", format_frequency(chip.matrix.clock)
        yield f"{at}.dataflow", chip.matrix.dataflow.value
        yield f"{at}.prefetch", str(chip.matrix.prefetch).lower()
        if chip.matrix.nvfp4:
            yield f"{at}.nvfp4", f"{chip.matrix.nvfp4:g}"
        if chip.matrix.back_to_back:
            yield f"{at}.back_to_back", "true"
        if chip.matrix.latency:
            yield f"{at}.latency", format_time(chip.matrix.latency)
        for key in ("rows", "columns", "reduced"):
            if (multiple := getattr(chip.matrix.granularity, key)) > 1:
                yield f"{at}.granularity.{key}", str(multiple)
        yield from ((f"{at}.accumulators.{dtype}", wider) for dtype, wider in chip.matrix.accumulators.items())
        yield from ((f"{at}.rate.{dtype}", f"{rate:g}") for dtype, rate in chip.matrix.rate.items())
        yield from ((f"{at}.energy.{dtype}", format_energy(energy)) for dtype, energy in chip.matrix.energy.items())
    if chip.vector is not None:
        at = "engines.vector"
        yield f"{at}.lanes", str(chip.vector.lanes)
        if chip.vector.warp:
            yield f"{at}.warp", str(chip.vector.warp)
        yield f"{at}.clock", format_frequency(chip.vector.clock)
        if chip.vector.latency:
            yield f"{at}.latency", format_time(chip.vector.latency)
        yield from ((f"{at}.rate.{function}", f"{rate:g}") for function, rate in chip.vector.rate.items())
        yield from ((f"{at}.energy.{function}", format_energy(energy)) for function, energy in chip.vector.energy.items())


def tables_at(chip: Chip, prefixes: Iterable[str]) -> tuple[Table, ...]:
    """The numbers at or below the given paths with their sources; none where there are no such numbers."""
    wanted = tuple(dict.fromkeys(prefixes))
    facts = [fact for fact in chip_facts(chip) if any(fact[0] == path or fact[0].startswith(f"{path}.") for path in wanted)]
    return _sourced("Hardware numbers", chip, facts) if facts else ()


def chip_rows(chips: Iterable[Chip]) -> Iterator[Row]:
    """Chips with their peak and their outermost memory as bare numbers; NaN and no element type without a matrix engine."""
    yield ("name", "macs_per_s", "dtype", "memory_B", "bandwidth_B_per_s", "description")
    for chip in chips:
        outer = chip.memories[0]
        yield (chip.name, *(_peak(chip) or (math.nan, "")), outer.capacity, outer.read_bandwidth, chip.description)


def _peak(chip: Chip) -> tuple[float, str] | None:
    """Multiply-accumulates per second of all matrix engines, in bf16 or else the first element type that the file lists."""
    if chip.matrix is None:
        return None
    dtype = next((name for name in ("bf16", *chip.matrix.rate) if name in chip.matrix.rate), "")
    members = math.prod(level.count for level in chip.levels)
    return members * chip.matrix.rows * chip.matrix.cols * chip.matrix.rate.get(dtype, 1.0) * chip.matrix.clock, dtype


def _peak_text(chip: Chip) -> str:
    peak = _peak(chip)
    return "-" if peak is None else f"{peak[0] / 1e12:.4g} T {peak[1]}".rstrip()


def _level(level: Level) -> str:
    size = " x ".join(str(axis.size) for axis in level.network.axes) if level.network else ""
    return f"{level.name} ({size})" if size else level.name
