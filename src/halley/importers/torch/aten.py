"""Operators of PyTorch (ATen) in Halley's notation: as the operators of ONNX that compute the same, or as lines of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halley.importers.lowering.elementwise import in_steps
from halley.importers.lowering.node import LoweredNode, NodeView, NotLowered, Shape
from halley.importers.lowering.operators import lower

ONNX_OPSET = 23
"""Version of the operators of ONNX that stand for those of PyTorch."""


@dataclass(frozen=True, slots=True)
class TensorRef:
    """The name of a value, as an argument."""

    name: str


@dataclass(frozen=True, slots=True)
class AtenNode:
    """A call: its ``name``; the ``operator`` without namespace, overload and the mark of in-place forms; its ``arguments`` by the
    names of the schema, those left out missing; the names of its ``outputs``; the shapes of all values; ``in_place``: it changes
    its first argument."""

    name: str
    operator: str
    arguments: Mapping[str, Any]
    outputs: tuple[str, ...]
    shapes: Mapping[str, Shape]
    in_place: bool = False

    def get(self, name: str, default: Any = None) -> Any:
        """An argument; the default where it is left out or None."""
        found = self.arguments.get(name)
        return default if found is None else found

    def tensor(self, name: str) -> str:
        """The value that an argument names."""
        found = self.get(name)
        if not isinstance(found, TensorRef):
            raise NotLowered(f"no tensor as {name}")
        return found.name

    def has(self, name: str) -> bool:
        """Whether an optional tensor is there."""
        return isinstance(self.get(name), TensorRef)

    def shape(self, name: str) -> Shape:
        """The shape of the value that an argument names."""
        return self.of(self.tensor(name))

    def of(self, value: str) -> Shape:
        """The shape of a value."""
        if value not in self.shapes:
            raise NotLowered("a shape that is not known")
        if 0 in self.shapes[value]:
            raise NotLowered("no elements")
        return self.shapes[value]

    @property
    def result(self) -> Shape:
        """The shape of the first output."""
        return self.of(self.outputs[0])


def lower_aten(node: AtenNode) -> LoweredNode:
    """The call as a graph. Raises NotLowered: there is none."""
    if node.operator not in LOWERINGS:
        raise NotLowered("an operator without a lowering")
    return LOWERINGS[node.operator](node)


def _onnx(
    node: AtenNode,
    operator: str,
    inputs: Sequence[str],
    attributes: Mapping[str, Any] | None = None,
    known: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> LoweredNode:
    """The graph of an operator of ONNX on these values. ``shapes``: of values seen with other shapes, of the same elements."""
    return lower(_view(node, operator, inputs, attributes, known, shapes))


def _view(
    node: AtenNode,
    operator: str,
    inputs: Sequence[str],
    attributes: Mapping[str, Any] | None = None,
    known: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> NodeView:
    seen = {**node.shapes, **shapes} if shapes else node.shapes
    return NodeView(operator, tuple(inputs), node.outputs[:1], dict(attributes or {}), seen, dict(known or {}), ONNX_OPSET)


# --- elementwise functions ----------------------------------------------------------------------------------------------------


def _unary(operator: str) -> Callable[[AtenNode], LoweredNode]:
    def lowering(node: AtenNode) -> LoweredNode:
        return _onnx(node, operator, [node.tensor("self" if "self" in node.arguments else "input")])

    return lowering


def _steps(node: AtenNode, steps: Sequence[str], constants: Mapping[str, float] | None = None) -> LoweredNode:
    """Elementwise steps on one tensor, as `in_steps` has them."""
    source = node.tensor("self" if "self" in node.arguments else "input")
    return in_steps(_view(node, "", [source]), source, steps, constants)


def _binary(operator: str) -> Callable[[AtenNode], LoweredNode]:
    """A function of two tensors, or of a tensor and a number."""

    def lowering(node: AtenNode) -> LoweredNode:
        if node.get("alpha", 1) != 1 or node.get("rounding_mode") is not None:
            raise NotLowered("a scaled or rounded operation")
        other = node.get("other")
        if isinstance(other, TensorRef):
            return _onnx(node, operator, [node.tensor("self"), other.name])
        if not isinstance(other, int | float) or isinstance(other, bool):
            raise NotLowered("an operand that is neither a tensor nor a number")
        number = float(other)
        if operator in ("Mul", "Div"):
            if operator == "Div" and number == 0:
                raise NotLowered("a division by zero")
            return _steps(node, [f"scale(@, scale={number if operator == 'Mul' else 1 / number!r})"])
        sign = -1 if operator == "Sub" else 1
        return _steps(node, ["add(@, {C})"], {"C": sign * number})

    return lowering


def _reverse_subtract(node: AtenNode) -> LoweredNode:
    other = node.get("other")
    if node.get("alpha", 1) != 1:
        raise NotLowered("a scaled or rounded operation")
    if isinstance(other, TensorRef):
        return _onnx(node, "Sub", [other.name, node.tensor("self")])
    return _steps(node, ["subtract({C}, @)"], {"C": float(other)})


def _power(node: AtenNode) -> LoweredNode:
    exponent = node.get("exponent")
    if not isinstance(exponent, int | float):
        raise NotLowered("an exponent that is computed")
    if exponent == 3:
        return _steps(node, ["square(@)", "mul(@, $)"])
    return _onnx(node, "Pow", [node.tensor("self"), "exponent"], known={"exponent": np.array(float(exponent))})


def _gelu(node: AtenNode) -> LoweredNode:
    return _onnx(node, "Gelu", [node.tensor("self")], {"approximate": node.get("approximate", "none")})


def _clamp(low: float | None = None, high: float | None = None) -> Callable[[AtenNode], LoweredNode]:
    """Bounds as numbers; these, where the call has none."""

    def lowering(node: AtenNode) -> LoweredNode:
        limits = [node.get("min", node.get("min_val", low)), node.get("max", node.get("max_val", high))]
        if any(isinstance(limit, TensorRef) for limit in limits):
            raise NotLowered("bounds that are tensors")
        words = [("maximum(@, {A})", "A", limits[0]), ("minimum(@, {B})", "B", limits[1])]
        given = [(step, name, float(limit)) for step, name, limit in words if limit is not None]
        return _steps(node, [step for step, _, _ in given], {name: limit for _, name, limit in given})

    return lowering


_SIXTH = f"scale(@, scale={1 / 6!r})"
_HARD = [_SIXTH, "add(@, {H})", "maximum(@, {A})", "minimum(@, {B})"]
_HARD_CONSTANTS = {"H": 0.5, "A": 0.0, "B": 1.0}


def _hard_sigmoid(node: AtenNode) -> LoweredNode:
    return _steps(node, _HARD, _HARD_CONSTANTS)


def _hard_swish(node: AtenNode) -> LoweredNode:
    return _steps(node, [*_HARD, "mul(@, $)"], _HARD_CONSTANTS)


def _leaky_relu(node: AtenNode) -> LoweredNode:
    return _onnx(node, "LeakyRelu", [node.tensor("self")], {"alpha": node.get("negative_slope", 0.01)})


def _softplus(node: AtenNode) -> LoweredNode:
    if node.get("beta", 1) != 1:
        raise NotLowered("a softplus with a factor")
    return _steps(node, ["softplus_bias(@, {C})"], {"C": 0.0})


def _absolute(node: AtenNode) -> LoweredNode:
    return _steps(node, ["scale(@, scale=-1)", "maximum(@, $)"])


def _function(name: str) -> Callable[[AtenNode], LoweredNode]:
    """A function of Halley's own of one tensor."""
    return lambda node: _steps(node, [f"{name}(@)"])


