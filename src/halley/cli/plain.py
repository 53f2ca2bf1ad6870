"""A workload on whole arrays, op after op: the result that every mapping must give. No mapping, no tiles, no chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

import numpy as np

from halley.execute.functions import DEFINITIONS, MONOID_DEFINITIONS, SCANS, Array, Site
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
            site = Site(op.name, dict(op.constants), (0,) * len(op.dims))
            points = DEFINITIONS[op.function](site, *(_aligned(a, dims, op.dims) for a, dims in zip(given, dims_in, strict=True)))
            points = np.broadcast_to(points, tuple(workload.dims[dim] for dim in op.dims))
            if op.kind is OpKind.MAP:
                return [_ordered(points, op.dims, out)]
            over = tuple(op.dims.index(dim) for dim in workload.reduced(op))
            kept = tuple(dim for dim in op.dims if dim in out)
            return [_ordered(part, kept, out) for part in MONOID_DEFINITIONS[op.monoid].reduce(site, points, over)]
        case OpKind.SCAN:
            return [
                SCANS[op.monoid]([_aligned(a, dims, out) for a, dims in zip(given, dims_in, strict=True)], out.index(op.along))
            ]
        case OpKind.FFT:
            values = given[0] + 1j * given[1] if len(given) > 1 else given[0]
            spectrum = np.fft.fft(values, axis=out.index(op.along))
            return [spectrum.real, spectrum.imag][: len(op.outputs)]
        case OpKind.GATHER:
            return [given[0][given[1]]]
        case OpKind.SCATTER:
            total = np.zeros(tuple(workload.dims[dim] for dim in out))
            np.add.at(total, given[1], given[0])
            return [total]
        case OpKind.PERMUTE:
            return [_ordered(given[0], dims_in[0], out)]
        case _:
            assert_never(op.kind)


def _ordered(array: Array, dims: tuple[str, ...], wanted: tuple[str, ...]) -> Array:
    return array.transpose([dims.index(dim) for dim in wanted])


def _aligned(array: Array, dims: tuple[str, ...], onto: tuple[str, ...]) -> Array:
    """The array with one axis per dim of ``onto``, of extent 1 where it lacks the dim."""
    present = tuple(dim for dim in onto if dim in dims)
    return np.expand_dims(_ordered(array, dims, present), tuple(axis for axis, dim in enumerate(onto) if dim not in dims))
