"""Demands of a graph's kernels on a chip and its network, as tables over the choices of a sharding, where resources overlap.

A kernel takes the longest of its resources: engines, memory, network. Where kernels run one by one, each has multipliers of its
own; where any of them may share a partition, all have the same ones, because only the longest of the sums is a valid bound.
Resident weights are loaded before a partition and overlap with nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from halley.formulas.spatial import streamed_time
from halley.formulas.timing import busy_time
from halley.graphs.kernels import OpLoad, kernel_groups, least_point_time, memory_tensors, op_load
from halley.ir.workload import Op
from halley.optim.elimination import CostTable, aligned, cost
from halley.sharding.layouts import local_extents
from halley.sharding.solve import ShardingGraph, ShardingProblem, sharding_graph
from halley.spatial.chip import SpatialChip, tile_choices

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class OverlapTables:
    """``always``: tables of times that overlap with nothing, and of forbidden values. ``kernels``: by kernel and resource,
    tables of its time [s]. ``graph``: the choices, with times of ops and collectives without overlap."""

    graph: ShardingGraph
    always: tuple[CostTable, ...]
    kernels: tuple[tuple[tuple[CostTable, ...], ...], ...]

    @property
    def resources(self) -> int:
        """Largest number of resources of a kernel."""
        return max(map(len, self.kernels))

    def weighted(self, weights: Numbers) -> Iterator[CostTable]:
        """Tables whose sum is a lower bound of the time; ``weights`` [kernels, resources]: multipliers that add up to at most 1
        for each kernel."""
        yield from self.always
        for kernel, multipliers in zip(self.kernels, weights, strict=True):
            for tables, multiplier in zip(_filled(kernel, self.resources), multipliers, strict=True):
                for item in tables:
                    yield CostTable(item.variables, item.values * multiplier)

    def times(self, values: Mapping[str, int]) -> tuple[float, Numbers]:
        """Of a choice: the time that overlaps with nothing [s], and [kernels, resources] [s]."""
        found = [[cost(tables, values) for tables in _filled(kernel, self.resources)] for kernel in self.kernels]
        return cost(self.always, values), np.array(found)


def _filled(kernel: tuple[tuple[CostTable, ...], ...], resources: int) -> Iterator[tuple[CostTable, ...]]:
    """Kernels with fewer resources than others repeat their first ones."""
    yield from itertools.islice(itertools.cycle(kernel), resources)


def overlap_tables(problem: ShardingProblem, chip: SpatialChip, fused: bool) -> OverlapTables:
    """The tables of a graph on a chip; the problem's collectives are its network, and its kernel times are not used."""
    work = problem.workload
    graph = sharding_graph(replace(problem, kernel_time=_nothing))
    loads, network = _Loads(graph, chip, fused), _network(graph)
    timed = loads.timed()
    barred = [CostTable(item.variables, np.where(np.isinf(item.values), np.inf, 0.0)) for item in graph.time]
    always = [item for item in barred if item.values.any()]
    always += map(loads.held, work.ops)
    if fused:
        ops = work.ops
        whole = _each(loads.ideal, ops), _each(loads.memory, ops), tuple(itertools.chain(*(network[op.name] for op in ops)))
        return OverlapTables(timed, tuple(always), (whole,))
    named = {op.name: op for op in work.ops}
    kernels = []
    for group in kernel_groups(work):
        ops = tuple(named[name] for name in group)
        sent = tuple(itertools.chain(*(network[name] for name in group)))
        # concurrent ops leave at least one tile to each other
        tiles = chip.tiles - len(ops) + 1
        limits = [limit for op in ops for limit in _limits(loads.longest(op, tiles), network[op.name])]
        # the work of all ops is done by all tiles
        together = (_each(loads.ideal, ops), _each(loads.memory, ops)) if len(ops) > 1 else ()
        kernels.append((*limits, *together, sent))
    return OverlapTables(timed, tuple(always), tuple(kernels))


def _limits(work: CostTable, network: Iterable[CostTable]) -> Iterator[tuple[CostTable, ...]]:
    """Lower bounds of an op: the longer of its work and of the redistribution of one of its inputs, without multipliers. For an
    op that waits for one redistribution alone, that is exact."""
    (op,) = work.variables
    own, pairs = np.zeros_like(work.values), list[CostTable]()
    for item in network:
        if item.variables == (op,):
            own = own + item.values
        elif op in item.variables:
            pairs.append(item)
    if not pairs:
        yield (CostTable((op,), np.maximum(work.values, own)),)
    for item in pairs:
        least, collective = (aligned(CostTable((op,), values), item.variables) for values in (work.values, own))
        yield (CostTable(item.variables, np.maximum(least, collective + item.values)),)


def _each(make: Callable[[Op], CostTable], ops: Iterable[Op]) -> tuple[CostTable, ...]:
    return tuple(make(op) for op in ops)


def _nothing(*given: object) -> float:
    return 0.0