# --- rows of tables -----------------------------------------------------------------------------------------------------------


def _embedding(node: AtenNode) -> LoweredNode:
    return _onnx(node, "Gather", [node.tensor("weight"), node.tensor("indices")])


# --- products -----------------------------------------------------------------------------------------------------------------


def _linear(node: AtenNode) -> LoweredNode:
    given, weight = node.shape("input"), node.shape("weight")
    if len(weight) != 2:
        raise NotLowered("a weight that is no matrix")
    extents = {"m": math.prod(given[:-1]), "n": weight[0], "k": weight[1]}
    inputs = {"X": node.tensor("input"), "W": node.tensor("weight")}
    if not node.has("bias"):
        return LoweredNode(("Y[m,n] = X[m,k] * W[n,k]",), extents, inputs, {"Y": node.outputs[0]})
    lines = ("Y1[m,n] = X[m,k] * W[n,k]", "Y[m,n] = add(Y1[m,n], B[n])")
    return LoweredNode(lines, extents, inputs | {"B": node.tensor("bias")}, {"Y": node.outputs[0]})


def _matmul(node: AtenNode) -> LoweredNode:
    first, second = node.tensor("self"), node.tensor("mat2" if "mat2" in node.arguments else "other")
    if len(node.of(first)) < 2 or len(node.of(second)) < 2:
        raise NotLowered("a product with a vector")
    return _onnx(node, "MatMul", [first, second])


