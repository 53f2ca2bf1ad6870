"""The distinct columns of a table, as `numpy.unique` finds them, by numbering values instead of sorting whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Places = NDArray[np.intp]

MARKED = 8
"""How many codes there may be for each column, so that to mark those that occur takes less than to sort the columns."""


def distinct_columns(rows: ArrayLike) -> tuple[Places, Places]:
    """The places of the first of each kind of column of ``rows`` [rows, columns], in the order of their values; for each column
    [columns], which kind it is.

    >>> first, which = distinct_columns([[2, 1, 2, 1], [5, 6, 5, 4]])
    >>> first.tolist(), which.tolist()
    ([3, 1, 0], [2, 1, 2, 0])
    """
    kinds, which = distinct_together(list(np.asarray(rows)))
    first = np.empty(len(kinds[0]), np.intp)
    # of those of a kind the first is written last
    first[which[::-1]] = np.arange(len(which))[::-1]
    return first, which


def distinct_together(rows: Sequence[NDArray[Any]]) -> tuple[list[NDArray[Any]], Places]:
    """The distinct columns of ``rows`` that broadcast to one shape, row by row, in the order of their values; for each column of
    that shape, which of them it is. Rows are not spread out before.

    >>> found, which = distinct_together([np.array([3, 2, 3]), np.array([[5], [4]])])
    >>> [row.tolist() for row in found], which.tolist()
    ([[2, 2, 3, 3], [4, 5, 4, 5]], [[3, 1, 3], [2, 0, 2]])
    """
    # code: the number of a column among all combinations of values of the rows so far
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
    """Which of ``count`` codes occur, in their order; and the codes numbered by that."""
    if count > MARKED * codes.size:
        found, number = np.unique(codes, return_inverse=True)
        return found, number.reshape(codes.shape)
    occurs = np.zeros(count, np.intp)
    occurs[codes] = 1
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]
