"""A time at which a search has to end, for its longest steps to ask."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

Tick = Callable[[], None]
"""Called between the parts of a long step; it may raise to end it."""


def no_limit() -> None:
    """A `Tick` that never ends a step."""


class TimeIsUp(Exception):
    """Work was ended by a deadline; what was open stays open."""


@dataclass(slots=True)
class Deadline:
    """``end`` [s]: on the clock of `time.perf_counter`. Called, it says whether that has passed.

    >>> Deadline()(), Deadline(0.0)()
    (False, True)
    """

    end: float = math.inf

    def __call__(self) -> bool:
        return time.perf_counter() > self.end

    def left(self) -> float | None:
        """Time until then [s], at least 0; None: there is no end.

        >>> Deadline().left(), Deadline(0.0).left()
        (None, 0.0)
        """
        return None if math.isinf(self.end) else max(self.end - time.perf_counter(), 0.0)

    def check(self) -> None:
        """Raises TimeIsUp: it has passed."""
        if self():
            raise TimeIsUp
