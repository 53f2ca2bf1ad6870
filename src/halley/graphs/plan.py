"""Any graph on a whole system: sharded over its axes, with its time, what limits it, and the memory of a chip.

Two views. By default work and collectives run sequentially: kernels take the times of `halley.kernels.times`, collectives those
of the real topology, and the sharding of least time is proven. In the view of DFModel (arXiv 2412.16432) compute, memory and
network of concurrent kernels overlap fully, kernels and collectives run at their full rates, and chips may fuse kernels into
partitions. There the time is not a sum over ops. So several shardings are tried, each optimal for some Lagrange multipliers of
work, memory and network; the multipliers also give a lower bound of every sharding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from halley.answer import Answerable, Certificate, Status, relative_gap
from halley.dfmodel.chip import LIMITING_RESOURCES, dfmodel_chip
from halley.dfmodel.network import check_axes, mesh_time, transfer_time
from halley.errors import BadInput, Fault, Infeasible, InternalError, did_you_mean
from halley.formulas.numbers import ceil_div
from halley.formulas.pipeline import even_pipeline_time
from halley.formulas.spatial import utilisation
from halley.formulas.timing import busy_time, total
from halley.graphs.kernels import (
    GraphMemory,
    graph_memory,
    inner_tensors,
    kernel_groups,
    local_graph,
    op_extents,
    op_work,
)
from halley.graphs.overlap import OverlapTables, overlap_tables
from halley.ir.placement import Replicate, Shard
from halley.ir.system import System
from halley.ir.workload import Op, OpKind, Workload
from halley.kernels.machine import PEAK, Efficiency, machine
from halley.kernels.operations import op_kernel, stream
from halley.kernels.searched import SearchedKernels
from halley.kernels.times import Kernel, demand, kernel_time
from halley.network.graph.bill import Bill, bill
from halley.optim.constrained import ConstrainedMinimum, constrained_minimum
from halley.optim.elimination import CostTable, cost
from halley.optim.multipliers import Numbers, best_multipliers
from halley.sharding.axes import Assignment, Role, assignment_text, assignments, degree, parts_of
from halley.sharding.communication import Communication, Interconnect
from halley.sharding.decisions import ShardingDecisions, decided
from halley.sharding.layouts import Layout, Mesh
from halley.sharding.solution import Sharding, decoded
from halley.sharding.solve import KernelTime, ShardingGraph, ShardingProblem, sharding_graph
from halley.spatial.chip import DFMODEL, SpatialChip, SpatialProblem
from halley.spatial.costs import Partition
from halley.spatial.solve import PartitionGroup, best_plan, plan
from halley.units import format_bytes

OVERLAP_ASSUMPTIONS = replace(DFMODEL, boundary=True, shared=True, kept_twice=False)
"""DFModel's assumptions, with inputs and outputs of the graph, and a tensor of several readers stored once."""

MAX_STALLED_ROUNDS = 3
"""Consecutive multipliers without an improvement after which the search for better ones ends."""

SEARCH_SECONDS = 20.0
"""Time limit of a search with promising multipliers under a tight memory [s]."""

RELATIVE_ROUNDING = 1e-6
"""Relative difference of sums of the same times in another order."""

ACCEPTED_GAP = 1e-3
"""Relative gap at which the search with overlap ends."""

LEFT_OUT = ("pipelines that leave no axis to a layer's ops", "axes that serve two purposes")
"""What no plan of the space does."""

Tick: TypeAlias = Callable[[], None]
"""Called between the steps of a search; it may raise to stop it."""

MAX_MEMORY_TRIES = 8
"""Shardings that are tried with decreasing memory for inputs, until tensors between ops also fit."""


