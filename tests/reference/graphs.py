"""A naive evaluator of op graphs: one op after the other on whole arrays, no mapping, no tiles.

It shows that a workload's graph means what its oracle says, before any mapping is involved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

import numpy as np

from halley.ir.workload import Op, OpKind, Workload

Arrays = dict[str, np.ndarray]
Numbers = Mapping[str, float]


def evaluate(workload: Workload, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """All tensors of the workload."""
    known = dict(arrays)
    for op in workload.ops:
        results = _run(workload, op, [known[name] for name in op.inputs])
        for name, result in zip(op.outputs, results, strict=True):
            shape = tuple(workload.dims[dim] for dim in workload.tensors[name].dims)
            assert result.shape == shape, f"{op.name} makes {name} of shape {result.shape}, not {shape}"
            known[name] = result
    return known


def _run(workload: Workload, op: Op, given: list[np.ndarray]) -> list[np.ndarray]:
    dims_in = [workload.tensors[name].dims for name in op.inputs]
    dims_out = workload.tensors[op.outputs[0]].dims
    match op.kind:
        case OpKind.CONTRACT:
            letters = {dim: chr(ord("a") + position) for position, dim in enumerate(op.dims)}
            subscripts = ["".join(letters[dim] for dim in dims) for dims in (*dims_in, dims_out)]
            return [np.einsum(f"{subscripts[0]},{subscripts[1]}->{subscripts[2]}", *given)]
        case OpKind.MAP | OpKind.REDUCE:
            aligned = [_aligned(array, dims, op.dims) for array, dims in zip(given, dims_in, strict=True)]
            points = FUNCTIONS[op.function](dict(op.constants), *aligned)
            points = np.broadcast_to(points, tuple(workload.dims[dim] for dim in op.dims))
            if op.kind is OpKind.MAP:
                return [_ordered(points, op.dims, dims_out)]
            over = tuple(op.dims.index(dim) for dim in workload.reduced(op))
            kept = tuple(dim for dim in op.dims if dim in dims_out)
            return [_ordered(part, kept, dims_out) for part in MONOIDS[op.monoid](dict(op.constants), points, over)]
        case OpKind.SCAN:
            return [_scan(*given, axis=dims_out.index(op.along))]
        case OpKind.FFT:
            spectrum = np.fft.fft(given[0] + 1j * given[1], axis=dims_out.index(op.along))
            return [spectrum.real, spectrum.imag]
        case OpKind.GATHER:
            return [given[0][given[1]]]
        case OpKind.SCATTER:
            shape = tuple(workload.dims[dim] for dim in dims_out)
            total = np.zeros(shape)
            np.add.at(total, given[1], given[0])
            return [total]
        case OpKind.PERMUTE:
            return [_ordered(given[0], dims_in[0], dims_out)]
        case _:
            assert_never(op.kind)


def _ordered(array: np.ndarray, dims: tuple[str, ...], wanted: tuple[str, ...]) -> np.ndarray:
    return array.transpose([dims.index(dim) for dim in wanted])


def _aligned(array: np.ndarray, dims: tuple[str, ...], onto: tuple[str, ...]) -> np.ndarray:
    """The array with one axis per dim of ``onto``, of extent 1 where it lacks the dim."""
    present = tuple(dim for dim in onto if dim in dims)
    assert set(present) == set(dims), f"{dims} is not part of {onto}"
    lacking = tuple(axis for axis, dim in enumerate(onto) if dim not in dims)
    return np.expand_dims(_ordered(array, dims, present), lacking)


def _scale_mask(numbers: Numbers, x: np.ndarray) -> np.ndarray:
    """Rows stack the query heads of a group; the keys are the last axis."""
    query = np.arange(x.shape[-2])[:, None] % int(numbers["queries"])
    hidden = np.arange(x.shape[-1])[None, :] > query + int(numbers["offset"])
    return np.where(hidden & (numbers["causal"] == 1.0), -np.inf, x * numbers["scale"])


def _online(_: Numbers, x: np.ndarray, axes: tuple[int, ...]) -> list[np.ndarray]:
    """One pass over the elements of the one reduced axis."""
    (axis,) = axes
    largest, total = np.take(x, 0, axis), np.ones_like(np.take(x, 0, axis))
    for position in range(1, x.shape[axis]):
        element = np.take(x, position, axis)
        grown = np.maximum(largest, element)
        total = total * np.exp(largest - grown) + np.exp(element - grown)
        largest = grown
    return [largest, total]


def _welford(_: Numbers, x: np.ndarray, axes: tuple[int, ...]) -> list[np.ndarray]:
    (axis,) = axes
    mean, squares = np.zeros_like(np.take(x, 0, axis)), np.zeros_like(np.take(x, 0, axis))
    for position in range(x.shape[axis]):
        element = np.take(x, position, axis)
        step = element - mean
        mean = mean + step / (position + 1)
        squares = squares + step * (element - mean)
    return [mean, squares]


def _scan(decay: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    decay, x = np.moveaxis(decay, axis, 0), np.moveaxis(x, axis, 0)
    states = [x[0]]
    for a, element in zip(decay[1:], x[1:], strict=True):
        states.append(a * states[-1] + element)
    return np.moveaxis(np.stack(states), 0, axis)


FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "identity": lambda _, x: x,
    "add": lambda _, x, y: x + y,
    "square": lambda _, x: x * x,
    "divide": lambda _, x, y: x / y,
    "scale": lambda c, x: x * c["scale"],
    "scale_mask": _scale_mask,
    "exp_difference": lambda _, x, y: np.exp(x - y),
    "square_difference": lambda _, x, y: (x - y) ** 2,
    "softmax_from_stats": lambda _, x, largest, total: np.exp(x - largest) / total,
    "rsqrt_mean": lambda c, x: 1.0 / np.sqrt(x / c["count"] + c["epsilon"]),
    "normalise_gain": lambda _, x, rstd, gain: x * rstd * gain,
    "normalise_affine": lambda _, x, mean, rstd, gain, bias: (x - mean) * rstd * gain + bias,
    "silu_mul": lambda _, x, y: x / (1.0 + np.exp(-x)) * y,
}

MONOIDS: dict[str, Callable[[Numbers, np.ndarray, tuple[int, ...]], list[np.ndarray]]] = {
    "sum": lambda _, x, axes: [x.sum(axis=axes)],
    "mean": lambda c, x, axes: [x.sum(axis=axes) / c["count"]],
    "max": lambda _, x, axes: [x.max(axis=axes)],
    "softmax": _online,
    "welford": _welford,
}
