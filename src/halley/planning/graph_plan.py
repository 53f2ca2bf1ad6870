"""Any graph on a whole system: shared out over its axes, with its time, what limits it, and what a chip keeps.

Two views. By default work and collectives follow each other: kernels take what `halley.planning.kernels` says, collectives what
the real topology takes, and the sharding of least time is proven. In the view of DFModel (arXiv 2412.16432) compute, memory and
network of what runs together overlap fully, kernels and collectives come at their full rates, and chips may fuse kernels into
partitions. There the time is not a sum over ops, so that several shardings are tried, each the best for some price of work
against network; such a price also gives a lower bound of every sharding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from halley.errors import BadInput, Fault, Infeasible, did_you_mean
from halley.formulas.numbers import ceil_div
from halley.formulas.pipeline import even_pipeline_time
from halley.formulas.spatial import utilisation
from halley.formulas.timing import busy_time, total
from halley.ir.placement import Replicate, Shard
from halley.ir.system import System
from halley.ir.workload import Op, OpKind, Workload
from halley.network.bill import Bill, bill
from halley.planning.axes import Assignment, Role, assignments, degree, parts_of
from halley.planning.communication import Communication, Interconnect
from halley.planning.dfmodel_chip import LIMITS, dfmodel_chip
from halley.planning.dfmodel_network import check_axes, mesh_time, transfer_time
from halley.planning.graph_kernels import (
    GraphMemory,
    crossing_tensors,
    extents_of,
    groups_of,
    inner_tensors,
    least_point_time,
    local_graph,
    memory_of,
    touched_bytes,
    work_of,
)
from halley.planning.kernels import demand, kernel_time
from halley.planning.layouts import CollectiveTime, Layout, Mesh
from halley.planning.machine import PEAK, Efficiency, machine
from halley.planning.operations import op_kernel, stream
from halley.planning.partitioning import Group, best_plan, plan
from halley.planning.sharded import Move, Sharding, shard
from halley.planning.sharding import KernelTime, ShardingProblem
from halley.planning.spatial import DFMODEL, Partition, Problem, SpatialChip
from halley.units import format_bytes

OVERLAPPED = replace(DFMODEL, boundary=True, shared=True, kept_twice=False)
"""DFModel's assumptions, with what enters and leaves the graph, and a tensor of several readers stored once."""

PRICES = ((0.34, 0.33, 0.33), (0.9, 0.05, 0.05), (0.05, 0.9, 0.05), (0.05, 0.05, 0.9))
"""Shares of compute, memory and network in what a sharding is searched for, where the three overlap; they add up to 1."""

TRIES = 8
"""Shardings that are tried under less and less memory for inputs, until what passes between ops has room as well."""


@dataclass(frozen=True)
class GraphProblem:
    """A graph on a system.

    ``layers``: the graph is one of so many equal layers, which pipeline stages may share out; ``microbatches``: so many inputs
    follow each other. ``layouts``: by input or output, the dim that an axis splits; axes that are not named leave it whole, and
    tensors that are not named lie as is best. ``together``: inputs and outputs that lie alike. ``in_place``: by output, the
    input whose room it takes. ``overlap``: the view of DFModel; ``fused``: there, kernels run side by side. ``efficiency``: of
    kernels, in the default view.

    Raises BadInput: sizes below 1, fused kernels in the default view, axes or dims that there are not, a single chip.
    """

    workload: Workload
    system: System
    layers: int = 1
    microbatches: int = 1
    layouts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    together: tuple[tuple[str, ...], ...] = ()
    in_place: Mapping[str, str] = field(default_factory=dict)
    overlap: bool = False
    fused: bool = False
    efficiency: Efficiency = PEAK

    def __post_init__(self) -> None:
        where, faults = f"{self.workload.name} on {self.system.name}", []
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
        return float(total(work_of(self.workload, op) for op in self.workload.ops)) * self.layers * self.microbatches

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


@dataclass(frozen=True)
class GraphPlan:
    """The best plan found: its axes, its sharding, the ``partitions`` of a chip that fuses kernels.

    ``time`` [s] of all layers and microbatches, ``bound`` [s] a lower bound of it over all shardings of the declared space.
    ``account`` [s]: its parts. ``memory``: of a chip, for its layers. ``left_out``: what was not searched.
    """

    problem: GraphProblem
    assignment: Assignment
    sharding: Sharding
    partitions: tuple[Partition, ...]
    time: float
    bound: float
    account: Mapping[str, float]
    memory: GraphMemory
    left_out: tuple[str, ...]

    @property
    def gap(self) -> float:
        """How far the plan may be from the best, relative to the bound."""
        return self.time / self.bound - 1.0 if self.bound > 0 else math.inf

    @property
    def utilisation(self) -> float:
        """Share of the peak of all chips that the graph's work uses."""
        return float(utilisation(self.problem.work, self.time, self.problem.peak))

    @cached_property
    def bill(self) -> Bill:
        return bill(self.problem.system)


