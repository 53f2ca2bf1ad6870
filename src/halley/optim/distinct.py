"""The distinct columns of a table, as `numpy.unique` finds them, but by numbering values instead of sorting whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Places = NDArray[np.intp]

CODES_PER_COLUMN_MARKED = 8
"""Up to so many possible codes per column, marking those that occur is faster than sorting."""


def distinct_columns(rows: ArrayLike) -> tuple[Places, Places]:
    """Indices of the first of each distinct column of ``rows`` [rows, columns], in the order of their values; and, for each
    column [columns], the number of its distinct column.

    >>> first, which = distinct_columns([[2, 1, 2, 1], [5, 6, 5, 4]])
    >>> first.tolist(), which.tolist()
    ([3, 1, 0], [2, 1, 2, 0])
    """
    kinds, which = distinct_together(list(np.asarray(rows)))
    first = np.empty(len(kinds[0]), np.intp)
    # written in reverse, so that the first of equal columns remains
    first[which[::-1]] = np.arange(len(which))[::-1]
    return first, which


def distinct_together(rows: Sequence[NDArray[Any]]) -> tuple[list[NDArray[Any]], Places]:
    """The distinct columns of ``rows`` that broadcast to one shape, row by row, in the order of their values; and, for each
    column of that shape, its number among them. The rows are not broadcast in memory.

    >>> found, which = distinct_together([np.array([3, 2, 3]), np.array([[5], [4]])])
    >>> [row.tolist() for row in found], which.tolist()
    ([[2, 2, 3, 3], [4, 5, 4, 5]], [[3, 1, 3], [2, 0, 2]])
    """
    # a column's code is its number among all combinations of values of the rows so far
    kinds, which = np.zeros(1, np.intp), np.zeros((), np.intp)
    values, places = list[NDArray[Any]](), list[Places]()
    for row in rows:
        own = np.unique(row)
        values.append(own)
        which = np.asarray(which * len(own) + np.searchsorted(own, row))
        kinds, which = _numbered(which, len(kinds) * len(own))
        places = [each[kinds // len(own)] for each in places] + [kinds % len(own)]
    return [own[place] for own, place in zip(values, places, strict=True)], which


def _numbered(codes: Places, count: int) -> tuple[Places, Places]:
    """The codes below ``count`` that occur, ascending; and the codes replaced by their number among these."""
    if count > CODES_PER_COLUMN_MARKED * codes.size:
        found, number = np.unique(codes, return_inverse=True)
        return found, number.reshape(codes.shape)
    occurs = np.zeros(count, np.intp)
    occurs[codes] = 1
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]
