"""What a family of kernels is: its sizes, parameters and options, and three functions of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.kernels.machine import Machine

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Sizes: TypeAlias = Mapping[str, Array]
"""Sizes by name, each of shape [rows]."""
Options: TypeAlias = Mapping[str, float]
"""Properties of the library, by name; yes and no are 1 and 0."""
Features: TypeAlias = Mapping[str, Array | float]
"""What a model computes once for given sizes, chip and options."""


@dataclass(frozen=True, slots=True)
class Formats:
    """Number formats of one kernel: ``dtype`` of its products, ``cache`` of keys and values (as ``dtype`` if empty)."""

    dtype: str
    cache: str = ""


@dataclass(frozen=True, slots=True)
class FittedParameter:
    """A fitted number: where the fit starts, its bounds, and the standard deviation of its logarithm before any measurement.

    ``neutral``: a bound at which the effect is absent ("low" or "high"), which is no warning; "" if neither is.
    """

    name: str
    start: float
    low: float
    high: float
    spread: float
    neutral: str = ""


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """A family of kernels.

    ``sizes`` and ``defaults`` (of sizes that may be left out). ``options``: values of each option, the first is where the search
    starts. ``features`` and ``time`` [s, shape [rows]] are the model; ``demand`` gives the times [s] of the products and of the
    memory traffic at the rates of the data sheet, each byte once: the two sides of a roofline. ``variant`` names the kernel that
    the library takes for a row, of those that share a name. ``decodes``: rows that the framework runs with its kernel for
    decoding, which the fit of that kernel times where there is one; the sizes have the names of that family's.
    """

    name: str
    sizes: tuple[str, ...]
    defaults: Mapping[str, float]
    parameters: tuple[FittedParameter, ...]
    options: Mapping[str, tuple[float, ...]]
    features: Callable[[Sizes, Formats, Machine, Options], Features]
    time: Callable[[Mapping[str, float], Features], Array]
    demand: Callable[[Sizes, Formats, Machine], tuple[Array, Array]]
    variant: Callable[[Sizes, str], NDArray[np.str_]] | None = None
    decodes: Callable[[Sizes, str], Mask] | None = None

    def start(self) -> dict[str, float]:
        """The parameters before any measurement."""
        return {item.name: item.start for item in self.parameters}


def missing(size: Array | float, capacity: float) -> Array:
    """Share of a working set that a cache does not keep: 0 up to half of its capacity, 1 from one and a half, linear between.

    >>> [float(missing(size, 2.0)) for size in (0.5, 2.0, 4.0)]
    [0.0, 0.5, 1.0]
    """
    return np.clip(np.asarray(size) / capacity - 0.5, 0.0, 1.0)


def combined(first: Array | float, second: Array | float, sharpness: float) -> Array:
    """Time of two overlapping activities: the longer if they overlap perfectly (sharpness infinite), the sum if not (1).

    .. math:: t = (a^p + b^p)^{1/p}

    >>> round(float(combined(np.array(3.0), np.array(4.0), 2.0)), 6)
    5.0
    """
    largest = np.maximum(np.maximum(first, second), 1e-30)
    return np.asarray(largest * ((first / largest) ** sharpness + (second / largest) ** sharpness) ** (1 / sharpness))


LAUNCH = FittedParameter("launch", 3e-6, 2e-7, 1e-3, 3.0, "low")
HOST = FittedParameter("host", 1e-7, 1e-8, 3e-3, 4.0, "low")
SLOWDOWN_TIME = 1e-3
"""Time [s] of matrix work at which the power limit has lowered the clock half-way: that of a power controller."""
SLOWDOWN = FittedParameter("slowdown", 0.1, 1e-3, 2.0, 1.2, "low")


def under_load(work: Array, slowdown: float) -> Array:
    """Time of matrix work with the clock that the power limit leaves: up to 1 + slowdown times as long.

    .. math:: t = w (1 + d \\frac{w}{w + \\tau})

    >>> round(float(under_load(np.array(1e-3), 0.2)), 6)
    0.0011
    """
    return np.asarray(work * (1 + slowdown * work / (work + SLOWDOWN_TIME)))


def as_measured(body: Array | float, parameters: Mapping[str, float]) -> Array:
    """A kernel behind its launch, and not before the host has issued it."""
    return np.asarray(np.maximum(parameters["launch"] + body, parameters["host"]))
