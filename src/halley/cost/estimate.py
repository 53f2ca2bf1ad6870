"""Result of an evaluation: time, energy, traffic and footprint, with a record for every node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from halley.cost.events import PIPELINE, Access, Event, LinkTraffic, Path, PortTraffic, Work
from halley.formulas.numbers import Number
from halley.formulas.timing import total

Resource = tuple[str, ...]
"""("engine", name) | ("read", memory) | ("write", memory) | ("bus", memory) | ("port", level, "down" or "up") |
("axis", level, axis) | ("dma", memory)."""


Moving = tuple[tuple[str, ...], Number]
"""A group of tensors that share a buffer, and the time of their fills and drains [s], summed over all visits."""


@dataclass(frozen=True, slots=True)
class BarrierTimes:
    """A node between barriers: the number of ``steps``, the ``work`` [s] with the stalls of steps, the ramps of one entry [s] as
    in `NodeCost`, and the ``time`` [s] of the node as a phase; ``ahead`` [s]: the same without barriers."""

    steps: Number
    work: Number
    filling: Number
    waiting: Number
    ramp_down: Number
    time: Number
    ahead: Number

    @property
    def ramp_up(self) -> Number:
        """Time [s] of one entry before the steady state."""
        return self.filling + self.waiting


@dataclass(frozen=True, slots=True)
class NodeCost:
    """Totals of one node over the whole execution. ``time`` [s] of the node as a phase, including ramps; ``work`` [s] without
    costs that the enclosing phase pays; ``busy`` [s] by resource. Per entry: first fills (``filling`` [s]), pipeline fill and
    drain of children that hand over (``waiting`` [s]), last drains (``ramp_down`` [s]). ``barriers``: the same with its double
    buffers in lockstep, else None. ``latency``: time [s] by which the visits of Holds, limited by the
    number of buffers in flight, lengthen the phase; ``ends``: waits of the ramps' resources for transfers at both ends of an
    entry [s]; ``moving``: for a Hold with several buffers, the transfer times of its groups."""

    path: Path
    entries: Number
    work: Number
    busy: Mapping[Resource, Number]
    filling: Number
    waiting: Number
    ramp_down: Number
    time: Number
    barriers: BarrierTimes | None = None
    latency: Number = 0
    ends: Mapping[Resource, Number] = field(default_factory=dict)
    moving: tuple[Moving, ...] = ()

    @property
    def ramp_up(self) -> Number:
        """Time [s] of one entry before the steady state."""
        return self.filling + self.waiting

    @property
    def limiting(self) -> NodeCost | BarrierTimes:
        """The work and ramps that explain the time: those between barriers, if these make the phase longer. Not of a batch."""
        return self.barriers if self.barriers is not None and self.barriers.time >= self.time else self


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cost of a mapping. Numbers, or arrays with one entry per mapping of a batch.

    ``time`` [s]; ``energy`` [J]; ``energy_by`` [J] by component, which adds up to ``energy``; ``busy`` [s] by resource;
    ``footprint`` [B] by memory, of one instance; ``events``: the counts from which all of it is computed; ``nodes``: record of
    each node by path.
    """

    time: Number
    energy: Number
    energy_by: Mapping[str, Number]
    busy: Mapping[Resource, Number]
    footprint: Mapping[str, Number]
    events: tuple[Event, ...]
    nodes: Mapping[Path, NodeCost]

    @property
    def energy_of_actions(self) -> Number:
        """Energy [J] without that of the static power."""
        return total(energy for name, energy in self.energy_by.items() if name != "static")

    def reads(self) -> dict[tuple[str, str, str], Number]:
        """Bytes read, by (memory, tensor, cause), over all instances."""
        return self._accesses(True)

    def writes(self) -> dict[tuple[str, str, str], Number]:
        """Bytes written, by (memory, tensor, cause), over all instances."""
        return self._accesses(False)

    def _accesses(self, is_read: bool) -> dict[tuple[str, str, str], Number]:
        result: dict[tuple[str, str, str], Number] = {}
        for event in self.events:
            if isinstance(event, Access) and event.is_read is is_read:
                key = (event.memory, event.tensor, event.cause)
                result[key] = result.get(key, 0) + event.total
        return result

    def links(self) -> dict[tuple[str, str, int, int], Number]:
        """Bytes over each directed link of each axis, over all instances of the axis."""
        result: dict[tuple[str, str, int, int], Number] = {}
        for event in self.events:
            if isinstance(event, LinkTraffic):
                for (source, target), load in event.links:
                    key = (event.level, event.axis, source, target)
                    result[key] = result.get(key, 0) + load
        return result

    def ports(self) -> dict[tuple[str, str], Number]:
        """Bytes through each level's ports, by (level, "down" or "up")."""
        result: dict[tuple[str, str], Number] = {}
        for event in self.events:
            if isinstance(event, PortTraffic):
                key = (event.level, "down" if event.down else "up")
                result[key] = result.get(key, 0) + event.total
        return result

    def work(self) -> dict[str, Number]:
        """Operations by elementary function; multiply-accumulates of the matrix engine as "mac"."""
        result: dict[str, Number] = {}
        for event in self.events:
            if isinstance(event, Work) and event.function != PIPELINE:
                result[event.function] = result.get(event.function, 0) + event.count
        return result

    def traffic(self, memory: str) -> Number:
        """Bytes read and written at a memory, over all instances."""
        result: Number = 0
        for event in self.events:
            if isinstance(event, Access) and event.memory == memory:
                result = result + event.total
        return result
