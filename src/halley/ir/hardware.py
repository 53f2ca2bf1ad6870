"""Hardware: a tree of levels, outermost first, with engines at the leaf.

All numbers are SI: bytes, seconds, joules, hertz, bytes per second. Units are parsed at the file
boundary only. A level with a network has one sibling per point of its axes; memories of a level are
private to each sibling. A number's origin is kept in ``sources`` (file key -> text).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from halley.errors import BadInput, Fault, did_you_mean
from halley.units import format_bytes


class Topology(StrEnum):
    """How the ranks of one axis are linked; `halley.network.graph.topologies` builds each as a graph.

    The axes of a chip are lines, rings, full or without links (`CHIP_TOPOLOGIES`): a 2-D mesh of siblings is two `LINE` axes.
    ``NONE``: siblings are linked to their parent only, so no collective runs over the axis.
    """

    LINE = "line"
    RING = "ring"
    FULL = "full"
    SWITCH = "switch"
    MESH = "mesh"
    TORUS = "torus"
    HYPERCUBE = "hypercube"
    DRAGONFLY = "dragonfly"
    FAT_TREE = "fat-tree"
    DGX_1 = "dgx-1"
    NONE = "none"


CHIP_TOPOLOGIES = (Topology.LINE, Topology.RING, Topology.FULL)
"""Topologies of a chip's axis with links, over which the mapping language has collectives."""

NETWORK_TOPOLOGIES = tuple(topology for topology in Topology if topology is not Topology.NONE)
"""Topologies of a network, in which every rank reaches every other."""


@dataclass(frozen=True, slots=True)
class Link:
    """One link: bandwidth per direction [B/s], latency per hop [s], energy per byte and hop [J/B], price of both directions with
    their transceivers [currency of the file that states it]; ``overhead``: time for which a rank is busy with each message that
    it sends on the link [s], o of LogGP."""

    bandwidth: float
    latency: float = 0.0
    energy: float = 0.0
    price: float = 0.0
    overhead: float = 0.0


NO_LINK = Link(0.0)
"""The link of an axis without links: it carries nothing."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Costs of a collective on an axis of a chip besides its links and the members' memories: ``startup`` of each step, before
    its first byte leaves [s]; ``barrier`` after each step [s]; for adders in the network, ``adder``, the latency of each one that
    a result passes [s], and ``add_bandwidth`` [B/s]."""

    startup: float = 0.0
    barrier: float = 0.0
    adder: float = 0.0
    add_bandwidth: float = math.inf


@dataclass(frozen=True, slots=True)
class Axis:
    """Ranks along one axis of a network: the siblings of a chip's level, or a block of a larger network.

    ``link``: between neighbours, or from a rank to its switch; `NO_LINK` on an axis without links. ``shape``: extents of a
    mesh or torus; (leaf size, spines) or (leaf size, leaves per pod, spines per pod, cores) of a fat-tree; (routers per
    group, ranks per router, global links per router) of a dragonfly. ``upper``: between switches (``link`` unless given);
    ``top``: between pods or groups (``upper`` unless given). ``multicast``, ``reduction``: the switches can copy, and can add;
    ``on_request``: a switch adds what one rank requests, and returns the sum to that rank only. ``one_way``: a ring whose links
    all point up. ``multipath``: a message is split over all shortest paths instead of taking one. ``exchange``: further costs of
    a collective on an axis of a chip.
    """

    name: str
    size: int
    topology: Topology
    link: Link
    shape: tuple[int, ...] = ()
    upper: Link | None = None
    top: Link | None = None
    multicast: bool = False
    reduction: bool = False
    one_way: bool = False
    multipath: bool = False
    on_request: bool = False
    exchange: Exchange = Exchange()

    def grouped(self, group: int, level: str = "") -> tuple[Axis, Axis]:
        """The axis of the groups of ``group`` neighbours, and the axis inside a group (docs/model.md, "Groups along an axis").

        Members of the same index in neighbouring groups are ``group`` links apart on a line or ring. The collectives of all
        indices run at the same time over these links, so each has 1/``group`` of their bandwidth. A group of a ring is a line.
        The barrier after a step takes time in proportion to the members that it waits for (in RTL, arXiv 2603.26438, 1.3 cycles
        for each member with barriers in hardware, 3.3 in software).

        >>> for part in Axis("x", 32, Topology.LINE, Link(128.0, 1.0)).grouped(8):
        ...     print(part.name, part.size, part.link.bandwidth, part.link.latency)
        x/8 4 16.0 8.0
        x%8 8 128.0 1.0

        Raises BadInput: a group that does not divide the axis.
        """
        if self.size % group:
            where, expected = f"mapping, axis {f'{level}.' if level else ''}{self.name}", f"a divisor of its size {self.size}"
            raise BadInput(Fault(where, expected, f"groups of {group}", "choose groups of equal size"))
        along = self.topology in (Topology.LINE, Topology.RING)
        link, given, groups, apart = self.link, self.exchange, self.size // group, group if along else 1
        far = replace(link, bandwidth=link.bandwidth / apart, latency=link.latency * apart, energy=link.energy * apart)
        between = replace(given, add_bandwidth=given.add_bandwidth / apart, barrier=given.barrier * groups / self.size)
        inside = replace(given, barrier=given.barrier * group / self.size)
        topology = Topology.LINE if self.topology is Topology.RING and group < self.size else self.topology
        return (
            replace(self, name=f"{self.name}/{group}", size=groups, link=far, exchange=between),
            replace(self, name=f"{self.name}%{group}", size=group, topology=topology, exchange=inside),
        )


