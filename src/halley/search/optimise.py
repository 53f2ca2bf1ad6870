"""From a problem to its proven-best plan: partitions of the kernels into fused groups, each group searched exactly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product

import numpy as np

from halley.cost.evaluate import evaluate
from halley.errors import Fault, Infeasible, InternalError
from halley.ir.mapping import Hold, Node
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Op, OpKind, Workload
from halley.rewrite.legality import faults as legality_faults
from halley.rewrite.tidy import tidy
from halley.search.baselines import BEST, Restriction, Shapes, wanted
from halley.search.count import count_frames
from halley.search.frames import frames
from halley.search.frontier import Frontier, Values, minimal
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
    "every partition of the kernels into fused groups; every algorithmic variant; intermediates in the clusters, in the "
    "shared buffer or in outer memory; clusters split over any dims; loop orders that differ in reuse, at two levels; tile "
    "sizes: divisors and powers-of-two parts rounded up; every fitting collective algorithm (equal ones once)"
)
LEFT_OUT = (
    "Pipeline, Parallel and Overlap nodes (stages run one after the other)",
    "tile sizes that are neither a divisor of the range nor the range over a power of two",
    "inputs that bypass the shared buffer (but in vector stages); single-buffered operand tiles",
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
    return _Optimiser(problem, wanted(problem), progress).run()


@dataclass(slots=True)
class _Group:
    """Kernels start..stop of one variant, fused, in ``shapes``: the search, and what is known of them.

    ``lower``: rows of objectives such that every mapping is no better than one of them (but for the gap that is allowed).
    ``points`` are reached by ``choices``; ``exact``: there is nothing better than these.
    """

    search: GroupSearch
    size: int
    lower: Values
    points: Values
    choices: list[Choice] = field(default_factory=list)
    exact: bool = False
    done: bool = False

    def run(self, rivals: Values) -> None:
        """Search all of it for what beats the rivals. On `Interrupted` the best so far and a bound are kept."""
        try:
            self.search.run(rivals)
            self.done, self.lower = True, self.search.found.points
            self.exact = None not in self.search.found.payloads
        except (Interrupted, KeyboardInterrupt):
            if self.search.open_bounds:
                left = np.array([*self.search.open_bounds, *self.search.found.points])
                # of two true bounds the higher one; fronts have no order, and the later one comes from more work
                self.lower = left if left.shape[1] > 1 or left.min() > self.lower.min() else self.lower
            raise
        finally:
            self.collect()

    def dive(self) -> None:
        """A first mapping, quickly."""
        self.search.dive()
        self.collect()

    def collect(self) -> None:
        own = [i for i, choice in enumerate(self.search.found.payloads) if choice is not None]
        self.points, self.choices = self.search.found.points[own], [self.search.found.payloads[i] for i in own]


@dataclass(frozen=True, slots=True)
class _Row:
    """A partition of one variant's kernels with its groups."""

    workload: Workload
    partition: Partition
    groups: tuple[_Group, ...]

    @property
    def exact(self) -> bool:
        return all(group.exact for group in self.groups)

    @property
    def size(self) -> int:
        return math.prod(group.size for group in self.groups)

    def lower(self) -> Values:
        """No mapping of this partition is better than one of these."""
        return reduce(_sums, (group.lower for group in self.groups))

    def reached(self) -> tuple[Values, list[tuple[Choice, ...]]]:
        """Sums over the groups, one row per combination of their choices."""
        sums = self.groups[0].points
        for group in self.groups[1:]:
            sums = (sums[:, None, :] + group.points[None, :, :]).reshape(-1, sums.shape[1])
        return sums, list(product(*(group.choices for group in self.groups)))


def _sums(first: Values, second: Values) -> Values:
    """The minimal sums of a row of each."""
    sums: Values = (first[:, None, :] + second[None, :, :]).reshape(-1, first.shape[1])
    return sums[minimal(sums)] if len(sums) else sums


