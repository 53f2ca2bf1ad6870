"""The search for the best deployment under limits of latency: every layout, precision, size of chunks and batch, and pools.

A candidate is a layout with a precision and a budget of tokens a step. It has two bounds: that of single resources
(`halley.serving.bounds`), and that of its steps for any order and batching of requests (`halley.serving.step_bounds`). Candidates
are costed in the order of the first, unless the second is no better than what was found, until no first bound is better. So every
candidate is costed or proven worse.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from halley.answer import Answerable, Certificate, Status
from halley.errors import BadInput, Fault, HalleyError, Infeasible
from halley.ir.system import System
from halley.kernels.library.times import KernelFits
from halley.kernels.machine import Efficiency
from halley.network.fit.overlay import Overlay
from halley.serving.bounds import prompt_bound, throughput_bounds
from halley.serving.deployment import Deployment, Load, ReachedRates, transfer_time
from halley.serving.layout import ReplicaLayout, ReplicaNetwork, divisors
from halley.serving.memory import serving_memory
from halley.serving.model import ServedModel
from halley.serving.served import Served, served
from halley.serving.software import ServingSoftware
from halley.serving.steady import Lengths, closed_loops, front_end_alone, held_to, prompt_time
from halley.serving.step import StepBatch, StepModel
from halley.serving.step_bounds import StepKinds, engine_bound, most_sequences, request_rows
from halley.units import counted

BUDGETS = (512, 2048, 8192)
"""Tokens of a step that are tried."""
PER_OCTAVE = 4
"""Batches that are tried between a number and its double."""
BATCHES_AT_ONCE = 6
"""Batches of a candidate that are timed together: their steps are looked up in one call."""
LEFT_OUT = (
    "engines with different layouts, other than a pool for prompts and one for decoding",
    "batches between those tried (four to an octave)",
    "placement of ranks other than tensor-parallel innermost",
)
LIMIT_EXCESS_FACTOR = 1.1
"""How far a batch may exceed a limit before larger ones are left out: times grow with the batch but for steps of tiles."""
REPLICAS_ROUNDING = 1e-12
"""Replicas by which rounding may lift a ratio above a whole number."""
BUSY_SHARE_MOST = 0.9
"""Share of the time that chips for prompts work at most: beyond it their queue grows without end."""
RATE_BISECTIONS = 50
"""Halvings of a rate for which the time to first token is at its limit."""


class ServingObjective(StrEnum):
    """What the search makes best."""

    THROUGHPUT = "throughput"
    CHIPS = "chips"


@dataclass(frozen=True, slots=True)
class Limits:
    """Service level: most mean time to first token and per output token [s]."""

    ttft: float = math.inf
    tpot: float = math.inf

    def __post_init__(self) -> None:
        if not (self.ttft > 0 and self.tpot > 0):
            raise BadInput(Fault("--slo", "times above 0", f"ttft {self.ttft:g} s, tpot {self.tpot:g} s"))


@dataclass(frozen=True, eq=False)
class ServingProblem:
    """What is searched. ``models``: one for each precision that may be chosen; ``rate`` [1/s]: with `ServingObjective.CHIPS`, the
    requests that have to be served. ``pools``: whether prompts and decoding may have chips of their own. ``front``: cost all
    candidates, for a front that is whole. ``fits``: measured kernels of the chip."""

    models: tuple[ServedModel, ...]
    system: System
    software: ServingSoftware
    efficiency: Efficiency
    lengths: Lengths
    limits: Limits = Limits()
    libraries: Mapping[str, Overlay] = field(default_factory=dict)
    objective: ServingObjective = ServingObjective.THROUGHPUT
    rate: float = 0.0
    pools: bool = True
    front: bool = False
    budgets: tuple[int, ...] = BUDGETS
    fits: KernelFits | None = None


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A candidate with a batch: output tokens per second and user and chip, times [s], ``users`` per engine."""

    candidate: int
    users: float
    ttft: float
    tpot: float
    rate: float
    user: float
    chip: float