_PART = re.compile(r"(.+)([/%])([1-9][0-9]{0,8})")


def axis_group(name: str) -> tuple[str, int]:
    """The axis that a mapping names, and the size of the groups in which it names it; 0 for the whole axis.

    >>> axis_group("x"), axis_group("x/8"), axis_group("x%8")
    (('x', 0), ('x', 8), ('x', 8))
    """
    part = _PART.fullmatch(name) if "/" in name or "%" in name else None
    return (part[1], int(part[3])) if part else (name, 0)


@dataclass(frozen=True, slots=True)
class Network:
    """Links the siblings of a level to each other (``axes``) and to their parent (``port``, one per sibling; its latency is added
    to that of the memory further out). ``multicast``: one read at the parent serves all siblings that need the same bytes.
    ``reduction``: partial sums are added on the way to the parent (the wires of a PE array)."""

    axes: tuple[Axis, ...]
    port: Link | None = None
    multicast: bool = True
    reduction: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory: capacity [B], bandwidth [B/s] for reads and for writes (separate ports), latency [s],
    energy [J/B]. ``latency`` is paid once per fill or drain that is not hidden. ``shared_bus``: reads and writes share one bus
    (DRAM). ``lockstep``: double buffers swap at a barrier, so each transfer overlaps the work on one tile and the next tile waits
    for it; otherwise transfers run ahead. ``buffers``: the largest number of buffers that a search may give to a Hold there.
    ``burst`` [B]: fills and drains move whole bursts: each contiguous run of a row-major tensor is rounded up to a multiple (0:
    runs of any length). Only the outermost level's memories have one, as only there tensors are laid out whole. ``dma``: one DMA
    engine of each instance runs its fills, drains and collectives, one after the other."""

    name: str
    capacity: float
    read_bandwidth: float
    write_bandwidth: float
    latency: float = 0.0
    read_energy: float = 0.0
    write_energy: float = 0.0
    shared_bus: bool = False
    lockstep: bool = False
    buffers: int = 2
    burst: int = 0
    dma: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    name: str
    memories: tuple[Memory, ...] = ()
    network: Network | None = None

    @property
    def count(self) -> int:
        """Siblings under one parent."""
        return math.prod(axis.size for axis in self.network.axes) if self.network else 1


class Dataflow(StrEnum):
    """The stationary operand of the array: weights, inputs, outputs, or none (every MAC reads its operands)."""

    WEIGHT = "weight-stationary"
    INPUT = "input-stationary"
    OUTPUT = "output-stationary"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Granularity:
    """Rows, columns and terms of the sum that one instruction of a matrix engine computes."""

    rows: int = 1
    columns: int = 1
    reduced: int = 1


@dataclass(frozen=True, slots=True)
class MatrixEngine:
    """A rows x cols array of MACs. ``rate`` is MACs per PE and cycle by dtype (1.0 unless given), ``energy`` J per
    MAC by dtype. ``prefetch``: the stationary operand of the next fold is loaded during the current fold. ``latency`` of its
    pipeline [s], beyond the skew of the array, once for each tile. ``granularity`` of its instructions: the cycles of a tile are
    rounded up to whole instructions. ``accumulators``: dtype of the sums by dtype of the operands, where it differs from that of
    the result. ``reads`` names, by operand role (input, weight, output), the memories that feed the array; an empty tuple allows
    any. ``back_to_back``: a fold enters the array while the one before leaves it, so that no fold waits for the array's skew.
    ``nvfp4``: MACs per unit and cycle in that format, which serving alone uses; 0 where the array does not have it."""

    name: str
    rows: int
    cols: int
    clock: float
    dataflow: Dataflow = Dataflow.WEIGHT
    prefetch: bool = True
    rate: Mapping[str, float] = field(default_factory=dict)
    energy: Mapping[str, float] = field(default_factory=dict)
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    latency: float = 0.0
    granularity: Granularity = Granularity()
    accumulators: Mapping[str, str] = field(default_factory=dict)
    back_to_back: bool = False
    nvfp4: float = 0.0

    @property
    def filling(self) -> tuple[int, int]:
        """Rows and columns of the array that each fold waits for to fill and drain: one of each if folds are back to back."""
        return (1, 1) if self.back_to_back else (self.rows, self.cols)


@dataclass(frozen=True, slots=True)
class VectorEngine:
    """``lanes`` that each run ``rate[function]`` elementary functions per cycle; ``energy`` J each; ``latency`` of the pipeline
    [s], once for each tile. ``warp``: lanes of one instruction, which take neighbours along an op's last dim; 0: all lanes."""

    name: str
    lanes: int
    clock: float
    rate: Mapping[str, float]
    energy: Mapping[str, float] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    latency: float = 0.0
    warp: int = 0

    @property
    def width(self) -> int:
        """The number to whose next multiple points along an op's last dim are rounded up."""
        return self.warp or self.lanes


