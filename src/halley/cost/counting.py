"""Counts at a node of the tree: products over dims of sums over tiles.

`CountingScope` has the loops that narrow a node's ranges, and the Holds around it. `Counter` computes counts from a scope. If
tiles are arrays, the results are arrays: with the choices for each dim on a separate array axis, only the final products have the
full shape. If tiles are terms, the results are terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from halley.cost.resources import Resources
from halley.formulas.numbers import Number
from halley.formulas.tiling import Split, covered, first_tile, folds, granular_folds, reach, sizes, visits
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold
from halley.ir.masks import Mask
from halley.ir.workload import Workload

AxisName = tuple[str, str]
"""(level, axis)."""

Axes = frozenset[AxisName]
NO_AXES: Axes = frozenset()
Formula = Callable[[Number, list[Split]], Number]


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """One loop around a node, at a ``path`` in the tree. ``axis`` is None for a temporal loop. ``first_only``: only its first
    tile counts. ``mask``: of a loop over the visible keys of that mask."""

    dim: str
    tile: Number
    axis: AxisName | None = None
    first_only: bool = False
    path: tuple[int, ...] = ()
    mask: Mask | None = None

    @property
    def first(self) -> Loop:
        """The loop with its first tile only; under a mask, the first visible tile, of which every row has one."""
        return Loop(self.dim, self.tile, self.axis, True, self.path)


@dataclass(frozen=True, slots=True, eq=False)
class EnclosingHold:
    """A Hold around a node: its memory, the depth of the memory, its enclosing loops, the next outer Hold of the tensor."""

    node: Hold
    memory: str
    depth: int
    loops: tuple[Loop, ...]
    parent: EnclosingHold | None


@dataclass(frozen=True, slots=True, eq=False)
class CountingScope:
    """Loops and Holds around a node. ``shares``: sizes of axes that an enclosing Parallel or Pipeline partitions; ``firsts``: the
    first member of each share."""

    path: tuple[int, ...] = ()
    loops: tuple[Loop, ...] = ()
    holds: Mapping[str, EnclosingHold] = field(default_factory=dict)
    shares: Mapping[AxisName, int] = field(default_factory=dict)
    firsts: Mapping[AxisName, int] = field(default_factory=dict)

    def inside(self, index: int) -> CountingScope:
        return CountingScope((*self.path, index), self.loops, self.holds, self.shares, self.firsts)

    def with_holds(self, opened: Mapping[str, EnclosingHold]) -> CountingScope:
        return CountingScope(self.path, self.loops, {**self.holds, **opened}, self.shares, self.firsts)

    def with_loop(self, loop: Loop) -> CountingScope:
        return self.with_loops((*self.loops, loop))

    def with_loops(self, loops: tuple[Loop, ...]) -> CountingScope:
        """The same inside other loops."""
        return CountingScope(self.path, loops, self.holds, self.shares, self.firsts)


@dataclass(frozen=True, slots=True)
class DimFactor:
    """The factor of one dim in a count: its points ("covered"), its tiles ("visits"), or its passes over ``width`` lanes, rows or
    columns ("folds"). For folds: ``beside`` points of other dims for each point, rounded up to a ``multiple``."""

    counter: Counter
    dim: str
    loops: tuple[Loop, ...]
    kind: str = "covered"
    width: int = 1
    beside: int = 1
    multiple: int = 1

    def __call__(self, axes: Axes) -> Number:
        """The factor, summed over the tiles of all loops in time, and over all members along these axes."""
        if self.kind == "folds":
            return self.counter.folds(self.dim, self.loops, axes, self.width, self.beside, self.multiple)
        return (self.counter.visits if self.kind == "visits" else self.counter.covered)(self.dim, self.loops, axes)

    def of(self, extent: Number, splits: list[Split]) -> Number:
        """The factor for one tile of this extent, summed over the tiles that the splits make of it."""
        if self.kind == "folds":
            if self.multiple > 1:
                return granular_folds(extent, splits, self.width, self.beside, self.multiple)
            return folds(extent, splits, self.width, self.beside)
        return (visits if self.kind == "visits" else covered)(extent, splits)


Sums = dict[object, tuple[Number, Any]]
"""Cache of sums over a dim's tiles by key, with a reference to the objects that the key identifies by id."""


