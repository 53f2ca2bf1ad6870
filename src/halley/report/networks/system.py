"""Systems as tables: chips, axes, memories, power, price, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from halley.ir.hardware import Axis
from halley.ir.system import System
from halley.network.graph.bill import Bill, bill, bisection
from halley.report.table import Table
from halley.units import format_bytes, format_power, format_rate, format_time


def system_list(systems: Mapping[str, System]) -> Table:
    """One system a row, under the name that it is loaded by."""
    rows = []
    for name, system in systems.items():
        costs = bill(system)
        joined = " x ".join(f"{axis.name} {axis.topology} {axis.size}" for axis in system.axes)
        price = f"{costs.price:,.0f}{'+' if costs.unpriced else ''}"
        power = f"{format_power(costs.power)}{'+' if costs.unpowered else ''}"
        rows.append((name, str(system.chips), system.chip.name, joined, power, price))
    head = ("name", "chips", "chip", "axes", "power", "price, USD")
    return Table("Systems (+: not all parts are stated)", head, tuple(rows), right=frozenset({1, 4, 5}))


def system_tables(system: System) -> tuple[Table, ...]:
    """What the system is, its axes, its memories, its bill, and where the numbers come from."""
    facts = (("chips", f"{system.chips} {system.chip.name}"), ("chip", system.chip.description or "-"))
    tables = [Table("System", ("", ""), facts)]
    tables += [_axes(system)] if system.axes else []
    return (*tables, _memories(system), _bill(bill(system)), *_sources(system.sources))


def _axes(system: System) -> Table:
    rows = []
    for axis in system.axes:
        numbers = format_rate(axis.link.bandwidth), format_time(axis.link.latency), format_rate(bisection(system, axis))
        rows.append((axis.name, str(axis.size), _topology(axis), *numbers))
    head = ("axis", "size", "topology", "link, each way", "latency", "bisection")
    return Table("Network, the outermost axis first", head, tuple(rows), right=frozenset({1, 3, 4, 5}))


def _topology(axis: Axis) -> str:
    """The topology with its shape and what its switches can do."""
    shape = f" {' x '.join(map(str, axis.shape))}" if axis.shape else ""
    able = [word for word in ("multicast", "reduction") if getattr(axis, word)]
    able[1:] = [f"{word} on request" if axis.on_request else word for word in able[1:]]
    return f"{axis.topology}{shape}" + (f" with {' and '.join(able)}" if able else "")


def _memories(system: System) -> Table:
    rows = [(tier.name, format_bytes(tier.capacity), format_rate(tier.read_bandwidth), "-") for tier in system.tiers]
    if system.host is not None:
        host = system.host
        rows.append(("host", format_bytes(host.capacity), format_rate(host.bandwidth), format_rate(host.link.bandwidth)))
    head = ("memory of a chip", "capacity", "bandwidth", "link to it")
    return Table("Memory, nearest first", head, tuple(rows), right=frozenset({1, 2, 3}))


def _bill(costs: Bill) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            item.part,
            str(item.count),
            "not stated" if item.power is None else format_power(item.power),
            "not stated" if item.price is None else f"{item.price:,.0f}",
        )
        for item in costs.items
    ]
    rows.append(("all that is stated", "", format_power(costs.power), f"{costs.price:,.0f}"))
    head = ("part", "number", "power, all busy", "price, USD")
    return Table("Power and price", head, tuple(rows), frozenset({1, 2, 3}), strong=frozenset({len(rows) - 1}))


def _sources(sources: Mapping[str, str]) -> Iterator[Table]:
    keys: dict[str, list[str]] = {}
    for path, text in sources.items():
        keys.setdefault(text, []).append(path)
    if keys:
        rows: Sequence[tuple[str, str]] = [
            (text, ", ".join(paths[:4]) + (", ..." if paths[4:] else "")) for text, paths in keys.items()
        ]
        yield Table("Sources", ("source", "of"), tuple(rows))
