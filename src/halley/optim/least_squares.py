"""Least squares in a few positive parameters within bounds: damped Gauss-Newton steps on their logarithms.

It takes far fewer evaluations than a pattern search (`halley.optim.descent`), for residuals that are mostly smooth. It uses no
random numbers: equal measurements give equal parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PROBE = 1e-3
"""Step of a difference quotient, as the logarithm of a factor."""
LONGEST_STEP, SHORTEST_STEP = 1.0, 1e-5
"""Longest step of a parameter, and that at which the search ends, as logarithms of factors."""
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e-9, 1e6
LESS_DAMPING, MORE_DAMPING = 0.2, 4.0
"""Factors of the damping after a step that helped, and after one that did not."""
MAX_STEPS = 60
"""Most steps of one minimisation."""


def least_squares(
    residuals: Callable[[Sequence[float]], Sequence[float]], start: Sequence[float], bounds: Sequence[tuple[float, float]]
) -> tuple[tuple[float, ...], float]:
    """Parameters that locally minimise the root mean square of the residuals, and that.

    ``start`` and ``bounds`` (lower, upper) are above 0. A parameter without effect on the residuals keeps its start. Source:
    Levenberg, Q. Appl. Math. 2, 1944; Marquardt, J. SIAM 11, 1963. Parameters on a bound towards which the gradient points are
    left there.

    >>> found, least = least_squares(lambda x: [x[0] * x[1] - 6, x[0] - 3], [1.0, 1.0], [(0.1, 9.0), (0.1, 9.0)])
    >>> [round(value, 4) for value in found]
    [3.0, 2.0]
    """
    low, high = np.log(np.array(bounds, np.float64)).T

    def at(place: Floats) -> Floats:
        return np.array(residuals(np.exp(place).tolist()), np.float64)

    here = np.clip(np.log(np.array(start, np.float64)), low, high)
    left, damping = at(here), FIRST_DAMPING
    for _ in range(MAX_STEPS):
        slopes = _slopes(at, here, left, high)
        gradient = slopes.T @ left
        free = ~(((here <= low) & (gradient > 0)) | ((here >= high) & (gradient < 0))) & (np.abs(slopes).max(axis=0) > 0)
        if not free.any():
            break
        moved = False
        while damping <= MOST_DAMPING:
            step = np.zeros(len(here))
            squares = slopes[:, free].T @ slopes[:, free]
            step[free] = np.linalg.lstsq(squares + damping * np.diag(np.diag(squares)), -gradient[free], rcond=None)[0]
            there = np.clip(here + np.clip(step, -LONGEST_STEP, LONGEST_STEP), low, high)
            found = at(there)
            if found @ found < left @ left:
                moved = bool(np.abs(there - here).max() > SHORTEST_STEP)
                here, left, damping = there, found, max(damping * LESS_DAMPING, LEAST_DAMPING)
                break
            damping *= MORE_DAMPING
        if not moved:
            break
    return tuple(np.exp(here).tolist()), math.sqrt(float(left @ left) / len(left))


def _slopes(at: Callable[[Floats], Floats], here: Floats, left: Floats, high: Floats) -> Floats:
    """[residuals, parameters] difference quotients, towards the inside at an upper bound."""
    columns = []
    for number in range(len(here)):
        probe = -PROBE if here[number] + PROBE > high[number] else PROBE
        there = here.copy()
        there[number] += probe
        columns.append((at(there) - left) / probe)
    return np.stack(columns, axis=1)
