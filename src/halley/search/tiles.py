"""Tile sizes that a search tries for one dim."""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(maxsize=4096)
def tile_sizes(extent: int) -> tuple[int, ...]:
    """All divisors of the extent, and the extent over every power of two rounded up (imperfect tiles), ascending.

    >>> tile_sizes(12)
    (1, 2, 3, 4, 6, 12)
    >>> tile_sizes(13)
    (1, 2, 4, 7, 13)
    """
    found = {divisor for low in range(1, math.isqrt(extent) + 1) if extent % low == 0 for divisor in (low, extent // low)}
    part = 1
    while part < extent:
        found.add(-(-extent // part))
        part *= 2
    return tuple(sorted(found | {1}))