@dataclass(frozen=True)
class GraphProblem:
    """A graph on a system.

    ``layers``: the graph is one of so many equal layers, which pipeline stages may divide. ``microbatches``: number of inputs
    in a row. ``layouts``: by input or output, the dim that an axis splits; axes that are not named leave it whole, and tensors
    that are not named are free. ``same_layout``: inputs and outputs with equal layouts. ``splits``: by op, the dim that an axis
    splits ("" for none), where the user fixes it. ``in_place``: by output, the input whose memory it reuses. ``overlap``: the
    view of DFModel; ``fused``: there, kernels run concurrently. ``efficiency``: of kernels, in the default view; ``searched``:
    their times instead (`halley.graphs.searched`).

    Raises BadInput: sizes below 1, fused kernels in the default view, searched ones in that of DFModel, on a chip that runs
    kernels concurrently or of convolutions, unknown axes or dims, a single chip.
    """

    workload: Workload
    system: System
    layers: int = 1
    microbatches: int = 1
    layouts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    same_layout: tuple[tuple[str, ...], ...] = ()
    in_place: Mapping[str, str] = field(default_factory=dict)
    overlap: bool = False
    fused: bool = False
    efficiency: Efficiency = PEAK
    splits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    searched: SearchedKernels | None = None

    def __post_init__(self) -> None:
        where, faults = f"{self.workload.name} on {self.system.name}", []
        if self.searched is not None and self.overlap:
            faults.append(Fault(where, "kernels at full rates in the view of DFModel", "searched ones", "leave one of them out"))
        elif self.searched is not None and self.system.chip.streams:
            expected = "a chip that runs one kernel at a time, for searched kernels"
            faults.append(Fault(where, expected, self.system.chip.name, "leave them out"))
        elif self.searched is not None and self.workload.indices:
            faults.append(
                Fault(where, "products of matrices, for searched kernels", "convolutions", "leave searched kernels out")
            )
        for name, count in (("layers", self.layers), ("microbatches", self.microbatches)):
            if count < 1:
                faults.append(Fault(f"{where}, {name}", "at least 1", str(count)))
        if self.fused and not self.overlap:
            remedy = "ask for overlap as well"
            faults.append(Fault(where, "kernels one by one in the default view", "fused ones", remedy))
        if self.system.chips < 2:
            faults.append(Fault(where, "at least 2 chips", str(self.system.chips), "a chip alone is 'halley optimise'"))
        for tensor, splits in self.layouts.items():
            faults += _layout_faults(self, tensor, splits)
        axes = [axis.name for axis in self.system.axes]
        for op, split in self.splits.items():
            for axis in split.keys() - set(axes):
                faults.append(Fault(f"{where}, op {op}", "an axis of the system", repr(axis), did_you_mean(axis, axes)))
        if faults:
            raise BadInput(faults)
        if self.overlap:
            check_axes(self.system.axes)

    @cached_property
    def chip(self) -> SpatialChip:
        """The chip in the view of DFModel, at the rate of the graph's products."""
        return dfmodel_chip(self.system, self.fused, self.dtype)

    @property
    def dtype(self) -> str:
        """Element type of the graph's first output."""
        return self.workload.tensors[self.workload.outputs[0]].dtype

    @cached_property
    def peak(self) -> float:
        """Operations per second of all chips."""
        return 2 * machine(self.system.chip).mac_rate(self.dtype) * self.system.chips

    @cached_property
    def work(self) -> float:
        """Operations of all layers and microbatches."""
        return float(total(op_work(self.workload, op) for op in self.workload.ops)) * self.layers * self.microbatches

    @property
    def capacity(self) -> float:
        """Memory of a chip [B]."""
        return self.system.tiers[-1].capacity

    def layout(self, tensor: str, mesh: Mesh) -> Layout:
        splits = self.layouts[tensor]
        return tuple(Shard(splits[axis.name]) if splits.get(axis.name) else Replicate() for axis in mesh)


def _layout_faults(problem: GraphProblem, tensor: str, splits: Mapping[str, str]) -> list[Fault]:
    work, where = problem.workload, f"layout of {tensor}"
    if tensor not in work.tensors:
        return [Fault(where, f"a tensor of {work.name}", repr(tensor), did_you_mean(tensor, work.tensors))]
    axes, dims = [axis.name for axis in problem.system.axes], work.tensors[tensor].dims
    return [
        Fault(where, f"axes ({', '.join(axes)}) and dims ({', '.join(dims)})", f"{axis}: {dim or 'whole'}")
        for axis, dim in splits.items()
        if axis not in axes or (dim and dim not in dims)
    ]


