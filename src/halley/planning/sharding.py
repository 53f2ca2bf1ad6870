"""The sharding of a graph over the axes of a mesh that takes the least time, exactly.

Every op is shared out along every axis in one of its ways (`halley.planning.ways`), which says how its tensors have to lie. A
tensor is made in one layout and then kept in one layout at a time: before each reader, in the order of the ops, the kept copy
may be changed, and the reader may get a copy of its own that is in yet another layout. So an all-gather that is done once
serves every reader that follows, and one that is done for a single reader costs no memory afterwards. Time is the sum of the
work and of the collectives; nothing overlaps. Memory is what lies still: weights, and tensors between the forward and the
backward pass.

Ops and kept copies are variables, costs are tables over two or three of them: `halley.planning.elimination` finds the optimum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, InternalError, did_you_mean
from halley.ir.mapping import CollectiveKind
from halley.ir.workload import Op, Workload
from halley.planning.elimination import Table, table
from halley.planning.layouts import CollectiveTime, Layout, Layouts, Mesh, Router, Step, local_counts, local_extents
from halley.planning.ways import Way, partial_monoid, ways

KernelTime: TypeAlias = Callable[[Op, Mapping[str, int]], float]
"""Time [s] of an op on one rank at its local extents, by dim."""

Strategy: TypeAlias = tuple[Way, ...]
"""A way per axis of the mesh."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardingProblem:
    """What is to be shared out, over what, at which costs.

    - ``layouts``: of inputs and outputs of the workload that are not free, a placement per axis.
    - ``splits``: by op, the dim that an axis splits ("" for none), where the user says so.
    - ``tied``: ops that are split alike on every axis (the products of a forward pass and of its backward pass).
    - ``alike``: ops that are split alike as far as they can be (those of one kernel): one that lacks a dim repeats its work.
    - ``together``: inputs and outputs that lie alike, dim by dim (a weight and its gradient; what enters and what leaves a
      layer).
    - ``weights``: by input, the bytes that each of its elements takes for good, with gradient and optimizer state.
    - ``backward``: the first op of the backward pass: what was made before and is read from there on is kept, ``in_flight``
      times.
    """

    workload: Workload
    mesh: Mesh
    kernel_time: KernelTime
    collective_time: CollectiveTime
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    splits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tied: tuple[tuple[str, ...], ...] = ()
    alike: tuple[tuple[str, ...], ...] = ()
    together: tuple[tuple[str, ...], ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    backward: str = ""
    in_flight: float = 1.0

    def __post_init__(self) -> None:
        faults = list(_faults(self))
        if faults:
            raise BadInput(faults)


@dataclass(frozen=True, slots=True)
class Use:
    """A reader of a tensor: the input of an op, the end of the graph (``op`` is ""), or, with ``kept``, what lies still between
    the passes."""

    op: str = ""
    place: int = 0
    kept: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ChosenWays:
    """The strategies of an op as numbers: ``places`` [strategies, axes] among its ``ways``."""

    ways: tuple[Way, ...]
    places: NDArray[np.intp]


@dataclass(slots=True, eq=False)
class ShardingGraph:
    """The problem as tables. Variables are named after what they stand for: ``op C``, ``end X`` (an input or output) and
    ``C 1`` (the layout in which tensor C is kept for its first reader).

    Tables over them: ``time`` [s]; ``weights`` and ``kept`` [B per rank], what lies still for good and between the passes.
    """

    problem: ShardingProblem
    layouts: dict[str, Layouts] = field(default_factory=dict)
    strategies: dict[str, tuple[Strategy, ...]] = field(default_factory=dict)
    chosen: dict[str, ChosenWays] = field(default_factory=dict)
    costs: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    time: list[Table] = field(default_factory=list)
    weights: list[Table] = field(default_factory=list)
    kept: list[Table] = field(default_factory=list)
    _uses: dict[str, tuple[Use, ...]] = field(default_factory=dict)

    @property
    def memory(self) -> list[Table]:
        return [*self.weights, *self.kept]

    def uses(self, tensor: str) -> tuple[Use, ...]:
        """The readers of a tensor in their order."""
        if not self._uses:
            self._uses |= _uses(self.problem)
        return self._uses[tensor]

    def ends(self) -> tuple[str, ...]:
        """Inputs that are read, and outputs: those whose layouts are variables of their own."""
        return _ends(self.problem.workload)

    def start(self, tensor: str) -> tuple[str, NDArray[np.intp]]:
        """The variable that decides how a tensor is made, and the layout for each of its values."""
        made = self.problem.workload.producer(tensor)
        if made is None:
            return self.variables[f"end {tensor}"], np.array(self.layouts[tensor].complete)
        return self.variables[f"op {made.name}"], self._written(made, made.outputs.index(tensor), tensor)

    def reader(self, tensor: str, use: Use) -> tuple[str, NDArray[np.intp]]:
        """The variable that decides how a reader wants a tensor, and the layout for each of its values."""
        if not use.op:
            return self.variables[f"end {tensor}"], np.array(self.layouts[tensor].complete)
        chosen = self.chosen[use.op]
        along = [way.reads[use.place] for way in chosen.ways]
        return self.variables[f"op {use.op}"], self.layouts[tensor].numbers(along, chosen.places)

    def _written(self, op: Op, place: int, tensor: str) -> NDArray[np.intp]:
        chosen = self.chosen[op.name]
        return self.layouts[tensor].numbers([way.writes[place] for way in chosen.ways], chosen.places)

    def chain(self, tensor: str) -> tuple[tuple[Use, str], ...]:
        """The readers with the variable of the layout in which the tensor is kept for each; "" for the last, which needs none:
        what is kept before it and what it reads are joined by one change."""
        uses = self.uses(tensor)
        return tuple((use, f"{tensor} {number}" if number < len(uses) else "") for number, use in enumerate(uses, 1))


def _uses(problem: ShardingProblem) -> dict[str, tuple[Use, ...]]:
    """The readers of every tensor."""
    work = problem.workload
    forward: dict[str, list[Use]] = {name: [] for name in work.tensors}
    later: dict[str, list[Use]] = {name: [] for name in work.tensors}
    now, home, made = forward, dict.fromkeys(work.tensors, forward), set[str]()
    for op in work.ops:
        now = later if op.name == problem.backward else now
        for place, name in enumerate(op.inputs):
            now[name].append(Use(op.name, place))
        for name in op.outputs:
            home[name] = now
            made.add(name)
    for name in work.outputs:
        home[name][name].append(Use())
    # what comes in for the backward pass alone does not lie there before
    kept = {n for n in work.tensors if later[n] and home[n] is forward and (n in made or forward[n])}
    return {n: (*forward[n], *([Use(kept=True)] if n in kept else []), *later[n]) for n in work.tensors}


def sharding_graph(problem: ShardingProblem) -> ShardingGraph:
    """The tables of a problem. Raises BadInput: a layout that a tensor cannot have, ties that leave an op no way."""
    graph = ShardingGraph(problem)
    work, partials = problem.workload, dict.fromkeys(problem.workload.tensors, "")
    for op in work.ops:
        found = ways(work, op, partials)
        partials |= dict.fromkeys(op.outputs, partial_monoid(found))
        graph.strategies[op.name] = tuple(itertools.product(found, repeat=len(problem.mesh)))
    router = Router(problem.mesh, problem.collective_time)
    for name, tensor in work.tensors.items():
        graph.layouts[name] = router.layouts(tensor, work.dims, partials[name])
    _name_variables(graph)
    for op in work.ops:
        if op.name in problem.splits:
            graph.strategies[op.name] = tuple(_wanted(problem, op, graph.strategies[op.name]))
    _tie(graph)
    for op in work.ops:
        graph.chosen[op.name] = _chosen(graph.strategies[op.name], len(problem.mesh))
        graph.costs[op.name] = op_costs(graph, op)
        graph.time.append(Table((graph.variables[f"op {op.name}"],), graph.costs[op.name]))
    for name in work.tensors:
        _way_tables(graph, name)
    _fix_ends(graph)
    return graph


def _ends(work: Workload) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*(name for name in work.inputs if work.consumers(name)), *work.outputs)))


