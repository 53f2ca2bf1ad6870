"""Members in lockstep: which ones are active, their range of every dim, and the boxes that the ranges select.

Ranges are arrays [dim, start or stop, member], so that one operation updates all members. The *critical* member is the first:
index 0 on every axis, or the first of the share of a child of `Parallel` or `Pipeline`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from halley.errors import BadInput, Fault
from halley.ir.affine import AffineIndex
from halley.ir.hardware import Chip, Topology
from halley.ir.workload import Tensor, Workload
from halley.simulate.tasks import Path, Server

if TYPE_CHECKING:
    from halley.simulate.holds import Visit

Member = tuple[int, ...]
"""An index per axis of the chip, outermost first."""

Box = tuple[tuple[int, int], ...]
"""[start, stop) per dim of a tensor."""

AxisKey = tuple[str, str]

MEMBER_LIMIT = 4096
"""Largest number of members of a chip that are simulated one by one."""


def points(box: Box) -> int:
    """Elements of a box.

    >>> points(((2, 5), (0, 4)))
    12
    """
    return math.prod(max(stop - start, 0) for start, stop in box)


def inside(box: Box, outer: Box) -> bool:
    """Whether a box is contained in another."""
    return all(low >= start and high <= stop for (low, high), (start, stop) in zip(box, outer, strict=True))


def common(box: Box, other: Box) -> Box:
    """The intersection of two boxes.

    >>> common(((0, 4),), ((2, 6),))
    ((2, 4),)
    """
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, other, strict=True))


def cut(ranges: Any, dims: Mapping[str, int], indices: Iterable[AffineIndex], dim: str, tile: int, place: Any) -> Any:
    """Ranges inside a tile of a dim, given by its ``place``. The dims that are read at sums of the dim are narrowed too, to
    intervals that include padding."""
    made = ranges.copy()
    start, stop = ranges[dims[dim]]
    made[dims[dim], 0] = begin = np.minimum(start + place * tile, stop)
    made[dims[dim], 1] = np.minimum(begin + tile, stop)
    for index in indices:
        if dim in index.dims:
            low, high, busy = index.constant, index.constant + 1, True
            for term, coefficient in index.terms:
                first, end = made[dims[term]]
                low = low + coefficient * (first if coefficient > 0 else end - 1)
                high = high + coefficient * (end - 1 if coefficient > 0 else first)
                busy = busy & (end > first)
            made[dims[index.dim]] = low, np.where(busy, high, low)
    return made


class Axes:
    """The axes of a chip by position, outermost first."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.keys: tuple[AxisKey, ...] = tuple((level, axis.name) for level, axis in chip.axes)
        self.sizes = tuple(axis.size for _, axis in chip.axes)
        names = [level.name for level in chip.levels]
        self.depths = tuple(names.index(level) for level, _ in self.keys)
        self.leaf = len(names) - 1
        networks = [chip.level(level).network for level, _ in self.keys]
        self.unicast = frozenset(i for i, network in enumerate(networks) if network is not None and not network.multicast)
        self._widths = tuple(sum(1 for depth in self.depths if depth <= limit) for limit in range(-1, len(names)))

    def width(self, depth: int) -> int:
        """Number of axes of levels down to the depth, which is the number of indices of an instance of a memory there."""
        return self._widths[depth + 1]

    def position(self, level: str, axis: str) -> int:
        return self.keys.index((level, axis))

    def alike(self, who: Member, other: Member, depth: int) -> bool:
        """Whether two members or instances use the same instance at the depth."""
        width = self.width(depth)
        return who[:width] == other[:width]

    def server(self, who: Member, depth: int, *resource: str) -> Server:
        """The instance of a level's resource that a member uses."""
        places = (f"{'.'.join(key)} {index}" for key, index in zip(self.keys, who[: self.width(depth)], strict=False) if index)
        return Server(resource, " ".join(places))

    def members(self) -> tuple[Member, ...]:
        """All members. Raises BadInput: more of them than `MEMBER_LIMIT`."""
        if math.prod(self.sizes) > MEMBER_LIMIT:
            where, expected = f"simulation on {self.chip.name}", f"a chip of at most {MEMBER_LIMIT} members"
            raise BadInput(Fault(where, expected, f"{math.prod(self.sizes)}", "use the estimate"))
        return tuple(itertools.product(*(range(size) for size in self.sizes)))


class Team:
    """The members that run a part of the tree, in order; ``shares``: (first member, number) of each partitioned axis."""

    def __init__(self, axes: Axes, members: tuple[Member, ...], shares: Mapping[int, tuple[int, int]]) -> None:
        self.axes, self.members, self.shares = axes, members, shares
        self.indices = np.array(members, dtype=np.int64).reshape(len(members), len(axes.keys))
        self._children: dict[tuple[int, int, int], tuple[Team, list[int]]] = {}

    @property
    def critical(self) -> Member:
        return self.members[0]

    def share(self, position: int, begin: int, count: int) -> tuple[Team, list[int]]:
        """The team of a share, ``begin`` counted from this team's first member, and the rows of its members in this team."""
        first = self.span(position)[0] + begin
        key = (position, first, count)
        if key not in self._children:
            rows = [row for row, member in enumerate(self.members) if first <= member[position] < first + count]
            members = tuple(self.members[row] for row in rows)
            self._children[key] = (Team(self.axes, members, {**self.shares, position: (first, count)}), rows)
        return self._children[key]

    def span(self, position: int) -> tuple[int, int]:
        """(first member, number of members) of an axis in this team."""
        return self.shares.get(position, (0, self.axes.sizes[position]))

    def topology(self, position: int) -> Topology:
        """The topology of an axis in this team: part of a ring is a line."""
        level, name = self.axes.keys[position]
        found = self.axes.chip.axis(level, name).topology
        part = self.span(position)[1] < self.axes.sizes[position]
        return Topology.LINE if found is Topology.RING and part else found


