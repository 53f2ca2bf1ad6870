"""The least of a function of a few positive parameters: a pattern search on their logarithms.

Kernel times are maxima and minima over tiles, so that their errors have kinks and flat places, where gradients mislead. The
search takes steps of a factor along one parameter at a time, longer where they help, shorter where not, until all are short. It
draws nothing at random: the same measurements give the same parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

FIRST, LAST = 0.3, 1e-3
"""First and shortest step, as logarithms of factors."""
GROWTH, SHRINKAGE = 1.5, 0.5
ROUNDS = 400
"""Most rounds over all parameters, from long steps to short ones."""
RESTARTS, GAIN = 8, 1e-4
"""Most walks, each from where the last one ended; none follows one that gained less."""


def descend(
    loss: Callable[[Sequence[float]], float], start: Sequence[float], bounds: Sequence[tuple[float, float]]
) -> tuple[tuple[float, ...], float]:
    """Parameters of a small loss, and the loss; a local minimum along every parameter.

    ``start`` and ``bounds`` (least, most) are above 0. A parameter that the loss does not see keeps its start. Source: Hooke and
    Jeeves, "Direct search" solution of numerical and statistical problems, J. ACM 8, 1961.

    >>> found, least = descend(lambda x: abs(x[0] - 3) + abs(x[1] - 5), [1.0, 1.0], [(0.1, 9.0), (0.1, 2.0)])
    >>> [round(value, 2) for value in found]
    [3.0, 2.0]
    """
    here = [min(max(value, low), high) for value, (low, high) in zip(start, bounds, strict=True)]
    least = loss(here)
    for _ in range(RESTARTS):
        before = least
        here, least = _walk(loss, here, least, bounds)
        if before - least < GAIN:
            break
    return tuple(here), least


def _walk(
    loss: Callable[[Sequence[float]], float], here: list[float], least: float, bounds: Sequence[tuple[float, float]]
) -> tuple[list[float], float]:
    """From long steps to short ones."""
    steps = [FIRST] * len(here)
    for _ in range(ROUNDS):
        if max(steps, default=0.0) <= LAST:
            break
        for index, (low, high) in enumerate(bounds):
            for step in (steps[index], -steps[index]):
                moved = [*here[:index], min(max(here[index] * math.exp(step), low), high), *here[index + 1 :]]
                found = loss(moved) if moved != here else math.inf
                if found < least - 1e-12:
                    here, least = moved, found
                    steps[index] *= GROWTH
                    break
            else:
                steps[index] *= SHRINKAGE
    return here, least