@dataclass(slots=True, eq=False)
class _Loads:
    """Loads of single ops, by their strategies."""

    graph: ShardingGraph
    chip: SpatialChip
    fused: bool
    _known: dict[str, tuple[list[tuple[OpLoad, float]], NDArray[np.intp]]] = field(default_factory=dict)

    def timed(self) -> ShardingGraph:
        """The graph with times of its ops."""
        work, crossing = self.graph.problem.workload, memory_tensors(self.graph.problem.workload, self.fused)

        def time(op: Op, local: Mapping[str, int]) -> float:
            return self._longest(op_load(work, op, {**work.dims, **local}, crossing[op.name]), self.chip.tiles)

        problem = replace(self.graph.problem, kernel_time=time)
        return replace(
            self.graph, problem=problem, time=[*self.graph.time, *(self.longest(op, self.chip.tiles) for op in work.ops)]
        )

    def held(self, op: Op) -> CostTable:
        return self._table(op, lambda load, points: float(busy_time(load.kernel.weights, self.chip.bandwidth)))

    def ideal(self, op: Op) -> CostTable:
        """All of the chip at its peak."""
        per_point = least_point_time(self.graph.problem.workload, op, self.chip)
        return self._table(op, lambda load, points: per_point * points)

    def memory(self, op: Op) -> CostTable:
        return self._table(op, lambda load, points: self._memory(load))

    def longest(self, op: Op, tiles: int) -> CostTable:
        """Of engines and memory, which are an op's own, so no multiplier is needed."""
        return self._table(op, lambda load, points: self._longest(load, tiles))

    def _longest(self, load: OpLoad, tiles: int) -> float:
        return max(self._compute(load, tiles), self._memory(load))

    def _memory(self, load: OpLoad) -> float:
        return float(busy_time(load.traffic, self.chip.bandwidth))

    def _compute(self, load: OpLoad, tiles: int) -> float:
        """With this many compute tiles, or fewer if more do not help."""
        made = tile_choices(load.kernel, load.slices, load.slices, self.chip)
        cycles = made.cycles[max(int(np.searchsorted(made.tiles, tiles, "right")) - 1, 0)]
        return float(streamed_time(cycles, 1, self.chip.clock))

    def _table(self, op: Op, time: Callable[[OpLoad, float], float]) -> CostTable:
        """``time`` [s] of a load and its points."""
        if op.name not in self._known:
            self._known[op.name] = self._loads(op)
        loads, share = self._known[op.name]
        times = np.array([time(load, points) for load, points in loads])
        return CostTable((self.graph.variables[f"op {op.name}"],), times[share])

    def _loads(self, op: Op) -> tuple[list[tuple[OpLoad, float]], NDArray[np.intp]]:
        """The distinct loads with their points, and the number of each strategy's load."""
        work, mesh = self.graph.problem.workload, self.graph.problem.mesh
        crossing = memory_tensors(work, self.fused)[op.name]
        extents = {dim: work.dims[dim] for dim in (*op.dims, *op.sequence)}
        known: dict[tuple[int, ...], int] = {}
        loads, share = list[tuple[OpLoad, float]](), list[int]()
        for strategy in self.graph.space.ops[op.name].strategies:
            local = local_extents(extents, [way.split for way in strategy], mesh)
            key = tuple(local.values())
            if key not in known:
                known[key] = len(loads)
                points = float(math.prod(local[dim] for dim in op.dims))
                loads.append((op_load(work, op, {**work.dims, **local}, crossing), points))
            share.append(known[key])
        return loads, np.array(share, np.intp)


def _network(graph: ShardingGraph) -> dict[str, list[CostTable]]:
    """By op, the collectives that it waits for, as in `halley.graphs.kernels.network_times`."""
    found: dict[str, list[CostTable]] = {op.name: [] for op in graph.problem.workload.ops}
    waiting = _waiting(graph)
    for table in graph.time:
        if table.values.any():
            finite = np.where(np.isfinite(table.values), table.values, 0.0)
            found[waiting(table.variables)].append(CostTable(table.variables, finite))
    return found


def _waiting(graph: ShardingGraph) -> Callable[[tuple[str, ...]], str]:
    """The op that waits for what a table over these variables counts: the reader of a tensor, or, at the end of the graph, its
    producer. A table's variables are a tensor's source and destination, named as in `ShardingGraph`."""
    work = graph.problem.workload
    ops = {graph.variables[f"op {op.name}"]: op.name for op in work.ops}
    kept, makers = dict[str, str](), dict[str, str]()
    for name in work.tensors:
        maker = work.producer(name)
        last = maker.name if maker else work.ops[0].name
        readers = [op.name for op in work.ops for read in op.inputs if read == name]
        for number, reader in enumerate((*readers, *([last] if name in work.outputs else [])), 1):
            kept[f"{name} {number}"], makers[f"{name} {number}"] = reader, last

    def waiting(variables: tuple[str, ...]) -> str:
        source, target = variables[0], variables[-1]
        return ops.get(target) or kept.get(target) or ops.get(source) or makers.get(source) or work.ops[0].name

    return waiting
