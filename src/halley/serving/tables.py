"""Piecewise linear tables of times, which a step interpolates instead of timing kernels again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number

Array = NDArray[np.float64]

POINTS_PER_OCTAVE = 4
"""Points of a grid between a number and its double."""


def grid(largest: float, per_octave: int = POINTS_PER_OCTAVE) -> Array:
    """Whole numbers from 1 to at least ``largest``, each about 2^(1/per_octave) times the one before; at least two.

    >>> grid(20, 1).tolist()
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    """
    steps = int(np.ceil(np.log2(max(largest, 2)) * per_octave))
    return np.unique(np.round(np.exp2(np.arange(steps + 1) / per_octave)))


@dataclass(frozen=True, eq=False, slots=True)
class PiecewiseLinear:
    """A function of one number: ``values`` [points] at ``at`` [points], ascending; linear between and beyond the ends."""

    at: Array
    values: Array

    def __call__(self, x: Number) -> Array:
        """At numbers or arrays; 0 at 0 and below."""
        where = np.asarray(x, dtype=np.float64)
        low, part = _place(self.at, where)
        found = self.values[low] * (1 - part) + self.values[low + 1] * part
        return np.where(where > 0, found, 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class StackedLines:
    """Several functions of one number: ``values`` [functions, points] at ``at`` [points], as `PiecewiseLinear`."""

    at: Array
    values: Array

    def __call__(self, x: Number) -> Array:
        """[functions, ...] at numbers or arrays; 0 at 0 and below."""
        where = np.asarray(x, dtype=np.float64)
        low, part = _place(self.at, where)
        found = self.values[:, low] * (1 - part) + self.values[:, low + 1] * part
        return np.where(where > 0, found, 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class Surface:
    """A function of two numbers: ``values`` [rows, columns] at ``rows`` and ``columns``, both ascending; bilinear."""

    rows: Array
    columns: Array
    values: Array

    def __call__(self, row: Number, column: Number) -> Array:
        """At numbers or arrays that broadcast; 0 where ``row`` is 0 or below."""
        x, y = np.broadcast_arrays(np.asarray(row, dtype=np.float64), np.asarray(column, dtype=np.float64))
        (i, a), (j, b) = _place(self.rows, x), _place(self.columns, np.maximum(y, self.columns[0]))
        table = self.values
        upper = table[i, j] * (1 - b) + table[i, j + 1] * b
        lower = table[i + 1, j] * (1 - b) + table[i + 1, j + 1] * b
        return np.where(x > 0, upper * (1 - a) + lower * a, 0.0)


def _place(at: Array, x: Array) -> tuple[NDArray[np.int64], Array]:
    """The interval of each number, and how far it is along it."""
    low = np.minimum(np.maximum(np.searchsorted(at, x, "right") - 1, 0), len(at) - 2)
    # below the first point the value is that of the first point: half a token does not exist
    part = np.maximum((x - at[low]) / (at[low + 1] - at[low]), 0.0)
    return low, part
