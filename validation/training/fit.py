"""Fits of software to measured iterations: the numbers that give the least mean error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from validation.training.compare import batched, iteration
from validation.training.runs import Run

from halley.kernels.software import Software
from halley.optim.descent import descend
from halley.training.fit.calibrate import BOUNDS, with_numbers
from halley.training.part_costs import with_host

SHARES = ("kernels", "attention")


def mean_error(found: Sequence[Run], times: Callable[[Run], float]) -> float:
    """Mean relative error."""
    return sum(abs(times(run) / run.seconds - 1) for run in found) / len(found)


def error_of(found: Sequence[Run], software: Software) -> float:
    """The mean error with this software. Of times of hosts alone the shardings are those without one, so that they are found
    once."""
    if all(getattr(software, name) == 1 for name in SHARES):
        return mean_error(found, lambda run: batched(run, software, lambda part: with_host(part, software)))
    return mean_error(found, lambda run: iteration(run, software))


def fitted(start: Software, names: Sequence[str], found: Sequence[Run]) -> tuple[Software, float]:
    """The software whose numbers of these ``names`` give the least mean error on the runs, and that error; the search starts at
    the numbers of ``start``."""
    first, bounds = [getattr(start, name) for name in names], [BOUNDS[name] for name in names]
    best, least = descend(lambda values: error_of(found, with_numbers(start, names, values)), first, bounds)
    return with_numbers(start, names, best), least
