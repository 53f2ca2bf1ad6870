"""Elementwise functions of ONNX in Halley's notation, and rows that are looked up in a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from halley.importers.lowering.node import LoweredNode, NodeView, NotLowered, Shape, dim_names, indexed, real


def _joined(shapes: Sequence[Shape], result: Shape) -> tuple[list[tuple[str, ...]], dict[str, int], tuple[str, ...]]:
    """Dims of operands that are broadcast to a result: by operand its dims; extents; dims of the result. Adjacent axes along
    which the same operands extend are one dim.

    >>> _joined([(2, 3, 4, 4), (3, 1, 1)], (2, 3, 4, 4))
    ([('i', 'j', 'k'), ('j',)], {'i': 2, 'j': 3, 'k': 16}, ('i', 'j', 'k'))
    """
    rank = len(result)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    groups: list[tuple[tuple[bool, ...], int]] = []
    for axis, extent in enumerate(result):
        if extent == 1:
            continue
        pattern = tuple(shape[axis] == extent for shape in padded)
        if any(shape[axis] not in (1, extent) for shape in padded):
            raise NotLowered("operands that do not broadcast")
        if groups and groups[-1][0] == pattern:
            groups[-1] = (pattern, groups[-1][1] * extent)
        else:
            groups.append((pattern, extent))
    if not groups or any(not any(pattern[place] for pattern, _ in groups) for place in range(len(shapes))):
        groups.insert(0, ((True,) * len(shapes), 1))  # an operand without dims gets one of extent 1, as do all others
    names = dim_names(len(groups))
    extents = {name: extent for name, (_, extent) in zip(names, groups, strict=True)}
    dims = [
        tuple(name for name, (pattern, _) in zip(names, groups, strict=True) if pattern[place]) for place in range(len(shapes))
    ]
    return dims, extents, tuple(names)


def function(name: str, constants: str = "") -> Callable[[NodeView], LoweredNode]:
    """A function of all inputs, broadcast against each other."""

    def lowering(node: NodeView) -> LoweredNode:
        return applied(node, name, constants)

    return lowering


def applied(node: NodeView, name: str, constants: str = "", inputs: Sequence[str] | None = None) -> LoweredNode:
    given = list(node.inputs if inputs is None else inputs)
    shapes = [node.shape(item) for item in given]
    dims, extents, whole = _joined(shapes, node.shape(node.outputs[0]))
    letters = [f"X{place}" for place in range(len(given))]
    arguments = ", ".join(indexed(letter, own) for letter, own in zip(letters, dims, strict=True))
    line = f"{indexed('Y', whole)} = {name}({arguments}{constants})"
    return LoweredNode((line,), extents, dict(zip(letters, given, strict=True)), {"Y": node.outputs[0]})


def folded(name: str) -> Callable[[NodeView], LoweredNode]:
    """A function of two arguments over any number of inputs, from left to right."""

    def lowering(node: NodeView) -> LoweredNode:
        given = node.inputs
        if len(given) == 1:
            return applied(node, "identity")
        dims, extents, whole = _joined([node.shape(item) for item in given], node.shape(node.outputs[0]))
        lines, before = [], indexed("X0", dims[0])
        for place in range(1, len(given)):
            result = "Y" if place == len(given) - 1 else f"Y{place}"
            lines.append(f"{indexed(result, whole)} = {name}({before}, {indexed(f'X{place}', dims[place])})")
            before = indexed(result, whole)
        inputs = {f"X{place}": item for place, item in enumerate(given)}
        return LoweredNode(tuple(lines), extents, inputs, {"Y": node.outputs[0]})

    return lowering


def clip(node: NodeView) -> LoweredNode:
    if node.opset < 11:
        raise NotLowered("bounds as attributes")
    bounds = [(place, name) for place, name in ((1, "maximum"), (2, "minimum")) if node.has(place)]
    if not bounds:
        return applied(node, "identity", inputs=node.inputs[:1])
    given = [node.inputs[0], *(node.inputs[place] for place, _ in bounds)]
    dims, extents, whole = _joined([node.shape(item) for item in given], node.shape(node.outputs[0]))
    lines, before = [], indexed("X0", dims[0])
    for place, (_, name) in enumerate(bounds, 1):
        result = "Y" if place == len(bounds) else f"Y{place}"
        lines.append(f"{indexed(result, whole)} = {name}({before}, {indexed(f'X{place}', dims[place])})")
        before = indexed(result, whole)
    return LoweredNode(tuple(lines), extents, {f"X{place}": item for place, item in enumerate(given)}, {"Y": node.outputs[0]})


def gelu(node: NodeView) -> LoweredNode:
    return applied(node, "gelu" if node.get("approximate", "none") == "tanh" else "gelu_erf")


def leaky_relu(node: NodeView) -> LoweredNode:
    slope = real(node.get("alpha", 0.01))
    if not 0 <= slope <= 1:
        raise NotLowered("a slope above 1")
    dims, extents, whole = _joined([node.shape(node.inputs[0])], node.shape(node.outputs[0]))
    at = indexed("X0", dims[0])
    lines = (
        f"{indexed('Z', whole)} = scale({at}, scale={slope!r})",
        f"{indexed('Y', whole)} = maximum({at}, {indexed('Z', whole)})",
    )
    return LoweredNode(lines, extents, {"X0": node.inputs[0]}, {"Y": node.outputs[0]})


def power(node: NodeView) -> LoweredNode:
    exponent = node.constant(1, "the exponent")
    names = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal", 1.0: "identity"}
    value = float(np.asarray(exponent).reshape(-1)[0]) if np.asarray(exponent).size == 1 else math.nan
    if value not in names:
        if value == 3:
            return in_steps(node, node.inputs[0], ["square(@)", "mul(@, $)"])
        raise NotLowered("a power other than 3, 2, 1/2, -1/2, -1")
    return applied(node, names[value], inputs=node.inputs[:1])


def scaled(operator: str) -> Callable[[NodeView], LoweredNode]:
    """A product or quotient; with a known number, without reading that."""

    def lowering(node: NodeView) -> LoweredNode:
        for place in (0, 1) if operator == "mul" else (1,):
            found = np.asarray(node.known.get(node.inputs[place], ()))
            number = float(found.reshape(-1)[0]) if found.size == 1 else 0.0
            other = node.inputs[1 - place]
            if number and math.isfinite(number) and math.prod(node.shape(other)) == math.prod(node.shape(node.outputs[0])):
                factor = real(number) if operator == "mul" else 1 / real(number)
                return in_steps(node, other, [f"scale(@, scale={factor!r})"])
        return applied(node, operator)

    return lowering


def in_steps(node: NodeView, source: str, steps: Sequence[str], constants: Mapping[str, float] | None = None) -> LoweredNode:
    """Elementwise steps on one tensor, each a function of @, the result before it, and of $, the tensor itself. ``constants``:
    scalars that they name, in brackets of their own: ``maximum(@, {low})``."""
    whole = math.prod(node.shape(source))
    extents = {"i": whole}
    scalars = dict(constants or {})
    at = "[u,i]" if scalars else "[i]"
    if scalars:
        extents = {"u": 1, "i": whole}
    lines, last = [], f"X{at}"
    for place, step in enumerate(steps, 1):
        target = f"Y{at}" if place == len(steps) else f"Y{place}{at}"
        value = step.replace("@", last).replace("$", f"X{at}")
        lines.append(f"{target} = {value.format(**{name: f'{name}[u]' for name in scalars})}")
        last = target
    computed = {name: np.full((1,), value) for name, value in scalars.items()}
    return LoweredNode(tuple(lines), extents, {"X": source}, {"Y": node.outputs[0]}, computed)


def absolute(node: NodeView) -> LoweredNode:
    return in_steps(node, node.inputs[0], ["scale(@, scale=-1)", "maximum(@, $)"])


def hard(node: NodeView) -> LoweredNode:
    """max(0, min(1, alpha x + beta)), times x for a swish, whose numbers are 1/6 and 1/2."""
    swish = node.operator == "HardSwish"
    alpha, beta = (1 / 6, 0.5) if swish else (real(node.get("alpha", 0.2)), real(node.get("beta", 0.5)))
    steps = [f"scale(@, scale={alpha!r})", "add(@, {H})", "maximum(@, {A})", "minimum(@, {B})", *(["mul(@, $)"] if swish else [])]
    return in_steps(node, node.inputs[0], steps, {"H": beta, "A": 0.0, "B": 1.0})


def softplus(node: NodeView) -> LoweredNode:
    return in_steps(node, node.inputs[0], ["softplus_bias(@, {C})"], {"C": 0.0})


def swish(node: NodeView) -> LoweredNode:
    if real(node.get("alpha", 1.0)) != 1.0:
        raise NotLowered("a swish with a factor")
    return applied(node, "silu")


def look_up(node: NodeView) -> LoweredNode:
    """Rows of a table by their numbers: a copy of the rows that are looked up, each read once."""
    table, result = node.shape(node.inputs[0]), node.shape(node.outputs[0])
    if int(node.get("axis", 0)) % max(len(table), 1) != 0 or len(table) < 2:
        raise NotLowered("a selection by computed numbers along another axis than the first")
    width = math.prod(table[1:])
    extents = {"m": math.prod(result) // width, "n": width}
    rows = {"X": node.inputs[1]}
    return LoweredNode(("Y[m,n] = X[m,n]",), extents, {"X": node.inputs[0]}, {"Y": node.outputs[0]}, rows=rows)
