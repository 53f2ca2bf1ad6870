"""Any graph on a whole system: sharded over its axes, with its time, what limits it, and the memory of a chip.

Two views. By default work and collectives follow each other: kernels take what `halley.kernels.times` says, collectives what
the real topology takes, and the sharding of least time is proven. In the view of DFModel (arXiv 2412.16432) compute, memory and
network of what runs together overlap fully, kernels and collectives come at their full rates, and chips may fuse kernels into
partitions. There the time is not a sum over ops, so that several shardings are tried, each the best for some price of work
against network; such a price also gives a lower bound of every sharding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from halley.answer import relative_gap
from halley.dfmodel.chip import LIMITS, dfmodel_chip
from halley.dfmodel.network import check_axes, mesh_time, transfer_time
from halley.errors import BadInput, Fault, Infeasible, InternalError, did_you_mean
from halley.formulas.numbers import ceil_div
from halley.formulas.pipeline import even_pipeline_time
from halley.formulas.spatial import utilisation
from halley.formulas.timing import busy_time, total
from halley.graphs.kernels import (
    GraphMemory,
    extents_of,
    groups_of,
    inner_tensors,
    local_graph,
    memory_of,
    work_of,
)
from halley.graphs.overlap import OverlapTables, overlap_tables
from halley.ir.placement import Replicate, Shard
from halley.ir.system import System
from halley.ir.workload import Op, OpKind, Workload
from halley.kernels.machine import PEAK, Efficiency, machine
from halley.kernels.operations import op_kernel, stream
from halley.kernels.times import demand, kernel_time
from halley.network.graph.bill import Bill, bill
from halley.optim.constrained import Least, least
from halley.optim.elimination import Table, cost
from halley.optim.multipliers import Numbers, best_prices
from halley.sharding.axes import Assignment, Role, assignments, degree, parts_of
from halley.sharding.communication import Communication, Interconnect
from halley.sharding.layouts import Layout, Mesh
from halley.sharding.solution import Sharding, decoded
from halley.sharding.solve import KernelTime, ShardingGraph, ShardingProblem, sharding_graph
from halley.spatial.chip import DFMODEL, Problem, SpatialChip
from halley.spatial.costs import Partition
from halley.spatial.solve import Group, best_plan, plan
from halley.units import format_bytes

OVERLAPPED = replace(DFMODEL, boundary=True, shared=True, kept_twice=False)
"""DFModel's assumptions, with what enters and leaves the graph, and a tensor of several readers stored once."""

PATIENCE = 3
"""Prices of what overlaps that may bring nothing, one after the other, before a search for better ones ends."""

SECONDS = 20.0
"""Time of a search under a memory that is short, for prices that are promising [s]."""

ROUNDING = 1e-6
"""Relative difference of sums of the same times in another order."""

CLOSE = 1e-3
"""Gap that is small enough where things overlap."""

TRIES = 8
"""Shardings that are tried under less and less memory for inputs, until what passes between ops has room as well."""


@dataclass(frozen=True)
class GraphProblem:
    """A graph on a system.

    ``layers``: the graph is one of so many equal layers, which pipeline stages may split; ``microbatches``: so many inputs
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
        return relative_gap(self.time, self.bound)

    @property
    def utilisation(self) -> float:
        """Share of the peak of all chips that the graph's work uses."""
        return float(utilisation(self.problem.work, self.time, self.problem.peak))

    @cached_property
    def bill(self) -> Bill:
        return bill(self.problem.system)


@dataclass(frozen=True)
class _Layer:
    """A layer on the chips of a stage: its time and the parts of it [s]."""

    sharding: Sharding
    partitions: tuple[Partition, ...]
    time: float
    account: Mapping[str, float]
    memory: GraphMemory


@dataclass(frozen=True, slots=True)
class _Answer:
    """Of one assignment: the best ``layer``, a lower ``bound`` of all [s], and without one the ``misfits``."""

    bound: float
    layer: _Layer | None
    misfits: Sequence[Fault] = ()


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
            answer = (_overlapped if problem.overlap else _serial)(problem, communication)
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
    if bound > best.time * (1 + ROUNDING):
        raise InternalError(
            Fault(f"bound of {problem.workload.name}", f"at most {best.time!r} s, which was found", f"{bound!r} s")
        )
    return replace(best, bound=min(bound, best.time))