@dataclass(frozen=True, slots=True)
class Die:
    """How a chip is built, for its area (`halley.silicon.area`). ``process``: name of the technology, such as ``7 nm``. ``dram``:
    kind of the interfaces to the outermost memories; "" for none on this die. ``links`` [B/s]: bandwidth to other chips, both
    directions together. ``clusters``: members of the innermost level on the die; 0: as many as the chip uses. ``simt``: whether a
    cluster runs threads as a GPU does. ``registers``: memories that are register files. ``multipliers``: dtype for which the
    multipliers are built, where rates name others that stand for it. ``fp64``: multipliers of fp64 in each cluster,
    where rates are lower; None: by the rate. ``summed``: products of floats that a unit adds before it rounds. ``lanes``: of fp32
    in each cluster; None: those of the vector engine. ``area`` [m2]: as published; 0: none is."""

    process: str
    dram: str = ""
    links: float = 0.0
    clusters: int = 0
    simt: bool = False
    registers: tuple[str, ...] = ()
    multipliers: str = ""
    fp64: int | None = None
    summed: int = 1
    lanes: int | None = None
    area: float = 0.0


@dataclass(frozen=True, slots=True)
class Chip:
    """Levels, outermost first; each sibling of the last level has the engines. ``streams``: the memories through which concurrent
    kernels pass tensors (a spatial chip); empty where kernels run one by one (a temporal chip). ``version`` of the figures:
    increases by one whenever a figure changes. ``die``: how it is built, which no mapping depends on. ``power_limit`` [W]: what
    it may draw for longer; infinite if none is known."""

    name: str
    levels: tuple[Level, ...]
    matrix: MatrixEngine | None = None
    vector: VectorEngine | None = None
    static_power: float = 0.0
    description: str = ""
    streams: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    version: int = 1
    die: Die | None = None
    power_limit: float = math.inf

    def __repr__(self) -> str:
        sizes = (f" {format_bytes(m.capacity)}" if math.isfinite(m.capacity) else "" for m in self.memories)
        memories = ", ".join(f"{memory.name}{size}" for memory, size in zip(self.memories, sizes, strict=True))
        matrix = f"; matrix engine {self.matrix.rows} x {self.matrix.cols}" if self.matrix else ""
        axes = f"; axes {', '.join(f'{level}.{axis.name} {axis.size}' for level, axis in self.axes)}" if self.axes else ""
        return f"Chip({self.label}: {memories}{axes}{matrix})"

    @property
    def label(self) -> str:
        """The name, with the version if it is not the first."""
        return self.name if self.version == 1 else f"{self.name} (version {self.version})"

    def __post_init__(self) -> None:
        names = [m.name for level in self.levels for m in level.memories]
        for name in {n for n in names if names.count(n) > 1}:
            raise BadInput(Fault(f"chip {self.name}", "memories with names of their own", f"{name!r} twice"))
        inner = {memory.name for level in self.levels[1:] for memory in level.memories}
        for memory in (memory for level in self.levels[1:] for memory in level.memories if memory.burst):
            where, expected = f"chip {self.name}, memory {memory.name}", "a burst length in the outermost level only"
            raise BadInput(Fault(where, expected, f"{memory.burst} B", "remove it"))
        if self.power_limit <= self.static_power:
            expected, got = f"more than the static power of {self.static_power:g} W", f"{self.power_limit:g} W"
            raise BadInput(Fault(f"chip {self.name}, power_limit", expected, got, "correct one of them"))
        for name in self.streams:
            if name not in inner:
                raise BadInput(Fault(f"chip {self.name}, streams", "a memory inside the outermost level", repr(name)))

    @property
    def memories(self) -> tuple[Memory, ...]:
        return tuple(memory for level in self.levels for memory in level.memories)

    def memory(self, name: str) -> Memory:
        for level in self.levels:
            for memory in level.memories:
                if memory.name == name:
                    return memory
        remedy = did_you_mean(name, (m.name for m in self.memories))
        raise BadInput(Fault(f"chip {self.name}", "the name of a memory", repr(name), remedy))

    def depth(self, memory: str) -> int:
        """Index of the level that holds the memory; 0 is outermost."""
        for index, level in enumerate(self.levels):
            for item in level.memories:
                if item.name == memory:
                    return index
        self.memory(memory)  # raises, naming the known ones
        return -1

    def transfer_latency(self, outer: str, inner: str) -> float:
        """Latency [s] of a transfer between two memories: that of the outer one, and those of the ports on the way.

        .. math:: \\lambda = \\lambda_m + \\sum_{l = a + 1}^{b} \\lambda_l

        Symbols: lambda_m of the outer memory, at level a; lambda_l of the port of level l; the inner memory is at level b.

        >>> from halley.io.chips.load import load_chip
        >>> chip = load_chip("simba-like")
        >>> chip.transfer_latency("dram", "ibuf") == chip.memory("dram").latency + 10e-9
        True
        """
        way = self.levels[self.depth(outer) + 1 : self.depth(inner) + 1]
        ports = (level.network.port.latency for level in way if level.network and level.network.port)
        return math.fsum((self.memory(outer).latency, *ports))

    def level(self, name: str) -> Level:
        for level in self.levels:
            if level.name == name:
                return level
        remedy = did_you_mean(name, (level.name for level in self.levels))
        raise BadInput(Fault(f"chip {self.name}", "the name of a level", repr(name), remedy))

    def axis(self, level: str, axis: str) -> Axis:
        """The axis of a level, or a part of it: ``x/8``, ``x%8``."""
        network = self.level(level).network
        axes = network.axes if network else ()
        whole, group = axis_group(axis)
        for item in axes:
            if item.name == axis:
                return item
            if group and item.name == whole:
                return next(part for part in item.grouped(group, level) if part.name == axis)
        remedy = did_you_mean(axis, (a.name for a in axes)) if axes else "the level has no axes"
        raise BadInput(Fault(f"chip {self.name}, level {level}", "the name of an axis", repr(axis), remedy))

    @property
    def axes(self) -> tuple[tuple[str, Axis], ...]:
        """All (level name, axis) pairs, outermost first."""
        return tuple((lv.name, axis) for lv in self.levels if lv.network for axis in lv.network.axes)
