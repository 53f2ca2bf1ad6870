"""Groups of a training graph that may run as one kernel: products with the kernel of elementwise ops and reductions behind them.

    up: F = B Wu, then activate: H = gelu(F)    one kernel, if each chip reads the part of F that it computes

Such a group has the time of its best mapping on the chip, fused or not, in place of the sum of both kernels, wherever that is
less. The footprint is that without fusion: a result that another op reads is written to memory, and the others are counted as if
they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.ir.workload import Op, OpKind
from halley.kernels.groups import GroupKernel, GroupPattern, pattern_of
from halley.kernels.operations import RANDOM_NUMBER, tensor_bytes
from halley.kernels.searched import AnyKernel
from halley.kernels.times import Stream
from halley.sharding.joint import FusedPair
from halley.sharding.layouts import local_extents
from halley.sharding.solution import Sharding
from halley.training.kernels import LOCAL_KINDS, TrainingGraph, kernels
from halley.training.op_costs import added_gradient, op_tasks

MAX_OPS_BEHIND = 8
"""Most ops behind the products of a group. Gradients of norms have more: their tensors rarely fit into the buffers of a chip
together, and their searches take long."""

Times = Callable[[AnyKernel], Number]
"""Times [s] of kernels."""


@dataclass(frozen=True, slots=True, eq=False)
class ProductGroup:
    """``first``: products of one input, ``second``: the ops of the kernel behind them. ``dims``: of the graph, by dim of the
    ``pattern``. ``unsplit``: dims of reductions that the rest of the kernel waits for: where chips divide them, it is no one
    kernel."""

    graph: TrainingGraph
    first: tuple[str, ...]
    second: tuple[str, ...]
    pattern: GroupPattern
    dims: tuple[tuple[str, ...], ...]
    unsplit: tuple[str, ...]

    @property
    def ops(self) -> tuple[str, ...]:
        return *self.first, *self.second

    def kernel(self, local: Mapping[str, Number]) -> GroupKernel:
        """The group at the extents of a chip; dims that are not given have the workload's."""
        whole: dict[str, Number] = {**self.graph.workload.dims, **local}
        return GroupKernel(self.pattern, tuple(_product(whole[dim] for dim in dims) for dims in self.dims))

    def others(self, local: Mapping[str, Number], gradient: int) -> Iterator[Stream]:
        """Kernels that the group has beside its own: random masks of dropout, which its own kernel reads, and gradients of
        weights that are added to their sums (``gradient`` [B])."""
        work, whole = self.graph.workload, {**self.graph.workload.dims, **local}
        for op in map(work.op, self.second):
            share = self.graph.contributions[op.name]
            if share.drawn:
                size = sum(tensor_bytes(work, name, whole) for name in share.drawn)
                yield Stream(_product(whole[dim] for dim in op.dims), 0, size, RANDOM_NUMBER.work)
            if share.summed:
                yield added_gradient(self.graph, op, share, whole, gradient)

    def whole(self, local: Mapping[str, Number]) -> NDArray[np.bool_]:
        """Whether no reduction that the kernel waits for is divided between chips."""
        dims, found = self.graph.workload.dims, np.ones((), np.bool_)
        for dim in self.unsplit:
            found = found & (np.asarray(local.get(dim, dims[dim])) >= dims[dim])
        return found


def _product(extents: Iterator[Number]) -> Number:
    found: Number = 1
    for extent in extents:
        found = found * extent
    return found


