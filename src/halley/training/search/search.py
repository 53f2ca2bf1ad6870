"""The fastest plan of training, with a proof: `halley.training.search.steps` until nothing open can be better, then
`halley.training.search.proof` for the plans that were timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from halley.answer import Certificate, Status, relative_gap
from halley.errors import BadInput, Infeasible
from halley.sharding.communication import Communication, Interconnect
from halley.training.cost import Case, plan_cost
from halley.training.part_costs import ModelCosts
from halley.training.plan import TrainingProblem, TrainingResult
from halley.training.search.answer import alternative, shortage
from halley.training.search.floors import floors_of
from halley.training.search.space import HOMES, LEFT_OUT, MEASURED, training_space
from halley.training.search.steps import TrainingSearch
from halley.training.sharded_model import CostModel
from halley.training.spatial.model import LEFT_OUT as on_chip
from halley.training.spatial.model import cost_model
from halley.units import format_time

ALTERNATIVES = 10
"""Plans of other kinds that are found beside the best one."""

PATIENCE = 4
"""After how many groups whose layers were sharded a plan is looked for out of turn: where there is none, among those that keep
least, else among those of lowest bound. Then whenever there are twice as many of these groups."""

WAITING = 1500
"""After how many steps a first plan is looked for out of turn, if no groups were sharded so far."""

NARROW = 0.01
"""Relative gap at which a better plan is no longer looked for out of turn."""

CLOSED = 1e-6
"""Relative gap at which a plan counts as optimal."""

CLOSED_WORDS = "no open plan has a bound below the best time"
STOPPED_WORDS = "stopped with plans open whose bound is below the best time"
"""How a proof ended."""


def best_training_plan(
    problem: TrainingProblem,
    progress: Callable[[str, float], None] | None = None,
    limit: float | None = None,
    model: CostModel | None = None,
    others: int = ALTERNATIVES,
) -> TrainingResult:
    """The fastest plan of a problem; in whichever memory of a chip its tensors live, unless the problem names one.

    ``progress`` is told now and then what was found, and a share of the gap that is closed. ``limit`` [s]: when to stop with the
    best so far; an interrupt does the same. ``model``: where the costs of parts come from, `cost_model` of the problem unless
    given. ``others``: how many plans of other kinds are wanted beside the best, looked for after the proof.

    Raises BadInput: what is fixed leaves no plan; Infeasible: none fits, with what is short and what would help, or none was
    found in time.
    """
    began = time.perf_counter()

    def left() -> float | None:
        return None if limit is None else limit - (time.perf_counter() - began)

    runs, homes = list[Run](), [problem] if model else _at_homes(problem)
    for number, each in enumerate(homes):
        found, time_left = started(each, model), left()
        found.cutoff = min((run.found.incumbent for run in runs), default=math.inf)
        runs.append(_run(found, progress, None if time_left is None else time_left / (len(homes) - number)))
    best = min(runs, key=lambda run: run.found.incumbent)
    if not best.found.best:
        # the last memory is the largest
        search, stopped = runs[-1].found, any(run.stopped for run in runs)
        raise Infeasible(list(shortage(search.problem, search.floors, stopped, lambda other: _fits(other, model))))
    if all(run.proof.closed for run in runs):
        with suppress(KeyboardInterrupt):
            if progress is not None:
                progress(f"best {format_time(best.found.incumbent)}, proven; looks for plans of other kinds", 1.0)
            best.found.fill(others, lambda: (left() or 0.0) < 0)
    return _result(best.found, runs, others)


def _at_homes(problem: TrainingProblem) -> list[TrainingProblem]:
    """The problem for each memory that tensors may live in, if that is not given, the nearest first. Where state is to be
    offloaded, those with another memory behind them."""
    every = [problem] if problem.home else [replace(problem, home=name) for name in problem.homes]
    return [each for each in every if each.second] or every if problem.fixed.offload else every


class Proof(NamedTuple):
    """No plan takes less than ``least`` [s]; ``closed``: nothing open could be better. ``seconds`` it took, plans ``timed`` and
    shardings ``solved`` for it."""

    least: float
    closed: bool
    seconds: float
    timed: int
    solved: int


class Run(NamedTuple):
    """A search that has ended, with its proof; ``stopped``: early."""

    found: TrainingSearch
    proof: Proof
    stopped: bool


def _run(found: TrainingSearch, progress: Callable[[str, float], None] | None, limit: float | None) -> Run:
    """Search until nothing open could be better, or for so long [s]."""
    began = time.perf_counter()
    stopped = dived = False
    ahead, steps = PATIENCE, 0
    try:
        while not found.closed and not stopped:
            found.step()
            passed, steps = time.perf_counter() - began, steps + 1
            if due := found.refined >= ahead:
                ahead = 2 * found.refined
            if not found.best and not dived and (due or steps >= WAITING):
                found.dive()
                dived = True
            elif due and found.bound < (1 - NARROW) * found.incumbent:
                found.leap()
            stopped = limit is not None and passed > limit
            if progress is not None:
                best = f"best {format_time(found.incumbent)}" if found.best else "no plan yet"
                progress(f"{best}, bound {format_time(found.bound)}, {found.solved} solved", found.share)
        found.settle()
    except KeyboardInterrupt:
        stopped = True
    return Run(found, Proof(found.least, found.closed, time.perf_counter() - began, found.timed, found.solved), stopped)


def started(problem: TrainingProblem, model: CostModel | None = None) -> TrainingSearch:
    """A search with all plans bounded, before its first step. Raises as `best_training_plan`."""
    space = training_space(problem)
    # what is fixed by the names of axes tells equal ones apart
    named = bool(problem.fixed.splits) or problem.fixed.boundary is not None
    interconnect = Interconnect(problem.system, problem.libraries, named)
    communications = [Communication(interconnect, each) for each in space.assignments]
    costs = model or cost_model(problem)
    found = TrainingSearch(problem, floors_of(space, communications, costs), costs)
    found.start()
    return found


def _fits(problem: TrainingProblem, model: CostModel | None) -> bool:
    """Some plan of the problem fits; False where none was found at once."""
    try:
        found = started(problem, model)
    except BadInput:
        return False
    if math.isfinite(found.bound):
        found.dive()
    return bool(found.best)


def _case(communication: Communication, costs: ModelCosts) -> Case:
    """A plan with its shardings over its own axes: they were found over axes that are equal but for their names."""
    return Case(communication, costs.on(communication.mesh, communication.model))


def _result(found: TrainingSearch, runs: Sequence[Run], others: int) -> TrainingResult:
    """Of the search with the best plan, among ``runs`` over all memories that tensors may live in."""
    problem, space, proofs = found.problem, found.floors.space, [run.proof for run in runs]
    closed, size = all(proof.closed for proof in proofs), sum(run.found.floors.space.size for run in runs)
    ranked = sorted(found.best.values(), key=lambda each: each.time)[: others + 1]
    plans = [space.plan(each.layout, each.option) for each in ranked]
    cases = [_case(found.floors.communications[space.assignment[each.layout]], each.costs) for each in ranked]
    costs = [plan_cost(problem, plan, case) for plan, case in zip(plans, cases, strict=True)]
    value, bound = costs[0].time, min(*(proof.least for proof in proofs), ranked[0].time, costs[0].time)
    certificate = Certificate(
        value,
        bound,
        Status.LIMIT if not closed else Status.OPTIMAL if relative_gap(value, bound) <= CLOSED else Status.WITHIN,
        space={**space.choices, **({"memories": len(runs)} if len(runs) > 1 else {})},
        size=size,
        effort={
            "bounded": size,
            "evaluated": sum(proof.timed for proof in proofs),
            "solved": sum(proof.solved for proof in proofs),
        },
        seconds=sum(proof.seconds for proof in proofs),
        closed=CLOSED_WORDS if closed else STOPPED_WORDS,
        left_out=tuple(_left_out(problem)),
    )
    rest = tuple(alternative(plans[0], costs[0], plan, cost) for plan, cost in zip(plans[1:], costs[1:], strict=True))
    return TrainingResult(problem, plans[0], costs[0], rest, certificate, found.bound, found.unfit)


def _left_out(problem: TrainingProblem) -> Iterator[str]:
    """What was not searched."""
    yield from LEFT_OUT
    if problem.libraries:
        yield MEASURED
    if len(problem.homes) > 1:
        yield HOMES
    if problem.system.chip.streams:
        yield from on_chip
