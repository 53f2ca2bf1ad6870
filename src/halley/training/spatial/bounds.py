"""Lower bounds of the demands of a part's passes on a spatial chip, for any fusion and any sharding.

The demands are work on all compute tiles, the memory traffic that no fusion avoids, and the network. Where an unfused kernel or
a wait is between two kernels, no partition has both (`halley.training.spatial.sections`), so tensors between them pass through
memory. Kernels that always run unfused are added, followed by their network. `halley.training.spatial.relaxation` bounds the
time of these demands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time, longest, total
from halley.ir.workload import Op, OpKind, Workload
from halley.kernels.operations import moved_bytes, tensor_bytes
from halley.kernels.times import Stream
from halley.optim.elimination import CostTable, cost_table
from halley.sharding.layouts import local_extents
from halley.sharding.solve import ShardingGraph, ShardingProblem, redistribution_tables, sharding_graph
from halley.training.axis_bounds import AxisBounds
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import op_tasks
from halley.training.part_bounds import least_time
from halley.training.spatial.passes import ChipRates, PassKernel, drawn_locally, is_weight, pass_kernels, read_elsewhere
from halley.training.spatial.relaxation import FlexibleKernel, KernelDemand, PartTables, ResourceTimes, least_by_layout
from halley.training.spatial.sections import Sections, handed, sections, separations

Floats = NDArray[np.float64]

AXIS_ROUNDS = 3
"""Multipliers that are tried for a bound from single axes, which only has to be fast."""


@dataclass(frozen=True, slots=True)
class PassDemands:
    """Of one pass: the ops that always run ``unfused`` and those that may be fused (``work``); the minimum memory traffic, each
    tensor with the op whose extents determine its size: weights that are ``held``, sums of gradients (``summed``, read and
    written), tensors ``leaving``; tensors ``entering``, each with ops that all read it from memory again because no two of
    them can be in one partition. ``outside``: entering tensors that the pass does not produce. ``handed``: tensors between
    kernels that need not pass through memory. ``place``: by op, its kernel; ``sections`` of the kernels."""

    unfused: tuple[str, ...]
    work: tuple[str, ...]
    held: tuple[tuple[str, str], ...]
    summed: tuple[tuple[str, str], ...]
    leaving: tuple[tuple[str, str], ...]
    entering: tuple[tuple[str, tuple[str, ...]], ...]
    outside: frozenset[str]
    handed: frozenset[str]
    place: Mapping[str, int]
    sections: Sections


@lru_cache(maxsize=512)
def pass_demands(graph: TrainingGraph) -> tuple[PassDemands, ...]:
    """Of the three passes."""
    wanted = read_elsewhere(graph)
    return tuple(_demands(graph, groups, leaves) for groups, leaves in zip(pass_kernels(graph), wanted, strict=True))


def _demands(graph: TrainingGraph, groups: Sequence[PassKernel], wanted: frozenset[str]) -> PassDemands:
    work = graph.workload
    makers = {name: (group, op) for group in groups for op in group.ops for name in work.op(op).outputs}
    streaming = [group for group in groups if not group.unfused]
    apart_by = separations(work, groups)
    held, summed = list[tuple[str, str]](), list[tuple[str, str]]()
    crossing, entering = set(wanted), dict[str, dict[int, str]]()
    for place, group in enumerate(groups):
        known = set[str]()
        for op in group.ops:
            for name in work.op(op).inputs:
                maker, streams = makers.get(name, (None, ""))[0], not group.unfused
                if maker is group or work.op(op).kind is OpKind.GATHER or drawn_locally(graph, op, name):
                    continue
                if is_weight(work, name):
                    held += [(op, name)] if streams and name not in known else []
                    known.add(name)
                elif maker is None or apart_by[groups.index(maker), place] >= 1:
                    crossing.add(name)
                    readers = entering.setdefault(name, {})
                    if streams:
                        readers.setdefault(place, op)
            if graph.contributions[op].summed and not group.unfused:
                summed.append((op, graph.contributions[op].summed))
    sums = {name for _, name in summed}
    leaving = [(op, name) for name, (group, op) in makers.items() if name in crossing and not group.unfused and name not in sums]
    apart = [op for group in groups if group.unfused for op in group.ops]
    at_work = tuple(op for group in streaming for op in group.ops)
    read = tuple((name, _longest_chain(readers, apart_by)) for name, readers in entering.items() if readers)
    outside = frozenset(entering.keys() - makers.keys())
    hands = tuple(handed(graph, groups, frozenset(crossing)))
    within, parted = frozenset(name for name, _, _ in hands), sections(groups, apart_by, hands)
    kernel = {op: number for number, group in enumerate(groups) for op in group.ops}
    return PassDemands(tuple(apart), at_work, tuple(held), tuple(summed), tuple(leaving), read, outside, within, kernel, parted)


def _longest_chain(readers: Mapping[int, str], apart_by: Floats) -> tuple[str, ...]:
    """The longest chain of readers of which no two can be in one partition; their ops."""
    chains = dict[int, tuple[str, ...]]()
    for place, op in readers.items():
        before = (chains[other] for other in chains if apart_by[other, place] >= 1)
        chains[place] = (*max(before, key=len, default=()), op)
    return max(chains.values(), key=len)


def work_time(graph: TrainingGraph, rates: ChipRates, op: Op, extents: Mapping[str, Number]) -> Number:
    """Time of an op on all compute tiles, without rounding [s]."""
    chip = rates.chip
    if op.kind is OpKind.CONTRACT:
        return math.prod(extents[dim] for dim in op.dims) * 2.0 / chip.peak
    cycles: Number = 0.0
    for task in op_tasks(graph, op, extents, rates.gradient):
        if isinstance(task.kernel, Stream):
            cycles = cycles + task.times * task.kernel.points * rates.machine.lane_cycles(task.kernel.work)
    return cycles * rates.lane_cycles / (chip.tiles * chip.width * chip.clock)


def held_traffic(work: Workload, rates: ChipRates, found: PassDemands, op: str, extents: Mapping[str, Number]) -> Number:
    """Least memory traffic of an op under any fusion [B], from its extents."""
    return weight_traffic(work, found, op, extents) + result_traffic(work, rates, found, op, extents)


def weight_traffic(work: Workload, found: PassDemands, op: str, extents: Mapping[str, Number]) -> Number:
    """Its weights."""
    return total([0.0, *(moved_bytes(work, work.op(op), name, extents) for reader, name in found.held if reader == op)])


def result_traffic(work: Workload, rates: ChipRates, found: PassDemands, op: str, extents: Mapping[str, Number]) -> Number:
    """The op's results, and its sums of gradients."""
    sizes: list[Number] = [tensor_bytes(work, name, extents) for maker, name in found.leaving if maker == op]
    sizes += [
        2.0 * rates.gradient * math.prod(extents[dim] for dim in work.tensors[name].dims)
        for maker, name in found.summed
        if maker == op
    ]
    return total([0.0, *sizes])