@dataclass(slots=True)
class _Optimiser:
    problem: Problem
    baselines: tuple[Restriction, ...]
    progress: Progress | None
    started: float = field(default_factory=time.monotonic)
    groups: dict[Span, _Group] = field(default_factory=dict)
    parts: dict[tuple[Span, Shapes], _Group] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    tally: Tally = field(default_factory=Tally)
    trees: Trees = field(default_factory=Trees)
    _alike: dict[object, _Group] = field(default_factory=dict)
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
            self.tally.tick = _nothing
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
        front = self._front(chosen) if self.problem.front else ()
        return Result(self.problem, best, tuple(found), front, tuple(absent))

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
            for partition in partitions(len(kernels(workload)))
            for start, stop in partition
        }
        ordered = sorted(spans, key=lambda span: (span[2] - span[1], span))
        self.planned = len(ordered) + len(self.baselines)
        for span in ordered:
            group = self._group(spans[span], span)
            if span[2] - span[1] == 1:  # so that there is a plan early on
                group.dive()
        for span in ordered:
            group = self.groups[span]
            if not group.done:
                group.run(self._rivals(span))
            self.finished += 1
        self.settled.add(BEST.name)

    def _group(self, workload: Workload, span: Span) -> _Group:
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
            self._alike[same] = _Group(
                search, count_frames(space, self.trees), self._floor(ops, workload), np.empty((0, len(self.objectives)))
            )
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
        return stop == max(b for v, _, b in self.groups if v == variant)

    def _reached(self, span: Span, itself: bool) -> Values:
        """Frontier of the sums over groups that cut a span, of those found so far."""
        variant, start, stop = span
        rows = [np.empty((0, len(self.objectives)))]
        own = self.groups.get(span)
        if itself and own is not None:
            rows.append(own.points)
        for cut in range(start + 1, stop):
            tail = self.groups.get((variant, cut, stop))
            if tail is not None:
                rows.append(_sums(self._reached((variant, start, cut), itself=True), tail.points))
        points = np.vstack(rows)
        return points[minimal(points)] if len(points) else points

    def _floor(self, ops: Sequence[Op], workload: Workload) -> Values:
        """Roofline of the group's multiply-accumulates, one row: true without any search."""
        matrix = self.problem.chip.matrix
        macs, energy = 0, 0.0
        for op in ops:
            if op.kind is OpKind.CONTRACT:
                count = math.prod(workload.dims[dim] for dim in op.dims)
                macs += count
                energy += count * (matrix.energy.get(workload.tensors[op.inputs[0]].dtype, 0.0) if matrix else 0.0)
        members = math.prod(axis.size for _, axis in self.problem.chip.axes)
        rate = members * matrix.rows * matrix.cols * matrix.clock * max([1.0, *matrix.rate.values()]) if matrix else np.inf
        return np.array([[{"time": macs / rate, "energy": energy}[name] for name in self.objectives]])

    # --- baselines --------------------------------------------------------------------------------------------------

    def _part(self, workload: Workload, span: Span, shapes: Shapes) -> _Group:
        """The group as a baseline needs it: only some shapes, and all of the plans that are best among them, whether or not
        others beat them. What the search for the best found of it counts: its bound, and its plans that have these shapes."""
        base = self._group(workload, span)
        if (span, shapes) not in self.parts:
            space = shapes.of(base.search.frames)
            columns = [self.objectives.index(name) for name in self.goals]
            fitting = [i for i, choice in enumerate(base.choices) if shapes.admits(choice)]
            points, lower = base.points[:, columns], base.lower[:, columns]
            first = base.points[fitting][:, columns]
            search = _again(base.search, shapes, self.goals)
            part = _Group(search, count_frames(space, self.trees), lower[minimal(lower)] if len(lower) else lower, first)
            part.choices = [base.choices[i] for i in fitting]
            if base.exact:
                needed = minimal(points) if len(points) else np.empty(0, dtype=np.int64)
                part.exact = set(needed.tolist()) <= set(fitting)
            if not space:
                part.exact, part.lower = True, np.empty((0, len(self.goals)))
            self.parts[span, shapes] = part
        return self.parts[span, shapes]

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
            group.search = replace(group.search, frames=group.search.frames)  # another threshold: what was dropped may matter
            for point, choice in zip(group.points, group.choices, strict=True):
                group.search.found.add(point, choice)
            group.run(self._threshold(rows, group, value))
        self.settled.add(restriction.name)
        self.finished += 1

    def _threshold(self, rows: Sequence[_Row], group: _Group, value: float) -> Values:
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

    def _rows(self, restriction: Restriction, chosen: Sequence[Workload]) -> list[_Row]:
        """Every partition that is admitted, of every variant."""
        rows = []
        for workload in chosen:
            for partition in partitions(len(kernels(workload))):
                if restriction.admits(workload, partition):
                    groups = tuple(self._member(restriction, workload, start, stop) for start, stop in partition)
                    rows.append(_Row(workload, partition, groups))
        return rows

    def _member(self, restriction: Restriction, workload: Workload, start: int, stop: int) -> _Group:
        span = (workload.variant, start, stop)
        if restriction is BEST:
            return self._group(workload, span)
        return self._part(workload, span, restriction.shapes(_ops(workload, start, stop)))

    def _value(self, points: Values) -> Values:
        """The objective of rows of sums over groups."""
        if self.problem.objective is Objective.EDP:
            return points.prod(axis=1)
        names = self.objectives if points.shape[1] == len(self.objectives) else self.goals
        return points[:, names.index(self.problem.objective.value)]

    def _best(self, restriction: Restriction, chosen: Sequence[Workload]) -> Solution | None:
        best: tuple[float, _Row, tuple[Choice, ...]] | None = None
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
        self, restriction: Restriction, value: float, row: _Row, choices: tuple[Choice, ...], size: int, bound: float
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
        stopped = restriction.name not in self.settled
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
            points.append(Point(time_, energy, self._plan(workload, choices, partition)))
        return tuple(points)

    def _infeasible(self, chosen: Sequence[Workload]) -> Exception:
        where = f"{self.problem.workload.name} on {self.problem.chip.name}"
        if self.stopped:
            return Infeasible(Fault(where, "a first mapping before the limit", self.stopped, "allow more time"))
        return Infeasible(_tightest(self.problem, chosen, where))


