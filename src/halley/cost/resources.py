"""Busy time of resources, and energy, of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from halley.cost.estimate import Resource
from halley.cost.events import Access, Event, LinkTraffic, PortTraffic, Work
from halley.formulas.energy import action_energy
from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time
from halley.ir.hardware import Chip
from halley.ir.workload import Op, OpKind

Busy = dict[Resource, Number]
"""Busy time [s] of the critical instance of each resource."""


class Resources:
    """The resources of one chip."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self._memories = {memory.name: memory for memory in chip.memories}
        self._ports = {level.name: level.network.port for level in chip.levels if level.network and level.network.port}
        self._known: dict[int, tuple[Event, tuple[Resource, Number]]] = {}  # by id of events, which they keep

    def busy(self, events: Iterable[Event]) -> Busy:
        """Busy time [s] of each resource."""
        result: Busy = {}
        for event in events:
            resource, time = self.of(event)
            result[resource] = result.get(resource, 0) + time
        return result

    def of(self, event: Event) -> tuple[Resource, Number]:
        """The resource of an event, and its busy time [s] in the critical instance."""
        known = self._known.get(id(event))
        if known is None:
            known = self._known[id(event)] = event, self._found(event)
        return known[1]

    def _found(self, event: Event) -> tuple[Resource, Number]:
        match event:
            case Access():
                memory = self._memories[event.memory]
                bandwidth = memory.read_bandwidth if event.is_read else memory.write_bandwidth
                way = "bus" if memory.shared_bus else "read" if event.is_read else "write"
                return (way, event.memory), busy_time(event.moved_critical, bandwidth)
            case PortTraffic():
                port = self._ports[event.level]
                return ("port", event.level, "down" if event.down else "up"), busy_time(event.critical, port.bandwidth)
            case LinkTraffic():
                return ("axis", event.level, event.axis), event.time
            case Work():
                return ("engine", event.engine), event.time


def engine_of(chip: Chip, op: Op) -> Resource:
    """The engine that computes an op."""
    engine = chip.matrix if op.kind is OpKind.CONTRACT and chip.matrix is not None else chip.vector
    assert engine is not None
    return ("engine", engine.name)


def shared_engines(chip: Chip, children: Iterable[Iterable[Op]]) -> dict[Resource, list[int]]:
    """The engines that compute ops of several children, with the indices of these children."""
    users: dict[Resource, list[int]] = {}
    for number, ops in enumerate(children):
        for engine in dict.fromkeys(engine_of(chip, op) for op in ops):
            users.setdefault(engine, []).append(number)
    return {engine: own for engine, own in users.items() if len(own) > 1}


def meets(chip: Chip, resource: Resource, pair: Sequence[int], engines: Mapping[Resource, list[int]]) -> bool:
    """Whether ops of two children wait for each other at a resource: an engine that computes ops of both (``engines``:
    `shared_engines`), or a port or DMA engine of an innermost memory. Transfers further out run ahead of the ops."""
    if resource[0] == "engine":
        return set(pair) <= set(engines.get(resource, ()))
    return resource[0] in ("read", "write", "bus", "dma") and depth_of(chip, resource) == len(chip.levels) - 1


def depth_of(chip: Chip, resource: Resource) -> int:
    """Index of the level of a resource; 0 is the outermost."""
    match resource[0]:
        case "read" | "write" | "bus" | "dma":
            return chip.depth(resource[1])
        case "engine":
            return len(chip.levels) - 1
        case _:
            return chip.levels.index(chip.level(resource[1]))


def added(*parts: Mapping[Resource, Number]) -> Busy:
    """The sum of busy times by resource."""
    result: Busy = {}
    for part in parts:
        for resource, time in part.items():
            result[resource] = result.get(resource, 0) + time
    return result


def energy_of(chip: Chip, event: Event) -> tuple[str, Number]:
    """(component, energy [J]) of one event."""
    match event:
        case Access():
            memory = chip.memory(event.memory)
            return event.memory, action_energy(event.moved, memory.read_energy if event.is_read else memory.write_energy)
        case PortTraffic():
            network = chip.level(event.level).network
            port = network.port if network else None
            return f"{event.level} port", action_energy(event.total, port.energy if port else 0.0)
        case LinkTraffic():
            return f"{event.level} network", action_energy(event.total, chip.axis(event.level, event.axis).link.energy)
        case Work():
            if chip.matrix is not None and event.engine == chip.matrix.name:
                return event.engine, action_energy(event.count, chip.matrix.energy.get(event.dtype, 0.0))
            energy = chip.vector.energy.get(event.function, 0.0) if chip.vector else 0.0
            return event.engine, action_energy(event.count, energy)
