"""A sharding as a value: the strategy of every op, the redistributions between them, time and memory; and the search for the
best one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from halley.answer import ROUNDING_GAP, Certificate, Status, relative_gap
from halley.errors import BadInput, Fault, InternalError
from halley.optim.constrained import EFFORT_LIMIT_ENTRIES, RELATIVE_TOLERANCE, ConstrainedMinimum, constrained_minimum
from halley.optim.elimination import cost
from halley.sharding.joint import FusedKernels, FusibleKernels, fastest_groups, fused_group, ops_of, overlapping
from halley.sharding.layouts import CollectiveStep, CollectiveTime, Layout, Mesh
from halley.sharding.solve import ShardingGraph, ShardingProblem, op_collectives, runs_of, sharding_graph, work_time
from halley.sharding.space import Strategy
from halley.units import format_bytes


@dataclass(frozen=True, slots=True)
class OpSharding:
    """An op with its strategy (one `AxisStrategy` per axis) and the time of its own work on one rank [s]."""

    op: str
    strategy: Strategy
    time: float


@dataclass(frozen=True, slots=True)
class Redistribution:
    """A change of layout of a tensor, before the op with number ``at`` (the number of ops: at the end of the graph).

    ``reader``: the op that needs it; "" for the end of the graph or the time between the passes. ``copy``: for that reader
    alone; otherwise the tensor keeps the new layout. ``inside``: a collective within the reader (the rows of a gather, the
    state of a softmax). ``runs``: it happens once in so many runs; the times of its steps are per run.
    """

    tensor: str
    at: int
    reader: str
    steps: tuple[CollectiveStep, ...]
    copy: bool = False
    inside: bool = False
    runs: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Sharding:
    """``time`` [s] of work and collectives. ``weights_memory`` and ``saved_memory`` [B] per rank: of weights, and of tensors
    saved between the passes. ``ends``: layouts of inputs and outputs. ``saved``: layouts of tensors saved between the
    passes. ``fused_groups``: groups of kernels that run as one; their time is that of the first op of the group, and their
    other ops have time 0. ``copies``: by variable of `halley.sharding.solve.ShardingGraph`, the layout of a tensor for a reader.
    ``certificate``: no sharding takes less than its bound [s]; its size counts the shardings without these layouts."""

    problem: ShardingProblem
    ops: tuple[OpSharding, ...]
    redistributions: tuple[Redistribution, ...]
    ends: Mapping[str, Layout]
    saved: Mapping[str, Layout]
    time: float
    weights_memory: float
    saved_memory: float
    certificate: Certificate
    fused_groups: tuple[FusedKernels, ...] = ()
    copies: Mapping[str, Layout] = field(default_factory=dict)

    @property
    def memory(self) -> float:
        """Weights and saved tensors on a rank [B]."""
        return self.weights_memory + self.saved_memory

    @property
    def steps(self) -> tuple[tuple[Redistribution, CollectiveStep], ...]:
        """All collectives in order, without slices."""
        return tuple((move, step) for move in self.redistributions for step in move.steps if step.kind is not None)

    @property
    def collective_time(self) -> float:
        """Time of the collectives [s]."""
        return math.fsum(step.time for _, step in self.steps)

    def on(self, mesh: Mesh, collective_time: CollectiveTime) -> Sharding:
        """The same sharding over other axes of the same sizes in the same order, with other names and collectives of equal
        times."""
        names = {old.name: new.name for old, new in zip(self.problem.mesh, mesh, strict=True)}
        moves = tuple(
            replace(move, steps=tuple(replace(step, axes=tuple(names[axis] for axis in step.axes)) for step in move.steps))
            for move in self.redistributions
        )
        problem = replace(self.problem, mesh=mesh, collective_time=collective_time)
        return replace(self, problem=problem, redistributions=moves)

    def strategy(self, op: str) -> Strategy:
        return next(item.strategy for item in self.ops if item.op == op)


def shard(problem: ShardingProblem, capacity: float = math.inf, effort: float = EFFORT_LIMIT_ENTRIES) -> Sharding:
    """The sharding of least time; among equal ones, that of least memory. ``capacity`` [B] of a rank. ``effort`` [entries of
    tables]: limit of a search under a capacity, after which it returns the incumbent with its gap.

    >>> from halley.sharding.layouts import MeshAxis
    >>> from halley.workloads.user import graph
    >>> gemm = graph("C[m,n] = A[m,k] * B[k,n]", {"m": 8, "k": 64, "n": 8})
    >>> work = lambda op, local: math.prod(local.values()) * 1e-9
    >>> wire = lambda kind, axes, size: 1e-6 + size * 1e-9
    >>> best = shard(ShardingProblem(gemm, (MeshAxis("x", 4),), work, wire))
    >>> best.strategy("C")[0].split, best.steps, best.time == 8 * 64 * 8 / 4 * 1e-9
    ('m', (), True)

    Raises BadInput: as `sharding_graph`; Infeasible: no sharding fits.
    """
    graph = sharding_graph(problem)

    def describe(size: float, values: Mapping[str, int] | None) -> str:
        if values is None:
            return f"{format_bytes(size)} per rank"
        weights, saved = cost(graph.weights, values), cost(graph.saved, values)
        return f"{format_bytes(size)} (weights {format_bytes(weights)}, between the passes {format_bytes(saved)})"

    where = f"sharding of {problem.workload.name}, memory"
    return decoded(graph, constrained_minimum(graph.time, graph.memory, capacity, where, describe, effort=effort))


def decoded(graph: ShardingGraph, found: ConstrainedMinimum, fused: Collection[str] | None = None) -> Sharding:
    """The sharding for these values of the variables, with its time recomputed. ``fused``: the names of the groups that
    are fused, in place of those that are faster fused.

    Raises InternalError: the time differs from the one that the search found; BadInput: a group cannot be fused.
    """
    problem, values = graph.problem, found.values
    ops: list[OpSharding] = []
    moves: list[Redistribution] = []
    for number, op in enumerate(problem.workload.ops):
        value = values[graph.variables[f"op {op.name}"]]
        strategy = graph.space.ops[op.name].strategies[value]
        moves += (
            Redistribution(tensor, number, op.name, (step,), inside=True) for tensor, step in op_collectives(graph, op, strategy)
        )
        ops.append(OpSharding(op.name, strategy, work_time(problem, op, strategy)))
    ops, groups = _grouped(graph, ops, values, fused)
    ends = {name: _layout(graph, name, values[graph.variables[f"end {name}"]]) for name in graph.space.ends}
    saved: dict[str, Layout] = {}
    for tensor in graph.space.chains:
        moves += _redistributions(graph, tensor, values, saved)
    moves.sort(key=lambda move: (move.at, move.inside))
    time = math.fsum((*(item.time for item in ops), *(step.time for move in moves for step in move.steps)))
    if (fused is None or not problem.groups) and not math.isclose(time, found.cost, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-30):
        raise InternalError(Fault(f"sharding of {problem.workload.name}", f"a time of {found.cost!r} s", f"{time!r} s"))
    sizes = {graph.variables[f"op {name}"]: len(each.strategies) for name, each in graph.space.ops.items()}
    certificate = Certificate(
        time,
        found.bound,
        Status.OPTIMAL if relative_gap(time, found.bound) <= ROUNDING_GAP else Status.LIMIT,
        size=math.prod(sizes.values()),
        effort={"nodes": found.nodes, "entries": found.entries},
    )
    memory = cost(graph.weights, values), cost(graph.saved, values)
    return Sharding(problem, tuple(ops), tuple(moves), ends, saved, time, *memory, certificate, groups, _copies(graph, values))


def _copies(graph: ShardingGraph, values: Mapping[str, int]) -> dict[str, Layout]:
    """By variable, the layout of a tensor for a reader."""
    return {
        link.variable: graph.layouts[tensor].options[values[link.variable]]
        for tensor, chain in graph.space.chains.items()
        for link in chain.links
        if link.variable
    }


def _grouped(
    graph: ShardingGraph, ops: list[OpSharding], values: Mapping[str, int], fused: Collection[str] | None
) -> tuple[list[OpSharding], tuple[FusedKernels, ...]]:
    """The ops, with the times of fused groups; and these groups: the fastest ones, or those that are given."""
    times, groups = {item.op: item.time for item in ops}, graph.problem.groups
    if fused is None:
        found = [each for some in overlapping(groups) for each in fastest_groups(graph.where, some, values, times)]
    else:
        found = [_given(graph, group, values, times) for group in groups if group.name in fused]
    for one in found:
        names = ops_of(one.group)
        times |= dict.fromkeys(names, 0.0) | {names[0]: one.time}
    return [replace(item, time=times[item.op]) for item in ops], tuple(found)


def _given(graph: ShardingGraph, group: FusibleKernels, values: Mapping[str, int], times: Mapping[str, float]) -> FusedKernels:
    """A group as one kernel, whether or not that is faster."""
    one, names = fused_group(graph.where, group, values, math.inf), ops_of(group)
    if one is None:
        where = f"sharding of {graph.problem.workload.name}"
        raise BadInput(Fault(where, f"a sharding under which {', '.join(names)} can be one kernel", "another one"))
    return replace(one, apart=math.fsum(times[name] for name in names))


def _layout(graph: ShardingGraph, tensor: str, number: int) -> Layout:
    return graph.layouts[tensor].options[graph.layouts[tensor].complete[number]]


def _redistributions(
    graph: ShardingGraph, tensor: str, values: Mapping[str, int], saved: dict[str, Layout]
) -> Iterator[Redistribution]:
    """The redistributions between the producer of a tensor and its readers; adds its layout between the passes to ``saved``."""
    known, chain, order = graph.layouts[tensor], graph.space.chains[tensor], graph.space.order
    between = order.get(graph.problem.backward, len(order))
    now = int(chain.made[values[chain.maker]])
    passed = any(link.use.saved for link in chain.links)
    for link in chain.links:
        use = link.use
        # outputs of the forward pass are redistributed between the passes
        at = order[use.op] if use.op else between if use.saved or passed else len(order)
        passed = passed and not use.saved
        following = values[link.variable] if link.variable else now
        if following != now:
            yield Redistribution(tensor, at, use.op, known.path(now, following))
            now = following
        if use.saved:
            saved[tensor] = known.options[now]
            continue
        target = int(link.wanted[values[link.reader]])
        if target != now:
            runs = int(runs_of(graph, tensor, now, target)) if not link.variable else 1
            steps = tuple(replace(step, time=step.time / runs) for step in known.path(now, target))
            yield Redistribution(tensor, at, use.op, steps, copy=bool(link.variable), runs=runs)
