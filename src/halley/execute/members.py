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
from halley.ir.hardware import Axis, Chip, Topology
from halley.ir.mapping import Parallel, Pipeline, Spatial
from halley.ir.masks import Mask
from halley.ir.workload import Tensor, Window

if TYPE_CHECKING:
    from halley.execute.store import OpenHold

Member: TypeAlias = tuple[int, ...]
Instance: TypeAlias = tuple[int, ...]
AxisKey: TypeAlias = tuple[str, str]
Box: TypeAlias = tuple[tuple[int, int], ...]
Ranges: TypeAlias = Mapping[str, tuple[int, int]]


def region(tensor: Tensor, ranges: Ranges) -> Box:
    """The box of a tensor that the ranges select."""
    return tuple(ranges[dim] for dim in tensor.dims)


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


def narrowed(ranges: Ranges, dim: str, to: tuple[int, int], windows: tuple[Window, ...]) -> Ranges:
    """The ranges inside a tile of a dim. It also narrows the dims of windows with this base or offset.

    >>> narrowed({"p": (0, 6), "r": (0, 3), "h": (0, 8)}, "p", (2, 4), (Window("h", "p", "r"),))
    {'p': (2, 4), 'r': (0, 3), 'h': (2, 6)}
    """
    result = {**ranges, dim: to}
    for window in windows:
        if dim in (window.base, window.offset):
            (first, stop), (begin, end) = result[window.base], result[window.offset]
            low, high = result[window.dim]
            low = max(low, first + begin)
            result[window.dim] = (low, max(low, min(high, stop + end - 1)) if first < stop and begin < end else low)
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
    """The scope of a node: the range per member and dim (only members that take part), the loops around it, and the open Holds.

    ``split``: the dim that each split axis splits. ``shares``: (first member, number of members) of an axis that a `Parallel` or
    `Pipeline` partitions. ``loops``: (dim, index of the iteration) of every loop in time. ``holds``: the open Holds of each
    tensor, outermost first. ``windows``: all windows of the workload.
    """

    siblings: Siblings
    ranges: Mapping[Member, Ranges]
    split: Mapping[AxisKey, str] = field(default_factory=dict)
    shares: Mapping[AxisKey, tuple[int, int]] = field(default_factory=dict)
    loops: tuple[tuple[str, int], ...] = ()
    holds: Mapping[str, tuple[OpenHold, ...]] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()

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
            ranges[member] = narrowed(own, node.dim, (begin, min(begin + node.tile, stop)), self.windows)
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
            ranges[member] = narrowed(own, dim, (begin, end), self.windows)
        return replace(self, ranges=ranges, loops=(*self.loops, (dim, index)))

    def check_cut_once(self, where: str) -> None:
        """A window's dim must not be tiled together with the window's base or offset: their tiles may not intersect."""
        cut = {dim for dim, _ in self.loops}.union(self.split.values())
        for window in self.windows:
            with_it = [dim for dim in (window.base, window.offset) if dim in cut]
            if window.dim in cut and with_it:
                expected = f"no loop or split of {window.dim} around it where one cuts {window.base} or {window.offset}"
                got, remedy = f"one of {window.dim} and one of {min(with_it)}", f"remove that of {window.dim}"
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