def pass_floors(graph: TrainingGraph, rates: ChipRates, microbatch: Number, ranks: Number) -> tuple[Number, ...]:
    """By pass, a lower bound over all shardings over so many ranks [s]; numbers, or arrays that broadcast."""
    work, extents = graph.workload, {**graph.workload.dims, "b": microbatch}
    found = list[Number]()
    for demands in pass_demands(graph):
        alone = [
            task.times * least_time(task, ranks, rates.machine, rates.efficiency)
            for name in demands.unfused
            for task in op_tasks(graph, work.op(name), extents, rates.gradient)
        ]
        busy = [work_time(graph, rates, work.op(name), extents) / ranks for name in demands.work]
        moved = [held_traffic(work, rates, demands, name, extents) for name in demands.work]
        moved += [len(readers) * tensor_bytes(work, name, extents) for name, readers in demands.entering]
        memory = busy_time(total([0.0, *moved]) / ranks, rates.chip.bandwidth)
        found.append(total([0.0, *alone]) + longest((total([0.0, *busy]), memory)))
    return tuple(found)


def part_tables(graph: TrainingGraph, rates: ChipRates, problem: ShardingProblem, end: str) -> PartTables:
    """``problem``: of the part, with its collectives and the times of unfused kernels; ``end``: its input or output through
    which parts meet."""
    silent = sharding_graph(replace(problem, kernel_time=lambda op, local: 0.0))
    alone, items, kernels, passes = list[CostTable](), list[KernelDemand](), list[FlexibleKernel](), list[int]()
    for number, (demands, sent) in enumerate(zip(pass_demands(graph), _network(graph, silent), strict=True)):
        found = _PassItems(graph, rates, silent, demands, len(kernels))
        alone += (_table(silent, graph.workload.op(name), problem.kernel_time) for name in demands.unfused)
        for op, item in sent:
            # an unfused kernel is followed by its network
            if op in demands.unfused:
                alone.append(item)
            else:
                items.append(found.network(op, item))
        items += found.work_and_memory()
        kernels += found.flexible_kernels(len(passes))
        passes += [number] * demands.sections.count
    barred = [CostTable(item.variables, np.where(np.isfinite(item.values), 0.0, np.inf)) for item in silent.time]
    alone += (item for item in barred if item.values.any())
    return PartTables(alone, items, kernels, tuple(passes), silent.variables[f"end {end}"])


