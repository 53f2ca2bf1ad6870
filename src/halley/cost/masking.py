"""Counts inside a loop over the keys of a mask (docs/model.md, "Masks").

Elsewhere a count is a product of sums over the tiles of each dim. Here tiles of rows and of keys are coupled: a tile of rows
iterates the tiles of keys from the first to the last that any of its rows sees. Tiles of equal size have equal counts, so

    sum over visible pairs of f(rows) g(keys)  =  sum over sizes a of rows, b of keys of  V[a, b] f(a) g(b)

with V the number of such pairs: a table over the tile sizes, independent of what is counted (`halley.cost.pairs`).
"""

from __future__ import annotations

from collections.abc import Mapping

from halley.cost.counting import Axes, Counter, CountingScope, DimFactor, Loop
from halley.cost.pairs import MaskedPairs, RowCut, RowCuts, TileSelection, pairs
from halley.formulas.numbers import Number, anywhere, floor_div
from halley.formulas.terms import Operation, Term


class MaskCounter(Counter):
    """A `Counter` for loops over visible keys of a mask. There is at most one such loop around a node, and no other loop or split
    of its dim around the loop."""

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
        """As for `Counter`. Along axes that are not in ``each``, members that process the same tile of keys at the same time
        count once; along axes in ``critical``, the member with most work counts."""
        loop = next((loop for loop in loops if loop.mask), None)
        if loop is None or loop.mask is None or loop.dim in skip:
            return super().boxes(dims, scope, loops, each, critical, leaf, skip)
        loops = self._known(loops)
        key = None if leaf else ("seen", dims, id(loops), each, critical, skip, tuple(scope.shares.items()))
        if key is not None and key in self._sums:
            return self._sums[key][0]
        mask, leaf = loop.mask, leaf or {}
        plane = (mask.rows, mask.keys)
        others = {dim: along for dim, along in leaf.items() if dim not in plane}
        rest = tuple(dim for dim in dims if dim not in plane)
        result = super().boxes(rest, scope, loops, each, critical, others, (*skip, *plane))
        every, apart = self._less(self._every, critical), self._less(each, critical)
        along = {dim: leaf.get(dim) or DimFactor(self, dim, loops, "covered" if dim in dims else "visits") for dim in plane}
        counted = {dim: every if dim in dims else apart for dim in plane}
        result = result * self._seen(loops, along, counted, critical)
        if key is not None:
            self._sums[key] = (result, loops)
        return result

    def product(self, loops: tuple[Loop, ...], factors: Mapping[str, DimFactor]) -> Number:
        loop = next((loop for loop in loops if loop.mask), None)
        if loop is None or loop.mask is None:
            return super().product(loops, factors)
        plane = {dim: along for dim, along in factors.items() if dim in (loop.mask.rows, loop.mask.keys)}
        rest = super().product(loops, {dim: along for dim, along in factors.items() if dim not in plane})
        return rest * self._seen(loops, plane, dict.fromkeys(plane, frozenset()), self._every)

    def entries(self, scope: CountingScope) -> Number:
        return self.boxes((), scope, scope.loops, frozenset(), self._every)

    def _seen(
        self, loops: tuple[Loop, ...], along: Mapping[str, DimFactor], counted: Mapping[str, Axes], critical: Axes
    ) -> Number:
        """Sum over the visible pairs of tiles. ``along``: the factor of each of both dims; ``counted``: its axes."""
        at, loop, mask = next((at, loop, loop.mask) for at, loop in enumerate(loops) if loop.mask)

        def how(own: Loop) -> TileSelection:
            if own.first_only:
                return TileSelection.FIRST
            if own.axis is None or own.axis in counted[mask.rows]:
                return TileSelection.EACH
            return TileSelection.BUSIEST if own.axis in critical else TileSelection.ANY

        cuts = tuple(RowCut(own.tile, how(own)) for own in loops[:at] if own.dim == mask.rows)
        extents = self.workload.dims[mask.rows], self.workload.dims[mask.keys]
        seen = pairs(MaskedPairs(mask, *extents, cuts, loop.tile))
        inner = {dim: self._splits(dim, loops[at + 1 :], counted[dim]) for dim in along}
        keys = [(bits, along[mask.keys].of(size, inner[mask.keys])) for bits, size in sizes_of(extents[1], (RowCut(loop.tile),))]
        result: Number = 0
        for size, alike in _alike(sizes_of(extents[0], cuts)):
            of_rows = along[mask.rows].of(size, inner[mask.rows])
            for b, of_keys in keys:
                number: Number = 0
                for a in alike:
                    number = number + seen(a, b)
                result = result + number * (of_rows * of_keys)
        return result


def sizes_of(extent: Number, cuts: RowCuts) -> list[tuple[int, Number]]:
    """The sizes of the innermost tiles, each with bits: one per cut, 1 if the tile of that cut is ragged.

    >>> sizes_of(13, (RowCut(5), RowCut(2)))
    [(0, 2), (1, 1), (2, 2), (3, 1)]
    """
    found: list[tuple[int, Number]] = [(0, extent)]
    for cut in cuts:
        inner: list[tuple[int, Number]] = []
        for bits, size in found:
            whole = floor_div(size, cut.tile)
            ragged = 0 if _multiple(size, cut.tile) else size - whole * cut.tile
            inner += [(2 * bits, cut.tile)] if anywhere(whole) else []
            inner += [(2 * bits + 1, ragged)] if anywhere(ragged) else []
        found = inner
    return found


def _multiple(size: Number, tile: Number) -> bool:
    """Whether an open size is by construction a multiple of a tile."""
    return isinstance(size, Term) and (size is tile or (size.operation is Operation.MULTIPLY and tile in (size.a, size.b)))


def _alike(sizes: list[tuple[int, Number]]) -> list[tuple[Number, list[int]]]:
    """Equal sizes (the same number or term) grouped, with their bits."""
    found: dict[object, tuple[Number, list[int]]] = {}
    for bits, size in sizes:
        found.setdefault(size if isinstance(size, int) else id(size), (size, []))[1].append(bits)
    return list(found.values())


def masked_rescales(
    counter: Counter,
    scope: CountingScope,
    dims: tuple[str, ...],
    each: Axes,
    critical: Axes,
    reduced: tuple[str, ...],
    common: tuple[Loop, ...],
) -> Number:
    """Rescaled points of an accumulator, or of its rows, inside a loop over visible keys: the points of all visible tiles except
    for the first. ``common``: the loops that also enclose the Compute of the running maximum."""
    enclosing = tuple(loop for loop in scope.loops if loop.dim not in reduced or loop.axis is not None or loop in common)
    first = tuple(loop.first if loop.axis is None and loop.dim in reduced else loop for loop in enclosing)
    return counter.boxes(dims, scope, enclosing, each, critical) - counter.boxes(dims, scope, first, each, critical)