class Counter:
    """Counts for one workload on one chip. Sums over each dim are cached, as many traffic terms need the same ones.

    Without ``totals``, counts over all members are omitted (0): time needs only those of member 0. Without ``times``, counts of
    member 0 are omitted: energy without leakage needs only totals. ``sums``: a cache of earlier sums over the same dims.

    ``least``: all chunks of a collective take the cheapest route: a lower bound for any sizes of its chunks.

    ``once``: every node is entered once, and every tensor moves once: a lower bound for any order of the loops.
    """

    once = False
    least = False

    def __init__(self, workload: Workload, chip: Chip, totals: bool = True, times: bool = True, sums: Sums | None = None) -> None:
        self.workload = workload
        self.extents: Mapping[str, int] = workload.dims
        self.chip = chip
        self.resources = Resources(chip)
        self.totals = totals
        self.times = times
        self.leaf_depth = len(chip.levels) - 1
        self._axis_size = {(level, axis.name): axis.size for level, axis in chip.axes}
        depth = {level.name: index for index, level in enumerate(chip.levels)}
        self.axis_depth = {name: depth[name[0]] for name in self._axis_size}
        self._upto = tuple(
            frozenset(name for name, d in self.axis_depth.items() if d <= index) for index in range(len(chip.levels))
        )
        self._unicast = frozenset(
            (level.name, axis.name)
            for level in chip.levels
            if level.network and not level.network.multicast
            for axis in level.network.axes
        )
        self.adding = frozenset(
            (level.name, axis.name)
            for level in chip.levels
            if level.network and level.network.reduction
            for axis in level.network.axes
        )
        self._every = frozenset(self._axis_size)
        self.bursts = {memory.name: memory.burst for memory in chip.memories if memory.burst}
        # cached values keep references to the objects of their keys: a freed object's id could be reused
        self._sums: Sums = {} if sums is None else sums
        self._same: dict[int, tuple[tuple[Loop, ...], tuple[Loop, ...]]] = {}
        self._own: dict[tuple[int, str], tuple[tuple[Loop, ...], tuple[Loop, ...]]] = {}
        self._minus: dict[tuple[Axes, Axes], Axes] = {}

    def wanted(self, critical: bool) -> bool:
        """Whether a count is needed: of member 0 (``critical``), or over all members."""
        return self.times if critical else self.totals

    def upto(self, depth: int) -> Axes:
        """Axes of the levels down to this depth: a memory there has one instance per combination of their indices."""
        return self._upto[depth]

    def asking(self, depth: int, asker: int) -> Axes:
        """Axes along which requests from depth ``asker`` are counted per member at this depth, as multicast does not merge
        them."""
        return self._upto[depth] | (self._unicast & self._upto[asker])

    def axis_size(self, name: AxisName, scope: CountingScope) -> int:
        return scope.shares.get(name, self._axis_size[name])

    def visits(self, dim: str, loops: tuple[Loop, ...], summed: Axes) -> Number:
        return self._sum(dim, loops, summed, visits, "visits")

    def covered(self, dim: str, loops: tuple[Loop, ...], summed: Axes) -> Number:
        return self._sum(dim, loops, summed, covered, "covered")

    def folds(self, dim: str, loops: tuple[Loop, ...], summed: Axes, width: int, beside: int = 1, multiple: int = 1) -> Number:
        if width == 1 and multiple == 1:
            return self.covered(dim, loops, summed) * beside
        if multiple > 1:
            name = f"folds {width} {beside} {multiple}"
            return self._sum(
                dim, loops, summed, lambda extent, splits: granular_folds(extent, splits, width, beside, multiple), name
            )
        name = f"folds {width} {beside}"
        return self._sum(dim, loops, summed, lambda extent, splits: folds(extent, splits, width, beside), name)

    def first_tile(self, dim: str, loops: tuple[Loop, ...]) -> Number:
        """Largest size of the dim's tile."""
        return self._sum(dim, loops, frozenset(), first_tile, "tile")

    def resident(self, dim: str, loops: tuple[Loop, ...], within: Axes, index: Mapping[AxisName, int]) -> Number:
        """Points of the dim that one instance holds: the first tile, of every member along axes that are not in ``within``.
        ``index``: the instance's index along axes where it is not 0."""
        loops = self._known(loops)
        key = ("resident", dim, id(loops), within, tuple(index.items()))
        found = self._sums.get(key)
        if found is None:
            splits = [
                Split(loop.tile, loop.axis is not None and loop.axis not in within, index.get(loop.axis, 0) if loop.axis else 0)
                for loop in self._of(dim, loops)
            ]
            found = self._sums[key] = self._keep(dim, "resident", splits, covered), loops
        return found[0]

    def space(self, dims: tuple[str, ...], loops: tuple[Loop, ...], within: Axes, index: Mapping[AxisName, int]) -> Number:
        """Elements over ``dims`` for which one instance has space; the other arguments as for `resident`."""
        result: Number = 1
        for dim in dims:
            result = result * self.resident(dim, loops, within, index)
        return result

    def reach(self, dim: str, loops: tuple[Loop, ...], depth: int) -> Number:
        """Largest range of the dim that an instance at the depth accesses over all iterations."""
        return reach(self.extents[dim], self._splits(dim, loops, self._every - self._upto[depth]))

    def sizes(self, dim: str, loops: tuple[Loop, ...], summed: Axes) -> list[tuple[Number, Number]]:
        """(size, count) of the dim's tiles."""
        return sizes(self.extents[dim], self._splits(dim, loops, summed))

    def boxes(
        self,
        dims: tuple[str, ...],
        scope: CountingScope,
        loops: tuple[Loop, ...],
        each: Axes,
        critical: Axes = frozenset(),
        leaf: Mapping[str, DimFactor] | None = None,
        skip: tuple[str, ...] = (),
    ) -> Number:
        """Points of boxes over ``dims``, summed over all iterations of the loops.

        Along an axis in ``each`` every member counts; along other axes, members with different boxes count, and members with the
        same box count once. Along an axis in ``critical`` only member 0 counts. ``leaf`` replaces the factor of a dim, ``skip``
        omits it.
        """
        loops = self._known(loops)
        key = None
        if leaf is None:
            key = "boxes", dims, id(loops), each, critical, skip, tuple(scope.shares.items()) if scope.shares else ()
            found = self._sums.get(key)
            if found is not None:
                return found[0]
        every, apart = self._less(self._every, critical), self._less(each, critical)
        result: Number = 1
        for dim in dims:
            result = result * (
                leaf[dim](every) if leaf and dim in leaf else self._known_sum(dim, loops, every, covered, "covered")
            )
        for dim in dict.fromkeys([loop.dim for loop in loops]):
            if dim in dims or dim in skip or (leaf and dim in leaf):
                continue
            result = result * self._known_sum(dim, loops, apart, visits, "visits")
        for dim, factor in leaf.items() if leaf else ():
            if dim not in dims:
                result = result * factor(apart)
        split = {loop.axis for loop in loops}
        for name in apart:
            if name not in split:
                result = result * self.axis_size(name, scope)
        if key is not None:
            self._sums[key] = (result, loops)
        return result

    def _less(self, axes: Axes, without: Axes) -> Axes:
        if not without:
            return axes
        if (axes, without) not in self._minus:
            self._minus[axes, without] = axes - without
        return self._minus[axes, without]

    def product(self, loops: tuple[Loop, ...], factors: Mapping[str, DimFactor]) -> Number:
        """The product of the factors for member 0."""
        result: Number = 1
        for along in factors.values():
            result = result * along(frozenset())
        return result

    def entries(self, scope: CountingScope) -> Number:
        """Number of entries of a node by the critical member."""
        if self.once:
            return 1
        return self.boxes((), scope, scope.loops, frozenset())

    def _splits(self, dim: str, loops: tuple[Loop, ...], summed: Axes) -> list[Split]:
        return [
            Split(loop.tile, not loop.first_only and (loop.axis is None or loop.axis in summed)) for loop in self._of(dim, loops)
        ]

    def _known(self, loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        """The same tuple for all equal sequences of loops, in any tree, so that caches can use its id as a key."""
        same = self._same.get(id(loops))
        if same is None:
            key = "loops", *[(x.dim, x.tile if type(x.tile) is int else id(x.tile), x.axis, x.first_only, x.mask) for x in loops]
            (_, first) = self._sums.setdefault(key, (0, loops))
            same = self._same[id(loops)] = first, loops
        return same[0]

    def _of(self, dim: str, loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        """The loops over one dim."""
        key = (id(loops), dim)
        if key not in self._own:
            self._own[key] = (tuple(loop for loop in loops if loop.dim == dim), loops)
        return self._own[key][0]

    def _sum(self, dim: str, loops: tuple[Loop, ...], summed: Axes, formula: Formula, name: str) -> Number:
        """A sum over the dim's tiles, cached by loops, and by tiles (which other loops may share)."""
        return self._known_sum(dim, self._known(loops), summed, formula, name)

    def _known_sum(self, dim: str, loops: tuple[Loop, ...], summed: Axes, formula: Formula, name: str) -> Number:
        """The same for loops of `_known`."""
        key = (name, dim, id(loops), summed)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = self._keep(dim, name, self._splits(dim, loops, summed), formula), loops
        return found[0]

    def _keep(self, dim: str, name: str, splits: list[Split], formula: Formula) -> Number:
        tiles = tuple([(s.tile if type(s.tile) is int else id(s.tile), s.summed, s.place) for s in splits])
        key = (dim, name, tiles)
        if key not in self._sums:
            self._sums[key] = (formula(self.extents[dim], splits), splits)
        return self._sums[key][0]
