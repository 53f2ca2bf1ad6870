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
from halley.serving.step_bounds import Rows, StepKinds, engine_bound, most_sequences, request_rows

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
        own, limits = self.made[place], self.problem.limits
        key = _kind(own)
        if key not in self.engines:
            rows = request_rows(self.problem.lengths, limits.tpot, limits.ttft, each=own.tokens_of_step)
            self.engines[key] = self._engine(own, rows, enough / own.engines)
        return self.engines[key] * own.engines

    def phase(self, own: Deployment, decoding: bool, fine: bool) -> float:
        """Most prompts per second that a replica of a candidate processes, or most requests that it decodes; on rough kinds of
        steps, or on ``fine`` ones."""
        lengths, limits = self.problem.lengths, self.problem.limits
        if decoding:
            rows = request_rows(lengths, limits.tpot, prompts=False, each=own.tokens_of_step)
        else:
            rows = request_rows(lengths, ttft=limits.ttft, decoding=False)
        return own.layout.dp * own.layout.pp * self._engine(own, rows, 0.0 if fine else math.inf)

    def _engine(self, own: Deployment, rows: Rows, enough: float) -> float:
        """`engine_bound` of one engine of a candidate."""
        key = _kind(own)
        kinds = self.kinds.setdefault(key, {})
        found = engine_bound(self.steps.widest(own), self.most[key], self.problem.lengths, rows, enough, kinds)
        kinds.pop(True, None)  # large, and rarely asked for again
        return found


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
    """The candidate with every batch of `batches`, and with the largest one that keeps the limits. ``most`` [1/s]: a bound of the
    requests of any schedule under the limits. The closed form is not a schedule, so its rate is capped by that bound."""
    asked, kept, beyond = (deployment, number, problem, most), 0, 0
    for users, excess, point in _points(*asked, batches(deployment.capacity_users(problem.lengths))):
        yield point
        if excess <= 1:
            kept, beyond = users, 0
        elif not beyond:
            beyond = users
        if excess > LIMIT_EXCESS_FACTOR:
            break  # larger batches are no faster
    while kept and beyond > kept + 1:
        between = range(kept + 1, beyond)
        for users, excess, point in _points(*asked, between[:: -(-len(between) // BATCHES_AT_ONCE)]):
            yield point
            if excess > 1:
                beyond = users
                break
            kept = users


def _points(
    deployment: Deployment, number: int, problem: ServingProblem, most: float, tried: Sequence[int]
) -> Iterator[tuple[int, float, OperatingPoint]]:
    """(batch, largest ratio of a time to its limit, point) of some batches."""
    lengths, limits = problem.lengths, problem.limits
    for first in range(0, len(tried), BATCHES_AT_ONCE):
        some = tried[first : first + BATCHES_AT_ONCE]
        for users, state in zip(some, closed_loops(deployment.step, deployment.engine_memory, some, lengths), strict=True):
            excess = max(state.tpot / limits.tpot, state.ttft / limits.ttft)
            if excess <= 1:
                state = held_to(state, most / deployment.engines)
            requests = state.rate * deployment.engines
            chip = requests * lengths.output / deployment.chips
            user = 1 / state.tpot if state.tpot > 0 else math.inf
            yield users, excess, OperatingPoint(number, users, state.ttft, state.tpot, requests, user, chip)


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
