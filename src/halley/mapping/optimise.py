"""Solve a problem to proven optimality: partitions of the kernels into fused groups, with an exact search of each group."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from halley.answer import ROUNDING_GAP, Status, relative_gap
from halley.cost.checks import check_bursts, check_engines
from halley.cost.evaluate import evaluate
from halley.cost.figures import UNITS
from halley.errors import BadInput, Fault, Infeasible, InternalError, SearchStopped
from halley.ir.workload import Workload
from halley.mapping.baselines import BEST, AdmittedShapes, Restriction, wanted
from halley.mapping.bounds.incumbents import BOUND_ROUNDING, Frontier, Values
from halley.mapping.bounds.progress import Interrupted, SearchCounter
from halley.mapping.declared_space import OP_BY_OP, SPACE, left_out
from halley.mapping.group_order import Candidates, ObjectiveOf, limiting, most_promising, worst_mapping
from halley.mapping.groups import FusedGroup, FusedGroups
from halley.mapping.infeasible import check_operands, check_outer_memory, tightest
from halley.mapping.plans import Picks, Plans, plan_tree
from halley.mapping.problem import Objective, Problem, objective_value
from halley.mapping.result import Clause, MappingCertificate, Point, Result, Solution
from halley.mapping.solve.spare_buffers import with_spare_buffers
from halley.mapping.solve.ties import EQUAL
from halley.mapping.space.affine import check_indices
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.partitions import (
    Breadth,
    Kernels,
    Partitions,
    before,
    divided,
    every_partition,
    group_ops,
    in_order,
    op_by_op,
    spans,
)
from halley.mapping.space.unit_dims import without_unit_dims
from halley.rewrite.legality import faults as legality_faults
from halley.units import counted
from halley.workloads import variants

Progress = Callable[[str, float], None]
"""Called with a line of text and the fraction of the work that is done."""

RELATIVE_ROUNDING = 1e-9
"""Relative difference below which two values count as equal."""

EQUAL_UNPROVEN = 1e-3
"""The same among mappings of an answer that is not proven: a small last tile may cost more, and only the simulation shows it."""

MAX_KERNELS_SEARCHED_AT_ONCE = 3
"""Workloads with more kernels are searched kernel by kernel first: groups of several kernels take long, and the plan should never
be slower than the kernels one after the other."""

GAP_OF_FIRST_SEARCH = 0.3
"""Relative gap to which single kernels of workloads with many are searched first: proofs of all of them take long, and say little
while groups of several kernels are open. First mappings of large products are some 10 % above the best one, and their compulsory
bounds 10 % below it."""

GAP_OF_LIMITING_GROUPS = 0.1
"""Relative gap to which the groups that limit the bound of the best plan are searched next, kernels and groups of several: the
last per cents take most of the time, and only matter when no group limits the bound by more."""

OVERTIME_FACTOR, OVERTIME = 1.025, 0.25
"""Factor of the time limit, and seconds in addition, within which a search that is over its limit may still find first plans of
baselines, improve its best plan, and break ties."""

INTERRUPTED = "interrupted"
"""Reason for the end of a search after Ctrl-C."""


def optimise(problem: Problem, progress: Progress | None = None) -> Result:
    """The best plan with its certificate, and the baselines in restricted spaces.

    Ctrl-C or the time limit gives the best so far with a true bound (status `LIMIT`). Raises SearchStopped where there is none
    yet; Infeasible, naming the resource, where no mapping of the space fits; BadInput where the chip lacks an engine or a memory
    that the ops need, or no baseline has that name, or the problem is none.
    """
    if not isinstance(problem, Problem):
        remedy = "write halley.Problem(workload, chip)"
        raise BadInput(Fault("optimise, problem", "a Problem", f"a {type(problem).__name__}", remedy))
    if progress is not None and not callable(progress):
        raise BadInput(Fault("optimise, progress", "a function of a text and a share", repr(progress)))
    with _rare_collections():
        return _Optimiser(problem, wanted(problem), progress).run()


Places = Mapping[FusedGroup, Sequence[tuple[Plans, Kernels]]]
"""Where plans have each group: it may stand for several sets of kernels that are equal but for names."""


ALLOCATIONS_PER_COLLECTION = 2_000_000
"""Net number of new objects after which a search collects garbage: some 200 MB."""

MANY_OBJECTS = 200_000
"""Net number of new objects from which on a collection after a search takes more than some hundredths of a second."""

_collections_before: int | None = None
"""Number of full collections of this process when a search last left many objects; None if none has."""


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Less frequent garbage collection: a search makes millions of small objects with few cycles, and collecting after every few
    hundred allocations would take a sixth of its time, after every 200,000 a tenth.

    What a long search leaves is collected when the next one begins, not when it ends: that takes up to a tenth of its time, and
    many processes run one search."""
    global _collections_before
    before = gc.get_threshold()
    if _collections_before == _full_collections():
        gc.collect()
    gc.set_threshold(ALLOCATIONS_PER_COLLECTION, before[1], before[2])
    try:
        yield
    finally:
        if gc.get_count()[0] > MANY_OBJECTS and not gc.get_freeze_count():  # frozen objects of the caller must stay so
            gc.freeze()  # both together make all objects old, without a look at them
            gc.unfreeze()
            _collections_before = _full_collections()
        gc.set_threshold(*before)


