"""Workloads without dims of extent 1: they divide nothing, but a space of mappings is declared by the dims that ops have."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from halley.ir.workload import FUNCTIONS, PLACED, Op, OpKind, Workload, roles


def without_unit_dims(workload: Workload) -> Workload:
    """The workload without the dims of extent 1 that are like another dim in every op. Its mappings are mappings of the given
    workload, of equal costs.

    Only such a dim goes: without its only row dim, a GEMM would be another operation. The last dim of an op stays: it runs along
    the lanes. So does the last row, column or reduced dim of a contraction: it is mapped to the array where a mapping names none
    (`on_sides`). Of a map that reorders the dims of an input, all stay: without some its result could overwrite that input.

    >>> from halley.ir.workload import Op, OpKind, Tensor
    >>> dims, product = {"b": 1, "m": 4, "k": 5, "n": 6}, ("b", "m", "n", "k")
    >>> each = {"A": ("b", "m", "k"), "B": ("k", "n"), "C": ("b", "m", "n")}
    >>> gemm = Op("gemm", OpKind.CONTRACT, ("A", "B"), ("C",), product, "mul", "sum")
    >>> work = Workload("batch", dims, {name: Tensor(name, own) for name, own in each.items()}, (gemm,), ("C",))
    >>> found = without_unit_dims(work)
    >>> found.dims, found.ops[0].dims, found.tensors["A"].dims
    ({'m': 4, 'k': 5, 'n': 6}, ('m', 'n', 'k'), ('m', 'k'))
    """
    gone: set[str] = set()
    indexed = {dim for index in workload.indices for dim in (index.dim, *index.dims)}
    indexed |= {dim for op in workload.ops for dim in op.sequence}
    for dim, extent in workload.dims.items():
        users = [op for op in workload.ops if dim in op.dims]
        if extent == 1 and dim not in indexed and all(_has_like(workload, op, dim, gone) for op in users):
            gone.add(dim)
    if not gone:
        return workload
    left = {name: replace(tensor, dims=_without(tensor.dims, gone)) for name, tensor in workload.tensors.items()}
    ops = tuple(replace(op, dims=_without(op.dims, gone)) for op in workload.ops)
    return replace(workload, dims={dim: own for dim, own in workload.dims.items() if dim not in gone}, tensors=left, ops=ops)


def _has_like(workload: Workload, op: Op, dim: str, gone: Set[str]) -> bool:
    """Whether another dim that stays is in the same tensors of an op, and no value depends on a position."""
    if op.dims[-1] == dim or op.along or op.indices or PLACED in FUNCTIONS[op.function].constants:
        return False
    if op.kind is OpKind.MAP and _reorders(workload, op):
        return False
    if op.kind is OpKind.CONTRACT:
        role = roles(workload, op)
        if any(dim in side[-1:] for side in (role.rows, role.columns, role.reduced)):
            return False
    tensors = [workload.tensors[name].dims for name in (*op.inputs, *op.outputs)]
    where = [dim in own for own in tensors]
    others = (other for other in op.dims if other != dim and other not in gone)
    return any([other in own for own in tensors] == where for other in others)


def _reorders(workload: Workload, op: Op) -> bool:
    """Whether the result of an op has the dims of an input in another order."""
    made = workload.tensors[op.outputs[0]].dims
    given = (workload.tensors[name].dims for name in op.inputs)
    return any(own != made and sorted(own) == sorted(made) for own in given)


def _without(dims: tuple[str, ...], gone: Set[str]) -> tuple[str, ...]:
    return tuple(dim for dim in dims if dim not in gone)
