"""What a chip has of a graph that is shared out over a system: the kernels of its ops at their local extents, with the time of
the collectives before them, and the memory that its tensors take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from halley.ir.placement import Shard
from halley.ir.workload import Op, OpKind, Workload
from halley.planning.layouts import Layout, Mesh, local_extents
from halley.planning.operations import moved_bytes
from halley.planning.sharded import Sharding
from halley.planning.spatial import Engine, Graph, Kernel, SpatialChip, Tensor

MATRIX = (OpKind.CONTRACT, OpKind.FFT)
"""Ops on the matrix engine: a transform does its butterflies there, five operations for each point and stage."""


def extents_of(sharding: Sharding, op: Op) -> dict[str, int]:
    """Extents of all dims that an op touches, on the rank that has most; dims that it does not split are whole."""
    work, mesh = sharding.problem.workload, sharding.problem.mesh
    splits = [way.split for way in sharding.strategy(op.name)]
    touched = {dim for name in (*op.inputs, *op.outputs) for dim in work.tensors[name].dims} | {*op.dims, *op.sequence}
    return local_extents({dim: work.dims[dim] for dim in touched}, splits, mesh)


def groups_of(workload: Workload) -> tuple[tuple[str, ...], ...]:
    """The kernels that ops belong to: as the workload says, others alone."""
    named = {name for kernel in workload.kernels for name in kernel}
    return (*workload.kernels, *((op.name,) for op in workload.ops if op.name not in named))


def inner_tensors(workload: Workload) -> frozenset[str]:
    """Tensors that pass between ops of one kernel and no further: they never lie in memory.

    >>> from halley.workloads.hpl import hpl
    >>> sorted(inner_tensors(hpl(order=12, block=4)))
    ['T']
    """
    kernel = {name: number for number, group in enumerate(groups_of(workload)) for name in group}
    return frozenset(
        name
        for op in workload.ops
        for name in op.outputs
        if name not in workload.outputs
        and all(kernel[reader.name] == kernel[op.name] for reader in workload.consumers(name))
    )


def crossing_tensors(workload: Workload, fused: bool) -> dict[str, tuple[str, ...]]:
    """By op, those of its tensors that pass between memory and chip however ops are fused: in a kernel as the workload has them,
    or, ``fused``, at will. What several ops of one kernel read passes for the first of them."""
    inner = inner_tensors(workload) if not fused else {name for op in workload.ops for name in op.outputs}
    kernel = {name: 0 if fused else number for number, group in enumerate(groups_of(workload)) for name in group}
    read: set[tuple[int, str]] = set()
    found = {}
    for op in workload.ops:
        entering = [name for name in dict.fromkeys(op.inputs) if name not in inner and (kernel[op.name], name) not in read]
        read.update((kernel[op.name], name) for name in entering)
        leaving = [name for name in op.outputs if name in workload.outputs or name not in inner]
        found[op.name] = (*entering, *leaving)
    return found


def touched_bytes(workload: Workload, op: Op, name: str, local: Mapping[str, int]) -> float:
    """Bytes of a tensor that an op touches; a copy reads as much as it writes, however the old name of its dim is split."""
    if op.kind is OpKind.PERMUTE:
        name = op.outputs[0]
    return float(moved_bytes(workload, op, name, local))


def network_times(sharding: Sharding) -> dict[str, float]:
    """By op, the time of the collectives that it waits for [s]; those of the graph's outputs go to the op that makes them."""
    work = sharding.problem.workload
    found = dict.fromkeys((op.name for op in work.ops), 0.0)
    for move, step in sharding.steps:
        maker = work.producer(move.tensor)
        found[move.reader or (maker.name if maker else work.ops[0].name)] += step.time
    return found


def work_of(workload: Workload, op: Op) -> float:
    """Operations of an op [1]: two for each multiply-accumulate, those of its functions otherwise."""
    points = float(math.prod(workload.dims[dim] for dim in op.dims))
    return points * (2.0 if op.kind is OpKind.CONTRACT else sum(workload.work(op).values()))


def least_point_time(workload: Workload, op: Op, chip: SpatialChip) -> float:
    """Least time of a point of an op on all of a chip [s]: products and transforms at its peak, other ops one point a lane and
    cycle."""
    if op.kind not in MATRIX:
        return 1.0 / (chip.tiles * chip.width * chip.clock)
    return work_of(workload, op) / math.prod(workload.dims[dim] for dim in op.dims) / chip.peak


