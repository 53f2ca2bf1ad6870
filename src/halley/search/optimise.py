"""From a problem to its proven-best plan: partitions of the kernels into fused groups, each group searched exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from halley.cost.evaluate import evaluate
from halley.errors import Fault, Infeasible, InternalError
from halley.ir.mapping import Hold, Node
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import OpKind, Workload
from halley.rewrite.legality import faults as legality_faults
from halley.rewrite.tidy import tidy
from halley.search.count import count_frames
from halley.search.frames import Frame, frames
from halley.search.frontier import Frontier, Values, minimal
from halley.search.problem import Objective, Problem
from halley.search.result import Certificate, Point, Result, Solution, Status
from halley.search.solve import Choice, GroupSearch, Interrupted, Tally, Trees
from halley.search.stages import Stage
from halley.search.template import Template, template
from halley.workloads import variants

Progress = Callable[[str, float], None]
"""Called with a line of text and the share of the work that is done."""

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


@dataclass(frozen=True, slots=True)
class Restriction:
    """A baseline: which partitions and which collectives its space admits."""

    name: str
    fused: bool
    unfused: bool
    collectives: bool

    def admits(self, groups: Sequence[tuple[int, int]], kernels: int) -> bool:
        alone = all(stop - start == 1 for start, stop in groups)
        whole = len(groups) == 1
        return (self.unfused and alone) or (self.fused and whole) or (self.unfused and self.fused)


BEST = Restriction("best", True, True, True)
UNFUSED = Restriction("unfused", False, True, True)
FUSED_LOCAL = Restriction("fused, no split reductions", True, False, False)


def optimise(problem: Problem, progress: Progress | None = None) -> Result:
    """The best plan with its certificate, and the baselines in restricted spaces.

    Ctrl-C or the time limit gives the best so far with a true bound (status `LIMIT`). Raises Infeasible, naming the resource,
    where no mapping of the space fits; BadInput where the chip's shape is not the template's.
    """
    return _Optimiser(problem, progress).run()


@dataclass(slots=True)
class _Group:
    """Kernels start..stop of one variant, fused: the search, and what it found."""

    search: GroupSearch
    size: int
    floor: Values
    done: bool = False

    @property
    def found(self) -> Frontier:
        return self.search.found


@dataclass(slots=True)
class _Optimiser:
    problem: Problem
    progress: Progress | None
    started: float = field(default_factory=time.monotonic)
    groups: dict[tuple[str, int, int, bool], _Group] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    trees: Trees = field(default_factory=Trees)
    _alike: dict[object, _Group] = field(default_factory=dict)
    stopped: str = ""
    planned: int = 1
    finished: int = 0

    def run(self) -> Result:
        wanted = [BEST, *([UNFUSED, FUSED_LOCAL] if self.problem.baselines else [])]
        chosen = self._variants()
        self.tally.tick = self._tick
        keys = self._keys(chosen, wanted)
        self.planned = len(keys)
        try:
            for key, workload in keys.items():
                self.groups[key] = self._group(key, workload)
                if key[2] - key[1] == 1:  # so that there is a plan early on
                    self.groups[key].search.dive()
            for key, group in self.groups.items():
                if not group.done:
                    group.search.run(self._rivals(key))
                    group.done = True
                self.finished += 1
        except (Interrupted, KeyboardInterrupt) as stop:
            self.stopped = str(stop) or "interrupted"
        best = self._best(BEST, chosen)
        if best is None:
            raise self._infeasible(chosen)
        baselines = [self._best(restriction, chosen) for restriction in wanted[1:]]
        front = self._front(chosen) if self.problem.front else ()
        return Result(self.problem, best, tuple(b for b in baselines if b is not None), front)

    @property
    def objectives(self) -> tuple[str, ...]:
        if self.problem.front or self.problem.objective is Objective.EDP:
            return ("time", "energy")
        return (self.problem.objective.value,)

    def _variants(self) -> tuple[Workload, ...]:
        return (self.problem.workload,) if self.problem.fixed_variant else variants(self.problem.workload)

    def _tick(self) -> None:
        limit = self.problem.time_limit
        spent = time.monotonic() - self.started
        if self.progress is not None:
            self.progress(f"{self.tally.costed:,} mappings costed", self.finished / self.planned)
        if limit is not None and spent > limit:
            raise Interrupted(f"time limit of {limit:g} s")

    # --- groups -----------------------------------------------------------------------------------------------------

    def _keys(self, chosen: Iterable[Workload], wanted: Sequence[Restriction]) -> dict[tuple[str, int, int, bool], Workload]:
        """Groups to search, single kernels first: they give every partition a first value."""
        keys: dict[tuple[str, int, int, bool], Workload] = {}
        for restriction in wanted:
            for workload in chosen:
                for partition in partitions(len(kernels(workload))):
                    if restriction.admits(partition, len(kernels(workload))):
                        for start, stop in partition:
                            keys[workload.variant, start, stop, restriction.collectives] = workload
        return dict(sorted(keys.items(), key=lambda item: (item[0][2] - item[0][1], item[0])))

    def _group(self, key: tuple[str, int, int, bool], workload: Workload) -> _Group:
        _, start, stop, collectives = key
        ops = tuple(workload.op(name) for kernel in kernels(workload)[start:stop] for name in kernel)
        machine = template(self.problem.chip)
        space = frames(workload, machine, ops)
        if not collectives:
            space = [frame for frame in map(_without_collectives, space) if frame is not None]
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

        gap = self.problem.gap if len(self.objectives) == 1 else 0.0
        same = (ops, tuple(workload.tensors[name] for name in tensors), kept, tuple(workload.dims.items()), collectives)
        if same in self._alike:  # variants have kernels in common
            return self._alike[same]
        search = GroupSearch(workload, self.problem.chip, space, around, self.objectives, self.tally, gap, self.trees)
        group = _Group(search, count_frames(space, self.trees), self._floor(workload, start, stop))
        self._alike[same] = group
        return group

    def _rivals(self, key: tuple[str, int, int, bool]) -> Values:
        """What the kernels of a group reach in smaller groups, and the whole workload in any variant: fusing must beat it. A
        baseline's own space has no rivals."""
        variant, start, stop, collectives = key
        if not collectives:
            return np.empty((0, len(self.objectives)))
        spans = [(variant, start, stop)]
        if start == 0:
            spans += [(v, 0, b) for v, a, b, c in self.groups if c and a == 0 and (v, b) != (variant, stop) and self._whole(v, b)]
            spans = spans if self._whole(variant, stop) else spans[:1]
        rows = [self._reached(v, a, b, itself=(v, a, b) != (variant, start, stop)) for v, a, b in spans]
        return np.vstack(rows)

    def _whole(self, variant: str, stop: int) -> bool:
        return stop == max(b for v, _, b, _ in self.groups if v == variant)

    def _reached(self, variant: str, start: int, stop: int, itself: bool) -> Values:
        """Frontier of the sums over groups that cut start..stop, of those found so far."""
        width = len(self.objectives)
        rows = [np.empty((0, width))]
        own = self.groups.get((variant, start, stop, True))
        if itself and own is not None:
            rows.append(own.found.points)
        for cut in range(start + 1, stop):
            tail = self.groups.get((variant, cut, stop, True))
            if tail is not None:
                head = self._reached(variant, start, cut, itself=True)
                rows.append((head[:, None, :] + tail.found.points[None, :, :]).reshape(-1, width))
        points = np.vstack(rows)
        return points[minimal(points)] if len(points) else points

    def _floor(self, workload: Workload, start: int, stop: int) -> Values:
        """Roofline of the group's multiply-accumulates: true without any search."""
        matrix = self.problem.chip.matrix
        names = {name for kernel in kernels(workload)[start:stop] for name in kernel}
        macs, energy = 0, 0.0
        for op in workload.ops:
            if op.name in names and op.kind is OpKind.CONTRACT:
                count = int(np.prod([workload.dims[dim] for dim in op.dims], dtype=object))
                macs += count
                energy += count * (matrix.energy.get(workload.tensors[op.inputs[0]].dtype, 0.0) if matrix else 0.0)
        members = int(np.prod([axis.size for _, axis in self.problem.chip.axes], dtype=object))
        rate = members * matrix.rows * matrix.cols * matrix.clock * max([1.0, *matrix.rate.values()]) if matrix else np.inf
        return np.array([{"time": macs / rate, "energy": energy}[name] for name in self.objectives])

    # --- partitions -------------------------------------------------------------------------------------------------

    def _rows(
        self, restriction: Restriction, chosen: Iterable[Workload]
    ) -> Iterator[tuple[Workload, list[_Group | None], list[tuple[int, int]]]]:
        for workload in chosen:
            count = len(kernels(workload))
            for partition in partitions(count):
                if restriction.admits(partition, count):
                    row = [self.groups.get((workload.variant, a, b, restriction.collectives)) for a, b in partition]
                    yield workload, row, partition

    def _value(self, points: Values) -> Values:
        """The objective of rows of sums over groups."""
        return points.prod(axis=1) if self.problem.objective is Objective.EDP else points[:, self._column]

    @property
    def _column(self) -> int:
        return self.objectives.index(self.problem.objective.value) if self.problem.objective is not Objective.EDP else 0

    def _combinations(self, row: Sequence[_Group | None]) -> tuple[Values, list[tuple[Choice, ...]]]:
        """Sums over the groups of a partition, one row per combination of their frontiers."""
        sums = np.zeros((1, len(self.objectives)))
        payloads: list[list[Choice]] = []
        for group in row:
            own = [i for i, payload in enumerate(group.found.payloads) if payload is not None] if group is not None else []
            if group is None or not own:
                return np.empty((0, len(self.objectives))), []
            sums = (sums[:, None, :] + group.found.points[own][None, :, :]).reshape(-1, sums.shape[1])
            payloads.append([group.found.payloads[i] for i in own])
        return sums, list(product(*payloads))

    def _best(self, restriction: Restriction, chosen: Sequence[Workload]) -> Solution | None:
        best: tuple[float, Workload, tuple[Choice, ...], list[tuple[int, int]]] | None = None
        size, bound = 0, np.inf
        for workload, row, partition in self._rows(restriction, chosen):
            product_of_sizes = 1
            for group in row:
                product_of_sizes *= group.size if group is not None else 0
            size += product_of_sizes
            bound = min(bound, self._bound(workload, row, partition))
            sums, combos = self._combinations(row)
            if len(sums):
                values = self._value(sums)
                position = int(np.argmin(values))
                if best is None or values[position] < best[0]:
                    best = (float(values[position]), workload, combos[position], partition)
        if best is None:
            return None
        return self._solution(restriction, best, size, bound)

    def _bound(self, workload: Workload, row: Sequence[_Group | None], partition: Sequence[tuple[int, int]]) -> float:
        """No mapping of this partition is better than this."""
        sums = np.zeros((1, len(self.objectives)))
        for group, (start, stop) in zip(row, partition, strict=True):
            if group is None:
                reached = self._floor(workload, start, stop)[None, :]
            elif group.done:
                reached = group.found.points
            else:
                left = group.search.open_bounds
                reached = np.array([*left, *group.found.points]) if left else group.floor[None, :]
            if not len(reached):
                return np.inf
            sums = (sums[:, None, :] + reached[None, :, :]).reshape(-1, sums.shape[1])
            sums = sums[minimal(sums)]
        return float(self._value(sums).min())

    def _plan(self, workload: Workload, choices: Sequence[Choice], partition: Sequence[tuple[int, int]]) -> Node:
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
        self,
        restriction: Restriction,
        best: tuple[float, Workload, tuple[Choice, ...], list[tuple[int, int]]],
        size: int,
        bound: float,
    ) -> Solution:
        value, workload, choices, partition = best
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
        stopped = bool(self.stopped)
        gap_allowed = self.problem.gap > 0 and len(self.objectives) == 1
        certificate = Certificate(
            space=SPACE,
            left_out=LEFT_OUT,
            size=size,
            method="branch and bound over tile sizes with bounds from the cost formulas; dynamic programme over fused groups",
            objective=self.problem.objective.value,
            bound=min(bound, reached) if stopped else reached / (1 + self.problem.gap) if gap_allowed else reached,
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
        for workload, row, partition in self._rows(BEST, chosen):
            sums, combos = self._combinations(row)
            for position in minimal(sums) if len(sums) else []:
                frontier.add(sums[int(position)], (workload, combos[int(position)], partition))
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


def _without_collectives(frame: Frame) -> Frame | None:
    """The frame with only those shapes that split no reduction; None where a stage has none left."""
    stages = tuple(
        Stage(stage.name, stage.ops, tuple(s for s in stage.skeletons if not s.splits_reduction)) for stage in frame.stages
    )
    if any(not stage.skeletons for stage in stages) or (frame.splits_reduction and not frame.name.startswith("through")):
        return None
    return Frame(frame.name, frame.shared, stages, frame.wrap, False)


def kernels(workload: Workload) -> tuple[tuple[str, ...], ...]:
    """Op names by kernel; each op alone where the workload names none."""
    return workload.kernels or tuple((op.name,) for op in workload.ops)


def partitions(count: int) -> list[list[tuple[int, int]]]:
    """Every way to cut 0..count into consecutive groups.

    >>> partitions(2)
    [[(0, 1), (1, 2)], [(0, 2)]]
    """
    if count == 0:
        return [[]]
    found = []
    for last in range(count - 1, -1, -1):
        found += [[*head, (last, count)] for head in partitions(last)]
    return found


def objective_value(objective: Objective, time_: float, energy: float) -> float:
    """Value of the objective: [s], [J] or [Js]."""
    match objective:
        case Objective.TIME:
            return time_
        case Objective.ENERGY:
            return energy
        case Objective.EDP:
            return time_ * energy
