"""Number of visible pairs of a tile of rows and a tile of keys under a mask, by the sizes of both.

Tiles of rows are enumerated, for all sizes of the tiles of keys at once. With open tile sizes the numbers are open numbers of a
separate kind, which a search looks up for each combination (`halley.mapping.space.masked_tiles`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number, as_number
from halley.formulas.terms import Term
from halley.ir.masks import Mask

PAIRS = "(pairs)"
"""In place of a dim: the kind of open numbers that depend on the tiles of rows and of keys."""

Counts = NDArray[np.float64]


class TileSelection(Enum):
    """Which tiles of a cut count: each one; the first; the one with most work; or, of those that process the same keys at the
    same time, one of the largest size."""

    EACH = 0
    FIRST = 1
    BUSIEST = 2
    ANY = 3


@dataclass(frozen=True, slots=True, eq=True)
class RowCut:
    """A loop or split of the rows outside the loop over the keys."""

    tile: Number
    how: TileSelection = TileSelection.EACH


RowCuts = tuple[RowCut, ...]


@dataclass(frozen=True, slots=True)
class MaskedPairs:
    """A set of pairs: the mask, the extents [points] of rows and keys, the cuts of the rows (outermost first), the tile of
    keys."""

    mask: Mask
    rows: int
    keys: int
    cuts: RowCuts
    tile: Number


def pairs(seen: MaskedPairs) -> Callable[[int, int], Number]:
    """The number of pairs as a function of the bits of the rows' size (`halley.cost.masking.sizes_of`) and of the keys' bit: 0
    for full tiles of keys, 1 for the ragged one."""
    tiles = [*(cut.tile for cut in seen.cuts), seen.tile]
    first = next((tile for tile in tiles if isinstance(tile, Term)), None)
    if first is not None:
        return lambda rows, keys: as_number(first.terms.open(_Open(seen, rows, keys), PAIRS, (0, None)))
    shape = np.broadcast_shapes(*(np.shape(tile) for tile in tiles))
    hows = tuple(cut.how for cut in seen.cuts)
    columns = [np.broadcast_to(np.asarray(tile), shape).ravel() for tile in tiles]
    found = pair_counts(seen.mask, seen.rows, seen.keys, hows, np.stack(columns, axis=1))

    def number(rows: int, keys: int) -> Number:
        own = found[2 * rows + keys]
        return own.reshape(shape) if shape else int(own[0])

    return number


class _Open(str):
    """The name of an open number of pairs, with the pairs that it counts."""

    seen: MaskedPairs
    bits: tuple[int, int]

    def __new__(cls, seen: MaskedPairs, rows: int, keys: int) -> _Open:
        own = [tile.index if isinstance(tile, Term) else tile for tile in (*(cut.tile for cut in seen.cuts), seen.tile)]
        hows = "".join(cut.how.name[0] for cut in seen.cuts)
        kinds = "".join("t" if isinstance(tile, Term) else "n" for tile in (*(cut.tile for cut in seen.cuts), seen.tile))
        made = super().__new__(cls, f"pairs {seen.mask!r} {seen.rows} {seen.keys} {own} {hows} {kinds} {rows} {keys}")
        made.seen, made.bits = seen, (rows, keys)
        return made


def of_open(name: str) -> tuple[MaskedPairs, tuple[int, int]]:
    """The pairs that an open number counts, from its name."""
    assert isinstance(name, _Open)
    return name.seen, name.bits


def pair_counts(mask: Mask, rows: int, keys: int, hows: tuple[TileSelection, ...], tiles: NDArray[Any]) -> Counts:
    """Numbers of pairs (sizes x combinations) for each combination of tiles (a row: tiles of the cuts, then of the keys). The
    index of a size is 2 x (bits of the rows) + (bit of the keys)."""
    tiles = np.ascontiguousarray(tiles, dtype=np.int64)
    return _pair_counts(mask, rows, keys, hows, tiles.shape[1], tiles.tobytes())


@lru_cache(maxsize=1 << 7)
def _pair_counts(mask: Mask, rows: int, keys: int, hows: tuple[TileSelection, ...], width: int, data: bytes) -> Counts:
    tiles = np.frombuffer(data, dtype=np.int64).reshape(-1, width)
    result = np.zeros((2 << (width - 1), len(tiles)))
    distinct, where = np.unique(tiles, axis=0, return_inverse=True)
    where = where.ravel()
    starts = np.flatnonzero(np.append(True, (distinct[1:, :-1] != distinct[:-1, :-1]).any(axis=1)))
    found = np.zeros((len(result), len(distinct)))
    for start, stop in zip(starts, [*starts[1:], len(distinct)], strict=True):
        listed = _RowTiles(mask, rows, tuple(distinct[start, :-1].tolist()), hows)
        found[:, start:stop] = listed.pairs(keys, distinct[start:stop, -1])
    result[:] = found[:, where]
    result.setflags(write=False)
    return result


class _RowTiles:
    """All tiles of rows: their size and its bits, the first and last key that they see, and which ones count together."""

    def __init__(self, mask: Mask, rows: int, tiles: Sequence[int], hows: Sequence[TileSelection]) -> None:
        start, size, bits = (np.array([value], dtype=np.int64) for value in (0, rows, 0))
        groups, members = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        for tile, how in zip(tiles, hows, strict=True):
            parts = np.ones_like(size) if how is TileSelection.FIRST else -(-size // tile)
            index = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
            start, size, bits, groups, members = (np.repeat(own, parts) for own in (start, size, bits, groups, members))
            start, size = start + index * tile, np.minimum(tile, size - index * tile)
            bits = 2 * bits + (size < tile)
            most = int(index.max(initial=0)) + 1
            groups = groups * most + (0 if how is TileSelection.ANY else index)
            members = members * most + (index if how is TileSelection.BUSIEST else 0)
        whole = start // mask.queries < (start + size - 1) // mask.queries  # rows of several heads: all queries
        first = np.where(whole, 0, start % mask.queries) + mask.offset
        self.last = np.where(whole, mask.queries - 1, (start + size - 1) % mask.queries) + mask.offset
        self.first = np.zeros_like(first) if mask.window is None else np.maximum(first - mask.window + 1, 0)
        self.size, self.bits, self.groups = size, bits, groups
        self.members = np.unique(members, return_inverse=True)[1].ravel()
        self.shared = TileSelection.ANY in hows
        self.kinds = 1 << len(hows)

    def pairs(self, keys: int, tiles: NDArray[np.int64]) -> Counts:
        """Numbers of pairs (sizes x tiles of keys)."""
        begin = self.first[:, None] // tiles
        end = np.minimum(self.last, keys - 1)[:, None] // tiles + 1
        whole = keys // tiles
        found = np.zeros((2 * self.kinds, len(tiles)))
        chosen = self._busiest(begin, end, whole, keys, tiles)
        for side, (low, high) in enumerate(((np.zeros_like(whole), whole), (whole, whole + 1))):
            own = np.maximum(begin, low), np.minimum(end, high)
            counts = self._in_common(*own) if self.shared else np.maximum(own[1] - own[0], 0)
            counts = np.where(self.members[:, None] == chosen, counts, 0)
            for bits in np.unique(self.bits):
                found[2 * bits + side] = counts[self.bits == bits].sum(axis=0)
        return found

    def _busiest(self, begin: Any, end: Any, whole: Any, keys: int, tiles: Any) -> NDArray[np.int64]:
        """The member with most points to compute, for each tile of keys; the first of equal ones."""
        count = int(self.members.max(initial=0)) + 1
        if count == 1:
            return np.zeros(len(tiles), dtype=np.int64)
        points = np.minimum(end * tiles, keys) - begin * tiles
        work = np.stack([(self.size[:, None] * points)[self.members == member].sum(axis=0) for member in range(count)])
        return np.asarray(work.argmax(axis=0))

    def _in_common(self, begin: Any, end: Any) -> Any:
        """For each tile in a group, the number of its tiles of keys that no larger tile and no tile before it has."""
        order = np.lexsort((self.first, self.groups))
        result = np.zeros_like(begin)
        before = np.zeros((1, begin.shape[1]), dtype=np.int64)
        known = np.zeros(len(order), dtype=bool)
        total_before: dict[int, Any] = {}
        for size in np.unique(self.size)[::-1]:
            known |= self.size == size
            rows = order[known[order]]
            reach = int(end.max(initial=0)) + 1
            shift = (self.groups[rows] * reach)[:, None]
            low, high = begin[rows] + shift, np.maximum(end[rows], begin[rows]) + shift
            so_far = np.concatenate([before, np.maximum.accumulate(high, axis=0)[:-1]])
            new = np.maximum(high - np.maximum(low, so_far), 0)
            for group in np.unique(self.groups[rows]):
                here = rows[self.groups[rows] == group]
                total = new[self.groups[rows] == group].sum(axis=0)
                own = here[self.size[here] == size]
                if len(own):
                    result[own[0]] = total - total_before.get(int(group), 0)
                    total_before[int(group)] = total
        return result
