"""The search for the best deployment under limits of latency: every layout, precision, size of chunks and batch, and pools.

A candidate is a layout with a precision, a budget of tokens a step and, where a draft may speculate, a window of proposed tokens
(none among them). It has two bounds: that of single resources
(`halley.serving.bounds`), and that of its steps for any order and batching of requests (`halley.serving.step_bounds`). Candidates
are costed in the order of the first, unless the second is no better than what was found, until no first bound is better. So every
candidate is costed or proven worse.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from halley.answer import Answerable, Certificate, Status
from halley.errors import Fault, HalleyError, Infeasible
from halley.serving.bounds import prompt_bound, throughput_bounds
from halley.serving.deployment import Deployment, Load, ReachedRates
from halley.serving.plans.candidates import (
    CandidateBounds,
    OperatingPoint,
    SharedSteps,
    deployments,
    pareto,
    points,
)
from halley.serving.plans.pool_bounds import pools_bound
from halley.serving.plans.pools import Pools, best_pools
from halley.serving.plans.problem import (
    ServingObjective,
    ServingProblem,
    objective_cost,
    rate_to_beat,
    replicas_for,
)
from halley.serving.served import Served, served
from halley.units import counted

LEFT_OUT = (
    "engines with different layouts, other than a pool for prompts and one for decoding",
    "batches between those tried (four to an octave, and the largest that keeps the limits)",
    "placement of ranks other than tensor-parallel innermost",
)
SPECULATION_LEFT_OUT = "speculation with trees of tokens, or with a draft on other chips"
"""The same where a draft may speculate."""


@dataclass(frozen=True, eq=False, repr=False)
class ServingPlan(Answerable):
    """The best deployment: ``served`` with prompts and decoding together, ``pools`` where they are better apart. Where only pools
    keep the limits, ``served`` is the deployment that exceeds them least (`together` is false). ``front``: no
    point of it is better in both tokens per second and user and per chip. ``bound`` [1/s]: most requests that any schedule on
    any candidate serves, ``bound_why``. ``chips``: needed for the rate, with that objective."""

    problem: ServingProblem
    best: OperatingPoint
    served: Served
    pools: Pools | None
    front: tuple[tuple[OperatingPoint, Deployment], ...]
    bound: float
    bound_why: str
    certificate: Certificate
    chips: int
    candidates: int

    @property
    def together(self) -> bool:
        """Whether a deployment with prompts and decoding together keeps the limits."""
        return self.best.ttft <= self.problem.limits.ttft and self.best.tpot <= self.problem.limits.tpot


def search(problem: ServingProblem, tick: Callable[[str, float], None] | None = None) -> ServingPlan:
    """The deployment that serves most requests under the limits, or that serves the rate asked for on the fewest chips, proven
    against all others of the space.

    Raises Infeasible: nothing fits, no deployment keeps the limits, or none serves the rate (the message names the nearest).
    """
    began = time.perf_counter()
    steps = SharedSteps(problem)
    made = deployments(problem, steps)
    found = _Search(problem, made, steps)
    found.cost_candidates(tick)
    split = problem.pools and problem.system.chips > 1 and problem.lengths.output > 1
    pools = best_pools(problem, made, found.cost) if split else None
    best, answer = _answer(found, pools)
    cost, bound, why = _least_cost(found, split)
    certificate = _certificate(found, pools.chips if pools else answer.deployment.chips, pools.rate if pools else best.rate, cost)
    certificate = replace(certificate, seconds=time.perf_counter() - began)
    front = tuple((point, made[point.candidate]) for point in _held_front(problem, made, found.points))
    chips = pools.chips if pools else answer.deployment.chips
    return ServingPlan(problem, best, answer, pools, front, bound, why, certificate, chips, len(made))


class _Search:
    """The candidates ``made``, their ``bounds`` [1/s] with reasons, and what was found: the ``best`` point and its ``cost``, all
    ``points`` that keep the limits, the ``nearest`` that does not, how many candidates were ``costed``."""

    def __init__(self, problem: ServingProblem, made: Sequence[Deployment], steps: SharedSteps) -> None:
        self.problem, self.made = problem, made
        rates = {model: each.rates for model, each in {each.model: each for each in made}.items()}  # the same for all layouts
        self.bounds = [_resource_bound(problem, each, rates[each.model]) for each in made]
        self.by_steps = CandidateBounds(problem, made, steps)
        self.best: OperatingPoint | None = None
        self.cost = math.inf
        self.points: list[OperatingPoint] = []
        self.nearest: tuple[float, OperatingPoint] | None = None
        self.costed = 0

    def floor(self, place: int) -> tuple[float, float]:
        """Least cost of a candidate, and the negative of its bound."""
        rate = self.bounds[place][0]
        return objective_cost(self.problem, self.made[place], rate), -rate

    def pruned(self, place: int) -> bool:
        """Whether a candidate costs no less than what was found."""
        return self.best is not None and self.floor(place)[0] >= self.cost and not self.problem.front

    def cost_candidates(self, tick: Callable[[str, float], None] | None) -> None:
        """Costs candidates in the order of their bounds, until no bound is better."""
        order = sorted(range(len(self.made)), key=self._rank)
        for done, place in enumerate(order):
            if self.pruned(place) or (self.floor(place)[0] == math.inf and not self.problem.front):
                break
            if tick is not None:
                tick("deployments", done / len(order))
            own = self.made[place]
            closer = self.by_steps.together(place, rate_to_beat(self.problem, own, self.cost))
            self.bounds[place] = min(self.bounds[place], (closer, f"steps of {own.layout.text}, in any order and batching"))
            if not self.pruned(place):
                self._cost(place)

    def _rank(self, place: int) -> tuple[float, bool, float]:
        """The order in which candidates are costed: of those that may cost equally little, such without a draft first."""
        cost, rate = self.floor(place)
        return cost, self.made[place].speculation is not None, rate

    def _cost(self, place: int) -> None:
        """Costs every batch of a candidate."""
        problem, made = self.problem, self.made
        limits, own = problem.limits, made[place]
        self.costed += 1
        for point in points(own, place, problem, self.bounds[place][0]):
            excess = max(point.ttft / limits.ttft, point.tpot / limits.tpot)
            if excess <= 1:
                self.points.append(point)
                if not _better(problem, own, point, self.best, self.cost):
                    continue
                point = _held(problem, made, point)
                if point.ttft <= limits.ttft and _better(problem, own, point, self.best, self.cost):
                    self.best, self.cost = point, objective_cost(problem, own, point.rate)
            elif self.nearest is None or excess < self.nearest[0]:
                self.nearest = excess, point


def _resource_bound(problem: ServingProblem, deployment: Deployment, rates: ReachedRates) -> tuple[float, str]:
    """Most requests per second by single resources under the limits, and why."""
    slow = prompt_bound(deployment, problem.lengths, rates)
    if slow > problem.limits.ttft:
        return 0.0, f"a prompt alone takes {slow:.3g} s"
    least = throughput_bounds(deployment, problem.lengths, tpot=problem.limits.tpot, rates=rates)[0]
    return least.rate, f"{least.name}: {least.why}"


def _answer(found: _Search, pools: Pools | None) -> tuple[OperatingPoint, Served]:
    """The best deployment with prompts and decoding together, or the one that is shown beside ``pools``.

    Raises Infeasible: nothing keeps the limits, or serves the rate."""
    problem, made, best = found.problem, found.made, found.best
    if best is None and problem.objective is ServingObjective.CHIPS:
        return _most(problem, pools)
    if best is None:
        best = _nearest(problem, made, found.nearest)
        if pools is None:
            raise _unreached(problem, made, best)
    return best, _served(problem, made[best.candidate], best, found.bounds[best.candidate][0])


def _least_cost(found: _Search, split: bool) -> tuple[float, float, str]:
    """The least cost of all candidates, and of pools where the chips may be ``split``; the requests per second of that bound, and
    why."""
    place = min(range(len(found.made)), key=found.floor)
    cost, (bound, why) = found.floor(place)[0], found.bounds[place]
    if split:
        apart = pools_bound(found.problem, found.made, found.by_steps)
        if apart.cost < cost:
            return apart.cost, apart.rate, apart.why
    return cost, bound, why


def _certificate(found: _Search, chips: int, rate: float, cost: float) -> Certificate:
    """The certificate of ``chips`` that serve a ``rate`` [1/s] where all candidates cost at least ``cost``: in chips, or in chip
    seconds an output token."""
    problem, made = found.problem, found.made
    value, lower, unit = float(chips), cost, "chips"
    if problem.objective is ServingObjective.THROUGHPUT:
        tokens = problem.system.chips / problem.lengths.output
        value, lower, unit = tokens / rate, tokens / -cost, "s"
    others = len(made) - found.costed
    closed = f"{counted(found.costed, 'deployment')} costed"
    closed += f"; the bounds of the other {others:,} are no better than what was found" if others else ": all that fit"
    sizes = {"layouts": len({d.layout for d in made}), "precisions": len(problem.models), "token budgets": len(problem.budgets)}
    left_out = LEFT_OUT if problem.drafts is None else (*LEFT_OUT, SPECULATION_LEFT_OUT)
    if problem.drafts is not None:
        sizes["windows"] = len({0 if d.speculation is None else d.speculation.window for d in made})
    counts = {"bounded": len(made), "costed": found.costed, "points": len(found.points)}
    return Certificate(value, lower, Status.ENUMERATED, unit, sizes, len(made), left_out, counts, 0.0, closed)


def _better(
    problem: ServingProblem, deployment: Deployment, point: OperatingPoint, best: OperatingPoint | None, cost: float
) -> bool:
    """Whether a point costs less than the best one, or the same with more requests per second."""
    value = objective_cost(problem, deployment, point.rate)
    return value < cost or (best is not None and value == cost and point.rate > best.rate)


def _held(problem: ServingProblem, made: Sequence[Deployment], point: OperatingPoint) -> OperatingPoint:
    """The point as `served` has it: held to the bounds with no more users than it has."""
    deployment = made[point.candidate]
    found = served(deployment, Load(problem.lengths, concurrency=point.users * deployment.engines), point.rate)
    return replace(point, ttft=found.state.ttft, rate=found.requests, chip=found.chip)


def _held_front(problem: ServingProblem, made: Sequence[Deployment], every: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """The front of all points as `served` has them. Only points that come to stand on the front are held to their bounds."""
    left, held = list(every), list[OperatingPoint]()
    while True:
        front = pareto(left + held)
        fresh = set(front).difference(held)
        if not fresh:
            return front
        left = [point for point in left if point not in fresh]
        now = [_held(problem, made, point) for point in front if point in fresh]
        held += [point for point in now if point.ttft <= problem.limits.ttft]


def _served(problem: ServingProblem, deployment: Deployment, best: OperatingPoint, most: float) -> Served:
    """The best candidate with its batch, on as many replicas as serve the rate asked for."""
    if problem.objective is ServingObjective.CHIPS:
        copies = replicas_for(problem, best.rate / deployment.replicas, deployment.replicas)
        most *= copies / deployment.replicas
        deployment = replace(deployment, copies=int(copies))
    return served(deployment, Load(problem.lengths, concurrency=best.users * deployment.engines), most)


def _most(problem: ServingProblem, pools: Pools | None) -> tuple[OperatingPoint, Served]:
    """What all chips serve at most together, where that is less than the rate asked for. Raises Infeasible: ``pools`` do not
    serve it either, or nothing keeps the limits."""
    most = search(replace(problem, objective=ServingObjective.THROUGHPUT, rate=0.0, front=False))
    if pools is not None:
        return most.best, most.served
    rate, layout = most.best.rate, most.served.deployment.layout.text
    if most.pools is not None:
        rate, layout = most.pools.rate, f"pools of {most.pools.prompts.text} and {most.pools.decoding.text}"
    chips = problem.system.chips
    where = f"serving of {problem.models[0].shape.name} on {problem.system.name}"
    expected = f"at most {rate:.4g} requests/s, which {counted(chips, 'chip')} serve with {layout}"
    need = f"use about {math.ceil(problem.rate / rate * chips):,} chips, or relax the limits"
    raise Infeasible(Fault(f"{where}, rate", expected, f"{problem.rate:g}", need))


def _nearest(problem: ServingProblem, made: Sequence[Deployment], nearest: tuple[float, OperatingPoint] | None) -> OperatingPoint:
    """The costed point that exceeds the limits least; where no candidate was costed, one with the least prompt time."""
    if nearest is not None:
        return nearest[1]
    place = min(range(len(made)), key=lambda item: prompt_bound(made[item], problem.lengths))
    return next(points(made[place], place, problem, math.inf))


def _unreached(problem: ServingProblem, made: Sequence[Deployment], point: OperatingPoint) -> HalleyError:
    where = f"serving of {problem.models[0].shape.name} on {problem.system.name}"
    limits = problem.limits
    broken = [
        f"{name} at most {limit:.4g} s"
        for name, limit, found in (("TTFT", limits.ttft, point.ttft), ("TPOT", limits.tpot, point.tpot))
        if found > limit
    ]
    layout = made[point.candidate].layout.text
    users = f"{counted(point.users, 'user')} an engine"
    got = f"TTFT {point.ttft:.4g} s and TPOT {point.tpot:.4g} s at the nearest, {layout} with {users}"
    return Infeasible(Fault(where, " and ".join(broken) or "the limits", got, "relax that limit, or use faster or more chips"))
