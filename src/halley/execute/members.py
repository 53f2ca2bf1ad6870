"""Members, instances of memories, ranges, boxes, and the scope of a node of the tree.

A member is a tuple of indices, one per axis of the chip, outermost first. The instance of a memory that it uses is a prefix of
that tuple: the indices of the memory's level and of outer levels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from halley.errors import Fault, IllegalMapping
from halley.ir.affine import AffineIndex
from halley.ir.hardware import Axis, Chip, Topology
from halley.ir.mapping import Parallel, Pipeline, Spatial
from halley.ir.masks import Mask
from halley.ir.workload import Tensor

if TYPE_CHECKING:
    from halley.execute.store import OpenHold

Member: TypeAlias = tuple[int, ...]
Instance: TypeAlias = tuple[int, ...]
AxisKey: TypeAlias = tuple[str, str]
Box: TypeAlias = tuple[tuple[int, int], ...]
Ranges: TypeAlias = Mapping[str, tuple[int, int]]
"""[start, stop) per dim. The range of a dim that is read at an affine index may extend beyond the tensor, into its padding."""


def region(tensor: Tensor, ranges: Ranges) -> Box:
    """The box of a tensor that the ranges select, padding included."""
    return tuple(ranges[dim] for dim in tensor.dims)


def clipped(box: Box, shape: tuple[int, ...]) -> Box:
    """The part of a box inside a tensor of this shape.

    >>> clipped(((-1, 2), (1, 5)), (3, 4))
    ((0, 2), (1, 4))
    """
    return tuple((min(max(low, 0), most), max(min(high, most), 0)) for (low, high), most in zip(box, shape, strict=True))


def space(box: Box, shape: tuple[int, ...]) -> int:
    """Elements for which a buffer has space: those of the box with its padding, but along no dim more than ``shape``, the part
    of the tensor that the ops read.

    >>> space(((-1, 1), (0, 5)), (3, 4))
    8
    """
    return math.prod(min(max(high - low, 0), most) for (low, high), most in zip(box, shape, strict=True))


def size(box: Box) -> int:
    """Elements of a box.

    >>> size(((2, 5), (0, 4)))
    12
    """
    return math.prod(max(stop - start, 0) for start, stop in box)


def slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in box)


def box_text(box: Box) -> str:
    """
    >>> box_text(((2, 5), (0, 4)))
    '[2:5, 0:4]'
    """
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in box) + "]"


def idle(ranges: Ranges) -> bool:
    """Whether a member is idle in this iteration: some range is empty."""
    return any(stop <= start for start, stop in ranges.values())


def narrowed(ranges: Ranges, dim: str, to: tuple[int, int], indices: tuple[AffineIndex, ...]) -> Ranges:
    """The ranges inside a tile of a dim. It also narrows the dims that are read at sums of it, padding included.

    >>> index = AffineIndex("h", (("p", 2), ("r", 1)), -1)
    >>> narrowed({"p": (0, 4), "r": (0, 3), "h": (0, 8)}, "p", (0, 2), (index,))
    {'p': (0, 2), 'r': (0, 3), 'h': (-1, 4)}
    """
    result = {**ranges, dim: to}
    for index in indices:
        if dim in index.dims:
            low = high = index.constant
            for term, coefficient in index.terms:
                ends = (coefficient * result[term][0], coefficient * (result[term][1] - 1))
                low, high = low + min(ends), high + max(ends)
            empty = any(result[term][0] >= result[term][1] for term in index.dims)
            result[index.dim] = (low, low if empty else high + 1)
    return result


def in_sight(mask: Mask, rows: tuple[int, int], keys: tuple[int, int]) -> bool:
    """Whether a tile of keys has a key between the first and the last one that any of the rows sees.

    >>> [in_sight(Mask("m", "n", 8, 0), (4, 6), (start, start + 2)) for start in range(0, 8, 2)]
    [True, True, True, False]
    """
    last = [row % mask.queries + mask.offset for row in range(*rows)]
    if not last:
        return False
    first = 0 if mask.window is None else min(last) - mask.window + 1
    return any(first <= key <= max(last) for key in range(*keys))


class Siblings:
    """The axes of a chip, outermost first, and those between two depths."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.keys: tuple[AxisKey, ...] = tuple((level, axis.name) for level, axis in chip.axes)
        self.sizes = tuple(axis.size for _, axis in chip.axes)
        names = [level.name for level in chip.levels]
        self.depths = tuple(names.index(level) for level, _ in self.keys)
        self._widths = tuple(sum(1 for d in self.depths if d <= depth) for depth in range(-1, len(names)))
        self._ports = tuple((i, v.name, self.width(i)) for i, v in enumerate(chip.levels) if v.network and v.network.port)
        networks = [chip.level(level).network for level, _ in self.keys]
        self.multicast = tuple(network is not None and network.multicast for network in networks)
        self.reduction = tuple(network is not None and network.reduction for network in networks)

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(itertools.product(*(range(count) for count in self.sizes)))

    def width(self, depth: int) -> int:
        """Number of axes of levels at the depth or outside it (depth -1: none)."""
        return self._widths[depth + 1]

    def position(self, key: AxisKey) -> int:
        self.chip.axis(*key)
        return self.keys.index(key)

    def apart(self, who: Instance, depth: int) -> Instance:
        """The indices of ``who`` on axes deeper than the depth whose network has no multicast."""
        return tuple(who[i] for i in range(self.width(depth), len(who)) if not self.multicast[i])

    def ports(self, outer: int, inner: int) -> tuple[tuple[str, int], ...]:
        """(level, number of axes down to it) of each level with a port between the two depths."""
        return tuple((level, width) for depth, level, width in self._ports if outer < depth <= inner)


