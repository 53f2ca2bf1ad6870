"""The distinct columns of a table, as `numpy.unique` finds them, by sorting numbers instead of whole columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def distinct_columns(rows: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of the first of each kind of column of ``rows`` [rows, columns], in the order of their values; for each column
    [columns], which kind it is.

    >>> first, which = distinct_columns([[2, 1, 2, 1], [5, 6, 5, 4]])
    >>> first.tolist(), which.tolist()
    ([3, 1, 0], [2, 1, 2, 0])
    """
    table = np.asarray(rows)
    codes = np.zeros(table.shape[1], np.int64)
    for row in table:
        values, places = np.unique(row, return_inverse=True)
        # numbered anew after each row, so that codes stay below columns times values
        codes = np.unique(codes * len(values) + places, return_inverse=True)[1]
    return np.unique(codes, return_index=True)[1], codes
