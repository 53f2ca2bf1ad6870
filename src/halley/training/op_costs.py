"""Times of the ops of a training graph on one chip, each at its local extents: the objective of shardings.

Products are GEMMs; where layers multiply in another type than they store (fp8), their operands are cast before. The gradient of
a weight is added to its sum over microbatches as it is produced. Other ops are streams of their tensors that cross the boundary
of their kernel (`halley.training.kernels`), and the first one has the launch. A fused attention core is one kernel, and so is a
scan by chunks.

Times have to add up over ops. So the passes of a kernel take the sum of what bounds each op, memory or lanes, instead of the
bound of the sums: at least the time of the kernel as a whole, and at most three times as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from halley.formulas.efficiency import causal_keys
from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.ir.workload import DTYPE_BYTES, Op, OpKind, roles, work_per_point
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.operations import op_kernel, stream, tensor_bytes
from halley.kernels.searched import SearchedKernels
from halley.kernels.times import ACCUMULATOR_BYTES, Array, Attention, Gemm, Kernel, Scan, Stream, kernel_time
from halley.training.kernels import AttentionCore, OpContribution, ScanCore, TrainingGraph

GRADIENT_SUM_TYPES = {2: "bf16", 4: "fp32"}
"""Types of the sums of gradients, by bytes."""


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel, or a part of one. ``launched``: with the launch; ``opened``: with the latency of a pass. ``times``: 0 where it
    is not needed after all."""

    kernel: Kernel
    launched: bool = True
    opened: bool = True
    times: Number = 1.0