@dataclass(frozen=True, repr=False)
class GraphPlan(Answerable):
    """The best plan found: its axes, its sharding, the ``partitions`` of a chip that fuses kernels.

    ``time`` [s] of all layers and microbatches. ``account`` [s]: breakdown of the time. ``memory``: of a chip, for its layers.
    ``certificate``: no sharding of the declared space takes less than its bound [s].
    """

    problem: GraphProblem
    assignment: Assignment
    sharding: Sharding
    partitions: tuple[Partition, ...]
    time: float
    account: Mapping[str, float]
    memory: GraphMemory
    certificate: Certificate

    @property
    def utilisation(self) -> float:
        """Share of the peak of all chips that the graph's work uses."""
        return float(utilisation(self.problem.work, self.time, self.problem.peak))

    @cached_property
    def bill(self) -> Bill:
        return bill(self.problem.system)


@dataclass(frozen=True)
class _Layer:
    """A layer on the chips of a stage: its time and the breakdown of it [s]."""

    sharding: Sharding
    partitions: tuple[Partition, ...]
    time: float
    account: Mapping[str, float]
    memory: GraphMemory


@dataclass(frozen=True, slots=True)
class _Answer:
    """For one assignment: the best ``layer``, a lower ``bound`` of all [s]; without a layer the ``misfits``."""

    bound: float
    layer: _Layer | None
    misfits: Sequence[Fault] = ()


def plan_graph(problem: GraphProblem, tick: Tick = lambda: None) -> GraphPlan:
    """The fastest plan over whole axes for stages and ops; `GraphPlan.certificate` says what the view cannot prove.

    ``tick`` is called between steps, and may raise to stop the search.

    Raises Infeasible: nothing fits into memory; with the least need.
    """
    interconnect = Interconnect(problem.system, named=bool(problem.splits))
    best: GraphPlan | None = None
    bound, misfits = math.inf, list[Fault]()
    for assignment in assignments(problem.system, {Role.DATA: 1}, whole=True):
        stages = degree(assignment, Role.PIPELINE)
        if stages > problem.layers or degree(assignment, Role.MODEL) < 2:
            continue
        tick()
        communication = Communication(interconnect, assignment)
        try:
            answer = (_overlapped if problem.overlap else _serial)(problem, communication, tick)
        except Infeasible as error:
            misfits += error.faults
            continue
        bound = min(bound, _all_stages(problem, stages, answer.bound))
        if answer.layer is None:
            misfits += answer.misfits
            continue
        found = _pipelined(problem, communication, answer.layer, stages)
        if best is None or found.time < best.time:
            best = found
    if best is None:
        raise Infeasible(misfits)
    if bound > best.time * (1 + RELATIVE_ROUNDING):
        raise InternalError(
            Fault(f"bound of {problem.workload.name}", f"at most {best.time!r} s, which was found", f"{bound!r} s")
        )
    bound = min(bound, best.time)
    status = Status.OPTIMAL if relative_gap(best.time, bound) <= RELATIVE_ROUNDING else Status.LIMIT
    return replace(best, certificate=replace(best.certificate, bound=bound, status=status))


def decided_graph_plan(problem: GraphProblem, assignment: Assignment, decisions: ShardingDecisions) -> GraphPlan:
    """The plan that the decisions stand for, with its time, memory and partitions computed anew. Its certificate claims nothing.

    Raises BadInput: an assignment that the system does not have, decisions that the graph does not have; Infeasible: what a chip
    holds does not fit.
    """
    where = f"{problem.workload.name} on {problem.system.name}"
    if assignment not in assignments(problem.system, {Role.DATA: 1}, whole=True):
        raise BadInput(Fault(f"{where}, axes", "whole axes for stages and ops", assignment_text(assignment)))
    stages = degree(assignment, Role.PIPELINE)
    if stages > problem.layers or degree(assignment, Role.MODEL) < 2:
        expected = f"at most {problem.layers} stages, and at least 2 chips for each op"
        raise BadInput(Fault(f"{where}, axes", expected, assignment_text(assignment)))
    communication = Communication(Interconnect(problem.system, named=bool(problem.splits)), assignment)
    asked = (_asked_overlapped if problem.overlap else _asked_serial)(problem, communication)
    sharding = decided(sharding_graph(asked), decisions)
    layer = (_on_chip if problem.overlap else _one_by_one)(problem, sharding)
    found = _pipelined(problem, communication, layer, stages)
    if found.memory.total > problem.capacity:
        got = f"{format_bytes(found.memory.total)} on a chip"
        raise Infeasible(Fault(f"{where}, memory", f"at most {format_bytes(problem.capacity)}", got))
    return found


