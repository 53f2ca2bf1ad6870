"""From a problem to its proven-best plan: partitions of the kernels into fused groups, each group searched exactly."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np

from halley.cost.evaluate import evaluate
from halley.errors import Fault, Infeasible, InternalError
from halley.ir.mapping import Hold, Node
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Op, Workload
from halley.rewrite.legality import faults as legality_faults
from halley.rewrite.tidy import tidy
from halley.search.baselines import BEST, Restriction, Shapes, wanted
from halley.search.count import count_frames
from halley.search.floors import floor
from halley.search.frames import frames
from halley.search.frontier import Frontier, Values, minimal
from halley.search.groups import Group, Row, again, sums_of
from halley.search.infeasible import tightest
from halley.search.partitions import Partition, kernels, partitions
from halley.search.problem import Objective, Problem
from halley.search.result import Certificate, Point, Result, Solution, Status
from halley.search.solve import Choice, GroupSearch, Interrupted, Tally, Trees
from halley.search.template import Template, template
from halley.workloads import variants

Progress = Callable[[str, float], None]
"""Called with a line of text and the share of the work that is done."""

Span = tuple[str, int, int]
"""Variant, first kernel, behind the last kernel."""

ROUNDING = 1e-9
"""Relative difference below which two values are the same."""

SPACE = (
    "every cut of the kernels, in their order, into fused groups; every algorithmic variant; intermediates in the clusters, in "
    "the shared buffer or in outer memory; stages of a group in turn, or overlapped on successive rounds in every cut "
    "into runs (but with running softmax); clusters split over any dims; loop orders that differ in reuse, two levels of them; "
    "results held for one tile or for all inner loops; tile sizes: the range cut into every number of equal parts, rounded up, "
    "and from there up to a multiple of the array's width; every fitting collective algorithm (equal ones once)"
)
LEFT_OUT = (
    "stages on clusters of their own (Pipeline, Parallel); overlapped stages of attention with running softmax; more buffers for "
    "overlapped stages than rounds are under way, or fewer",
    "tile sizes that leave a smaller last tile than they must, but for multiples of the array's width",
    "inputs that bypass the shared buffer (but in vector stages); single-buffered tiles; operands held for several inner tiles",
    "fused groups of kernels that do not follow each other in the workload's order",
    "clusters left idle on purpose, or repeating each other's work",
    "different collective algorithms on the two cluster axes; re-sharding an intermediate between stages of the resident frame",
    "splitting the contraction dim of a fused GEMM over clusters",
    "vector kernels before a GEMM with intermediates in the clusters; running softmax in parts of attention",
)


def optimise(problem: Problem, progress: Progress | None = None) -> Result:
    """The best plan with its certificate, and the baselines in restricted spaces.

    Ctrl-C or the time limit gives the best so far with a true bound (status `LIMIT`). Raises Infeasible, naming the resource,
    where no mapping of the space fits; BadInput where the chip's shape is not the template's, or no baseline has that name.
    """
    with _rare_collections():
        return _Optimiser(problem, wanted(problem), progress).run()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """A search makes millions of small objects and next to no cycles among those that it drops: looking for them after every few
    hundred would take a sixth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, before[1], before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass(slots=True)