@dataclass(frozen=True, slots=True)
class Pools:
    """Chips for prompts and chips for decoding: layouts and replicas of each, ``rate`` [1/s] of requests, times [s], ``transfer``
    [s] of the cache of a request."""

    prompts: ReplicaLayout
    prompt_replicas: int
    decoding: ReplicaLayout
    decode_replicas: int
    model: ServedModel
    users: float
    rate: float
    ttft: float
    tpot: float
    transfer: float

    @property
    def chips(self) -> int:
        """Chips of both."""
        return self.prompt_replicas * self.prompts.chips + self.decode_replicas * self.decoding.chips


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


def layouts(problem: ServingProblem, model: ServedModel) -> Iterator[ReplicaLayout]:
    """Every layout of a replica that divides the chips, the model's heads, layers and experts."""
    shape = model.shape
    experts = shape.experts.experts if shape.experts else 0
    total = problem.system.chips
    for tp in divisors(total):
        if shape.heads % tp:
            continue
        for pp in divisors(total // tp):
            if pp > shape.layers:
                continue
            for dp in divisors(total // tp // pp) if experts else (1,):
                for ep in divisors(tp * dp) if experts else (1,):
                    if not experts or ep <= experts:
                        yield ReplicaLayout(tp, pp, ep, dp)


def deployments(problem: ServingProblem) -> list[Deployment]:
    """All candidates that fit: their memory holds at least one request."""
    found = []
    where = f"serving of {problem.models[0].shape.name} on {problem.system.name}"
    network = ReplicaNetwork(problem.system, problem.libraries)
    rates: dict[ServedModel, ReachedRates] = {}
    closest = math.inf
    for model in problem.models:
        for layout in layouts(problem, model):
            for budget in problem.budgets:
                software = replace(problem.software, budget=budget)
                memory = serving_memory(model, layout, problem.system, software)
                memory = replace(memory, page=memory.page * layout.pp)
                context = problem.lengths.input + problem.lengths.output
                if memory.capacity_pages < memory.pages(context):
                    closest = min(closest, memory.usable - memory.cache + memory.pages(context) * memory.page)
                    continue
                made = Deployment(
                    model,
                    problem.system,
                    layout,
                    software,
                    problem.efficiency,
                    problem.libraries,
                    fits=problem.fits,
                    network=network,
                )
                try:
                    network.dimensions(layout.tp, 1, False)
                    network.dimensions(layout.stage, 1, False)
                except BadInput:
                    continue  # groups that do not divide the axes
                made.__dict__["engine_memory"] = memory
                made.__dict__["rates"] = rates.setdefault(model, made.rates) if model not in rates else rates[model]
                found.append(made)
    if not found:
        capacity = problem.system.tiers[0].capacity * problem.software.share
        need = f"{closest / 2**30:.1f} GiB on a chip with the layout that needs least"
        remedy = "use more chips, fewer bytes for weights or cache, or shorter requests"
        raise Infeasible(Fault(where, f"at most {capacity / 2**30:.1f} GiB on a chip", need, remedy))
    return found


class _StepBounds:
    """Bounds of candidates from their steps, for each layout and precision once: of all budgets together, for the largest budget
    has all steps of the others and the smallest leaves most memory to the cache."""

    def __init__(self, problem: ServingProblem, made: Sequence[Deployment]) -> None:
        self.problem, self.made = problem, made
        self.rows = request_rows(problem.lengths, problem.limits.tpot)
        self.most: dict[object, float] = {}
        for own in made:
            key = own.model, own.layout
            self.most[key] = max(self.most.get(key, 0.0), most_sequences(own, problem.lengths))
        self.tables: dict[object, StepModel] = {}
        self.kinds: dict[object, dict[bool, StepKinds]] = {}
        self.engines: dict[object, float] = {}

    def together(self, place: int, enough: float) -> float:
        """Most requests per second of a candidate, which gets its tables. ``enough`` [1/s]: lower bounds need not be closer."""
        own = self.made[place]
        key, step = (own.model, own.layout), self._step(own)
        own.__dict__["step"] = step.with_budget(own.software.budget)
        if key not in self.engines:
            kinds = self.kinds.setdefault(key, {})
            asked = step, self.most[key], self.problem.lengths, self.rows
            self.engines[key] = engine_bound(*asked, enough / own.engines, kinds)
            kinds.pop(True, None)  # large, and rarely asked for again
        return self.engines[key] * own.engines

    def apart(self, enough: float) -> tuple[float, str]:
        """Most requests per second with prompts and decoding on chips of their own, and why.

        A chip serves at most r_P prompts a second, or decodes at most r_D requests: of m chips,

        .. math:: X \\le \\frac{m}{1 / r_P + 1 / r_D}
        """
        lengths, tpot = self.problem.lengths, self.problem.limits.tpot
        prompts = request_rows(lengths, decoding=False)
        decoding = request_rows(lengths, tpot, prompts=False)
        best = {"prompts": (0.0, ""), "decoding": (0.0, "")}
        for own in {(own.model, own.layout): own for own in self.made}.values():
            key, step = (own.model, own.layout), self._step(own)
            kinds = self.kinds.setdefault(key, {})
            each = own.layout.dp * own.layout.pp / own.layout.chips
            for name, rows in (("prompts", prompts), ("decoding", decoding)):
                found = each * engine_bound(step, self.most[key], lengths, rows, best[name][0] / each, kinds)
                best[name] = max(best[name], (found, own.layout.text))
            kinds.pop(True, None)
        (first, where), (second, there) = best["prompts"], best["decoding"]
        bound = self.problem.system.chips / (1 / first + 1 / second) if first and second else 0.0
        words = f"pools of {where} and {there}: {first:.3g} prompts/s a chip, {second:.3g} requests/s decoded a chip"
        return bound, f"{words}, in any order and batching"

    def _step(self, own: Deployment) -> StepModel:
        """The tables of the largest budget, which serve all budgets."""
        key = own.model, own.layout
        if key not in self.tables:
            largest = max(self.problem.budgets)
            self.tables[key] = replace(own, software=replace(own.software, budget=largest)).step
        return self.tables[key]


def points(deployment: Deployment, number: int, problem: ServingProblem, most: float) -> Iterator[OperatingPoint]:
    """The candidate with every batch. ``most`` [1/s]: requests that no schedule under the limits exceeds. The closed form is no
    schedule, and is held to it."""
    lengths = problem.lengths
    fits = deployment.capacity_users(lengths)
    steps = math.floor(math.log2(max(fits, 1)) * PER_OCTAVE)
    every = sorted({round(2 ** (step / PER_OCTAVE)) for step in range(steps + 1)})
    for first in range(0, len(every), BATCHES_AT_ONCE):
        tried = every[first : first + BATCHES_AT_ONCE]
        for users, state in zip(tried, closed_loops(deployment.step, deployment.engine_memory, tried, lengths), strict=True):
            if state.tpot <= problem.limits.tpot and state.ttft <= problem.limits.ttft:
                state = held_to(state, most / deployment.engines)
            requests = state.rate * deployment.engines
            chip = requests * lengths.output / deployment.chips
            user = 1 / state.tpot if state.tpot > 0 else math.inf
            yield OperatingPoint(number, users, state.ttft, state.tpot, requests, user, chip)
            if state.tpot > LIMIT_EXCESS_FACTOR * problem.limits.tpot or state.ttft > LIMIT_EXCESS_FACTOR * problem.limits.ttft:
                return  # larger batches are no faster


def objective_cost(problem: ServingProblem, deployment: Deployment, rate: float) -> float:
    """What the search makes least, of a candidate that serves ``rate`` [1/s] on all chips: its negative, or the chips of as many
    replicas as serve the rate asked for, infinite where there are not as many."""
    if problem.objective is ServingObjective.THROUGHPUT:
        return -rate
    return deployment.layout.chips * _replicas(problem, rate / deployment.replicas, deployment.replicas)


def _replicas(problem: ServingProblem, each: float, most: float) -> float:
    """Replicas that serve the rate asked for with ``each`` [1/s] of them; infinite if they are more than ``most``."""
    need = max(math.ceil(problem.rate / each - REPLICAS_ROUNDING), 1) if each > 0 else math.inf
    return need if need <= most else math.inf


def _enough(problem: ServingProblem, deployment: Deployment, cost: float) -> float:
    """The rate [1/s] on all chips that a candidate has to exceed to cost less."""
    if problem.objective is ServingObjective.THROUGHPUT or not math.isfinite(cost):
        return max(-cost, 0.0) if math.isfinite(cost) else 0.0
    replicas = math.ceil(cost / deployment.layout.chips) - 1
    return problem.rate / replicas * deployment.replicas * (1 - REPLICAS_ROUNDING) if replicas else math.inf


def search(problem: ServingProblem, tick: Callable[[str, float], None] | None = None) -> ServingPlan:
    """The deployment that serves most requests under the limits, or that serves the rate asked for on the fewest chips, proven
    against all others of the space.

    Raises Infeasible: nothing fits, no deployment keeps the limits, or none serves the rate (the message names the nearest).
    """
    began = time.perf_counter()
    made = deployments(problem)
    limits, lengths = problem.limits, problem.lengths
    bounds = []
    split = problem.pools and problem.system.chips > 1 and lengths.output > 1
    for deployment in made:
        least, slow = throughput_bounds(deployment, lengths, tpot=limits.tpot)[0], prompt_bound(deployment, lengths)
        bounds.append(
            (0.0, f"a prompt alone takes {slow:.3g} s") if slow > limits.ttft else (least.rate, f"{least.name}: {least.why}")
        )

    def floor(place: int) -> float:
        return objective_cost(problem, made[place], bounds[place][0])

    order = sorted(range(len(made)), key=lambda place: (floor(place), -bounds[place][0]))
    best: OperatingPoint | None = None
    cost = math.inf
    every: list[OperatingPoint] = []
    nearest: tuple[float, OperatingPoint] | None = None
    costed, by_steps = 0, _StepBounds(problem, made)
    for done, place in enumerate(order):
        if (best is not None or floor(place) == math.inf) and floor(place) >= cost and not problem.front:
            break
        if tick is not None:
            tick("deployments", done / len(order))
        closer = by_steps.together(place, _enough(problem, made[place], cost))
        bounds[place] = min(bounds[place], (closer, f"steps of {made[place].layout.text}, in any order and batching"))
        if best is not None and floor(place) >= cost and not problem.front:
            continue
        costed += 1
        for point in points(made[place], place, problem, bounds[place][0]):
            excess = max(point.ttft / limits.ttft, point.tpot / limits.tpot)
            if excess <= 1:
                every.append(point)
                if not _better(problem, made[place], point, best, cost):
                    continue
                point = _held(problem, made, point)
                if point.ttft <= limits.ttft and _better(problem, made[place], point, best, cost):
                    best, cost = point, objective_cost(problem, made[place], point.rate)
            elif nearest is None or excess < nearest[0]:
                nearest = excess, point
    pools = best_pools(problem, made, cost) if split else None
    if best is None and problem.objective is ServingObjective.CHIPS:
        best, found = _most(problem, pools)
    else:
        if best is None:
            best = _nearest(problem, made, nearest)
            if pools is None:
                raise _unreached(problem, made, best)
        found = _served(problem, made[best.candidate], best, bounds[best.candidate][0])
    place = min(range(len(made)), key=lambda item: (floor(item), -bounds[item][0]))
    lower, (bound, why) = floor(place), bounds[place]
    if split:
        apart, words = by_steps.apart(0.0)
        if _apart_cost(problem, apart) < lower:
            lower, bound, why = _apart_cost(problem, apart), apart, words
    chips = pools.chips if pools else found.deployment.chips
    value, unit = float(chips), "chips"
    if problem.objective is ServingObjective.THROUGHPUT:
        tokens = problem.system.chips / lengths.output
        value, lower, unit = tokens / (pools.rate if pools else best.rate), tokens / bound, "s"
    others = len(made) - costed
    closed = f"{counted(costed, 'deployment')} costed"
    closed += f"; the bounds of the other {others:,} are no better than what was found" if others else ": all that fit"
    certificate = Certificate(
        value,
        lower,
        Status.ENUMERATED,
        unit,
        {"layouts": len({d.layout for d in made}), "precisions": len(problem.models), "token budgets": len(problem.budgets)},
        len(made),
        LEFT_OUT,
        {"bounded": len(made), "costed": costed, "points": len(every)},
        time.perf_counter() - began,
        closed,
    )
    front = tuple((point, made[point.candidate]) for point in _held_front(problem, made, every))
    return ServingPlan(problem, best, found, pools, front, bound, why, certificate, chips, len(made))


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
        copies = _replicas(problem, best.rate / deployment.replicas, deployment.replicas)
        most *= copies / deployment.replicas
        deployment = replace(deployment, copies=int(copies))
    return served(deployment, Load(problem.lengths, concurrency=best.users * deployment.engines), most)


def _apart_cost(problem: ServingProblem, rate: float) -> float:
    """The least cost of pools that serve at most ``rate`` [1/s] on all chips."""
    if problem.objective is ServingObjective.THROUGHPUT:
        return -rate
    return max(math.ceil(problem.rate / (rate / problem.system.chips) - REPLICAS_ROUNDING), 2) if rate else math.inf


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
    users = f"{point.users:g} user{'s'[: point.users != 1]} an engine"
    got = f"TTFT {point.ttft:.4g} s and TPOT {point.tpot:.4g} s at the nearest, {layout} with {users}"
    return Infeasible(Fault(where, " and ".join(broken) or "the limits", got, "relax that limit, or use faster or more chips"))


def pareto(every: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Points that no other one exceeds in both tokens per second and user and per chip, the fastest for a user first.

    >>> made = [OperatingPoint(0, 1, 0, 0, 0, user, chip) for user, chip in ((3, 1), (2, 2), (1, 1), (2, 1))]
    >>> [(point.user, point.chip) for point in pareto(made)]
    [(3, 1), (2, 2)]
    """
    found: list[OperatingPoint] = []
    for point in sorted(every, key=lambda item: (-item.user, -item.chip)):
        if not found or point.chip > found[-1].chip:
            found.append(point)
    return found


@dataclass(frozen=True, slots=True)
class _PromptReplica:
    """A replica that processes prompts: ``single`` [s] a prompt, on ``engines`` at a time, ``moved`` [s] its cache, ``front``
    [s] the front end."""

    layout: ReplicaLayout
    single: float
    moved: float
    front: float
    software: ServingSoftware

    @property
    def engines(self) -> int:
        return self.layout.dp * self.layout.pp

    def ttft(self, rate: float, decoding: float) -> float:
        """Time to first token [s] of Poisson arrivals of ``rate`` [1/s], whose requests decode for so long [s] elsewhere.

        .. math:: T = t (1 + \\frac{\\rho}{2 (1 - \\rho)}) + t_K + f + g \\lambda (T + D), \\quad \\rho = \\lambda t / e

        Symbols: t [s] of a prompt, t_K [s] transfer of its cache, f, g [s] front end of a request and for each in flight, lambda
        [1/s] rate, D [s] decoding, e [1] engines. Source: the queue M/D/1 (Pollaczek, Khinchine). Infinite where the prompts or
        the front end cannot keep up.
        """
        busy, streamed = rate * self.single / self.engines, self.software.request_user * rate
        if busy > BUSY_SHARE_MOST * (1 + REPLICAS_ROUNDING) or streamed >= 1:
            return math.inf
        inside = self.single * (1 + busy / (2 * (1 - busy))) + self.moved + self.front
        return (inside + streamed * decoding) / (1 - streamed)

    def most(self, limit: float, decoding: float) -> float:
        """The largest rate [1/s] at which the TTFT is at most ``limit`` [s]; 0: none."""
        low, high = 0.0, BUSY_SHARE_MOST * self.engines / self.single
        if self.ttft(high, decoding) <= limit:
            return high
        for _ in range(RATE_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.ttft(middle, decoding) <= limit else (low, middle)
        return low


@dataclass(frozen=True, slots=True)
class _DecodeReplica:
    """A replica that decodes with the best batch: requests per second ``rate``, ``tpot`` [s], ``users`` of an engine."""

    layout: ReplicaLayout
    rate: float
    tpot: float
    users: float


def best_pools(problem: ServingProblem, made: Sequence[Deployment], cost: float) -> Pools | None:
    """The best split into a pool for prompts and one for decoding whose cost (`objective_cost`) is below ``cost``; None: there is
    none."""
    lengths, limits, total = problem.lengths, problem.limits, problem.system.chips
    prompts: dict[tuple[ServedModel, ReplicaLayout], _PromptReplica] = {}
    decoding: dict[tuple[ServedModel, ReplicaLayout], _DecodeReplica] = {}
    link = problem.system.axes[0].link if problem.system.axes else None
    if link is None:
        return None
    largest = max(problem.budgets)
    for deployment in made:
        key, layout = (deployment.model, deployment.layout), deployment.layout
        if deployment.software.budget != largest or layout.chips >= total:
            continue
        moved = transfer_time(deployment, lengths.input, link, layout.tp)
        single, front = prompt_time(deployment.step, 1, lengths), front_end_alone(deployment.software, deployment.model)
        prompts[key] = _PromptReplica(layout, single, moved, front, deployment.software)
        users = np.array(sorted({round(2 ** (n / PER_OCTAVE)) for n in range(PER_OCTAVE * 12)}), dtype=np.float64)
        users = users[users <= deployment.capacity_users(lengths)]
        times = deployment.step.time(StepBatch(users, lengths.mean_context))
        allowed = np.flatnonzero(times <= limits.tpot)
        if allowed.size:
            rates = users[allowed] / times[allowed] / (lengths.output - 1) * layout.dp * layout.pp
            place = int(np.argmax(rates))
            decoding[key] = _DecodeReplica(
                layout, float(rates[place]), float(times[allowed][place]), float(users[allowed][place])
            )
    best: Pools | None = None
    for (model, _), first in prompts.items():
        for (other, _), second in decoding.items():
            if other != model:
                continue
            most = first.most(limits.ttft, (lengths.output - 1) * second.tpot)
            for made_pools in _splits(problem, first, second, most):
                value = made_pools[0]
                if value < cost:
                    cost, best = value, _pools(problem, model, first, second, *made_pools[1:])
    return best


def _splits(
    problem: ServingProblem, first: _PromptReplica, second: _DecodeReplica, most: float
) -> Iterator[tuple[float, int, int, float]]:
    """(cost, replicas for prompts, replicas for decoding, requests per second): every split of the chips, or the smallest that
    serves the rate asked for. ``most`` [1/s]: of a replica for prompts."""
    total = problem.system.chips
    if problem.objective is ServingObjective.CHIPS:
        counts = _replicas(problem, most, total), _replicas(problem, second.rate, total)
        chips = counts[0] * first.layout.chips + counts[1] * second.layout.chips
        if chips <= total:
            yield chips, int(counts[0]), int(counts[1]), problem.rate
        return
    for replicas in range(1, (total - second.layout.chips) // first.layout.chips + 1):
        rest = (total - replicas * first.layout.chips) // second.layout.chips
        rate = min(replicas * most, rest * second.rate)
        if rate > 0:
            yield -rate, replicas, rest, rate


def _pools(problem: ServingProblem, model: ServedModel, first: _PromptReplica, second: _DecodeReplica, *split: float) -> Pools:
    replicas, rest, rate = int(split[0]), int(split[1]), split[2]
    ttft = first.ttft(rate / replicas, (problem.lengths.output - 1) * second.tpot)
    return Pools(first.layout, replicas, second.layout, rest, model, second.users, rate, ttft, second.tpot, first.moved)
