"""The part of a sharded graph on one chip: the kernels of its ops at their local extents, with the time of the collectives
before them, and the memory of its tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from halley.ir.placement import Shard
from halley.ir.workload import Op, OpKind, Workload
from halley.kernels.operations import moved_bytes
from halley.sharding.layouts import Layout, Mesh, local_extents
from halley.sharding.solution import Sharding
from halley.spatial.chip import Engine, Kernel, SpatialChip, SpatialGraph, SpatialTensor

MATRIX_OPS = (OpKind.CONTRACT, OpKind.FFT)
"""Ops on the matrix engine: a transform does its butterflies there, five operations per point and stage."""


def op_extents(sharding: Sharding, op: Op) -> dict[str, int]:
    """Extents of all dims that an op accesses, on the rank with most; dims that it does not split are whole."""
    work, mesh = sharding.problem.workload, sharding.problem.mesh
    splits = [way.split for way in sharding.strategy(op.name)]
    touched = {dim for name in (*op.inputs, *op.outputs) for dim in work.tensors[name].dims} | {*op.dims, *op.sequence}
    return local_extents({dim: work.dims[dim] for dim in touched}, splits, mesh)


def kernel_groups(workload: Workload) -> tuple[tuple[str, ...], ...]:
    """The kernels of the ops: as the workload declares them, other ops as single kernels."""
    named = {name for kernel in workload.kernels for name in kernel}
    return (*workload.kernels, *((op.name,) for op in workload.ops if op.name not in named))


def inner_tensors(workload: Workload) -> frozenset[str]:
    """Tensors that only pass between ops of one kernel, and never through memory.

    >>> from halley.workloads.hpl import hpl
    >>> sorted(inner_tensors(hpl(order=12, block=4)))
    ['T']
    """
    kernel = {name: number for number, group in enumerate(kernel_groups(workload)) for name in group}
    return frozenset(
        name
        for op in workload.ops
        for name in op.outputs
        if name not in workload.outputs and all(kernel[reader.name] == kernel[op.name] for reader in workload.consumers(name))
    )


@dataclass(frozen=True, slots=True)
class MemoryTensors:
    """Names of an op's tensors that pass between memory and chip however ops are fused."""

    entering: tuple[str, ...]
    leaving: tuple[str, ...]


def memory_tensors(workload: Workload, fused: bool) -> dict[str, MemoryTensors]:
    """By op, where kernels are those of the workload, or, ``fused``, any ops. What several ops of one of its kernels read is
    counted for the first of them.

    >>> from halley.workloads.hpl import hpl
    >>> memory_tensors(hpl(order=12, block=4), fused=False)["subtract"]
    MemoryTensors(entering=('A22',), leaving=('Anew',))
    """
    inner = frozenset(name for op in workload.ops for name in op.outputs) if fused else inner_tensors(workload)
    kernel = {name: number for number, group in enumerate(kernel_groups(workload)) for name in group}
    read: set[tuple[int, str]] = set()
    found = {}
    for op in workload.ops:
        entering = [
            name for name in dict.fromkeys(op.inputs) if name not in inner and (fused or (kernel[op.name], name) not in read)
        ]
        read.update((kernel[op.name], name) for name in entering)
        leaving = [name for name in op.outputs if name in workload.outputs or name not in inner]
        found[op.name] = MemoryTensors(tuple(entering), tuple(leaving))
    return found


def touched_bytes(workload: Workload, op: Op, name: str, local: Mapping[str, int]) -> float:
    """Bytes of a tensor that an op accesses; a copy reads as much as it writes, however the old name of its dim is split."""
    if op.kind is OpKind.PERMUTE:
        name = op.outputs[0]
    return float(moved_bytes(workload, op, name, local))


def network_times(sharding: Sharding) -> dict[str, float]:
    """By op, the time of the collectives that it waits for [s]; those of the graph's outputs are assigned to their producers."""
    work = sharding.problem.workload
    found = dict.fromkeys((op.name for op in work.ops), 0.0)
    for move, step in sharding.steps:
        maker = work.producer(move.tensor)
        found[move.reader or (maker.name if maker else work.ops[0].name)] += step.time
    return found


def op_work(workload: Workload, op: Op, extents: Mapping[str, int] | None = None) -> float:
    """Operations of an op [1]: two per multiply-accumulate, those of its functions otherwise. ``extents``: of its part; by
    default of the whole."""
    points = float(math.prod((extents or workload.dims)[dim] for dim in op.dims))
    return points * (2.0 if op.kind is OpKind.CONTRACT else sum(workload.work(op).values()))


def least_point_time(workload: Workload, op: Op, chip: SpatialChip) -> float:
    """Least time per point of an op on the whole chip [s]: products and transforms at its peak, other ops one point per lane
    and cycle."""
    if op.kind not in MATRIX_OPS:
        return 1.0 / (chip.tiles * chip.width * chip.clock)
    return op_work(workload, op) / math.prod(workload.dims[dim] for dim in op.dims) / chip.peak


@dataclass(frozen=True, slots=True)
class OpLoad:
    """What an op needs of a chip at its local extents: a ``kernel``, with the bytes that it holds; the bytes of each tensor
    that streams in from memory (``entering``) and out to it (``leaving``), however ops are fused; ``slices`` in which it may
    stream."""

    kernel: Kernel
    entering: tuple[float, ...]
    leaving: tuple[float, ...]
    slices: int

    @property
    def traffic(self) -> float:
        """Bytes that stream."""
        return math.fsum((*self.entering, *self.leaving))


