"""Least times of products on any number of chips: the fastest of all splits, by the times of the kernels.

Ceilings of tiles, and waves over cores, make a part of a product longer than its share of the work; by how much depends on the
dims that are split. A product has few dims, and few enough splits over some ranks to time them all. So its least time is known,
and by how much it exceeds the time of its local work at the rates of the chip at least, over all splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number, maximum, minimum
from halley.formulas.timing import total
from halley.ir.workload import Op, OpKind, Workload, roles
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.searched import SearchedKernels
from halley.optim.deadline import Tick, no_limit
from halley.optim.divisors import divisors, prime_divisors
from halley.sharding.joint import disjoint
from halley.training.groups import GroupTimes, ProductGroup, overlapping_groups
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import OpCosts, Task, op_tasks
from halley.training.part_bounds import ModelBound, PartBound, RateTimes, groups_bound, least_time, start_time

BATCH_DIM = "b"
"""The dim of the sequences of a microbatch."""

ENTRIES_AT_ONCE = 1 << 20
"""Times of splits that are computed together, at most, unless one microbatch has more; between them, a search may end."""


@dataclass(slots=True, eq=False)
class ProductBounds:
    """Raises the bounds of a model's parts to the least times of their products on a chip. ``gradient`` [B] and ``searched``: as
    in `OpCosts`. Equal products are timed once."""

    chip: Machine
    efficiency: Efficiency
    gradient: int
    searched: SearchedKernels | None = None
    _known: dict[object, LeastTimes] = field(default_factory=dict)

    def raised(
        self, bound: ModelBound, graphs: Sequence[TrainingGraph], microbatch: Number, ranks: Number, tick: Tick = no_limit
    ) -> ModelBound:
        """The bounds with products no faster than their kernels; ``graphs``: of the parts in order; ``tick``: called before each
        product and between the parts of a large one."""
        found = [self._part(part, graph, microbatch, ranks, tick) for part, graph in zip(bound.parts, graphs, strict=True)]
        blocks = tuple(zip(found[1:-1], bound.layers, strict=True))
        return ModelBound(found[0], blocks, found[-1])

    def _part(self, bound: PartBound, graph: TrainingGraph, microbatch: Number, ranks: Number, tick: Tick) -> PartBound:
        more: dict[str, list[Number]] = {"forward": [], "recompute": [], "backward": [], "excess": []}
        passes = graph.found.passes
        for op in graph.workload.ops:
            tick()
            gain = self.gain(graph, op, microbatch, ranks, tick)
            more[passes[op.name]].append(gain.time)
            more["excess"].append(gain.excess)
        return replace(bound, **{name: getattr(bound, name) + total(each) for name, each in more.items()})

    def gain(self, graph: TrainingGraph, op: Op, microbatch: Number, ranks: Number, tick: Tick = no_limit) -> LeastTimes:
        """By how much a product's least time exceeds its share of the work, and by how much its excess over the local work
        exceeds launches. The first product of groups that overlap counts for all their kernels."""
        if op.kind is not OpKind.CONTRACT or graph.contributions[op.name].core is not None:
            return LeastTimes(0.0, 0.0)
        groups = next((some for some in self._groups(graph) if any(op.name in group.ops for group in some)), None)
        if groups is not None:
            return (
                self._of_groups(graph, groups, microbatch, ranks, tick) if op.name == groups[0].first[0] else LeastTimes(0.0, 0.0)
            )
        tasks = self._tasks(graph, op, microbatch)
        if not tasks:
            return LeastTimes(0.0, 0.0)
        least = self._least(graph, op, microbatch, ranks, tick)
        plain = total([task.times * least_time(task, ranks, self.chip, self.efficiency) for task in tasks])
        return LeastTimes(maximum(0.0, least.time - plain), least.excess - self._started(tasks))

    def _of_groups(
        self, graph: TrainingGraph, groups: tuple[ProductGroup, ...], microbatch: Number, ranks: Number, tick: Tick
    ) -> LeastTimes:
        """The least of all ways to run the kernels of groups, over what their bounds count."""
        work, none = graph.workload, LeastTimes(0.0, 0.0)
        names = dict.fromkeys(name for group in groups for name in group.ops)
        apart, started = dict[str, LeastTimes](), list[Number]()
        for op in map(work.op, names):
            tasks = self._tasks(graph, op, microbatch)
            if op.kind is OpKind.CONTRACT and tasks:
                apart[op.name] = self._least(graph, op, microbatch, ranks, tick)
                started.append(self._started(tasks))
            else:
                plain = total([task.times * least_time(task, ranks, self.chip, self.efficiency) for task in tasks])
                apart[op.name] = none._replace(time=plain)
        one = {group.name: self._least_of_group(graph, group, microbatch, ranks, tick) for group in groups}
        best: LeastTimes | None = None
        for some in disjoint(groups):
            left = names.keys() - {name for group in some for name in group.ops}
            parts = [*(one[group.name] for group in some), *(apart[name] for name in names if name in left)]
            found = LeastTimes(total([part.time for part in parts]), total([part.excess for part in parts]))
            best = found if best is None else LeastTimes(*map(minimum, best, found))
        assert best is not None  # no group is a choice too
        bound = groups_bound(groups, {**work.dims, BATCH_DIM: microbatch}, ranks, self.chip, self.efficiency, self.gradient)
        return LeastTimes(maximum(0.0, best.time - bound.together), best.excess - total(started))

    def _tasks(self, graph: TrainingGraph, op: Op, microbatch: Number) -> tuple[Task, ...]:
        return op_tasks(graph, op, {**graph.workload.dims, BATCH_DIM: microbatch}, self.gradient)

    def _started(self, tasks: Sequence[Task]) -> Number:
        return total([task.times * start_time(task, self.efficiency) for task in tasks])

    def _least(self, graph: TrainingGraph, op: Op, microbatch: Number, ranks: Number, tick: Tick) -> LeastTimes:
        share, work = graph.contributions[op.name], graph.workload
        role = roles(work, op)
        extents = tuple(work.dims[dim] for dim in op.dims)
        types = tuple(work.tensors[name].dtype for name in (*op.inputs, *op.outputs))
        places = tuple(tuple(map(op.dims.index, dims)) for dims in (role.rows, role.columns, role.reduced, role.batch))
        batch = op.dims.index(BATCH_DIM) if BATCH_DIM in op.dims else -1
        merged = tuple(tuple(work.dims[dim] for dim in work.op(name).dims) for name in share.merged)
        key = extents, types, places, batch, bool(share.summed), merged, _asked(microbatch, ranks)
        if key not in self._known:
            self._known[key] = least_product_times(self._costs(graph), op, microbatch, ranks, tick)
        return self._known[key]

    def _least_of_group(
        self, graph: TrainingGraph, group: ProductGroup, microbatch: Number, ranks: Number, tick: Tick
    ) -> LeastTimes:
        extents = tuple(graph.workload.dims[dim] for dim in graph.workload.op(group.first[0]).dims)
        key = extents, group.pattern, group.dims, group.unsplit, _asked(microbatch, ranks)
        if key not in self._known:
            self._known[key] = least_group_times(self._costs(graph), group, microbatch, ranks, tick)
        return self._known[key]

    def _costs(self, graph: TrainingGraph) -> OpCosts:
        return OpCosts(graph, self.chip, self.efficiency, self.gradient, self.searched)

    def _groups(self, graph: TrainingGraph) -> tuple[tuple[ProductGroup, ...], ...]:
        return overlapping_groups(graph) if self.searched is not None and self.searched.grouped else ()


def _asked(microbatch: Number, ranks: Number) -> tuple[bytes, bytes]:
    return np.asarray(microbatch).tobytes(), np.asarray(ranks).tobytes()


class LeastTimes(NamedTuple):
    """Over all splits of a product: its least ``time`` [s]; the least ``excess`` [s] of its time over that of its local work at
    the rates of the chip."""

    time: Number
    excess: Number


def least_product_times(costs: OpCosts, op: Op, microbatch: Number, ranks: Number, tick: Tick = no_limit) -> LeastTimes:
    """Of a product over ``ranks`` with ``microbatch`` sequences; numbers or arrays that broadcast.

    Every dim is split into any number of parts, as long as the product of these numbers divides the ranks.
    """
    rates = RateTimes(costs.graph, costs.chip, costs.efficiency, costs.gradient)
    times = (lambda local: costs.times(op, local)), (lambda local: rates.times(op, local))
    return _least_times(op, costs.graph.workload, microbatch, ranks, *times, tick)


def least_group_times(
    costs: OpCosts, group: ProductGroup, microbatch: Number, ranks: Number, tick: Tick = no_limit
) -> LeastTimes:
    """The same of a group as one kernel, over all splits of its first product."""
    assert costs.searched is not None  # other times are of kernels apart
    work = costs.graph.workload
    exact = GroupTimes(group, costs.searched.times, costs.gradient)
    rates = RateTimes(costs.graph, costs.chip, costs.efficiency, costs.gradient).timed(group)
    return _least_times(work.op(group.first[0]), work, microbatch, ranks, exact.times, rates.times, tick)


Timed = Callable[[Mapping[str, Number]], NDArray[np.float64]]
"""Times [s] at the extents of one chip."""


def _least_times(
    op: Op, work: Workload, microbatch: Number, ranks: Number, exact: Timed, at_rates: Timed, tick: Tick
) -> LeastTimes:
    sizes, size = np.unique(np.asarray(ranks, np.int64), return_inverse=True)
    alike = microbatch if BATCH_DIM in op.dims else np.zeros_like(microbatch)
    batches, batch = np.unique(np.asarray(alike, np.int64), return_inverse=True)
    counts = [tuple(batches.tolist()) if dim == BATCH_DIM else (work.dims[dim],) for dim in op.dims]
    splits = distinct_splits(counts, tuple(sizes.tolist()))
    extents: dict[str, Number] = {dim: np.ceil(work.dims[dim] / splits[:, n])[None, :] for n, dim in enumerate(op.dims)}
    by_size = _LeastBySize(splits.prod(axis=1), sizes)
    least = np.empty((2, len(batches), len(sizes)))
    rows = max(1, ENTRIES_AT_ONCE // len(splits))
    for first in range(0, len(batches), rows):
        tick()
        some = slice(first, first + rows)
        if BATCH_DIM in op.dims:
            extents[BATCH_DIM] = np.ceil(batches[some, None] / splits[:, op.dims.index(BATCH_DIM)])
        times = np.broadcast_to(exact(extents), (len(batches[some]), len(splits)))
        possible = np.isfinite(times)  # a group may be no one kernel under some splits
        least[0, some] = by_size(times)
        least[1, some] = by_size(np.where(possible, times, 0.0) - np.where(possible, at_rates(extents), -np.inf))
    shape = np.broadcast_shapes(np.shape(microbatch), np.shape(ranks))
    where = batch.reshape(np.shape(microbatch)), size.reshape(np.shape(ranks))
    return LeastTimes(*(np.asarray(np.broadcast_to(each[where], shape)) for each in least))


class _LeastBySize:
    """The least of times [batches, splits] over all splits whose ``parts`` [splits] divide a size: [batches, sizes]."""

    def __init__(self, parts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self.order = np.argsort(parts, kind="stable")
        counts, self.starts = np.unique(parts[self.order], return_index=True)
        self.divides = [size % counts == 0 for size in sizes.tolist()]

    def __call__(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        by_count = np.minimum.reduceat(times[:, self.order], self.starts, axis=1)
        return np.stack([by_count[:, divides].min(axis=1) for divides in self.divides], axis=1)


def distinct_splits(counts: Sequence[tuple[int, ...]], ranks: tuple[int, ...]) -> NDArray[np.int64]:
    """[splits, dims] numbers of parts of each dim, whose product divides one of the ``ranks``; ``counts``: the extents that each
    dim may have.

    Omitted are those with the parts of another that divide them and have the same extents: the other is a split of as many ranks.

    >>> distinct_splits([(2,), (5,)], (4,)).tolist()
    [[1, 1], [1, 2], [1, 4], [2, 1], [2, 2]]
    """
    largest = [each for each in ranks if not any(other > each and other % each == 0 for other in ranks)]
    every = sorted({each for count in largest for each in divisors(count)})
    found = np.ones((1, 0), np.int64)
    for extents in counts:
        parts = np.array([each for each in every if any(_smaller_extent(extent, each) for extent in extents)], np.int64)
        found = np.column_stack((np.repeat(found, len(parts), axis=0), np.tile(parts, len(found))))
        product = found.prod(axis=1)
        found = found[np.any([count % product == 0 for count in largest], axis=0)]
    return found


def _smaller_extent(extent: int, parts: int) -> bool:
    """Whether so many parts of a dim are smaller than those of every number of parts that divides it."""
    local = -(-extent // parts)
    return all(-(-extent // (parts // prime)) > local for prime in prime_divisors(parts))
