"""Systems: equal chips, their network, their hosts, and the price and power of the parts.

The network is the product of the axes, outermost first: pods of nodes of chips. All numbers are SI.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.hardware import Axis, Chip, Link, Memory, Topology

MIN_TIER_BYTES = 2**30
"""Where a system names no memory tiers: least capacity [B] of a memory, other than the outermost, that counts as one."""

_RESIZABLE = (Topology.LINE, Topology.RING, Topology.FULL, Topology.SWITCH)
"""Topologies that exist with any number of ranks."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Price [USD] and power [W] of one part; None where no source states it."""

    price: float | None = None
    power: float | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """One chip's share of the host memory of its node: capacity [B], bandwidth [B/s], and the link between chip and host."""

    capacity: float
    bandwidth: float
    link: Link


@dataclass(frozen=True, slots=True)
class System:
    """Equal chips on a product of axes; the first axis is the outermost and changes slowest in a chip's number.

    ``memories``: names of the chip's memories that may hold tensors, nearest first; () takes `tiers_of`. ``chip_cost``: of a
    chip with its package; ``memory_cost``: of a chip's memory outside the package; ``node_cost``: a chip's share of the rest of
    its node. ``sources``: file key -> text. ``libraries``: axis -> fit of the communication library that was measured there.

    Raises BadInput: two axes of one name, an axis without a chip, a memory that the chip lacks.
    """

    name: str
    chip: Chip
    axes: tuple[Axis, ...] = ()
    memories: tuple[str, ...] = ()
    host: Host | None = None
    chip_cost: Cost = Cost()
    memory_cost: Cost = Cost()
    node_cost: Cost = Cost()
    description: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where, faults = f"system {self.name}", []
        names = [axis.name for axis in self.axes]
        known = [memory.name for memory in self.chip.memories]
        for name in sorted({name for name in names if names.count(name) > 1}):
            faults.append(Fault(where, "axes with names of their own", f"{name!r} twice"))
        for axis in self.axes:
            if axis.size < 1:
                faults.append(Fault(f"{where}, axis {axis.name}", "at least one chip", str(axis.size)))
        for name in self.memories:
            if name not in known:
                faults.append(Fault(where, f"a memory of chip {self.chip.name}", repr(name), did_you_mean(name, known)))
        if faults:
            raise BadInput(faults)

    @property
    def chips(self) -> int:
        """How many chips there are."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def tiers(self) -> tuple[Memory, ...]:
        """The memories of a chip that may hold tensors, nearest first, without that of the host."""
        return tuple(map(self.chip.memory, self.memories)) if self.memories else tiers_of(self.chip)

    def axis(self, name: str) -> Axis:
        """Raises BadInput: no axis of that name."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        known = [axis.name for axis in self.axes]
        raise BadInput(Fault(f"system {self.name}", "the name of an axis", repr(name), did_you_mean(name, known)))


def tiers_of(chip: Chip) -> tuple[Memory, ...]:
    """The outermost memory, and every other one of at least `MIN_TIER_BYTES` that a chip has once; nearest first."""
    return tuple(reversed(list(_tiers(chip))))


def _tiers(chip: Chip) -> Iterator[Memory]:
    for place, level in enumerate(chip.levels):
        if level.count > 1:
            return
        yield from (memory for memory in level.memories if place == 0 or memory.capacity >= MIN_TIER_BYTES)


def resized(system: System, chips: int) -> System:
    """The same system with another number of chips: its outermost axis is made longer or shorter.

    Raises BadInput: a number that is no multiple of the product of the other axes, or an outermost axis whose topology has a
    shape.
    """
    if chips == system.chips:
        return system
    where = f"system {system.name}"
    if not system.axes or system.axes[0].topology not in _RESIZABLE:
        got = f"{chips}, and an outermost axis that is a {system.axes[0].topology}" if system.axes else str(chips)
        raise BadInput(Fault(where, f"its own {system.chips} chips", got, "write a system file of your own"))
    unit = system.chips // system.axes[0].size
    if chips < 1 or chips % unit:
        remedy = f"try {max(chips // unit, 1) * unit}"
        raise BadInput(Fault(where, f"a multiple of {unit} chips, the other axes' product", str(chips), remedy))
    return replace(system, axes=(replace(system.axes[0], size=chips // unit), *system.axes[1:]))


def with_memory(chip: Chip, capacity: float, bandwidth: float, energy: float) -> Chip:
    """The chip with other DRAM: capacity [B], bandwidth [B/s] of a shared bus and energy [J/B] of its outermost memory. The
    sources of the replaced figures are dropped.

    Raises BadInput: a chip without an outermost memory.
    """
    if not chip.levels or not chip.levels[0].memories:
        raise BadInput(Fault(f"chip {chip.name}", "a memory in the outermost level", "none"))
    level = chip.levels[0]
    memory = replace(
        level.memories[0],
        capacity=capacity,
        read_bandwidth=bandwidth,
        write_bandwidth=bandwidth,
        read_energy=energy,
        write_energy=energy,
        shared_bus=True,
    )
    first, place = replace(level, memories=(memory, *level.memories[1:])), f"levels.{level.name}.memories.{memory.name}."
    sources = {path: text for path, text in chip.sources.items() if not path.startswith(place) or path == f"{place}latency"}
    return replace(chip, levels=(first, *chip.levels[1:]), sources=sources)
