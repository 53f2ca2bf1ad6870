"""What is known of a problem of a study: a lower bound, and what its search found."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halley.answer import relative_gap

RELATIVE_ROUNDING = 1e-9
"""What a bound may lose, relatively, by sums in another order."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A lower bound of the objective of a problem; infinite where nothing can fit, for the ``reason``."""

    value: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a search found: the objective's ``value`` (infinite without a mapping or plan, for the ``reason``) and its proven
    ``bound``, the ``time`` [s] and ``energy`` [J] of the mapping or plan, how the search ``ended``, and the processor time that
    it took [s]. ``mapping``: as text, with its variant and fused groups; or the plan in a line."""

    value: float
    bound: float
    time: float
    energy: float
    seconds: float
    ended: str
    mapping: str = ""
    variant: str = ""
    groups: str = ""
    reason: str = ""

    @classmethod
    def without(cls, bound: float, seconds: float, ended: str, reason: str) -> Answered:
        """No mapping or plan."""
        return cls(math.inf, bound, math.inf, math.inf, seconds, ended, reason=reason)

    @property
    def gap(self) -> float:
        """How far the value may be from the optimum."""
        return relative_gap(self.value, self.bound)