@dataclass(slots=True, eq=False)
class OpCosts:
    """Times of ops, a `KernelTime`. ``gradient`` [B]: of an element of a sum of gradients. ``searched``: the source of times, if
    it is not the kernels' formulas. ``attention``: rate of fused attention as a share of the fitted one. Times are cached.

    >>> from halley.ir.workload import Op
    >>> from halley.kernels.machine import PEAK
    >>> from halley.training.kernels import training_graph
    >>> from halley.rewrite.backward import backward
    >>> from halley.workloads.gemm import gemm
    >>> chip = Machine("made up", 1, {"bf16": 1e12}, 1e9, {}, 1e9, 1e9, 1e6, math.inf)
    >>> costs = OpCosts(training_graph(backward(gemm(256, 256, 256)), ["B"]), chip, PEAK)
    >>> costs(costs.graph.workload.op("gemm"), {"m": 256, "n": 256, "k": 256}) == 3 * 2 * 256 * 256 / 1e9
    True
    """

    graph: TrainingGraph
    chip: Machine
    efficiency: Efficiency
    gradient: int = 4
    searched: SearchedKernels | None = None
    attention: float = 1.0
    _known: dict[tuple[str, tuple[int, ...]], float] = field(default_factory=dict)

    def __call__(self, op: Op, local: Mapping[str, int]) -> float:
        """Time [s] on one rank. Raises BadInput: see `kernel_time`."""
        key = op.name, tuple(local.values())
        if key not in self._known:
            self._known[key] = float(self.times(op, local))
        return self._known[key]

    def many(self, op: Op, local: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        """Times [s] at many extents [many] of each dim."""
        times = times_at_many(self.graph, op, local, self.times)
        rows = zip(*(counts.tolist() for counts in local.values()), strict=True)
        self._known.update(zip(((op.name, row) for row in rows), times.tolist(), strict=True))
        return times

    def times(self, op: Op, extents: Mapping[str, Number]) -> Array:
        """Times [s] of an op, of the shape that the extents broadcast to; dims that are not given have the workload's extents."""
        tasks = op_tasks(self.graph, op, extents, self.gradient)
        if not tasks:
            return np.zeros(())
        found = [task.times * self._time(task) for task in tasks]
        return np.asarray(total(found), dtype=np.float64)

    def _time(self, task: Task) -> Array:
        if self.searched is not None:
            return self.searched.times(task.kernel)
        found = kernel_time(task.kernel, self.chip, self._share(task))
        return found / self.attention if isinstance(task.kernel, Attention) else found

    def _share(self, task: Task) -> Efficiency:
        known = self.efficiency
        launch, latency = (known.launch if task.launched else 0.0), (known.latency if task.opened else 0.0)
        return known if task.launched and task.opened else replace(known, launch=launch, latency=latency)


def times_at_many(
    graph: TrainingGraph,
    op: Op,
    local: Mapping[str, NDArray[np.int64]],
    times: Callable[[Op, Mapping[str, Number]], Array],
) -> NDArray[np.float64]:
    """Times [s] of an op at many extents [many] of each dim, from ``times`` that accept arrays. Attention with and without an
    effective mask is evaluated separately."""
    extents = {dim: counts.astype(np.float64) for dim, counts in local.items()}
    found, core = np.empty(len(next(iter(extents.values())))), graph.contributions[op.name].core
    if not isinstance(core, AttentionCore):
        found[:] = times(op, extents)
        return found
    masked = np.broadcast_to(_masked(graph, core, extents), found.shape)
    for rows in filter(np.any, (masked, ~masked)):
        found[rows] = times(op, {dim: counts[rows] for dim, counts in extents.items()})
    return found


def op_tasks(graph: TrainingGraph, op: Op, extents: Mapping[str, Number], gradient: int = 4) -> tuple[Task, ...]:
    """The kernels that an op is at these extents, or its part of one; none for an op that another one represents."""
    share, work = graph.contributions[op.name], graph.workload
    match share.core:
        case AttentionCore():
            return (Task(_attention(graph, share.core, share.backward, extents)),)
        case ScanCore():
            return (Task(_scan(graph, share.core, share.backward, extents)),)
        case None:
            pass
    whole: dict[str, Number] = {**work.dims, **extents}
    if op.kind is OpKind.CONTRACT:
        product = _product(graph, op, whole, gradient)
        if not share.summed:
            return product
        elements: Number = math.prod(whole[dim] for dim in work.tensors[share.summed].dims)
        return *product, Task(Stream(elements, elements * gradient, 0, {"add": 1.0}), launched=False, opened=False)
    if share.part:
        return ()
    found = [Task(stream(work, op, whole, share.read, share.written, share.cached, share.drawn), share.first, share.opens)]
    if share.awaited:
        split = np.any([np.asarray(whole[dim]) < work.dims[dim] for dim in work.reduced(op)], axis=0)
        found.append(Task(stream(work, replace(op, kind=OpKind.MAP), whole, (*share.read, *share.cached), ()), times=1.0 * split))
    if share.summed:
        found.append(Task(added_gradient(graph, op, share, whole, gradient)))
    return tuple(found)


def launches(graph: TrainingGraph) -> dict[str, float]:
    """By pass, the kernels that the host launches where nothing is split; a split may add kernels.

    >>> from halley.rewrite.backward import backward
    >>> from halley.training.kernels import training_graph
    >>> from halley.workloads.gemm import gemm
    >>> launches(training_graph(backward(gemm(4, 5, 6)), ["B"]))
    {'forward': 1.0, 'recompute': 0.0, 'backward': 2.0}
    """
    found = dict.fromkeys(("forward", "recompute", "backward"), 0.0)
    for op in graph.workload.ops:
        tasks = op_tasks(graph, op, {})
        found[graph.found.passes[op.name]] += sum(bool(task.launched and np.all(np.asarray(task.times) > 0)) for task in tasks)
    return found


def _product(graph: TrainingGraph, op: Op, whole: Mapping[str, Number], gradient: int) -> tuple[Task, ...]:
    """A product, with those that it computes as one: over the same reduced dims their columns add up, else their reduced
    extents."""
    share, work = graph.contributions[op.name], graph.workload
    if share.part:
        return ()
    others = [work.op(name) for name in share.merged or (op.name,)]
    found = [kernel for kernel in (op_kernel(work, each, whole) for each in others) if isinstance(kernel, Gemm)]
    same = all(set(roles(work, each).reduced) == set(roles(work, op).reduced) for each in others)
    result = GRADIENT_SUM_TYPES[gradient] if share.summed else found[0].result
    joined = (
        replace(found[0], columns=total([each.columns for each in found]), result=result)
        if same
        else replace(found[0], depth=total([each.depth for each in found]), result=result)
    )
    if graph.products in ("", joined.dtype) or joined.dtype not in ("bf16", "fp16") or not _with_weight(graph, op, share):
        return (Task(joined),)
    cast = Task(replace(joined, dtype=graph.products))
    if share.summed:  # both operands were cast for the products before
        return (cast,)
    elements = joined.rows * joined.depth * joined.batch
    read, written = DTYPE_BYTES[joined.dtype], 2 * DTYPE_BYTES[graph.products]
    # by rows for this product and by columns for the gradient of the weight
    return cast, Task(Stream(elements, elements * read, elements * written, {"mul": 1.0, "max": 1.0}))


def _with_weight(graph: TrainingGraph, op: Op, share: OpContribution) -> bool:
    """Whether a product multiplies by a weight, or gives a weight's gradient."""
    return bool(share.summed) or not set(graph.weights).isdisjoint(op.inputs)


def added_gradient(graph: TrainingGraph, op: Op, share: OpContribution, whole: Mapping[str, Number], gradient: int) -> Stream:
    """A weight's gradient added to its sum by a separate kernel; the destination of a scatter is cleared before."""
    tensor = graph.workload.tensors[share.summed]
    elements = math.prod(whole[dim] for dim in tensor.dims)
    cleared = tensor.word if op.kind is OpKind.SCATTER else 0
    return Stream(elements, elements * (tensor.word + gradient), elements * (gradient + cleared), {"add": 1.0})


def _masked(graph: TrainingGraph, core: AttentionCore, extents: Mapping[str, Number]) -> NDArray[np.bool_]:
    """Whether the mask of a core hides anything: on a chip with fewer keys than queries, it may not."""
    local: dict[str, Number] = {**graph.workload.dims, **extents}
    role = roles(graph.workload, graph.workload.op(core.values))
    return np.asarray(core.causal & (np.asarray(local[role.rows[-1]]) <= math.prod(local[dim] for dim in role.reduced)))


def _attention(graph: TrainingGraph, core: AttentionCore, behind: bool, extents: Mapping[str, Number]) -> Attention:
    """Rows of the last product are queries; other dims of its rows are heads that share keys. Where ranks split the keys, the
    one with the first of them is masked least."""
    work = graph.workload
    local: dict[str, Number] = {**work.dims, **extents}
    values = work.op(core.values)
    role = roles(work, values)
    shared, keys = (math.prod(local[dim] for dim in dims) for dims in (role.batch, role.reduced))
    return Attention(
        batch=1,
        queries=local[role.rows[-1]],
        keys=keys,
        heads=shared * math.prod(local[dim] for dim in role.rows[:-1]),
        kv_heads=shared,
        head_dim=sum(math.prod(local[dim] for dim in roles(work, work.op(name)).reduced) for name in core.scores),
        value_dim=math.prod(local[dim] for dim in role.columns),
        causal=bool(np.all(_masked(graph, core, extents))),
        backward=behind,
        dtype=work.tensors[values.inputs[0]].dtype,
        cached=work.tensors[values.inputs[1]].dtype,
    )


def _scan(graph: TrainingGraph, core: ScanCore, behind: bool, extents: Mapping[str, Number]) -> Scan:
    """The work of all ops of the kernel, of which positions in a chunk only see those before them; tensors that enter or leave it
    pass through memory once. The backward kernel repeats the forward ops that it needs."""
    work, scan = graph.workload, core.scan
    local: dict[str, Number] = {**work.dims, **extents}
    names = core.behind if behind else core.ops
    ops, inside = [work.op(name) for name in names], set(names)
    seen = causal_keys(local[scan.target], local[scan.source], 1) / local[scan.source]
    macs: Number = 0.0
    functions: dict[str, Number] = {}
    for op in ops:
        points = math.prod(local[dim] for dim in op.dims) * (seen if {scan.target, scan.source} <= set(op.dims) else 1.0)
        if op.kind is OpKind.CONTRACT:
            macs = macs + points
            continue
        for name, count in work_per_point(op, work.dims).items():
            functions[name] = functions.get(name, 0.0) + count * points
    made = [name for op in ops for name in op.outputs]
    read = dict.fromkeys(name for op in ops for name in op.inputs if name not in made)
    written = [name for name in made if work.leaves(name, inside)]
    heads = math.prod(local[dim] for dim in scan.heads)
    state = heads * math.prod(local[dim] for dim in scan.state)
    products = next(op for op in ops if op.kind is OpKind.CONTRACT)
    return Scan(
        heads=heads,
        chunks=local[scan.chunks],
        macs=macs,
        work=functions,
        read=sum(tensor_bytes(work, name, local) for name in read),
        written=sum(tensor_bytes(work, name, local) for name in written),
        state=state * ACCUMULATOR_BYTES,
        kept=state * local[scan.chunks] * DTYPE_BYTES[work.tensors[products.inputs[0]].dtype] if behind else 0,
        backward=behind,
        dtype=work.tensors[products.inputs[0]].dtype,
    )
