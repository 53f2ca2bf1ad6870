"""What a search for training plans knows, and its steps.

Every plan of the space has a lower bound that holds for all shardings. The search goes to the lowest bound first:

    group     plans of one mesh, microbatch, recomputation and kernel of attention: those that cannot fit are left out; the others
              are bounded by single axes of the mesh; then each plan alone; then their shardings are found, and bounds rise
    plan      its iteration is timed exactly, together with plans of the same pipeline in its group
    over      a plan whose fastest shardings do not fit: they are found again for the memory that is left

and ends when no bound is below the best time: all other plans take longer. What other shardings of the plans that were timed
may take is bounded at last, by `halley.training.search.proof`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from halley.errors import Infeasible
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.sharding.communication import Communication
from halley.training.cost import Batch, Case, budget_left, times_that_fit
from halley.training.part_costs import MemoryBudget, ModelCosts
from halley.training.plan import TrainingProblem
from halley.training.search.budgets import Budgets
from halley.training.search.floors import Floors
from halley.training.search.items import Group, Item, OverCapacity, Stage, Timed
from halley.training.search.paths import bound_of, closer, proof_of
from halley.training.sharded_model import CostModel, Passes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SAME = 1e-12
"""Relative difference of times that is put down to rounding."""

FILLING = 1 << 30
"""How long plans of other kinds are looked for at most once the best one is proven, in entries of tables: a second or two."""

STEPPED = 1 << 20
"""What a step takes beside shardings, in entries."""

DIVING, LEAPING = 200, 4
"""Pipelines that are timed at most in one group to find a first plan; shardings that are looked for out of turn for a better
one."""

TRIES = 4
"""How often a plan's shardings are found again for a stage that is too full; beyond, the plan counts with its bound."""


