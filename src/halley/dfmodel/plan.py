"""Training on a whole system in the view of DFModel (arXiv 2412.16432): the best role of each axis, proven.

Every axis has one role: data, pipeline or tensor parallelism. Compute, memory and network of concurrent kernels overlap fully,
collectives have no latency, nothing is recomputed, embedding and head are omitted. On chips that stream between kernels, these
run in the best partitions (`halley.spatial.solve`), on others one by one.

Each partition processes a microbatch before the next partition starts, with its weights loaded once for it; memory has to hold
the tensors that all partitions pass on. The pipeline fills and drains once per iteration. Gradients are reduced over the
data-parallel chips in parallel with the work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TypeAlias

from halley.answer import Answerable
from halley.dfmodel.chip import (
    LIMITING_RESOURCES,
    TileSearch,
    UnfusedCosts,
    dfmodel_chip,
    floor_costs,
    single_kernel_groups,
    unfused_costs,
    usable_tables,
)
from halley.dfmodel.layer import BYTES_PER_ELEMENT, FORWARD, check_layer, layer_graph
from halley.dfmodel.network import check_axes, collective_time, transfer_time
from halley.errors import BadInput, Fault, Infeasible, InternalError
from halley.formulas.numbers import ceil_div
from halley.formulas.pipeline import even_pipeline_time
from halley.formulas.spatial import amortised_time, stage_time, utilisation
from halley.formulas.timing import total
from halley.ir.hardware import Axis
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.network.graph.bill import Bill, bill
from halley.optim.divisors import divisors
from halley.optim.downsets import Costs
from halley.sharding.axes import Assignment, Role, assignment_text, assignments, degree, parts_of
from halley.spatial.chip import DFMODEL, SpatialChip, SpatialGraph, SpatialProblem
from halley.spatial.growth import GrowthTables
from halley.spatial.solve import RELATIVE_ROUNDING, SpatialPlan, plan, search_rising_limits, tiled_plan
from halley.workloads.transformer import Transformer, check_training


@dataclass(frozen=True, slots=True)
class AxisChoice:
    """The role of each axis, and the number of sequences processed in a row."""

    assignment: Assignment
    microbatch: int


@dataclass(frozen=True)
class DFModelProblem:
    """A model, the system that trains it, the ``batch`` [sequences] of an iteration, each of ``sequence`` [tokens].

    ``fused``: the chip runs kernels concurrently that stream to each other (a dataflow chip); else one by one. ``degrees``:
    required ranks by role.

    Raises BadInput: a layer other than GPT's, axes of topologies that DFModel lacks, sizes below 1.
    """

    shape: Transformer
    system: System
    batch: int
    sequence: int
    fused: bool
    degrees: Mapping[Role, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_layer(self.shape)
        check_axes(self.system.axes)
        check_training(self.shape, self.batch, self.sequence, "bf16")

    @cached_property
    def chip(self) -> SpatialChip:
        return dfmodel_chip(self.system, self.fused)

    @cached_property
    def work(self) -> float:
        """Operations of an iteration, on all chips [1]."""
        return layer_graph(self.shape, self.sequence).work * self.shape.layers * self.batch

    @cached_property
    def peak(self) -> float:
        """Operations per second of all chips."""
        return self.system.chips * self.chip.peak

    def axes(self, assignment: Assignment, role: Role) -> tuple[Axis, ...]:
        """The system's axes with a role."""
        return tuple(self.system.axis(part.axis) for part in parts_of(assignment, role))

    def stage(self, choice: AxisChoice) -> SpatialProblem:
        """A layer on one chip of a stage. Stages have whole layers, so the stage with most of them counts."""
        stages = degree(choice.assignment, Role.PIPELINE)
        return SpatialProblem(
            _graph(self.shape, self.sequence, self.axes(choice.assignment, Role.MODEL)),
            self.chip,
            DFMODEL,
            int(ceil_div(self.shape.layers, stages)) * stages,
            stages,
            transfer_time(self.axes(choice.assignment, Role.PIPELINE), self.shape.model * self.sequence * BYTES_PER_ELEMENT),
            self.fused,
            most=choice.microbatch,
            fewest=choice.microbatch,
        )

    def samples(self, assignment: Assignment) -> int:
        """Samples of an iteration on the data-parallel replica with most."""
        return int(ceil_div(self.batch, degree(assignment, Role.DATA)))

    def scale(self, choice: AxisChoice, stage: SpatialProblem) -> float:
        """Iteration time per layer time and sample [1]."""
        microbatches = self.samples(choice.assignment) // choice.microbatch
        passes = choice.microbatch * float(stage_time(1.0, stage.layers, stage.stages))
        return float(even_pipeline_time(stage.stages, 1, microbatches, passes, 0.0))

    def reduction(self, choice: AxisChoice, stage: SpatialProblem) -> float:
        """Time to reduce a stage's gradients over the replicas [s]."""
        data = self.axes(choice.assignment, Role.DATA)
        if not data:
            return 0.0
        layer = collective_time(CollectiveKind.ALL_REDUCE, data, gradient_bytes(stage.graph))
        return float(stage_time(layer, stage.layers, stage.stages))


