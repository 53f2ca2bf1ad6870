"""A workload on whole arrays, op after op: the result that every mapping must give. No mapping, no tiles, no chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

import numpy as np

from halley.execute.functions import DEFINITIONS, MONOID_DEFINITIONS, Array, FunctionSite, scan, transform
from halley.ir.workload import Op, OpKind, Workload


def plain(workload: Workload, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of the workload, indexed in the order of `Tensor.dims`."""
    known: dict[str, Array] = {name: np.asarray(array) for name, array in arrays.items()}
    for op in workload.ops:
        known.update(zip(op.outputs, _run(workload, op, [known[name] for name in op.inputs]), strict=True))
    return {name: known[name] for name in workload.outputs}


def _run(workload: Workload, op: Op, given: Sequence[Array]) -> Sequence[Array]:
    dims_in = [workload.tensors[name].dims for name in op.inputs]
    out = workload.tensors[op.outputs[0]].dims
    match op.kind:
        case OpKind.CONTRACT:
            axes = {dim: axis for axis, dim in enumerate(op.dims)}
            read = [_at_sums(workload, op, a, dims) for a, dims in zip(given, dims_in, strict=True)]
            terms = [part for a, dims, _ in read for part in (a, [axes[dim] for dim in dims])]
            return [np.asarray(np.einsum(*terms, [axes[dim] for dim in out]))]
        case OpKind.MAP | OpKind.REDUCE:
            site = FunctionSite(op.name, dict(op.constants), (0,) * len(op.dims))
            read = [_at_sums(workload, op, a, dims) for a, dims in zip(given, dims_in, strict=True)]
            points = DEFINITIONS[op.function](site, *(_aligned(a, dims, op.dims) for a, dims, _ in read))
            points = np.broadcast_to(points, tuple(workload.dims[dim] for dim in op.dims))
            for _, dims, there in read if op.kind is OpKind.REDUCE else ():
                points = np.where(_aligned(there, dims, op.dims), points, -np.inf if op.monoid == "max" else 0.0)
            if op.kind is OpKind.MAP:
                return [_ordered(points, op.dims, out)]
            over = tuple(op.dims.index(dim) for dim in workload.reduced(op))
            kept = tuple(dim for dim in op.dims if dim in out)
            return [_ordered(part, kept, out) for part in MONOID_DEFINITIONS[op.monoid].reduce(site, points, over)]
        case OpKind.SCAN:
            values = [_aligned(a, dims, out) for a, dims in zip(given, dims_in, strict=True)]
            reverse = dict(op.constants).get("reverse", 0.0) == 1.0
            return [scan(op.monoid, values, [out.index(dim) for dim in op.sequence], reverse)]
        case OpKind.FFT:
            (axis,) = (i for i, dim in enumerate(dims_in[0]) if dim == op.along or dim not in op.dims)
            inverse = dict(op.constants).get("inverse", 0.0) == 1.0
            planes = transform(given, axis, workload.dims[op.along], inverse)[: len(op.outputs)]
            return [plane.take(range(workload.dims[out[axis]]), axis) for plane in planes]
        case OpKind.GATHER:
            table, index = given
            (row,) = (dim for dim in dims_in[0] if dim not in out)
            places = [
                _aligned(index, dims_in[1], out) if dim == row else _aligned(np.arange(extent), (dim,), out)
                for dim, extent in zip(dims_in[0], table.shape, strict=True)
            ]
            return [table[tuple(places)]]
        case OpKind.SCATTER:
            return [_scattered(workload, op, given, dims_in, out)]
        case OpKind.PERMUTE:
            named = dict(zip((d for d in dims_in[0] if d not in out), (d for d in out if d not in dims_in[0]), strict=True))
            return [_ordered(given[0], tuple(named.get(dim, dim) for dim in dims_in[0]), out)]
        case OpKind.WINDOW:
            return [_causal_windows(workload, op, given[0], dims_in[0], out)]
        case _:
            assert_never(op.kind)


def _at_sums(workload: Workload, op: Op, given: Array, dims: tuple[str, ...]) -> tuple[Array, tuple[str, ...], Array]:
    """A tensor read at affine indices: (its values, 0 outside it; the dims of these; whether a value is inside the tensor)."""
    sums = {index.dim: index for index in op.indices}
    points = workload.points(op, next(n for n in (*op.inputs, *op.outputs) if workload.tensors[n].dims == dims))
    if not sums.keys() & set(dims):
        return given, dims, np.ones((1,) * len(dims), bool)
    at = {dim: _aligned(np.arange(workload.dims[dim]), (dim,), points) for dim in points}
    places = [sums[d].constant + sum(c * at[t] for t, c in sums[d].terms) if d in sums else at[d] for d in dims]
    shape = tuple(workload.dims[dim] for dim in points)
    inside = np.ones(shape, bool)
    for dim, place in zip(dims, places, strict=True):
        inside &= (place >= 0) & (place < workload.dims[dim])
    within = tuple(np.where(inside, place, 0) for place in places)
    return np.where(inside, given[within], 0), points, inside


def _causal_windows(workload: Workload, op: Op, given: Array, dims: tuple[str, ...], out: tuple[str, ...]) -> Array:
    """By index: every element of the result says where it comes from, and what lies before the sequence is zero."""
    places = {dim: _aligned(np.arange(workload.dims[dim]), (dim,), out) for dim in out}
    (offset,) = (dim for dim in out if dim not in dims)
    extents = tuple(workload.dims[dim] for dim in op.sequence)
    place = np.ravel_multi_index(tuple(np.broadcast_arrays(*(places[dim] for dim in op.sequence))), extents)
    source = place + places[offset] - (workload.dims[offset] - 1)
    walked = dict(zip(op.sequence, np.unravel_index(np.maximum(source, 0), extents), strict=True))
    return np.where(source >= 0, given[tuple(walked.get(dim, places[dim]) for dim in dims)], 0.0)


def _scattered(
    workload: Workload, op: Op, given: Sequence[Array], dims: Sequence[tuple[str, ...]], out: tuple[str, ...]
) -> Array:
    """Every element is added where it belongs: to the row that an index names, or to where a window took it from."""
    total = np.zeros(tuple(workload.dims[dim] for dim in out))
    if len(given) == 1:
        numbers = np.arange(1, total.size + 1).reshape(total.shape)
        if op.along:
            places = _causal_windows(workload, op, numbers, out, dims[0]).astype(int)
        else:
            values, points, _ = _at_sums(workload, op, numbers, out)
            places = _ordered(values, points, dims[0])
        flat = np.zeros(total.size + 1)  # the first takes what comes from outside the result
        np.add.at(flat, places, given[0])
        return flat[1:].reshape(total.shape)
    (row,) = (dim for dim in out if dim not in dims[0])
    at = {dim: _aligned(np.arange(workload.dims[dim]), (dim,), dims[0]) for dim in out if dim != row}
    at[row] = _aligned(given[1], dims[1], dims[0])
    np.add.at(total, tuple(at[dim] for dim in out), given[0])
    return total


def _ordered(array: Array, dims: tuple[str, ...], wanted: tuple[str, ...]) -> Array:
    return array.transpose([dims.index(dim) for dim in wanted])


def _aligned(array: Array, dims: tuple[str, ...], onto: tuple[str, ...]) -> Array:
    """The array with one axis per dim of ``onto``, of extent 1 where it lacks the dim."""
    present = tuple(dim for dim in onto if dim in dims)
    return np.expand_dims(_ordered(array, dims, present), tuple(axis for axis, dim in enumerate(onto) if dim not in dims))