class _Optimiser:
    problem: Problem
    baselines: tuple[Restriction, ...]
    progress: Progress | None
    started: float = field(default_factory=time.monotonic)
    groups: dict[Span, Group] = field(default_factory=dict)
    parts: dict[tuple[int, Shapes], Group] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    tally: Tally = field(default_factory=Tally)
    trees: Trees = field(default_factory=Trees)
    _alike: dict[object, Group] = field(default_factory=dict)
    stopped: str = ""
    planned: int = 1
    finished: int = 0

    def run(self) -> Result:
        chosen = (self.problem.workload,) if self.problem.fixed_variant else variants(self.problem.workload)
        self.tally.tick = self._tick
        try:
            self._search(chosen)
            for restriction in self.baselines:
                self._settle(restriction, chosen)
        except (Interrupted, KeyboardInterrupt) as stop:
            self.stopped = str(stop) or "interrupted"
            if isinstance(stop, Interrupted):
                self._first_plans(chosen)
        best = self._best(BEST, chosen)
        if best is None:
            raise self._infeasible(chosen)
        found, absent = [], []
        for restriction in self.baselines:
            if not any(row.size for row in self._rows(restriction, chosen)):
                continue  # it has no mapping of such a workload
            solution = self._best(restriction, chosen)
            if solution is None:
                absent.append(restriction.name)
            else:
                found.append(solution)
                best = self._better(best, solution)
        front = self._front(chosen) if self.problem.front else ()
        return Result(self.problem, best, tuple(found), front, tuple(absent))

    def _better(self, best: Solution, other: Solution) -> Solution:
        """The best, or a baseline that is better than it: there can be one within the gap that is allowed, or after a stop."""
        value = other.certificate.value
        if value >= best.certificate.value:
            return best
        certificate = replace(best.certificate, value=value, bound=min(best.certificate.bound, value))
        status = Status.OPTIMAL if certificate.gap <= self.problem.gap else best.status
        return replace(other, name=best.name, certificate=certificate, status=status)

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
        """The gap that is allowed in single groups."""
        return self.problem.gap if len(self.objectives) == 1 else 0.0

    def _tick(self) -> None:
        limit = self.problem.time_limit
        spent = time.monotonic() - self.started
        if self.progress is not None:
            self.progress(f"{self.tally.costed:,} mappings costed", self.finished / self.planned)
        if limit is not None and spent > limit:
            raise Interrupted(f"time limit of {limit:g} s")

    # --- groups -----------------------------------------------------------------------------------------------------

    def _search(self, chosen: Sequence[Workload]) -> None:
        """Every group of every partition, as far as it can matter to the best; single kernels first: they give every partition a
        first value."""
        spans = {
            (workload.variant, start, stop): workload
            for workload in chosen
            for start in range(len(kernels(workload)))
            for stop in range(start + 1, len(kernels(workload)) + 1)
        }
        ordered = sorted(spans, key=lambda span: (span[2] - span[1], span))
        self.planned = len(ordered) + len(self.baselines)
        for span in ordered:
            self._group(spans[span], span)
        self._first_values(ordered)
        plans = self._plans()
        for span in ordered:
            group = self.groups[span]
            if not group.done and not self._useless(span, plans):
                group.run(self._rivals(span))
                plans = self._plans()
            self.finished += 1
        self.settled.add(BEST.name)

    def _first_values(self, ordered: Sequence[Span]) -> None:
        """A plan early on: a first mapping of the largest groups that have any, and of the single kernels."""
        covered: list[Span] = []
        for span in reversed(ordered):
            inside = any(v == span[0] and a <= span[1] and span[2] <= b for v, a, b in covered)
            if self.groups[span].search.frames and (not inside or span[2] - span[1] == 1):
                covered.append(span)
                self.groups[span].dive()

    def _plans(self) -> Frontier:
        """What whole plans reach by now, in any variant."""
        plans = Frontier(len(self.objectives), self.gap)
        for variant in {name for name, _, _ in self.groups}:
            for point in self._reached((variant, 0, self._kernels(variant)), itself=True):
                plans.add(point, None)
        return plans

    def _useless(self, span: Span, plans: Frontier) -> bool:
        """Whether no partition with this group can beat the plans: the sum of the least that its groups take."""
        variant, start, stop = span
        count = self._kernels(variant)
        least = self._least(variant, 0, start) + self._lower(span) + self._least(variant, stop, count)
        return bool(plans.hopeless(least[None, :])[0])

    def _kernels(self, variant: str) -> int:
        return max(stop for name, _, stop in self.groups if name == variant)

    def _lower(self, span: Span) -> Values:
        """The least of each objective in a group; infinite where it has no mapping."""
        return np.asarray(self.groups[span].lower.min(axis=0, initial=np.inf))

    def _least(self, variant: str, start: int, stop: int) -> Values:
        """The least of each objective over the ways to cut a span into groups."""
        least = {start: np.zeros(len(self.objectives))}
        for end in range(start + 1, stop + 1):
            least[end] = np.min([least[cut] + self._lower((variant, cut, end)) for cut in range(start, end)], axis=0)
        return least[stop]

    def _group(self, workload: Workload, span: Span) -> Group:
        """The group with all of its shapes, searched for what the best plan needs."""
        if span in self.groups:
            return self.groups[span]
        _, start, stop = span
        ops = _ops(workload, start, stop)
        machine = template(self.problem.chip)
        tensors = tuple(dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs)))
        inside = {op.name for op in ops}
        made = {name for op in ops for name in op.outputs}
        kept = tuple(
            (name,)
            for name in tensors
            if name not in made or name in workload.outputs or any(op.name not in inside for op in workload.consumers(name))
        )
        outer = machine.outer

        def around(node: Node) -> Node:
            return Hold(outer, kept, node, 1)

        same = (ops, tuple(workload.tensors[name] for name in tensors), kept, tuple(workload.dims.items()))
        if same not in self._alike:  # variants have kernels in common
            space = frames(workload, machine, ops)
            search = GroupSearch(workload, self.problem.chip, space, around, self.objectives, self.tally, self.gap, self.trees)
            least = floor(workload, self.problem.chip, machine, ops, [name for (name,) in kept])
            lower = np.array([[least[name] for name in self.objectives]])
            size = count_frames(space, self.trees)
            if not size:
                lower = lower[:0]
            self._alike[same] = Group(search, size, lower, np.empty((0, len(self.objectives))))
        self.groups[span] = self._alike[same]
        return self.groups[span]

    def _rivals(self, span: Span) -> Values:
        """What the kernels of a group reach in smaller groups, and the whole workload in any variant: fusing must beat it."""
        variant, start, stop = span
        spans = [span]
        if start == 0 and self._whole(variant, stop):
            spans += [(v, a, b) for v, a, b in self.groups if a == 0 and (v, b) != (variant, stop) and self._whole(v, b)]
        return np.vstack([self._reached(other, itself=other != span) for other in spans])

    def _whole(self, variant: str, stop: int) -> bool:
        return stop == self._kernels(variant)

    def _reached(self, span: Span, itself: bool) -> Values:
        """Frontier of the sums over groups that cut a span, of those found so far."""
        variant, start, stop = span
        none = np.empty((0, len(self.objectives)))
        reached = {start: np.zeros((1, len(self.objectives)))}  # up to each kernel
        for end in range(start + 1, stop + 1):
            cuts = [cut for cut in range(start, end) if itself or (cut, end) != (start, stop)]
            last = [(cut, self.groups.get((variant, cut, end))) for cut in cuts]
            points = np.vstack([none, *(sums_of(reached[cut], group.points) for cut, group in last if group is not None)])
            reached[end] = points[minimal(points)] if len(points) else points
        return reached[stop]

    # --- baselines --------------------------------------------------------------------------------------------------

    def _part(self, workload: Workload, span: Span, shapes: Shapes) -> Group:
        """The group as a baseline needs it: only some shapes, and all of the plans that are best among them, whether or not
        others beat them. What the search for the best found of it counts: its bound, and its plans that have these shapes."""
        base = self._group(workload, span)
        key = (id(base), shapes)
        if key not in self.parts:
            columns = [self.objectives.index(name) for name in self.goals]
            fitting = [i for i, choice in enumerate(base.choices) if shapes.admits(choice)]
            points, lower = base.points[:, columns], base.lower[:, columns]
            search = again(base.search, shapes, self.goals)
            part = Group(search, count_frames(search.frames, self.trees), lower, points[fitting])
            part.choices = [base.choices[i] for i in fitting]
            if base.exact:
                part.exact = not len(points) or set(minimal(points).tolist()) <= set(fitting)
            if not search.frames:
                part.exact, part.lower = True, lower[:0]
            self.parts[key] = part
        return self.parts[key]

    def _settle(self, restriction: Restriction, chosen: Sequence[Workload]) -> None:
        """Search groups of a baseline, those of the most promising partition first, until no partition can beat the best."""
        rows = [row for row in self._rows(restriction, chosen) if row.size]
        while True:
            value = min((self._value(row.reached()[0]).min(initial=np.inf) for row in rows), default=np.inf)
            open_rows = [(self._value(row.lower()).min(initial=np.inf), i) for i, row in enumerate(rows) if not row.exact]
            bound, position = min(open_rows, default=(np.inf, 0))
            if bound * (1 + self.gap) >= value * (1 - ROUNDING):
                break
            self.tally.tick()
            group = next(group for group in rows[position].groups if not group.exact)
            group.search = again(group.search, Shapes.EVERY, self.goals)  # what was dropped before may matter now
            for point, choice in zip(group.points, group.choices, strict=True):
                group.search.found.add(point, choice)
            group.run(self._threshold(rows, group, value))
        self.settled.add(restriction.name)
        self.finished += 1

    def _first_plans(self, chosen: Sequence[Workload]) -> None:
        """After the time limit, a quick plan for each baseline that has none."""
        self.tally.tick = _nothing
        with suppress(KeyboardInterrupt):
            for restriction in self.baselines:
                rows = [row for row in self._rows(restriction, chosen) if row.size]
                for row in () if any(row.reached()[1] for row in rows) else rows:
                    for group in row.groups:
                        if not group.choices:
                            group.dive()
                    if row.reached()[1]:
                        break

    def _threshold(self, rows: Sequence[Row], group: Group, value: float) -> Values:
        """With one objective, the value of a group from which on no partition with it beats the best one of the baseline."""
        if len(self.goals) > 1 or not np.isfinite(value):
            return np.empty((0, len(self.goals)))
        others = [
            sum(float(other.lower.min()) for other in row.groups if other is not group)
            for row in rows
            if any(other is group for other in row.groups) and all(len(other.lower) for other in row.groups)
        ]
        return np.array([[value - min(others)]])

    # --- partitions -------------------------------------------------------------------------------------------------

    def _rows(self, restriction: Restriction, chosen: Sequence[Workload]) -> list[Row]:
        """Every partition that is admitted, of every variant."""
        rows = []
        for workload in chosen:
            for partition in partitions(len(kernels(workload))):
                if restriction.admits(workload, partition):
                    groups = tuple(self._member(restriction, workload, start, stop) for start, stop in partition)
                    rows.append(Row(workload, partition, groups))
        return rows

    def _member(self, restriction: Restriction, workload: Workload, start: int, stop: int) -> Group:
        span = (workload.variant, start, stop)
        if restriction is BEST:
            return self._group(workload, span)
        return self._part(workload, span, restriction.shapes(_ops(workload, start, stop)))

    def _value(self, points: Values) -> Values:
        """The objective of rows of sums over groups."""
        if self.problem.objective is Objective.EDP:
            return np.asarray(points.prod(axis=1))
        names = self.objectives if points.shape[1] == len(self.objectives) else self.goals
        return np.asarray(points[:, names.index(self.problem.objective.value)])

    def _best(self, restriction: Restriction, chosen: Sequence[Workload]) -> Solution | None:
        best: tuple[float, Row, tuple[Choice, ...]] | None = None
        size, bound = 0, np.inf
        for row in self._rows(restriction, chosen):
            if not row.size:
                continue
            size += row.size
            bound = min(bound, self._value(row.lower()).min(initial=np.inf) / (1 + self.gap))
            sums, combos = row.reached()
            if combos:
                values = self._value(sums)
                position = int(np.argmin(values))
                if best is None or values[position] < best[0]:
                    best = (float(values[position]), row, combos[position])
        return None if best is None else self._solution(restriction, *best, size, bound)

    def _plan(self, workload: Workload, choices: Sequence[Choice], partition: Partition) -> Node:
        machine: Template = template(self.problem.chip)
        owner = {name: i for i, (a, b) in enumerate(partition) for kernel in kernels(workload)[a:b] for name in kernel}
        handed = []
        for name in workload.tensors:
            maker = workload.producer(name)
            readers = {owner[op.name] for op in workload.consumers(name)}
            if maker is None or name in workload.outputs or readers - {owner[maker.name]}:
                handed.append(name)
        trees = [choice.tree() for choice in choices]
        body = trees[0] if len(trees) == 1 else Steps(tuple(trees))
        return tidy(Hold(machine.outer, tuple((name,) for name in handed), body, 1), workload.dims)

    def _solution(
        self, restriction: Restriction, value: float, row: Row, choices: tuple[Choice, ...], size: int, bound: float
    ) -> Solution:
        workload, partition = row.workload, row.partition
        plan = self._plan(workload, choices, partition)
        estimate = evaluate(workload, self.problem.chip, plan)
        reached = objective_value(self.problem.objective, float(estimate.time), float(estimate.energy))
        if abs(reached - value) > ROUNDING * abs(value):
            raise InternalError(
                Fault("search", f"the plan's value to be {value!r}", f"{reached!r} when costed again", "please report")
            )
        faults = legality_faults(plan, workload, self.problem.chip)
        if faults:
            raise InternalError([Fault("search", "a legal plan", str(fault), "please report") for fault in faults])
        stopped = restriction.name not in self.settled and bound * (1 + self.gap) < reached
        certificate = Certificate(
            space=SPACE if restriction is BEST else f"{SPACE}; of these mappings, those with {restriction.about}",
            left_out=LEFT_OUT,
            size=size,
            method="branch and bound over tile sizes with bounds from the cost formulas; dynamic programme over fused groups",
            objective=self.problem.objective.value,
            bound=min(bound, reached) if stopped else reached / (1 + self.gap),
            value=reached,
            costed=self.tally.costed,
            bounds=self.tally.bounds,
            seconds=time.monotonic() - self.started,
            closed=f"stopped early: {self.stopped}"
            if stopped
            else "every remaining part of the space has a bound no better than the value",
        )
        status = Status.LIMIT if stopped and certificate.gap > self.problem.gap else Status.OPTIMAL
        groups = tuple(tuple(name for kernel in kernels(workload)[a:b] for name in kernel) for a, b in partition)
        shape = tuple("; ".join((c.frame.name, *(s.name for s in c.skeletons))) for c in choices)
        return Solution(restriction.name, plan, estimate, certificate, status, groups, shape, workload.variant)

    def _front(self, chosen: Sequence[Workload]) -> tuple[Point, ...]:
        """The time-energy front over all variants and partitions."""
        frontier = Frontier(2)
        for row in self._rows(BEST, chosen):
            sums, combos = row.reached()
            for position in minimal(sums) if len(sums) else []:
                frontier.add(sums[int(position)], (row.workload, combos[int(position)], row.partition))
        order = np.argsort(frontier.points[:, 0])
        points: list[Point] = []
        for index in order:
            workload, choices, partition = frontier.payloads[int(index)]
            time_, energy = (float(v) for v in frontier.points[int(index)])
            if points and energy > points[-1].energy * (1 - ROUNDING):
                continue  # equal but for rounding
            if points and points[-1].time >= time_ * (1 - ROUNDING):
                points.pop()  # as fast but for rounding, and takes more energy
            points.append(Point(time_, energy, self._plan(workload, choices, partition)))
        return tuple(points)

    def _infeasible(self, chosen: Sequence[Workload]) -> Exception:
        where = f"{self.problem.workload.name} on {self.problem.chip.name}"
        if self.stopped:
            return Infeasible(Fault(where, "a first mapping before the limit", self.stopped, "allow more time"))
        return Infeasible(tightest(self.problem, chosen, where))


def _ops(workload: Workload, start: int, stop: int) -> tuple[Op, ...]:
    """The ops of some kernels."""
    return tuple(workload.op(name) for kernel in kernels(workload)[start:stop] for name in kernel)


def _nothing() -> None:
    """What a search does at a tick that nothing may stop."""


def objective_value(objective: Objective, time_: float, energy: float) -> float:
    """Value of the objective: [s], [J] or [Js]."""
    match objective:
        case Objective.TIME:
            return time_
        case Objective.ENERGY:
            return energy
        case Objective.EDP:
            return time_ * energy
