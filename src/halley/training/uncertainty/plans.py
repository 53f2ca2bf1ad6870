"""How certain the time of a plan is, and its rank among other plans, given the errors of predictions against measurements.

The time of a plan follows from the times of kernels with their host, of collectives on each axis of the network, and of
transfers to the host's memory. Each of the three has a mean error on measurements that no fit had seen. An error is taken to be a
factor on all times of its kind, the same for all plans, with a normal logarithm. To first order, the logarithm of the plan's time
is then normal as well: its variance is the sum of the squares of the elasticities (the change of the plan's time in per cent, for
one per cent of the kind) times the deviations. The elasticities come from costing the plan again on slower and on faster links;
those of kernels are the rest, because all times together scale the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, islice
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import NDArray

from halley.formulas.uncertainty import deviation
from halley.ir.system import Host, System
from halley.sharding.decisions import decisions_of
from halley.training.plan import Plan, PlanCost, TrainingProblem, TrainingResult
from halley.training.search.decided import decided_cost
from halley.training.uncertainty.changed import scaled, scaled_axis, with_system

Floats = NDArray[np.float64]

COVERAGE = 0.8
"""Chance with which a measured time is to lie in the interval."""

QUANTILE = NormalDist().inv_cdf(0.5 + COVERAGE / 2)
"""Half of the interval of a normal number, in standard deviations."""

UNMEASURED_ERROR = 0.17
"""Mean relative error of collectives where no library was measured: that of exchanges on numbers of ranks that no fit had seen,
the largest of all held-out errors of collectives (``halley validate collectives``)."""

COMPARED = 3
"""Alternatives with which the best plan is compared: each costs as much time as some ten plans."""

DRAWS = 1_000
"""Drawn combinations of errors."""

KERNELS, COLLECTIVES, HOST_LINK = "kernels and their host", "collectives and transfers on", "link to the host's memory"


@dataclass(frozen=True, slots=True)
class ErrorSource:
    """Times of one kind: its ``name``, and the mean relative ``error`` of their predictions; ``assumed``: nothing like them was
    measured. ``elasticity``: relative change of the best plan's time over that of these times."""

    name: str
    error: float
    assumed: bool
    elasticity: float


@dataclass(frozen=True, slots=True)
class PlanUncertainty:
    """The interval from ``low`` to ``high`` [s] of the time of the best plan, in which a measurement lies with a chance of 80 %,
    if nothing is wrong but what the ``sources`` count.

    ``fastest``: by plan, the best one first, the share of draws of the errors in which it is the fastest of these. ``regrets``:
    by plan, by how much it is slower than the fastest of them, on average over the draws.
    """

    low: float
    high: float
    sources: tuple[ErrorSource, ...]
    fastest: tuple[float, ...]
    regrets: tuple[float, ...]

    @property
    def robust(self) -> int:
        """The plan with the least regret: 0 is the best one."""
        return min(range(len(self.regrets)), key=lambda place: self.regrets[place])


def uncertainty(result: TrainingResult, others: int = COMPARED) -> PlanUncertainty | None:
    """The interval of the best plan's time, and its rank among the first ``others`` alternatives, by the errors of predictions.

    >>> import halley
    >>> found = uncertainty(halley.plan("llama-68m", "8 x h100, nvlink 8", batch=64))
    >>> found.low < found.high, found.sources[0].name, found.sources[0].error
    (True, 'kernels and their host', 0.036)

    None where the software that launches the kernels was never held against measured iterations, and for state spaces, of which
    no iteration was measured: then no error is known.
    """
    problem, software = result.problem, result.problem.software
    if software is None or software.error is None or problem.searched is not None or problem.shape.state_space is not None:
        return None
    plans: list[tuple[Plan, PlanCost]] = [(result.plan, result.cost)]
    plans += [(item.plan, item.cost) for item in result.alternatives[:others]]
    links = list(_links(problem, any(plan.offload for plan, _ in plans)))
    own = deviation(software.error) if software.reach is None else software.reach / QUANTILE
    deviations = np.array([own, *(deviation(link.error) for link in links)])
    found = np.array([_elasticities(plan, cost, links) for plan, cost in plans])
    spread = math.sqrt(float(((found[0].mean(axis=-1) * deviations) ** 2).sum()))
    reach = QUANTILE * spread
    names = [(KERNELS, software.error, False), *((link.name, link.error, link.assumed) for link in links)]
    sources = tuple(ErrorSource(*name, float(pair.mean())) for name, pair in zip(names, found[0], strict=True))
    logarithms = np.log([cost.time for _, cost in plans])[:, None] + _changes(found, deviations)
    slower = np.exp(logarithms - logarithms.min(axis=0))
    fastest = np.bincount(logarithms.argmin(axis=0), minlength=len(plans)) / DRAWS
    regrets = slower.mean(axis=1) - 1
    time = result.cost.time
    low, high = time * math.exp(-reach), time * math.exp(reach)
    return PlanUncertainty(low, high, sources, tuple(fastest.tolist()), tuple(regrets.tolist()))


