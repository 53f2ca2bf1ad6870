"""Counts over dims that are read at affine sums of other dims (docs/model.md, "Affine indices").

If a tensor over h is read at 2 p + r, a loop over p or r narrows h. Boxes of different tiles may overlap or leave gaps, so the
points of all boxes are counted by `halley.formulas.affine`, and not as the points of h.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType

from halley.cost.counting import Axes, AxisName, Counter, CountingScope, DimFactor, Loop, Sums
from halley.cost.masking import MaskCounter
from halley.formulas.affine import AffineDim, affine_points, buffered_points, unclipped_points
from halley.formulas.numbers import Number, minimum
from halley.formulas.tiling import Split, sizes
from halley.ir.affine import AffineIndex
from halley.ir.hardware import Chip
from halley.ir.masks import masks
from halley.ir.workload import Workload


def counter_of(workload: Workload, chip: Chip, totals: bool = True, times: bool = True, sums: Sums | None = None) -> Counter:
    """The counter for a workload: with affine indices, with masks, or the basic one."""
    made = AffineCounter if workload.indices else MaskCounter if masks(workload) else Counter
    return made(workload, chip, totals, times, sums)


class AffineCounter(Counter):
    """A `Counter` for dims that are read at affine sums, whose tiles overlap. Such a dim is tiled either by its own loops, around
    ops that iterate it, or by loops over the terms of one index, around ops that read it at that sum; never by both."""

    def __init__(self, workload: Workload, chip: Chip, totals: bool = True, times: bool = True, sums: Sums | None = None) -> None:
        super().__init__(workload, chip, totals, times, sums)
        self._indices: dict[str, list[AffineIndex]] = {}
        for index in workload.indices:
            self._indices.setdefault(index.dim, []).append(index)
        parts = {dim: workload.read_part(dim) for dim in self._indices}
        self.extents = {**workload.dims, **{dim: stop - start for dim, (start, stop) in parts.items()}}

    def _cut(self, dim: str, loops: tuple[Loop, ...]) -> AffineIndex | None:
        """The index whose terms narrow a dim in these loops, or None."""
        return next((i for i in self._indices.get(dim, ()) if any(loop.dim in i.dims for loop in loops)), None)

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
        """As for `Counter`: members with different tiles of a term have different boxes, so each of them counts."""
        cut = {dim: index for dim in dims if (index := self._cut(dim, loops)) is not None}
        if not cut:
            return super().boxes(dims, scope, loops, each, critical, leaf, skip)
        loops = self._known(loops)
        key = ("affine", dims, id(loops), each, critical, skip, tuple(scope.shares.items())) if leaf is None else None
        if key is not None and key in self._sums:
            return self._sums[key][0]
        terms = tuple(dict.fromkeys(dim for index in cut.values() for dim in index.dims))
        rest = tuple(dim for dim in dims if dim not in cut and dim not in terms)
        others = {dim: along for dim, along in leaf.items() if dim in rest} if leaf else None
        result = super().boxes(rest, scope, loops, each, critical, others, (*skip, *terms))
        every = self._less(self._every, critical)
        for group in _connected(dims, cut):
            result = result * self._group(group, cut, loops, every, leaf or {})
        if key is not None:
            self._sums[key] = (result, loops)
        return result

    def _group(
        self,
        group: Sequence[str],
        cut: Mapping[str, AffineIndex],
        loops: tuple[Loop, ...],
        summed: Axes,
        leaf: Mapping[str, DimFactor],
    ) -> Number:
        """Points, over these dims of a tensor, of the boxes of all tiles of the dims that select them; ``leaf``: of some dims
        another factor than the points of a tile (only without padding, which cuts tiles of one size differently)."""
        if len(group) == 1 and group[0] not in leaf:
            index = cut[group[0]]
            if not index.padded(self.workload.dims):
                return unclipped_points(self._dims(index, loops, summed))
            return affine_points(self._dims(index, loops, summed), index.constant, self.workload.dims[index.dim])
        return _boxes(group, cut, {dim: self.sizes(dim, loops, summed) for dim in _terms(group, cut)}, leaf)

    def _dims(self, index: AffineIndex, loops: tuple[Loop, ...], summed: Axes) -> list[AffineDim]:
        return [
            AffineDim(coefficient, self.workload.dims[dim], self._splits(dim, loops, summed)) for dim, coefficient in index.terms
        ]

    def first_tile(self, dim: str, loops: tuple[Loop, ...]) -> Number:
        index = self._cut(dim, loops)
        if index is None:
            return super().first_tile(dim, loops)
        span = _span(index, {each: super(AffineCounter, self).first_tile(each, loops) for each in index.dims})
        return minimum(span, self.extents[dim]) if index.padded(self.workload.dims) else span

    def space(self, dims: tuple[str, ...], loops: tuple[Loop, ...], within: Axes, index: Mapping[AxisName, int]) -> Number:
        cut = {dim: found for dim in dims if (found := self._cut(dim, loops)) is not None}
        if not cut:
            return super().space(dims, loops, within, index)
        terms = {each for found in cut.values() for each in found.dims}
        result = super().space(tuple(dim for dim in dims if dim not in cut and dim not in terms), loops, within, index)

        def splits(dim: str) -> list[Split]:
            return [
                Split(loop.tile, loop.axis is not None and loop.axis not in within, index.get(loop.axis, 0) if loop.axis else 0)
                for loop in loops
                if loop.dim == dim
            ]

        for group in _connected(dims, cut):
            own = cut.get(group[0])
            if len(group) == 1 and own is not None:
                parts = [AffineDim(coefficient, self.workload.dims[each], splits(each)) for each, coefficient in own.terms]
                padded = own.padded(self.workload.dims)
                result = result * (buffered_points(parts, self.extents[own.dim]) if padded else unclipped_points(parts))
            else:
                sizes_of = {each: sizes(self.workload.dims[each], splits(each)) for each in _terms(group, cut)}
                result = result * _boxes(group, cut, sizes_of)
        return result


def _span(index: AffineIndex, sizes: Mapping[str, Number]) -> Number:
    """Points from the first to the last position of a tile of these sizes."""
    span: Number = 1
    for dim, coefficient in index.terms:
        span = span + abs(coefficient) * (sizes[dim] - 1)
    return span


def _terms(group: Sequence[str], cut: Mapping[str, AffineIndex]) -> tuple[str, ...]:
    """The dims whose tiles select the parts of some dims of a tensor."""
    return tuple(dict.fromkeys(each for dim in group for each in (cut[dim].dims if dim in cut else (dim,))))


def _boxes(
    group: Sequence[str],
    cut: Mapping[str, AffineIndex],
    sizes_of: Mapping[str, Sequence[tuple[Number, Number]]],
    leaf: Mapping[str, DimFactor] = MappingProxyType({}),
) -> Number:
    """Points of the boxes, over dims of a tensor without padding, of all combinations of tiles, (size, count) by dim; ``leaf``:
    of some dims another factor than the points of a tile."""
    result: Number = 0
    for tiles in product(*sizes_of.values()):
        size = dict(zip(sizes_of, (extent for extent, _ in tiles), strict=True))
        points: Number = math.prod((count for _, count in tiles), start=1)
        for dim in group:
            along = _span(cut[dim], size) if dim in cut else size[dim]
            points = points * (leaf[dim].of(along, []) if dim in leaf else along)
        result = result + points
    return result


def _connected(dims: Sequence[str], cut: Mapping[str, AffineIndex]) -> list[list[str]]:
    """The dims of a tensor that affine indices narrow, and those that are themselves a term of one, grouped by common terms."""
    groups: list[tuple[list[str], set[str]]] = []
    terms = {each for index in cut.values() for each in index.dims}
    for dim in dims:
        if dim not in cut and dim not in terms:
            continue
        own, joined = {dim, *(cut[dim].dims if dim in cut else ())}, [dim]
        for group in [group for group in groups if not own.isdisjoint(group[1])]:
            groups.remove(group)
            joined, own = [*group[0], *joined], own | group[1]
        groups.append((joined, own))
    return [group for group, _ in groups]