def gradient_bytes(graph: SpatialGraph) -> float:
    """Bytes of the gradients of a layer's weights."""
    return float(total(kernel.weights for kernel in graph.kernels[: len(FORWARD)]))


@lru_cache(maxsize=256)
def _graph(shape: Transformer, sequence: int, axes: tuple[Axis, ...]) -> SpatialGraph:
    chips = math.prod(axis.size for axis in axes)
    return layer_graph(shape, sequence, chips, lambda size: collective_time(CollectiveKind.ALL_REDUCE, axes, size))


@dataclass(frozen=True, slots=True)
class Candidate:
    """An assignment with its best microbatch. ``time`` [s] of an iteration: exact, or a lower bound that rules it out;
    infinite, with the ``reason``, where it is impossible."""

    assignment: Assignment
    time: float
    exact: bool = True
    reason: str = ""


@dataclass(frozen=True, repr=False)
class DFModelResult(Answerable):
    """The best plan: its axes and microbatch, its partitions (``layer``), ``time`` [s] of an iteration.

    ``candidates``: every assignment of the space, the fastest first. ``choices``: number of assignments with microbatches. The
    plan is proven optimal: every other choice was costed, or is no better by its lower bound.
    """

    problem: DFModelProblem
    choice: AxisChoice
    layer: SpatialPlan
    time: float
    candidates: tuple[Candidate, ...]
    choices: int
    seconds: float

    @property
    def utilisation(self) -> float:
        """Share of the peak of all chips that the model's work uses."""
        return float(utilisation(self.problem.work, self.time, self.problem.peak))

    @cached_property
    def bill(self) -> Bill:
        return bill(self.problem.system)

    @property
    def memory(self) -> float:
        """Bytes of a chip's DRAM in use."""
        stage = self.layer.problem
        kept = total(part.kept for part in self.layer.partitions)
        return float(stage_time(stage.graph.weights + self.choice.microbatch * kept, stage.layers, stage.stages))

    @property
    def account(self) -> dict[str, float]:
        """Breakdown of an iteration's time [s]: partitions by limiting resource, loading of weights, waits for transfers to the
        next stage, filling and draining of the pipeline, waits for gradients. Adds up to ``time``."""
        stage, parts = self.layer.problem, self.layer.partitions
        whole = self.problem.scale(self.choice, stage)
        busy = float(stage_time(1.0, stage.layers, stage.stages)) * self.problem.samples(self.choice.assignment)
        found = {name: total(part.steady for part in parts if part.bottleneck == name) for name in LIMITING_RESOURCES}
        found["weights"] = float(amortised_time(0.0, total(part.once for part in parts), self.layer.samples))
        found["transfers"] = max(0.0, self.layer.layer - total(found.values()))
        account = {name: float(share) * busy for name, share in found.items()}
        account["bubble"] = self.layer.layer * (whole - busy)
        return account | {"gradients": max(0.0, self.time - self.layer.layer * whole)}

    def __str__(self) -> str:
        where = assignment_text(self.choice.assignment)
        return f"{where}, microbatches of {self.choice.microbatch}: {self.time:.4g} s, {self.utilisation:.1%} of the peak"