def _all_stages(problem: GraphProblem, stages: int, layer: float, rest: float = 0.0) -> float:
    """Time of all layers and microbatches [s]; ``rest``: of a stage, in addition to its layers."""
    layers = int(ceil_div(problem.layers, stages))
    return float(even_pipeline_time(stages, 1, problem.microbatches, layers * layer + rest, 0.0))


def _pipelined(problem: GraphProblem, communication: Communication, layer: _Layer, stages: int) -> GraphPlan:
    """Stages have whole layers; a stage sends its outputs after each microbatch."""
    layers = int(ceil_div(problem.layers, stages))
    size = layer.memory.outputs
    if problem.overlap:
        axes = tuple(problem.system.axis(part.axis) for part in parts_of(communication.assignment, Role.PIPELINE))
        waited = max(0.0, transfer_time(axes, size) - layers * layer.time)
    else:
        waited = float(communication.transfer(0, size))

    account = {name: share * layers * problem.microbatches for name, share in layer.account.items()}
    account["transfers"] = waited * problem.microbatches
    time = _all_stages(problem, stages, layer.time, waited)
    account["bubble"] = time - (layers * layer.time + waited) * problem.microbatches
    memory = GraphMemory(layers * layer.memory.inputs, layer.memory.outputs, layer.memory.working)
    certificate = Certificate(time, 0.0, Status.LIMIT, left_out=LEFT_OUT)
    return GraphPlan(problem, communication.assignment, layer.sharding, layer.partitions, time, account, memory, certificate)


def _serial(problem: GraphProblem, communication: Communication, tick: Tick) -> _Answer:
    """Work and collectives in sequence: the sharding of least time."""
    graph = sharding_graph(_asked_serial(problem, communication))
    fitting = _Fitting(problem, graph, tick)
    relaxed = fitting.relaxed(graph.time)
    try:
        found = fitting(graph.time, relaxed)
    except Infeasible as error:
        return _Answer(relaxed.bound, None, error.faults)
    return _Answer(relaxed.bound, _one_by_one(problem, found))


def _one_by_one(problem: GraphProblem, found: Sharding) -> _Layer:
    """A sharding's time where work and collectives follow each other."""
    chip, work = machine(problem.system.chip), problem.workload
    account = {"compute": 0.0, "memory": 0.0, "network": found.collective_time}
    for item in found.ops:
        op = work.op(item.op)
        macs, moved = demand(op_kernel(work, op, op_extents(found, op)))
        multiplies = float(macs) / chip.mac_rate(problem.dtype) if macs else 0.0
        account["memory" if float(busy_time(moved, chip.memory)) > multiplies else "compute"] += item.time
    return _Layer(found, (), found.time, account, graph_memory(found, problem.in_place))


def _asked_serial(problem: GraphProblem, communication: Communication) -> ShardingProblem:
    """The sharding problem where work and collectives follow each other."""
    asked = _asked(problem, communication.mesh)
    return replace(asked, kernel_time=_kernel_times(problem), collective_time=communication.model)


def _kernel_times(problem: GraphProblem) -> KernelTime:
    """Ops of one kernel share a launch, and pass tensors through the cache."""
    work, chip, searched = problem.workload, machine(problem.system.chip), problem.searched
    inner, first = inner_tensors(work), {group[0] for group in kernel_groups(work)}
    reached = problem.efficiency if searched is None else PEAK
    behind = replace(reached, launch=0.0)

    def time(op: Op, local: Mapping[str, int]) -> float:
        kernel = graph_kernel(work, op, local, inner)
        if searched is not None:
            return float(searched.times(kernel))
        return float(kernel_time(kernel, chip, reached if op.name in first else behind))

    return time


