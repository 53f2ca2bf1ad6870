"""The fastest plan of training, with a proof.

Every plan of the space has a lower bound that holds for all shardings. The search goes to the lowest bound first:

    group     plans of one mesh, microbatch, recomputation and kernel of attention: their shardings are found, and bounds rise
    plan      its iteration is timed exactly, together with plans of the same pipeline in its group
    crowded   a plan whose fastest shardings do not fit: they are found again for the memory that is left

and ends when no bound is below the best time: all other plans take longer.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.errors import Infeasible
from halley.planning.communication import Communication, Interconnect
from halley.planning.iteration import iteration_time
from halley.planning.memory import memory
from halley.planning.part_costs import ModelCosts, Room
from halley.planning.plan import Outcome, PlanCertificate, TrainingProblem, TrainingResult
from halley.planning.sharded_model import CostModel, ShardedModel
from halley.planning.training_answer import alternative, shortage
from halley.planning.training_cost import Batch, Case, plan_cost, room_left, training_of
from halley.planning.training_floors import Floors, floors_of
from halley.planning.training_space import LEFT_OUT, training_space
from halley.units import format_time

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ALTERNATIVES = 10
"""Plans of other kinds that are found beside the best one."""

SAME = 1e-12
"""Relative difference of times that is put down to rounding."""


FILLING = 200
FILLING_SOLVES = 10
"""Pipelines that are timed at most, and shardings that are found again, for plans of other kinds once the best one is proven."""

TRIES = 4
"""How often a plan's shardings are found again for a stage that is too full; beyond, the plan counts with its bound."""

CLOSED = 1e-9
"""Relative gap at which a plan counts as optimal."""

CLOSED_WORDS = "no open plan has a bound below the best time"
STOPPED_WORDS = "stopped with plans open whose bound is below the best time"
"""How a proof ended."""


class Timed(NamedTuple):
    """A plan of the space that fits, with its time [s] and the costs of its parts."""

    time: float
    layout: int
    option: int
    costs: ModelCosts


class _Crowded(NamedTuple):
    """A plan that does not fit with the shardings in ``costs``, after ``tries`` to find others."""

    layout: int
    option: int
    costs: ModelCosts
    tries: int = 0


class _Item(NamedTuple):
    """Something to look at, at its bound [s]: a group whose shardings are not known yet (``opened`` 0), one whose plans wait for
    their times (1), or a plan that is crowded (2)."""

    bound: float
    opened: int
    key: int