def best_training(problem: DFModelProblem, tick: Callable[[], None] = lambda: None) -> DFModelResult:
    """The assignment of whole axes, the microbatch and the partitions on the chip with the least time, proven.

    A dataflow chip may also run all kernels one by one, so that it is never slower than a chip that has to; the problem of the
    result is then that of one by one. ``tick`` is called between steps, and may raise to stop the search.

    Raises Infeasible: nothing fits; BadInput: degrees that no assignment has.
    """
    start = time.perf_counter()
    results, faults, count = [], [], 0
    for each in (problem, replace(problem, fused=False)) if problem.fused else (problem,):
        try:
            results.append(_best_of(each, tick))
            count += results[-1].choices
        except Infeasible as error:
            faults.append(error)
    if not results:
        raise faults[-1]  # one by one, which needs least
    best = min(results, key=lambda result: result.time)
    return replace(best, choices=count, seconds=time.perf_counter() - start)


def _best_of(problem: DFModelProblem, tick: Callable[[], None]) -> DFModelResult:
    """With fusion as the problem says."""
    found: dict[Assignment, Candidate] = {}
    open_: list[tuple[AxisChoice, SpatialProblem]] = []
    for assignment in assignments(problem.system, problem.degrees, whole=True):
        reason = _unusable(problem, assignment)
        found[assignment] = Candidate(assignment, math.inf, reason=reason or "memory does not hold a sample")
        if not reason:
            sizes = divisors(problem.samples(assignment))
            open_ += ((choice, problem.stage(choice)) for choice in (AxisChoice(assignment, size) for size in sizes))
    judge = _fused if problem.fused else _one_by_one
    best = judge(problem, open_, found, tick)
    if best is None:
        raise Infeasible(_nothing_fits(problem, found.values()))
    ordered = tuple(sorted(found.values(), key=lambda each: each.time))
    return DFModelResult(problem, *best, ordered, len(open_), 0.0)


Named = tuple[Sequence[str], Sequence[str], int]
"""Names of the kernels of a partition, of those of them whose weights stream, and the points of a sequence tile."""


def decided_dfmodel(problem: DFModelProblem, choice: AxisChoice, chain: Sequence[Named]) -> tuple[SpatialPlan, float]:
    """The plan of these decisions, costed from scratch: its partitions, and the time of an iteration [s].

    Raises BadInput: axes that the system lacks or that are not whole, a microbatch that does not divide the samples of a replica,
    partitions of other kernels; Infeasible: what does not fit.
    """
    where = f"plan of {problem.shape.name} in DFModel's view"
    if choice.assignment not in assignments(problem.system, problem.degrees, whole=True):
        raise BadInput(Fault(f"{where}, axes", "whole axes of the system", assignment_text(choice.assignment)))
    if reason := _unusable(problem, choice.assignment):
        raise Infeasible(Fault(f"{where}, axes", "an assignment that works", reason))
    if choice.microbatch not in divisors(problem.samples(choice.assignment)):
        expected = f"a divisor of the {problem.samples(choice.assignment)} samples of a replica"
        raise BadInput(Fault(f"{where}, microbatch", expected, str(choice.microbatch)))
    stage = problem.stage(choice)
    places = {kernel.name: place for place, kernel in enumerate(stage.graph.kernels)}
    unknown = [name for kernels, streamed, _ in chain for name in (*kernels, *streamed) if name not in places]
    if unknown:
        raise BadInput([Fault(f"{where}, partitions", "kernels of the layer", repr(name)) for name in unknown])

    def group(names: Sequence[str]) -> int:
        return sum(1 << places[name] for name in dict.fromkeys(names))

    layer = tiled_plan(stage, [(group(kernels), group(streamed), tile) for kernels, streamed, tile in chain])
    time = max(layer.layer * problem.scale(choice, stage), problem.reduction(choice, stage))
    return replace(layer, bound=layer.layer), time


def _unusable(problem: DFModelProblem, assignment: Assignment) -> str:
    stages, replicas = degree(assignment, Role.PIPELINE), degree(assignment, Role.DATA)
    if stages > problem.shape.layers:
        return f"{stages} stages for {problem.shape.layers} layers"
    if replicas > problem.batch:
        return f"{replicas} data-parallel replicas for {problem.batch} sequences"
    return ""


OpenChoices: TypeAlias = Sequence[tuple[AxisChoice, SpatialProblem]]
CandidatesByAssignment: TypeAlias = dict[Assignment, Candidate]


