"""A naive evaluator of op graphs: one op after the other on whole arrays, no mapping, no tiles.

It shows that a workload's graph means what its oracle says, before any mapping is involved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import assert_never

import numpy as np
from scipy.special import ndtr

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
            read = [_read(workload, op, array, dims) for array, dims in zip(given, dims_in, strict=True)]
            subscripts = ["".join(letters[dim] for dim in dims) for dims in (*(dims for _, _, dims in read), dims_out)]
            return [np.einsum(f"{subscripts[0]},{subscripts[1]}->{subscripts[2]}", *(array for array, _, _ in read))]
        case OpKind.MAP | OpKind.REDUCE:
            read = [_read(workload, op, array, dims) for array, dims in zip(given, dims_in, strict=True)]
            aligned = [_aligned(array, dims, op.dims) for array, _, dims in read]
            points = FUNCTIONS[op.function](dict(op.constants), *aligned)
            points = np.broadcast_to(points, tuple(workload.dims[dim] for dim in op.dims))
            for _, padding, dims in read:
                if op.kind is OpKind.REDUCE and padding.any():
                    neutral = {"sum": 0.0, "mean": 0.0, "max": -np.inf}[op.monoid]
                    points = np.where(_aligned(padding, dims, op.dims), neutral, points)
            if op.kind is OpKind.MAP:
                return [_ordered(points, op.dims, dims_out)]
            over = tuple(op.dims.index(dim) for dim in workload.reduced(op))
            kept = tuple(dim for dim in op.dims if dim in dims_out)
            return [_ordered(part, kept, dims_out) for part in MONOIDS[op.monoid](dict(op.constants), points, over)]
        case OpKind.SCAN:
            aligned = [_aligned(array, dims, dims_out) for array, dims in zip(given, dims_in, strict=True)]
            return [_scan(op, aligned, [dims_out.index(dim) for dim in op.sequence])]
        case OpKind.FFT:
            return _transform(workload, op, given, dims_in[0], dims_out)
        case OpKind.GATHER:
            return [_gather(workload, op, *given)]
        case OpKind.SCATTER:
            return [_scatter(workload, op, *given) if len(given) == 2 else _overlapped(workload, op, given[0])]
        case OpKind.PERMUTE:
            renamed = iter([dim for dim in dims_out if dim not in dims_in[0]])
            return [_ordered(given[0], tuple(dim if dim in dims_out else next(renamed) for dim in dims_in[0]), dims_out)]
        case OpKind.WINDOW:
            return [_windows(workload, op, given[0])]
        case _:
            assert_never(op.kind)


def _gather(workload: Workload, op: Op, table: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Element by element: the index says which row of the table, the output's own position all else."""
    table_dims, index_dims, out = (workload.tensors[name].dims for name in (*op.inputs, *op.outputs))
    result = np.empty(tuple(workload.dims[dim] for dim in out))
    for position in np.ndindex(*result.shape):
        here = dict(zip(out, position, strict=True))
        row = index[tuple(here[dim] for dim in index_dims)]
        result[position] = table[tuple(here.get(dim, row) for dim in table_dims)]
    return result