def graph_kernel(workload: Workload, op: Op, local: Mapping[str, int], inner: Container[str]) -> Kernel:
    """An op as a kernel, or as its part of one: a product, or a stream of those of its tensors that enter or leave the kernel;
    ``inner`` ones pass through the cache (`halley.graphs.kernels.inner_tensors`)."""
    if op.kind is OpKind.CONTRACT:
        return op_kernel(workload, op, local)
    read, cached = ([name for name in op.inputs if (name in inner) is inside] for inside in (False, True))
    written = [name for name in op.outputs if name not in inner]
    return stream(workload, op, {**workload.dims, **local}, read, written, cached)


def _overlapped(problem: GraphProblem, communication: Communication, tick: Tick) -> _Answer:
    """Shardings that are each optimal for some multipliers, and the best of them; a bound from any multipliers holds for all
    shardings. Where memory is tight, only the most promising multipliers are searched to the end."""
    tables = overlap_tables(_asked_overlapped(problem, communication), problem.chip, problem.fused)
    search = _Search(problem, tables, _Fitting(problem, tables.graph, tick))
    search.raise_bound()
    if search.short and not search.closed:
        search.try_multipliers(search.promising, SEARCH_SECONDS)
    return _Answer(search.bound, search.best, search.misfits)


def _asked_overlapped(problem: GraphProblem, communication: Communication) -> ShardingProblem:
    """The sharding problem in the view of DFModel."""
    return replace(_asked(problem, communication.mesh), collective_time=mesh_time(problem.system))


@dataclass(slots=True, eq=False)
class _Search:
    """State of the search over multipliers: the ``best`` layer; the ``bound`` [s] and its multipliers (``promising``); the
    times of the shardings found (``always``, ``times``: see `halley.optim.multipliers.best_multipliers`). ``short``: memory
    was binding, and the search with these multipliers stopped early."""

    problem: GraphProblem
    tables: OverlapTables
    fitting: _Fitting
    always: list[float] = field(default_factory=list)
    times: list[Numbers] = field(default_factory=list)
    misfits: list[Fault] = field(default_factory=list)
    best: _Layer | None = None
    bound: float = 0.0
    promising: Numbers = field(default_factory=lambda: np.zeros((0, 0)))
    short: bool = False

    @property
    def closed(self) -> bool:
        return self.best is not None and self.best.time <= self.bound * (1 + ACCEPTED_GAP)

    def raise_bound(self) -> None:
        """Improves the multipliers. Those optimal against the shardings found may be poor while these are few: where they do
        not help, the next ones are between them and the most promising ones."""
        shares = np.full((len(self.tables.kernels), self.tables.resources), 1.0 / self.tables.resources)
        stalled = 0
        while True:
            met = len(self.times)
            stalled = 0 if self.try_multipliers(shares, 0.0) else stalled + 1
            known = stalled == 1 and len(self.times) == met
            if self.closed or known or stalled == MAX_STALLED_ROUNDS:
                break
            shares = best_multipliers(np.array(self.always), np.array(self.times))
            if stalled:
                shares = (shares + self.promising) / 2

    def try_multipliers(self, shares: Numbers, seconds: float) -> bool:
        """Searches with these multipliers up to a time limit [s]; returns whether that improved anything."""
        costs = list(self.tables.weighted(shares))
        relaxed = self.fitting.relaxed(costs, seconds=seconds)
        rose = relaxed.bound > self.bound * (1 + ACCEPTED_GAP / 4)
        if relaxed.bound > self.bound:
            self.bound, self.promising, self.short = relaxed.bound, shares, relaxed.gap > 0
        once, each = self.tables.times(relaxed.values)
        if any(np.array_equal(each, other) for other in self.times):
            return rose
        self.always.append(once)
        self.times.append(each)
        if self.best is not None and once + float(each.max(axis=1).sum()) >= self.best.time:
            return rose
        try:
            layer = _on_chip(self.problem, self.fitting(costs, relaxed), self.fitting.tick)
        except Infeasible as error:
            self.misfits += error.faults
            return rose
        if self.best is None or layer.time < self.best.time:
            self.best, rose = layer, True
        return rose


