"""What every search says of its answer: how it ended, and how far the answer may be from the optimum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """How a search ended; the value is a sentence for the user."""

    OPTIMAL = "optimal: nothing in the declared space is better"
    WITHIN = "within the gap that was asked for: nothing in the declared space is better than the bound"
    ENUMERATED = "best of the candidates, all of which were costed; the bound holds for every other one too"
    LIMIT = "stopped early: the best so far, with a true bound"
    INTERRUPTED = "interrupted: the best so far, with a true bound"


ROUNDING_GAP = 2e-9
"""Relative gap that is put down to rounding: value and bound are sums of the same terms in another order."""


def relative_gap(value: float, bound: float) -> float:
    """How far a value may be from the least possible one, relative to a lower bound of it: value / bound - 1.

    Infinite without a bound; 0 where both are equal, also if both are 0 or infinite.

    >>> relative_gap(110.0, 100.0), relative_gap(0.0, 0.0), relative_gap(1.0, 0.0)
    (0.10000000000000009, 0.0, inf)
    """
    if value == bound:
        return 0.0
    return value / bound - 1.0 if bound > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Certificate:
    """Proof that goes with an answer.

    ``value``: objective of the answer, in ``unit``. ``bound``: nothing in the declared space has a smaller objective. ``space``:
    how many options each choice has; ``size``: candidates of the space, counted exactly; None: not
    counted. ``left_out``: what the space lacks.
    ``effort``: how many candidates were bounded, costed and so on. ``seconds`` [s]: wall time of the search; ``closed``: how
    the proof ended.

    >>> Certificate(110.0, 100.0, Status.LIMIT).gap
    0.10000000000000009
    """

    value: float
    bound: float
    status: Status
    unit: str = "s"
    space: Mapping[str, int] = field(default_factory=dict)
    size: int | None = 0
    left_out: tuple[str, ...] = ()
    effort: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    closed: str = ""

    @property
    def gap(self) -> float:
        """How far the answer may be from the optimum: value / bound - 1 (`relative_gap`), 0 within rounding."""
        gap = relative_gap(self.value, self.bound)
        return gap if gap > ROUNDING_GAP else 0.0