@dataclass(frozen=True, slots=True)
class _PassItems:
    """Demands of the kernels of a pass; its first kernel has number ``first``."""

    graph: TrainingGraph
    rates: ChipRates
    silent: ShardingGraph
    demands: PassDemands
    first: int

    def network(self, op: str, sent: CostTable) -> KernelDemand:
        return KernelDemand(sent.variables, self._kernel(op), (ResourceTimes(0.0, (0.0, 0.0, sent.values)),))

    def work_and_memory(self) -> Iterator[KernelDemand]:
        demands = self.demands
        stored = {name: _saved_variable(self.silent, name) for name in demands.outside}
        unknown = {op: list[str]() for op in demands.work}
        for name, readers in demands.entering:
            for op in readers:
                if stored.get(name):
                    item = _read_table(self.silent, self.rates, name, stored[name], op)
                    yield KernelDemand(item.variables, self._kernel(op), (ResourceTimes(0.0, (0.0, item.values, 0.0)),))
                else:
                    unknown[op].append(name)
        for op in demands.work:
            yield self._item(op, unknown[op])

    def _item(self, op: str, entering: Sequence[str]) -> KernelDemand:
        """Demands of an op. Those of weights depend on how they are loaded:

        - Before the partition starts, which adds their time to everything else.
        - Streamed for two sequence tiles or more: they are read at least twice.
        - Streamed for a single sequence tile. If kernels of the partition wait for each other, its ramp takes as long again as
          its slowest kernel, which is at least the work of all its kernels. If they do not, or if the kernel runs unfused, its
          results for other kernels go to memory.
        """
        graph, rates, demands = self.graph, self.rates, self.demands
        work, found = graph.workload, graph.workload.op(op)

        def passed(of: Callable[[Mapping[str, Number]], Number]) -> Floats:
            def time(op: Op, local: Mapping[str, Number]) -> float:
                return float(busy_time(of(local), rates.chip.bandwidth))

            return _table(self.silent, found, time).values

        busy = _table(self.silent, found, lambda op, local: float(work_time(graph, rates, op, local)))
        moved = passed(lambda local: result_traffic(work, rates, demands, op, local))
        moved = moved + sum(self._least(name) for name in entering)
        weights = passed(lambda local: weight_traffic(work, demands, op, local))
        takes = [ResourceTimes(0.0, (busy.values, moved, 0.0))]
        if weights.any():
            handed = [name for name in found.outputs if name in demands.handed]
            written = passed(lambda local: total([0.0, *(tensor_bytes(work, name, local) for name in handed)]))
            takes = [
                ResourceTimes(weights, (busy.values, moved, 0.0)),
                ResourceTimes(0.0, (busy.values, moved + 2.0 * weights, 0.0)),
                ResourceTimes(busy.values, (busy.values, moved + weights, 0.0)),
                ResourceTimes(0.0, (busy.values, moved + weights + written, 0.0)),
            ]
        return KernelDemand(busy.variables, self._kernel(op), tuple(takes))

    def _least(self, name: str) -> float:
        """Time of the memory for a chip's part of a tensor in any layout [s]."""
        work, ranks = self.graph.workload, math.prod(axis.ranks for axis in self.silent.problem.mesh)
        return float(busy_time(tensor_bytes(work, name, work.dims) / ranks, self.rates.chip.bandwidth))

    def flexible_kernels(self, section: int) -> Iterator[FlexibleKernel]:
        """The kernels of the pass with their sections, numbered from ``section``."""
        known = self.demands.sections
        for allowed, crossings in zip(known.allowed, known.crossings, strict=True):
            extra = np.zeros((len(allowed), section + known.count))
            for each in crossings:
                for at in (each.written, each.read):
                    extra[allowed.index(each.at), section + at] += each.share * self._least(each.name)
            yield FlexibleKernel(tuple(section + at for at in allowed), extra)

    def _kernel(self, op: str) -> int:
        return self.first + self.demands.place[op]


