"""Minimises a function of a few positive parameters: a pattern search on their logarithms.

Models of times are made of maxima, minima and roundings. Errors of fits to them have kinks and plateaus, where gradients
mislead. The search multiplies one parameter at a time by a factor. Steps that help become longer, others shorter, until all are
short. It uses no random numbers: equal measurements give equal parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

FIRST_LOG_STEP, SHORTEST_LOG_STEP = 0.3, 1e-3
"""First and shortest step, as logarithms of factors."""
STEP_GROWTH, STEP_SHRINKAGE = 1.5, 0.5
MAX_ROUNDS = 400
"""Largest number of rounds over all parameters in one search."""
MAX_RESTARTS, LEAST_GAIN_OF_RESTART = 8, 1e-4
"""Largest number of searches, each from the end of the last. The search ends after one that gained less than
`LEAST_GAIN_OF_RESTART`."""


def descend(
    loss: Callable[[Sequence[float]], float], start: Sequence[float], bounds: Sequence[tuple[float, float]]
) -> tuple[tuple[float, ...], float]:
    """Parameters that locally minimise the loss along every parameter, and the loss.

    ``start`` and ``bounds`` (lower, upper) are above 0. A parameter without effect on the loss keeps its start. Source: Hooke
    and Jeeves, "Direct search" solution of numerical and statistical problems, J. ACM 8, 1961.

    >>> found, least = descend(lambda x: abs(x[0] - 3) + abs(x[1] - 5), [1.0, 1.0], [(0.1, 9.0), (0.1, 2.0)])
    >>> [round(value, 2) for value in found]
    [3.0, 2.0]
    """
    here = [min(max(value, low), high) for value, (low, high) in zip(start, bounds, strict=True)]
    least = loss(here)
    for _ in range(MAX_RESTARTS):
        before = least
        here, least = _pattern_search(loss, here, least, bounds)
        if before - least < LEAST_GAIN_OF_RESTART:
            break
    return tuple(here), least


def _pattern_search(
    loss: Callable[[Sequence[float]], float], here: list[float], least: float, bounds: Sequence[tuple[float, float]]
) -> tuple[list[float], float]:
    """One search, from long steps to short ones."""
    steps = [FIRST_LOG_STEP] * len(here)
    for _ in range(MAX_ROUNDS):
        if max(steps, default=0.0) <= SHORTEST_LOG_STEP:
            break
        for index, (low, high) in enumerate(bounds):
            for step in (steps[index], -steps[index]):
                moved = [*here[:index], min(max(here[index] * math.exp(step), low), high), *here[index + 1 :]]
                found = loss(moved) if moved != here else math.inf
                if found < least - 1e-12:
                    here, least = moved, found
                    steps[index] *= STEP_GROWTH
                    break
            else:
                steps[index] *= STEP_SHRINKAGE
    return here, least
