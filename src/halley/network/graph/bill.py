"""What a system costs: price and power by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from halley.ir.hardware import Axis, Topology
from halley.ir.system import Cost, System
from halley.network.graph import measures
from halley.network.graph.topologies import build


@dataclass(frozen=True, slots=True)
class Item:
    """Equal parts of a system: how many there are, and their price [USD] and power [W] together; None where not stated."""

    part: str
    count: int
    price: float | None
    power: float | None


@dataclass(frozen=True, slots=True)
class Bill:
    """All parts of a system. Sums are over what is stated; ``unpriced`` and ``unpowered`` name the rest."""

    items: tuple[Item, ...]

    @property
    def price(self) -> float:
        """Price of all that is stated [USD]."""
        return sum(item.price for item in self.items if item.price is not None)

    @property
    def power(self) -> float:
        """Power of all that is stated, all of it busy [W]."""
        return sum(item.power for item in self.items if item.power is not None)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Parts without a price."""
        return tuple(item.part for item in self.items if item.price is None)

    @property
    def unpowered(self) -> tuple[str, ...]:
        """Parts without a power."""
        return tuple(item.part for item in self.items if item.power is None)


def bill(system: System) -> Bill:
    """Price, and power with all parts busy, of the chips, their memories, the rest of their nodes, and each axis' links.

    Raises BadInput: an axis that cannot be built.
    """
    parts = (("chips", system.chip_cost), ("memories", system.memory_cost), ("nodes", system.node_cost))
    each = (Item(part, system.chips, *_times(system.chips, cost)) for part, cost in parts)
    return Bill((*each, *_links(system)))


def _times(count: int, cost: Cost) -> tuple[float | None, float | None]:
    price = None if cost.price is None else count * cost.price
    return price, None if cost.power is None else count * cost.power


def _links(system: System) -> Iterator[Item]:
    for axis in system.axes:
        # the ports of a switch are equal: one stands for all
        part = replace(axis, size=1) if axis.topology is Topology.SWITCH else axis
        graph, copies = build(part), system.chips // part.size
        cables = sum((edge.target, edge.source) not in graph.between or edge.source < edge.target for edge in graph.edges)
        price = measures.price(graph)
        yield Item(
            f"links {axis.name}",
            copies * cables,
            None if price is None else copies * price,
            copies * measures.power(graph),
        )


def bisection(system: System, axis: Axis) -> float:
    """Bandwidth [B/s] between the halves of a system that is cut across one of its axes, one way."""
    return system.chips // axis.size * measures.bisection(build(axis))
