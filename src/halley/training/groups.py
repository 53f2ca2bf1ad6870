"""Groups of a training graph that may run as one kernel: products with the kernel of elementwise ops and reductions behind them,
and both matrices of an MLP with the ops between.

    up: F = B Wu, then activate: H = gelu(F)    one kernel, if each chip reads the part of F that it computes
    up, activate, down: D = gelu(B Wu) Wd       one kernel, if it also reads the part of H that it computes

Such a group has the time of its best mapping on the chip, fused or not, in place of the sum of both kernels, wherever that is
less. The footprint is that without fusion: a result that another op reads is written to memory, and the others are counted as if
they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.ir.workload import Op, OpKind, Tensor, Workload, roles
from halley.kernels.groups import GroupKernel, GroupPattern, PatternDims, pattern_of
from halley.kernels.operations import RANDOM_NUMBER, tensor_bytes
from halley.kernels.searched import AnyKernel
from halley.kernels.times import Stream
from halley.rewrite.gradients import unused
from halley.sharding.joint import FusedKernels, overlapping
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
    """``parts``: products of one input, the ops of the kernel behind them, and, of an MLP, the products behind that, with the sum
    of their results. ``dims``: of the graph, by dim of the ``pattern``. ``unsplit``: dims of sums that the rest of the kernel
    waits for: where chips divide them, it is no one kernel."""

    graph: TrainingGraph
    parts: tuple[tuple[str, ...], ...]
    pattern: GroupPattern
    dims: tuple[tuple[str, ...], ...]
    unsplit: tuple[str, ...]

    @property
    def first(self) -> tuple[str, ...]:
        """Its first products."""
        return self.parts[0]

    @property
    def behind(self) -> tuple[str, ...]:
        """All other ops."""
        return tuple(name for part in self.parts[1:] for name in part)

    @property
    def ops(self) -> tuple[str, ...]:
        return *self.first, *self.behind

    @property
    def name(self) -> str:
        """Its first op; of more than two parts, ``FIRST to THIRD``."""
        return self.first[0] if len(self.parts) == 2 else f"{self.first[0]} to {self.parts[2][0]}"

    def kernel(self, local: Mapping[str, Number]) -> GroupKernel:
        """The group at the extents of a chip; dims that are not given have the workload's."""
        whole: dict[str, Number] = {**self.graph.workload.dims, **local}
        return GroupKernel(self.pattern, tuple(_product(whole[dim] for dim in dims) for dims in self.dims))

    def others(self, local: Mapping[str, Number], gradient: int) -> Iterator[Stream]:
        """Kernels that the group has beside its own: random masks of dropout, which its own kernel reads, and gradients of
        weights that are added to their sums (``gradient`` [B])."""
        work, whole = self.graph.workload, {**self.graph.workload.dims, **local}
        for op in map(work.op, self.behind):
            share = self.graph.contributions[op.name]
            if share.drawn:
                size = sum(tensor_bytes(work, name, whole) for name in share.drawn)
                yield Stream(_product(whole[dim] for dim in op.dims), 0, size, RANDOM_NUMBER.work)
            if share.summed:
                yield added_gradient(self.graph, op, share, whole, gradient)

    def whole(self, local: Mapping[str, Number]) -> NDArray[np.bool_]:
        """Whether no sum that the kernel waits for is divided between chips."""
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
    """A group as `halley.sharding.joint.FusibleKernels`: its times from those of kernels. ``gradient`` [B]: of an element of a
    sum of gradients."""

    group: ProductGroup
    kernel_time: Times
    gradient: int

    @property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        return self.group.parts

    @property
    def name(self) -> str:
        return self.group.name

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
    """The groups of a graph: products with the kernel behind them, of which no two share an op; and MLPs, of two of these or of
    one and further products."""
    pairs = tuple(_pairs(graph))
    return *pairs, *(mlp for pair in pairs if (mlp := _mlp(graph, pair)) is not None)


@lru_cache(maxsize=512)
def overlapping_groups(graph: TrainingGraph) -> tuple[tuple[ProductGroup, ...], ...]:
    """The groups of a graph in sets that share no op."""
    return tuple(overlapping(product_groups(graph)))


def _pairs(graph: TrainingGraph) -> Iterator[ProductGroup]:
    work, taken = graph.workload, set[str]()
    order = {op.name: number for number, op in enumerate(work.ops)}
    behind = [kernel for kernel in kernels(work) if _fusable(graph, kernel)]
    for op in work.ops:
        first = _products(graph, op)
        if not first:
            continue
        products = [work.op(name) for name in first]
        for kernel in behind:
            if taken.isdisjoint((*first, *kernel)) and _follows(graph, products, kernel, order):
                found = pattern_of(work, first, kernel)
                # what a whole layer recomputes may have no reader
                if found is not None and found.pattern.outputs:
                    awaited = [name for name in kernel if graph.contributions[name].awaited]
                    waits = dict.fromkeys(dim for name in awaited for dim in work.reduced(work.op(name)))
                    taken |= {*first, *kernel}
                    yield ProductGroup(graph, (first, kernel), *found, tuple(waits))
                break


