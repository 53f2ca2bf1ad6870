"""Reductions, softmax and norms of ONNX in Halley's notation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from halley.importers.lowering.elementwise import applied
from halley.importers.lowering.node import LoweredNode, NodeView, NotLowered, dim_names, indexed, real


def reduction(name: str) -> Callable[[NodeView], LoweredNode]:
    def lowering(node: NodeView) -> LoweredNode:
        shape = node.shape(node.inputs[0])
        if "axes" in node.attributes:
            axes = [int(axis) % len(shape) for axis in node.get("axes", ())]
        elif node.has(1):
            axes = [int(axis) % len(shape) for axis in np.asarray(node.constant(1, "the axes")).reshape(-1)]
        elif node.get("noop_with_empty_axes", 0):
            return applied(node, "identity", inputs=node.inputs[:1])
        else:
            axes = list(range(len(shape)))
        return _reduced(node, name, axes)

    return lowering


def _reduced(node: NodeView, name: str, axes: Sequence[int]) -> LoweredNode:
    """A reduction over axes; adjacent axes of one kind are one dim."""
    shape = node.shape(node.inputs[0])
    groups: list[tuple[bool, int]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        if groups and groups[-1][0] == (axis in axes):
            groups[-1] = (groups[-1][0], groups[-1][1] * extent)
        else:
            groups.append((axis in axes, extent))
    if not any(reduced for reduced, _ in groups):
        return applied(node, "identity", inputs=node.inputs[:1])
    if all(reduced for reduced, _ in groups):
        groups.insert(0, (False, 1))
    names = dim_names(len(groups))
    extents = {dim: extent for dim, (_, extent) in zip(names, groups, strict=True)}
    left = [dim for dim, (reduced, _) in zip(names, groups, strict=True) if not reduced]
    line = f"{indexed('Y', left)} = {name}({indexed('X', names)})"
    return LoweredNode((line,), extents, {"X": node.inputs[0]}, {"Y": node.outputs[0]})


def global_reduction(name: str) -> Callable[[NodeView], LoweredNode]:
    def lowering(node: NodeView) -> LoweredNode:
        return _reduced(node, name, range(2, len(node.shape(node.inputs[0]))))

    return lowering


def _rows(node: NodeView, axis: int, behind: bool = True) -> tuple[dict[str, int], str, str]:
    """The dims before, along and behind an axis: extents, the dims of the whole and of a row's statistics."""
    shape = node.shape(node.inputs[0])
    if not -len(shape) <= axis < max(len(shape), 1):
        raise NotLowered("an axis that the tensor lacks")
    axis %= len(shape)
    end = axis + 1 if behind else len(shape)
    before, along, after = math.prod(shape[:axis]), math.prod(shape[axis:end]), math.prod(shape[end:])
    extents = {"i": before, "n": along} | ({"j": after} if after > 1 else {})
    more = ["j"] if after > 1 else []
    return extents, ",".join(["i", "n", *more]), ",".join(["i", *more])


def softmax(node: NodeView) -> LoweredNode:
    # before opset 13 all axes from the given one on are one row
    axis = int(node.get("axis", -1 if node.opset >= 13 else 1))
    extents, whole, row = _rows(node, axis, node.opset >= 13)
    if extents["n"] == 1:
        raise NotLowered("rows of one element")
    lines = (
        f"mx[{row}] = max(X[{whole}])",
        f"E[{whole}] = exp_difference(X[{whole}], mx[{row}])",
        f"z[{row}] = sum(E[{whole}])",
        f"Y[{whole}] = divide(E[{whole}], z[{row}])",
    )
    return LoweredNode(lines, extents, {"X": node.inputs[0]}, {"Y": node.outputs[0]})


def log_softmax(node: NodeView) -> LoweredNode:
    made = softmax(node)
    whole, row = made.lines[-1].split(" = ")[0].removeprefix("Y"), made.lines[0].split(" = ")[0].removeprefix("mx")
    lines = (
        *made.lines[:-1],
        f"l{row} = log(z{row})",
        f"D{whole} = subtract(X{whole}, mx{row})",
        f"Y{whole} = subtract(D{whole}, l{row})",
    )
    return LoweredNode(lines, made.dims, made.inputs, made.outputs)