def _all_stages(problem: GraphProblem, stages: int, layer: float, rest: float = 0.0) -> float:
    """Time of all layers and microbatches [s]; ``rest``: of a stage, beside its layers."""
    layers = int(ceil_div(problem.layers, stages))
    return float(even_pipeline_time(stages, 1, problem.microbatches, layers * layer + rest, 0.0))


def _pipelined(problem: GraphProblem, communication: Communication, layer: _Layer, stages: int) -> GraphPlan:
    """Layers distributed over stages in whole ones; a stage sends its outputs on when it is done with a microbatch."""
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
    left_out = ("pipelines that leave no axis to a layer's ops", "axes that serve two purposes")
    memory = GraphMemory(layers * layer.memory.inputs, layer.memory.outputs, layer.memory.working)
    return GraphPlan(problem, communication.assignment, layer.sharding, layer.partitions, time, 0.0, account, memory, left_out)


def _serial(problem: GraphProblem, communication: Communication) -> _Answer:
    """Work and collectives one after the other: the sharding of least time."""
    chip, work = machine(problem.system.chip), problem.workload
    asked = replace(_asked(problem, communication.mesh), kernel_time=_kernel_times(problem), collective_time=communication.model)
    graph = sharding_graph(asked)
    fitting = _Fitting(problem, graph)
    relaxed = fitting.relaxed(graph.time)
    try:
        found = fitting(graph.time, relaxed)
    except Infeasible as error:
        return _Answer(relaxed.bound, None, error.faults)
    account = {"compute": 0.0, "memory": 0.0, "network": found.collective_time}
    for item in found.ops:
        op = work.op(item.op)
        macs, moved = demand(op_kernel(work, op, extents_of(found, op)))
        multiplies = float(macs) / chip.mac_rate(problem.dtype) if macs else 0.0
        account["memory" if float(busy_time(moved, chip.memory)) > multiplies else "compute"] += item.time
    return _Answer(relaxed.bound, _Layer(found, (), found.time, account, memory_of(found, problem.in_place)))


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


def _overlapped(problem: GraphProblem, communication: Communication) -> _Answer:
    """Shardings that are each the best for some prices of what overlaps, and the best of them; a bound from any prices holds for
    all shardings. Where memory is short, only the most promising prices are searched to the end."""
    asked = replace(_asked(problem, communication.mesh), collective_time=mesh_time(problem.system))
    tables = overlap_tables(asked, problem.chip, problem.fused)
    search = _Search(problem, tables, _Fitting(problem, tables.graph))
    search.climb()
    if search.short and not search.closed:
        search.tried(search.promising, SECONDS)
    return _Answer(search.bound, search.best, search.misfits)


@dataclass(slots=True, eq=False)
class _Search:
    """What prices of overlapping resources have brought: the ``best`` layer, the ``bound`` [s] and the prices that it is from
    (``promising``), what the shardings met take (``always``, ``times``: see `halley.optim.multipliers.best_prices`).
    ``short``: memory decided, and a search for these prices was not ended."""

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
        return self.best is not None and self.best.time <= self.bound * (1 + CLOSE)

    def climb(self) -> None:
        """Better and better prices. Those that are best against the shardings met may be far off while few were met: where they
        bring nothing, the next ones are between them and the most promising ones."""
        shares = np.full((len(self.tables.kernels), self.tables.resources), 1.0 / self.tables.resources)
        stalled = 0
        while True:
            met = len(self.times)
            stalled = 0 if self.tried(shares, 0.0) else stalled + 1
            known = stalled == 1 and len(self.times) == met
            if self.closed or known or stalled == PATIENCE:
                break
            shares = best_prices(np.array(self.always), np.array(self.times))
            if stalled:
                shares = (shares + self.promising) / 2

    def tried(self, shares: Numbers, seconds: float) -> bool:
        """Searches with these prices for so long at most [s]; whether that brought anything."""
        costs = list(self.tables.priced(shares))
        relaxed = self.fitting.relaxed(costs, seconds=seconds)
        rose = relaxed.bound > self.bound * (1 + CLOSE / 4)
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
            layer = _on_chip(self.problem, self.fitting(costs, relaxed))
        except Infeasible as error:
            self.misfits += error.faults
            return rose
        if self.best is None or layer.time < self.best.time:
            self.best, rose = layer, True
        return rose