def _on_chip(problem: GraphProblem, sharding: Sharding, tick: Tick = lambda: None) -> _Layer:
    """A sharding's time with full overlap."""
    graph = local_graph(sharding, problem.fused)
    stage = SpatialProblem(graph, problem.chip, OVERLAP_ASSUMPTIONS, most=1.0)
    parts = (best_plan(stage, tick=tick) if problem.fused else plan(stage, graph.sequence, _kernels(problem.workload))).partitions
    account = {name: float(total(part.steady for part in parts if part.bottleneck == name)) for name in LIMITING_RESOURCES}
    account["memory"] += float(total(part.once for part in parts))
    return _Layer(sharding, parts, float(total(account.values())), account, graph_memory(sharding, problem.in_place))


def _kernels(work: Workload) -> list[PartitionGroup]:
    """The workload's kernels as partitions."""
    place = {op.name: number for number, op in enumerate(work.ops)}
    groups = [sum(1 << place[name] for name in group) for group in kernel_groups(work)]
    return [(group, 0) for group in sorted(groups)]


def _asked(problem: GraphProblem, mesh: Mesh) -> ShardingProblem:
    """The sharding problem, without times of kernels and collectives."""
    work, layers, names = problem.workload, _layers(problem, mesh), {axis.name for axis in mesh}
    return ShardingProblem(
        work,
        mesh,
        _nothing,
        _nothing,
        {name: problem.layout(name, mesh) for name in problem.layouts},
        {op: {axis: dim for axis, dim in split.items() if axis in names} for op, split in problem.splits.items()},
        same_layout=problem.same_layout,
        weights={name: float(work.tensors[name].word * layers) for name in work.inputs if work.consumers(name)},
    )


def _nothing(*given: object) -> float:
    return 0.0


def _layers(problem: GraphProblem, mesh: Mesh) -> int:
    """Layers of a stage."""
    return int(ceil_div(problem.layers, problem.system.chips // math.prod(axis.ranks for axis in mesh)))


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Shardings whose tensors fit into a chip's memory. The search counts inputs and outputs; the memory of tensors between ops
    is known once a sharding is, and reduces the budget for inputs and outputs."""

    problem: GraphProblem
    graph: ShardingGraph
    tick: Tick

    def relaxed(self, costs: Sequence[CostTable], budget: float = math.inf, seconds: float = 60.0) -> ConstrainedMinimum:
        """The least cost of those whose inputs and outputs fit; its bound holds for all shardings that fit. ``budget`` [B]:
        memory budget; ``seconds`` [s]: time limit."""
        uses = [*self.graph.weights, *self._outputs()]
        where = f"{self.problem.workload.name} on {self.problem.system.name}, memory"
        return constrained_minimum(
            costs,
            uses,
            min(budget, self.problem.capacity),
            where,
            lambda size, values: format_bytes(size),
            seconds,
            tick=self.tick,
        )

    def _outputs(self) -> Iterator[CostTable]:
        known = self.problem
        for name in known.workload.outputs:
            if name not in known.in_place:
                sizes = self.graph.layouts[name].bytes[list(self.graph.layouts[name].complete)]
                yield CostTable((self.graph.variables[f"end {name}"],), sizes.astype(np.float64))

    def __call__(self, costs: Sequence[CostTable], first: ConstrainedMinimum) -> Sharding:
        """The best sharding that also fits with the tensors between ops, searched with decreasing budgets."""
        problem, found = self.problem, first
        layers, budget = _layers(problem, self.graph.problem.mesh), problem.capacity
        for _ in range(MAX_MEMORY_TRIES):
            sharding = decoded(self.graph, replace(found, cost=cost(self.graph.time, found.values)))
            memory = graph_memory(sharding, problem.in_place)
            if memory.inputs * layers + memory.outputs + memory.working <= problem.capacity:
                return sharding
            budget = min(budget, problem.capacity) - memory.working
            if budget <= 0:
                break
            found = self.relaxed(costs, budget)
        got = f"{format_bytes(memory.total)} (inputs {format_bytes(memory.inputs)}, working {format_bytes(memory.working)})"
        remedy = "use more chips, or chips with more memory"
        where = f"{problem.workload.name} on {problem.system.name}, memory"
        raise Infeasible(Fault(where, format_bytes(problem.capacity), got, remedy))