def _addmm(node: AtenNode) -> LoweredNode:
    scaled = {"alpha": float(node.get("alpha", 1)), "beta": float(node.get("beta", 1))}
    return _onnx(node, "Gemm", [node.tensor("mat1"), node.tensor("mat2"), node.tensor("self")], scaled)


def _einsum(node: AtenNode) -> LoweredNode:
    operands = [item.name for item in node.get("tensors", ())]
    return _onnx(node, "Einsum", operands, {"equation": node.get("equation", "")})


def _grouped(node: AtenNode) -> LoweredNode:
    """A product of groups of rows, each with a matrix of its own: as groups of equal sizes, whatever the sizes are."""
    first, second = ("input", "weight") if "input" in node.arguments else ("self", "mat2")
    rows, weight = node.shape(first), node.shape(second)
    if len(rows) != 2 or len(weight) != 3:
        raise NotLowered("groups along another axis than the rows")
    groups = min(rows[0], weight[0])
    extents = {"e": groups, "m": -(-rows[0] // groups), "n": weight[2], "k": weight[1]}
    inputs = {"X": node.tensor(first), "W": node.tensor(second)}
    return LoweredNode(("Y[e,m,n] = X[e,m,k] * W[e,k,n]",), extents, inputs, {"Y": node.outputs[0]})


def _attention(node: AtenNode) -> LoweredNode:
    """softmax(scale Q K^T, masked) V."""
    names = [node.tensor(name) for name in ("query", "key", "value")]
    seen = {}
    for name in dict.fromkeys(names):
        shape = node.of(name)
        if len(shape) == 3:
            seen[name] = (1, *shape)
        elif len(shape) != 4:
            raise NotLowered("attention of other than three or four axes")
    queries, keys = (seen.get(name, node.shapes[name]) for name in names[:2])
    if queries[1] != keys[1] and not node.get("enable_gqa", False):
        raise NotLowered("heads that broadcast")
    if node.get("is_causal", False) and queries[2] > keys[2]:
        raise NotLowered("queries before the first key")
    options = {"is_causal": int(node.get("is_causal", False)), "scale": node.get("scale")}
    if node.has("attn_mask"):
        names.append(node.tensor("attn_mask"))
        options["boolean"] = int(names[-1] in node.get("booleans", ()))
    return _onnx(node, "Attention", names, options, shapes=seen)


# --- windows ------------------------------------------------------------------------------------------------------------------


def _per_axis(value: Any, rank: int) -> list[int]:
    """An argument of windows along each axis: a number stands for all of them.

    >>> _per_axis(2, 2), _per_axis([3], 2), _per_axis([1, 2], 2)
    ([2, 2], [3, 3], [1, 2])
    """
    values = [int(value)] if isinstance(value, int) else [int(item) for item in value]
    if len(values) not in (1, rank):
        raise NotLowered("windows of another rank than the image")
    return values * rank if len(values) == 1 else values


def _conv(node: AtenNode) -> LoweredNode:
    rank = len(node.shape("weight")) - 2
    given, result = node.shape("input"), node.result
    if node.get("transposed", False) or len(given) != rank + 2:
        raise NotLowered("a transposed convolution, or one without a batch")
    padding = node.get("padding", 0)
    attributes: dict[str, Any] = {
        "strides": _per_axis(node.get("stride", 1), rank),
        "dilations": _per_axis(node.get("dilation", 1), rank),
        "group": int(node.get("groups", 1)),
    }
    if isinstance(padding, str):
        attributes["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}.get(padding, padding)
    else:
        attributes["pads"] = _per_axis(padding, rank) * 2
    names = [node.tensor("input"), node.tensor("weight"), *([node.tensor("bias")] if node.has("bias") else [])]
    return _onnx(node, "Conv", names, attributes, shapes={node.outputs[0]: result})


def _conv_transpose(node: AtenNode) -> LoweredNode:
    rank = len(node.shape("weight")) - 2
    attributes: dict[str, Any] = {
        "strides": _per_axis(node.get("stride", 1), rank),
        "dilations": _per_axis(node.get("dilation", 1), rank),
        "group": int(node.get("groups", 1)),
    }
    names = [node.tensor("input"), node.tensor("weight"), *([node.tensor("bias")] if node.has("bias") else [])]
    return _onnx(node, "ConvTranspose", names, attributes, shapes={node.outputs[0]: node.result})


def _pool(operator: str) -> Callable[[AtenNode], LoweredNode]:
    def lowering(node: AtenNode) -> LoweredNode:
        given = node.shape("self")
        rank = int(node.operator[-2])
        if len(given) != rank + 2:
            raise NotLowered("a pooling without a batch")
        if node.get("divisor_override") is not None:
            raise NotLowered("a divisor of its own")
        taps = _per_axis(node.get("kernel_size", 1), rank)
        pads = _per_axis(node.get("padding", 0), rank)
        strides = _per_axis(node.get("stride") or taps, rank)
        distances = _per_axis(node.get("dilation", 1), rank)
        image, result = given[2:], node.result[2:]
        reach = [
            (out - 1) * stride + distance * (tap - 1) + 1 - size - pad
            for out, stride, distance, tap, size, pad in zip(result, strides, distances, taps, image, pads, strict=True)
        ]
        if node.get("ceil_mode", False) and any(end > pad for end, pad in zip(reach, pads, strict=True)):
            raise NotLowered("windows that reach beyond the padding")
        attributes = {
            "kernel_shape": taps,
            "strides": strides,
            "pads": pads * 2,
            "dilations": distances,
            "count_include_pad": int(node.get("count_include_pad", True)),
        }
        return _onnx(node, operator, [node.tensor("self")], attributes)

    return lowering


def _adaptive(operator: str) -> Callable[[AtenNode], LoweredNode]:
    """Pooling to a given size, where it divides the image."""

    def lowering(node: AtenNode) -> LoweredNode:
        given, result = node.shape("self"), node.result
        rank = int(node.operator[-2])
        if len(given) != rank + 2:
            raise NotLowered("a pooling without a batch")
        image, wanted = given[2:], result[2:]
        if any(size % out for size, out in zip(image, wanted, strict=True)):
            raise NotLowered("windows of several sizes")
        if all(out == 1 for out in wanted):
            return _onnx(node, f"Global{operator}", [node.tensor("self")])
        taps = [size // out for size, out in zip(image, wanted, strict=True)]
        return _onnx(node, operator, [node.tensor("self")], {"kernel_shape": taps, "strides": taps})

    return lowering


# --- reductions and norms -----------------------------------------------------------------------------------------------------


def _reduction(operator: str) -> Callable[[AtenNode], LoweredNode]:
    def lowering(node: AtenNode) -> LoweredNode:
        if len(node.outputs) > 1:
            raise NotLowered("a reduction that gives the places, too")
        axes = node.get("dim", ())
        axes = [axes] if isinstance(axes, int) else list(axes)
        return _onnx(node, operator, [node.tensor("self")], {"axes": axes} if axes else {})

    return lowering


def _softmax(node: AtenNode) -> LoweredNode:
    return _onnx(node, "Softmax", [node.tensor("self")], {"axis": int(node.get("dim", -1))})


def _log_softmax(node: AtenNode) -> LoweredNode:
    return _onnx(node, "LogSoftmax", [node.tensor("self")], {"axis": int(node.get("dim", -1))})


def _affine(node: AtenNode, over: str, dims: str) -> tuple[str, dict[str, str]]:
    """The last line of a norm of rows with gains and biases over ``over``, either of which may be missing."""
    inputs = {letter: node.tensor(name) for letter, name in (("G", "weight"), ("B", "bias")) if node.has(name)}
    if len(inputs) == 2:
        return f"Y[{dims}] = normalise_affine(X[{dims}], m[{{row}}], r[{{row}}], G[{over}], B[{over}])", inputs
    if inputs and "B" in inputs:
        raise NotLowered("a norm with a bias alone")
    if inputs:
        return f"N[{dims}] = normalise(X[{dims}], m[{{row}}], r[{{row}}])\nY[{dims}] = mul(N[{dims}], G[{over}])", inputs
    return f"Y[{dims}] = normalise(X[{dims}], m[{{row}}], r[{{row}}])", inputs


def _normed(node: AtenNode, extents: dict[str, int], row: str, over: str, counted: str) -> LoweredNode:
    """A norm over the dims ``counted`` of each row of dims ``row``, with gains over ``over``. All dims: those of ``extents``."""
    count = math.prod(extents[dim] for dim in counted.split(","))
    if count == 1:
        raise NotLowered("rows of one element")
    dims = ",".join(extents)
    last, inputs = _affine(node, over, dims)
    lines = (
        f"m[{row}] = mean(X[{dims}])",
        f"v[{row}] = sum(square_difference(X[{dims}], m[{row}]))",
        f"r[{row}] = rsqrt_mean(v[{row}], count={count}, epsilon={float(node.get('eps', 1e-5))!r})",
        *last.format(row=row).split("\n"),
    )
    source = {"X": node.tensor("input" if "input" in node.arguments else "self")}
    # the forms that a backward pass reads also return the statistics
    return LoweredNode(lines, extents, source | inputs, dict(zip(("Y", "m", "r"), node.outputs, strict=False)))


def _layer_norm(node: AtenNode) -> LoweredNode:
    count = math.prod(node.get("normalized_shape", ()))
    whole = math.prod(node.shape("input"))
    return _normed(node, {"i": whole // count, "n": count}, "i", "n", "n")


def _group_norm(node: AtenNode) -> LoweredNode:
    shape, groups = node.shape("input"), int(node.get("num_groups", node.get("group", 1)))
    extents = {"i": shape[0], "g": groups, "c": shape[1] // groups, "j": math.prod(shape[2:])}
    return _normed(node, extents, "i,g", "g,c", "c,j")


def _instance_norm(node: AtenNode) -> LoweredNode:
    shape = node.shape("input")
    if not node.get("use_input_stats", True):
        raise NotLowered("statistics that are given")
    return _normed(node, {"i": shape[0], "c": shape[1], "j": math.prod(shape[2:])}, "i,c", "c", "j")


def _rms_norm(node: AtenNode) -> LoweredNode:
    count = math.prod(node.get("normalized_shape", ()))
    epsilon = node.get("eps")
    if epsilon is None:
        raise NotLowered("a norm with the epsilon of its element type")
    whole = math.prod(node.shape("input"))
    lines = ["v[i] = sum(square(X[i,n]))", f"r[i] = rsqrt_mean(v[i], count={count}, epsilon={float(epsilon)!r})"]
    inputs = {"X": node.tensor("input")}
    if node.has("weight"):
        lines.append("Y[i,n] = normalise_gain(X[i,n], r[i], G[n])")
        inputs["G"] = node.tensor("weight")
    else:
        lines.append("Y[i,n] = mul(X[i,n], r[i])")
    return LoweredNode(tuple(lines), {"i": whole // count, "n": count}, inputs, {"Y": node.outputs[0]})


def _batch_norm(node: AtenNode) -> LoweredNode:
    if node.get("training", False):
        raise NotLowered("statistics of a batch in training")
    names = [node.tensor(name) for name in ("input", "weight", "bias", "running_mean", "running_var")]
    return _onnx(node, "BatchNormalization", names, {"epsilon": node.get("eps", 1e-5)})


GROUPED = ("_grouped_mm", "transformers.grouped_mm_fallback")
"""Products of groups of rows, which experts of a mixture do."""

LOWERINGS: dict[str, Callable[[AtenNode], LoweredNode]] = dict.fromkeys(GROUPED, _grouped) | {
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_softmax": _softmax,
    "abs": _absolute,
    "adaptive_avg_pool1d": _adaptive("AveragePool"),
    "adaptive_avg_pool2d": _adaptive("AveragePool"),
    "adaptive_max_pool2d": _adaptive("MaxPool"),
    "add": _binary("Add"),
    "addmm": _addmm,
    "amax": _reduction("ReduceMax"),
    "avg_pool1d": _pool("AveragePool"),
    "avg_pool2d": _pool("AveragePool"),
    "avg_pool3d": _pool("AveragePool"),
    "batch_norm": _batch_norm,
    "bmm": _matmul,
    "clamp": _clamp(),
    "clamp_min": _clamp(),
    "conv1d": _conv,
    "conv2d": _conv,
    "conv3d": _conv,
    "conv_transpose1d": _conv_transpose,
    "conv_transpose2d": _conv_transpose,
    "convolution": _conv,
    "div": _binary("Div"),
    "einsum": _einsum,
    "embedding": _embedding,
    "exp": _unary("Exp"),
    "gelu": _gelu,
    "group_norm": _group_norm,
    "hardsigmoid": _hard_sigmoid,
    "hardswish": _hard_swish,
    "hardtanh": _clamp(-1.0, 1.0),
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "leaky_relu": _leaky_relu,
    "linear": _linear,
    "log": _unary("Log"),
    "log_softmax": _log_softmax,
    "matmul": _matmul,
    "max_pool1d": _pool("MaxPool"),
    "max_pool2d": _pool("MaxPool"),
    "max_pool3d": _pool("MaxPool"),
    "maximum": _binary("Max"),
    "mean": _reduction("ReduceMean"),
    "minimum": _binary("Min"),
    "mm": _matmul,
    "mul": _binary("Mul"),
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "neg": _unary("Neg"),
    "pow": _power,
    "reciprocal": _unary("Reciprocal"),
    "relu": _unary("Relu"),
    "relu6": _clamp(0.0, 6.0),
    "rms_norm": _rms_norm,
    "rsqrt": _function("rsqrt"),
    "rsub": _reverse_subtract,
    "scaled_dot_product_attention": _attention,
    "sigmoid": _unary("Sigmoid"),
    "silu": _unary("Swish"),
    "softmax": _softmax,
    "softplus": _softplus,
    "sqrt": _unary("Sqrt"),
    "square": _function("square"),
    "sub": _binary("Sub"),
    "sum": _reduction("ReduceSum"),
    "tanh": _unary("Tanh"),
}
"""By operator, its lowering."""

VIEWS = frozenset({
    "_reshape_alias", "_to_copy", "_unsafe_view", "alias", "cat", "chunk", "clone", "concat", "contiguous", "copy", "detach",
    "diagonal", "dropout", "expand", "expand_as", "feature_dropout", "flatten", "flip", "getitem", "lift_fresh_copy",
    "movedim", "narrow", "numpy_T", "permute", "pixel_shuffle", "ravel", "repeat", "repeat_interleave", "reshape", "roll",
    "select", "select_copy", "slice", "split", "split_with_sizes", "squeeze", "stack", "swapaxes", "t", "tile", "to",
    "transpose", "type_as", "unbind", "unflatten", "unfold", "unsafe_chunk", "unsafe_split", "unsqueeze", "upsample_nearest2d",
    "view", "view_as",
})  # fmt: skip
"""Operators that select, reorder, repeat or rename elements, at no cost; dropout in evaluation, too."""

CREATED = frozenset({
    "arange", "empty", "empty_like", "empty_permuted", "eye", "full", "full_like", "linspace", "new_empty", "new_full",
    "new_ones", "new_zeros", "ones", "ones_like", "scalar_tensor", "zeros", "zeros_like",
})  # fmt: skip
"""Operators that make a constant; of their inputs they use the shapes alone."""

IGNORED = frozenset({"_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range_for_size", "sym_size"})
"""Checks and sizes, which compute no tensor."""