def _tightest(problem: Problem, chosen: Sequence[Workload], where: str) -> Fault:
    """The memory that the smallest tiles still overflow."""
    machine = template(problem.chip)
    for workload in chosen:
        for kernel in kernels(workload):
            space = frames(workload, machine, [workload.op(name) for name in kernel])
            needs: dict[str, float] = {}
            for frame in space:
                tiles = {slot.name: 1 for slot in frame.shared}
                for stage in frame.stages:
                    for skeleton in stage.skeletons:
                        ones = {**tiles, **{slot.name: 1 for slot in skeleton.slots}}
                        names = list(workload.tensors)
                        tree = Hold(
                            machine.outer,
                            tuple((n,) for n in names),
                            frame.wrap(ones, [skeleton.build(ones)] * len(frame.stages)),
                            1,
                        )
                        for memory, used in evaluate(workload, problem.chip, tree).footprint.items():
                            needs[memory] = min(needs.get(memory, np.inf), float(used))
            for memory, used in needs.items():
                capacity = problem.chip.memory(memory).capacity
                if used > capacity:
                    expected = f"at most {capacity:,.0f} B in {memory}"
                    return Fault(
                        where, expected, f"{used:,.0f} B with the smallest tiles of {', '.join(kernel)}", f"enlarge {memory}"
                    )
    return Fault(
        where,
        "a mapping that fits all memories",
        "none in the declared space",
        "enlarge the buffers or write a mapping for 'halley estimate'",
    )


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