@dataclass(frozen=True)
class _Layer:
    """A layer on the chips of a stage: time, lower bound, and parts of the time [s]."""

    sharding: Sharding
    partitions: tuple[Partition, ...]
    time: float
    bound: float
    account: Mapping[str, float]
    memory: GraphMemory


def plan_graph(problem: GraphProblem) -> GraphPlan:
    """The fastest plan over whole axes for stages and ops, as far as the view can prove it (`GraphPlan.gap`).

    Raises Infeasible: nothing fits into memory, with what is least.
    """
    interconnect = Interconnect(problem.system)
    best: GraphPlan | None = None
    bound, misfits = math.inf, list[Fault]()
    for assignment in assignments(problem.system, {Role.DATA: 1}, whole=True):
        stages = degree(assignment, Role.PIPELINE)
        if stages > problem.layers or degree(assignment, Role.MODEL) < 2:
            continue
        communication = Communication(interconnect, assignment)
        try:
            layer = (_overlapped if problem.overlap else _serial)(problem, communication)
        except Infeasible as error:
            misfits += error.faults
            continue
        found = _pipelined(problem, communication, layer, stages)
        bound = min(bound, found.bound)
        if best is None or found.time < best.time:
            best = found
    if best is None:
        raise Infeasible(misfits)
    return replace(best, bound=bound)


def _pipelined(problem: GraphProblem, communication: Communication, layer: _Layer, stages: int) -> GraphPlan:
    """Layers dealt out over stages in whole ones; a stage sends its outputs on when it is done with a microbatch."""
    layers = int(ceil_div(problem.layers, stages))
    size = layer.memory.outputs
    if problem.overlap:
        axes = tuple(problem.system.axis(part.axis) for part in parts_of(communication.assignment, Role.PIPELINE))
        waited = max(0.0, transfer_time(axes, size) - layers * layer.time)
    else:
        waited = float(communication.transfer(0, size))

    def whole(time: float, rest: float = 0.0) -> float:
        return float(even_pipeline_time(stages, 1, problem.microbatches, layers * time + rest, 0.0))

    account = {name: share * layers * problem.microbatches for name, share in layer.account.items()}
    account["transfers"] = waited * problem.microbatches
    time = whole(layer.time, waited)
    account["bubble"] = time - (layers * layer.time + waited) * problem.microbatches
    left_out = ("pipelines that leave no axis to a layer's ops", "axes that serve two purposes")
    memory = GraphMemory(layers * layer.memory.inputs, layer.memory.outputs, layer.memory.working)
    return GraphPlan(
        problem, communication.assignment, layer.sharding, layer.partitions, time, whole(layer.bound), account, memory, left_out
    )


def _serial(problem: GraphProblem, communication: Communication) -> _Layer:
    """Work and collectives one after the other: the sharding of least time."""
    chip, work = machine(problem.system.chip), problem.workload
    found = _fitting(problem, communication.mesh, _kernel_times(problem), communication.model)
    account = {"compute": 0.0, "memory": 0.0, "network": found.collective_time}
    for item in found.ops:
        op = work.op(item.op)
        macs, moved = demand(op_kernel(work, op, extents_of(found, op)))
        multiplies = float(macs) / chip.mac_rate(problem.dtype) if macs else 0.0
        account["memory" if float(busy_time(moved, chip.memory)) > multiplies else "compute"] += item.time
    return _Layer(found, (), found.time, found.certificate.bound, account, memory_of(found, problem.in_place))


def _kernel_times(problem: GraphProblem) -> KernelTime:
    """Ops of one kernel share a launch, and hand tensors on through the cache."""
    work, chip = problem.workload, machine(problem.system.chip)
    inner = inner_tensors(work)
    first = {group[0] for group in groups_of(work)}
    behind = replace(problem.efficiency, launch=0.0)

    def time(op: Op, local: Mapping[str, int]) -> float:
        efficiency = problem.efficiency if op.name in first else behind
        if op.kind is OpKind.CONTRACT:
            return float(kernel_time(op_kernel(work, op, local), chip, efficiency))
        read, cached = ([name for name in op.inputs if (name in inner) is inside] for inside in (False, True))
        written = [name for name in op.outputs if name not in inner]
        return float(kernel_time(stream(work, op, {**work.dims, **local}, read, written, cached), chip, efficiency))

    return time


