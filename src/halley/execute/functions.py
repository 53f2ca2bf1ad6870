"""The elementwise functions, monoids and scans of `halley.ir.workload` in NumPy.

Arrays are aligned to the dims of the op (missing dims have extent 1), so that NumPy broadcasts them. A row that is fully masked
so far has the maximum -inf; its exponentials are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, did_you_mean

Array: TypeAlias = NDArray[Any]
State: TypeAlias = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class FunctionSite:
    """Where a function is applied: the op's name and constants, and the first index of the tile per dim."""

    op: str
    constants: Mapping[str, float]
    starts: tuple[int, ...]

    def constant(self, name: str) -> float:
        if name not in self.constants:
            raise BadInput(Fault(f"op {self.op}", f"the constant {name!r}", "none", did_you_mean(name, self.constants)))
        return self.constants[name]


def exp_difference(x: Array, y: Array) -> Array:
    """exp(x - y), and 0 where y is -inf, as x is -inf there too.

    >>> exp_difference(np.array([1.0, -np.inf]), np.array([1.0, -np.inf])).tolist()
    [1.0, 0.0]
    """
    unseen = np.isneginf(y)
    return np.where(unseen, 0.0, np.exp(x - np.where(unseen, 0.0, y)))


def _scale_mask(site: FunctionSite, x: Array, hidden: float = -np.inf) -> Array:
    scaled = x * site.constant("scale")
    if not site.constant("causal"):
        return scaled
    # rows of all query heads of a group are stacked: row r is query r mod queries
    rows = np.arange(x.shape[-2])[:, None] + site.starts[-2]
    keys = np.arange(x.shape[-1])[None, :] + site.starts[-1]
    return np.where(keys <= rows % int(site.constant("queries")) + site.constant("offset"), scaled, hidden)


def _scale_window(site: FunctionSite, x: Array, hidden: float = -np.inf) -> Array:
    rows = np.arange(x.shape[-2])[:, None] + site.starts[-2]
    keys = np.arange(x.shape[-1])[None, :] + site.starts[-1]
    last = rows % int(site.constant("queries")) + site.constant("offset")
    return np.where((keys <= last) & (keys > last - site.constant("window")), x * site.constant("scale"), hidden)


def _decay_mask(site: FunctionSite, x: Array, y: Array, z: Array) -> Array:
    """The last two dims are target and source; elements with source > target are 0, even if their exponential overflows."""
    shape = np.broadcast_shapes(x.shape, y.shape, z.shape)
    target = np.arange(shape[-2])[:, None] + site.starts[-2]
    source = np.arange(shape[-1])[None, :] + site.starts[-1]
    past = source <= target
    return np.where(past, x * np.exp(np.where(past, y - z, 0.0)), 0.0)


def _silu(x: Array) -> Array:
    return np.asarray(x / (1.0 + np.exp(-x)))


def _silu_gradient(d: Array, x: Array) -> Array:
    s = 1.0 / (1.0 + np.exp(-x))
    return np.asarray(d * s * (1.0 + x * (1.0 - s)))


def _gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1.0 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def _gelu_gradient(d: Array, x: Array) -> Array:
    slope = np.sqrt(2 / np.pi)
    t = np.tanh(slope * (x + 0.044715 * x**3))
    return np.asarray(d * ((1.0 + t) / 2 + x / 2 * (1.0 - t * t) * slope * (1.0 + 3 * 0.044715 * x * x)))


def _normal(x: Array) -> Array:
    """The share of a standard normal distribution below x."""
    return np.asarray((1.0 + np.vectorize(math.erf, otypes=[float])(x / np.sqrt(2))) / 2)


def _gelu_erf_gradient(d: Array, x: Array) -> Array:
    return np.asarray(d * (_normal(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)))


