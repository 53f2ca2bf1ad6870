"""Closes the last of a plan's gap: searches the shardings that take the least along the plan's critical paths.

`halley.training.search.proof` bounds a path by the least time of each part. But a path may contain a part's forward pass and
not its backward pass, which waits for the network anyway. Then other shardings may be better than those of least total time.
The time of a path is a sum over passes, so the sharding search finds its minimum over all shardings that fit:

    max over paths p of  min over shardings s of p(s)  <=  T(best sharding)  <=  T(s)  of each s that was met

A mean of two paths is also a valid bound. The next mean is the one with the largest value for the shardings found so far
(Kelley's cutting planes on the Lagrangian dual, as in `halley.optim.constrained`).

A path contains collectives of parameters, to gather them and to reduce their gradients, which are bounded by the least
parameters. A sharding with more parameters of a part than that may be faster along such a path than it really is. Where that
happens, the shardings are divided in two cases: those with clearly fewer parameters of that part on a chip, and all others,
under which collectives of parameters take longer, and so do all paths. Each case has a bound of its own; the smaller one is a
bound of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.errors import Infeasible
from halley.optim.branch_and_bound import LastFirst, branch_and_bound
from halley.training.part_costs import ModelCosts
from halley.training.search.floors import PlanFloors
from halley.training.search.items import Timed
from halley.training.search.proof import MIXTURES, CriticalPath, PlanProof
from halley.training.sharded_model import Passes

Floats = NDArray[np.float64]

MAX_ROUNDS = 6
"""Largest number of searches for shardings."""

RELATIVE_ROUNDING = 1e-9
"""Relative difference of times that counts as rounding."""

FEWER_PARAMETERS_RATIO = 0.97
"""Boundary between the two cases, relative to the parameters of a sharding: it separates splits of a part's large weights, but
not of its vectors."""

MAX_CASES = 7
"""Largest number of cases."""


class TightenedBound(NamedTuple):
    """Lower bound of a plan's time under any sharding, ``bound`` [s]; the best sharding found takes ``time`` [s], with
    ``costs``."""

    bound: float
    time: float
    costs: ModelCosts


def proof_of(floors: PlanFloors, timed: Timed) -> PlanProof:
    """The bounds of a plan of a space."""
    space, floor = floors.space, floors.passes(timed.layout, floors.variant_of[timed.option])
    communication = floors.communications[space.assignment[timed.layout]]
    return PlanProof(space.problem, space.plan(timed.layout, timed.option), communication, timed.costs, floor, timed.bound)


def bound_of(floors: PlanFloors, timed: Timed, target: float, known: dict[object, tuple[float, float]]) -> float:
    """Lower bound of a plan [s] under any shardings that fit, improved until it reaches ``target`` [s]; ``known``: targets and
    bounds of earlier plans."""
    space, costs = floors.space, timed.costs
    communication = floors.communications[space.assignment[timed.layout]]
    # plans that only differ in the names of equal axes share a proof
    network = communication.model_key, communication.data_key, communication.pipeline_key
    key = network, space.pipeline(timed.layout), timed.option, costs, timed.bound
    asked, found = known.get(key, (-math.inf, -math.inf))
    if found < target and asked < target:
        found = floors.single_stage_bound(timed.layout, timed.option, costs.least, costs.counts, timed.bound)
        found = found if found >= target else max(found, proof_of(floors, timed).least(target))
        known[key] = target, found
    return found


class ShardingCase(NamedTuple):
    """Shardings under which a chip has from ``least`` to ``most`` parameters of each part; those ``met`` by the search."""

    least: Floats
    most: Floats
    met: list[ModelCosts]


def tightened_bound(
    proof: PlanProof,
    time: float,
    target: float,
    solve: Callable[[Passes, Floats], tuple[float, ModelCosts] | None],
    timed: Callable[[ModelCosts], float],
) -> TightenedBound:
    """Improves the bound of a plan that takes ``time`` [s] (inf if it does not fit) until it reaches ``target`` [s], or the
    time.

    ``solve``: a lower bound of so many passes of each part [s] with at most so many parameters of each [parts] on a chip, and
    the costs under the shardings that attain it; None where that is not known. ``timed`` [s]: the plan's time with these costs.
    """
    parameters = proof.floors.parameters
    best, bound, looked = TightenedBound(math.inf, time, proof.costs), math.inf, 0
    left = LastFirst([ShardingCase(parameters, np.full(len(parameters), math.inf), [proof.costs])])

    def branch(case: ShardingCase) -> Sequence[ShardingCase]:
        nonlocal best, bound, looked
        looked += 1
        floors = proof.floors._replace(parameters=case.least)
        found = _along_paths(replace(proof, floors=floors), best, target, case, solve, timed)
        if found.time < best.time:
            known = proof.costs
            costs = replace(found.costs, least=known.least, by_boundary=known.by_boundary, bound=known.bound)
            best = TightenedBound(math.inf, found.time, costs)
        short = found.bound < min(target, best.time) * (1 - RELATIVE_ROUNDING)
        cases = _cases(case) if short and looked + len(left) < MAX_CASES else []
        if not cases:
            bound = min(bound, found.bound)
        return cases

    branch_and_bound(left, branch)
    return best._replace(bound=bound)


def _along_paths(
    proof: PlanProof,
    best: TightenedBound,
    target: float,
    case: ShardingCase,
    solve: Callable[[Passes, Floats], tuple[float, ModelCosts] | None],
    timed: Callable[[ModelCosts], float],
) -> TightenedBound:
    """The same for the shardings of a case, with the ``proof``'s parameters; shardings found are added to the case. ``best``:
    the best result so far."""
    bound, paths = -math.inf, list[CriticalPath]()
    for _ in range(MAX_ROUNDS):
        path = proof.path(*_passes(case.met[-1]))
        if path is None:
            break
        paths.append(path)
        along, most = _mean(paths, case.met)
        if most <= bound * (1 + RELATIVE_ROUNDING):
            break
        try:
            found = solve((along.forwards, along.backwards), case.most)
        except Infeasible:
            return best._replace(bound=math.inf)
        if found is None:
            break
        bound, taken = max(bound, found[0] + along.rest), timed(found[1])
        case.met.append(found[1])
        if taken < best.time:
            best = TightenedBound(bound, taken, found[1])
        if bound >= min(target, best.time) * (1 - RELATIVE_ROUNDING):
            break
    return best._replace(bound=bound)


def _cases(case: ShardingCase) -> list[ShardingCase]:
    """Divides a case in two, by the part of which the latest sharding has most parameters relative to the case's least."""
    for costs in reversed(case.met):
        has = _parameters(costs)
        part = int(np.argmax(has / case.least))
        if case.least[part] < has[part] * FEWER_PARAMETERS_RATIO and has[part] <= case.most[part]:
            this, fewer = np.arange(len(has)) == part, has[part] * FEWER_PARAMETERS_RATIO
            fit = [each for each in case.met if _parameters(each)[part] <= fewer]
            above = [each for each in case.met if _parameters(each)[part] > fewer]
            more = case._replace(least=np.where(this, fewer, case.least), met=above)
            return [case._replace(most=np.where(this, fewer, case.most), met=fit or above[:1]), more]
    return []


