"""Divisors of whole numbers."""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a number from 1, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return tuple(sorted({*small, *(number // each for each in small)}))


@lru_cache(maxsize=4096)
def prime_divisors(number: int) -> tuple[int, ...]:
    """The primes among them.

    >>> prime_divisors(12), prime_divisors(1)
    ((2, 3), ())
    """
    return tuple(each for each in divisors(number)[1:] if len(divisors(each)) == 2)