DEFINITIONS: dict[str, Callable[..., Array]] = {
    "identity": lambda site, x: x,
    "add": lambda site, x, y: x + y,
    "mul": lambda site, x, y: x * y,
    "square": lambda site, x: x * x,
    "subtract": lambda site, x, y: x - y,
    "divide": lambda site, x, y: x / y,
    "reciprocal": lambda site, x: 1.0 / x,
    "maximum": lambda site, x, y: np.asarray(np.maximum(x, y)),
    "minimum": lambda site, x, y: np.asarray(np.minimum(x, y)),
    "multiply_add": lambda site, x, y, z: x * y + z,
    "exp": lambda site, x: np.asarray(np.exp(x)),
    "rsqrt": lambda site, x: 1.0 / np.sqrt(x),
    "sqrt": lambda site, x: np.asarray(np.sqrt(x)),
    "relu": lambda site, x: np.asarray(np.maximum(x, 0.0)),
    "sigmoid": lambda site, x: 1.0 / (1.0 + np.exp(-x)),
    "tanh": lambda site, x: np.asarray(np.tanh(x)),
    "scale": lambda site, x: x * site.constant("scale"),
    "scale_mask": _scale_mask,
    "scale_window": _scale_window,
    "exp_difference": lambda site, x, y: exp_difference(x, y),
    "below": lambda site, x, y: np.where(x < y, x, -np.inf),
    "exp_selected": lambda site, x, y, z: np.where(x >= z, np.exp(x - y), 0.0),
    "square_difference": lambda site, x, y: (x - y) ** 2,
    "softmax_from_stats": lambda site, x, largest, total: exp_difference(x, largest) / total,
    "rsqrt_mean": lambda site, x: 1.0 / np.sqrt(x / site.constant("count") + site.constant("epsilon")),
    "normalise": lambda site, x, mean, rstd: (x - mean) * rstd,
    "normalise_gain": lambda site, x, rstd, gain: x * rstd * gain,
    "affine": lambda site, x, gain, bias: x * gain + bias,
    "normalise_affine": lambda site, x, mean, rstd, gain, bias: (x - mean) * rstd * gain + bias,
    "silu": lambda site, x: _silu(x),
    "silu_bias": lambda site, x, y: _silu(x + y),
    "softplus_bias": lambda site, x, y: np.asarray(np.logaddexp(x + y, 0.0)),
    "exp_product": lambda site, x, y: np.asarray(np.exp(x * y)),
    "product": lambda site, x, y, z: x * y * z,
    "product_difference": lambda site, x, y, z, w: x * y - z * w,
    "product_sum": lambda site, x, y, z, w: x * y + z * w,
    "decay_mask": _decay_mask,
    "add_decayed": lambda site, x, y, z: x + y * np.exp(z),
    "silu_mul": lambda site, x, y: _silu(x) * y,
    "gelu": lambda site, x: _gelu(x),
    "gelu_erf": lambda site, x: np.asarray(x * _normal(x)),
    "gelu_erf_gradient": lambda site, x, y: _gelu_erf_gradient(x, y),
    "log": lambda site, x: np.asarray(np.log(x)),
    "scaled_product": lambda site, x, y: x * y * site.constant("scale"),
    "negative_product": lambda site, x, y, z: -x * y * z,
    "scaled_quotient": lambda site, x, y: x / y * site.constant("scale"),
    "quotient_gradient": lambda site, x, y, z: -x * y / z,
    "cube_product": lambda site, x, y: x * y * y * y * site.constant("scale"),
    "scaled_difference": lambda site, x, y, z: x * (y - z) * site.constant("scale"),
    "difference_product": lambda site, x, y, z, w: x * (y - z) * w,
    "mul_exp": lambda site, x, y: x * np.exp(y),
    "product_exp": lambda site, x, y, z: x * y * np.exp(z),
    "mul_exp_difference": lambda site, x, y, z: x * exp_difference(y, z),
    "select_equal": lambda site, x, y, z: np.where(y == z, x, 0.0),
    "select_above": lambda site, x, y, z: np.where(y > z, x, 0.0),
    "select_not_below": lambda site, x, y, z: np.where(y >= z, x, 0.0),
    "scale_visible": lambda site, x: _scale_mask(site, x, 0.0),
    "scale_in_window": lambda site, x: _scale_window(site, x, 0.0),
    "relu_gradient": lambda site, x, y: np.where(y > 0, x, 0.0),
    "sigmoid_gradient": lambda site, x, y: x * y * (1.0 - y),
    "tanh_gradient": lambda site, x, y: x * (1.0 - y * y),
    "softplus_bias_gradient": lambda site, x, y, z: x / (1.0 + np.exp(-(y + z))),
    "silu_gradient": lambda site, x, y: _silu_gradient(x, y),
    "silu_bias_gradient": lambda site, x, y, z: _silu_gradient(x, y + z),
    "silu_mul_gradient": lambda site, x, y, z: _silu_gradient(x * z, y),
    "gelu_gradient": lambda site, x, y: _gelu_gradient(x, y),
}
"""The elementwise functions of `FUNCTIONS`, by name; the first argument is the `FunctionSite`."""


