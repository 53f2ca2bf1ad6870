"""Who works how long for what: the events of an estimate by resource and by node. Sums what `halley.cost` counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from halley.cost.estimate import Estimate, Resource
from halley.cost.events import Access, Event, LinkTraffic, Path, PortTraffic, Work
from halley.cost.resources import Resources, energy_of
from halley.ir.hardware import Chip, Topology
from halley.ir.mapping import Collective, Compute, Hold, Node, walk
from halley.units import format_bytes, format_time


def activity(chip: Chip, event: Event) -> tuple[Resource, float]:
    """The resource that an event keeps busy, and for how long [s] in the critical instance."""
    resource, seconds = Resources(chip).of(event)
    return resource, float(seconds)


def resources(chip: Chip) -> tuple[Resource, ...]:
    """Every resource of a chip, outermost first, engines last."""
    found: list[Resource] = []
    for level in chip.levels:
        if level.network is not None:
            if level.network.port is not None:
                found += [("port", level.name, "down"), ("port", level.name, "up")]
            found += [("axis", level.name, axis.name) for axis in level.network.axes if axis.topology is not Topology.NONE]
        for memory in level.memories:
            found += [(way, memory.name) for way in (("bus",) if memory.shared_bus else ("read", "write"))]
            found += [("dma", memory.name)] if memory.dma else []
    found += [("engine", engine.name) for engine in (chip.matrix, chip.vector) if engine is not None]
    return tuple(found)


def event_name(event: Event, node: Node) -> str:
    """What an event does, in a word or two: "fill A", "gemm", "all-reduce mx"."""
    match event:
        case Access():
            return f"{event.cause} {event.tensor}"
        case PortTraffic():
            if isinstance(node, Hold):
                return f"{'fill' if event.down else 'drain'} {' '.join(node.names)}"
            return f"{'operands of' if event.down else 'results of'} {node_name(node)}"
        case LinkTraffic() | Work():
            return node_name(node) if isinstance(node, Compute | Collective) else "work"


def node_name(node: Node) -> str:
    """A node's subject: its op, its collective, or the ops inside from the first to the last."""
    match node:
        case Compute():
            return node.op
        case Collective():
            return f"{node.kind.value} {' '.join(node.tensors)}"
        case _:
            inside = [item for _, item in walk(node) if isinstance(item, Compute | Collective)]
            named = [item for item in inside if isinstance(item, Compute)] or inside
            names = list(dict.fromkeys(map(node_name, named)))
            return " + ".join(names) if len(names) < 4 else f"{names[0]} ... {names[-1]}"


@dataclass(slots=True)
class Totals:
    """Sums over a node and all inside: energy [J] without the static part, bytes by (memory, "read" or "write")."""

    energy: float = 0.0
    bytes: dict[tuple[str, str], float] = field(default_factory=dict)

    def moved(self, memories: Iterable[str]) -> float:
        """Bytes read and written at the memories."""
        return sum(self.bytes.get((name, way), 0.0) for name in memories for way in ("read", "write"))


def totals(chip: Chip, tree: Node, estimate: Estimate) -> dict[Path, Totals]:
    """For each node the sums over itself and all that is inside."""
    made = {path: Totals() for path, _ in walk(tree)}
    for event in estimate.events:
        energy = float(energy_of(chip, event)[1])
        for depth in range(len(event.path) + 1):
            node = made[event.path[:depth]]
            node.energy += energy
            if isinstance(event, Access):
                key = (event.memory, "read" if event.is_read else "write")
                node.bytes[key] = node.bytes.get(key, 0.0) + float(event.total)
    return made


def event_text(event: Event) -> str:
    """One event in words with its total over all instances; empty where nothing moved."""
    match event:
        case Access(total=amount):
            way = "read from" if event.is_read else "written to"
            text = f"{event.cause} {event.tensor}: {format_bytes(float(amount))} {way} {event.memory}"
        case PortTraffic(total=amount):
            text = f"{format_bytes(float(amount))} {'down' if event.down else 'up'} through the ports of {event.level}"
        case LinkTraffic(total=amount):
            text = f"{format_bytes(float(amount))} over the links of {event.level}.{event.axis}, {format_time(float(event.time))}"
        case Work(count=amount):
            text = f"{float(amount):,.0f} {event.function} on the {event.engine} engine, {format_time(float(event.time))}"
    return text if float(amount) > 0 else ""