def _network(graph: TrainingGraph, silent: ShardingGraph) -> tuple[list[tuple[str, CostTable]], ...]:
    """By pass, the collectives that its kernels wait for, each with its op; as in
    `halley.training.spatial.passes.awaited_collectives`. ``silent``: the part's graph with times of ops set to 0."""
    work = graph.workload
    passes = {op: number for number, groups in enumerate(pass_kernels(graph)) for group in groups for op in group.ops}
    makers = {name: op.name for op in work.ops for name in op.outputs}
    found = [(op.name, item) for op, item in zip(work.ops, silent.time, strict=False)]
    for name in silent.space.chains:
        found += ((op or makers.get(name, work.ops[0].name), item) for op, item in redistribution_tables(silent, name))
    tables: tuple[list[tuple[str, CostTable]], ...] = ([], [], [])
    for op, item in found:
        values = np.where(np.isfinite(item.values), item.values, 0.0)
        if values.any():
            tables[passes[op]].append((op, CostTable(item.variables, values)))
    return tables


def _saved_variable(silent: ShardingGraph, name: str) -> str:
    """The variable of the layout in which a tensor is saved between the passes; "" where it has none."""
    chain = silent.space.chains.get(name)
    return next((link.variable for link in chain.links if link.use.saved), "") if chain else ""


def _read_table(silent: ShardingGraph, rates: ChipRates, name: str, stored: str, op: str) -> CostTable:
    """Memory time for a tensor that an op reads, by the tensor's layout and the op's strategy: the bytes stored on the chip,
    or, if fewer, those that an unfused op reads."""
    work = silent.problem.workload

    def wanted(reader: Op, local: Mapping[str, Number]) -> float:
        return float(moved_bytes(work, reader, name, local))

    found = _table(silent, work.op(op), wanted)
    sizes = np.minimum(silent.layouts[name].bytes[:, None], found.values[None, :])
    return cost_table((stored, *found.variables), np.asarray(busy_time(sizes, rates.chip.bandwidth)))


def _table(graph: object, op: Op, time: Callable[[Op, Mapping[str, int]], float]) -> CostTable:
    """``time`` [s] of an op by its strategy; evaluated once per distinct split."""
    space, problem = graph.space, graph.problem  # type: ignore[attr-defined]
    work, known = problem.workload, dict[tuple[int, ...], float]()
    times = []
    for strategy in space.ops[op.name].strategies:
        local = local_extents({**work.dims}, [way.split for way in strategy], problem.mesh)
        key = tuple(local.values())
        if key not in known:
            known[key] = time(op, local)
        times.append(known[key])
    return CostTable((space.variables[f"op {op.name}"],), np.array(times))


@dataclass(slots=True, eq=False)
class SpatialAxisBounds(AxisBounds):
    """Bounds of layers from the collectives over some axes of the mesh, where kernels are fused. The argument for sums of work
    and collectives holds for each of the three sums here: a subset of the ranks or sequences has at least its share of each."""

    rates: ChipRates = field(kw_only=True)

    def layer_bound(self, graph: TrainingGraph, problem: ShardingProblem) -> float:
        """As in `AxisBounds`: from work, memory and network, which overlap."""
        return float(least_by_layout(part_tables(graph, self.rates, problem, "X"), rounds=AXIS_ROUNDS).bounds.min())