@dataclass(frozen=True, slots=True)
class ExecutionScope:
    """The scope of a node: the range per member and dim (only members that take part), the enclosing loops, and the open Holds.

    ``split``: the dim that each split axis splits. ``shares``: (first member, number of members) of an axis that a `Parallel` or
    `Pipeline` partitions. ``loops``: (dim, index of the iteration) of every loop in time. ``holds``: the open Holds of each
    tensor, outermost first. ``indices``: all affine indices of the workload.
    """

    siblings: Siblings
    ranges: Mapping[Member, Ranges]
    split: Mapping[AxisKey, str] = field(default_factory=dict)
    shares: Mapping[AxisKey, tuple[int, int]] = field(default_factory=dict)
    loops: tuple[tuple[str, int], ...] = ()
    holds: Mapping[str, tuple[OpenHold, ...]] = field(default_factory=dict)
    indices: tuple[AffineIndex, ...] = ()

    def axis(self, key: AxisKey) -> tuple[int, int, Topology]:
        """(first member, number of members, topology) of an axis in this scope."""
        axis: Axis = self.siblings.chip.axis(*key)
        first, count = self.shares.get(key, (0, axis.size))
        # part of a ring lacks the link that closes it
        topology = Topology.LINE if axis.topology is Topology.RING and count < axis.size else axis.topology
        return first, count, topology

    def spread(self, node: Spatial) -> ExecutionScope:
        """The scope inside a `Spatial`."""
        key = (node.level, node.axis)
        where = f"spread {node.dim} by {node.tile} over {node.level}.{node.axis}"
        position = self.siblings.position(key)
        if key in self.split:
            raise IllegalMapping(
                Fault(where, f"an axis that is not split yet (it splits {self.split[key]})", "a second split", "use another axis")
            )
        first, count, _ = self.axis(key)
        ranges = {}
        for member, own in self.ranges.items():
            start, stop = own[node.dim]
            parts = -(-max(stop - start, 0) // node.tile)
            if parts > count:
                raise IllegalMapping(
                    Fault(where, f"at most {count} parts", f"{parts}", f"use a tile of at least {-(-(stop - start) // count)}")
                )
            begin = min(start + (member[position] - first) * node.tile, stop)
            ranges[member] = narrowed(own, node.dim, (begin, min(begin + node.tile, stop)), self.indices)
        return replace(self, ranges=ranges, split={**self.split, key: node.dim})

    def steps(self, dim: str, tile: int) -> int:
        """Iterations of a loop in time: the maximum over members, which run in lockstep."""
        return max((-(-max(r[dim][1] - r[dim][0], 0) // tile) for r in self.ranges.values()), default=0)

    def iteration(self, dim: str, tile: int, index: int, mask: Mask | None = None) -> ExecutionScope:
        """The scope inside iteration ``index`` of a loop in time; with a mask, members whose rows do not see the tile are
        idle."""
        ranges = {}
        for member, own in self.ranges.items():
            start, stop = own[dim]
            begin = min(start + index * tile, stop)
            end = min(begin + tile, stop)
            if mask is not None and not in_sight(mask, own[mask.rows], (begin, end)):
                end = begin
            ranges[member] = narrowed(own, dim, (begin, end), self.indices)
        return replace(self, ranges=ranges, loops=(*self.loops, (dim, index)))

    def check_cut_once(self, where: str) -> None:
        """A dim that is read at a sum must not be tiled together with a term of the sum: their tiles may not intersect."""
        cut = {dim for dim, _ in self.loops}.union(self.split.values())
        for index in self.indices:
            with_it = [dim for dim in index.dims if dim in cut]
            if index.dim in cut and with_it:
                expected = f"no loop or split of {index.dim} around it where one cuts {' or '.join(index.dims)}"
                got, remedy = f"one of {index.dim} and one of {min(with_it)}", f"remove that of {index.dim}"
                raise IllegalMapping(Fault(where, expected, got, remedy))

    def share(self, key: AxisKey, shares: tuple[int, ...], index: int) -> ExecutionScope:
        """The scope inside child ``index`` of a `Parallel` or `Pipeline`."""
        position = self.siblings.position(key)
        first = self.axis(key)[0] + sum(shares[:index])
        ranges = {m: r for m, r in self.ranges.items() if first <= m[position] < first + shares[index]}
        return replace(self, ranges=ranges, shares={**self.shares, key: (first, shares[index])})


def shares(node: Parallel | Pipeline, scope: ExecutionScope) -> list[ExecutionScope]:
    """The scope of each child of a `Parallel` or `Pipeline`."""
    key = (node.level, node.axis)
    where = f"{'parallel' if isinstance(node, Parallel) else 'pipeline'} over {node.level}.{node.axis}"
    _, count, _ = scope.axis(key)
    if len(node.shares) != len(node.children) or min(node.shares, default=0) < 1 or sum(node.shares) > count:
        raise IllegalMapping(
            Fault(
                where,
                f"{len(node.children)} shares of at least 1 that sum to at most {count}",
                f"{list(node.shares)}",
                "change the shares",
            )
        )
    if key in scope.split:
        raise IllegalMapping(Fault(where, "an axis that is not split yet", f"a split of {scope.split[key]}", "use another axis"))
    return [scope.share(key, node.shares, index) for index in range(len(node.children))]