def _full_collections() -> int:
    return int(gc.get_stats()[-1]["collections"])


def _proven(gap: float) -> Status:
    """How a search ended that proved this gap."""
    return Status.OPTIMAL if gap <= ROUNDING_GAP else Status.WITHIN


@dataclass(slots=True)
class _Optimiser:
    problem: Problem
    baselines: tuple[Restriction, ...]
    progress: Progress | None
    started: float = field(default_factory=time.monotonic)
    tally: SearchCounter = field(default_factory=SearchCounter)
    groups: FusedGroups = field(init=False)
    given: dict[str, Workload] = field(init=False)
    variants: tuple[Workload, ...] = field(init=False)
    added: tuple[Workload, ...] = ()
    breadths: set[Breadth] = field(default_factory=set)
    searched: set[str] = field(default_factory=set)
    stopped: str = ""
    known: str = ""
    planned: int = 1
    finished: int = 0
    _partitions: dict[tuple[str, bool], Partitions] = field(default_factory=dict)
    _plans: dict[str, list[Plans]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_indices(self.problem.workload)
        check_engines(self.problem.workload, self.problem.chip, (op.name for op in self.problem.workload.ops))
        check_bursts(self.problem.workload, self.problem.chip)
        check_outer_memory(self.problem)
        self.groups = FusedGroups(self.problem, self.objectives, self.goals, self.gap, self.tally)
        given = (self.problem.workload,) if self.problem.fixed_variant else variants(self.problem.workload)
        self.given = {workload.variant: workload for workload in given}
        self.variants = tuple(map(without_unit_dims, given))
        check_operands(self.problem, self.variants)
        for workload in self.variants:
            self._partitions[workload.variant, workload.divisible], breadth = every_partition(workload)
            self.breadths.add(breadth)
        if any(restriction.by_op for restriction in self.baselines):
            self.added = tuple(cut for workload in self.variants if (cut := divided(workload)) is not workload)
        for workload in self.added:
            self._partitions[workload.variant, workload.divisible] = op_by_op(workload)

    def run(self) -> Result:
        self.tally.tick = self._tick
        try:
            self._search()
            if self.gap:
                self._descend(self._tick)
            for restriction in self.baselines:
                self._search_baseline(restriction)
        except Interrupted as stop:
            self.stopped = str(stop)
            with suppress(KeyboardInterrupt):
                self._descend(self._tick_after_limit)
            self._first_plans()
        except KeyboardInterrupt:
            self.stopped = INTERRUPTED
        self.tally.tick = _nothing
        try:
            return self._answer()
        except KeyboardInterrupt:
            if self.stopped == INTERRUPTED:
                raise
            self.stopped = INTERRUPTED
            return self._answer()  # it is there, and need only be put together

    def _answer(self) -> Result:
        """The best of what is known, searched to the end or not."""
        best = self._best(BEST)
        if best is None:
            raise self._infeasible()
        found, absent = [], []
        for restriction in self.baselines:
            solution = self._best(restriction)
            if solution is None and self._applies(restriction):
                absent.append(restriction.name)
            elif solution is None:
                continue  # it has no mapping of such a workload
            else:
                found.append(solution)
                best = self._better(best, solution)
        front = self._front() if self.problem.front else ()
        return Result(self.problem, best, tuple(found), front, tuple(absent))

    def _applies(self, restriction: Restriction) -> bool:
        """Whether a baseline has any mapping of the workload, fitting or not; after a stop, whether it has a partition."""
        for plans in self._of(restriction):
            able = {kernels for kernels in plans.partitions.groups if self.stopped or plans.group(kernels).open()}
            if plans.partitions.restricted(able.__contains__).steps:
                return True
        return False

    def _better(self, best: Solution, other: Solution) -> Solution:
        """The best, or a baseline that is better than it: there can be one within the gap that is allowed, or after a stop."""
        value = other.certificate.value
        if value >= best.certificate.value:
            return best
        certificate = replace(best.certificate, value=value, bound=min(best.certificate.bound, value))
        if certificate.gap <= self.problem.gap:
            certificate = replace(certificate, status=_proven(certificate.gap))
        return replace(other, name=best.name, certificate=certificate)

    @property
    def objectives(self) -> tuple[str, ...]:
        """What groups are searched for."""
        return ("time", "energy") if self.problem.front else self.goals

    @property
    def goals(self) -> tuple[str, ...]:
        """What the plan's objective depends on."""
        return ("time", "energy") if self.problem.objective is Objective.EDP else (self.problem.objective.value,)

    @property
    def gap(self) -> float:
        """The gap that is allowed in single groups: less than the problem's by the rounding of a ratio."""
        return self.problem.gap * (1 - RELATIVE_ROUNDING) if len(self.objectives) == 1 else 0.0

    def _tick(self) -> None:
        limit = self.problem.time_limit
        spent = time.monotonic() - self.started
        if self.progress is not None:
            self.progress(f"{self.known}{self.tally.costed:,} mappings costed", self.finished / self.planned)
        if limit is not None and spent > limit:
            raise Interrupted(f"time limit of {limit:g} s")

    def _tick_after_limit(self) -> None:
        """What the quick plans of baselines do at a tick: they end a little after the limit."""
        if self._late:
            raise Interrupted(self.stopped)

    @property
    def _late(self) -> bool:
        """Whether the limit and its allowance (`OVERTIME_FACTOR`, `OVERTIME`) are over: then only the answer is assembled."""
        limit = self.problem.time_limit
        return limit is not None and time.monotonic() - self.started > limit * OVERTIME_FACTOR + OVERTIME

    def _hurry(self) -> None:
        """What a search among plans of equal value does at a tick: it ends where the search did, or at its limit."""
        if self.stopped:
            raise Interrupted(self.stopped)
        self._tick()

    # --- plans ------------------------------------------------------------------------------------------------------

    def _of(self, restriction: Restriction) -> list[Plans]:
        """The plans of each variant that are admitted, on the chip with its axes whole and in groups."""
        if restriction.name not in self._plans:
            numbers = range(len(self.groups.machines)) if restriction.divides else (0,)
            workloads = [*self.variants, *self.added] if restriction is BEST else self.variants
            if restriction.by_op:
                cut = {workload.variant: workload for workload in self.added}
                workloads = [cut.get(workload.variant, workload) for workload in self.variants]
            self._plans[restriction.name] = [
                self._restricted(restriction, workload, division) for division in numbers for workload in workloads
            ]
        return self._plans[restriction.name]

    def _restricted(self, restriction: Restriction, workload: Workload, division: int) -> Plans:
        every = self._partitions[workload.variant, workload.divisible]
        if restriction is BEST:
            return Plans(workload, every, lambda kernels: self.groups.of(workload, kernels, division), division)

        def part(kernels: Kernels) -> FusedGroup:
            return self.groups.part(workload, kernels, restriction.shapes(group_ops(workload, kernels)), division)

        fused = partial(spans, workload) if restriction.fused else None
        admitted = every.restricted(partial(restriction.admits, workload), fused)
        return Plans(workload, admitted, part, division)

    def _width(self, restriction: Restriction) -> int:
        return len(self.objectives if restriction is BEST else self.goals)

    def _value(self, points: Values) -> Values:
        """The objective of rows of sums over groups."""
        if self.problem.objective is Objective.EDP:
            return np.asarray(points.prod(axis=1))
        names = self.objectives if points.shape[1] == len(self.objectives) else self.goals
        return np.asarray(points[:, names.index(self.problem.objective.value)])

    # --- the best ---------------------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Every group of every partition, as far as it can matter to the best."""
        places: dict[FusedGroup, list[tuple[Plans, Kernels]]] = {}
        for plans in self._of(BEST):
            for kernels in plans.partitions.groups:
                places.setdefault(plans.group(kernels), []).append((plans, kernels))
        self.planned = len(places) + len(self.baselines)
        self._dive_kernels()
        divided = len(self.groups.machines) > 1  # single kernels have many mappings then, and good plans prune them unseen
        many = any(len(plans.workload.kernels) > MAX_KERNELS_SEARCHED_AT_ONCE for plans in self._of(BEST))
        if many and not divided:
            single = {group: own for group, own in places.items() if self._in_one_of_many(*own[0])}
            self._search_groups(single, worst_mapping, GAP_OF_FIRST_SEARCH)
            if len(self.objectives) == 1:
                self._search_groups(places, limiting, GAP_OF_LIMITING_GROUPS)
        if not many:
            self._dive_groups()
        self._search_groups(places, limiting if many else most_promising)
        self.searched.add(BEST.name)

    def _search_groups(self, places: Places, choose: Callable[[Candidates, ObjectiveOf], FusedGroup], gap: float = 0.0) -> None:
        """Search groups, in the order that is chosen, but for those that no plan needs that is better than the plans found.
        ``gap``: as for `FusedGroup.run`."""
        found, left = self._found(), dict(places)
        alive, every = dict(places), len(places) + len(self.baselines) == self.planned
        while left:
            before, beside = len(left), self._beside(alive)
            least = {group: rest + group.lower.min(axis=0, initial=np.inf) for group, rest in beside.items()}
            alive = {group: own for group, own in alive.items() if not found.pruned(least[group]).all()}  # nor ever again
            left = {group: own for group, own in left.items() if group in alive}
            if self.progress is not None and every:
                self._note(found, least, alive)
            if left:
                group = choose({group: (*own[0], least[group]) for group, own in left.items()}, self._value)
                del left[group]
                incumbents = self._incumbents(places[group], found, beside[group])
                if not group.done and not group.within(incumbents, gap) and group.open():
                    group.run(incumbents, gap)
                    found = self._found()
                if not gap:
                    del alive[group]
            if not gap:
                self.finished += before - len(left)

    def _note(self, found: Frontier, least: Mapping[FusedGroup, Values], left: Places) -> None:
        """Keeps for progress how far the best plan may be from the optimum, and how many groups may matter still."""
        best = self._value(found.points).min(initial=np.inf)
        bound = min((self._value(least[group]).min() for group in left), default=best)
        gap = "no plan yet" if best == np.inf else f"gap {100 * max(relative_gap(best, bound), 0.0):.2g} %"
        self.known = f"{gap}, {counted(len(left), 'group')} left, "

    def _in_one_of_many(self, plans: Plans, kernels: Kernels) -> bool:
        """Whether a group lies in one kernel, of a workload with many."""
        return len(plans.workload.kernels) > MAX_KERNELS_SEARCHED_AT_ONCE and not spans(plans.workload, kernels)

    def _dive_kernels(self) -> None:
        """A first mapping of each kernel by itself, with whole axes: together they are a plan."""
        for plans in self._of(BEST):
            for kernels in reversed(plans.partitions.groups):
                if kernels.bit_count() == 1 and not plans.division:
                    self._dive(plans.group(kernels))

    def _dive_groups(self) -> None:
        """A first mapping of the largest groups that have any, but for those that no plan needs that is better than the plans
        found."""
        found = self._found()
        for plans in self._of(BEST):
            beside = plans.least_beside()
            covered: list[Kernels] = []
            for kernels in reversed(plans.partitions.groups):
                if any(not kernels & ~other for other in covered):
                    continue
                group = plans.group(kernels)
                if found.pruned(group.lower + beside[kernels]).all():
                    continue
                if self._dive(group):
                    covered.append(kernels)

    def _dive(self, group: FusedGroup) -> bool:
        """A first mapping of a group that has none so far, if it can have any."""
        self.tally.tick()
        if group.choices or not group.open():
            return False
        group.dive()
        return True

    def _found(self) -> Frontier:
        """What whole plans reach by now, in any variant."""
        found = Frontier(len(self.objectives), self.gap)
        for plans in self._of(BEST):
            for point in plans.reached(found.width)[0]:
                found.add(point, None)
        return found

    def _beside(self, places: Places) -> dict[FusedGroup, Values]:
        """For each place of each group, the least of each objective that the rest of a plan with it takes."""
        least = {id(plans): plans.least_beside() for plans in self._of(BEST)}
        return {group: np.array([least[id(plans)][kernels] for plans, kernels in own]) for group, own in places.items()}

    def _incumbents(self, places: Sequence[tuple[Plans, Kernels]], found: Frontier, beside: Values) -> Values:
        """What a group must beat to matter: what its kernels reach in smaller groups; and where it is all of the workload, or
        there is one objective, what whole plans reach, less the least that the rest of them takes."""
        plans, kernels = places[0]  # at other places it has the same smaller groups, by other names
        incumbents = plans.apart(kernels, found.width)
        if found.width == 1 or not beside.any():
            incumbents = np.vstack([incumbents, _left_for(found.points, beside.min(axis=0))])
        return incumbents

    # --- baselines --------------------------------------------------------------------------------------------------

    def _search_baseline(self, restriction: Restriction) -> None:
        """Search groups of a baseline, those of the most promising plan first, until no plan can beat the best."""
        width = self._width(restriction)
        while True:
            value = min(self._value(plans.reached(width)[0]).min(initial=np.inf) for plans in self._of(restriction))
            bound, plans, picks = self._most_promising(restriction)
            if plans is None or bound * (1 + self.gap) >= value * (1 - RELATIVE_ROUNDING):
                break
            self.tally.tick()
            group = next(group for kernels, _ in picks if not (group := plans.group(kernels)).exact)
            if not group.open():
                continue
            group.restrict(AdmittedShapes.EVERY, self.goals)  # what was dropped before may matter now
            group.run(self._threshold(restriction, group, value))
        self.searched.add(restriction.name)
        self.finished += 1

    def _most_promising(self, restriction: Restriction) -> tuple[float, Plans | None, Picks]:
        """The plans with the least bound, and the groups behind it."""
        best: tuple[float, Plans | None, Picks] = (np.inf, None, ())
        for plans in self._of(restriction):
            rows, picks = plans.lower(self._width(restriction))
            if len(rows) and self._value(rows).min() < best[0]:
                row = int(self._value(rows).argmin())
                best = (float(self._value(rows)[row]), plans, picks[row])
        return best

    def _threshold(self, restriction: Restriction, group: FusedGroup, value: float) -> Values:
        """With one objective, the value of a group from which on no plan with it beats the best one of the baseline."""
        if len(self.goals) > 1 or not np.isfinite(value):
            return np.empty((0, len(self.goals)))
        rest = [
            least
            for plans in self._of(restriction)
            for kernels, least in plans.least_beside().items()
            if plans.group(kernels) is group
        ]
        return _left_for(np.array([[value]]), np.min(rest, axis=0))

    def _descend(self, tick: Callable[[], None]) -> None:
        """Better sizes for the groups of the best plan so far that may not be optimal: after the time limit, as far as a little
        more time allows, and where a gap is allowed. ``tick`` may end it."""
        if len(self.objectives) > 1 or not (found := self._least(BEST)):
            return
        _, plans, picks = found
        with suppress(Interrupted):
            for kernels, choice in plans.choices(picks):
                group = plans.group(kernels)
                if self.gap or not group.done:
                    group.descend(choice, tick)

    def _first_plans(self) -> None:
        """After the time limit, a quick plan for each baseline that has none, as far as a little more time allows."""
        self.tally.tick = self._tick_after_limit
        with suppress(Interrupted, KeyboardInterrupt):
            for restriction in self.baselines:
                if not any(plans.reached(self._width(restriction))[1] for plans in self._of(restriction)):
                    any(self._first_plan(plans, self._width(restriction)) for plans in self._of(restriction))

    def _first_plan(self, plans: Plans, width: int) -> bool:
        """A quick plan of the partition with the least bound; without the groups for which no mapping is found."""
        left = plans
        while picks := left.lower(width)[1]:
            for kernels, _ in picks[0]:
                if not plans.group(kernels).choices and plans.group(kernels).open():
                    plans.group(kernels).dive()
            if all(plans.group(kernels).choices for kernels, _ in picks[0]):
                return True
            tried = dict(picks[0])
            able = {kernels for kernels in left.partitions.groups if kernels not in tried or plans.group(kernels).choices}
            left = replace(left, partitions=left.partitions.restricted(able.__contains__))
        return False

    # --- answers ----------------------------------------------------------------------------------------------------

    def _best(self, restriction: Restriction) -> Solution | None:
        width, best = self._width(restriction), self._least(restriction)
        lower = (self._value(plans.lower(width)[0]).min(initial=np.inf) for plans in self._of(restriction))
        bound = min(lower, default=np.inf) / (1 + self.gap)
        return None if best is None else self._solution(restriction, *best, self._size(restriction), bound)

    def _least(self, restriction: Restriction) -> tuple[float, Plans, Picks] | None:
        """The best plan found so far: its value, its variant's plans, its groups."""
        best: tuple[float, Plans, Picks] | None = None
        for plans in self._of(restriction):
            points, picks = plans.reached(self._width(restriction))
            values = self._value(points)
            if picks and (best is None or values.min() < best[0]):
                best = (float(values.min()), plans, picks[int(values.argmin())])
        return best

    def _size(self, restriction: Restriction) -> int | None:
        """Number of mappings of a space; None after a stop, or where the limit ends the count: it can take longer than a search
        that pruned most groups unseen."""
        if self.stopped or restriction.name not in self.searched:
            return None
        try:
            return sum(plans.size(self._tick) for plans in self._of(restriction))
        except Interrupted:
            return None

    def _choices(self, plans: Plans, picks: Picks, adjusted: bool = False, allowed: float = EQUAL) -> dict[Kernels, GroupMapping]:
        """The groups of a plan in the order in which they run, each with its mapping. ``adjusted``, ``allowed``: see
        `FusedGroups.choice`; as far as there is time."""
        found = dict(plans.choices(picks))
        order = in_order(before(plans.workload), tuple(found))
        return {
            kernels: self.groups.choice(
                plans.workload,
                kernels,
                found[kernels],
                self._hurry,
                adjusted and not self._late,
                plans.division,
                allowed,
            )
            for kernels in order
        }

    def _stopped(self, restriction: Restriction, value: float, bound: float) -> bool:
        """Whether a search ended before its value was proven."""
        return restriction.name not in self.searched and bound * (1 + self.gap) < value * (1 - BOUND_ROUNDING)

    def _solution(
        self, restriction: Restriction, value: float, plans: Plans, picks: Picks, size: int | None, bound: float
    ) -> Solution:
        alone = len(self.objectives) == 1 and self.problem.objective is Objective.TIME
        equal = EQUAL_UNPROVEN if alone and self._stopped(restriction, value, bound) else EQUAL
        choices = self._choices(plans, picks, adjusted=True, allowed=equal)
        plan = plan_tree(plans.workload, self.problem.chip, choices)
        workload = self.given[plans.workload.variant]
        estimate = evaluate(workload, self.problem.chip, plan)
        reached = objective_value(self.problem.objective, float(estimate.time), float(estimate.energy))
        less = value if equal == EQUAL else 0.0  # of an unproven answer, ties may find a better one
        if not less - RELATIVE_ROUNDING * abs(value) <= reached <= value + (equal + RELATIVE_ROUNDING) * abs(value):
            raise InternalError(
                Fault("search", f"the plan's value to be {value!r}", f"{reached!r} when costed again", "please report")
            )
        plan, estimate = with_spare_buffers(workload, self.problem.chip, plan, estimate)
        faults = legality_faults(plan, workload, self.problem.chip)
        if faults:
            raise InternalError([Fault("search", "a legal plan", str(fault), "please report") for fault in faults])
        certificate = self._certificate(restriction, reached, size, bound)
        names = tuple(tuple(op.name for op in group_ops(plans.workload, kernels)) for kernels in choices)
        shape = tuple("; ".join((c.frame.name, *(s.name for s in c.skeletons))) for c in choices.values())
        return Solution(restriction.name, plan, estimate, certificate, names, shape, workload.variant)

    def _certificate(self, restriction: Restriction, reached: float, size: int | None, bound: float) -> MappingCertificate:
        stopped = self._stopped(restriction, reached, bound)
        number = sum(plans.partitions.count for plans in self._of(restriction))
        least = min(bound, reached) if stopped else reached / (1 + self.gap)
        limited = stopped and relative_gap(reached, least) > self.problem.gap
        space = (*SPACE, OP_BY_OP) if self.added else SPACE
        objective, subset = self.problem.objective.value, Clause("of these mappings", f"those with {restriction.about}")
        return MappingCertificate(
            reached,
            least,
            Status.LIMIT if limited else _proven(relative_gap(reached, least)),
            UNITS[objective],
            declaration=space if restriction is BEST else (*space, subset),
            left_out=left_out(self.problem.chip, self.breadths),
            size=size,
            method="branch and bound over tile sizes with bounds from the cost formulas; dynamic programme over the "
            f"{counted(number, 'partition')} of the kernels into fused groups",
            objective=objective,
            effort={"costed": self.tally.costed, "bounded": self.tally.bounds},
            seconds=time.monotonic() - self.started,
            closed=f"stopped early: {self.stopped}"
            if stopped
            else "every remaining part of the space has a bound no better than the value",
        )

    def _front(self) -> tuple[Point, ...]:
        """The time-energy front over all variants and partitions."""
        frontier = Frontier(2)
        for plans in self._of(BEST):
            for point, picks in zip(*plans.reached(2), strict=True):
                frontier.add(point, (plans, picks))
        order = np.argsort(frontier.points[:, 0])
        points: list[Point] = []
        for index in order:
            plans, picks = frontier.payloads[int(index)]
            time_, energy = (float(v) for v in frontier.points[int(index)])
            if points and energy > points[-1].energy * (1 - RELATIVE_ROUNDING):
                continue  # equal but for rounding
            if points and points[-1].time >= time_ * (1 - RELATIVE_ROUNDING):
                points.pop()  # as fast but for rounding, and takes more energy
            points.append(Point(time_, energy, plan_tree(plans.workload, self.problem.chip, self._choices(plans, picks))))
        return tuple(points)

    def _infeasible(self) -> Exception:
        where = f"{self.problem.workload.name} on {self.problem.chip.name}"
        if self.stopped:
            return SearchStopped(Fault(where, "a first mapping before the limit", self.stopped, "allow more time"))
        return Infeasible(tightest(self.problem, self.variants, where))


def _left_for(plans: Values, rest: Values) -> Values:
    """What a group may take at most so that plans are no worse than these: the plans themselves must not fall to rounding."""
    return plans * (1 + RELATIVE_ROUNDING) - rest


def _nothing() -> None:
    """What a search does at a tick that nothing may stop."""
