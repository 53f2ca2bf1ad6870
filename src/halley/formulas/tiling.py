"""Sums over the tiles of one dim, from which all counts of the cost model are computed.

A chain of splits, outermost first, divides a dim's extent into tiles; the last tile of a split may be ragged. Every traffic, work
and visit count of a mapping is a product over dims of such sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from halley.formulas.numbers import Number, anywhere, ceil_div, floor_div, maximum, minimum, positive


class Split(NamedTuple):
    """One split: ``tile`` size [points]; whether all its tiles are summed, or only the tile with index ``place`` is counted."""

    tile: Number
    summed: bool
    place: int = 0


def over_tiles(extent: Number, splits: Sequence[Split], leaf: Callable[[Number], Number]) -> Number:
    """Sum of ``leaf(size)`` over the innermost tiles that the splits select.

    .. math:: W(e; t, \\ldots) = \\lfloor e/t \\rfloor W(t; \\ldots) + W(e \\bmod t; \\ldots)

    where a split that is not summed takes ``W(min(e, t); ...)`` instead, and ``W(e) = leaf(e)``, with ``leaf(0) = 0``.
    Symbols: e [points] the extent, t [points] the tile. Exact, ragged tiles included. Linear in the number of splits: the
    sum over a full tile of each split is found once, innermost first. Source: counting argument, docs/model.md.

    >>> over_tiles(13, [Split(5, True), Split(2, True)], lambda size: 1)   # 2+2+1 | 2+2+1 | 2+1
    8
    >>> over_tiles(13, [Split(5, True), Split(3, False)], lambda size: size)  # 3 | 3 | 3
    9
    """
    full: list[Number] = [0] * len(splits)
    for index in range(len(splits) - 1, -1, -1):
        full[index] = _cascade(splits[index].tile, splits, full, index + 1, leaf)
    return _cascade(extent, splits, full, 0, leaf)


def _cascade(
    extent: Number, splits: Sequence[Split], full: Sequence[Number], start: int, leaf: Callable[[Number], Number]
) -> Number:
    """Sum over full tiles split by split; the remainder of each split is passed to the next."""
    total: Number = 0
    for index in range(start, len(splits)):
        tile, summed, place = splits[index]
        if summed:
            whole = floor_div(extent, tile)
            total = total + whole * full[index]
            extent = extent - whole * tile
        else:
            extent = minimum(maximum(extent - place * tile, 0) if place else extent, tile)
    return total + leaf(extent)


def visits(extent: Number, splits: Sequence[Split]) -> Number:
    """Number of tiles that the splits select.

    .. math:: V = W(e) \\text{ with leaf } [e > 0]

    Symbols: e [points] the extent. Source: `over_tiles`.

    >>> visits(13, [Split(5, True)])
    3
    """
    return over_tiles(extent, splits, positive)


def covered(extent: Number, splits: Sequence[Split]) -> Number:
    """Points in the tiles that the splits select; all of the extent where every split is summed.

    .. math:: C = W(e) \\text{ with leaf } e

    Symbols: e [points] the extent. Source: `over_tiles`.

    >>> covered(13, [Split(5, True), Split(2, False)])
    6
    """
    if all(split.summed for split in splits):
        return extent
    return over_tiles(extent, splits, lambda size: size)


def folds(extent: Number, splits: Sequence[Split], width: Number, beside: Number = 1) -> Number:
    """Passes that ``width`` rows, columns or lanes need, summed over tiles: each ragged tile rounds up.

    .. math:: F = W(e) \\text{ with leaf } \\lceil e b / w \\rceil

    Symbols: e [points] the extent, w [points] the width, b [1] points of other, untiled dims that are mapped to the same side for
    each of these points. Source: `over_tiles`.

    >>> folds(13, [Split(5, True)], 4)   # 5 -> 2, 5 -> 2, 3 -> 1
    5
    >>> folds(13, [Split(5, True)], 4, 3)   # 15 -> 4, 15 -> 4, 9 -> 3
    11
    """
    return over_tiles(extent, splits, lambda size: ceil_div(size * beside, width))


def granular_folds(extent: Number, splits: Sequence[Split], width: Number, beside: Number, multiple: Number) -> Number:
    """Passes of `folds` where each tile is first rounded up to whole instructions.

    .. math:: F = W(e) \\text{ with leaf } \\lceil \\lceil e b / g \\rceil g / w \\rceil

    Symbols: e [points] the extent, w [points] the width, b [1] as for `folds`, g [1] points that an instruction computes. Source:
    `over_tiles`, docs/model.md.

    >>> granular_folds(13, [Split(5, True)], 4, 1, 8)   # 5 -> 8 -> 2, 5 -> 8 -> 2, 3 -> 8 -> 2
    6
    """
    return over_tiles(extent, splits, lambda size: ceil_div(ceil_div(size * beside, multiple) * multiple, width))


def first_tile(extent: Number, splits: Sequence[Split]) -> Number:
    """Size of the first innermost tile, which no other exceeds.

    .. math:: e_1 = \\min(e, t_1, t_2, \\ldots)

    Symbols: e [points] the extent, t_i [points] tiles, outermost first. Source: docs/model.md.

    >>> first_tile(13, [Split(5, True), Split(8, True)])
    5
    """
    for tile, *_ in splits:
        extent = minimum(extent, tile)
    return extent


def sizes(extent: Number, splits: Sequence[Split]) -> list[tuple[Number, Number]]:
    """(size, count) of the innermost tiles selected; entries that are zero (everywhere, for arrays) are dropped.

    .. math:: W(e) = \\sum_i c_i \\text{ leaf}(s_i)

    Symbols: e, s_i [points] extent and sizes, c_i [1] counts. Source: `over_tiles`, without adding up its terms.

    >>> sizes(13, [Split(5, True), Split(2, True)])
    [(2, 4), (1, 2), (2, 1), (1, 1)]
    """
    if not splits:
        return [(extent, 1)]
    (tile, summed, place), rest = splits[0], splits[1:]
    if not summed:
        first = minimum(maximum(extent - place * tile, 0) if place else extent, tile)
        return [(size, count * positive(size)) for size, count in sizes(first, rest)] if place else sizes(first, rest)
    whole = floor_div(extent, tile)
    ragged = extent - whole * tile
    found = [(size, count * whole) for size, count in sizes(tile, rest)] if anywhere(whole) else []
    if anywhere(ragged):
        found += [(size, count * positive(ragged)) for size, count in sizes(ragged, rest)]
    return [(size, count) for size, count in found if anywhere(count)]


def reach(extent: Number, splits: Sequence[Split]) -> Number:
    """End of the range that the selected tiles touch, counted from its start: the last tile of a summed split, the first tile of
    another split.

    .. math:: H(e; t, \\ldots) = t \\lfloor (e-1)/t \\rfloor + H(e - t \\lfloor (e-1)/t \\rfloor; \\ldots)

    Symbols: e [points] the extent, t [points] the tile. Source: docs/model.md, footprint of a distributed Hold.

    >>> reach(13, [Split(5, True), Split(2, False)])
    12
    """
    start: Number = 0
    for tile, summed, _ in splits:
        if summed:
            skip = tile * floor_div(extent - 1, tile)
            start, extent = start + skip, extent - skip
        else:
            extent = minimum(extent, tile)
    return start + extent