def _name_variables(graph: ShardingGraph) -> None:
    """Tied ops, and ends that lie together, share the variable of the first."""
    problem = graph.problem
    variables = [*(f"op {op.name}" for op in problem.workload.ops), *(f"end {name}" for name in graph.ends())]
    named = {name: name for name in variables}
    for kind, groups in (("op", (*problem.tied, *problem.alike)), ("end", problem.together)):
        for first, *others in groups:
            old = {named[f"{kind} {name}"] for name in others}
            named |= {name: named[f"{kind} {first}"] for name, variable in named.items() if variable in old}
    graph.variables |= named


def _wanted(problem: ShardingProblem, op: Op, found: tuple[Strategy, ...]) -> Iterator[Strategy]:
    """The strategies that split what the user said."""
    wanted = problem.splits.get(op.name, {})
    fixed = [(place, wanted[axis.name]) for place, axis in enumerate(problem.mesh) if axis.name in wanted]
    yield from (strategy for strategy in found if all(strategy[place].split == dim for place, dim in fixed))


def _tie(graph: ShardingGraph) -> None:
    """Tied ops keep the strategies that they have in common, in one order."""
    groups: dict[str, list[str]] = {}
    for op in graph.problem.workload.ops:
        groups.setdefault(graph.variables[f"op {op.name}"], []).append(op.name)
    for group in groups.values():
        if len(group) > 1:
            named = _by_names(graph, group)
            common = [names for names in named[0] if all(names in each for each in named)]
            for name, each in zip(group, named, strict=True):
                graph.strategies[name] = tuple(each[names] for names in common)
        if not graph.strategies[group[0]]:
            remedy = "split a dim that it has and need not see whole, or untie the ops"
            raise BadInput(Fault(f"sharding of {', '.join(group)}", "a way to share it out", "none", remedy))