def interval_reach(logarithms: Sequence[float]) -> float:
    """How far an interval of 80 % goes from a prediction, both ways, in its logarithm; ``logarithms``: of measured over predicted
    time of other cases. A further case lies inside with a chance of at least 80 %, if there are four cases or more.
    Source: split conformal prediction (Lei et al., J. Am. Stat. Assoc. 113, 2018).

    >>> interval_reach([0.01, -0.02, 0.03, -0.04, 0.05])
    0.05
    """
    sizes = sorted(map(abs, logarithms))
    return sizes[min(math.ceil((len(sizes) + 1) * COVERAGE), len(sizes)) - 1]


@dataclass(frozen=True, slots=True)
class _Link:
    """Times of one kind, other than those of kernels: ``name`` and ``error`` as in `ErrorSource`; the problem where they are
    longer, ``slower``, and shorter, ``faster``, by one deviation."""

    name: str
    error: float
    assumed: bool
    slower: TrainingProblem
    faster: TrainingProblem


def _links(problem: TrainingProblem, offload: bool) -> Iterator[_Link]:
    """The axes of the network; with ``offload``, the link to the host's memory."""
    system, host = problem.system, problem.system.host
    for place, axis in enumerate(system.axes):
        if axis.size > 1:
            library = problem.libraries.get(axis.name)
            series = [item.held_out for fit in library.fits for item in fit.series] if library else []
            measured = [error for error in series if error is not None]
            error = fmean(measured) if measured else UNMEASURED_ERROR
            factor = math.exp(deviation(error))
            slower, faster = (with_system(problem, _slower_axis(system, place, each)) for each in (factor, 1 / factor))
            yield _Link(f"{COLLECTIVES} {axis.name}", error, not measured, slower, faster)
    if offload and host is not None:
        factor = math.exp(deviation(UNMEASURED_ERROR))
        slower, faster = (with_system(problem, replace(system, host=_slower_host(host, each))) for each in (factor, 1 / factor))
        yield _Link(HOST_LINK, UNMEASURED_ERROR, True, slower, faster)


def _slower_axis(system: System, place: int, factor: float) -> System:
    """The system with times on an axis longer by a factor."""
    axis = scaled_axis(scaled_axis(system.axes[place], "bandwidth", 1 / factor), "latency", factor)
    return replace(system, axes=(*system.axes[:place], axis, *system.axes[place + 1 :]))


def _slower_host(host: Host, factor: float) -> Host:
    return replace(host, bandwidth=host.bandwidth / factor, link=scaled(host.link, ("bandwidth",), 1 / factor))


def _elasticities(plan: Plan, cost: PlanCost, links: Sequence[_Link]) -> list[tuple[float, float]]:
    """By kind of times, kernels first: change of the logarithm of the plan's time over that of the times, where they are shorter,
    and longer, by one deviation."""
    parts = [decisions_of(item) for item in cost.shardings.values()]
    found = list[tuple[float, float]]()
    for link in links:
        if link.name == HOST_LINK and not plan.offload:
            found.append((0.0, 0.0))
            continue
        shorter, longer = (decided_cost(problem, plan, parts).time for problem in (link.faster, link.slower))
        change = float(deviation(link.error))
        found.append((math.log(cost.time / shorter) / change, math.log(longer / cost.time) / change))
    rest = 1 - math.fsum(fmean(pair) for pair in found)
    return [(rest, rest), *found]


def _changes(elasticities: Floats, deviations: Floats) -> Floats:
    """[plans, draws] changes of the logarithms of times of plans. ``elasticities`` [plans, kinds, (shorter, longer)]."""
    normal = _draws(len(deviations))
    shorter, longer = np.minimum(normal, 0.0), np.maximum(normal, 0.0)
    own = elasticities * deviations[:, None]
    return np.asarray(own[:, :, 0] @ shorter + own[:, :, 1] @ longer)


@cache
def _draws(kinds: int) -> Floats:
    """[kinds, draws] normal numbers, evenly spread: the points of Halton's sequence in a cube, by the inverse of the normal
    distribution. Source: Halton, Numer. Math. 2, 1960."""
    normal = NormalDist()
    bases = islice((base for base in count(2) if all(base % other for other in range(2, base))), kinds)
    return np.array([[normal.inv_cdf(_radical_inverse(place, base)) for place in range(1, DRAWS + 1)] for base in bases])


def _radical_inverse(number: int, base: int) -> float:
    """The digits of a number in a base, mirrored at the point.

    >>> _radical_inverse(6, 2)
    0.375
    """
    value, digit = 0.0, 1.0
    while number:
        digit /= base
        number, rest = divmod(number, base)
        value += digit * rest
    return value