@dataclass(slots=True, eq=False)
class TrainingSearch:
    """A search that can be stopped and looked at. ``cutoff`` [s]: what a plan elsewhere takes, so that slower ones are of no use.
    ``best``: by kind of plan, the fastest found. So far: groups ``refined`` by what their layers take, shardings of the whole
    model ``solved``, plans ``timed``. ``aside``: with their bounds, plans that do not fit as they are and cannot be the best:
    they come back when plans of other kinds are looked for."""

    problem: TrainingProblem
    floors: Floors
    model: CostModel
    others: int = 0
    cutoff: float = math.inf
    best: dict[tuple[object, ...], Timed] = field(default_factory=dict)
    bounds: Floats = field(default_factory=lambda: np.empty((0, 0)))
    first: float = math.inf
    solved: int = 0
    refined: int = 0
    timed: int = 0
    over_capacity: list[OverCapacity] = field(default_factory=list)
    settled: list[tuple[float, Timed]] = field(default_factory=list)
    aside: list[tuple[float, OverCapacity]] = field(default_factory=list)
    _heap: list[Item] = field(default_factory=list)
    _groups: dict[int, Group] = field(default_factory=dict)
    _budgets: Budgets = field(default_factory=Budgets)
    _layouts: dict[int, Integers] = field(default_factory=dict)
    _work: dict[int, Floats] = field(default_factory=dict)
    _lifts: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    _proofs: dict[object, tuple[float, float]] = field(default_factory=dict)
    _meshes: dict[object, Communication] = field(default_factory=dict)

    def start(self) -> None:
        """Bound all plans by their work, and line up their groups."""
        space, floors, allowed = self.floors.space, self.floors, self.floors.space.allowed
        self.bounds = np.full((space.layouts, len(space.options)), np.inf)
        for way in range(len(floors.ways)):
            options = floors.options[way]
            layouts = np.flatnonzero(allowed[:, options].any(axis=1))
            bounds = floors.work_times(layouts, int(options[0]))
            self.bounds[np.ix_(layouts, options)] = np.where(allowed[np.ix_(layouts, options)], bounds[:, None], np.inf)
            order = np.argsort(floors.cell[layouts], kind="stable")
            starts = np.flatnonzero(np.diff(floors.cell[layouts[order]], prepend=-1))
            for rows in np.split(order, starts[1:]) if len(order) else []:
                key = int(floors.cell[layouts[rows[0]]]) * len(floors.ways) + way
                self._layouts[key] = layouts[rows]
                heapq.heappush(self._heap, Item(float(bounds[rows].min()), Stage.WORK, key))
        self.first = self.bound

    def _options(self, key: int) -> Integers:
        """The numbers of the options of a group."""
        return self.floors.options[key % len(self.floors.ways)]

    @property
    def incumbent(self) -> float:
        """The best time so far [s]; inf before there is any."""
        return min((each.time for each in self.best.values()), default=math.inf)

    @property
    def threshold(self) -> float:
        """Plans that take longer [s] are of no use, not even as alternatives."""
        times = sorted(each.time for each in self.best.values())
        return min(times[self.others] if len(times) > self.others else math.inf, self.cutoff)

    @property
    def bound(self) -> float:
        """No plan that is still open takes less [s]."""
        return self._heap[0].bound if self._heap else math.inf

    @property
    def least(self) -> float:
        """No plan of the space takes less [s], open or not, under any sharding."""
        return min((self.bound, *(bound for bound, _ in self.settled)))

    @property
    def share(self) -> float:
        """How much of the gap between the first bound and the best time is closed, from 0 to 1."""
        if not self.best or not math.isfinite(self.bound):
            return 0.0 if not self.best else 1.0
        return min(1.0, max(0.0, (self.bound - self.first) / max(self.threshold - self.first, 1e-30)))

    @property
    def closed(self) -> bool:
        """Nothing that is open can still be of use."""
        return self.bound >= self.threshold * (1 - SAME)

    def step(self) -> None:
        """Look at the item of the lowest bound."""
        item = heapq.heappop(self._heap)
        self._unless_interrupted(item, lambda: self._look(item))

    def _unless_interrupted(self, item: Item, work: Callable[[], None]) -> None:
        """Work that settles an item; interrupted, the item stays open."""
        try:
            work()
        except KeyboardInterrupt:
            heapq.heappush(self._heap, item)
            raise

    def _look(self, item: Item) -> None:
        match item.stage:
            case Stage.WORK:
                self._sift(item.key)
            case Stage.MEMORY:
                if not self._raise(item):
                    self._weigh(item.key)
            case Stage.AXES:
                self._refine(item.key, Stage.ROUGH)
            case Stage.ROUGH:
                self._refine(item.key, Stage.LAYERS)
            case Stage.LAYERS:
                self._open(item.key)
            case Stage.SHARDED:
                self._time(item.key)
            case Stage.OVER_CAPACITY:
                self._reshard(item.bound, self.over_capacity[item.key])
            case _:
                assert_never(item.stage)

    def dive(self) -> None:
        """Look for a first plan: of the groups with as many chips for each op, from few to many, the one that keeps least."""
        ranks = {item.key: self._mesh(self._layouts[item.key][0]).ranks(Role.MODEL) for item in self._waiting()}
        for number in sorted(set(ranks.values())):
            for item in [item for item in self._waiting() if ranks[item.key] == number and item.stage is Stage.WORK]:
                self._take(item.key)
                self._unless_interrupted(item, partial(self._sift, item.key))
            waiting = [item for item in self._waiting() if ranks[item.key] == number]
            for item in sorted(waiting, key=lambda item: self._kept(item.key))[:1]:
                self._take(item.key)
                self._unless_interrupted(item, partial(self._try, item.key))
            if self.best:
                return

    def _promise(self, item: Item) -> float:
        """What a group's bound may become when its layers are known: it rises as those with as many axes did, in the same way."""
        known = self._lifts.get(self._alike(item.key), [])
        return item.bound * (math.fsum(known) / len(known) if known else 1.0)

    def _alike(self, key: int) -> tuple[int, int]:
        return len(self._mesh(self._layouts[key][0]).mesh), key % len(self.floors.ways)

    def leap(self) -> None:
        """Look for a better plan out of turn: bound the layers of the most promising groups; then lowest bound first, among the
        groups whose layers are known."""
        for _ in range(LEAPING):
            if not (left := [item for item in self._heap if item.stage < Stage.ROUGH]):
                break
            self._pursue(min(left, key=self._promise))
        before, until = self.incumbent, self.solved + LEAPING
        for _ in range(DIVING):
            known = min((item for item in self._heap if item.stage >= Stage.ROUGH), default=None)
            if known is None or known.bound >= before or self.incumbent < before or self.solved >= until:
                return
            self._heap.remove(known)
            heapq.heapify(self._heap)
            self._unless_interrupted(known, partial(self._look, known))

    def _pursue(self, item: Item | None) -> None:
        """Bound the layers of a group, unless what it takes to get there shows that it is of no use."""
        while item is not None and item.stage < Stage.ROUGH and item.bound < self.threshold:
            key = item.key
            self._heap.remove(item)
            heapq.heapify(self._heap)
            self._unless_interrupted(item, partial(self._look, item))
            item = next((each for each in self._heap if each.key == key and each.stage is not Stage.OVER_CAPACITY), None)

    def _try(self, key: int) -> None:
        """All of a group, until one of its plans fits."""
        self._weigh(key)
        if self._take(key):
            self._open(key)
        for _ in range(DIVING):
            if self.best or not self._take(key):
                return
            self._time(key)

    def _kept(self, key: int) -> tuple[int, int]:
        """What tells how much a group keeps for the backward pass: recomputation, and sequences of a microbatch."""
        way = self.floors.ways[key % len(self.floors.ways)]
        return -list(Recompute).index(way.recompute), int(self.floors.space.microbatch[self._layouts[key][0]])

    def _waiting(self) -> list[Item]:
        """The groups whose shardings are not known yet."""
        return [item for item in self._heap if item.stage < Stage.SHARDED]

    def _take(self, key: int) -> bool:
        """A group leaves the line; False: it is not in it."""
        found = [item for item in self._heap if item.key == key and item.stage is not Stage.OVER_CAPACITY]
        self._heap = [item for item in self._heap if item not in found]
        heapq.heapify(self._heap)
        return bool(found)

    def _raise(self, item: Item) -> bool:
        """Bound the plans of a group by what is known of one axis of its mesh, or line it up to find out; False: nothing is left
        but to look at its plans."""
        floors, layouts, way = self.floors, self._layouts[item.key], item.key % len(self.floors.ways)
        given = self._mesh(layouts[0]), int(floors.space.microbatch[layouts[0]]), floors.ways[way]
        floor, excess = self._work[item.key], floors.floor(layouts[:1], way).excess[0, 1:-1]
        for layers in self.model.tighter(*given):
            work = np.concatenate((floor[:1], np.maximum(floor[1:-1], layers + excess), floor[-1:]))
            bound = float(floors.work_times(layouts, int(floors.options[way][0]), work).min())
            if bound > item.bound * (1 + SAME):
                self._work[item.key] = work
                heapq.heappush(self._heap, item._replace(bound=bound))
                return True
        return False

    def _sift(self, key: int) -> None:
        """Leave out what does not fit in a group even with the options that keep least, and bound the work of the others by the
        kernels; they all have the same bound here."""
        layouts, options, chosen = self._layouts[key], self._options(key), self.floors.space.options
        frugal = max(options.tolist(), key=lambda option: (chosen[option].sharded, chosen[option].offload))
        fits = self.floors.memories(layouts, frugal) <= self.problem.capacity
        self.bounds[np.ix_(layouts[~fits], options)] = np.inf
        if fits.any():
            layouts, way = layouts[fits], key % len(self.floors.ways)
            self.floors.raise_times(way)
            self._layouts[key], self._work[key] = layouts, self.floors.floor(layouts[:1], way).work[0]
            places = np.ix_(layouts, options)
            bounds = self.floors.work_times(layouts, int(options[0]))
            self.bounds[places] = np.where(np.isfinite(self.bounds[places]), bounds[:, None], np.inf)
            heapq.heappush(self._heap, Item(float(self.bounds[places].min()), Stage.MEMORY, key))

    def _weigh(self, key: int) -> None:
        """Leave out the plans of a group that cannot fit, and bound the others."""
        layouts = self._layouts[key]
        for option in self._options(key).tolist():
            over = self.floors.memories(layouts, option) > self.problem.capacity
            self.bounds[layouts[over], option] = np.inf
        bound = self._lift(key, self._work[key])
        if math.isfinite(bound):
            heapq.heappush(self._heap, Item(bound, Stage.AXES, key))

    def fill(self, others: int, late: Callable[[], bool]) -> None:
        """Go on until there are as many plans of other kinds or it is ``late``, lowest bound first, with so much work at most;
        if they are not enough then, with plans whose shardings are known."""
        self.others, aside = others, {(each.layout, each.option) for _, each in self.aside}
        self.settled = [each for each in self.settled if (each[1].layout, each[1].option) not in aside]
        for bound, over in self.aside:
            self._queue(bound, over)
        most = self.model.spent + FILLING

        def enough() -> bool:
            return self.closed or len(self.best) > others or late()

        while not enough() and self.model.spent < most:
            self.step()
            most -= STEPPED
        while not enough() and (known := [item for item in self._heap if item.stage is Stage.SHARDED]):
            self._take(min(known).key)
            self._time(min(known).key)

    @property
    def unfit(self) -> float:
        """Plans for which no sharding that fits was found, nor that there is none, take no less [s]."""
        return min((bound for bound, timed in self.settled if math.isinf(timed.time)), default=math.inf)

    def _refine(self, key: int, stage: Stage) -> None:
        """Bound the plans of a group by what its layers take at least, roughly first: embedding and head are for those that are
        still good."""
        layouts, way, floor = self._layouts[key], self.floors.ways[key % len(self.floors.ways)], self._work[key]
        microbatch = int(self.floors.space.microbatch[layouts[0]])
        layers = self.model.layers(self._mesh(layouts[0]), microbatch, way, rough=stage is Stage.ROUGH)
        self.refined += stage is Stage.ROUGH
        self._work[key] = np.concatenate((floor[:1], np.maximum(floor[1:-1], layers), floor[-1:]))
        before = float(self.bounds[np.ix_(layouts, self._options(key))].min())
        bound = self._lift(key, self._work[key])
        if stage is Stage.ROUGH and math.isfinite(bound):
            self._lifts.setdefault(self._alike(key), []).append(bound / before)
        if math.isfinite(bound):
            heapq.heappush(self._heap, Item(bound, stage, key))

    def _lift(self, key: int, work: Floats) -> float:
        """Bound the plans of a group by what parts take at least [parts]; the lowest of the bounds [s]."""
        every, which = self._layouts[key], self._options(key)
        for option in which.tolist():
            rows = every[np.isfinite(self.bounds[every, option])]
            self.bounds[rows, option] = np.maximum(self.bounds[rows, option], self.floors.times(rows, option, work))
        return float(self.bounds[np.ix_(every, which)].min())

    def _open(self, key: int) -> None:
        """Find the shardings of a group, and bound its plans anew."""
        every, which = self._layouts[key], self._options(key)
        try:
            costs = self._solve(every[0], int(which[0]))
        except Infeasible:
            return
        self._lift(key, np.array(costs.least))
        bounds = self.bounds[np.ix_(every, which)]
        rows, columns = np.nonzero(np.isfinite(bounds))
        order = np.argsort(bounds[rows, columns], kind="stable")
        layouts, options = every[rows[order]], which[columns[order]]
        waiting, tight = np.ones(len(order), bool), np.zeros(len(order), bool)
        for option in which.tolist():
            own = options == option
            tight[own] = self.floors.memories(layouts[own], option, costs) > self.problem.capacity
        self._groups[key] = Group(costs, bounds[rows, columns][order], layouts, options, waiting, tight)
        self._line_up(key)

    def _mesh(self, layout: int) -> Communication:
        """The first communication with the mesh of a layout, so that what is found out for one serves all."""
        communication = self.floors.communications[self.floors.space.assignment[layout]]
        return self._meshes.setdefault(communication.model_key, communication)

    def _solve(self, layout: int, option: int, budget: MemoryBudget | None = None, resident: float | None = None) -> ModelCosts:
        space, way = self.floors.space, self.floors.ways[self.floors.way_of[option]]
        self.solved += 1
        return self.model.costs(self._mesh(layout), int(space.microbatch[layout]), way, budget, resident)

    def _line_up(self, key: int) -> None:
        """The group waits for its first plan that may fit, those before it for other shardings; without one it is done."""
        group = self._groups[key]
        waiting = np.flatnonzero(group.waiting & ~group.tight)
        ahead = np.flatnonzero(group.waiting[: waiting[0] if waiting.size else None])
        group.waiting[ahead] = False
        for row in ahead.tolist():
            over = OverCapacity(int(group.layouts[row]), int(group.options[row]), group.costs, group.costs.bound)
            self._queue(float(group.bounds[row]), over)
        if waiting.size:
            heapq.heappush(self._heap, Item(float(group.bounds[waiting[0]]), Stage.SHARDED, key))
        else:
            del self._groups[key]

    def _time(self, key: int) -> None:
        """Time the first plan that waits, and those of the group that share its pipeline."""
        group, space = self._groups[key], self.floors.space
        first = int(np.flatnonzero(group.waiting & ~group.tight)[0])
        layout, option = group.layouts[first], group.options[first]
        chosen = group.waiting & ~group.tight & (group.options == option) & (group.bounds < self.threshold)
        for column in (space.stages, space.chunks, space.gpipe):
            chosen &= column[group.layouts] == column[layout]
        chosen[first] = True
        rows = np.flatnonzero(chosen)
        layouts = group.layouts[rows]
        times = self._evaluate(layouts, int(option), group.costs)
        group.waiting[rows] = False
        for row, each, taken in zip(rows, layouts.tolist(), times.tolist(), strict=True):
            if math.isfinite(taken):
                self._record(Timed(taken, each, int(option), group.costs, group.costs.bound))
            else:
                self._queue(float(group.bounds[row]), OverCapacity(each, int(option), group.costs, group.costs.bound))
        self._line_up(key)

    def _evaluate(self, layouts: Integers, option: int, costs: ModelCosts) -> Floats:
        """[plans] times of iterations [s] of plans that share a pipeline; inf where a chip has not enough memory."""
        space, chosen = self.floors.space, self.floors.space.options[option]
        batch = Batch(space.pipeline(int(layouts[0])), chosen.sharded, chosen.offload)
        cases = [Case(self.floors.communications[each], costs) for each in space.assignment[layouts]]
        self.timed += len(cases)
        return times_that_fit(self.problem, batch, cases)

    def _record(self, found: Timed) -> None:
        # other shardings of the plan may take as little as its bound
        self.settled.append((float(self.bounds[found.layout, found.option]), found))
        self._keep(found)

    def _keep(self, found: Timed) -> None:
        """If it is the best of its kind."""
        kind = self.floors.space.kind(found.layout, found.option)
        known = self.best.get(kind)
        if known is None or found.time < known.time:
            self.best[kind] = found

    def _queue(self, bound: float, over: OverCapacity) -> None:
        self.over_capacity.append(over)
        heapq.heappush(self._heap, Item(bound, Stage.OVER_CAPACITY, len(self.over_capacity) - 1))

    def _reshard(self, bound: float, over: OverCapacity) -> None:
        """Bound a plan that does not fit by its longest path; then find its shardings again, for the memory that is left on the
        stage that has least: first beside what all shardings work in, which tells whether any fits; then beside what those at
        hand work in. What that takes is little for the first and much for the others: where the bound rises, they wait."""
        layout, option, costs = over.layout, over.option, over.costs
        if over.tries > 0:
            found = self._found_again(over)
            if found is None:
                # with the first budget no sharding fits; with others, none of those that were tried
                if over.tries > 1:
                    self.settled.append((bound, Timed(math.inf, layout, option, costs, over.least)))
                return
            costs = found
        proven = max(over.least, costs.bound) if over.tries <= 1 else over.least
        if proven > over.least or over.tries == 0:
            bound = max(bound, self._bound_of(Timed(math.inf, layout, option, costs, proven), self.threshold))
        self.bounds[layout, option] = bound
        open_still = bound < self.threshold
        taken = float(self._evaluate(np.array([layout]), option, costs)[0]) if open_still and over.tries > 0 else math.inf
        if math.isfinite(taken):
            self._record(Timed(taken, layout, option, costs, proven))
        elif open_still and over.tries <= TRIES:
            self._queue(bound, OverCapacity(layout, option, costs, proven, over.tries + 1))
        else:
            self.settled.append((bound, Timed(math.inf, layout, option, costs, proven)))
            if not open_still:
                self.aside.append((bound, OverCapacity(layout, option, costs, proven, over.tries + 1)))

    def _found_again(self, over: OverCapacity) -> ModelCosts | None:
        """Costs under shardings for the memory that is left beside those that a plan had; None where none fits."""
        layout, option = over.layout, over.option
        floors, way = self.floors, self.floors.way_of[option]
        case = Case(floors.communications[floors.space.assignment[layout]], over.costs)
        floor = floors.floor(np.array([layout]), way)
        least = (floor.working[0], floor.parameters[0]) if over.tries == 1 else None
        budget, resident = budget_left(self.problem, floors.space.plan(layout, option), case, least)
        group = int(floors.cell[layout]), way
        return self._budgets.costs(group, budget, resident, partial(self._solve, layout, option))

    def settle(self) -> None:
        """Bound the other shardings of the plans that were timed, and of those that did not fit, those of the lowest bound first,
        until one stays below all that are left, open ones too."""
        best, lowest = self.incumbent, min(self.incumbent, self.bound)
        for place in sorted(range(len(self.settled)), key=lambda place: self.settled[place][0]):
            bound, timed = self.settled[place]
            if bound >= lowest:
                return
            target = min(best, timed.time)
            found = max(bound, min(timed.time, self._bound_of(timed, target)))
            if found < target:
                found, timed = self._closer(found, timed, target)
                best = min(best, timed.time)
            self.settled[place], lowest = (found, timed), min(lowest, found)

    def _bound_of(self, timed: Timed, target: float) -> float:
        """What a plan takes at least [s], under any shardings that fit, looked for until it reaches ``target`` [s]."""
        return bound_of(self.floors, timed, target, self._proofs)

    def _closer(self, bound: float, timed: Timed, target: float) -> tuple[float, Timed]:
        """A better bound of a plan [s], and the plan with better shardings where there are any."""
        layout, option, way = timed.layout, timed.option, self.floors.way_of[timed.option]
        proof, floor, mesh = proof_of(self.floors, timed), self.floors.floor(np.array([layout]), way), self._mesh(layout)
        case = Case(proof.communication, timed.costs)
        budget, resident = budget_left(self.problem, proof.plan, case, (floor.working[0], floor.parameters[0]))

        def solve(passes: Passes, most: Floats) -> tuple[float, ModelCosts] | None:
            return self.model.along(mesh, proof.plan.microbatch, self.floors.ways[way], passes, budget, resident, most)

        plan = np.array([layout])
        found = closer(proof, timed.time, target, solve, lambda costs: float(self._evaluate(plan, option, costs)[0]))
        if found.time < timed.time:
            timed = timed._replace(time=found.time, costs=found.costs)
            self._keep(timed)
        return max(bound, min(timed.time, found.bound)), timed
