"""What a timed kernel is, and the device that times it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from halley.measure.suite import Case

Call = Callable[[], object]
"""A call of a kernel with operands of its own."""


@dataclass(frozen=True, slots=True)
class Timing:
    """``time`` [s] of one call: the median of ``count`` samples; ``spread``: half of the distance of their
    quartiles, relative."""

    time: float
    spread: float
    count: int


@dataclass(frozen=True, slots=True)
class TimedCase:
    """A case and its time."""

    case: Case
    timing: Timing


class NotSupported(Exception):
    """The device or this PyTorch cannot run the case; the reason in words."""


class Device(Protocol):
    """What runs and times kernels. ``name`` of the chip, ``software`` and its version; ``capacity`` [B] that operands of one case
    may take; ``operations``: the most of one case, so that none takes more than about a second."""

    name: str
    software: str
    capacity: float
    operations: float

    def timed(self, case: Case) -> Timing:
        """Time of the kernel. Raises NotSupported."""


def summary(samples: list[float]) -> Timing:
    """Median and spread of samples [s].

    >>> summary([1.0, 2.0, 3.0, 4.0, 9.0])
    Timing(time=3.0, spread=0.3333333333333333, count=5)
    """
    low, middle, high = np.quantile(np.array(samples), (0.25, 0.5, 0.75))
    return Timing(float(middle), float((high - low) / 2 / middle), len(samples))
