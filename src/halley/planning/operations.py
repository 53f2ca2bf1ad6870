"""The kernel that an operation of a workload is, at the extents that a chip has of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from halley.formulas.numbers import Number, minimum
from halley.ir.workload import Op, OpKind, Workload, roles, work_per_point
from halley.planning.kernels import Array, Gemm, Kernel, Stream, kernel_time
from halley.planning.machine import Efficiency, Machine


def op_kernel(workload: Workload, op: Op, extents: Mapping[str, Number] | None = None) -> Kernel:
    """A contraction as a GEMM, any other op as a stream of its tensors.

    ``extents``: of the dims as they are sharded, numbers or arrays; those of the workload for dims that it does not name. A
    gather or a scatter moves the entries that it selects, not the whole table.

    >>> from halley.workloads.gemm import gemm
    >>> work = gemm(64, 128, 256)
    >>> op_kernel(work, work.ops[0], {"n": 32}).columns
    32
    """
    local: dict[str, Number] = {**workload.dims, **(extents or {})}
    if op.kind is OpKind.CONTRACT:
        role = roles(workload, op)
        first, result = workload.tensors[op.inputs[0]].dtype, workload.tensors[op.outputs[0]].dtype
        rows, columns, depth, batch = (
            math.prod(local[dim] for dim in dims) for dims in (role.rows, role.columns, role.reduced, role.batch)
        )
        return Gemm(rows, columns, depth, batch, first, result)
    read: Number = sum(_bytes(workload, name, local) for name in op.inputs)
    written: Number = sum(_bytes(workload, name, local) for name in op.outputs)
    if op.kind is OpKind.GATHER:
        read = sum(minimum(_bytes(workload, name, local), written) for name in op.inputs)
    if op.kind is OpKind.SCATTER:  # what is added to is read and written
        written = minimum(written, read)
        read = read + written
    return Stream(math.prod(local[dim] for dim in op.dims), read, written, work_per_point(op, workload.dims))


def op_time(
    workload: Workload, op: Op, chip: Machine, efficiency: Efficiency, extents: Mapping[str, Number] | None = None
) -> Array:
    """Time [s] of the op as a kernel of its own, of the shape that the extents broadcast to. Raises BadInput: see
    `kernel_time`."""
    return kernel_time(op_kernel(workload, op, extents), chip, efficiency)


def _bytes(workload: Workload, name: str, local: Mapping[str, Number]) -> Number:
    tensor = workload.tensors[name]
    return math.prod(local[dim] for dim in tensor.dims) * tensor.word