def _overlapped(problem: GraphProblem, communication: Communication) -> _Layer:
    """The best of several shardings, each optimal for some prices of compute, memory and network."""
    least, best, misfits = 0.0, None, list[Fault]()
    wires = mesh_time(problem.system)
    for compute, memory, network in PRICES:
        work = _priced(problem, compute, memory)
        found = _fitting(problem, communication.mesh, work, _scaled_network(wires, network))
        # the longest of three is at least every mean of them
        least = max(least, found.certificate.bound)
        try:
            layer = _on_chip(problem, replace(found, moves=tuple(_unscaled(move, network) for move in found.moves)))
        except Infeasible as error:
            misfits += error.faults
            continue
        if best is None or layer.time < best.time:
            best = layer
    if best is None:
        raise Infeasible(misfits)
    return replace(best, bound=min(least, best.time))


def _priced(problem: GraphProblem, compute: float, memory: float) -> KernelTime:
    """An op's work at the chip's peak, and what passes its memory at the full rate, at their prices."""
    work, chip = problem.workload, problem.chip
    crossing = crossing_tensors(work, problem.fused)
    per_point = {op.name: compute * least_point_time(work, op, chip) for op in work.ops}

    def time(op: Op, local: Mapping[str, int]) -> float:
        whole = {**work.dims, **local}
        moved = sum(touched_bytes(work, op, name, whole) for name in crossing[op.name])
        return per_point[op.name] * math.prod(local[dim] for dim in op.dims) + memory * float(busy_time(moved, chip.bandwidth))

    return time


def _scaled_network(time: CollectiveTime, price: float) -> CollectiveTime:
    return lambda kind, axes, size: price * time(kind, axes, size)


def _unscaled(move: Move, price: float) -> Move:
    return replace(move, steps=tuple(replace(step, time=step.time / price) for step in move.steps))


def _on_chip(problem: GraphProblem, sharding: Sharding) -> _Layer:
    """A sharding's time where all overlaps."""
    graph = local_graph(sharding)
    stage = Problem(graph, problem.chip, OVERLAPPED, most=1.0)
    parts = (best_plan(stage) if problem.fused else plan(stage, graph.sequence, _kernels(problem.workload))).partitions
    account = {name: float(total(part.steady for part in parts if part.bottleneck == name)) for name in LIMITS}
    account["memory"] += float(total(part.once for part in parts))
    return _Layer(sharding, parts, float(total(account.values())), 0.0, account, memory_of(sharding, problem.in_place))


def _kernels(work: Workload) -> list[Group]:
    """The workload's kernels as partitions."""
    place = {op.name: number for number, op in enumerate(work.ops)}
    groups = [sum(1 << place[name] for name in group) for group in groups_of(work)]
    return [(group, 0) for group in sorted(groups)]


def _fitting(problem: GraphProblem, mesh: Mesh, kernel_time: KernelTime, collective_time: CollectiveTime) -> Sharding:
    """The best sharding whose tensors fit into a chip's memory; what passes between ops takes from the inputs' room."""
    work, layers = problem.workload, int(ceil_div(problem.layers, problem.system.chips // math.prod(axis.ranks for axis in mesh)))
    read = [name for name in work.inputs if work.consumers(name)]
    asked = ShardingProblem(
        work,
        mesh,
        kernel_time,
        collective_time,
        {name: problem.layout(name, mesh) for name in problem.layouts},
        together=problem.together,
        weights={name: float(work.tensors[name].word * layers) for name in read},
    )
    room = problem.capacity
    for _ in range(TRIES):
        found = shard(asked, room)
        memory = memory_of(found, problem.in_place)
        if memory.inputs * layers + memory.outputs + memory.working <= problem.capacity:
            return found
        room = min(room, problem.capacity) - memory.outputs - memory.working
        if room <= 0:
            break
    got = f"{format_bytes(memory.total)} (inputs {format_bytes(memory.inputs)}, working {format_bytes(memory.working)})"
    remedy = "use more chips, or chips with more memory"
    raise Infeasible(Fault(f"{work.name} on {problem.system.name}, memory", format_bytes(problem.capacity), got, remedy))
