"""A sharding as a value: how every op is split, the collectives between them, their time and what lies in memory; and the best
one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from halley.errors import Fault, InternalError
from halley.optim.constrained import EFFORT_LIMIT_ENTRIES, RELATIVE_TOLERANCE, ConstrainedMinimum, constrained_minimum, least_use
from halley.optim.elimination import cost
from halley.sharding.joint import Joined, joined
from halley.sharding.layouts import CollectiveTime, Layout, Mesh, Step
from halley.sharding.solve import ShardingGraph, ShardingProblem, inherent, runs_of, sharding_graph, work_time
from halley.sharding.space import Strategy
from halley.units import format_bytes


@dataclass(frozen=True, slots=True)
class OpSharding:
    """An op with a way per axis and the time of its own work on one rank [s]."""

    op: str
    ways: Strategy
    time: float


@dataclass(frozen=True, slots=True)
class Move:
    """A change of layout of a tensor, made before the op with number ``at`` (the number of ops: at the end of the graph).

    ``reader``: the op that calls for it, "" for the end of the graph or the time between the passes. ``copy``: for that reader
    alone; else the tensor is kept so from here on. ``inside``: a part of the reader that it cannot run without (the rows of a
    gather, the state of a softmax). ``runs``: it is made once in so many; the times of its steps are the share of one run."""

    tensor: str
    at: int
    reader: str
    steps: tuple[Step, ...]
    copy: bool = False
    inside: bool = False
    runs: int = 1


@dataclass(frozen=True, slots=True)
class Certificate:
    """Of all shardings of the declared space, none takes less than ``bound`` [s]. ``space``: how many there are, without the
    layouts in which tensors are kept; ``nodes`` and ``entries`` of tables: what was searched."""

    bound: float
    gap: float
    space: float
    nodes: int
    entries: int


@dataclass(frozen=True, slots=True, eq=False)
class Sharding:
    """``time`` [s] of work and collectives; ``weights_memory`` and ``kept_memory`` [B] per rank: of weights, and of what is kept
    between the passes. ``ends``: the layouts of inputs and outputs; ``kept``: of tensors between the passes. ``joined``: pairs of
    kernels that run as one; their time is that of the first op of each, and that of their other ops 0."""

    problem: ShardingProblem
    ops: tuple[OpSharding, ...]
    moves: tuple[Move, ...]
    ends: Mapping[str, Layout]
    kept: Mapping[str, Layout]
    time: float
    weights_memory: float
    kept_memory: float
    certificate: Certificate
    joined: tuple[Joined, ...] = ()

    @property
    def memory(self) -> float:
        """All that lies still on a rank [B]."""
        return self.weights_memory + self.kept_memory

    @property
    def steps(self) -> tuple[tuple[Move, Step], ...]:
        """All collectives, in their order, without slices."""
        return tuple((move, step) for move in self.moves for step in move.steps if step.kind is not None)

    @property
    def work_time(self) -> float:
        """Time of the ops alone [s]."""
        return math.fsum(item.time for item in self.ops)

    @property
    def collective_time(self) -> float:
        """Time of the collectives [s]."""
        return math.fsum(step.time for _, step in self.steps)

    def on(self, mesh: Mesh, collective_time: CollectiveTime) -> Sharding:
        """The same over other axes, which are like these place by place: their names, and collectives that take as long."""
        names = {old.name: new.name for old, new in zip(self.problem.mesh, mesh, strict=True)}
        moves = tuple(
            replace(move, steps=tuple(replace(step, axes=tuple(names[axis] for axis in step.axes)) for step in move.steps))
            for move in self.moves
        )
        problem = replace(self.problem, mesh=mesh, collective_time=collective_time)
        return replace(self, problem=problem, moves=moves)

    def strategy(self, op: str) -> Strategy:
        return next(item.ways for item in self.ops if item.op == op)


def shard(problem: ShardingProblem, capacity: float = math.inf, effort: float = EFFORT_LIMIT_ENTRIES) -> Sharding:
    """The sharding of least time; of equals, that of least memory. ``capacity`` [B]: what fits on a rank; ``effort`` in entries
    of tables: when a search under a capacity ends, with the gap that is left.

    >>> from halley.sharding.layouts import MeshAxis
    >>> from halley.workloads.user import graph
    >>> gemm = graph("C[m,n] = A[m,k] * B[k,n]", {"m": 8, "k": 64, "n": 8})
    >>> work = lambda op, local: math.prod(local.values()) * 1e-9
    >>> wire = lambda kind, axes, size: 1e-6 + size * 1e-9
    >>> best = shard(ShardingProblem(gemm, (MeshAxis("x", 4),), work, wire))
    >>> best.strategy("C")[0].split, best.steps, best.time == 8 * 64 * 8 / 4 * 1e-9
    ('m', (), True)

    Raises BadInput: as `sharding_graph`; Infeasible: nothing fits.
    """
    graph = sharding_graph(problem)

    def describe(size: float, values: Mapping[str, int] | None) -> str:
        if values is None:
            return f"{format_bytes(size)} per rank"
        weights, kept = cost(graph.weights, values), cost(graph.kept, values)
        return f"{format_bytes(size)} (weights {format_bytes(weights)}, between the passes {format_bytes(kept)})"

    where = f"sharding of {problem.workload.name}, memory"
    return decoded(graph, constrained_minimum(graph.time, graph.memory, capacity, where, describe, effort=effort))


def least_memory(problem: ShardingProblem) -> float:
    """What any sharding takes at least [B per rank], of weights and of what is kept; a bound for searches that have to fit.

    >>> from halley.sharding.layouts import MeshAxis
    >>> from halley.workloads.user import graph
    >>> gemm = graph("C[m,n] = A[m,k] * B[k,n]", {"m": 8, "k": 64, "n": 8})
    >>> free = lambda *any: 0.0
    >>> least_memory(ShardingProblem(gemm, (MeshAxis("x", 4),), free, free, weights={"B": 16.0})) == 64 * 8 * 16 / 4
    True

    Raises BadInput: as `sharding_graph`.
    """
    graph = sharding_graph(problem)
    return least_use(graph.time, graph.memory)


def decoded(graph: ShardingGraph, found: ConstrainedMinimum) -> Sharding:
    """The sharding that the values of the variables stand for, with its time added up anew.

    Raises InternalError: the sum differs from what the search found.
    """
    problem, values = graph.problem, found.values
    ops: list[OpSharding] = []
    moves: list[Move] = []
    for number, op in enumerate(problem.workload.ops):
        value = values[graph.variables[f"op {op.name}"]]
        strategy = graph.space.ops[op.name].strategies[value]
        moves += (Move(tensor, number, op.name, (step,), inside=True) for tensor, step in inherent(graph, op, strategy))
        ops.append(OpSharding(op.name, strategy, work_time(problem, op, strategy)))
    ops, pairs = _paired(graph, ops, values)
    ends = {name: _layout(graph, name, values[graph.variables[f"end {name}"]]) for name in graph.space.ends}
    kept: dict[str, Layout] = {}
    for tensor in graph.space.chains:
        moves += _moves(graph, tensor, values, kept)
    moves.sort(key=lambda move: (move.at, move.inside))
    time = math.fsum((*(item.time for item in ops), *(step.time for move in moves for step in move.steps)))
    if not math.isclose(time, found.cost, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-30):
        raise InternalError(Fault(f"sharding of {problem.workload.name}", f"a time of {found.cost!r} s", f"{time!r} s"))
    sizes = {graph.variables[f"op {name}"]: float(len(each.strategies)) for name, each in graph.space.ops.items()}
    certificate = Certificate(found.bound, found.gap, math.prod(sizes.values()), found.nodes, found.entries)
    memory = cost(graph.weights, values), cost(graph.kept, values)
    return Sharding(problem, tuple(ops), tuple(moves), ends, kept, time, *memory, certificate, pairs)


def _paired(
    graph: ShardingGraph, ops: list[OpSharding], values: Mapping[str, int]
) -> tuple[list[OpSharding], tuple[Joined, ...]]:
    """The ops with the times of pairs that run as one, and these pairs."""
    times = {item.op: item.time for item in ops}
    found = list[Joined]()
    for pair in graph.problem.pairs:
        names = *pair.first, *pair.second
        one = joined(graph.where, pair, values, math.fsum(times[name] for name in names))
        if one is not None:
            times |= dict.fromkeys(names, 0.0) | {names[0]: one.time}
            found.append(one)
    return [replace(item, time=times[item.op]) for item in ops], tuple(found)


def _layout(graph: ShardingGraph, tensor: str, number: int) -> Layout:
    return graph.layouts[tensor].options[graph.layouts[tensor].complete[number]]


def _moves(graph: ShardingGraph, tensor: str, values: Mapping[str, int], kept: dict[str, Layout]) -> Iterator[Move]:
    """The changes of layout between the maker of a tensor and its readers; adds to ``kept`` how it lies between the passes."""
    known, chain, order = graph.layouts[tensor], graph.space.chains[tensor], graph.space.order
    between = order.get(graph.problem.backward, len(order))
    now = int(chain.made[values[chain.maker]])
    passed = any(link.use.kept for link in chain.links)
    for link in chain.links:
        use = link.use
        # what leaves the graph before the backward pass does so between the passes
        at = order[use.op] if use.op else between if use.kept or passed else len(order)
        passed = passed and not use.kept
        following = values[link.variable] if link.variable else now
        if following != now:
            yield Move(tensor, at, use.op, known.path(now, following))
            now = following
        if use.kept:
            kept[tensor] = known.options[now]
            continue
        target = int(link.wanted[values[link.reader]])
        if target != now:
            runs = int(runs_of(graph, tensor, now, target)) if not link.variable else 1
            steps = tuple(replace(step, time=step.time / runs) for step in known.path(now, target))
            yield Move(tensor, at, use.op, steps, copy=bool(link.variable), runs=runs)
