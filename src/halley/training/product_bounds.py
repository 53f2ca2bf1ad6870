"""Least times of products on any number of chips: the fastest of all splits, by the times of the kernels.

Ceilings of tiles, and waves over cores, make a part of a product longer than its share of the work; by how much depends on the
dims that are split. A product has few dims, and few enough splits over some ranks to time them all. So its least time is known,
and by how much it exceeds the time of its local work at the rates of the chip at least, over all splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number, maximum, minimum
from halley.formulas.timing import total
from halley.ir.workload import Op, OpKind, Workload, roles
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.searched import SearchedKernels
from halley.optim.deadline import Tick, no_limit
from halley.training.groups import GroupTimes, ProductGroup, product_groups
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import OpCosts, op_tasks
from halley.training.part_bounds import ModelBound, PartBound, RateTimes, group_bound, least_time, start_time

BATCH_DIM = "b"
"""The dim of the sequences of a microbatch."""


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
        product."""
        found = [self._part(part, graph, microbatch, ranks, tick) for part, graph in zip(bound.parts, graphs, strict=True)]
        blocks = tuple(zip(found[1:-1], bound.layers, strict=True))
        return ModelBound(found[0], blocks, found[-1])

    def _part(self, bound: PartBound, graph: TrainingGraph, microbatch: Number, ranks: Number, tick: Tick) -> PartBound:
        more: dict[str, list[Number]] = {"forward": [], "recompute": [], "backward": [], "excess": []}
        passes = graph.found.passes
        for op in graph.workload.ops:
            tick()
            gain = self.gain(graph, op, microbatch, ranks)
            more[passes[op.name]].append(gain.time)
            more["excess"].append(gain.excess)
        return replace(bound, **{name: getattr(bound, name) + total(each) for name, each in more.items()})

    def gain(self, graph: TrainingGraph, op: Op, microbatch: Number, ranks: Number) -> LeastTimes:
        """By how much a product's least time exceeds its share of the work, and by how much its excess over the local work
        exceeds launches."""
        share, work = graph.contributions[op.name], graph.workload
        tasks = op_tasks(graph, op, {**work.dims, BATCH_DIM: microbatch}, self.gradient)
        if op.kind is not OpKind.CONTRACT or share.core is not None or not tasks:
            return LeastTimes(0.0, 0.0)
        role = roles(work, op)
        extents = tuple(work.dims[dim] for dim in op.dims)
        types = tuple(work.tensors[name].dtype for name in (*op.inputs, *op.outputs))
        places = tuple(tuple(map(op.dims.index, dims)) for dims in (role.rows, role.columns, role.reduced, role.batch))
        batch = op.dims.index(BATCH_DIM) if BATCH_DIM in op.dims else -1
        merged = tuple(tuple(work.dims[dim] for dim in work.op(name).dims) for name in share.merged)
        asked = np.asarray(microbatch).tobytes(), np.asarray(ranks).tobytes()
        key = extents, types, places, batch, bool(share.summed), merged, asked
        costs = OpCosts(graph, self.chip, self.efficiency, self.gradient, self.searched)
        if key not in self._known:
            self._known[key] = least_product_times(costs, op, microbatch, ranks)
        plain = total([task.times * least_time(task, ranks, self.chip, self.efficiency) for task in tasks])
        started = total([task.times * start_time(task, self.efficiency) for task in tasks])
        least = self._known[key]
        group = next((each for each in self._groups(graph) if each.first[0] == op.name), None)
        if group is None:
            return LeastTimes(maximum(0.0, least.time - plain), least.excess - started)
        # either the product and the kernel behind it, or both as one
        both = extents, group.pattern, group.dims, group.unsplit, asked
        if both not in self._known:
            self._known[both] = least_group_times(costs, group, microbatch, ranks)
        one = self._known[both]
        bound = group_bound(group, {**work.dims, BATCH_DIM: microbatch}, ranks, self.chip, self.efficiency, self.gradient)
        time = minimum(least.time + bound.behind, one.time) - bound.together
        return LeastTimes(maximum(0.0, time), minimum(least.excess, one.excess) - started)

    def _groups(self, graph: TrainingGraph) -> tuple[ProductGroup, ...]:
        return product_groups(graph) if self.searched is not None and self.searched.grouped else ()