@dataclass(frozen=True, slots=True, eq=False)
class GroupTimes:
    """A group as a `halley.sharding.joint.Pair`: its times from those of kernels. ``gradient`` [B]: of an element of a sum of
    gradients."""

    group: ProductGroup
    kernel_time: Times
    gradient: int

    @property
    def first(self) -> tuple[str, ...]:
        return self.group.first

    @property
    def second(self) -> tuple[str, ...]:
        return self.group.second

    def many(self, local: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        """Times [many] [s] at many extents [many] of each dim; infinite where the group is no one kernel."""
        extents: dict[str, Number] = {dim: counts.astype(np.float64) for dim, counts in local.items()}
        return np.asarray(np.broadcast_to(self.times(extents), np.shape(next(iter(extents.values())))))

    def times(self, local: Mapping[str, Number]) -> NDArray[np.float64]:
        """Times [s] of the shape that the extents broadcast to; infinite where the group is no one kernel."""
        beside = [self.kernel_time(kernel) for kernel in self.group.others(local, self.gradient)]
        own = total([self.kernel_time(self.group.kernel(local)), *beside])
        return np.asarray(np.where(self.group.whole(local), own, np.inf))


@lru_cache(maxsize=512)
def product_groups(graph: TrainingGraph) -> tuple[ProductGroup, ...]:
    """The groups of a graph; no op is in two of them."""
    return tuple(_groups(graph))


def _groups(graph: TrainingGraph) -> Iterator[ProductGroup]:
    work, taken = graph.workload, set[str]()
    order = {op.name: number for number, op in enumerate(work.ops)}
    behind = [kernel for kernel in kernels(work) if _fusable(graph, kernel)]
    for op in work.ops:
        share = graph.contributions[op.name]
        if op.kind is not OpKind.CONTRACT or share.part or share.core is not None or share.summed:
            continue
        first = share.merged or (op.name,)
        products = [work.op(name) for name in first]
        if any(set(each.dims) != set(op.dims) or work.reduced(each) != work.reduced(op) for each in products):
            continue
        for kernel in behind:
            if taken.isdisjoint((*first, *kernel)) and _follows(graph, products, kernel, order):
                found = pattern_of(work, first, kernel)
                # what a whole layer recomputes may have no reader
                if found is not None and found.pattern.outputs:
                    awaited = [name for name in kernel if graph.contributions[name].awaited]
                    waits = dict.fromkeys(dim for name in awaited for dim in work.reduced(work.op(name)))
                    taken |= {*first, *kernel}
                    yield ProductGroup(graph, first, kernel, *found, tuple(waits))
                break


def _fusable(graph: TrainingGraph, kernel: tuple[str, ...]) -> bool:
    """Whether a kernel has elementwise ops and reductions alone, all split alike, and is not part of another one."""
    ops, shares = [graph.workload.op(name) for name in kernel], [graph.contributions[name] for name in kernel]
    if len(kernel) > MAX_OPS_BEHIND or any(op.kind not in LOCAL_KINDS for op in ops):
        return False
    if any(share.part or share.core is not None for share in shares):
        return False
    return len(kernel) == 1 or any(set(kernel) <= set(group) for group in graph.same_split)


def _follows(graph: TrainingGraph, products: list[Op], kernel: tuple[str, ...], order: Mapping[str, int]) -> bool:
    """Whether a kernel reads the results of all products, in their pass, and nothing else that is made after them."""
    work, passes, dims = graph.workload, graph.found.passes, set(products[0].dims)
    ops, first = [work.op(name) for name in kernel], min(order[op.name] for op in products)
    read = {name for op in ops for name in op.inputs}
    if any(read.isdisjoint(op.outputs) for op in products) or any(not dims.issuperset(op.dims) for op in ops):
        return False
    if {passes[op.name] for op in (*products, *ops)} != {passes[products[0].name]}:
        return False
    inside = {op.name for op in (*products, *ops)}
    makers = (work.producer(name) for name in read)
    return all(maker is None or maker.name in inside or order[maker.name] < first for maker in makers)


# --- kernels of a sharded graph -----------------------------------------------------------------------------------------


def sharded_kernels(graph: TrainingGraph, sharding: Sharding, gradient: int) -> Iterator[tuple[str, AnyKernel, float]]:
    """The kernels of a part under a sharding at the extents of a chip, how often each runs, and the op that counts its time;
    ``gradient`` [B]: of an element of a sum of gradients."""
    fused, work, mesh = fused_groups(sharding), graph.workload, sharding.problem.mesh
    inside = {name for group, _ in fused.values() for name in group.ops}
    for op, item in zip(work.ops, sharding.ops, strict=True):
        if op.name in fused:
            group, pair = fused[op.name]
            yield op.name, group.kernel(pair.local), 1.0
            yield from ((op.name, kernel, 1.0) for kernel in group.others(pair.local, gradient))
        elif op.name not in inside:
            extents = {dim: work.dims[dim] for dim in (*op.dims, *op.sequence)}
            local = local_extents(extents, [way.split for way in item.strategy], mesh)
            for task in op_tasks(graph, op, local, gradient):
                yield op.name, task.kernel, float(task.times)


def fused_groups(sharding: Sharding) -> dict[str, tuple[ProductGroup, FusedPair]]:
    """The groups that run as one kernel, by their first op."""
    return {pair.pair.first[0]: (pair.pair.group, pair) for pair in sharding.fused_pairs if isinstance(pair.pair, GroupTimes)}
