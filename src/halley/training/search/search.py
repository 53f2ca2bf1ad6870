"""The fastest training plan, with its proof: `halley.training.search.steps` until no open plan can be better, then
`halley.training.search.proof` for the timed plans."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from halley.answer import Certificate, Status, relative_gap
from halley.errors import BadInput, Fault, Infeasible, SearchStopped
from halley.kernels.machine import machine
from halley.optim.deadline import Deadline, TimeIsUp
from halley.sharding.communication import Communication, Interconnect
from halley.training.cost import PlanInputs, plan_cost
from halley.training.part_costs import ModelCosts
from halley.training.plan import Plan, TrainingProblem, TrainingResult
from halley.training.search.answer import alternative, shortage
from halley.training.search.floors import floors_of
from halley.training.search.space import LEFT_OUT, LEFT_OUT_MEASURED, LEFT_OUT_MEMORIES, training_space
from halley.training.search.start import fewer_replicas, with_all_replicas, work_bound
from halley.training.search.steps import TrainingSearch
from halley.training.sharded_model import CostModel
from halley.training.spatial.model import LEFT_OUT as on_chip
from halley.training.spatial.model import cost_model
from halley.units import format_time
from halley.workloads.construction.graph import STATISTIC

DEFAULT_ALTERNATIVES = 10
"""Plans of other kinds that are reported with the best one."""

GROUPS_BEFORE_DIVE = 4
"""Number of groups with sharded layers after which the search looks for a plan outside the order of bounds: if there is none,
among the groups with least memory, else among those of lowest bound. Then each time the number of groups has doubled."""

STEPS_BEFORE_DIVE = 1500
"""Steps after which the search looks for a first plan, if no groups were sharded until then."""

SHARE_BEFORE_DIVE = 0.25
"""Share of the time limit after which the search looks for a first plan, if there is none."""

SHARE_OF_FIRST_PLAN = 0.4
"""Share of the time limit for a first plan of a large system, on fewer replicas."""

SMALL_GAP = 0.01
"""Relative gap below which the search strictly follows the order of bounds."""

OPTIMAL_GAP = 1e-6
"""Relative gap up to which a plan counts as optimal."""

CLOSED_WORDS = "no open plan has a bound below the best time"
STOPPED_WORDS = "stopped with plans open whose bound is below the best time"
"""How a proof ended."""


def best_training_plan(
    problem: TrainingProblem,
    progress: Callable[[str, float], None] | None = None,
    limit: float | None = None,
    model: CostModel | None = None,
    others: int = DEFAULT_ALTERNATIVES,
) -> TrainingResult:
    """The fastest plan of a problem, over all memories of a chip that can hold its tensors, unless the problem fixes one. On a
    large system with a time limit, the search begins with the best plan of fewer data-parallel replicas
    (`halley.training.search.start`).

    ``progress`` is called now and then with the state of the search, and the share of the gap that is closed. ``limit`` [s]:
    time after which the search stops with the best plan so far; an interrupt does the same. ``model``: source of the parts'
    costs; default: `cost_model` of the problem. ``others``: number of plans of other kinds to find after the proof.

    Raises BadInput: the fixed choices leave no plan; Infeasible: none fits, with what is short and what would help;
    SearchStopped: none was found in time.
    """
    began = time.perf_counter()

    def left() -> float | None:
        return None if limit is None else limit - (time.perf_counter() - began)

    runs, homes = list[SearchRun](), [problem] if model else _by_memory(problem)
    for number, each in enumerate(homes):
        time_left = left()
        end = math.inf if time_left is None else time.perf_counter() + time_left / (len(homes) - number)
        first = None if model or time_left is None else _first_run(each, progress, end)
        try:
            found = bounded_search(each, model, Deadline(0.0 if first and first.interrupted else end))
        except (TimeIsUp, KeyboardInterrupt) as error:
            if first is None:
                raise (_none_in_time(each) if isinstance(error, TimeIsUp) else error) from None
            runs.append(first.run)
            continue
        if first is not None:
            (timed,) = first.run.found.best.values()
            found.add_timed(first.plan, timed)
        found.cutoff = min((run.found.incumbent for run in runs), default=math.inf)
        runs.append(_run(found, progress, end))
    best = min(runs, key=lambda run: run.found.incumbent)
    if not best.found.best:
        # the last memory is the largest one
        search, stopped = runs[-1].found, any(run.stopped for run in runs)
        if stopped:
            raise _none_in_time(problem)
        raise Infeasible(shortage(search.problem, search.floors, lambda other: _fits(other, model)))
    if all(run.proof.closed for run in runs):
        with suppress(KeyboardInterrupt, TimeIsUp):
            if progress is not None:
                progress(f"best {format_time(best.found.incumbent)}, proven; looks for plans of other kinds", 1.0)
            best.found.find_alternatives(others, lambda: (left() or 0.0) < 0)
    return _result(best.found, runs, others)


def _none_in_time(problem: TrainingProblem) -> SearchStopped:
    remedy = "raise the time limit, or fix some choices"
    return SearchStopped(Fault(f"{problem.shape.name} on {problem.system.name}", "a plan that fits, in time", "none yet", remedy))


def _by_memory(problem: TrainingProblem) -> list[TrainingProblem]:
    """The problem for each memory that can hold the tensors, unless it is fixed, the nearest first. If state is to be
    offloaded, only those with a further memory."""
    every = [problem] if problem.home else [replace(problem, home=name) for name in problem.homes]
    return [each for each in every if each.second] or every if problem.fixed.offload else every


class Proof(NamedTuple):
    """``least`` [s]: lower bound of all plans; ``closed``: no open plan can be better. ``seconds``: duration; numbers of plans
    ``timed`` and shardings ``solved``."""

    least: float
    closed: bool
    seconds: float
    timed: int
    solved: int


class SearchRun(NamedTuple):
    """A finished search with its proof; ``stopped``: early; ``size``: number of plans in its space, None where the plans of the
    space were not all bounded."""

    found: TrainingSearch
    proof: Proof
    stopped: bool
    size: int | None


class FirstRun(NamedTuple):
    """A ``plan`` of a large system that was found on fewer replicas: a ``run`` over a space of this plan alone, with a bound of
    all plans. ``interrupted``: by the user."""

    plan: Plan
    run: SearchRun
    interrupted: bool


def _first_run(problem: TrainingProblem, progress: Callable[[str, float], None] | None, end: float) -> FirstRun | None:
    """The best plan of fewer data-parallel replicas on all of them, found in a share of the time up to ``end`` [s]; None where
    the system is not large, or no such plan was found."""

    def report(words: str, share: float) -> None:
        if progress is not None:
            progress(f"first a plan for {smaller.system.chips:,} chips: {words}", 0.0)

    began = time.perf_counter()
    last = began + SHARE_OF_FIRST_PLAN * (end - began)
    for smaller in fewer_replicas(problem):
        try:
            found = best_training_plan(smaller, report, last - time.perf_counter(), others=0)
            fixed = bounded_search(with_all_replicas(problem, found.plan))
        except (Infeasible, SearchStopped, BadInput):
            continue
        interrupted = found.status is Status.LIMIT and time.perf_counter() < last
        run = _run(fixed, None, math.inf)
        if timed := list(run.found.best.values()):
            plan = run.found.floors.space.plan(timed[0].layout, timed[0].option)
            proof = Proof(work_bound(problem), False, time.perf_counter() - began, run.proof.timed, run.proof.solved)
            return FirstRun(plan, SearchRun(run.found, proof, True, None), interrupted)
    return None


def _run(found: TrainingSearch, progress: Callable[[str, float], None] | None, end: float) -> SearchRun:
    """Searches until no open plan can be better, or up to a time of `time.perf_counter` [s]. Without a plan at some share of the
    time that is left, it looks for one outside the order of bounds."""
    began = time.perf_counter()
    deadline, stopped = found.floors.deadline, False
    try:
        deadline.end = began + SHARE_BEFORE_DIVE * (end - began) if math.isfinite(end) else math.inf
        try:
            _search(found, progress, end)
        except TimeIsUp:
            deadline.end = end
            if not found.best:
                found.find_first_plan(raised=False)
            _search(found, progress, end)
        stopped = time.perf_counter() > end
        deadline.end = math.inf
        found.bound_timed_plans()
    except (KeyboardInterrupt, TimeIsUp):
        stopped = True
    deadline.end = math.inf
    proof = Proof(found.least, found.closed, time.perf_counter() - began, found.timed, found.solved)
    return SearchRun(found, proof, stopped, found.floors.space.size)


def _search(found: TrainingSearch, progress: Callable[[str, float], None] | None, end: float) -> None:
    """Steps until the search is closed or the end [s]. Raises TimeIsUp: the deadline of its floors came within a step."""
    dived = False
    ahead = GROUPS_BEFORE_DIVE
    for steps, _ in enumerate(found.steps(), start=1):
        if due := found.refined >= ahead:
            ahead = 2 * found.refined
        if not found.best and not dived and (due or steps >= STEPS_BEFORE_DIVE):
            found.find_first_plan()
            dived = True
        elif due and found.bound < (1 - SMALL_GAP) * found.incumbent:
            found.improve_incumbent()
        if progress is not None:
            best = f"best {format_time(found.incumbent)}" if found.best else "no plan yet"
            progress(f"{best}, bound {format_time(found.bound)}, {found.solved} solved", found.share)
        if time.perf_counter() > end:
            break


def bounded_search(problem: TrainingProblem, model: CostModel | None = None, deadline: Deadline | None = None) -> TrainingSearch:
    """A search with all plans bounded, before its first step. Raises as `best_training_plan`; TimeIsUp: the deadline passed.

    The search may move the deadline of its floors to an earlier time; the model of costs, which keeps what it gives when the time
    is up, has the last one."""
    last = Deadline() if deadline is None else Deadline(deadline.end)
    space = training_space(problem)
    # choices that name axes make equal axes distinct
    named = bool(problem.fixed.splits) or problem.fixed.boundary is not None
    interconnect = Interconnect(problem.system, problem.libraries, named)
    communications = [Communication(interconnect, each) for each in space.assignments]
    costs = model or cost_model(problem, last)
    found = TrainingSearch(problem, floors_of(space, communications, costs, deadline), costs, stopped=last)
    found.start()
    return found


def least_bound(problem: TrainingProblem) -> float:
    """A lower bound of all plans [s], before any is timed; infinite where none can fit. Raises as `best_training_plan`."""
    return min(bounded_search(each).bound for each in _by_memory(problem))


def _fits(problem: TrainingProblem, model: CostModel | None) -> bool:
    """Whether some plan of the problem fits; False where none was found at once."""
    try:
        found = bounded_search(problem, model)
    except BadInput:
        return False
    if math.isfinite(found.bound):
        found.find_first_plan()
    return bool(found.best)


def _case(communication: Communication, costs: ModelCosts) -> PlanInputs:
    """A plan with its shardings over its own axes: they were found over axes that only differ in their names."""
    return PlanInputs(communication, costs.on(communication.mesh, communication.model))


def _result(found: TrainingSearch, runs: Sequence[SearchRun], others: int) -> TrainingResult:
    """The result of the search with the best plan, among ``runs`` over all memories that can hold the tensors."""
    problem, space, proofs = found.problem, found.floors.space, [run.proof for run in runs]
    closed, sizes = all(proof.closed for proof in proofs), [run.size for run in runs if run.size is not None]
    size = sum(sizes) if len(sizes) == len(runs) else None
    ranked = sorted(found.best.values(), key=lambda each: each.time)[: others + 1]
    plans = [space.plan(each.layout, each.option) for each in ranked]
    cases = [_case(found.floors.communications[space.assignment[each.layout]], each.costs) for each in ranked]
    costs = [plan_cost(problem, plan, case) for plan, case in zip(plans, cases, strict=True)]
    value, bound = costs[0].time, min(*(proof.least for proof in proofs), ranked[0].time, costs[0].time)
    certificate = Certificate(
        value,
        bound,
        Status.LIMIT if not closed else Status.OPTIMAL if relative_gap(value, bound) <= OPTIMAL_GAP else Status.WITHIN,
        space={} if size is None else {**space.choices, **({"memories": len(runs)} if len(runs) > 1 else {})},
        size=size,
        effort={
            "bounded": sum(sizes),
            "evaluated": sum(proof.timed for proof in proofs),
            "solved": sum(proof.solved for proof in proofs),
        },
        seconds=sum(proof.seconds for proof in proofs),
        closed=CLOSED_WORDS if closed else STOPPED_WORDS,
        left_out=tuple(_left_out(problem)),
    )
    rest = tuple(alternative(plans[0], costs[0], plan, cost) for plan, cost in zip(plans[1:], costs[1:], strict=True))
    _, low = min(found.timed_plans, key=lambda each: each[0])
    lowest = space.plan(low.layout, low.option), low.costs
    return TrainingResult(
        problem, plans[0], costs[0], rest, certificate, found.bound if size is not None else bound, found.unfit, lowest
    )


def _left_out(problem: TrainingProblem) -> Iterator[str]:
    """What was not searched."""
    if problem.limits is not None:
        yield f"plans that {problem.limits.version} has no settings for"
    yield from LEFT_OUT
    if problem.libraries:
        yield LEFT_OUT_MEASURED
    if len(problem.homes) > 1:
        yield LEFT_OUT_MEMORIES
    if problem.system.chip.streams:
        yield from on_chip
    if problem.shape.experts is not None and machine(problem.chip).on_lanes(STATISTIC):
        engine = f"the matrix engine of {problem.chip.name}, which lacks the type: its vector lanes run them"
        yield f"gradients of tokens through routers, products of {STATISTIC}, on {engine}"