@dataclass(slots=True, eq=False)
class _Group:
    """Plans of one group in the order of their bounds; those ``waiting`` have no time yet."""

    costs: ModelCosts
    bounds: Floats
    layouts: Integers
    options: Integers
    waiting: NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class TrainingSearch:
    """A search that can be stopped and looked at. ``best``: by kind of plan, the fastest found."""

    problem: TrainingProblem
    floors: Floors
    model: CostModel
    others: int = 0
    best: dict[tuple[object, ...], Timed] = field(default_factory=dict)
    bounds: Floats = field(default_factory=lambda: np.empty((0, 0)))
    solved: int = 0
    timed: int = 0
    crowded: list[_Crowded] = field(default_factory=list)
    unsettled: float = math.inf
    _heap: list[_Item] = field(default_factory=list)
    _groups: dict[int, _Group] = field(default_factory=dict)
    _roomy: dict[object, ModelCosts] = field(default_factory=dict)
    _unfit: dict[tuple[int, int], list[Floats]] = field(default_factory=dict)
    _members: dict[int, tuple[Integers, Integers]] = field(default_factory=dict)

    def start(self) -> None:
        """Bound all plans, and line up the groups."""
        space, floors = self.floors.space, self.floors
        everything = np.arange(space.layouts)
        allowed, capacity = space.allowed, self.problem.capacity
        self.bounds = np.full((space.layouts, len(space.options)), np.inf)
        for option in range(len(space.options)):
            fits = allowed[:, option] & (floors.memories(everything, option) <= capacity)
            where = np.flatnonzero(fits)
            self.bounds[where, option] = floors.times(where, option)
        ways = np.array([floors.way(option) for option in range(len(space.options))])
        layouts, options = np.nonzero(np.isfinite(self.bounds))
        group = floors.cell[layouts] * len(floors.ways) + ways[options]
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        for rows in np.split(order, starts[1:]) if len(order) else []:
            key = int(group[rows[0]])
            self._members[key] = layouts[rows], options[rows]
            heapq.heappush(self._heap, _Item(float(self.bounds[layouts[rows], options[rows]].min()), 0, key))

    @property
    def incumbent(self) -> float:
        """The best time so far [s]; inf before there is any."""
        return min((each.time for each in self.best.values()), default=math.inf)

    @property
    def threshold(self) -> float:
        """Plans that take longer [s] are of no use, not even as alternatives."""
        times = sorted(each.time for each in self.best.values())
        return times[self.others] if len(times) > self.others else math.inf

    @property
    def bound(self) -> float:
        """No plan that is still open takes less [s]."""
        return self._heap[0].bound if self._heap else math.inf

    @property
    def least(self) -> float:
        """No plan of the space takes less [s], open or not, under any sharding."""
        return min(self.bound, self.unsettled)

    @property
    def share(self) -> float:
        """How much of the gap between the first bound and the best time is closed, from 0 to 1."""
        if not self.best or not math.isfinite(self.bound):
            return 0.0 if not self.best else 1.0
        first = float(self.bounds.min())
        return min(1.0, max(0.0, (self.bound - first) / max(self.threshold - first, 1e-30)))

    @property
    def closed(self) -> bool:
        """Nothing that is open can still be of use."""
        return self.bound >= self.threshold * (1 - SAME)

    def step(self) -> None:
        """Look at the item of the lowest bound."""
        item = heapq.heappop(self._heap)
        if item.opened == 2:
            self._squeeze(item.bound, self.crowded[item.key])
        elif item.opened == 1:
            self._time(item.key)
        elif not self._raise(item):
            self._open(item.key)

    def _raise(self, item: _Item) -> bool:
        """Bound the plans of a group by what is known of one axis of its mesh, or line it up to find out; False: nothing is left
        but to solve it."""
        floors, (layouts, options) = self.floors, self._members[item.key]
        communication = floors.communications[floors.space.assignment[layouts[0]]]
        given = communication, int(floors.space.microbatch[layouts[0]]), floors.ways[floors.way(int(options[0]))]
        floor = floors.floors[floors.way(int(options[0]))].work[layouts[0]]
        for layers in self.model.tighter(*given):
            bounds = self._bounded(layouts, options, np.concatenate((floor[:1], np.maximum(floor[1:-1], layers), floor[-1:])))
            self.bounds[layouts, options] = bounds
            if bounds.min() > item.bound * (1 + SAME):
                heapq.heappush(self._heap, item._replace(bound=float(bounds.min())))
                return True
        return False

    def _bounded(self, layouts: Integers, options: Integers, work: Floats) -> Floats:
        """[plans] bounds, no less than before, where parts take ``work`` [parts] at least [s]."""
        bounds = self.bounds[layouts, options]
        for option in np.unique(options):
            mine = options == option
            bounds[mine] = np.maximum(bounds[mine], self.floors.times(layouts[mine], int(option), work))
        return bounds

    def fill(self, others: int) -> None:
        """Look for as many plans of other kinds where shardings are known already, the lowest bounds first. What is left open
        has no meaning afterwards."""
        self.others = others
        most = self.solved + FILLING_SOLVES
        for _ in range(FILLING):
            while self._heap and self._heap[0].opened == 0:
                heapq.heappop(self._heap)
            if self.closed or self.solved >= most:
                return
            self.step()

    def _open(self, key: int) -> None:
        """Find the shardings of a group, and bound its plans anew."""
        layouts, options = self._members[key]
        try:
            costs = self._solve(layouts[0], options[0])
        except Infeasible:
            return
        self.solved += 1
        work = np.array(costs.least)
        bounds = self.bounds[layouts, options] = self._bounded(layouts, options, work)
        order = np.argsort(bounds, kind="stable")
        self._groups[key] = _Group(costs, bounds[order], layouts[order], options[order], np.ones(len(order), bool))
        self._line_up(key)

    def _solve(self, layout: int, option: int, room: Room | None = None, resident: float | None = None) -> ModelCosts:
        floors, space = self.floors, self.floors.space
        communication = floors.communications[space.assignment[layout]]
        way = floors.ways[floors.way(option)]
        return self.model.costs(communication, int(space.microbatch[layout]), way, room, resident)

    def _line_up(self, key: int) -> None:
        """The group waits for its first plan; without one it is done."""
        group = self._groups[key]
        waiting = np.flatnonzero(group.waiting)
        if waiting.size:
            heapq.heappush(self._heap, _Item(float(group.bounds[waiting[0]]), 1, key))
        else:
            del self._groups[key]

    def _time(self, key: int) -> None:
        """Time the first plan that waits, and those of the group that share its pipeline."""
        group, space = self._groups[key], self.floors.space
        first = int(np.flatnonzero(group.waiting)[0])
        layout, option = group.layouts[first], group.options[first]
        chosen = group.waiting & (group.options == option) & (group.bounds < self.threshold)
        for column in (space.stages, space.chunks, space.gpipe):
            chosen &= column[group.layouts] == column[layout]
        chosen[first] = True
        rows = np.flatnonzero(chosen)
        group.waiting[rows] = False
        layouts = group.layouts[rows]
        times = self._evaluate(layouts, int(option), group.costs)
        for row, each, taken in zip(rows, layouts.tolist(), times.tolist(), strict=True):
            if math.isfinite(taken):
                self._record(Timed(taken, each, int(option), group.costs))
            else:
                self._crowd(float(group.bounds[row]), _Crowded(each, int(option), group.costs))
        self._line_up(key)

    def _evaluate(self, layouts: Integers, option: int, costs: ModelCosts) -> Floats:
        """[plans] times of iterations [s] of plans that share a pipeline; inf where a chip has not enough memory."""
        space, chosen = self.floors.space, self.floors.space.options[option]
        batch = Batch(space.pipeline(int(layouts[0])), chosen.sharded, chosen.offload)
        cases = [Case(self.floors.communications[each], costs) for each in space.assignment[layouts]]
        training = training_of(self.problem, batch, cases)
        held = memory(training)
        fits = np.broadcast_to(held.peak <= self.problem.capacity, len(cases))
        if chosen.offload and self.problem.system.host:
            fits = fits & np.broadcast_to(held.offloaded.max(axis=0) <= self.problem.system.host.capacity, len(cases))
        times = np.full(len(cases), np.inf)
        if fits.any():
            some = [case for case, fit in zip(cases, fits, strict=True) if fit]
            times[fits] = iteration_time(training_of(self.problem, batch, some), apart=False).time
        self.timed += len(cases)
        return times

    def _record(self, found: Timed) -> None:
        # other shardings of the plan may take as little as its bound
        self.unsettled = min(self.unsettled, float(self.bounds[found.layout, found.option]))
        kind = self._kind(found)
        known = self.best.get(kind)
        if known is None or found.time < known.time:
            self.best[kind] = found

    def _kind(self, found: Timed) -> tuple[object, ...]:
        """Plans of one kind differ in how axes are cut and in chunks; the best of them stands for all."""
        space = self.floors.space
        columns = (space.data, space.stages, space.microbatch, space.gpipe)
        option = space.options[found.option]
        return (*(int(column[found.layout]) for column in columns), option.recompute, option.sharded, option.offload)

    def _crowd(self, bound: float, crowded: _Crowded) -> None:
        self.crowded.append(crowded)
        heapq.heappush(self._heap, _Item(bound, 2, len(self.crowded) - 1))

    def _squeeze(self, bound: float, crowded: _Crowded) -> None:
        """Find the shardings of a plan again, for the memory that is left on the stage that has least."""
        layout, option, known = crowded.layout, crowded.option, crowded.costs
        space = self.floors.space
        case = Case(self.floors.communications[space.assignment[layout]], known)
        room, resident = room_left(self.problem, space.plan(layout, option), case)
        group = int(self.floors.cell[layout]), self.floors.way(option)
        costs = self._in_room(group, layout, option, room, resident)
        if costs is None:
            return
        work = np.array(costs.least)
        bound = max(bound, float(self.floors.times(np.array([layout]), option, work)[0]))
        self.bounds[layout, option] = bound
        if bound >= self.threshold:
            return
        taken = float(self._evaluate(np.array([layout]), option, costs)[0])
        if math.isfinite(taken):
            self._record(Timed(taken, layout, option, costs))
        elif crowded.tries < TRIES:
            self._crowd(bound, crowded._replace(costs=costs, tries=crowded.tries + 1))
        else:
            self.unsettled = min(self.unsettled, bound)


    def _in_room(
        self, group: tuple[int, int], layout: int, option: int, room: Room, resident: float
    ) -> ModelCosts | None:
        """The costs of a group's parts under shardings that fit; None where none does. What asks for as much of every part as
        something that did not fit does not fit either."""
        held = np.array(room.held) / room.capacity if room.capacity > 0 else np.full(len(room.held), np.inf)
        demand = np.concatenate((held * resident, held * room.in_flight))
        if any((demand >= least).all() for least in self._unfit.get(group, ())):
            return None
        key = group, room, resident
        if key not in self._roomy:
            self.solved += 1
            try:
                self._roomy[key] = self._solve(layout, option, room, resident)
            except Infeasible:
                self._unfit.setdefault(group, []).append(demand)
                return None
        return self._roomy[key]


