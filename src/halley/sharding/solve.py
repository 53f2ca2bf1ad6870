"""The sharding of a graph over the axes of a mesh that takes the least time: the search problem as tables.

Every op has a strategy along every axis (`halley.sharding.strategies`), which fixes the layouts of its operands and results. A
tensor is produced in one layout and stored in one layout at a time: before each reader, in the order of the ops, the stored
copy may be redistributed, and the reader may get a copy of its own in another layout. So one all-gather can serve all following
readers, and one for a single reader takes no memory afterwards. Time is the sum of work and collectives; nothing overlaps.
Memory is that of weights and of tensors saved between the forward and the backward pass.

Strategies of ops and layouts of stored copies are variables; costs are tables over two or three of them.
`halley.optim.elimination` finds the optimum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, InternalError, did_you_mean
from halley.ir.mapping import CollectiveKind
from halley.ir.workload import Op, Workload
from halley.optim.elimination import CostTable, cost_table
from halley.sharding.joint import FusibleKernels, ShardingContext, group_tables, ops_of, overlapping
from halley.sharding.layouts import CollectiveStep, CollectiveTime, Layout, Layouts, Mesh, Router, local_extents
from halley.sharding.space import Chain, CompoundKernel, OpStrategies, ShardingSpace, Strategy, ends_of, sharding_space, space_key

KernelTime: TypeAlias = Callable[[Op, Mapping[str, int]], float]
"""Time [s] of an op on one rank at its local extents, by dim."""


ManyTimes: TypeAlias = Callable[[Op, Mapping[str, NDArray[np.int64]]], NDArray[np.float64]]
"""Times [many] [s] of an op at many extents [many] of each dim."""


@runtime_checkable
class KernelTimes(Protocol):
    """A `KernelTime` that also evaluates many extents at a time."""

    def __call__(self, op: Op, local: Mapping[str, int]) -> float: ...

    def many(self, op: Op, local: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]: ...


@dataclass(frozen=True, slots=True, eq=False)
class ShardingProblem:
    """The workload, the mesh, and the times of kernels and collectives.

    - ``layouts``: of inputs and outputs of the workload that are fixed, a placement per axis.
    - ``splits``: by op, the dim that an axis splits ("" for none), where the user fixes it.
    - ``tied``: ops with the same split on every axis (the products of a forward pass and of its backward pass).
    - ``same_split``: ops with the same split as far as possible (those of one kernel): one that lacks the dim repeats its work.
    - ``same_layout``: inputs and outputs with the same layout, dim by dim (a weight and its gradient; input and output of a
      layer).
    - ``weights``: by input, the bytes per element that it occupies permanently, with gradient and optimizer state.
    - ``runs_per_change``: by output that no op reads, the number of runs per redistribution (gradients of weights, which are
      accumulated over microbatches). The sum has the layout of the output, so a redistribution to fewer bytes happens in
      each run.
    - ``backward``: the first op of the backward pass: tensors produced before it and read from there on are saved,
      ``in_flight`` times.
    - ``groups``: kernels that may be fused (`halley.sharding.joint`).
    - ``compounds``: kernels of several products, whose ops have the same split.
    """

    workload: Workload
    mesh: Mesh
    kernel_time: KernelTime
    collective_time: CollectiveTime
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    splits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tied: tuple[tuple[str, ...], ...] = ()
    same_split: tuple[tuple[str, ...], ...] = ()
    same_layout: tuple[tuple[str, ...], ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    runs_per_change: Mapping[str, int] = field(default_factory=dict)
    backward: str = ""
    in_flight: float = 1.0
    groups: tuple[FusibleKernels, ...] = ()
    compounds: tuple[CompoundKernel, ...] = ()

    def __post_init__(self) -> None:
        faults = list(_faults(self))
        if faults:
            raise BadInput(faults)


@dataclass(frozen=True, slots=True, eq=False)
class ShardingGraph:
    """The problem as tables. Variables are named after what they decide: ``op C``, ``end X`` (an input or output) and ``C 1``
    (the layout in which tensor C is stored for its first reader).

    Groups of kernels that overlap have further ones (`halley.sharding.joint`).

    Tables over them: ``time`` [s]; ``weights`` and ``saved`` [B per rank]: memory of weights, and of tensors between the
    passes. ``caller``: for each table of time, the op that runs or that needs the redistribution (the producer, at the end of
    the graph); tables that only forbid values come last and have none.
    """

    problem: ShardingProblem
    space: ShardingSpace
    layouts: Mapping[str, Layouts]
    time: list[CostTable] = field(default_factory=list)
    weights: list[CostTable] = field(default_factory=list)
    saved: list[CostTable] = field(default_factory=list)
    caller: list[str] = field(default_factory=list)

    @property
    def memory(self) -> list[CostTable]:
        return [*self.weights, *self.saved]

    @property
    def variables(self) -> Mapping[str, str]:
        """By op or end, the variable that decides its strategy or layout."""
        return self.space.variables

    @property
    def where(self) -> ShardingContext:
        return ShardingContext(self.problem.workload, self.space, self.problem.mesh)


def sharding_graph(problem: ShardingProblem, router: Router | None = None) -> ShardingGraph:
    """The tables of a problem. ``router``: for its mesh and collectives, shared with other problems; default: a new one.

    Raises BadInput: a layout that a tensor cannot have; ties that leave an op without a strategy.
    """
    # without user splits, meshes with equally many axes share a space
    named = any(problem.splits.values())
    work, axes = problem.workload, tuple(axis.name if named else f"{place}" for place, axis in enumerate(problem.mesh))
    groups = problem.tied, problem.same_split, problem.same_layout
    space = sharding_space(space_key(work, axes, problem.splits, *groups, problem.backward, problem.compounds))
    router = router or Router(problem.mesh, problem.collective_time)
    layouts = {name: router.layouts(tensor, work.dims, space.options[name]) for name, tensor in work.tensors.items()}
    many = problem.kernel_time.many if isinstance(problem.kernel_time, KernelTimes) else partial(_one_by_one, problem)
    graph = ShardingGraph(problem, space, layouts)
    costs = {op.name: op_costs(graph, op, many) for op in work.ops}
    grouped = {name for group in problem.groups for name in ops_of(group)}
    for name, times in costs.items():
        if name not in grouped:
            graph.time.append(CostTable((space.variables[f"op {name}"],), times))
            graph.caller.append(name)
    for some in overlapping(problem.groups):
        for table in group_tables(graph.where, some, costs):
            graph.time.append(table)
            graph.caller.append(ops_of(some[0])[0])
    makers = {name: op.name for op in work.ops for name in op.outputs}
    for name in space.chains:
        for reader, found in redistribution_tables(graph, name):
            graph.time.append(found)
            graph.caller.append(reader or makers.get(name, work.ops[0].name))
        _memory_tables(graph, name)
    _fix_ends(graph)
    return graph


def with_memory(graph: ShardingGraph, weights: Mapping[str, float], in_flight: float) -> ShardingGraph:
    """The graph with other bytes of ``weights`` and another number of microbatches ``in_flight``; times are unchanged."""
    problem = replace(graph.problem, weights=weights, in_flight=in_flight)
    found = replace(graph, problem=problem, weights=[], saved=[])
    for name in graph.space.chains:
        _memory_tables(found, name)
    return found


def work_time(problem: ShardingProblem, op: Op, strategy: Strategy) -> float:
    """Time of an op's work on the rank with most of it [s]. Raises InternalError: it is below 0 or NaN."""
    extents = {dim: problem.workload.dims[dim] for dim in (*op.dims, *op.sequence)}
    return _time_at(problem, op, local_extents(extents, [way.split for way in strategy], problem.mesh))


