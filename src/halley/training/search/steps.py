"""State and steps of the search for training plans.

Every plan of the space has a lower bound over all shardings. The search processes the lowest bound first:

    group     plans with one mesh, microbatch, recomputation and attention kernel: those over capacity are pruned; the others
              are bounded by single axes of the mesh; then each plan by its layers; then their shardings are found, and
              bounds rise
    plan      its iteration is timed exactly, together with plans of the same pipeline in its group
    over      a plan whose fastest shardings do not fit: it is sharded again within the remaining memory

It ends when no bound is below the best time: all other plans take longer. Other shardings of the timed plans are bounded last,
by `halley.training.search.proof`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from halley.errors import Infeasible
from halley.optim.branch_and_bound import LowestFirst, divide, explored
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.sharding.communication import Communication
from halley.training.cost import Batch, PlanInputs, budget_left, times_that_fit
from halley.training.part_costs import MemoryBudget, ModelCosts
from halley.training.plan import Plan, TrainingProblem
from halley.training.search.budgets import Budgets
from halley.training.search.floors import PlanFloors
from halley.training.search.items import ItemStage, OverCapacityPlan, PlanGroup, SearchItem, Timed
from halley.training.search.paths import bound_of, proof_of, tightened_bound
from halley.training.sharded_model import CostModel, Passes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RELATIVE_ROUNDING = 1e-12
"""Relative difference of times that counts as rounding."""

ALTERNATIVES_ENTRIES = 1 << 30
"""Effort limit of the search for plans of other kinds after the proof, in entries of tables: a second or two."""

ENTRIES_PER_STEP = 1 << 20
"""Time of a step other than shardings, in entries."""

MAX_TIMED_PIPELINES, MAX_EARLY_SHARDINGS = 200, 4
"""Largest number of pipelines timed in one group to find a first plan; and of shardings solved outside the order of bounds to
improve the incumbent."""

MAX_RESHARDINGS = 4
"""How often a plan over capacity is sharded again; after that, it counts with its bound."""


@dataclass(slots=True, eq=False)
class TrainingSearch:
    """A search that can be stopped and inspected. ``cutoff`` [s]: time of a plan found elsewhere; slower ones are pruned.
    ``best``: by kind of plan, the fastest found. Numbers so far: groups ``refined`` by bounds of their layers, shardings of
    the whole model ``solved``, plans ``timed``. ``timed_plans``: timed or abandoned plans with their bounds. ``postponed``:
    with their bounds, plans over capacity that cannot be the best; the search for plans of other kinds continues with them.
    ``stopped``: whether a time limit has passed, for steps of many parts."""

    problem: TrainingProblem
    floors: PlanFloors
    model: CostModel
    others: int = 0
    cutoff: float = math.inf
    best: dict[tuple[object, ...], Timed] = field(default_factory=dict)
    bounds: Floats = field(default_factory=lambda: np.empty((0, 0)))
    first: float = math.inf
    solved: int = 0
    refined: int = 0
    timed: int = 0
    over_capacity: list[OverCapacityPlan] = field(default_factory=list)
    timed_plans: list[tuple[float, Timed]] = field(default_factory=list)
    postponed: list[tuple[float, OverCapacityPlan]] = field(default_factory=list)
    stopped: Callable[[], bool] = lambda: False
    _open: LowestFirst[SearchItem] = field(init=False)
    _groups: dict[int, PlanGroup] = field(default_factory=dict)
    _budgets: Budgets = field(default_factory=Budgets)
    _layouts: dict[int, Integers] = field(default_factory=dict)
    _work: dict[int, Floats] = field(default_factory=dict)
    _bound_ratios: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    _proofs: dict[object, tuple[float, float]] = field(default_factory=dict)
    _meshes: dict[object, Communication] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._open = LowestFirst((), lambda bound: bound >= self.threshold * (1 - RELATIVE_ROUNDING))

    def start(self) -> None:
        """Bounds all plans by their work, and queues their groups. Raises TimeIsUp: the deadline of the floors passed."""
        space, floors, allowed = self.floors.space, self.floors, self.floors.space.allowed
        self.bounds = np.full((space.layouts, len(space.options)), np.inf)
        for variant in range(len(floors.variants)):
            floors.deadline.check()
            options = floors.options[variant]
            layouts = np.flatnonzero(allowed[:, options].any(axis=1))
            bounds = floors.work_times(layouts, int(options[0]))
            self.bounds[np.ix_(layouts, options)] = np.where(allowed[np.ix_(layouts, options)], bounds[:, None], np.inf)
            order = np.argsort(floors.cell[layouts], kind="stable")
            starts = np.flatnonzero(np.diff(floors.cell[layouts[order]], prepend=-1))
            for rows in np.split(order, starts[1:]) if len(order) else []:
                key = int(floors.cell[layouts[rows[0]]]) * len(floors.variants) + variant
                self._layouts[key] = layouts[rows]
                self._open.add(SearchItem(float(bounds[rows].min()), ItemStage.WORK, key))
        self.first = self.bound

    def _options(self, key: int) -> Integers:
        """The numbers of a group's options."""
        return self.floors.options[key % len(self.floors.variants)]

    @property
    def incumbent(self) -> float:
        """The best time so far [s]; inf before the first plan."""
        return min((each.time for each in self.best.values()), default=math.inf)

    @property
    def threshold(self) -> float:
        """Time [s] above which plans are pruned, also as alternatives."""
        times = sorted(each.time for each in self.best.values())
        return min(times[self.others] if len(times) > self.others else math.inf, self.cutoff)

    @property
    def bound(self) -> float:
        """Lower bound of all open plans [s]."""
        return self._open.bound

    @property
    def least(self) -> float:
        """Lower bound of all plans of the space under any sharding [s]."""
        return min((self.bound, *(bound for bound, _ in self.timed_plans)))

    @property
    def share(self) -> float:
        """Closed share of the gap between the first bound and the best time, from 0 to 1."""
        if not self.best or not math.isfinite(self.bound):
            return 0.0 if not self.best else 1.0
        return min(1.0, max(0.0, (self.bound - self.first) / max(self.threshold - self.first, 1e-30)))

    @property
    def closed(self) -> bool:
        """Whether all open plans are pruned by their bound."""
        return self._open.closed

    def steps(self, stop: Callable[[], bool] = lambda: False) -> Iterator[SearchItem]:
        """Processes the item of lowest bound, step by step until the search is `closed` or to ``stop``."""
        return explored(self._open, self._process, stop)

    def _process(self, item: SearchItem) -> Iterable[SearchItem]:
        self.floors.deadline.check()
        match item.stage:
            case ItemStage.WORK:
                return self._prune_groups_by_memory(item.key)
            case ItemStage.MEMORY:
                return self._raised_by_axes(item) or self._prune_plans_by_memory(item.key)
            case ItemStage.AXES:
                return self._refine(item.key, ItemStage.ROUGH)
            case ItemStage.ROUGH:
                return self._refine(item.key, ItemStage.LAYERS)
            case ItemStage.LAYERS:
                return self._shard_group(item.key)
            case ItemStage.SHARDED:
                return self._time(item.key)
            case ItemStage.OVER_CAPACITY:
                return self._reshard(item.bound, self.over_capacity[item.key])
            case _:
                assert_never(item.stage)

    def _process_early(self, item: SearchItem, work: Callable[[int], Iterable[SearchItem]] | None = None) -> None:
        """Processes an open item outside the order of bounds. ``work``: of its key, if not what its stage asks for."""
        self.floors.deadline.check()
        self._open.remove(item)
        divide(self._open, item, self._process if work is None else lambda each: work(each.key))

    def add_timed(self, plan: Plan, found: Timed) -> bool:
        """Adds a plan that was timed elsewhere, and takes it from the open ones; whether the space has it."""
        place = self.floors.space.find(plan)
        if place is None:
            return False
        self._record(found._replace(layout=place[0], option=place[1]))
        self.bounds[place] = np.inf
        return True

    def find_first_plan(self, raised: bool = True) -> None:
        """Looks for a first plan: among the groups with equally many chips per op, from few to many, in the one with least
        memory. ``raised`` False: groups keep the less tight bounds that are known without their kernels, as time is short."""
        ranks = {item.key: self._mesh(self._layouts[item.key][0]).ranks(Role.MODEL) for item in self._waiting()}
        for number in sorted(set(ranks.values())):
            for item in [item for item in self._waiting() if ranks[item.key] == number and item.stage is ItemStage.WORK]:
                self._process_early(item, lambda key: self._prune_groups_by_memory(key, raised))
            waiting = [item for item in self._waiting() if ranks[item.key] == number]
            for item in sorted(waiting, key=lambda item: self._saved_rank(item.key))[:1]:
                self._time_group(item)
            if self.best or self.stopped():
                return

    def _expected_bound(self, item: SearchItem) -> float:
        """A group's expected bound with known layers: it rises as it did for groups with as many axes and the same variant."""
        known = self._bound_ratios.get(self._group_class(item.key), [])
        return item.bound * (math.fsum(known) / len(known) if known else 1.0)

    def _group_class(self, key: int) -> tuple[int, int]:
        return len(self._mesh(self._layouts[key][0]).mesh), key % len(self.floors.variants)

    def improve_incumbent(self) -> None:
        """Looks for a better plan outside the order of bounds: bounds the layers of the most promising groups; then processes
        the lowest bounds among the groups with known layers."""
        for _ in range(MAX_EARLY_SHARDINGS):
            if self.stopped() or not (left := [item for item in self._open if item.stage < ItemStage.ROUGH]):
                break
            self._bound_layers(min(left, key=self._expected_bound))
        before, until = self.incumbent, self.solved + MAX_EARLY_SHARDINGS
        for _ in range(MAX_TIMED_PIPELINES):
            known = min((item for item in self._open if item.stage >= ItemStage.ROUGH), default=None)
            if known is None or known.bound >= before or self.incumbent < before or self.solved >= until or self.stopped():
                return
            self._process_early(known)

    def _bound_layers(self, item: SearchItem | None) -> None:
        """Bounds the layers of a group, unless it is pruned before."""
        while item is not None and item.stage < ItemStage.ROUGH and item.bound < self.threshold and not self.stopped():
            self._process_early(item)
            item = self._item_of(item.key)

    def _time_group(self, item: SearchItem) -> None:
        """Shards a group and times its plans until one fits."""
        stages: list[Callable[[int], Iterable[SearchItem]]] = [self._prune_plans_by_memory, self._shard_group]
        for work in stages + [self._time] * MAX_TIMED_PIPELINES:
            self._process_early(item, work)
            left = self._item_of(item.key)
            if self.best or left is None:
                return
            item = left

    def _saved_rank(self, key: int) -> tuple[int, int]:
        """Orders groups by their saved activations: recomputation, and sequences of a microbatch."""
        variant = self.floors.variants[key % len(self.floors.variants)]
        return -list(Recompute).index(variant.recompute), int(self.floors.space.microbatch[self._layouts[key][0]])

    def _waiting(self) -> list[SearchItem]:
        """The groups without shardings."""
        return [item for item in self._open if item.stage < ItemStage.SHARDED]

    def _item_of(self, key: int) -> SearchItem | None:
        """The open item of a group."""
        return next((item for item in self._open if item.key == key and item.stage is not ItemStage.OVER_CAPACITY), None)

    def _raised_by_axes(self, item: SearchItem) -> list[SearchItem]:
        """A group with a higher bound, from some axes of its mesh; nothing if none is higher."""
        floors, layouts, variant = self.floors, self._layouts[item.key], item.key % len(self.floors.variants)
        given = self._mesh(layouts[0]), int(floors.space.microbatch[layouts[0]]), floors.variants[variant]
        floor, excess = self._work[item.key], floors.floor(layouts[:1], variant).excess[0, 1:-1]
        for layers in self.model.tighter(*given):
            work = np.concatenate((floor[:1], np.maximum(floor[1:-1], layers + excess), floor[-1:]))
            bound = float(floors.work_times(layouts, int(floors.options[variant][0]), work).min())
            if bound > item.bound * (1 + RELATIVE_ROUNDING):
                self._work[item.key] = work
                return [item._replace(bound=bound)]
        return []

    def _prune_groups_by_memory(self, key: int, raised: bool = True) -> Iterator[SearchItem]:
        """Prunes layouts of a group that fit with none of the options, and bounds the work of the others by their kernels,
        equally for all options. ``raised`` False: by their kernels at the rates of the chip, which is faster and less tight."""
        layouts, options, chosen = self._layouts[key], self._options(key), self.floors.space.options
        fits = np.zeros(len(layouts), dtype=bool)
        # those that probably need least first; none needs least everywhere: parameters that are sharded are gathered again
        for option in sorted(options.tolist(), key=lambda at: (chosen[at].offload, chosen[at].sharded), reverse=True):
            left = np.flatnonzero(~fits)
            if not len(left):
                break
            self.floors.deadline.check()
            fits[left] = self.floors.memories(layouts[left], option) <= self.problem.capacity
        self.bounds[np.ix_(layouts[~fits], options)] = np.inf
        if fits.any():
            layouts, variant = layouts[fits], key % len(self.floors.variants)
            if raised:
                self.floors.raise_times(variant, int(layouts[0]))
            self._layouts[key], self._work[key] = layouts, self.floors.floor(layouts[:1], variant).work[0]
            places = np.ix_(layouts, options)
            bounds = self.floors.work_times(layouts, int(options[0]))
            self.bounds[places] = np.where(np.isfinite(self.bounds[places]), bounds[:, None], np.inf)
            yield SearchItem(float(self.bounds[places].min()), ItemStage.MEMORY, key)

    def _prune_plans_by_memory(self, key: int) -> Iterator[SearchItem]:
        """Prunes the plans of a group that cannot fit, and bounds the others."""
        layouts = self._layouts[key]
        for option in self._options(key).tolist():
            over = self.floors.memories(layouts, option) > self.problem.capacity
            self.bounds[layouts[over], option] = np.inf
        bound = self._raise_bounds(key, self._work[key])
        if math.isfinite(bound):
            yield SearchItem(bound, ItemStage.AXES, key)

    def find_alternatives(self, others: int, late: Callable[[], bool]) -> None:
        """Continues, lowest bound first, until there are ``others`` plans of other kinds, it is ``late``, or the effort limit
        is reached; in the last case with groups whose shardings are known."""
        self.others, aside = others, {(each.layout, each.option) for _, each in self.postponed}
        self.timed_plans = [each for each in self.timed_plans if (each[1].layout, each[1].option) not in aside]
        for bound, over in self.postponed:
            self._open.add(self._over_capacity_item(bound, over))
        most = self.model.spent + ALTERNATIVES_ENTRIES

        def enough() -> bool:
            return self.closed or len(self.best) > others or late()

        for steps, _ in enumerate(self.steps(enough), start=1):
            if self.model.spent + steps * ENTRIES_PER_STEP >= most:
                break
        while not enough() and (known := [item for item in self._open if item.stage is ItemStage.SHARDED]):
            self._process_early(min(known))

    @property
    def unfit(self) -> float:
        """Lower bound [s] of the plans for which neither a sharding that fits was found nor infeasibility was proven."""
        return min((bound for bound, timed in self.timed_plans if math.isinf(timed.time)), default=math.inf)

    def _refine(self, key: int, stage: ItemStage) -> Iterator[SearchItem]:
        """Bounds the plans of a group by bounds of its layers, rough ones first; embedding and head follow when it is sharded."""
        layouts, variant, floor = self._layouts[key], self.floors.variants[key % len(self.floors.variants)], self._work[key]
        microbatch = int(self.floors.space.microbatch[layouts[0]])
        layers = self.model.layers(self._mesh(layouts[0]), microbatch, variant, rough=stage is ItemStage.ROUGH)
        self.refined += stage is ItemStage.ROUGH
        self._work[key] = np.concatenate((floor[:1], np.maximum(floor[1:-1], layers), floor[-1:]))
        before = float(self.bounds[np.ix_(layouts, self._options(key))].min())
        bound = self._raise_bounds(key, self._work[key])
        if stage is ItemStage.ROUGH and math.isfinite(bound):
            self._bound_ratios.setdefault(self._group_class(key), []).append(bound / before)
        if math.isfinite(bound):
            yield SearchItem(bound, stage, key)

    def _raise_bounds(self, key: int, work: Floats) -> float:
        """Bounds the plans of a group by lower bounds of the parts [parts]; returns the lowest of the bounds [s]."""
        every, which = self._layouts[key], self._options(key)
        for option in which.tolist():
            rows = every[np.isfinite(self.bounds[every, option])]
            self.bounds[rows, option] = np.maximum(self.bounds[rows, option], self.floors.times(rows, option, work))
        return float(self.bounds[np.ix_(every, which)].min())

    def _shard_group(self, key: int) -> Iterator[SearchItem]:
        """Finds the shardings of a group, and bounds its plans with them."""
        every, which = self._layouts[key], self._options(key)
        try:
            costs = self._solve(every[0], int(which[0]))
        except Infeasible:
            return
        self._raise_bounds(key, np.array(costs.least))
        bounds = self.bounds[np.ix_(every, which)]
        rows, columns = np.nonzero(np.isfinite(bounds))
        order = np.argsort(bounds[rows, columns], kind="stable")
        layouts, options = every[rows[order]], which[columns[order]]
        waiting, tight = np.ones(len(order), bool), np.zeros(len(order), bool)
        for option in which.tolist():
            own = options == option
            tight[own] = self.floors.memories(layouts[own], option, costs) > self.problem.capacity
        self._groups[key] = PlanGroup(costs, bounds[rows, columns][order], layouts, options, waiting, tight)
        yield from self._group_items(key)

    def _mesh(self, layout: int) -> Communication:
        """The first communication with the mesh of a layout, so that results are shared between equal meshes."""
        communication = self.floors.communications[self.floors.space.assignment[layout]]
        return self._meshes.setdefault(communication.model_key, communication)

    def _solve(self, layout: int, option: int, budget: MemoryBudget | None = None, resident: float | None = None) -> ModelCosts:
        space, variant = self.floors.space, self.floors.variants[self.floors.variant_of[option]]
        self.solved += 1
        return self.model.costs(self._mesh(layout), int(space.microbatch[layout]), variant, budget, resident)

    def _group_items(self, key: int) -> Iterator[SearchItem]:
        """The group at its first plan that may fit, and the plans before it, which need other shardings. A group without one is
        done."""
        group = self._groups[key]
        waiting = np.flatnonzero(group.waiting & ~group.tight)
        ahead = np.flatnonzero(group.waiting[: waiting[0] if waiting.size else None])
        group.waiting[ahead] = False
        for row in ahead.tolist():
            over = OverCapacityPlan(int(group.layouts[row]), int(group.options[row]), group.costs, group.costs.bound)
            yield self._over_capacity_item(float(group.bounds[row]), over)
        if waiting.size:
            yield SearchItem(float(group.bounds[waiting[0]]), ItemStage.SHARDED, key)
        else:
            del self._groups[key]

    def _time(self, key: int) -> Iterator[SearchItem]:
        """Times the first waiting plan, and those of the group that share its pipeline."""
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
                over = OverCapacityPlan(each, int(option), group.costs, group.costs.bound)
                yield self._over_capacity_item(float(group.bounds[row]), over)
        yield from self._group_items(key)

    def _evaluate(self, layouts: Integers, option: int, costs: ModelCosts) -> Floats:
        """[plans] times of iterations [s] of plans that share a pipeline; inf where a chip does not have enough memory."""
        space, chosen = self.floors.space, self.floors.space.options[option]
        batch = Batch(space.pipeline(int(layouts[0])), chosen.sharded, chosen.offload)
        cases = [PlanInputs(self.floors.communications[each], costs) for each in space.assignment[layouts]]
        self.timed += len(cases)
        return times_that_fit(self.problem, batch, cases)

    def _record(self, found: Timed) -> None:
        # under other shardings the plan may be as fast as its bound
        self.timed_plans.append((float(self.bounds[found.layout, found.option]), found))
        self._update_best(found)

    def _update_best(self, found: Timed) -> None:
        """Records a plan that is the best of its kind."""
        kind = self.floors.space.kind(found.layout, found.option)
        known = self.best.get(kind)
        if known is None or found.time < known.time:
            self.best[kind] = found

    def _over_capacity_item(self, bound: float, over: OverCapacityPlan) -> SearchItem:
        self.over_capacity.append(over)
        return SearchItem(bound, ItemStage.OVER_CAPACITY, len(self.over_capacity) - 1)

    def _reshard(self, bound: float, over: OverCapacityPlan) -> Iterator[SearchItem]:
        """Bounds a plan over capacity by its longest path. Then shards it again for the memory that remains on its fullest
        stage: first beside the least working memory of any sharding, which decides whether any fits; then beside that of its
        current shardings. The first takes little time, the others much: plans whose bound rises are queued again."""
        layout, option, costs = over.layout, over.option, over.costs
        if over.tries > 0:
            found = self._resharded_costs(over)
            if found is None:
                # with the first budget that proves that no sharding fits; with others only that none of those tried does
                if over.tries > 1:
                    self.timed_plans.append((bound, Timed(math.inf, layout, option, costs, over.least)))
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
        elif open_still and over.tries <= MAX_RESHARDINGS:
            yield self._over_capacity_item(bound, OverCapacityPlan(layout, option, costs, proven, over.tries + 1))
        else:
            self.timed_plans.append((bound, Timed(math.inf, layout, option, costs, proven)))
            if not open_still:
                self.postponed.append((bound, OverCapacityPlan(layout, option, costs, proven, over.tries + 1)))

    def _resharded_costs(self, over: OverCapacityPlan) -> ModelCosts | None:
        """Costs under shardings for the memory that the plan's previous ones leave; None where none fits."""
        layout, option = over.layout, over.option
        floors, variant = self.floors, self.floors.variant_of[option]
        case = PlanInputs(floors.communications[floors.space.assignment[layout]], over.costs)
        floor = floors.floor(np.array([layout]), variant)
        least = (floor.working[0], floor.parameters[0]) if over.tries == 1 else None
        budget, resident = budget_left(self.problem, floors.space.plan(layout, option), case, least)
        group = int(floors.cell[layout]), variant
        return self._budgets.costs(group, budget, resident, partial(self._solve, layout, option))

    def bound_timed_plans(self) -> None:
        """Bounds the other shardings of timed plans and of those that did not fit, lowest bound first, until one stays below
        all remaining bounds, open ones included."""
        best, lowest = self.incumbent, min(self.incumbent, self.bound)
        for place in sorted(range(len(self.timed_plans)), key=lambda place: self.timed_plans[place][0]):
            bound, timed = self.timed_plans[place]
            if bound >= lowest or self.stopped():
                return
            target = min(best, timed.time)
            found = max(bound, min(timed.time, self._bound_of(timed, target)))
            if found < target:
                found, timed = self._tighten(found, timed, target)
                best = min(best, timed.time)
            self.timed_plans[place], lowest = (found, timed), min(lowest, found)

    def _bound_of(self, timed: Timed, target: float) -> float:
        """Lower bound of a plan [s] under any shardings that fit, improved until it reaches ``target`` [s]."""
        return bound_of(self.floors, timed, target, self._proofs)

    def _tighten(self, bound: float, timed: Timed, target: float) -> tuple[float, Timed]:
        """A better bound of a plan [s], and the plan with better shardings where there are any."""
        layout, option, variant = timed.layout, timed.option, self.floors.variant_of[timed.option]
        proof, floor, mesh = proof_of(self.floors, timed), self.floors.floor(np.array([layout]), variant), self._mesh(layout)
        case = PlanInputs(proof.communication, timed.costs)
        budget, resident = budget_left(self.problem, proof.plan, case, (floor.working[0], floor.parameters[0]))

        def solve(passes: Passes, most: Floats) -> tuple[float, ModelCosts] | None:
            return self.model.along(mesh, proof.plan.microbatch, self.floors.variants[variant], passes, budget, resident, most)

        plan = np.array([layout])
        found = tightened_bound(proof, timed.time, target, solve, lambda costs: float(self._evaluate(plan, option, costs)[0]))
        if found.time < timed.time:
            timed = timed._replace(time=found.time, costs=found.costs)
            self._update_best(timed)
        return max(bound, min(timed.time, found.bound)), timed
