"""Distinct columns are those that `numpy.unique` finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from halley.optim.distinct import distinct_columns, distinct_together


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 30), st.sampled_from([2, 5, 10**6]))
def test_as_numpy_finds_them(seed: int, rows: int, columns: int, values: int) -> None:
    table = np.random.default_rng(seed).integers(0, values, (rows, columns)).astype(np.float64)
    first, which = distinct_columns(table)
    kinds, places, inverse = np.unique(table, axis=1, return_index=True, return_inverse=True)
    assert first.tolist() == places.tolist()
    assert which.tolist() == inverse.ravel().tolist()
    assert (table[:, first] == kinds).all()


@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from([(), (1,), (4,), (3, 1), (3, 4)]), min_size=1, max_size=4))
def test_rows_count_as_if_they_were_spread_out(seed: int, shapes: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(seed)
    rows = [random.integers(0, 3, shape).astype(np.float64) for shape in shapes]
    kinds, which = distinct_together(rows)
    spread = np.broadcast_arrays(*rows)
    assert which.shape == spread[0].shape
    for kind, row in zip(kinds, spread, strict=True):
        assert (kind[which] == row).all()
    flat = np.stack([row.ravel() for row in spread])
    assert np.stack(kinds).tolist() == np.unique(flat, axis=1).tolist()
