"""What every search says of its answer: how it ended, and how far the answer may be from the optimum."""

from __future__ import annotations

import math
from enum import StrEnum


class Status(StrEnum):
    """How a search ended; the value is a sentence for the user."""

    OPTIMAL = "optimal: nothing in the declared space is better"
    WITHIN = "within the gap that was asked for: nothing in the declared space is better than the bound"
    LIMIT = "stopped early: the best so far, with a true bound"
    INTERRUPTED = "interrupted: the best so far, with a true bound"


def relative_gap(value: float, bound: float) -> float:
    """How far a value may be from the least possible one, relative to a lower bound of it: value / bound - 1.

    Infinite without a bound; 0 where both are 0.

    >>> relative_gap(110.0, 100.0), relative_gap(0.0, 0.0), relative_gap(1.0, 0.0)
    (0.10000000000000009, 0.0, inf)
    """
    if bound > 0:
        return value / bound - 1.0
    return 0.0 if value == bound else math.inf