def best_training_plan(
    problem: TrainingProblem,
    progress: Callable[[str, float], None] | None = None,
    limit: float | None = None,
    model: CostModel | None = None,
    others: int = ALTERNATIVES,
) -> TrainingResult:
    """The fastest plan of a problem.

    ``progress`` is told now and then what was found, and a share of the gap that is closed. ``limit`` [s]: when to stop with the
    best so far; an interrupt does the same. ``model``: where the costs of parts come from, `ShardedModel` unless given.
    ``others``: how many plans of other kinds are wanted beside the best: the fastest of those whose shardings the proof needed.

    Raises BadInput: what is fixed leaves no plan; Infeasible: none fits, with what is short and what would help, or none was
    found in time.
    """
    began = time.perf_counter()
    found = started(problem, model)
    stopped = False
    try:
        while not found.closed and not stopped:
            found.step()
            passed = time.perf_counter() - began
            stopped = limit is not None and passed > limit
            if progress is not None:
                best = f"best {format_time(found.incumbent)}" if found.best else "no plan yet"
                progress(f"{best}, bound {format_time(found.bound)}, {found.solved} solved", found.share)
    except KeyboardInterrupt:
        stopped = True
    return _result(found, stopped, others, began)


def started(problem: TrainingProblem, model: CostModel | None = None) -> TrainingSearch:
    """A search with all plans bounded, before its first step. Raises as `best_training_plan`."""
    space = training_space(problem)
    interconnect = Interconnect(problem.system, problem.libraries)
    communications = [Communication(interconnect, each) for each in space.assignments]
    costs = model or ShardedModel(problem)
    found = TrainingSearch(problem, floors_of(space, communications, costs), costs)
    found.start()
    return found


