"""The time at which a search has to end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


class TimeIsUp(Exception):
    """Work was ended by a deadline; what was open stays open."""


@dataclass(slots=True)
class Deadline:
    """``at`` [s]: of `time.perf_counter`.

    >>> Deadline().check()
    >>> Deadline(0.0).check()
    Traceback (most recent call last):
    halley.training.search.deadline.TimeIsUp
    """

    at: float = math.inf

    def check(self) -> None:
        """Raises TimeIsUp: it is past."""
        if time.perf_counter() > self.at:
            raise TimeIsUp
