"""The candidates of a search: every layout, precision, size of chunks and window of speculation, their bounds, and their
batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from halley.errors import BadInput, Fault, Infeasible
from halley.optim.divisors import divisors
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout, ReplicaNetwork
from halley.serving.model import ServedModel
from halley.serving.plans.problem import ServingProblem
from halley.serving.steady import closed_loops, held_to
from halley.serving.step import StepModel
from halley.serving.step_bounds import StepKinds, engine_bound, most_sequences, request_rows

PER_OCTAVE = 4
"""Batches that are tried between a number and its double."""
BATCHES_AT_ONCE = 6
"""Batches of a candidate that are timed together: their steps are looked up in one call."""
LIMIT_EXCESS_FACTOR = 1.1
"""How far a batch may exceed a limit before larger ones are left out: times grow with the batch but for steps of tiles."""


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


def layouts(problem: ServingProblem, model: ServedModel) -> Iterator[ReplicaLayout]:
    """Every layout of a replica that divides the chips, the model's heads, layers and experts."""
    shape = model.shape
    experts = shape.experts.experts if shape.experts else 0
    total = problem.system.chips
    for tp in divisors(total):
        if model.split_heads % tp:
            continue
        for pp in divisors(total // tp):
            if pp > shape.layers:
                continue
            for dp in divisors(total // tp // pp) if experts else (1,):
                for ep in divisors(tp * dp) if experts else (1,):
                    if not experts or ep <= experts:
                        yield ReplicaLayout(tp, pp, ep, dp)


def deployments(problem: ServingProblem, steps: SharedSteps | None = None) -> list[Deployment]:
    """All candidates that fit: their memory holds at least one request. They share their ``steps``."""
    found = []
    where = f"serving of {problem.models[0].shape.name} on {problem.system.name}"
    network, steps = ReplicaNetwork(problem.system, problem.libraries), steps or SharedSteps(problem)
    context = problem.lengths.input + problem.lengths.output
    closest = math.inf
    for model in problem.models:
        for layout in layouts(problem, model):
            for budget, speculation in itertools.product(problem.budgets, problem.speculations(model)):
                made = Deployment(
                    model,
                    problem.system,
                    layout,
                    replace(problem.software, budget=budget),
                    problem.efficiency,
                    problem.libraries,
                    fits=problem.fits,
                    network=network,
                    speculation=speculation,
                    steps=steps,
                )
                memory = made.engine_memory
                if memory.capacity_pages < memory.pages(context):
                    closest = min(closest, memory.usable - memory.cache + memory.pages(context) * memory.page)
                    continue
                try:
                    network.dimensions(layout.tp, 1, False)
                    network.dimensions(layout.stage, 1, False)
                except BadInput:
                    continue  # groups that do not divide the axes
                found.append(made)
    if not found:
        capacity = problem.system.tiers[0].capacity * problem.software.share
        need = f"{closest / 2**30:.1f} GiB on a chip with the layout that needs least"
        remedy = "use more chips, fewer bytes for weights or cache, or shorter requests"
        raise Infeasible(Fault(where, f"at most {capacity / 2**30:.1f} GiB on a chip", need, remedy))
    return found


class SharedSteps:
    """Steps of deployments that differ in the tokens of a step and the window of speculation only: they share the tables of the
    largest budget and the longest window. Drafts of different layouts share theirs likewise."""

    def __init__(self, problem: ServingProblem) -> None:
        self.budget = max(problem.budgets)
        windows = (each.window for model in problem.models for each in problem.speculations(model) if each is not None)
        self.width = max(windows, default=0) + 1
        self.tables: dict[object, StepModel] = {}

    def __call__(self, own: Deployment) -> StepModel:
        """The step of a deployment."""
        return self.widest(own).with_budget(own.software.budget)

    def widest(self, own: Deployment) -> StepModel:
        """The same with the largest budget of tokens a step, its draft's included."""
        software = replace(own.software, budget=self.budget)
        key = own.model, own.layout, software
        if key not in self.tables:
            alone = replace(own, software=software, speculation=None, steps=None)
            self.tables[key] = replace(alone.step, width=self.width)
        made, speculation = self.tables[key], own.speculation
        if speculation is None or own.drafting is None:
            return made.with_width(1)
        return made.with_width(speculation.window + 1, self.widest(own.drafting), speculation.tokens)


class CandidateBounds:
    """Bounds of candidates from their steps: one for all budgets of a layout, precision and window, because the largest budget
    allows all steps of the others, and the smallest leaves most memory for the cache."""

    def __init__(self, problem: ServingProblem, made: Sequence[Deployment], steps: SharedSteps) -> None:
        self.problem, self.made, self.steps = problem, made, steps
        self.most: dict[object, float] = {}
        for own in made:
            key = _kind(own)
            self.most[key] = max(self.most.get(key, 0.0), most_sequences(own, problem.lengths))
        self.kinds: dict[object, dict[bool, StepKinds]] = {}
        self.engines: dict[object, float] = {}

    def together(self, place: int, enough: float) -> float:
        """Most requests per second of a candidate. ``enough`` [1/s]: lower bounds need not be closer."""
        own = self.made[place]
        key, step = _kind(own), self.steps.widest(own)
        if key not in self.engines:
            kinds = self.kinds.setdefault(key, {})
            rows = request_rows(self.problem.lengths, self.problem.limits.tpot, each=step.each)
            asked = step, self.most[key], self.problem.lengths, rows
            self.engines[key] = engine_bound(*asked, enough / own.engines, kinds)
            kinds.pop(True, None)  # large, and rarely asked for again
        return self.engines[key] * own.engines

    def apart(self) -> tuple[float, str]:
        """Most requests per second with prompts and decoding on separate chips, and why.

        A chip serves at most r_P prompts a second, or decodes at most r_D requests: of m chips,

        .. math:: X \\le \\max_{M, K} \\frac{m}{1 / r_P + 1 / r_D}

        over models M (a precision each) and windows K, which both pools have in common: the caches that move from one to the
        other are those of the model and of the draft.
        """
        lengths, tpot = self.problem.lengths, self.problem.limits.tpot
        prompts: dict[tuple[ServedModel, int], tuple[float, str]] = {}
        decoding: dict[tuple[ServedModel, int], tuple[float, str]] = {}
        for key, own in {_kind(own): own for own in self.made}.items():
            step, pair = self.steps.widest(own), (own.model, _window(own))
            kinds = self.kinds.setdefault(key, {})
            each = own.layout.dp * own.layout.pp / own.layout.chips
            asked = (
                (prompts, request_rows(lengths, decoding=False)),
                (decoding, request_rows(lengths, tpot, prompts=False, each=step.each)),
            )
            for best, rows in asked:
                so_far = best.get(pair, (0.0, ""))
                found = each * engine_bound(step, self.most[key], lengths, rows, so_far[0] / each, kinds)
                best[pair] = max(so_far, (found, own.layout.text))
            kinds.pop(True, None)
        bound, why = 0.0, "no pools"
        for pair, (first, where) in prompts.items():
            second, there = decoding[pair]
            rate = self.problem.system.chips / (1 / first + 1 / second) if first and second else 0.0
            if rate > bound:
                words = f"pools of {where} and {there}: {first:.3g} prompts/s a chip, {second:.3g} requests/s decoded a chip"
                bound, why = rate, f"{words}, in any order and batching"
        return bound, why


def _window(deployment: Deployment) -> int:
    """Tokens that are proposed in a round; 0: none."""
    return 0 if deployment.speculation is None else deployment.speculation.window


def _kind(deployment: Deployment) -> tuple[ServedModel, ReplicaLayout, int]:
    """What deployments with the same steps have in common."""
    return deployment.model, deployment.layout, _window(deployment)


def batches(most: float) -> list[int]:
    """The batches that are tried: `PER_OCTAVE` to an octave, up to ``most``, which the last one may exceed by rounding.

    >>> batches(8.0)
    [1, 2, 3, 4, 5, 6, 7, 8]
    """
    steps = math.floor(math.log2(max(most, 1)) * PER_OCTAVE)
    return sorted({round(2 ** (step / PER_OCTAVE)) for step in range(steps + 1)})


def points(deployment: Deployment, number: int, problem: ServingProblem, most: float) -> Iterator[OperatingPoint]:
    """The candidate with every batch. ``most`` [1/s]: a bound of the requests of any schedule under the limits. The closed form
    is not a schedule, so its rate is capped by that bound."""
    lengths = problem.lengths
    fits = deployment.capacity_users(lengths)
    every = batches(fits)
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


def pareto(every: Sequence[OperatingPoint]) -> list[OperatingPoint]:
    """Points for which no other has more tokens per second both for a user and of a chip; the fastest for a user first.

    >>> made = [OperatingPoint(0, 1, 0, 0, 0, user, chip) for user, chip in ((3, 1), (2, 2), (1, 1), (2, 1))]
    >>> [(point.user, point.chip) for point in pareto(made)]
    [(3, 1), (2, 2)]
    """
    found: list[OperatingPoint] = []
    for point in sorted(every, key=lambda item: (-item.user, -item.chip)):
        if not found or point.chip > found[-1].chip:
            found.append(point)
    return found