def _scatter(workload: Workload, op: Op, source: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Element by element, the other way round."""
    source_dims, index_dims, out = (workload.tensors[name].dims for name in (*op.inputs, *op.outputs))
    result = np.zeros(tuple(workload.dims[dim] for dim in out))
    for position in np.ndindex(*source.shape):
        here = dict(zip(source_dims, position, strict=True))
        row = index[tuple(here[dim] for dim in index_dims)]
        result[tuple(here.get(dim, row) for dim in out)] += source[position]
    return result


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


def _scale_window(numbers: Numbers, x: np.ndarray) -> np.ndarray:
    """The same, and of the keys that are left the last ones of each row."""
    query = np.arange(x.shape[-2])[:, None] % int(numbers["queries"]) + int(numbers["offset"])
    behind = query - np.arange(x.shape[-1])[None, :]
    return np.where((behind < 0) | (behind >= int(numbers["window"])), -np.inf, x * numbers["scale"])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(x / 2.0))


def _slope(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """The derivative of an analytic function by a step along the imaginary axis (Squire and Trapp 1998): exact to rounding."""
    return np.imag(function(x + 1e-30j)) / 1e-30


def _visible(numbers: Numbers, x: np.ndarray) -> np.ndarray:
    masked = _scale_mask(numbers, x)
    return np.where(np.isneginf(masked), 0.0, masked)


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


def _scan(op: Op, given: list[np.ndarray], axes: list[int]) -> np.ndarray:
    """Place by place along the axes, the last fastest; the other way round if reversed."""
    shape = np.broadcast_shapes(*(array.shape for array in given))
    x = np.broadcast_to(given[-1], shape)
    decay = np.broadcast_to(given[0], shape) if len(given) == 2 else np.ones(shape)
    result, state, last = np.empty(shape), 0.0, 0.0
    places = list(np.ndindex(*(shape[axis] for axis in axes)))
    for place in places[::-1] if dict(op.constants).get("reverse") else places:
        at = tuple(place[axes.index(axis)] if axis in axes else slice(None) for axis in range(len(shape)))
        before, state = state, (last if op.monoid == "linear_lagged" else decay[at]) * state + x[at]
        last = decay[at]
        result[at] = before if op.monoid == "linear_before" else state
    return result


def _transform(
    workload: Workload, op: Op, given: list[np.ndarray], dims: tuple[str, ...], out: tuple[str, ...]
) -> list[np.ndarray]:
    """The transform as a matrix, of which zeros and cut-off points are columns and rows left out."""
    (axis,) = (i for i, dim in enumerate(dims) if dim == op.along or dim not in op.dims)
    count, inverse = workload.dims[op.along], dict(op.constants).get("inverse") == 1.0
    angles = np.outer(np.arange(workload.dims[out[axis]]), np.arange(workload.dims[dims[axis]])) * (2 * np.pi / count)
    matrix = np.exp(1j * angles) / count if inverse else np.exp(-1j * angles)
    rows = np.moveaxis(given[0] + 1j * given[1] if len(given) == 2 else given[0], axis, -1)
    spectrum = np.moveaxis(rows @ matrix.T, -1, axis)
    return [spectrum.real, spectrum.imag][: len(op.outputs)]


def _read(
    workload: Workload, op: Op, source: np.ndarray, dims: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Element by element, at affine indices: (values, 0 in the padding; whether it is padding; the dims of both)."""
    sums = {index.dim: index for index in op.indices}
    if not any(dim in sums for dim in dims):
        return source, np.zeros(source.shape, bool), dims
    over: list[str] = []
    for dim in dims:
        over += [each for each in (dict(sums[dim].terms) if dim in sums else [dim]) if each not in over]
    shape = tuple(workload.dims[dim] for dim in over)
    values, padding = np.zeros(shape), np.ones(shape, bool)
    for position in np.ndindex(*shape):
        here = dict(zip(over, position, strict=True))
        place = []
        for dim in dims:
            terms = sums[dim].terms if dim in sums else ((dim, 1),)
            place.append(sum(here[term] * count for term, count in terms) + (sums[dim].constant if dim in sums else 0))
        if all(0 <= at < most for at, most in zip(place, source.shape, strict=True)):
            values[position], padding[position] = source[tuple(place)], False
    return values, padding, tuple(over)


def _windows(workload: Workload, op: Op, source: np.ndarray) -> np.ndarray:
    """Element by element."""
    dims, out = workload.tensors[op.inputs[0]].dims, workload.tensors[op.outputs[0]].dims
    result = np.zeros(tuple(workload.dims[dim] for dim in out))
    for position, place in _pairs(workload, op, dims, out):
        result[position] = source[place]
    return result


def _overlapped(workload: Workload, op: Op, source: np.ndarray) -> np.ndarray:
    """Element by element, the other way round."""
    dims, out = workload.tensors[op.inputs[0]].dims, workload.tensors[op.outputs[0]].dims
    result = np.zeros(tuple(workload.dims[dim] for dim in out))
    for position, place in _pairs(workload, op, out, dims):
        result[place] += source[position]
    return result


def _pairs(
    workload: Workload, op: Op, dims: tuple[str, ...], windowed: tuple[str, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every element of the windows, and the element of ``dims`` that it is a copy of, if there is one."""
    extents = tuple(workload.dims[dim] for dim in op.sequence)
    for position in np.ndindex(*(workload.dims[dim] for dim in windowed)):
        here = dict(zip(windowed, position, strict=True))
        for index in op.indices:
            here[index.dim] = index.constant + sum(here[dim] * count for dim, count in index.terms)
        if any(not 0 <= here[index.dim] < workload.dims[index.dim] for index in op.indices):
            continue
        if op.along:
            (offset,) = set(windowed) - set(dims)
            place = int(np.ravel_multi_index(tuple(here[dim] for dim in op.sequence), extents))
            place += here[offset] - workload.dims[offset] + 1
            if place < 0:
                continue
            here |= dict(zip(op.sequence, map(int, np.unravel_index(place, extents)), strict=True))
        yield position, tuple(here[dim] for dim in dims)


FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "identity": lambda _, x: x,
    "add": lambda _, x, y: x + y,
    "square": lambda _, x: x * x,
    "mul": lambda _, x, y: x * y,
    "exp": lambda _, x: np.exp(x),
    "below": lambda _, x, y: np.where(x >= y, -np.inf, x),
    "exp_selected": lambda _, x, y, z: np.exp(np.where(x < z, -np.inf, x - y)),
    "gelu": lambda _, x: 0.5 * x * (1.0 + np.tanh((2.0 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "gelu_erf": lambda _, x: x * ndtr(x),
    "gelu_erf_gradient": lambda _, x, y: x * _slope(lambda v: v * ndtr(v), y),
    "divide": lambda _, x, y: x / y,
    "scale": lambda c, x: x * c["scale"],
    "scale_mask": _scale_mask,
    "scale_window": _scale_window,
    "exp_difference": lambda _, x, y: np.exp(x - y),
    "square_difference": lambda _, x, y: (x - y) ** 2,
    "softmax_from_stats": lambda _, x, largest, total: np.exp(x - largest) / total,
    "rsqrt_mean": lambda c, x: 1.0 / np.sqrt(x / c["count"] + c["epsilon"]),
    "normalise_gain": lambda _, x, rstd, gain: x * rstd * gain,
    "normalise_affine": lambda _, x, mean, rstd, gain, bias: (x - mean) * rstd * gain + bias,
    "relu": lambda _, x: np.where(x > 0.0, x, 0.0),
    "multiply_add": lambda _, x, y, z: x * y + z,
    "silu_bias": lambda _, x, y: (x + y) * 0.5 * (1.0 + np.tanh((x + y) / 2.0)),
    "softplus_bias": lambda _, x, y: np.maximum(x + y, 0.0) + np.log1p(np.exp(-np.abs(x + y))),
    "exp_product": lambda _, x, y: np.exp(x * y),
    "product": lambda _, x, y, z: x * y * z,
    "product_difference": lambda _, x, y, z, w: x * y - z * w,
    "product_sum": lambda _, x, y, z, w: x * y + z * w,
    "decay_mask": lambda _, x, y, z: np.tril(x * np.exp(np.tril(y - z))),
    "add_decayed": lambda _, x, y, z: x + y * np.exp(z),
    "silu_mul": lambda _, x, y: x / (1.0 + np.exp(-x)) * y,
    "subtract": lambda _, x, y: x - y,
    "reciprocal": lambda _, x: 1 / x,
    "maximum": lambda _, x, y: np.where(x > y, x, y),
    "minimum": lambda _, x, y: np.where(x < y, x, y),
    "rsqrt": lambda _, x: x**-0.5,
    "sqrt": lambda _, x: x**0.5,
    "sigmoid": lambda _, x: _sigmoid(x),
    "tanh": lambda _, x: 1.0 - 2.0 / (np.exp(2.0 * x) + 1.0),
    "normalise": lambda _, x, mean, rstd: (x - mean) * rstd,
    "affine": lambda _, x, gain, bias: x * gain + bias,
    "silu": lambda _, x: x * _sigmoid(x),
    "log": lambda _, x: np.log(x),
    "scaled_product": lambda c, x, y: c["scale"] * x * y,
    "negative_product": lambda _, x, y, z: x * y * -z,
    "scaled_quotient": lambda c, x, y: c["scale"] * x / y,
    "quotient_gradient": lambda _, x, y, z: x * y / -z,
    "cube_product": lambda c, x, y: c["scale"] * x * y**3,
    "scaled_difference": lambda c, x, y, z: c["scale"] * (x * y - x * z),
    "difference_product": lambda _, x, y, z, w: x * w * (y - z),
    "mul_exp": lambda _, x, y: x * np.exp(y),
    "product_exp": lambda _, x, y, z: x * y * np.exp(z),
    "mul_exp_difference": lambda _, x, y, z: x * np.exp(y - z),
    "select_equal": lambda _, x, y, z: x * (y == z),
    "select_above": lambda _, x, y, z: x * (y > z),
    "select_not_below": lambda _, x, y, z: x * (y >= z),
    "scale_visible": _visible,
    "scale_in_window": lambda numbers, x: np.nan_to_num(_scale_window(numbers, x), neginf=0.0),
    "relu_gradient": lambda _, x, y: x * (y > 0),
    "sigmoid_gradient": lambda _, x, y: x * (y - y * y),
    "tanh_gradient": lambda _, x, y: x - x * y * y,
    "softplus_bias_gradient": lambda _, x, y, z: x * _sigmoid(y + z),
    "silu_gradient": lambda _, x, y: x * _slope(lambda v: v / (1.0 + np.exp(-v)), y),
    "silu_bias_gradient": lambda _, x, y, z: x * _slope(lambda v: v / (1.0 + np.exp(-v)), y + z),
    "silu_mul_gradient": lambda _, x, y, z: x * z * _slope(lambda v: v / (1.0 + np.exp(-v)), y),
    "gelu_gradient": lambda _, x, y: (
        x * _slope(lambda v: 0.5 * v * (1.0 + np.tanh((2.0 / np.pi) ** 0.5 * (v + 0.044715 * v**3))), y)
    ),
}

MONOIDS: dict[str, Callable[[Numbers, np.ndarray, tuple[int, ...]], list[np.ndarray]]] = {
    "sum": lambda _, x, axes: [x.sum(axis=axes)],
    "mean": lambda c, x, axes: [x.sum(axis=axes) / c["count"]],
    "max": lambda _, x, axes: [x.max(axis=axes)],
    "softmax": _online,
    "welford": _welford,
}