def _result(found: TrainingSearch, stopped: bool, others: int, began: float) -> TrainingResult:
    if not found.best:
        raise Infeasible(list(shortage(found.problem, found.floors, stopped)))
    problem, space = found.problem, found.floors.space
    least, closed = found.least, found.closed
    if closed:
        found.fill(others)
    ranked = sorted(found.best.values(), key=lambda each: each.time)[: others + 1]
    plans = [space.plan(each.layout, each.option) for each in ranked]
    costs = [
        plan_cost(problem, plan, Case(found.floors.communications[space.assignment[each.layout]], each.costs))
        for plan, each in zip(plans, ranked, strict=True)
    ]
    certificate = PlanCertificate(
        space=space.choices,
        size=space.size,
        bounded=space.size,
        evaluated=found.timed,
        solved=found.solved,
        bound=min(least, costs[0].time),
        value=costs[0].time,
        seconds=time.perf_counter() - began,
        closed=CLOSED_WORDS if closed else STOPPED_WORDS,
        left_out=LEFT_OUT,
    )
    outcome = Outcome.LIMIT if not closed else Outcome.OPTIMAL if certificate.gap <= CLOSED else Outcome.CLOSE
    rest = tuple(alternative(plans[0], costs[0], plan, cost) for plan, cost in zip(plans[1:], costs[1:], strict=True))
    return TrainingResult(problem, plans[0], costs[0], rest, certificate, outcome)