@dataclass(slots=True, eq=False)
class SimulationScope:
    """The scope of a node: its members with their ranges, the loops in time around it, (dim, iteration), the dims that axes
    split, the innermost open Hold of each tensor, and all affine indices of the workload."""

    team: Team
    dims: Mapping[str, int]
    ranges: Any
    path: Path = ()
    loops: tuple[tuple[str, int], ...] = ()
    splits: Mapping[int, str] = field(default_factory=dict)
    holds: Mapping[str, Visit] = field(default_factory=dict)
    indices: tuple[AffineIndex, ...] = ()
    extents: Mapping[str, int] = field(default_factory=dict)
    _form: bytes = b""

    @classmethod
    def of_root(cls, workload: Workload, chip: Chip) -> SimulationScope:
        """The scope of the root: every member with the full extent of every dim."""
        axes = Axes(chip)
        team = Team(axes, axes.members(), {})
        parts = np.array([workload.read_part(dim) for dim in workload.dims], dtype=np.int64)
        ranges = np.repeat(parts[:, :, None], len(team.members), axis=2)
        dims = {dim: index for index, dim in enumerate(workload.dims)}
        return cls(team, dims, ranges, indices=workload.indices, extents=workload.dims)

    @property
    def form(self) -> bytes:
        """The ranges relative to the critical member's; and, of dims that are read at affine indices, their place relative to
        the terms and what of them is padding; as bytes. Scopes of one node with equal forms have equal requests."""
        if not self._form:
            starts = self.ranges[:, :1, :1]
            self._form = (self.ranges - starts).tobytes()
            for index in self.indices:
                own = self.ranges[self.dims[index.dim]]
                terms = sum(coefficient * int(starts[self.dims[term], 0, 0]) for term, coefficient in index.terms)
                outside = np.maximum(-own, 0), np.maximum(own - self.extents[index.dim], 0)
                self._form += str(int(own[0, 0]) - terms).encode() + outside[0].tobytes() + outside[1].tobytes()
        return self._form

    def at(self, index: int, ranges: Any = None, **changes: Any) -> SimulationScope:
        """The scope of child ``index``."""
        return replace(self, path=(*self.path, index), ranges=self.ranges if ranges is None else ranges, _form=b"", **changes)

    def steps(self, dim: str, tile: int) -> int:
        """Iterations of a loop in time: the maximum over members, which run in lockstep."""
        start, stop = self.ranges[self.dims[dim]]
        return max(-(-int((stop - start).max()) // tile), 0)

    def narrowed(self, dim: str, tile: int, index: Any) -> Any:
        """The ranges with the dim narrowed to the tile of an index (one for all members, or one per member)."""
        return cut(self.ranges, self.dims, self.indices, dim, tile, index)

    def box(self, tensor: Tensor, row: int = 0) -> Box:
        """The region of a tensor for a member of the team, by default the critical one, without padding."""
        return tuple((int(start), int(stop)) for start, stop in self._inside(tensor, self.ranges[:, :, row : row + 1])[:, :, 0])

    def boxes(self, tensor: Tensor) -> list[Box]:
        """The region of every member of the team, without padding."""
        chosen = self._inside(tensor, self.ranges).transpose(2, 0, 1).tolist()
        return [tuple((start, stop) for start, stop in box) for box in chosen]

    def _inside(self, tensor: Tensor, ranges: Any) -> Any:
        """Ranges of a tensor's dims, clipped to the tensor."""
        chosen = ranges[[self.dims[dim] for dim in tensor.dims]]
        if not self.indices:
            return chosen
        return np.clip(chosen, 0, np.array([self.extents[dim] for dim in tensor.dims], dtype=np.int64)[:, None, None])

    def intervals(self, dims: Iterable[str], row: int) -> Box:
        """A member's ranges of some dims."""
        return tuple((int(self.ranges[self.dims[dim], 0, row]), int(self.ranges[self.dims[dim], 1, row])) for dim in dims)

    def sizes(self, dims: Iterable[str], row: int = 0) -> list[int]:
        """Points per dim in a member's ranges."""
        return [int(self.ranges[self.dims[d], 1, row] - self.ranges[self.dims[d], 0, row]) for d in dims]

    def active(self) -> list[int]:
        """Rows of the team's members that are not idle."""
        found: list[int] = np.nonzero((self.ranges[:, 1] > self.ranges[:, 0]).all(axis=0))[0].tolist()
        return found