class LeastTimes(NamedTuple):
    """Over all splits of a product: its least ``time`` [s]; the least ``excess`` [s] of its time over that of its local work at
    the rates of the chip."""

    time: Number
    excess: Number


def least_product_times(costs: OpCosts, op: Op, microbatch: Number, ranks: Number) -> LeastTimes:
    """Of a product over ``ranks`` with ``microbatch`` sequences; numbers or arrays that broadcast.

    Every dim is split into any number of parts, as long as the product of these numbers divides the ranks.
    """
    rates = RateTimes(costs.graph, costs.chip, costs.efficiency, costs.gradient)
    return _least_times(
        op, costs.graph.workload, microbatch, ranks, lambda local: costs.times(op, local), lambda local: rates.times(op, local)
    )


def least_group_times(costs: OpCosts, group: ProductGroup, microbatch: Number, ranks: Number) -> LeastTimes:
    """The same of a group as one kernel, over all splits of its first product."""
    assert costs.searched is not None  # other times are of kernels apart
    work = costs.graph.workload
    exact = GroupTimes(group, costs.searched.times, costs.gradient)
    rates = RateTimes(costs.graph, costs.chip, costs.efficiency, costs.gradient).timed(group)
    return _least_times(work.op(group.first[0]), work, microbatch, ranks, exact.times, rates.times)


Timed = Callable[[Mapping[str, Number]], NDArray[np.float64]]
"""Times [s] at the extents of one chip."""


def _least_times(op: Op, work: Workload, microbatch: Number, ranks: Number, exact: Timed, at_rates: Timed) -> LeastTimes:
    sizes, size = np.unique(np.asarray(ranks, np.int64), return_inverse=True)
    batches, batch = np.unique(np.asarray(microbatch, np.int64), return_inverse=True)
    splits = np.array(sorted({each for count in sizes.tolist() for each in _splits(count, len(op.dims))}), np.int64)
    extents: dict[str, Number] = {dim: np.ceil(work.dims[dim] / splits[:, n])[None, :] for n, dim in enumerate(op.dims)}
    if BATCH_DIM in op.dims:
        extents[BATCH_DIM] = np.ceil(batches[:, None] / splits[:, op.dims.index(BATCH_DIM)])
    times = np.broadcast_to(exact(extents), (len(batches), len(splits)))
    rates = at_rates(extents)
    shape = np.broadcast_shapes(np.shape(microbatch), np.shape(ranks))
    rows, columns = batch.reshape(np.shape(microbatch)), size.reshape(np.shape(ranks))
    found = []
    # a group may be no one kernel under some splits
    for each in (times, np.where(np.isfinite(times), times, 0.0) - np.where(np.isfinite(times), rates, -np.inf)):
        least = _least_by_size(each, splits.prod(axis=1), sizes)
        found.append(np.asarray(np.broadcast_to(least[rows, columns], shape)))
    return LeastTimes(*found)


def _least_by_size(times: NDArray[np.float64], parts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """[batches, sizes] the least of the ``times`` [batches, splits] over all splits whose ``parts`` [splits] divide a size."""
    order = np.argsort(parts, kind="stable")
    counts, starts = np.unique(parts[order], return_index=True)
    by_count = np.minimum.reduceat(times[:, order], starts, axis=1)
    return np.stack([by_count[:, size % counts == 0].min(axis=1) for size in sizes.tolist()], axis=1)


@lru_cache(maxsize=4096)
def _splits(ranks: int, dims: int) -> tuple[tuple[int, ...], ...]:
    """All numbers of parts of each dim whose product divides the ranks."""
    divisors = [each for each in range(1, ranks + 1) if ranks % each == 0]
    return tuple(_extended((), ranks, dims, tuple(divisors)))


def _extended(before: tuple[int, ...], left: int, dims: int, divisors: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if dims == 0:
        yield before
        return
    for each in divisors:
        if left % each == 0:
            yield from _extended((*before, each), left // each, dims - 1, divisors)
