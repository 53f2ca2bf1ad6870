"""Incumbents: the best value found for one objective, or the Pareto front for two."""

from __future__ import annotations

from typing import Any

import numpy as np

Values = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


BOUND_ROUNDING = 1e-12
"""Relative difference of values that is put down to rounding: a bound this close below an incumbent cannot improve it."""


class Frontier:
    """The non-dominated points among those added, each with a payload. Points are rows of one or two minimised objectives, sorted
    by the first one.

    ``gap``: with one objective, improvements of at most this relative size are pruned."""

    def __init__(self, width: int, gap: float = 0.0) -> None:
        self.width = width
        self.points: Values = np.empty((0, width))
        self.payloads: list[Any] = []
        self.gap = gap
        self._second: Values = np.array([np.inf])  # the least second objective of the points up to each, none of them first

    def pruned(self, bounds: Values) -> Flags:
        """Which lower bounds (rows) cannot improve the front: some point is at least as good in every objective."""
        if not len(self.points):
            return np.asarray(np.isinf(bounds).any(axis=1))
        if bounds.shape[1] == 1:
            return np.asarray(bounds[:, 0] * (1 + self.gap) >= self.points[0, 0] * (1 - BOUND_ROUNDING))
        least = self._second[np.searchsorted(self.points[:, 0], bounds[:, 0], side="right")]
        return np.asarray((least <= bounds[:, 1]) | np.isinf(bounds[:, 0]))

    def add(self, values: Values, payload: Any) -> None:
        """Add one point, and remove points that it dominates."""
        if self.pruned(values[None, :])[0]:
            return
        kept: Flags = np.asarray(~(self.points >= values).all(axis=1))
        points = self.points[kept]
        at = int(np.searchsorted(points[:, 0], values[0]))
        points = np.insert(points, at, values, axis=0)
        payloads = [p for p, keep in zip(self.payloads, kept, strict=True) if keep]
        payloads.insert(at, payload)
        second = np.append(np.inf, points[:, -1])
        # at once, so that Ctrl-C cannot come between them
        self.points, self.payloads, self._second = points, payloads, second


def minimal(points: Values) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices of the non-dominated points; of equal ones the first.

    >>> minimal(np.array([[1.0, 5.0], [2.0, 4.0], [2.0, 6.0]])).tolist()
    [0, 1]
    """
    if points.shape[1] == 1:
        return np.array([int(np.argmin(points[:, 0]))], dtype=np.int64)
    order = np.lexsort((points[:, 1], points[:, 0]))
    second = points[order, 1]
    before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
    return np.asarray(order[second < before], dtype=np.int64)
