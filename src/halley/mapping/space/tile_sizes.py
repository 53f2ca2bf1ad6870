"""Tile sizes that the search tries for one range."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

Sizes = Callable[[int], tuple[int, ...]]
"""The tile sizes to try for a range, ascending."""

LONG_RANGE = 1 << 18
"""The longest range that is divided into every number of parts. A dim that is tiled at several levels has some four times its
length to the power of 3/4 (two levels) or 7/8 (three) combinations of sizes, and the search stores them."""

PARTS_PER_OCTAVE = 4
"""Of longer ranges, how many numbers of parts are tried between one power of two and the next."""


@lru_cache(maxsize=1 << 16)
def tile_sizes(extent: int, widths: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The extent over every number of parts, rounded up: of all sizes that make as many tiles, the smallest. For each of them
    also the next multiple of each width (of the array), which wastes least of it.

    Divisors and imperfect tiles alike: some 2 sqrt(extent) sizes. Ranges longer than `LONG_RANGE` are divided into `few_parts`.

    >>> tile_sizes(12)
    (1, 2, 3, 4, 6, 12)
    >>> tile_sizes(13)
    (1, 2, 3, 4, 5, 7, 13)
    >>> tile_sizes(100, (16,))
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 20, 25, 32, 34, 48, 50, 64, 100)
    """
    root = math.isqrt(extent)
    every = (*range(1, root + 2), *(-(-extent // size) for size in range(1, root + 2)))
    parts = few_parts(extent) if extent > LONG_RANGE else every
    found = {-(-extent // part) for part in parts}
    for width in widths:
        if width > 1:
            found |= {rounded for size in found if (rounded := -(-size // width) * width) < extent}
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class SplitSizes:
    """The tile sizes of a split over an axis of some ``members``: equal parts of the range for all of them, and for 1, 2, 4, 8
    and so on of them, rounded up; and each rounded up to the ``widths`` (of the array). All but the smallest leave members idle.
    ``even``: with the smallest size; ``lone``: with the whole range on one member.

    >>> SplitSizes((8,), 6, even=True, lone=True)(100)
    (17, 24, 25, 32, 50, 56, 100)
    >>> SplitSizes((8,), 6, even=False, lone=False)(100)
    (24, 25, 32, 50, 56)
    """

    widths: tuple[int, ...]
    members: int
    even: bool
    lone: bool

    def __call__(self, extent: int) -> tuple[int, ...]:
        smallest = -(-extent // self.members)
        found = {smallest, *(-(-extent // (1 << power)) for power in range(self.members.bit_length()))}
        for width in self.widths:
            if width > 1:
                found |= {rounded for size in found if (rounded := -(-size // width) * width) < extent}
        if not self.lone:
            found.discard(extent)
        return tuple(sorted(found | {smallest} if self.even else found - {smallest}))


def few_parts(extent: int) -> tuple[int, ...]:
    """Numbers of parts of a long range: `PARTS_PER_OCTAVE` in each octave, up to the range itself.

    >>> few_parts(20)
    (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20)
    """
    steps = range(PARTS_PER_OCTAVE, 2 * PARTS_PER_OCTAVE)
    octaves = range(extent.bit_length())
    found = {parts for octave in octaves for step in steps if (parts := (step << octave) // PARTS_PER_OCTAVE) <= extent}
    return tuple(sorted({*found, extent}))


@dataclass(frozen=True, slots=True)
class TileSizes:
    """`tile_sizes` for given widths."""

    widths: tuple[int, ...]

    def __call__(self, extent: int) -> tuple[int, ...]:
        return tile_sizes(extent, self.widths)


def undivided(extent: int) -> tuple[int, ...]:
    """For dims that stay whole: only the range itself."""
    return (extent,)


def halvings(extent: int) -> tuple[int, ...]:
    """The extent over two parts, four, eight and so on, rounded up.

    >>> halvings(12), halvings(2), halvings(1)
    ((1, 2, 3, 6), (1,), ())
    """
    return tuple(sorted({-(-extent // (1 << power)) for power in range(1, (extent - 1).bit_length() + 1)}))
