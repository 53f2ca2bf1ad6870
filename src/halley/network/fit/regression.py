"""Small robust regressions: coefficients that are not negative, errors that are relative.

For a handful of unknowns every set of active coefficients can be tried: the answer is exact, with no iteration to stop short.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TOLERANCE = 0.03
"""Relative error beyond which a row counts linearly, not squared: about the noise of a repeated measurement."""
ROUNDS = 8
"""Reweightings."""
_RIDGE = 1e-9  # of a unit diagonal: keeps the systems of collinear columns solvable


def robust_fit(columns: Array, values: Array, prior: Array | None = None, rounds: int = ROUNDS) -> Array:
    """Coefficients x >= 0 that make ``columns @ x`` close to ``values`` by Huber's loss of the relative error.

    ``columns`` [rows, unknowns]; ``values`` [rows], all above 0; ``prior`` [more rows, unknowns]: combinations of unknowns that
    are wanted at 0, in units of relative error. Source: Huber, Robust Statistics, 1981, by reweighted least squares.

    >>> sizes = np.array([1.0, 2.0, 4.0, 8.0])
    >>> noisy = np.array([5.0, 7.0, 11.0, 90.0])  # 3 + 2 x, and a spike
    >>> robust_fit(np.stack([np.ones(4), sizes], axis=1), noisy, rounds=60).round(1).tolist()
    [3.0, 2.0]
    """
    relative, ones = columns / values[:, None], np.ones(len(values))
    more = np.zeros((0, columns.shape[1])) if prior is None else prior
    target = np.concatenate([ones, np.zeros(len(more))])
    weights = ones
    for _ in range(rounds):
        scale = np.concatenate([np.sqrt(weights), np.ones(len(more))])
        found = _nonnegative(np.concatenate([relative, more]) * scale[:, None], target * scale)
        weights = np.minimum(1.0, TOLERANCE / np.maximum(np.abs(relative @ found - 1), 1e-12))
    return found


def _nonnegative(matrix: Array, target: Array) -> Array:
    """argmin |matrix x - target| over x >= 0, by trying every set of unknowns that may be above 0."""
    lengths = np.linalg.norm(matrix, axis=0)
    lengths[lengths == 0] = 1.0
    scaled = matrix / lengths
    gram, moment, sets = scaled.T @ scaled, scaled.T @ target, _subsets(matrix.shape[1])
    inside = sets[:, :, None] * sets[:, None, :]
    eye = np.eye(matrix.shape[1])
    systems = inside * gram + (1 - sets)[:, :, None] * eye + _RIDGE * eye
    found = np.linalg.solve(systems, (sets * moment)[:, :, None])[:, :, 0]
    legal = (found >= -1e-12).all(axis=1)
    found = np.maximum(found, 0.0)
    losses = np.einsum("si,ij,sj->s", found, gram, found) - 2 * found @ moment
    best: Array = found[int(np.argmin(np.where(legal, losses, np.inf)))] / lengths
    return best


@cache
def _subsets(unknowns: int) -> Array:
    """[sets, unknowns] of 0 and 1; none at all is among them, so that one set is always legal."""
    return np.array(list(product((0.0, 1.0), repeat=unknowns)))