def _products(graph: TrainingGraph, op: Op) -> tuple[str, ...]:
    """The products that an op computes, over the same dims; none if it is no product of a kernel of its own, or if its result is
    added to a sum of gradients."""
    share, work = graph.contributions[op.name], graph.workload
    if op.kind is not OpKind.CONTRACT or share.part or share.core is not None or share.summed:
        return ()
    found = share.merged or (op.name,)
    same = all(set(each.dims) == set(op.dims) and work.reduced(each) == work.reduced(op) for each in map(work.op, found))
    return found if same else ()


def _mlp(graph: TrainingGraph, pair: ProductGroup) -> ProductGroup | None:
    """The group of a pair and the products behind it that sum over its columns: forward, the matrices of an MLP; backward, the
    gradients of its hidden values and of its input."""
    work, passes = graph.workload, graph.found.passes
    made = {name for op in pair.parts[1] for name in work.op(op).outputs}
    order = {op.name: number for number, op in enumerate(work.ops)}
    if any(graph.contributions[name].awaited for name in pair.parts[1]):
        return None
    columns = set(roles(work, work.op(pair.first[0])).columns)
    for op in work.ops:
        last = _products(graph, op)
        readers = [work.op(name) for name in last]
        if not last or passes[op.name] != passes[pair.first[0]] or not columns.issuperset(work.reduced(op)):
            continue
        inside = {*pair.ops, *last}
        makers = [work.producer(name) for each in readers for name in each.inputs]
        if all(made.intersection(each.inputs) for each in readers) and all(
            maker is None or maker.name in inside or order[maker.name] < order[pair.first[0]] for maker in makers
        ):
            sums = _sum_of(graph, last)
            if len(last) > 1 and not sums:
                return None
            parts = (*pair.parts, last, sums) if sums else (*pair.parts, last)
            found = _mlp_pattern(graph, parts)
            return None if found is None else ProductGroup(graph, parts, *found, work.reduced(work.op(pair.first[0])))
    return None


def _sum_of(graph: TrainingGraph, products: tuple[str, ...]) -> tuple[str, ...]:
    """The op that adds up the results of two products, which one kernel computes; none of one product."""
    work = graph.workload
    results = {name for product in products for name in work.op(product).outputs}
    adds = [op.name for op in work.ops if graph.contributions[op.name].part and set(op.inputs) == results]
    return tuple(adds) if len(products) == 2 and len(adds) == 1 else ()


def _mlp_pattern(graph: TrainingGraph, parts: tuple[tuple[str, ...], ...]) -> PatternDims | None:
    """The pattern of an MLP. Columns of its last products have dims of their own, also where the graph names them as the rows of
    the first matrices: both are as wide as the model."""
    work, (first, kernel, last, *sums) = graph.workload, parts
    names = [*first, *kernel, *last, *(name for some in sums for name in some)]
    ops, inside = [work.op(name) for name in names], set(names)
    before = {dim for name in (*first, *kernel) for dim in work.op(name).dims}
    given = {name for op in ops[: len(first) + len(kernel)] for name in (*op.inputs, *op.outputs)}
    columns = {dim for name in last for dim in roles(work, work.op(name)).columns if dim in before}
    new = {dim: unused(f"{dim}_behind", work.dims) for dim in sorted(columns)}
    later = {*last, *(name for some in sums for name in some)}
    read = {name for op in ops if op.name in later for name in op.inputs}
    if any(not new.keys().isdisjoint(work.tensors[name].dims) for name in read & given):
        return None
    tensors, renamed = dict[str, Tensor](), list[Op]()
    for op in ops:
        dims = new if op.name in later else {}
        renamed.append(replace(op, dims=tuple(dims.get(dim, dim) for dim in op.dims)))
        for name in (*op.inputs, *op.outputs):
            own = {} if name in given else dims
            tensors[name] = replace(work.tensors[name], dims=tuple(own.get(dim, dim) for dim in work.tensors[name].dims))
    extents = {dim: work.dims[dim] for op in ops for dim in op.dims} | {new[dim]: work.dims[dim] for dim in new}
    outputs = tuple(name for op in ops for name in op.outputs if work.leaves(name, inside))
    alone = Workload("mlp", extents, tensors, tuple(renamed), outputs)
    found = pattern_of(alone, first, names[len(first) :])
    if found is None or not outputs:
        return None
    old = {name: dim for dim, name in new.items()}
    return PatternDims(found.pattern, tuple(tuple(old.get(dim, dim) for dim in dims) for dims in found.dims))


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
            group, one = fused[op.name]
            yield op.name, group.kernel(one.local), 1.0
            yield from ((op.name, kernel, 1.0) for kernel in group.others(one.local, gradient))
        elif op.name not in inside:
            extents = {dim: work.dims[dim] for dim in (*op.dims, *op.sequence)}
            local = local_extents(extents, [way.split for way in item.strategy], mesh)
            for task in op_tasks(graph, op, local, gradient):
                yield op.name, task.kernel, float(task.times)


def fused_groups(sharding: Sharding) -> dict[str, tuple[ProductGroup, FusedKernels]]:
    """The groups that run as one kernel, by their first op."""
    found = ((one.group.group, one) for one in sharding.fused_groups if isinstance(one.group, GroupTimes))
    return {group.first[0]: (group, one) for group, one in found}
