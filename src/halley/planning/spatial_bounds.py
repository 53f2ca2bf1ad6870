"""What the passes of a part take at least on a spatial chip, however kernels are fused and whatever the sharding.

A pass takes the longest of its work on all compute tiles, of the traffic that no fusion avoids, and of its network: partitions
take the longest of theirs, and follow each other. Where a kernel that runs alone or a wait lies between two kernels, no partition
has both (`separations`), so that tensors cross memory there. Kernels that run alone in any case are added. Of the three, any mean
is a lower bound, and as a sum over ops and passes it is minimised exactly over all shardings; for each pass, prices that raise
the least of it are looked for (`halley.planning.graph_prices`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number
from halley.formulas.timing import busy_time, longest, total
from halley.ir.workload import Op, OpKind, Workload
from halley.planning.axis_bounds import AxisBounds
from halley.planning.elimination import Table, cost, table
from halley.planning.graph_prices import best_prices
from halley.planning.kernels import Stream
from halley.planning.layouts import local_extents
from halley.planning.least_sum import LeastBy
from halley.planning.op_costs import op_tasks
from halley.planning.operations import moved_bytes, tensor_bytes
from halley.planning.part_bounds import least_time
from halley.planning.sharding import ShardingGraph, ShardingProblem, sharding_graph, way_tables
from halley.planning.spatial_passes import ChipRates, Group, is_weight, made_up, pass_groups, read_elsewhere, waits
from halley.planning.training_kernels import TrainingGraph

Floats = NDArray[np.float64]

ROUNDS = 12
"""Prices that are tried at most."""

RISES = 2e-3
"""Relative rise that a bound may still have when prices count as good enough."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Of one pass: the ops that run ``alone`` in any case and those at ``work``; what passes the memory in any case, each with
    the op whose extents say how much of it: weights that are ``held``, sums of gradients (``summed``, read and written),
    tensors ``leaving``; and tensors that come in from memory (``entering``), each with ops that all read it anew, as no two of
    them can be in one partition. ``outside``: those that the pass does not make."""

    alone: tuple[str, ...]
    work: tuple[str, ...]
    held: tuple[tuple[str, str], ...]
    summed: tuple[tuple[str, str], ...]
    leaving: tuple[tuple[str, str], ...]
    entering: tuple[tuple[str, tuple[str, ...]], ...]
    outside: frozenset[str]


@lru_cache(maxsize=512)
def pass_demands(graph: TrainingGraph) -> tuple[Demands, ...]:
    """Of the three passes."""
    wanted = read_elsewhere(graph)
    return tuple(_demands(graph, groups, leaves) for groups, leaves in zip(pass_groups(graph), wanted, strict=True))


def _demands(graph: TrainingGraph, groups: Sequence[Group], wanted: frozenset[str]) -> Demands:
    work = graph.workload
    makers = {name: (group, op) for group in groups for op in group.ops for name in work.op(op).outputs}
    streaming = [group for group in groups if not group.apart]
    apart_by = separations(work, groups)
    held, summed = list[tuple[str, str]](), list[tuple[str, str]]()
    crossing, entering = set(wanted), dict[str, dict[int, str]]()
    for place, group in enumerate(groups):
        known = set[str]()
        for op in group.ops:
            for name in work.op(op).inputs:
                maker, streams = makers.get(name, (None, ""))[0], not group.apart
                if maker is group or work.op(op).kind is OpKind.GATHER or made_up(graph, op, name):
                    continue
                if is_weight(work, name):
                    held += [(op, name)] if streams and name not in known else []
                    known.add(name)
                elif maker is None or apart_by[groups.index(maker), place] >= 1:
                    crossing.add(name)
                    readers = entering.setdefault(name, {})
                    if streams:
                        readers.setdefault(place, op)
            if graph.shares[op].summed and not group.apart:
                summed.append((op, graph.shares[op].summed))
    sums = {name for _, name in summed}
    leaving = [(op, name) for name, (group, op) in makers.items() if name in crossing and not group.apart and name not in sums]
    apart = [op for group in groups if group.apart for op in group.ops]
    at_work = tuple(op for group in streaming for op in group.ops)
    read = tuple((name, _longest_chain(readers, apart_by)) for name, readers in entering.items() if readers)
    outside = frozenset(entering.keys() - makers.keys())
    return Demands(tuple(apart), at_work, tuple(held), tuple(summed), tuple(leaving), read, outside)


def separations(work: Workload, groups: Sequence[Group]) -> Floats:
    """[groups, groups] how many borders of partitions lie between two groups at least, on any way from the first to the second;
    -inf where the second does not wait for the first. Groups stand in an order in which they can run."""
    place = {name: number for number, group in enumerate(groups) for op in group.ops for name in work.op(op).outputs}
    found = np.full((len(groups), len(groups)), -math.inf)
    np.fill_diagonal(found, 0.0)
    for number, group in enumerate(groups):
        for op in group.ops:
            for name in work.op(op).inputs:
                maker = place.get(name, number)
                if maker != number:
                    writer = groups[maker]
                    border = writer.apart or group.apart or waits(work, writer, group, name, op)
                    found[:, number] = np.maximum(found[:, number], found[:, maker] + border)
    return found


def _longest_chain(readers: Mapping[int, str], apart_by: Floats) -> tuple[str, ...]:
    """Of these groups, in their order, the most of which no two can be in one partition, each behind the one before; their
    ops."""
    chains = dict[int, tuple[str, ...]]()
    for place, op in readers.items():
        before = (chains[other] for other in chains if apart_by[other, place] >= 1)
        chains[place] = (*max(before, key=len, default=()), op)
    return max(chains.values(), key=len)


def work_time(graph: TrainingGraph, rates: ChipRates, op: Op, extents: Mapping[str, Number]) -> Number:
    """Of an op on all compute tiles, without rounding [s]."""
    chip = rates.chip
    if op.kind is OpKind.CONTRACT:
        return math.prod(extents[dim] for dim in op.dims) * 2.0 / chip.peak
    cycles: Number = 0.0
    for task in op_tasks(graph, op, extents, rates.gradient):
        if isinstance(task.kernel, Stream):
            cycles = cycles + task.times * task.kernel.points * rates.machine.lane_cycles(task.kernel.work)
    return cycles * rates.lane_cycles / (chip.tiles * chip.width * chip.clock)


def held_traffic(work: Workload, rates: ChipRates, found: Demands, op: str, extents: Mapping[str, Number]) -> Number:
    """Bytes that pass the memory however kernels are fused, by the extents of one op."""
    sizes: list[Number] = [moved_bytes(work, work.op(op), name, extents) for reader, name in found.held if reader == op]
    sizes += [tensor_bytes(work, name, extents) for maker, name in found.leaving if maker == op]
    sizes += [
        2.0 * rates.gradient * math.prod(extents[dim] for dim in work.tensors[name].dims)
        for maker, name in found.summed
        if maker == op
    ]
    return total([0.0, *sizes])


def pass_floors(graph: TrainingGraph, rates: ChipRates, microbatch: Number, ranks: Number) -> tuple[Number, ...]:
    """By pass, what no sharding over so many ranks takes less than [s]; numbers, or arrays that broadcast."""
    work, extents = graph.workload, {**graph.workload.dims, "b": microbatch}
    found = list[Number]()
    for demands in pass_demands(graph):
        alone = [
            task.times * least_time(task, ranks, rates.machine, rates.efficiency)
            for name in demands.alone
            for task in op_tasks(graph, work.op(name), extents, rates.gradient)
        ]
        busy = [work_time(graph, rates, work.op(name), extents) / ranks for name in demands.work]
        moved = [held_traffic(work, rates, demands, name, extents) for name in demands.work]
        moved += [len(readers) * tensor_bytes(work, name, extents) for name, readers in demands.entering]
        memory = busy_time(total([0.0, *moved]) / ranks, rates.chip.bandwidth)
        found.append(total([0.0, *alone]) + longest((total([0.0, *busy]), memory)))
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class PartTables:
    """Tables over the choices of a sharding of a part: ``alone``, with what is forbidden, and by pass those of its ``resources``
    (work, memory, network) [s]; ``entering`` [passes] [s] of memory in any case. ``end``: the variable of the layout in which
    parts meet."""

    alone: Sequence[Table]
    resources: tuple[tuple[Sequence[Table], ...], ...]
    entering: Floats
    end: str

    def priced(self, shares: Floats) -> list[Table]:
        """A mean of the resources of each pass, by ``shares`` [passes, resources], without what enters."""
        tables = list(self.alone)
        for prices, passing in zip(shares, self.resources, strict=True):
            for price, resource in zip(prices, passing, strict=True):
                tables += (Table(item.variables, item.values * price) for item in resource)
        return tables

    def times(self, values: Mapping[str, int]) -> tuple[float, Floats]:
        """Of a choice: what runs alone, and of each pass the three resources [s]."""
        found = np.array([[cost(tables, values) for tables in passing] for passing in self.resources])
        found[:, 1] += self.entering
        return cost(self.alone, values), found


def part_tables(graph: TrainingGraph, rates: ChipRates, problem: ShardingProblem, end: str) -> PartTables:
    """``problem``: of the part, with its collectives and the times of kernels that run one by one; ``end``: its input or output
    through which parts meet."""
    silent = sharding_graph(replace(problem, kernel_time=lambda op, local: 0.0))
    work, ranks = graph.workload, math.prod(axis.ranks for axis in problem.mesh)
    alone, resources, entering = list[Table](), list[tuple[list[Table], ...]](), list[float]()
    for demands, sent in zip(pass_demands(graph), _network(graph, silent), strict=True):
        lying = {name: _kept_variable(silent, name) for name in demands.outside}
        unknown = [(name, len(readers)) for name, readers in demands.entering if not lying.get(name)]
        entering.append(math.fsum(count * float(tensor_bytes(work, name, work.dims)) for name, count in unknown) / ranks)

        def time(op: Op, local: Mapping[str, Number]) -> float:
            return float(work_time(graph, rates, op, local))

        def moved(op: Op, local: Mapping[str, Number], demands: Demands = demands) -> float:
            return float(busy_time(held_traffic(work, rates, demands, op.name, local), rates.chip.bandwidth))

        alone += (_table(silent, work.op(name), problem.kernel_time) for name in demands.alone)
        busy = [_table(silent, work.op(name), time) for name in demands.work]
        memory = [_table(silent, work.op(name), moved) for name in demands.work]
        for name, readers in demands.entering:
            if variable := lying.get(name):
                memory += (_read_table(silent, rates, name, variable, op) for op in readers)
        resources.append((busy, memory, sent))
    barred = [Table(item.variables, np.where(np.isfinite(item.values), 0.0, np.inf)) for item in silent.time]
    return PartTables(
        [*alone, *(item for item in barred if item.values.any())],
        tuple(resources),
        np.array(busy_time(np.array(entering), rates.chip.bandwidth)),
        silent.variables[f"end {end}"],
    )


def _network(graph: TrainingGraph, silent: ShardingGraph) -> tuple[list[Table], ...]:
    """By pass, the collectives that its kernels wait for; as in `halley.planning.spatial_passes.waited`. ``silent``: the part's
    graph, its ops without work."""
    work = graph.workload
    passes = {op: number for number, groups in enumerate(pass_groups(graph)) for group in groups for op in group.ops}
    makers = {name: op.name for op in work.ops for name in op.outputs}
    found = [(op.name, item) for op, item in zip(work.ops, silent.time, strict=False)]
    for name in silent.space.chains:
        found += ((op or makers.get(name, work.ops[0].name), item) for op, item in way_tables(silent, name))
    tables: tuple[list[Table], ...] = ([], [], [])
    for op, item in found:
        values = np.where(np.isfinite(item.values), item.values, 0.0)
        if values.any():
            tables[passes[op]].append(Table(item.variables, values))
    return tables


def _kept_variable(silent: ShardingGraph, name: str) -> str:
    """The variable of the layout in which a tensor lies between the passes; "" where it has none."""
    chain = silent.space.chains.get(name)
    return next((link.variable for link in chain.links if link.use.kept), "") if chain else ""


def _read_table(silent: ShardingGraph, rates: ChipRates, name: str, lying: str, op: str) -> Table:
    """Time of the memory for a tensor that an op reads, by how the tensor lies and how the op is split: as much as lies on the
    chip, or, if the op runs alone, as much as it wants."""
    work = silent.problem.workload

    def wanted(reader: Op, local: Mapping[str, Number]) -> float:
        return float(moved_bytes(work, reader, name, local))

    found = _table(silent, work.op(op), wanted)
    sizes = np.minimum(silent.layouts[name].bytes[:, None], found.values[None, :])
    return table((lying, *found.variables), np.asarray(busy_time(sizes, rates.chip.bandwidth)))


def _table(graph: object, op: Op, time: Callable[[Op, Mapping[str, int]], float]) -> Table:
    """``time`` [s] of an op by its strategy; asked for once for all that share it out alike."""
    space, problem = graph.space, graph.problem  # type: ignore[attr-defined]
    work, known = problem.workload, dict[tuple[int, ...], float]()
    times = []
    for strategy in space.ops[op.name].strategies:
        local = local_extents({**work.dims}, [way.split for way in strategy], problem.mesh)
        key = tuple(local.values())
        if key not in known:
            known[key] = time(op, local)
        times.append(known[key])
    return Table((space.variables[f"op {op.name}"],), np.array(times))


class Priced(NamedTuple):
    """``bounds`` [layouts] [s]: no sharding takes less with a part's end in this layout, however its kernels are fused.
    ``shares`` [passes, resources]: the prices for which the lowest of them was most."""

    bounds: Floats
    shares: Floats


def least_by_layout(tables: PartTables) -> Priced:
    """The best bounds that were found, and their prices."""
    shares = best = np.full((len(tables.resources), 3), 1.0 / 3.0)
    bounds, lowest = np.zeros(1), -math.inf
    always, times = list[float](), list[Floats]()
    for _ in range(ROUNDS):
        least = LeastBy(tables.priced(shares), tables.end)
        found = least.bounds + float(shares[:, 1] @ tables.entering)
        bounds = np.maximum(bounds, found)
        if float(found.min()) > lowest:
            lowest, best = float(found.min()), shares
        solved = least.solved(int(np.argmin(found)))
        if solved is None:
            break
        alone, taken = tables.times(solved.values)
        always.append(alone)
        times.append(taken)
        shares = best_prices(np.array(always), np.array(times))
        hoped = min(other + float((shares * each).sum()) for other, each in zip(always, times, strict=True))
        if hoped <= lowest * (1 + RISES):
            break
    return Priced(bounds, best)


@dataclass(slots=True, eq=False)
class SpatialAxisBounds(AxisBounds):
    """Bounds of layers from the collectives over one axis of the mesh, where kernels are fused. What holds for sums of work and
    collectives holds for each of the three sums here: a share of the ranks and of the sequences has at least its share."""

    rates: ChipRates = field(kw_only=True)

    def least(self, graph: TrainingGraph, problem: ShardingProblem) -> float:
        """As in `AxisBounds`: of work, memory and network, each with the others."""
        return float(least_by_layout(part_tables(graph, self.rates, problem, "X")).bounds.min())