def _parameters(costs: ModelCosts) -> Floats:
    """[parts] of a chip."""
    return np.array([part.parameters for part in costs.parts], np.float64)


def _passes(costs: ModelCosts) -> Passes:
    """[parts] times of forward and backward passes [s]."""
    times = [(part.forward, part.recompute + part.backward) for part in costs.parts]
    ahead, behind = np.array(times).T
    return ahead, behind


def _mean(paths: list[CriticalPath], met: list[ModelCosts]) -> tuple[CriticalPath, float]:
    """The mean of two paths with the largest minimum over the shardings found, and that minimum [s]."""
    passes = [_passes(each) for each in met]
    values = np.array([[one.forwards @ ahead + one.backwards @ behind + one.rest for ahead, behind in passes] for one in paths])
    best, found = -math.inf, paths[0]
    for one, other in combinations_with_replacement(range(len(paths)), 2):
        least = (MIXTURES[:, None] * values[one] + (1 - MIXTURES[:, None]) * values[other]).min(axis=1)
        place = int(least.argmax())
        if least[place] > best:
            best, found = float(least[place]), _mixed(paths[one], paths[other], float(MIXTURES[place]))
    return found, best


def _mixed(one: CriticalPath, other: CriticalPath, share: float) -> CriticalPath:
    def mean(first: Floats, second: Floats) -> Floats:
        return np.asarray(share * first + (1 - share) * second)

    rest = share * one.rest + (1 - share) * other.rest
    return CriticalPath(mean(one.forwards, other.forwards), mean(one.backwards, other.backwards), rest)
