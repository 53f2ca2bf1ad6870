"""Counting at a point of the tree: products over dims of sums over tiles.

`CountingScope` is what a node can see on its way from the root: the loops that narrow its ranges and the Holds around it.
`Counter` turns a scope into numbers. With tiles that are arrays, the results are arrays: put the choices for each dim on an array
axis of its own, and only the last products have the full shape. With tiles that are terms, the results are terms.
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
Formula = Callable[[Number, list[Split]], Number]


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """One loop around a node, ``path`` in the tree. ``axis`` is None for a temporal loop. ``first_only`` takes its first tile
    alone. ``mask``: of a loop over the keys of that mask, which leaves out what no row sees."""

    dim: str
    tile: Number
    axis: AxisName | None = None
    first_only: bool = False
    path: tuple[int, ...] = ()
    mask: Mask | None = None

    @property
    def first(self) -> Loop:
        """The loop with its first tile alone; under a mask, the first that is seen: every row sees one."""
        return Loop(self.dim, self.tile, self.axis, True, self.path)


@dataclass(frozen=True, slots=True, eq=False)
class EnclosingHold:
    """A Hold on the way to a node: its memory, that memory's depth, the loops around it, the next one further out."""

    node: Hold
    memory: str
    depth: int
    loops: tuple[Loop, ...]
    parent: EnclosingHold | None


@dataclass(frozen=True, slots=True, eq=False)
class CountingScope:
    """Loops and Holds around a node; ``shares`` overrides the size of axes that Parallel or Pipeline
    divided, ``firsts`` says where the share begins."""

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
        return CountingScope(self.path, (*self.loops, loop), self.holds, self.shares, self.firsts)


@dataclass(frozen=True, slots=True)
class DimFactor:
    """What a dim of a tile counts as: its points ("covered"), its visits ("visits"), or its passes over ``width`` lanes, rows or
    columns ("folds"), on which ``beside`` points lie for each of these, filled up to a ``multiple``."""

    counter: Counter
    dim: str
    loops: tuple[Loop, ...]
    kind: str = "covered"
    width: int = 1
    beside: int = 1
    multiple: int = 1

    def __call__(self, axes: Axes) -> Number:
        """Summed over the tiles that the loops make, along these axes over all members."""
        if self.kind == "folds":
            return self.counter.folds(self.dim, self.loops, axes, self.width, self.beside, self.multiple)
        return (self.counter.visits if self.kind == "visits" else self.counter.covered)(self.dim, self.loops, axes)

    def of(self, extent: Number, splits: list[Split]) -> Number:
        """Summed over the tiles of one tile of this extent."""
        if self.kind == "folds":
            if self.multiple > 1:
                return granular_folds(extent, splits, self.width, self.beside, self.multiple)
            return folds(extent, splits, self.width, self.beside)
        return (visits if self.kind == "visits" else covered)(extent, splits)


Sums = dict[object, tuple[Number, Any]]
"""Sums over a dim's tiles by what they are taken of, with what their keys name by id."""


class Counter:
    """Counts for one workload on one chip. Keeps each dim's sums, as many traffic terms need the same ones.

    Without ``totals`` the counts over all members are left out (0): time needs only those of member 0. Without ``times`` those of
    member 0 are: energy needs only totals where nothing leaks. ``sums`` found before for the same dims serve again.

    ``least``: of a collective, as if all that it moves took the cheapest of its ways: a lower bound of any parts of it.

    ``once``: as if every node were entered once, and every tensor moved once, whatever order the loops have: a lower bound.
    """

    once = False
    least = False

    def __init__(self, workload: Workload, chip: Chip, totals: bool = True, times: bool = True, sums: Sums | None = None) -> None:
        self.workload = workload
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
        # kept values hold what their keys name by id: a freed object's id could be given to another
        self._sums: Sums = {} if sums is None else sums
        self._same: dict[int, tuple[tuple[Loop, ...], tuple[Loop, ...]]] = {}
        self._own: dict[tuple[int, str], tuple[tuple[Loop, ...], tuple[Loop, ...]]] = {}
        self._minus: dict[tuple[Axes, Axes], Axes] = {}

    def wanted(self, critical: bool) -> bool:
        """Whether a count is asked for: over all members, or of member 0."""
        return self.times if critical else self.totals

    def upto(self, depth: int) -> Axes:
        """Axes of the levels down to this depth: a memory there has one instance per combination of their indices."""
        return self._upto[depth]

    def asking(self, depth: int, asker: int) -> Axes:
        """Axes along which requests from memories at depth ``asker`` count one by one at this depth: no multicast serves them."""
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
        """Points of the dim that one instance keeps: the first tile, of every member along axes deeper than ``within``.
        ``index``: the instance's index along axes where it is not the first."""
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

    def reach(self, dim: str, loops: tuple[Loop, ...], depth: int) -> Number:
        """Largest box that an instance at the depth touches in the dim over all iterations."""
        return reach(self.workload.dims[dim], self._splits(dim, loops, self._every - self._upto[depth]))

    def sizes(self, dim: str, loops: tuple[Loop, ...], summed: Axes) -> list[tuple[Number, Number]]:
        """(size, how many) of the dim's tiles."""
        return sizes(self.workload.dims[dim], self._splits(dim, loops, summed))

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
        """Points of boxes over ``dims``, summed over all visits that the loops make.

        Along an axis in ``each`` every member counts; along another, members that differ in a dim of the box count, and members
        that want the same box count once. Along an axis in ``critical`` only member 0 counts. ``leaf`` replaces the factor of
        a dim, ``skip`` leaves it out.
        """
        loops = self._known(loops)
        key = ("boxes", dims, id(loops), each, critical, skip, tuple(scope.shares.items())) if leaf is None else None
        if key is not None and key in self._sums:
            return self._sums[key][0]
        every, apart = self._less(self._every, critical), self._less(each, critical)
        result: Number = 1
        for dim in dims:
            result = result * (leaf[dim](every) if leaf and dim in leaf else self.covered(dim, loops, every))
        for dim in dict.fromkeys([loop.dim for loop in loops]):
            if dim in dims or dim in skip or (leaf and dim in leaf):
                continue
            result = result * self.visits(dim, loops, apart)
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
        """Tiles of member 0, counted along each dim as the factors say."""
        result: Number = 1
        for along in factors.values():
            result = result * along(frozenset())
        return result

    def entries(self, scope: CountingScope) -> Number:
        """How often the critical member enters a node."""
        if self.once:
            return 1
        return self.boxes((), scope, scope.loops, frozenset())

    def _splits(self, dim: str, loops: tuple[Loop, ...], summed: Axes) -> list[Split]:
        return [
            Split(loop.tile, not loop.first_only and (loop.axis is None or loop.axis in summed)) for loop in self._of(dim, loops)
        ]

    def _known(self, loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        """Of loops that are alike, wherever they are in whatever tree, always the same tuple: what is known of it is found by its
        id."""
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
        """A sum over the dim's tiles, found by the loops, or else by the tiles (other loops share them)."""
        loops = self._known(loops)
        key = (name, dim, id(loops), summed)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = self._keep(dim, name, self._splits(dim, loops, summed), formula), loops
        return found[0]

    def _keep(self, dim: str, name: str, splits: list[Split], formula: Formula) -> Number:
        tiles = tuple([(s.tile if type(s.tile) is int else id(s.tile), s.summed, s.place) for s in splits])
        key = (dim, name, tiles)
        if key not in self._sums:
            self._sums[key] = (formula(self.workload.dims[dim], splits), splits)
        return self._sums[key][0]
