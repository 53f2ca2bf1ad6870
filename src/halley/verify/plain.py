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
            numbered = [[axes[dim] for dim in dims] for dims in (*dims_in, out)]
            return [np.asarray(np.einsum(given[0], numbered[0], given[1], numbered[1], numbered[2]))]
        case OpKind.MAP | OpKind.REDUCE:
            site = FunctionSite(op.name, dict(op.constants), (0,) * len(op.dims))
            points = DEFINITIONS[op.function](site, *(_aligned(a, dims, op.dims) for a, dims in zip(given, dims_in, strict=True)))
            points = np.broadcast_to(points, tuple(workload.dims[dim] for dim in op.dims))
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
            return [_windows(workload, op, given[0], dims_in[0], out)]
        case _:
            assert_never(op.kind)


def _windows(workload: Workload, op: Op, given: Array, dims: tuple[str, ...], out: tuple[str, ...]) -> Array:
    """By index: every element of the result says where it comes from, and what lies before a sequence is zero."""
    places = {dim: _aligned(np.arange(workload.dims[dim]), (dim,), out) for dim in out}
    if not op.along:
        sums = {window.dim: places[window.base] + places[window.offset] for window in op.windows}
        return np.asarray(given[tuple(sums.get(dim, places.get(dim)) for dim in dims)])
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
        places = _windows(workload, op, np.arange(1, total.size + 1).reshape(total.shape), out, dims[0]).astype(int)
        flat = np.zeros(total.size + 1)  # the first takes what comes from before a sequence
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
