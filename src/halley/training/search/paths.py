"""The last of a plan's gap: its shardings are looked for again, those that take the least along its longest paths.

`halley.training.search.proof` bounds what a path takes from the least of each part; but a path may have a part's forward pass
and not its backward pass, which waits for the network anyway, and then other shardings may be better than those that take the
least in all. What a path takes is a sum over passes, so that the sharding engine finds its least, among all shardings that fit:

    max over paths p of  min over shardings s of p(s)  <=  T(best sharding)  <=  T(s)  of each s that was met

A mean of two paths is a bound too. The mean that is looked at next is the one that is largest for the shardings met so far
(Kelley's cutting planes on the Lagrangian dual, as in `halley.optim.constrained`).

A path takes what parameters take at least: to gather them, to reduce their gradients. Shardings that keep more of a part than
that are faster along such a path than they are. So where one of them is in the way, there are two cases, which together are all
shardings: those with clearly fewer parameters of that part on a chip than it has, and all others, under which collectives of
parameters take longer, and so do all paths. Each case has a bound of its own, and the lesser is a bound of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.errors import Infeasible
from halley.training.part_costs import ModelCosts
from halley.training.search.floors import Floors
from halley.training.search.items import Timed
from halley.training.search.proof import MIXES, Path, PlanProof
from halley.training.sharded_model import Passes

Floats = NDArray[np.float64]

ROUNDS = 6
"""Times that shardings are looked for at most."""

CLOSE = 1e-9
"""Relative difference of times that is none."""

FEWER = 0.97
"""Where cases are told apart, as a share of the parameters of a sharding: splits of a part's large weights are, and not those of
the vectors beside them."""

CASES = 7
"""Cases that are told apart at most."""


class Closer(NamedTuple):
    """No sharding of a plan takes less than ``bound`` [s]; the best that was met takes ``time`` [s], with ``costs``."""

    bound: float
    time: float
    costs: ModelCosts


def proof_of(floors: Floors, timed: Timed) -> PlanProof:
    """What bounds a plan of a space."""
    space, floor = floors.space, floors.passes(timed.layout, floors.way_of[timed.option])
    communication = floors.communications[space.assignment[timed.layout]]
    return PlanProof(space.problem, space.plan(timed.layout, timed.option), communication, timed.costs, floor, timed.bound)


def bound_of(floors: Floors, timed: Timed, target: float, known: dict[object, tuple[float, float]]) -> float:
    """What a plan takes at least [s], under any shardings that fit, looked for until it reaches ``target`` [s]; ``known``:
    targets and bounds of plans that were looked at."""
    space, costs = floors.space, timed.costs
    communication = floors.communications[space.assignment[timed.layout]]
    # plans that differ in the names of equal axes alone have one proof
    network = communication.model_key, communication.data_key, communication.pipeline_key
    key = network, space.pipeline(timed.layout), timed.option, costs, timed.bound
    asked, found = known.get(key, (-math.inf, -math.inf))
    if found < target and asked < target:
        found = floors.alone(timed.layout, timed.option, costs.least, costs.counts, timed.bound)
        found = found if found >= target else max(found, proof_of(floors, timed).least(target))
        known[key] = target, found
    return found


class Case(NamedTuple):
    """Shardings under which a chip has from ``least`` to ``most`` parameters of each part; shardings that are ``met`` on the
    way."""

    least: Floats
    most: Floats
    met: list[ModelCosts]


def closer(
    proof: PlanProof,
    time: float,
    target: float,
    solve: Callable[[Passes, Floats], tuple[float, ModelCosts] | None],
    timed: Callable[[ModelCosts], float],
) -> Closer:
    """Bounds of a plan that takes ``time`` [s] (inf if it does not fit) until one reaches ``target`` [s], or the time.

    ``solve``: the least of so many passes of each part [s] with at most so many parameters of each [parts] on a chip, and the
    costs under the shardings that take it, None where that is not known; ``timed`` [s]: what the plan takes with these costs.
    """
    parameters = proof.floors.parameters
    best, bound = Closer(math.inf, time, proof.costs), math.inf
    left, looked = [Case(parameters, np.full(len(parameters), math.inf), [proof.costs])], 0
    while left:
        case, looked = left.pop(), looked + 1
        floors = proof.floors._replace(parameters=case.least)
        found = _along_paths(replace(proof, floors=floors), best, target, case, solve, timed)
        if found.time < best.time:
            known = proof.costs
            costs = replace(found.costs, least=known.least, by_boundary=known.by_boundary, bound=known.bound)
            best = Closer(math.inf, found.time, costs)
        short = found.bound < min(target, best.time) * (1 - CLOSE)
        cases = _cases(case) if short and looked + len(left) < CASES else []
        left += cases
        if not cases:
            bound = min(bound, found.bound)
    return best._replace(bound=bound)


def _along_paths(
    proof: PlanProof,
    best: Closer,
    target: float,
    case: Case,
    solve: Callable[[Passes, Floats], tuple[float, ModelCosts] | None],
    timed: Callable[[ModelCosts], float],
) -> Closer:
    """The same for the shardings of a case, whose parameters the ``proof`` has; what is met joins those of the case. ``best``:
    what was found so far."""
    bound, paths = -math.inf, list[Path]()
    for _ in range(ROUNDS):
        path = proof.path(*_passes(case.met[-1]))
        if path is None:
            break
        paths.append(path)
        along, most = _mean(paths, case.met)
        if most <= bound * (1 + CLOSE):
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
            best = Closer(bound, taken, found[1])
        if bound >= min(target, best.time) * (1 - CLOSE):
            break
    return best._replace(bound=bound)


def _cases(case: Case) -> list[Case]:
    """The two cases by the part of which a sharding that was met last keeps most, compared with what is taken for granted."""
    for costs in reversed(case.met):
        has = _parameters(costs)
        part = int(np.argmax(has / case.least))
        if case.least[part] < has[part] * FEWER and has[part] <= case.most[part]:
            this, fewer = np.arange(len(has)) == part, has[part] * FEWER
            fit = [each for each in case.met if _parameters(each)[part] <= fewer]
            above = [each for each in case.met if _parameters(each)[part] > fewer]
            more = case._replace(least=np.where(this, fewer, case.least), met=above)
            return [case._replace(most=np.where(this, fewer, case.most), met=fit or above[:1]), more]
    return []


def _parameters(costs: ModelCosts) -> Floats:
    """[parts] of a chip."""
    return np.array([part.parameters for part in costs.parts], np.float64)


def _passes(costs: ModelCosts) -> Passes:
    """[parts] what forward and backward passes take [s]."""
    times = [(part.forward, part.recompute + part.backward) for part in costs.parts]
    ahead, behind = np.array(times).T
    return ahead, behind


def _mean(paths: list[Path], met: list[ModelCosts]) -> tuple[Path, float]:
    """The mean of two paths that is largest for the shardings that were met, and what it is for the one that has least [s]."""
    passes = [_passes(each) for each in met]
    values = np.array([[one.forwards @ ahead + one.backwards @ behind + one.rest for ahead, behind in passes] for one in paths])
    best, found = -math.inf, paths[0]
    for one, other in combinations_with_replacement(range(len(paths)), 2):
        least = (MIXES[:, None] * values[one] + (1 - MIXES[:, None]) * values[other]).min(axis=1)
        place = int(least.argmax())
        if least[place] > best:
            best, found = float(least[place]), _mixed(paths[one], paths[other], float(MIXES[place]))
    return found, best


def _mixed(one: Path, other: Path, share: float) -> Path:
    def mean(first: Floats, second: Floats) -> Floats:
        return np.asarray(share * first + (1 - share) * second)

    rest = share * one.rest + (1 - share) * other.rest
    return Path(mean(one.forwards, other.forwards), mean(one.backwards, other.backwards), rest)