def _on_chip(problem: GraphProblem, sharding: Sharding) -> _Layer:
    """A sharding's time where all overlaps."""
    graph = local_graph(sharding, problem.fused)
    stage = Problem(graph, problem.chip, OVERLAPPED, most=1.0)
    parts = (best_plan(stage) if problem.fused else plan(stage, graph.sequence, _kernels(problem.workload))).partitions
    account = {name: float(total(part.steady for part in parts if part.bottleneck == name)) for name in LIMITS}
    account["memory"] += float(total(part.once for part in parts))
    return _Layer(sharding, parts, float(total(account.values())), account, memory_of(sharding, problem.in_place))


def _kernels(work: Workload) -> list[Group]:
    """The workload's kernels as partitions."""
    place = {op.name: number for number, op in enumerate(work.ops)}
    groups = [sum(1 << place[name] for name in group) for group in groups_of(work)]
    return [(group, 0) for group in sorted(groups)]


def _asked(problem: GraphProblem, mesh: Mesh) -> ShardingProblem:
    """The graph to be sharded; kernels and collectives take no time yet."""
    work, layers = problem.workload, _layers(problem, mesh)
    return ShardingProblem(
        work,
        mesh,
        _nothing,
        _nothing,
        {name: problem.layout(name, mesh) for name in problem.layouts},
        together=problem.together,
        weights={name: float(work.tensors[name].word * layers) for name in work.inputs if work.consumers(name)},
    )


def _nothing(*given: object) -> float:
    return 0.0


def _layers(problem: GraphProblem, mesh: Mesh) -> int:
    """Layers of a stage."""
    return int(ceil_div(problem.layers, problem.system.chips // math.prod(axis.ranks for axis in mesh)))


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Shardings whose tensors fit into a chip's memory. Inputs and outputs lie still, which the search counts; what passes
    between ops is known when a sharding is, and takes from their room."""

    problem: GraphProblem
    graph: ShardingGraph

    def relaxed(self, costs: Sequence[Table], room: float = math.inf, seconds: float = 60.0) -> Least:
        """The least cost of those whose inputs and outputs fit, whatever passes between ops: its bound is one of all that fit.
        ``seconds`` [s]: when the search ends."""
        uses = [*self.graph.weights, *self._outputs()]
        where = f"{self.problem.workload.name} on {self.problem.system.name}, memory"
        return least(costs, uses, min(room, self.problem.capacity), where, lambda size, values: format_bytes(size), seconds)

    def _outputs(self) -> Iterator[Table]:
        known = self.problem
        for name in known.workload.outputs:
            if name not in known.in_place:
                sizes = self.graph.layouts[name].bytes[list(self.graph.layouts[name].complete)]
                yield Table((self.graph.variables[f"end {name}"],), sizes.astype(np.float64))

    def __call__(self, costs: Sequence[Table], first: Least) -> Sharding:
        """The best that fits with all that passes between ops, which is looked for under less and less room."""
        problem, found = self.problem, first
        layers, room = _layers(problem, self.graph.problem.mesh), problem.capacity
        for _ in range(TRIES):
            sharding = decoded(self.graph, replace(found, cost=cost(self.graph.time, found.values)))
            memory = memory_of(sharding, problem.in_place)
            if memory.inputs * layers + memory.outputs + memory.working <= problem.capacity:
                return sharding
            room = min(room, problem.capacity) - memory.working
            if room <= 0:
                break
            found = self.relaxed(costs, room)
        got = f"{format_bytes(memory.total)} (inputs {format_bytes(memory.inputs)}, working {format_bytes(memory.working)})"
        remedy = "use more chips, or chips with more memory"
        where = f"{problem.workload.name} on {problem.system.name}, memory"
        raise Infeasible(Fault(where, format_bytes(problem.capacity), got, remedy))