def _time_at(problem: ShardingProblem, op: Op, local: Mapping[str, int]) -> float:
    time = float(problem.kernel_time(op, local))
    if not time >= 0:
        raise InternalError(Fault(f"time of op {op.name} at {local}", "at least 0 s", repr(time)))
    return time


def op_costs(graph: ShardingGraph, op: Op, many: ManyTimes) -> NDArray[np.float64]:
    """Time of an op for each of its strategies [s]: its work, evaluated once for all strategies with the same splits, and the
    collectives within the op."""
    problem, found = graph.problem, graph.space.ops[op.name]
    extents = np.array([problem.workload.dims[dim] for dim in found.dims])
    counts = -(-extents[:, None] // _parts(found, tuple(axis.ranks for axis in problem.mesh)))
    times = many(op, dict(zip(found.dims, counts, strict=True)))
    if not times.min(initial=0.0) >= 0:
        wrong = int(np.argmin(times >= 0))
        local = dict(zip(found.dims, counts[:, wrong].tolist(), strict=True))
        raise InternalError(Fault(f"time of op {op.name} at {local}", "at least 0 s", repr(float(times[wrong]))))
    times = times[found.share]
    for number in found.moving:
        times[number] += math.fsum(step.time for _, step in op_collectives(graph, op, found.strategies[number]))
    return times


@lru_cache(maxsize=1 << 12)
def _parts(found: OpStrategies, ranks: tuple[int, ...]) -> NDArray[np.int64]:
    """[dims, shares] number of parts of each dim of an op, for each distinct split."""
    return np.asarray(np.where(found.splits, ranks, 1).prod(axis=-1))


def _one_by_one(problem: ShardingProblem, op: Op, local: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
    """Times of an op [s] at many extents, each distinct one evaluated once."""
    rows = list(zip(*(counts.tolist() for counts in local.values()), strict=True))
    known = {row: float(problem.kernel_time(op, dict(zip(local, row, strict=True)))) for row in dict.fromkeys(rows)}
    return np.array([known[row] for row in rows])


def op_collectives(graph: ShardingGraph, op: Op, strategy: Strategy) -> Iterator[tuple[str, CollectiveStep]]:
    """The collectives within an op, with the tensors that they carry: an all-reduce of a state, an all-to-all of rows."""
    mesh = graph.problem.mesh
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL):
        over = [way for way in strategy if way.collective is kind]
        if not over:
            continue
        axes = tuple(axis.name for axis, way in zip(mesh, strategy, strict=True) if way.collective is kind)
        names = op.outputs if kind is CollectiveKind.ALL_REDUCE else (over[0].moved,)
        layout = _layout_of(op, strategy, names[0])
        size = sum(int(graph.layouts[name].bytes[graph.layouts[name].index(layout)]) for name in names)
        yield " ".join(names), CollectiveStep(kind, axes, layout, layout, size, graph.problem.collective_time(kind, axes, size))


def _layout_of(op: Op, strategy: Strategy, tensor: str) -> Layout:
    if tensor in op.outputs:
        return tuple(way.writes[op.outputs.index(tensor)] for way in strategy)
    return tuple(way.reads[op.inputs.index(tensor)] for way in strategy)


def redistribution_tables(graph: ShardingGraph, tensor: str) -> Iterator[tuple[str, CostTable]]:
    """The tables [s] of a tensor's redistributions between its producer and its readers, each with the op that needs it; "" for
    the end of the graph."""
    known, chain = graph.layouts[tensor], graph.space.chains[tensor]
    # tensors of one shape share their table of times
    before, held, every = chain.maker, chain.made, np.arange(len(known.options))
    for link in chain.links:
        if not link.variable:
            changes = known.time[held[:, None], link.wanted] / runs_of(graph, tensor, held[:, None], link.wanted)
            yield link.use.op, cost_table((before, link.reader), changes)
            break
        yield link.use.op, CostTable((before, link.variable), known.time if held is every else known.time[held])
        if not link.use.saved:
            yield link.use.op, CostTable((link.variable, link.reader), known.time[:, link.wanted])
        before, held = link.variable, every


def _memory_tables(graph: ShardingGraph, tensor: str) -> None:
    """The tables of a tensor's memory."""
    known, chain = graph.layouts[tensor], graph.space.chains[tensor]
    saved = (link.variable for link in chain.links if link.variable and link.use.saved)
    graph.saved.extend(_saved_bytes(graph, tensor, chain, variable) for variable in saved)
    if tensor in graph.problem.weights:
        size = known.bytes[chain.made] / known.tensor.word * graph.problem.weights[tensor]
        graph.weights.append(CostTable((chain.maker,), size))


def runs_of(
    graph: ShardingGraph, tensor: str, before: int | NDArray[np.intp], after: int | NDArray[np.intp]
) -> NDArray[np.int64]:
    """Number of runs per redistribution of a tensor from one layout (a number) to another."""
    size = graph.layouts[tensor].bytes
    return np.where(size[after] < size[before], 1, graph.problem.runs_per_change.get(tensor, 1))


def _saved_bytes(graph: ShardingGraph, tensor: str, chain: Chain, variable: str) -> CostTable:
    """Bytes between the passes, by the layout in which a tensor is saved. A weight is stored anyway, so only a copy in another
    layout counts."""
    known = graph.layouts[tensor]
    if tensor not in graph.problem.weights:
        return CostTable((variable,), known.bytes.astype(np.float64) * graph.problem.in_flight)
    sizes = np.tile(known.bytes.astype(np.float64), (len(chain.made), 1))
    sizes[np.arange(len(chain.made)), chain.made] = 0.0
    return cost_table((chain.maker, variable), sizes)


def _fix_ends(graph: ShardingGraph) -> None:
    for name, layout in graph.problem.layouts.items():
        known = graph.layouts[name]
        allowed = np.array(known.complete) == known.index(layout)
        if not allowed.any():
            raise BadInput(Fault(f"layout of {name}", "complete values at the ends of the graph", "partial ones", "reduce them"))
        graph.time.append(CostTable((graph.variables[f"end {name}"],), np.where(allowed, 0.0, np.inf)))


def _faults(problem: ShardingProblem) -> Iterator[Fault]:
    """Faults in the names and shapes of a problem."""
    work, where = problem.workload, f"sharding of {problem.workload.name}"
    ops, axes = {op.name: op for op in work.ops}, {axis.name: axis for axis in problem.mesh}
    ends = ends_of(work)
    if len(axes) != len(problem.mesh):
        yield Fault(where, "axes, each with a name of its own", ", ".join(axis.name for axis in problem.mesh))
    for name in {*itertools.chain(*problem.tied, *problem.same_split), *problem.splits, *({problem.backward} - {""})}:
        if name not in ops:
            yield Fault(where, "names of ops", repr(name), did_you_mean(name, ops))
    for name in {*itertools.chain(*problem.same_layout), *problem.layouts}:
        if name not in ends:
            yield Fault(where, "outputs of the workload, or inputs that an op reads", repr(name), did_you_mean(name, ends))
    for name in problem.weights:
        if name not in ends or name not in work.inputs:
            yield Fault(where, "weights that are inputs which an op reads", repr(name), did_you_mean(name, work.inputs))
    read = {name for op in work.ops for name in op.inputs}
    for name, runs in problem.runs_per_change.items():
        if name not in work.outputs or name in read:
            yield Fault(where, "outputs that no op reads", repr(name), did_you_mean(name, work.outputs))
        if not runs >= 1:
            yield Fault(where, f"at least 1 run of which {name} changes once", repr(runs))
    for group in problem.same_layout + problem.tied + problem.same_split:
        if not group:
            yield Fault(where, "groups of at least one name", "an empty one", "leave it out")
    for group in problem.same_layout:
        shapes = [tuple(work.dims[dim] for dim in work.tensors[name].dims) for name in group if name in work.tensors]
        if len(set(shapes)) > 1:
            yield Fault(where, f"equal extents of {', '.join(group)}, which lie together", f"{shapes}")
    for name, split in problem.splits.items():
        if name in ops:
            yield from _split_faults(work, ops[name], split, {axis.name: axis.ranks for axis in problem.mesh})


def _split_faults(work: Workload, op: Op, split: Mapping[str, str], ranks: Mapping[str, int]) -> Iterator[Fault]:
    """Splits that the user fixes must give equal parts."""
    where = f"sharding of op {op.name}"
    dims = (*op.dims, *op.sequence)
    for axis, dim in split.items():
        if axis not in ranks:
            yield Fault(where, "known axes", repr(axis), did_you_mean(axis, ranks))
        elif dim and dim not in dims:
            yield Fault(where, f"a dim of the op ({', '.join(dims)})", repr(dim), did_you_mean(dim, dims))
    for dim in set(split.values()) & set(dims):
        parts = math.prod(ranks.get(axis, 1) for axis, each in split.items() if each == dim)
        if work.dims[dim] % parts:
            remedy = "split another dim, or take a number of ranks that divides it"
            yield Fault(where, f"{dim}={work.dims[dim]} in {parts} equal parts", f"{work.dims[dim] % parts} left over", remedy)
