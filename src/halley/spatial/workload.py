"""The kernels that a workload's ops are on a spatial chip, at the extents that a chip has of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import Op, OpKind, Workload, roles
from halley.spatial.chip import Engine, Graph, Kernel, Tensor, Walked


def spatial_graph(
    workload: Workload,
    sequence: Sequence[str],
    extents: Mapping[str, int] | None = None,
    network: Mapping[str, float] | None = None,
) -> Graph:
    """Each op as a kernel, contractions on the matrix engine.

    ``sequence``: dims that are walked in sequence tiles, all of one extent: tokens, by each name that they have. An op walks the
    first of them that its result has, or else the first that it reduces. ``extents``: of dims as they are sharded. ``network``
    [s]: by op, its collectives. Inputs of the workload without a dim of the sequence are weights.

    >>> from halley.workloads.gemm import gemm
    >>> graph = spatial_graph(gemm(64, 128, 256), ["m"], {"n": 32})
    >>> graph.kernels[0].rows, graph.kernels[0].columns, graph.kernels[0].depth, graph.kernels[0].weights
    (32, 64, 256, 16384.0)

    Raises BadInput: dims or ops that there are not, sequences of several extents, an op that does not walk any.
    """
    local = {**workload.dims, **(extents or {})}
    faults = [
        Fault(f"workload {workload.name}", f"the name of {what}", repr(name), did_you_mean(name, known))
        for what, names, known in (
            ("a dim", (*sequence, *(extents or {})), tuple(workload.dims)),
            ("an op", tuple(network or {}), tuple(op.name for op in workload.ops)),
        )
        for name in names
        if name not in known
    ]
    if not faults:
        faults += [
            Fault(f"op {op.name}", f"one of the dims {', '.join(sequence)}", f"{', '.join(op.dims)}", "name its tokens as well")
            for op in workload.ops
            if not set(sequence) & set(op.dims)
        ]
        if len({local[dim] for dim in sequence}) != 1:
            faults.append(Fault("sequence", "dims of one extent", ", ".join(f"{dim} {local[dim]}" for dim in sequence)))
    if faults:
        raise BadInput(faults)
    kernels = tuple(_kernel(workload, op, sequence, local, (network or {}).get(op.name, 0.0)) for op in workload.ops)
    return Graph(kernels, tuple(_tensors(workload, sequence, local)), local[sequence[0]])


def _kernel(workload: Workload, op: Op, sequence: Sequence[str], local: Mapping[str, int], network: float) -> Kernel:
    reduced = workload.reduced(op) if op.kind is OpKind.CONTRACT else ()
    kept = [dim for dim in op.dims if dim not in reduced]
    walked = next((dim for dim in sequence if dim in kept), None)
    # where tokens are summed up (gradients of weights), the array's two sides are those of the result
    columns = (walked,) if walked else roles(workload, op).columns if op.kind is OpKind.CONTRACT else ()
    return Kernel(
        op.name,
        Engine.MATRIX if op.kind is OpKind.CONTRACT else Engine.VECTOR,
        math.prod(local[dim] for dim in kept if dim not in columns),
        math.prod(local[dim] for dim in columns),
        math.prod(local[dim] for dim in reduced),
        Walked.COLUMNS if walked else Walked.DEPTH,
        weights=sum(_bytes(workload, name, local) for name in op.inputs if _is_weight(workload, name, sequence)),
        network=network,
    )


def _tensors(workload: Workload, sequence: Sequence[str], local: Mapping[str, int]) -> list[Tensor]:
    place = {op.name: number for number, op in enumerate(workload.ops)}
    found = []
    for name in workload.tensors:
        writer, readers = workload.producer(name), tuple(place[op.name] for op in workload.consumers(name))
        if _is_weight(workload, name, sequence):
            continue
        leaves = name in workload.outputs
        found.append(Tensor(None if writer is None else place[writer.name], readers, _bytes(workload, name, local), leaves))
    return found


def _is_weight(workload: Workload, name: str, sequence: Sequence[str]) -> bool:
    return name in workload.inputs and not set(sequence) & set(workload.tensors[name].dims)


def _bytes(workload: Workload, name: str, local: Mapping[str, int]) -> float:
    tensor = workload.tensors[name]
    return float(math.prod(local[dim] for dim in tensor.dims) * tensor.word)