def local_graph(sharding: Sharding) -> Graph:
    """Each op as a kernel that streams along the longest dim of its result that it does not need whole, in as many slices as any
    of them has points; DFModel's reading of a graph, in which every tensor streams.

    Inputs of the graph that lack the dim that streams are weights; of a table, the rows that are looked up pass instead.
    """
    work = sharding.problem.workload
    network = network_times(sharding)
    place = {op.name: number for number, op in enumerate(work.ops)}
    kernels, tensors, slices = [], [], 1
    for op in work.ops:
        local = extents_of(sharding, op)
        walked = _walked(work, op, local)
        slices = max(slices, local.get(walked, 1))
        held, passing = _operands(work, op, walked, local)
        kernels.append(_kernel(work, op, walked, local, held, network[op.name]))
        tensors += [Tensor(None, (place[op.name],), size) for size in passing]
        for name in op.outputs:
            readers = tuple(dict.fromkeys(place[reader.name] for reader in work.consumers(name)))
            size = touched_bytes(work, op, name, local)
            tensors.append(Tensor(place[op.name], readers, size, name in work.outputs))
    return Graph(tuple(kernels), tuple(tensors), slices)


def _walked(work: Workload, op: Op, local: Mapping[str, int]) -> str:
    result = work.tensors[op.outputs[0]].dims
    free = [dim for dim in op.dims if dim in result and dim not in work.whole(op)] or [dim for dim in op.dims if dim in result]
    return max(free, key=lambda dim: local[dim], default="")


def _operands(work: Workload, op: Op, walked: str, local: Mapping[str, int]) -> tuple[float, list[float]]:
    """Bytes of inputs of the graph that an op holds, and of those that stream."""
    held, passing = 0.0, []
    for name in dict.fromkeys(op.inputs):
        if work.producer(name) is not None:
            continue
        size = touched_bytes(work, op, name, local)
        if walked in work.tensors[name].dims or op.kind is OpKind.GATHER:
            passing.append(size)
        else:
            held += size
    return held, passing


def _kernel(work: Workload, op: Op, walked: str, local: Mapping[str, int], held: float, network: float) -> Kernel:
    reduced = work.reduced(op)
    points = math.prod(local[dim] for dim in op.dims if dim not in reduced)
    columns = local.get(walked, 1)
    depth, engine = math.prod(local[dim] for dim in reduced), Engine.MATRIX if op.kind in MATRIX else Engine.VECTOR
    if op.kind is OpKind.FFT:
        depth = math.ceil(sum(work.work(op).values()) / 2)
    elif engine is Engine.VECTOR:
        points, depth = points * depth, 1
    return Kernel(op.name, engine, points // columns, columns, depth, weights=held, network=network)


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """Bytes of a chip: ``inputs`` and ``outputs`` of the graph, and what passes between its ops at its fullest."""

    inputs: float
    outputs: float
    working: float

    @property
    def total(self) -> float:
        return self.inputs + self.outputs + self.working


def memory_of(sharding: Sharding, in_place: Mapping[str, str]) -> GraphMemory:
    """Tensors live from the op that makes them to their last reader, in the layout in which they are made. ``in_place``: outputs
    that take the room of an input, which are not counted."""
    work, mesh = sharding.problem.workload, sharding.problem.mesh
    inner = inner_tensors(work)
    ends = {name: _laid_bytes(work, name, layout, mesh) for name, layout in sharding.ends.items()}
    order = {op.name: number for number, op in enumerate(work.ops)}
    live = [0.0] * len(work.ops)
    for op in work.ops:
        local = extents_of(sharding, op)
        for name in op.outputs:
            if name not in work.outputs and name not in inner:
                last = max((order[reader.name] for reader in work.consumers(name)), default=order[op.name])
                size = math.prod(local[dim] for dim in work.tensors[name].dims) * work.tensors[name].word
                for number in range(order[op.name], last + 1):
                    live[number] += size
    inputs = sum(size for name, size in ends.items() if name in work.inputs)
    outputs = sum(size for name, size in ends.items() if name not in work.inputs and name not in in_place)
    return GraphMemory(inputs, outputs, max(live, default=0.0))


def _laid_bytes(work: Workload, name: str, layout: Layout, mesh: Mesh) -> float:
    tensor = work.tensors[name]
    splits = [item.dim if isinstance(item, Shard) else "" for item in layout]
    return float(math.prod(local_extents({dim: work.dims[dim] for dim in tensor.dims}, splits, mesh).values()) * tensor.word)