def groupnorm(node: NodeView) -> LoweredNode:
    """A norm of each group of channels, with a gain and a bias for each channel."""
    shape, groups = node.shape(node.inputs[0]), int(node.get("num_groups", 1))
    if len(shape) < 3 or shape[1] % groups or math.prod(node.shape(node.inputs[1])) != shape[1]:
        raise NotLowered("gains that are not those of the channels")
    extents = {"i": shape[0], "g": groups, "c": shape[1] // groups, "j": math.prod(shape[2:])}
    if extents["c"] * extents["j"] == 1:
        raise NotLowered("groups of one element")
    lines = (
        "m[i,g] = mean(X[i,g,c,j])",
        "v[i,g] = sum(square_difference(X[i,g,c,j], m[i,g]))",
        f"r[i,g] = rsqrt_mean(v[i,g], count={extents['c'] * extents['j']}, epsilon={real(node.get('epsilon', 1e-5))!r})",
        "Y[i,g,c,j] = normalise_affine(X[i,g,c,j], m[i,g], r[i,g], G[g,c], B[g,c])",
    )
    return LoweredNode(lines, extents, dict(zip("XGB", node.inputs, strict=True)), {"Y": node.outputs[0]})


def layernorm(node: NodeView) -> LoweredNode:
    if len([name for name in node.outputs if name]) > 1:
        raise NotLowered("a norm that also gives its statistics")
    extents, _, _ = _rows(node, int(node.get("axis", -1)), behind=False)
    epsilon, count = real(node.get("epsilon", 1e-5)), extents["n"]
    if math.prod(node.shape(node.inputs[1])) != count:
        raise NotLowered("gains that are not those of one row")
    if node.operator == "RMSNormalization":
        short = (
            "v[i] = sum(square(X[i,n]))",
            f"r[i] = rsqrt_mean(v[i], count={count}, epsilon={epsilon!r})",
            "Y[i,n] = normalise_gain(X[i,n], r[i], G[n])",
        )
        return LoweredNode(short, extents, {"X": node.inputs[0], "G": node.inputs[1]}, {"Y": node.outputs[0]})
    statistics = (
        "m[i] = mean(X[i,n])",
        "v[i] = sum(square_difference(X[i,n], m[i]))",
        f"r[i] = rsqrt_mean(v[i], count={count}, epsilon={epsilon!r})",
    )
    inputs = {"X": node.inputs[0], "G": node.inputs[1]}
    gain = np.asarray(node.known.get(node.inputs[1], ()))
    if not node.has(2) and gain.size == count and (gain == 1).all():
        del inputs["G"]
        return LoweredNode((*statistics, "Y[i,n] = normalise(X[i,n], m[i], r[i])"), extents, inputs, {"Y": node.outputs[0]})
    if not node.has(2):
        gained = ("N[i,n] = normalise(X[i,n], m[i], r[i])", "Y[i,n] = mul(N[i,n], G[n])")
        return LoweredNode((*statistics, *gained), extents, inputs, {"Y": node.outputs[0]})
    lines = (*statistics, "Y[i,n] = normalise_affine(X[i,n], m[i], r[i], G[n], B[n])")
    inputs["B"] = node.inputs[2]
    return LoweredNode(lines, extents, inputs, {"Y": node.outputs[0]})


def instancenorm(node: NodeView) -> LoweredNode:
    """A norm of each channel of each image."""
    shape = node.shape(node.inputs[0])
    count = math.prod(shape[2:])
    if len(shape) < 3 or count == 1:
        raise NotLowered("channels of one element")
    epsilon = real(node.get("epsilon", 1e-5))
    lines = (
        "m[i,c] = mean(X[i,c,j])",
        "v[i,c] = sum(square_difference(X[i,c,j], m[i,c]))",
        f"r[i,c] = rsqrt_mean(v[i,c], count={count}, epsilon={epsilon!r})",
        "Y[i,c,j] = normalise_affine(X[i,c,j], m[i,c], r[i,c], G[c], B[c])",
    )
    inputs = {"X": node.inputs[0], "G": node.inputs[1], "B": node.inputs[2]}
    return LoweredNode(lines, {"i": shape[0], "c": shape[1], "j": count}, inputs, {"Y": node.outputs[0]})


def batchnorm(node: NodeView) -> LoweredNode:
    if len([name for name in node.outputs if name]) > 1 and node.opset >= 14:
        raise NotLowered("statistics of a batch in training")
    shape = node.shape(node.inputs[0])
    if len(shape) < 2:
        raise NotLowered("a tensor without channels")
    extents = {"i": shape[0], "c": shape[1], "j": math.prod(shape[2:])}
    dims = [name for name, extent in extents.items() if extent > 1 or name == "c"]
    whole, epsilon = ",".join(dims), real(node.get("epsilon", 1e-5))
    lines = (
        f"r[c] = rsqrt_mean(V[c], count=1, epsilon={epsilon!r})",
        f"Y[{whole}] = normalise_affine(X[{whole}], M[c], r[c], G[c], B[c])",
    )
    inputs = dict(zip("XGBMV", node.inputs, strict=True))
    return LoweredNode(lines, {name: extents[name] for name in dims}, inputs, {"Y": node.outputs[0]})


def local_response(node: NodeView) -> LoweredNode:
    """x / (bias + alpha / size * the sum of squares over ``size`` channels)^0.75, by r = rsqrt(...) as x * r * sqrt(r)."""
    if not math.isclose(float(node.get("beta", 0.75)), 0.75, rel_tol=1e-6):
        raise NotLowered("an exponent other than 3/4")
    size, alpha, bias = int(node.get("size", 1)), real(node.get("alpha", 1e-4)), real(node.get("bias", 1.0))
    shape = node.shape(node.inputs[0])
    if size < 2 or alpha <= 0 or len(shape) < 2:
        raise NotLowered("a window of one channel")
    extents = {"i": shape[0], "c": shape[1], "r": size, "h": shape[1], "j": math.prod(shape[2:])}
    dims = [name for name in "icj" if extents[name] > 1 or name == "c"]
    whole, image = ",".join(dims), ",".join("h" if name == "c" else name for name in dims)
    before = (size - 1) // 2
    read = ",".join(f"c+r-{before}" if name == "c" and before else "c+r" if name == "c" else name for name in dims)
    lines = (
        f"X[{image}]",
        f"q[{whole}] = sum(square(X[{read}]))",
        f"r[{whole}] = rsqrt_mean(q[{whole}], count={size / alpha!r}, epsilon={bias!r})",
        f"s[{whole}] = sqrt(r[{whole}])",
        f"Y[{whole}] = product(X2[{whole}], r[{whole}], s[{whole}])",
    )
    kept = {name: extents[name] for name in (*dims, "r", "h")}
    return LoweredNode(lines, kept, {"X": node.inputs[0], "X2": node.inputs[0]}, {"Y": node.outputs[0]})