def op_load(work: Workload, op: Op, local: Mapping[str, int], crossing: MemoryTensors, network: float = 0.0) -> OpLoad:
    """An op as a kernel that streams along the longest dim of its result that it does not need whole. ``local``: extents of all
    dims; ``network`` [s]: of its collectives.

    Inputs of the graph without the streamed dim are weights; of a table, the selected rows stream instead.
    """
    walked = _walked(work, op, local)
    held, entering = 0.0, []
    for name in crossing.entering:
        size = touched_bytes(work, op, name, local)
        if work.producer(name) is not None or walked in work.tensors[name].dims or op.kind is OpKind.GATHER:
            entering.append(size)
        else:
            held += size
    leaving = tuple(touched_bytes(work, op, name, local) for name in crossing.leaving)
    return OpLoad(_kernel(work, op, walked, local, held, network), tuple(entering), leaving, local.get(walked, 1))


def local_graph(sharding: Sharding, fused: bool) -> SpatialGraph:
    """Each op as a kernel, in as many slices as any of them may stream; as in DFModel, every tensor streams.

    Where kernels are those of the workload, a tensor is stored as produced and loaded as each kernel reads it, which is more
    where it was gathered in between. ``fused``: a tensor has the size produced, and may stay on the chip.
    """
    work = sharding.problem.workload
    network, crossing = network_times(sharding), memory_tensors(work, fused)
    place = {op.name: number for number, op in enumerate(work.ops)}
    kernels, tensors, slices = [], [], 1
    for number, op in enumerate(work.ops):
        local = {**work.dims, **op_extents(sharding, op)}
        load = op_load(work, op, local, crossing[op.name], network[op.name])
        slices = max(slices, load.slices)
        kernels.append(load.kernel)
        tensors += [SpatialTensor(None, (number,), size) for size in load.entering]
        if not fused:
            tensors += [SpatialTensor(number, (), size, leaves=True) for size in load.leaving]
            continue
        for name in op.outputs:
            readers = tuple(dict.fromkeys(place[reader.name] for reader in work.consumers(name)))
            tensors.append(SpatialTensor(number, readers, touched_bytes(work, op, name, local), name in work.outputs))
    return SpatialGraph(tuple(kernels), tuple(tensors), slices)


def _walked(work: Workload, op: Op, local: Mapping[str, int]) -> str:
    result = work.tensors[op.outputs[0]].dims
    free = [dim for dim in op.dims if dim in result and dim not in work.whole(op)] or [dim for dim in op.dims if dim in result]
    return max(free, key=lambda dim: local[dim], default="")


def _kernel(work: Workload, op: Op, walked: str, local: Mapping[str, int], held: float, network: float) -> Kernel:
    reduced = work.reduced(op)
    points = math.prod(local[dim] for dim in op.dims if dim not in reduced)
    columns = local.get(walked, 1)
    depth, engine = math.prod(local[dim] for dim in reduced), Engine.MATRIX if op.kind in MATRIX_OPS else Engine.VECTOR
    if op.kind is OpKind.FFT:
        depth = math.ceil(sum(work.work(op).values()) / 2)
    elif engine is Engine.VECTOR:
        points, depth = points * depth, 1
    return Kernel(op.name, engine, points // columns, columns, depth, weights=held, network=network)


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """Bytes of a chip: ``inputs`` and ``outputs`` of the graph, and the peak of the tensors between its ops (``working``)."""

    inputs: float
    outputs: float
    working: float

    @property
    def total(self) -> float:
        return self.inputs + self.outputs + self.working


def graph_memory(sharding: Sharding, in_place: Mapping[str, str]) -> GraphMemory:
    """Tensors live from the op that produces them to their last reader, in the layout in which they are produced. ``in_place``:
    outputs that reuse the memory of an input, which are not counted."""
    work, mesh = sharding.problem.workload, sharding.problem.mesh
    inner = inner_tensors(work)
    ends = {name: _layout_bytes(work, name, layout, mesh) for name, layout in sharding.ends.items()}
    order = {op.name: number for number, op in enumerate(work.ops)}
    live = [0.0] * len(work.ops)
    for op in work.ops:
        local = op_extents(sharding, op)
        for name in op.outputs:
            if name not in work.outputs and name not in inner:
                last = max((order[reader.name] for reader in work.consumers(name)), default=order[op.name])
                size = math.prod(local[dim] for dim in work.tensors[name].dims) * work.tensors[name].word
                for number in range(order[op.name], last + 1):
                    live[number] += size
    inputs = sum(size for name, size in ends.items() if name in work.inputs)
    outputs = sum(size for name, size in ends.items() if name not in work.inputs and name not in in_place)
    return GraphMemory(inputs, outputs, max(live, default=0.0))


def _layout_bytes(work: Workload, name: str, layout: Layout, mesh: Mesh) -> float:
    tensor = work.tensors[name]
    splits = [item.dim if isinstance(item, Shard) else "" for item in layout]
    return float(math.prod(local_extents({dim: work.dims[dim] for dim in tensor.dims}, splits, mesh).values()) * tensor.word)