@dataclass(frozen=True, slots=True)
class Monoid:
    """``reduce`` reduces an array along axes to a state; ``merge`` combines two states, given the number of points in each (not
    0). ``adds``: merging is plain addition, which a network can do."""

    reduce: Callable[[FunctionSite, Array, tuple[int, ...]], State]
    merge: Callable[[State, Array, State, Array], State]
    adds: bool = False


def _softmax_reduce(site: FunctionSite, x: Array, axes: tuple[int, ...]) -> State:
    largest = x.max(axis=axes, keepdims=True)
    return np.squeeze(largest, axes), exp_difference(x, largest).sum(axis=axes)


def _softmax_merge(a: State, count_a: Array, b: State, count_b: Array) -> State:
    largest = np.maximum(a[0], b[0])
    return largest, a[1] * exp_difference(a[0], largest) + b[1] * exp_difference(b[0], largest)


def _welford_reduce(site: FunctionSite, x: Array, axes: tuple[int, ...]) -> State:
    mean = x.mean(axis=axes, keepdims=True)
    return np.squeeze(mean, axes), ((x - mean) ** 2).sum(axis=axes)


def _welford_merge(a: State, count_a: Array, b: State, count_b: Array) -> State:
    # Chan, Golub, LeVeque 1979: squared deviations of two samples merged from their counts and means
    count = count_a + count_b
    delta = b[0] - a[0]
    return a[0] + delta * count_b / count, a[1] + b[1] + delta**2 * count_a * count_b / count


def _add(a: State, count_a: Array, b: State, count_b: Array) -> State:
    return (a[0] + b[0],)


MONOID_DEFINITIONS: dict[str, Monoid] = {
    "sum": Monoid(lambda site, x, axes: (x.sum(axis=axes),), _add, adds=True),
    "mean": Monoid(lambda site, x, axes: (x.sum(axis=axes) / site.constant("count"),), _add, adds=True),
    "max": Monoid(lambda site, x, axes: (x.max(axis=axes),), lambda a, n, b, k: (np.maximum(a[0], b[0]),)),
    "softmax": Monoid(_softmax_reduce, _softmax_merge),
    "welford": Monoid(_welford_reduce, _welford_merge),
}
"""The reductions of `MONOIDS`, by name. Scans are in `SCANS`."""


