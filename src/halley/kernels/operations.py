"""The kernel of an op of a workload at the extents of one chip."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from halley.formulas.numbers import Number, minimum
from halley.ir.workload import Function, Op, OpKind, Workload, roles, work_per_point
from halley.kernels.times import Gemm, Kernel, Stream

RANDOM_NUMBER = Function({"mul": 10.0, "add": 15.0}, 0, "a random number")
"""For dropout: Philox4x32 generates four numbers in ten rounds, each of two long products (both halves), four exclusive ors and
two key updates, counted as sums. Salmon et al., SC 2011."""


def op_kernel(workload: Workload, op: Op, extents: Mapping[str, Number] | None = None) -> Kernel:
    """A contraction as a GEMM, any other op as a stream of its tensors.

    ``extents``: of the sharded dims, numbers or arrays; other dims have the workload's. A gather or scatter moves the entries
    that it selects, not the whole table.

    >>> from halley.workloads.gemm import gemm
    >>> work = gemm(64, 128, 256)
    >>> op_kernel(work, work.ops[0], {"n": 32}).columns
    32
    """
    local: dict[str, Number] = {**workload.dims, **(extents or {})}
    if op.kind is not OpKind.CONTRACT:
        return stream(workload, op, local, op.inputs, op.outputs)
    role = roles(workload, op)
    first, result = workload.tensors[op.inputs[0]].dtype, workload.tensors[op.outputs[0]].dtype
    rows, columns, depth, batch = (
        math.prod(local[dim] for dim in dims) for dims in (role.rows, role.columns, role.reduced, role.batch)
    )
    return Gemm(rows, columns, depth, batch, first, result)


def stream(
    workload: Workload,
    op: Op,
    local: Mapping[str, Number],
    read: Sequence[str],
    written: Sequence[str],
    cached: Sequence[str] = (),
    drawn: Sequence[str] = (),
) -> Stream:
    """An op other than a product as a stream of those of its tensors that are ``read`` from memory and ``written`` to it;
    ``cached``: read from the shared cache; ``drawn``: random masks that the op generates itself. ``local``: extents of all
    dims."""
    came, went, near = (sum(moved_bytes(workload, op, name, local) for name in names) for names in (read, written, cached))
    work = work_per_point(op, workload.dims)
    for function, count in RANDOM_NUMBER.work.items() if drawn else ():
        work[function] = work.get(function, 0.0) + count
    if op.kind is OpKind.SCATTER:  # the destination is read and written
        came = came + went
    return Stream(math.prod(local[dim] for dim in op.dims), came, went, work, near)


def moved_bytes(workload: Workload, op: Op, name: str, local: Mapping[str, Number]) -> Number:
    """Bytes of a tensor that an op accesses: of a table, the selected entries."""
    size = tensor_bytes(workload, name, local)
    if op.kind is OpKind.GATHER and name in op.inputs:
        return minimum(size, tensor_bytes(workload, op.outputs[0], local))
    if op.kind is OpKind.SCATTER and name in op.outputs:
        return minimum(size, sum(tensor_bytes(workload, each, local) for each in op.inputs))
    return size


def tensor_bytes(workload: Workload, name: str, local: Mapping[str, Number]) -> Number:
    """Bytes of a tensor at these extents."""
    tensor = workload.tensors[name]
    return math.prod(local[dim] for dim in tensor.dims) * tensor.word
