"""What the formula of a kernel leaves over, interpolated between the measured shapes.

Libraries choose among kernels by rules that no formula of a family knows: shapes near each other deviate alike. A correction is
the mean of a Gaussian process over the logarithms of the sizes and of the formula's time. Far from every measured shape it is 0,
and the formula alone decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halley.kernels.library.family import Array, Sizes

LIKENESS_OCTAVES = 8.0
"""Octaves, summed over all sizes and the time, over which the likeness of two shapes falls to 1/e."""
OWN_KERNELS = {"head_dim": 8.0}
"""How much further apart shapes are that differ in this size: libraries compile a kernel for each."""
RELATIVE_NOISE_VARIANCE = 0.1
"""Variance of repeated measurements, relative to that of what the formula leaves over."""
LARGEST_DEVIATION = 1.0
"""Largest deviation [logarithm] of a row that is interpolated; larger ones are cut to it."""
FEWEST_FOR_CORRECTION = 8
"""Rows of a kernel from which deviations are interpolated."""
LEAST_SIZE = 0.5
"""Stands for sizes of 0, such as no window, which have no logarithm."""


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """Measured shapes and their weights.

    ``sizes``: of shape [shapes, sizes], in the order of the family's; ``times`` [s] of the formula, and ``weights`` [logarithm],
    of shape [shapes].
    """

    sizes: Array
    times: Array
    weights: Array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Correction):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in ("sizes", "times", "weights"))

    __hash__ = None  # type: ignore[assignment]  # as of every object that holds arrays

    def factor(self, sizes: Sizes, times: Array) -> Array:
        """Measured over modelled time, as expected from the shapes nearby; of shape [rows].

        .. math:: \\exp \\sum_i w_i \\exp\\left(-\\tfrac{1}{8} \\sum_j |x_j - x_{ij}|\\right),\\quad x = \\log_2(sizes, time)

        Differences of `OWN_KERNELS` count more.

        >>> one = Correction(np.array([[64.0]]), np.array([1e-3]), np.array([0.1]))
        >>> found = one.factor({"m": np.array([64.0, 128.0, 2.0**60])}, np.array([1e-3, 1e-3, 1e-3]))
        >>> [round(float(value), 3) for value in found]
        [1.105, 1.092, 1.0]
        """
        some, others = (
            _logarithms(points, at, list(sizes)) for points, at in ((_points(sizes), times), (self.sizes, self.times))
        )
        return np.asarray(np.exp(_likeness(some, others) @ self.weights))


def corrected(modelled: Array, sizes: Sizes, correction: Correction | None) -> Array:
    """Times [s] of a formula as they are expected to be measured; as they are without a correction."""
    return modelled * correction.factor(sizes, modelled) if correction else modelled


def fit_correction(sizes: Sizes, modelled: Array, measured: Array) -> Correction | None:
    """The correction of rows of ``measured`` time [s]; None where there are too few of them."""
    if len(measured) < FEWEST_FOR_CORRECTION:
        return None
    points = _points(sizes)
    logs = _logarithms(points, modelled, list(sizes))
    left = np.clip(np.log(measured / modelled), -LARGEST_DEVIATION, LARGEST_DEVIATION)
    weights = np.linalg.solve(_likeness(logs, logs) + RELATIVE_NOISE_VARIANCE * np.eye(len(left)), left)
    return Correction(points, modelled, weights)


def _points(sizes: Sizes) -> Array:
    return np.stack(list(sizes.values()), axis=1)


def _logarithms(points: Array, times: Array, names: Sequence[str]) -> Array:
    """Of shape [points, sizes and time]."""
    apart = np.array([OWN_KERNELS.get(name, 1.0) for name in names])
    return np.concatenate([apart * np.log2(np.maximum(points, LEAST_SIZE)), np.log2(times)[:, None]], axis=1)


def _likeness(some: Array, others: Array) -> Array:
    """Of shape [some, others]."""
    distance = np.zeros((len(some), len(others)))
    for column in range(some.shape[1]):
        distance += np.abs(some[:, column, None] - others[None, :, column])
    return np.exp(-distance / LIKENESS_OCTAVES)
