"""Points of a tensor's dim that tiles of other dims select, where the dim is read at an affine sum of those dims.

A tile with the first points x_i and the extents e_i of the dims i selects the interval from the first to the last position
``constant + sum of c_i x``. Intervals of different tiles may overlap (halos) or leave gaps (strides). Positions outside the
tensor are padding, which is not stored: intervals are clipped to the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from halley.formulas.numbers import Number, anywhere, floor_div, maximum, minimum, positive
from halley.formulas.tiling import Split, over_tiles, sizes, visits


class AffineDim(NamedTuple):
    """A dim of the sum: its ``coefficient`` (not 0), its ``extent`` [points], and the splits that make its tiles."""

    coefficient: int
    extent: int
    splits: Sequence[Split]


class _Tile(NamedTuple):
    """A tile: its first point, its extent, and whether it is selected (1 or 0)."""

    start: int
    extent: int
    selected: Number


def steps(extent: Number, splits: Sequence[Split]) -> Number:
    """Points that are not the first of their tile, in the tiles that the splits select.

    .. math:: D = W(e) \\text{ with leaf } e - [e > 0]

    Symbols: e [points] the extent. Source: `halley.formulas.tiling.over_tiles`.

    >>> steps(13, [Split(5, True)])   # 4 + 4 + 2
    10
    """
    return over_tiles(extent, splits, lambda size: size - positive(size))


def unclipped_points(dims: Sequence[AffineDim]) -> Number:
    """Points of the intervals of all combinations of a tile of each dim, padding included.

    .. math:: H = \\sum_{tiles} ( 1 + \\sum_i |c_i| (e_i - 1) ) = \\prod_i V_i + \\sum_i |c_i| D_i \\prod_{j \\ne i} V_j

    Symbols: c_i [1] coefficients, e_i [points] extents of the tiles, D_i [points] `steps`, V_i [1] `visits`. Source: counting
    argument, docs/model.md.

    >>> rows, taps = AffineDim(1, 13, [Split(5, True)]), AffineDim(1, 4, [Split(2, True)])
    >>> unclipped_points([rows, taps])   # 6 + 6 + 4, twice
    32
    """
    times = [visits(extent, splits) for _, extent, splits in dims]
    result = _product(times)
    for at, (coefficient, extent, splits) in enumerate(dims):
        others = _product(times[:at] + times[at + 1 :])
        result = result + abs(coefficient) * (steps(extent, splits) * others)
    return result


def affine_points(dims: Sequence[AffineDim], constant: int, extent: int) -> Number:
    """Points of the intervals of all combinations of a tile of each dim, clipped to the tensor.

    .. math:: H = \\sum_{tiles} \\max(0, \\min(b, h) - \\max(a, 0))

    with a the first position of a tile and b - 1 the last. For each combination of tiles of the other dims, the sum over the
    tiles of the longest dim is that without clipping, less what the tiles at both ends lose: those with a < 0 start at one
    of the first :math:`\\lceil -a/c \\rceil` points, and likewise at the end.

    Symbols: a, b [points] as above, h [points] the tensor's ``extent``, c [1] the coefficient. Exact. With open tile sizes, the
    terms are products of one factor per dim. Source: counting argument, docs/model.md.

    >>> rows = AffineDim(1, 6, [Split(2, True)])
    >>> whole, tiled = AffineDim(1, 3, []), AffineDim(1, 3, [Split(2, True)])
    >>> affine_points([rows, whole], -1, 6)   # [-1, 3) [1, 5) [3, 7): 3 + 4 + 3
    10
    >>> affine_points([rows, tiled], -1, 6)   # 2 + 3 + 3, 2 + 2 + 1
    13
    """
    main = max(range(len(dims)), key=lambda at: dims[at].extent)
    others = [dim for at, dim in enumerate(dims) if at != main]
    result: Number = 0
    for tiles in product(*(_tiles(dim.extent, dim.splits) for dim in others)):
        first, span = constant, 1
        for (coefficient, _, _), tile in zip(others, tiles, strict=True):
            first = first + coefficient * (tile.start if coefficient > 0 else tile.start + tile.extent - 1)
            span = span + abs(coefficient) * (tile.extent - 1)
        points = unclipped_points([dims[main]]) + (span - 1) * visits(dims[main].extent, dims[main].splits)
        lost = _lost(dims[main], first, span, extent)
        result = result + _product([tile.selected for tile in tiles]) * (points - lost)
    return result


def buffered_points(dims: Sequence[AffineDim], extent: int) -> Number:
    """Space [points] for the intervals of all combinations of a tile of each dim: an interval with its padding, but no more than
    the part of the tensor that the ops read.

    .. math:: H = \\sum_{tiles} \\min \\left( h, 1 + \\sum_i |c_i| (e_i - 1) \\right)

    Symbols: c_i [1] coefficients, e_i [points] extents of the tiles, h [points] the ``extent`` of that part. Source:
    docs/model.md, footprint.

    >>> rows, taps = AffineDim(2, 7, [Split(3, True)]), AffineDim(1, 3, [])
    >>> buffered_points([rows, taps], 6)   # 7 -> 6, 7 -> 6, 3
    15
    """
    whole = 1 + sum(abs(coefficient) * (most - 1) for coefficient, most, _ in dims)
    result: Number = 0
    for tiles in product(*(sizes(most, splits) for _, most, splits in dims)):
        span: Number = 1
        for (coefficient, _, _), (size, _) in zip(dims, tiles, strict=True):
            span = span + abs(coefficient) * (size - 1)
        result = result + _product([count for _, count in tiles]) * (minimum(span, extent) if whole > extent else span)
    return result


def _tiles(extent: int, splits: Sequence[Split]) -> list[_Tile]:
    """Every tile of a dim; for open tile sizes, every interval that may be one, selected (1) or not (0)."""
    if not splits:
        return [_Tile(0, extent, 1)]
    known, found = all(type(split.tile) is int for split in splits), []
    for start in range(extent):
        size, selected = _tile_from(start, extent, splits)
        if known:
            found += [_Tile(start, int(size), selected)] if selected else []
            continue
        for some in range(1, extent - start + 1):
            here = selected * _equal(size, some)
            if anywhere(here):
                found.append(_Tile(start, some, here))
    return found


def _at(point: int, extent: int, splits: Sequence[Split]) -> tuple[Number, Number, Number]:
    """Of the innermost tile with a point: (place of the point in it, its extent, 1 if it is selected, else 0)."""
    place: Number = point
    most: Number = extent
    selected: Number = 1
    for tile, summed, index in splits:
        before = floor_div(place, tile)
        if not summed:
            selected = selected * _equal(before, index)
        place, most = place - before * tile, minimum(tile, most - before * tile)
    return place, most, selected


def _tile_from(start: int, extent: int, splits: Sequence[Split]) -> tuple[Number, Number]:
    """Of the tile with this first point: (its extent, 1 if there is one and it is selected, else 0)."""
    place, most, selected = _at(start, extent, splits)
    return most, selected * _equal(place, 0)


def _lost(dim: AffineDim, first: int, span: int, extent: int) -> Number:
    """Points outside the tensor, summed over the tiles of a dim. ``first`` position and ``span`` of the interval of one point."""
    coefficient, most, splits = dim
    if coefficient < 0:  # counted from the other end of the tensor
        coefficient, first = -coefficient, extent - span - first
    before = -(first // coefficient) if first < 0 else 0
    after = max(most - 1 - (extent - span - first) // coefficient, 0)

    def lost(start: Number, size: Number, selected: Number) -> Number:
        low = first + coefficient * start
        high = low + coefficient * (size - 1) + span
        inside = maximum(minimum(high, extent) - maximum(low, 0), 0)
        return selected * (high - low - inside)

    result: Number = 0
    for start in range(min(before, most)):
        result = result + lost(start, *_tile_from(start, most, splits))
    for last in range(max(most - after, 0), most):
        place, size, selected = _at(last, most, splits)
        begin = last - place
        # a tile that begins before the tensor is counted above
        result = result + lost(begin, size, selected * _equal(place, size - 1) * positive(begin - before + 1))
    return result


def _equal(a: Number, b: Number) -> Number:
    """1 where two whole numbers are equal, else 0."""
    return 1 - positive(maximum(a - b, b - a))


def _product(factors: Sequence[Number]) -> Number:
    return math.prod(factors, start=1)
