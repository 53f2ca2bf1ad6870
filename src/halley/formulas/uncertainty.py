"""Intervals of predicted times, from the mean errors of predictions that were held against measurements."""

from __future__ import annotations

import math

from halley.formulas.numbers import Number


def deviation(error: Number) -> Number:
    """Standard deviation of the logarithm of measured over predicted time, from the mean relative error.

    .. math:: \\sigma = \\sqrt{\\pi / 2} \\, e

    Symbols: e [1] mean of the absolute relative errors. Holds for: errors that are small, without bias, and normal in the
    logarithm. Does not model: bias, outliers. Source: mean of the half-normal distribution.

    >>> round(deviation(0.08), 4)
    0.1003
    """
    return math.sqrt(math.pi / 2) * error