def _by_names(graph: ShardingGraph, group: list[str]) -> list[dict[tuple[str, ...], Strategy]]:
    """For each op its strategies by the names of their ways, as the ops of the group call them."""
    problem = graph.problem
    own = [{tuple(way.name for way in strategy): strategy for strategy in graph.strategies[name]} for name in group]
    if not set(group).intersection(itertools.chain(*problem.alike)):
        return own
    dims = [{*op.dims, *op.sequence} for op in map(problem.workload.op, group)]
    every, found = dict.fromkeys(itertools.chain(*own)), []
    for strategies, has in zip(own, dims, strict=True):
        lacks = set[str]().union(*dims) - has
        shorter = {names: tuple("" if name in lacks else name for name in names) for names in every}
        found.append({names: strategies[short] for names, short in shorter.items() if short in strategies})
    return found


def _chosen(strategies: tuple[Strategy, ...], axes: int) -> ChosenWays:
    found: dict[str, Way] = {}
    for strategy in strategies:
        for way in strategy:
            found.setdefault(way.name, way)
    place = {name: number for number, name in enumerate(found)}
    places = np.array([[place[way.name] for way in strategy] for strategy in strategies], np.intp)
    return ChosenWays(tuple(found.values()), places.reshape(len(strategies), axes))


def work_time(problem: ShardingProblem, op: Op, strategy: Strategy) -> float:
    """Time of an op's work on the rank that has most [s]. Raises InternalError: it is below 0 or not a number."""
    extents = {dim: problem.workload.dims[dim] for dim in (*op.dims, *op.sequence)}
    return _time_at(problem, op, local_extents(extents, [way.split for way in strategy], problem.mesh))


def _time_at(problem: ShardingProblem, op: Op, local: Mapping[str, int]) -> float:
    time = float(problem.kernel_time(op, local))
    if not time >= 0:
        raise InternalError(Fault(f"time of op {op.name} at {local}", "at least 0 s", repr(time)))
    return time


def op_costs(graph: ShardingGraph, op: Op) -> NDArray[np.float64]:
    """Time of an op for each of its strategies [s]: its work, asked for once for all that leave a rank the same extents, and the
    collectives of the op itself."""
    problem, chosen = graph.problem, graph.chosen[op.name]
    dims = tuple(dict.fromkeys((*op.dims, *op.sequence)))
    splits = np.array([dims.index(way.split) if way.split in dims else -1 for way in chosen.ways], np.intp)[chosen.places]
    counts = [local_counts(problem.workload.dims[dim], splits == place, problem.mesh) for place, dim in enumerate(dims)]
    rows = list(map(tuple, np.array(counts, np.int64).reshape(len(dims), -1).T.tolist()))
    known = {row: _time_at(problem, op, dict(zip(dims, row, strict=True))) for row in dict.fromkeys(rows)}
    found = np.array([known[row] for row in rows])
    moving = np.array([way.collective is not None for way in chosen.ways])[chosen.places].any(axis=1)
    for number in np.flatnonzero(moving):
        found[number] += math.fsum(step.time for _, step in inherent(graph, op, graph.strategies[op.name][number]))
    return found


def inherent(graph: ShardingGraph, op: Op, strategy: Strategy) -> Iterator[tuple[str, Step]]:
    """The collectives of an op itself, with the tensors that they carry: an all-reduce of a state, an all-to-all of rows."""
    mesh = graph.problem.mesh
    for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL):
        over = [way for way in strategy if way.collective is kind]
        if not over:
            continue
        axes = tuple(axis.name for axis, way in zip(mesh, strategy, strict=True) if way.collective is kind)
        names = op.outputs if kind is CollectiveKind.ALL_REDUCE else (over[0].moved,)
        layout = _layout_of(op, strategy, names[0])
        size = sum(int(graph.layouts[name].bytes[graph.layouts[name].index(layout)]) for name in names)
        yield " ".join(names), Step(kind, axes, layout, layout, size, graph.problem.collective_time(kind, axes, size))