def _note(found: CandidatesByAssignment, assignment: Assignment, time: float, exact: bool = True) -> None:
    if time < found[assignment].time:
        found[assignment] = Candidate(assignment, time, exact)


def _one_by_one(
    problem: DFModelProblem, open_: OpenChoices, found: CandidatesByAssignment, tick: Callable[[], None]
) -> tuple[AxisChoice, SpatialPlan, float] | None:
    """The best choice without fusion; all are costed."""
    known: dict[int, UnfusedCosts] = {}
    best: tuple[float, AxisChoice, SpatialProblem] | None = None
    for choice, stage in open_:
        tick()
        if id(stage.graph) not in known:
            known[id(stage.graph)] = unfused_costs(stage)
        costs = known[id(stage.graph)]
        layer = max(stage.value(costs.steady, costs.setup, costs.kept), stage.transfer)
        time = max(layer * problem.scale(choice, stage), problem.reduction(choice, stage))
        _note(found, choice.assignment, time)
        if math.isfinite(time) and (best is None or time < best[0]):
            best = time, choice, stage
    if best is None:
        return None
    time, choice, stage = best
    return choice, _recosted(problem, choice, plan(stage, stage.graph.sequence, single_kernel_groups(stage.graph)), time), time


def _fused(
    problem: DFModelProblem, open_: OpenChoices, found: CandidatesByAssignment, tick: Callable[[], None]
) -> tuple[AxisChoice, SpatialPlan, float] | None:
    """The best choice with fusion. Searches of all choices and sequence tiles share one limit, which rises from the lowest
    bound."""
    known: dict[int, list[tuple[GrowthTables, Costs]]] = {}
    attempts: list[TileSearch[AxisChoice]] = []
    for choice, stage in open_:
        tick()
        if id(stage.graph) not in known:
            known[id(stage.graph)] = [(made, floor_costs(made)) for made in usable_tables(stage)]
        if not known[id(stage.graph)]:
            found[choice.assignment] = Candidate(choice.assignment, math.inf, reason="a kernel does not fit on the chip")
        scale = problem.scale(choice, stage)
        least = max(problem.reduction(choice, stage), stage.transfer * scale)
        for made, floor in known[id(stage.graph)]:
            attempts.append(TileSearch(choice, replace(made, problem=stage), floor, scale, least))
    attempts = sorted((each for each in attempts if math.isfinite(each.root)), key=lambda each: each.root)
    value, best = math.inf, None
    for attempt in attempts:
        tick()
        if attempt.root >= value:
            break
        groups, value = attempt.consecutive(value)
        best = (groups, value, attempt) if groups else best
    if attempts:
        best = search_rising_limits(attempts, value, tick) or best
    for attempt in attempts:
        _note(found, attempt.choice.assignment, attempt.root, exact=False)
    if best is None:
        return None
    groups, time, winner = best
    choice = winner.choice
    found[choice.assignment] = Candidate(choice.assignment, time)
    layer = tiled_plan(winner.made.problem, groups)
    return choice, _recosted(problem, choice, layer, time), time


def _recosted(problem: DFModelProblem, choice: AxisChoice, layer: SpatialPlan, time: float) -> SpatialPlan:
    """The plan, costed from scratch. Raises InternalError: the search had found another time."""
    stage = layer.problem
    costed = max(layer.layer * problem.scale(choice, stage), problem.reduction(choice, stage))
    if not math.isclose(costed, time, rel_tol=RELATIVE_ROUNDING):
        raise InternalError(Fault("plan in DFModel's view", f"{costed!r} s, costed from scratch", f"{time!r} s from the search"))
    return replace(layer, bound=layer.layer)


def _nothing_fits(problem: DFModelProblem, candidates: Iterable[Candidate]) -> list[Fault]:
    """Each reason with the assignments that it rules out."""
    where = f"{problem.shape.name} on {problem.system.name}"
    found: dict[str, list[str]] = {}
    for each in candidates:
        found.setdefault(each.reason, []).append(assignment_text(each.assignment))
    remedy = "use more chips, chips with more memory, or other axes"
    return [Fault(where, "an assignment that works", f"{reason} ({'; '.join(texts)})", remedy) for reason, texts in found.items()]