def merge(monoid: Monoid, a: State, count_a: Array, b: State, count_b: Array) -> tuple[State, Array]:
    """Merge two states per element; a count of 0 is the neutral element.

    >>> add = MONOID_DEFINITIONS["sum"]
    >>> merge(add, (np.array([2.0, 9.0]),), np.array([1, 0]), (np.array([3.0, 4.0]),), np.array([2, 1]))
    ((array([5., 4.]),), array([3, 1]))
    """
    with np.errstate(all="ignore"):  # elements that were never written hold NaN; they are replaced below
        both = monoid.merge(a, np.maximum(count_a, 1), b, np.maximum(count_b, 1))
    joined = tuple(np.where(count_a == 0, y, np.where(count_b == 0, x, z)) for x, y, z in zip(a, b, both, strict=True))
    return joined, count_a + count_b


def _linear(values: Sequence[Array], axis: int) -> Array:
    factor, x = (np.moveaxis(v, axis, 0) for v in np.broadcast_arrays(*values))
    result = np.empty(x.shape, np.result_type(factor, x))
    previous = np.zeros_like(result[0])
    for t in range(len(x)):
        previous = factor[t] * previous + x[t]
        result[t] = previous
    return np.moveaxis(result, 0, axis)


def _linear_lagged(values: Sequence[Array], axis: int) -> Array:
    factor, x = np.broadcast_arrays(*values)
    return _linear((np.roll(factor, 1, axis), x), axis)  # the factor that wraps to the front multiplies a state of 0


def _linear_before(values: Sequence[Array], axis: int) -> Array:
    after = _linear(values, axis)
    first = np.zeros_like(np.take(after, [0], axis))
    return np.concatenate([first, np.delete(after, -1, axis)], axis)


SCANS: dict[str, Callable[[Sequence[Array], int], Array]] = {
    "sum": lambda values, axis: np.cumsum(values[0], axis),
    "max": lambda values, axis: np.asarray(np.maximum.accumulate(values[0], axis)),
    "linear": _linear,
    "linear_before": _linear_before,
    "linear_lagged": _linear_lagged,
}
"""Scans along an axis by the monoid's name."""


def scan(monoid: str, values: Sequence[Array], axes: Sequence[int], reverse: bool = False) -> Array:
    """A scan along axes that form one sequence, the last axis fastest, from its end if ``reverse``; the values are broadcast.

    >>> scan("sum", [np.ones((2, 3, 2))], [0, 2])[:, 0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    front = range(len(axes))
    moved = [np.moveaxis(value, axes, front) for value in np.broadcast_arrays(*values)]
    shape = moved[0].shape
    flat = [value.reshape(-1, *shape[len(axes) :])[:: -1 if reverse else 1] for value in moved]
    found = SCANS[monoid](flat, 0)[:: -1 if reverse else 1]
    return np.moveaxis(found.reshape(shape), front, axes)


def transform(values: Sequence[Array], axis: int, points: int, inverse: bool) -> tuple[Array, Array]:
    """(real, imaginary) of the discrete Fourier transform of rows (real, or a pair of planes) padded with zeros to ``points``;
    the inverse divides by ``points``.

    >>> transform([np.array([1.0, 1.0])], 0, 4, False)[0].tolist()
    [2.0, 1.0, 0.0, 1.0]
    """
    rows = values[0] + 1j * values[1] if len(values) == 2 else values[0]
    spectrum = np.fft.ifft(rows, points, axis) if inverse else np.fft.fft(rows, points, axis)
    return spectrum.real, spectrum.imag


def causal_windows(values: Array, axes: Sequence[int], size: int) -> Array:
    """The ``size`` elements that end at each position of a sequence along axes (the last fastest), as a new last axis; zeros
    before the first element.

    >>> causal_windows(np.array([1.0, 2.0, 3.0]), [0], 2).tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """
    front = range(len(axes))
    moved = np.moveaxis(values, axes, front)
    flat = moved.reshape(-1, *moved.shape[len(axes) :])
    padded = np.concatenate([np.zeros((size - 1, *flat.shape[1:]), flat.dtype), flat])
    found = np.lib.stride_tricks.sliding_window_view(padded, size, axis=0)
    return np.moveaxis(found.reshape(*moved.shape, size), front, axes)