def _layout_of(op: Op, strategy: Strategy, tensor: str) -> Layout:
    if tensor in op.outputs:
        return tuple(way.writes[op.outputs.index(tensor)] for way in strategy)
    return tuple(way.reads[op.inputs.index(tensor)] for way in strategy)


def _way_tables(graph: ShardingGraph, tensor: str) -> None:
    """The tables of a tensor's way from its maker to its readers, and of the memory that it takes."""
    known, chain = graph.layouts[tensor], graph.chain(tensor)
    if not chain:
        return
    origin, made = graph.start(tensor)
    before, held = origin, made
    for use, variable in chain:
        if not variable:
            name, wanted = graph.reader(tensor, use)
            graph.time.append(table((before, name), known.time[np.ix_(held, wanted)]))
            break
        graph.time.append(Table((before, variable), known.time[held]))
        if use.kept:
            graph.kept.append(_kept_bytes(graph, tensor, origin, made, variable))
        else:
            name, wanted = graph.reader(tensor, use)
            graph.time.append(Table((variable, name), known.time[:, wanted]))
        before, held = variable, np.arange(len(known.options))
    if tensor in graph.problem.weights:
        size = known.bytes[made] / known.tensor.word * graph.problem.weights[tensor]
        graph.weights.append(Table((origin,), size))


def _kept_bytes(graph: ShardingGraph, tensor: str, origin: str, made: NDArray[np.intp], variable: str) -> Table:
    """Bytes between the passes, by how a tensor is kept. A weight lies there anyway: only a copy in another layout counts."""
    known = graph.layouts[tensor]
    if tensor not in graph.problem.weights:
        return Table((variable,), known.bytes.astype(np.float64) * graph.problem.in_flight)
    sizes = np.tile(known.bytes.astype(np.float64), (len(made), 1))
    sizes[np.arange(len(made)), made] = 0.0
    return table((origin, variable), sizes)


def _fix_ends(graph: ShardingGraph) -> None:
    for name, layout in graph.problem.layouts.items():
        known = graph.layouts[name]
        allowed = np.array(known.complete) == known.index(layout)
        if not allowed.any():
            raise BadInput(Fault(f"layout of {name}", "complete values at the ends of the graph", "partial ones", "reduce them"))
        graph.time.append(Table((graph.variables[f"end {name}"],), np.where(allowed, 0.0, np.inf)))


def _faults(problem: ShardingProblem) -> Iterator[Fault]:
    """What is wrong with the names and shapes of a problem."""
    work, where = problem.workload, f"sharding of {problem.workload.name}"
    ops, axes = {op.name: op for op in work.ops}, {axis.name: axis for axis in problem.mesh}
    ends = _ends(work)
    if len(axes) != len(problem.mesh):
        yield Fault(where, "axes, each with a name of its own", ", ".join(axis.name for axis in problem.mesh))
    for name in {*itertools.chain(*problem.tied, *problem.alike), *problem.splits, *({problem.backward} - {""})}:
        if name not in ops:
            yield Fault(where, "names of ops", repr(name), did_you_mean(name, ops))
    for name in {*itertools.chain(*problem.together), *problem.layouts}:
        if name not in ends:
            yield Fault(where, "outputs of the workload, or inputs that an op reads", repr(name), did_you_mean(name, ends))
    for name in problem.weights:
        if name not in ends or name not in work.inputs:
            yield Fault(where, "weights that are inputs which an op reads", repr(name), did_you_mean(name, work.inputs))
    for group in problem.together + problem.tied + problem.alike:
        if not group:
            yield Fault(where, "groups of at least one name", "an empty one", "leave it out")
    for group in problem.together:
        shapes = [tuple(work.dims[dim] for dim in work.tensors[name].dims) for name in group if name in work.tensors]
        if len(set(shapes)) > 1:
            yield Fault(where, f"equal extents of {', '.join(group)}, which lie together", f"{shapes}")
    for name, split in problem.splits.items():
        if name in ops:
            yield from _split_faults(work, ops[name], split, {axis.name: axis.ranks for axis in problem.mesh})


def _split_faults(work: Workload, op: Op, split: Mapping[str, str], ranks: Mapping[str, int]) -> Iterator[Fault]:
    """Where the user splits, parts are equal."""
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
