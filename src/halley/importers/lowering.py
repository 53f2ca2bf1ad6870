"""Operators of ONNX in Halley's notation.

Each function gets a `NodeView` and gives a `LoweredNode`. Tensors keep the order of the elements of their values, so that a
value becomes a tensor by a reshape: axes of extent 1 are dropped, and axes along which all operands behave alike are joined. A
node that has no equal graph raises `NotLowered` with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halley.importers.network import LoweredNode

Shape = tuple[int, ...]
PLACES_LIMIT = 10**7
"""Most places of an average pooling, and elements read along an axis: the sizes of its windows are counted one by one."""


class NotLowered(Exception):
    """The node has no equal graph; the message says why."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: its attributes, the names of its ``inputs`` ("" where one is left out) and ``outputs``, the shapes of all values,
    and the ``known`` values. ``opset``: of the operators."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    known: Mapping[str, Any]
    opset: int

    def shape(self, name: str) -> Shape:
        if name not in self.shapes:
            raise NotLowered(f"the shape of {name[:40]!r} is not known")
        shape = self.shapes[name]
        if 0 in shape:
            raise NotLowered(f"{name[:40]!r} has no elements")
        return shape

    def has(self, place: int) -> bool:
        """Whether an optional input is there."""
        return place < len(self.inputs) and bool(self.inputs[place])

    def get(self, name: str, default: Any) -> Any:
        return self.attributes.get(name, default)

    def constant(self, place: int, what: str) -> Any:
        """The value of an input that has to be known."""
        name = self.inputs[place]
        if name not in self.known:
            raise NotLowered(f"{what} is computed")
        return self.known[name]


def lower(node: NodeView) -> LoweredNode:
    """The node as a graph. Raises NotLowered: there is none."""
    if node.operator not in LOWERINGS:
        raise NotLowered("an operator without a lowering")
    return LOWERINGS[node.operator](node)


def _real(value: Any) -> float:
    """An attribute, which is fp32, as the number that was meant.

    >>> _real(np.float32(1e-5))
    1e-05
    """
    return float(str(np.float32(value)))


# --- elementwise functions ----------------------------------------------------------------------------------------------------


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
    names = _names(len(groups))
    extents = {name: extent for name, (_, extent) in zip(names, groups, strict=True)}
    dims = [
        tuple(name for name, (pattern, _) in zip(names, groups, strict=True) if pattern[place]) for place in range(len(shapes))
    ]
    return dims, extents, tuple(names)


def _names(count: int) -> list[str]:
    return list("ijklmnopq"[:count]) if count <= 9 else [f"i_{place}" for place in range(count)]


def _at(name: str, dims: Sequence[str]) -> str:
    return f"{name}[{','.join(dims)}]"


def _function(name: str, constants: str = "") -> Callable[[NodeView], LoweredNode]:
    """A function of all inputs, broadcast against each other."""

    def lowering(node: NodeView) -> LoweredNode:
        return _map(node, name, constants)

    return lowering


def _map(node: NodeView, name: str, constants: str = "", inputs: Sequence[str] | None = None) -> LoweredNode:
    given = list(node.inputs if inputs is None else inputs)
    shapes = [node.shape(item) for item in given]
    dims, extents, whole = _joined(shapes, node.shape(node.outputs[0]))
    letters = [f"X{place}" for place in range(len(given))]
    arguments = ", ".join(_at(letter, own) for letter, own in zip(letters, dims, strict=True))
    line = f"{_at('Y', whole)} = {name}({arguments}{constants})"
    return LoweredNode((line,), extents, dict(zip(letters, given, strict=True)), {"Y": node.outputs[0]})


def _folded(name: str) -> Callable[[NodeView], LoweredNode]:
    """A function of two arguments over any number of inputs, from left to right."""

    def lowering(node: NodeView) -> LoweredNode:
        given = node.inputs
        if len(given) == 1:
            return _map(node, "identity")
        dims, extents, whole = _joined([node.shape(item) for item in given], node.shape(node.outputs[0]))
        lines, before = [], _at("X0", dims[0])
        for place in range(1, len(given)):
            result = "Y" if place == len(given) - 1 else f"Y{place}"
            lines.append(f"{_at(result, whole)} = {name}({before}, {_at(f'X{place}', dims[place])})")
            before = _at(result, whole)
        inputs = {f"X{place}": item for place, item in enumerate(given)}
        return LoweredNode(tuple(lines), extents, inputs, {"Y": node.outputs[0]})

    return lowering


def _clip(node: NodeView) -> LoweredNode:
    if node.opset < 11:
        raise NotLowered("bounds as attributes")
    bounds = [(place, name) for place, name in ((1, "maximum"), (2, "minimum")) if node.has(place)]
    if not bounds:
        return _map(node, "identity", inputs=node.inputs[:1])
    given = [node.inputs[0], *(node.inputs[place] for place, _ in bounds)]
    dims, extents, whole = _joined([node.shape(item) for item in given], node.shape(node.outputs[0]))
    lines, before = [], _at("X0", dims[0])
    for place, (_, name) in enumerate(bounds, 1):
        result = "Y" if place == len(bounds) else f"Y{place}"
        lines.append(f"{_at(result, whole)} = {name}({before}, {_at(f'X{place}', dims[place])})")
        before = _at(result, whole)
    return LoweredNode(tuple(lines), extents, {f"X{place}": item for place, item in enumerate(given)}, {"Y": node.outputs[0]})


def _gelu(node: NodeView) -> LoweredNode:
    return _map(node, "gelu" if node.get("approximate", "none") == "tanh" else "gelu_erf")


def _leaky_relu(node: NodeView) -> LoweredNode:
    slope = _real(node.get("alpha", 0.01))
    if not 0 <= slope <= 1:
        raise NotLowered("a slope above 1")
    dims, extents, whole = _joined([node.shape(node.inputs[0])], node.shape(node.outputs[0]))
    at = _at("X0", dims[0])
    lines = (f"{_at('Z', whole)} = scale({at}, scale={slope!r})", f"{_at('Y', whole)} = maximum({at}, {_at('Z', whole)})")
    return LoweredNode(lines, extents, {"X0": node.inputs[0]}, {"Y": node.outputs[0]})


def _power(node: NodeView) -> LoweredNode:
    exponent = node.constant(1, "the exponent")
    names = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal", 1.0: "identity"}
    value = float(np.asarray(exponent).reshape(-1)[0]) if np.asarray(exponent).size == 1 else math.nan
    if value not in names:
        if value == 3:
            return in_steps(node, node.inputs[0], ["square(@)", "mul(@, $)"])
        raise NotLowered("a power other than 3, 2, 1/2, -1/2, -1")
    return _map(node, names[value], inputs=node.inputs[:1])


def _scaled(operator: str) -> Callable[[NodeView], LoweredNode]:
    """A product or quotient; with a known number, without reading that."""

    def lowering(node: NodeView) -> LoweredNode:
        for place in (0, 1) if operator == "mul" else (1,):
            found = np.asarray(node.known.get(node.inputs[place], ()))
            number = float(found.reshape(-1)[0]) if found.size == 1 else 0.0
            other = node.inputs[1 - place]
            if number and math.isfinite(number) and math.prod(node.shape(other)) == math.prod(node.shape(node.outputs[0])):
                factor = _real(number) if operator == "mul" else 1 / _real(number)
                return in_steps(node, other, [f"scale(@, scale={factor!r})"])
        return _map(node, operator)

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


def _absolute(node: NodeView) -> LoweredNode:
    return in_steps(node, node.inputs[0], ["scale(@, scale=-1)", "maximum(@, $)"])


def _hard(node: NodeView) -> LoweredNode:
    """max(0, min(1, alpha x + beta)), times x for a swish, whose numbers are 1/6 and 1/2."""
    swish = node.operator == "HardSwish"
    alpha, beta = (1 / 6, 0.5) if swish else (_real(node.get("alpha", 0.2)), _real(node.get("beta", 0.5)))
    steps = [f"scale(@, scale={alpha!r})", "add(@, {H})", "maximum(@, {A})", "minimum(@, {B})", *(["mul(@, $)"] if swish else [])]
    return in_steps(node, node.inputs[0], steps, {"H": beta, "A": 0.0, "B": 1.0})


def _softplus(node: NodeView) -> LoweredNode:
    return in_steps(node, node.inputs[0], ["softplus_bias(@, {C})"], {"C": 0.0})


def _look_up(node: NodeView) -> LoweredNode:
    """Rows of a table by their numbers: a copy of the rows that are looked up, each read once."""
    table, result = node.shape(node.inputs[0]), node.shape(node.outputs[0])
    if int(node.get("axis", 0)) % max(len(table), 1) != 0 or len(table) < 2:
        raise NotLowered("a selection by computed numbers along another axis than the first")
    width = math.prod(table[1:])
    extents = {"m": math.prod(result) // width, "n": width}
    rows = {"X": node.inputs[1]}
    return LoweredNode(("Y[m,n] = X[m,n]",), extents, {"X": node.inputs[0]}, {"Y": node.outputs[0]}, rows=rows)


# --- products -----------------------------------------------------------------------------------------------------------------


def _gemm(node: NodeView) -> LoweredNode:
    a, b = node.shape(node.inputs[0]), node.shape(node.inputs[1])
    if len(a) != 2 or len(b) != 2:
        raise NotLowered("operands that are no matrices")
    turned = node.get("transA", 0), node.get("transB", 0)
    rows, inner = (a[1], a[0]) if turned[0] else a
    columns = b[0] if turned[1] else b[1]
    first = "X[k,m]" if turned[0] else "X[m,k]"
    second = "W[n,k]" if turned[1] else "W[k,n]"
    alpha, beta = _real(node.get("alpha", 1.0)), _real(node.get("beta", 1.0))
    biased = node.has(2) and beta != 0
    steps: list[str] = [f"= {first} * {second}"]
    if alpha != 1.0:
        steps.append(f"= scale(@, scale={alpha!r})")
    extents = {"m": rows, "n": columns, "k": inner}
    inputs = {"X": node.inputs[0], "W": node.inputs[1]}
    before: list[str] = []
    if biased:
        shape = node.shape(node.inputs[2])
        padded = (1,) * (2 - len(shape)) + tuple(shape)
        own = [name for name, extent, whole in zip("mn", padded, (rows, columns), strict=True) if extent == whole and extent > 1]
        if not own:
            own, extents = ["u"], extents | {"u": 1}
            raise NotLowered("a bias of one number")
        inputs["C"] = node.inputs[2]
        source = _at("C", own)
        if beta != 1.0:
            before.append(f"{_at('D', own)} = scale({source}, scale={beta!r})")
            source = _at("D", own)
        steps.append(f"= add(@, {source})")
    return LoweredNode((*before, *_chain(steps, "[m,n]")), extents, inputs, {"Y": node.outputs[0]})


def _chain(steps: Sequence[str], at: str) -> list[str]:
    """Lines one after the other, @ for the result of the line before; the last one makes Y."""
    lines, last = [], ""
    for place, step in enumerate(steps, 1):
        result = f"Y{at}" if place == len(steps) else f"Y{place}{at}"
        lines.append(f"{result} {step.replace('@', last)}")
        last = result
    return lines


def _matmul(node: NodeView) -> LoweredNode:
    a, b = node.shape(node.inputs[0]), node.shape(node.inputs[1])
    if len(a) < 2 or len(b) < 2:
        raise NotLowered("a product with a vector")
    rows, inner, columns = a[-2], a[-1], b[-1]
    batch = node.shape(node.outputs[0])[:-2]
    if len(b) == 2 or all(extent == 1 for extent in b[:-2]):  # all rows meet the same matrix
        extents = {"m": math.prod(a[:-1]), "n": columns, "k": inner}
        if node.has(2):
            lines = ("Y1[m,n] = X[m,k] * W[k,n]", "Y[m,n] = add(Y1[m,n], B[n])")
            return LoweredNode(lines, extents, _two(node) | {"B": node.inputs[2]}, {"Y": node.outputs[0]})
        return LoweredNode(("Y[m,n] = X[m,k] * W[k,n]",), extents, _two(node), {"Y": node.outputs[0]})
    names = [f"b{place}" for place in range(len(batch))]
    extents = {name: extent for name, extent in zip(names, batch, strict=True) if extent > 1}
    own = []
    for shape in (a, b):
        padded = (1,) * (len(batch) + 2 - len(shape)) + tuple(shape)
        own.append([name for name, extent in zip(names, padded, strict=False) if name in extents and extent > 1])
    result = [name for name in names if name in extents]
    line = f"{_at('Y', [*result, 'm', 'n'])} = {_at('X', [*own[0], 'm', 'k'])} * {_at('W', [*own[1], 'k', 'n'])}"
    return LoweredNode((line,), extents | {"m": rows, "n": columns, "k": inner}, _two(node), {"Y": node.outputs[0]})


def _two(node: NodeView) -> dict[str, str]:
    return {"X": node.inputs[0], "W": node.inputs[1]}


_EQUATION = re.compile(r"([a-zA-Z]+)(?:,([a-zA-Z]+))?->([a-zA-Z]*)")


def _einsum(node: NodeView) -> LoweredNode:
    """Einsums of one or two operands, each letter once in an operand."""
    found = _EQUATION.fullmatch(str(node.get("equation", "")).replace(" ", ""))
    if not found or len(node.inputs) != (2 if found[2] else 1):
        raise NotLowered("an equation with other than one or two operands and a result")
    operands, result = [word for word in found.groups()[:2] if word], found[3]
    extents: dict[str, int] = {}
    for word, name in zip(operands, node.inputs, strict=True):
        shape = node.shape(name)
        if len(shape) != len(word) or len(set(word)) != len(word):
            raise NotLowered("an equation with a letter twice in one operand")
        for letter, extent in zip(word, shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                raise NotLowered("an equation that broadcasts")
    if not result or len(set(result)) != len(result) or set(result) - set(extents):
        raise NotLowered("an equation whose result has no dims of its own")
    letters = ("X", "W")[: len(operands)]
    terms = [_at(letter, word) for letter, word in zip(letters, operands, strict=True)]
    summed = set(extents) - set(result)
    if len(operands) == 1:
        value = f"sum({terms[0]})" if summed else terms[0]
    elif all(summed <= set(word) for word in operands):
        value = " * ".join(terms)
    else:
        value = f"sum(mul({', '.join(terms)}))"
    inputs = dict(zip(letters, node.inputs, strict=True))
    return LoweredNode((f"{_at('Y', result)} = {value}",), extents, inputs, {"Y": node.outputs[0]})


def _attention(node: NodeView) -> LoweredNode:
    """softmax(scale Q K^T + mask) V for all heads, from operands with an axis of heads or with heads side by side. A mask of
    numbers is added; one of truths (the attribute ``boolean``) is read as infinities, of which the minimum is taken: a tile whose
    keys are all masked is computed like any other. ``turned``: keys have their axis of channels before that of the keys."""
    if any(node.has(place) for place in range(4, len(node.inputs))) or any(node.outputs[1:]):
        raise NotLowered("attention with a cache or more results")
    if _real(node.get("softcap", 0.0)) or node.get("softmax_precision", None):
        raise NotLowered("attention with a soft cap, or a softmax of its own element type")
    queries, keys, values = (node.shape(name) for name in node.inputs[:3])
    if len(queries) == 4:
        heads, kv_heads, split = queries[1], keys[1], queries[3]
        rows, columns, made = queries[2], values[2], values[3]
        order = "bhgmd", "bhdn" if node.get("turned", 0) else "bhnd", "bhne", "bhgme"
    else:
        heads, kv_heads = int(node.get("q_num_heads", 0)), int(node.get("kv_num_heads", 0))
        if len(queries) != 3 or heads < 1 or kv_heads < 1 or queries[2] % heads or values[2] % kv_heads:
            raise NotLowered("heads that do not divide the operands")
        rows, columns, split, made = queries[1], keys[1], queries[2] // heads, values[2] // kv_heads
        order = "bmhgd", "bnhd", "bnhe", "bmhge"
    if heads % kv_heads:
        raise NotLowered("key heads that do not divide the query heads")
    extents = {"b": queries[0], "h": kv_heads, "g": heads // kv_heads, "m": rows, "n": columns, "d": split, "e": made}
    kept = {name for name, extent in extents.items() if extent > 1 or name in "mnde"}
    q, k, v, o = (_at(letter, [name for name in word if name in kept]) for letter, word in zip("QKVY", order, strict=True))
    row = [name for name in "bhgm" if name in kept]
    whole, at = ",".join([*row, "n"]), ",".join(row)
    scale = _real(node.get("scale", None) or 1 / math.sqrt(split))
    scaled = f"scale(S[{whole}], scale={scale!r})"
    if node.get("is_causal", 0):
        scaled = f"scale_mask(S[{whole}], scale={scale!r}, causal=1, queries={rows}, offset=0)"
    scaling = [f"T[{whole}] = {scaled}"]
    inputs = dict(zip("QKV", node.inputs[:3], strict=True))
    if node.has(3):
        function = "minimum" if node.get("boolean", 0) else "add"
        own = _mask_dims(node, heads, kv_heads, rows, columns)
        scaling = [f"R[{whole}] = {scaled}", f"T[{whole}] = {function}(R[{whole}], {_at('M', own)})"]
        inputs["M"] = node.inputs[3]
    lines = (
        f"S[{whole}] = {q} * {k}",
        *scaling,
        f"mx[{at}] = max(T[{whole}])",
        f"E[{whole}] = exp_difference(T[{whole}], mx[{at}])",
        f"z[{at}] = sum(E[{whole}])",
        f"P[{whole}] = divide(E[{whole}], z[{at}])",
        f"{o} = P[{whole}] * {v}",
    )
    return LoweredNode(lines, {name: extents[name] for name in extents if name in kept}, inputs, {"Y": node.outputs[0]})


def _mask_dims(node: NodeView, heads: int, kv_heads: int, rows: int, columns: int) -> list[str]:
    """The dims of the mask of an attention."""
    shape = node.shape(node.inputs[3])
    padded = (1,) * (4 - len(shape)) + tuple(shape)
    batch = node.shape(node.inputs[0])[0]
    fits = zip(padded, (batch, heads, rows, columns), strict=False)
    if len(padded) != 4 or any(extent not in (1, whole) for extent, whole in fits):
        raise NotLowered("a mask that does not broadcast")
    if padded[3] == 1:
        raise NotLowered("a mask without an axis of keys")
    split = (kv_heads, heads // kv_heads) if padded[1] > 1 else (1, 1)
    return [name for name, extent in zip("bhgmn", (padded[0], *split, *padded[2:]), strict=True) if extent > 1]


# --- windows ------------------------------------------------------------------------------------------------------------------


def _times(coefficient: int) -> str:
    return f"{coefficient}*" if coefficient != 1 else ""


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows along each spatial axis: extents of the image and the result, taps, strides, distances of taps, padding before and
    behind."""

    image: Shape
    result: Shape
    taps: Shape
    strides: Shape
    distances: Shape
    before: Shape
    behind: Shape

    def place(self, axis: int) -> str:
        """The position of a tap in the image: a sum of dims p and r of that axis."""
        pad, taps = self.before[axis], f"+{_times(self.distances[axis])}r{axis}" if self.taps[axis] > 1 else ""
        return f"{_times(self.strides[axis])}p{axis}{taps}" + (f"-{pad}" if pad else "")

    def kept(self, axis: int) -> bool:
        """Whether the axis is there at all: not one place of one tap in an image of one row."""
        return (self.image[axis], self.result[axis], self.taps[axis]) != (1, 1, 1)

    def whole(self, axis: int) -> bool:
        """Whether the only window is the whole image, tap by tap."""
        single = self.result[axis] == 1 and self.taps[axis] == self.image[axis] and self.distances[axis] == 1
        return single and not self.before[axis] and not self.behind[axis]

    def direct(self, axis: int) -> bool:
        """Whether each place has one tap, which is in the image: only those elements of the image are read."""
        return self.taps[axis] == 1 and not self.before[axis] and not self.behind[axis]

    @property
    def skipped(self) -> Shape:
        """By axis of the image, the distance of the elements that are read at all; 1 where all of them may be."""
        return tuple(self.strides[axis] if self.direct(axis) else 1 for axis in range(len(self.image)))


def _windows(node: NodeView, taps: Shape) -> _Windows:
    image, result = node.shape(node.inputs[0])[2:], node.shape(node.outputs[0])[2:]
    rank = len(image)
    strides = tuple(node.get("strides", (1,) * rank))
    distances = tuple(node.get("dilations", (1,) * rank))
    pads = tuple(node.get("pads", (0,) * (2 * rank)))
    if not rank or len(taps) != rank or len(strides) != rank or len(distances) != rank or len(pads) != 2 * rank:
        raise NotLowered("windows of another rank than the image")
    auto = node.get("auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID"):
        needed = [
            max((out - 1) * stride + distance * (tap - 1) + 1 - size, 0)
            for out, stride, distance, tap, size in zip(result, strides, distances, taps, image, strict=True)
        ]
        small = [each // 2 for each in needed]
        large = [each - half for each, half in zip(needed, small, strict=True)]
        pads = (*small, *large) if auto == "SAME_UPPER" else (*large, *small)
    elif auto == "VALID":
        pads = (0,) * (2 * rank)
    if min((*taps, *strides, *distances)) < 1 or min(pads) < 0:
        raise NotLowered("windows with sizes below 1")
    return _Windows(image, result, taps, strides, distances, pads[:rank], pads[rank:])


def _spatial(windows: _Windows) -> tuple[dict[str, int], list[str], list[str], list[str], list[str]]:
    """Extents; names of the image's axes, of the places that are read, of the result's axes, and of the taps."""
    extents: dict[str, int] = {}
    image, places, result, taps = list[str](), list[str](), list[str](), list[str]()
    for axis in range(len(windows.image)):
        if not windows.kept(axis):
            continue
        if windows.direct(axis):
            extents[f"p{axis}"] = windows.result[axis]
            for names in (image, places, result):
                names.append(f"p{axis}")
            continue
        if windows.whole(axis):
            extents[f"r{axis}"] = windows.image[axis]
            for names in (image, places, taps):
                names.append(f"r{axis}")
            continue
        extents |= {f"h{axis}": windows.image[axis], f"p{axis}": windows.result[axis]}
        image.append(f"h{axis}")
        result.append(f"p{axis}")
        if windows.taps[axis] > 1:
            extents[f"r{axis}"] = windows.taps[axis]
            taps.append(f"r{axis}")
        places.append(windows.place(axis))
    return extents, image, places, result, taps


def _conv(node: NodeView) -> LoweredNode:
    weights = node.shape(node.inputs[1])
    windows = _windows(node, weights[2:])
    extents, image, places, result, taps = _spatial(windows)
    batch, channels = node.shape(node.inputs[0])[:2]
    groups, filters = int(node.get("group", 1)), weights[0]
    if groups < 1 or channels % groups or filters % groups or weights[1] != channels // groups:
        raise NotLowered("groups that do not divide the channels")
    own = {"b": batch, "g": groups, "f": filters // groups, "c": channels // groups}
    kept = {name for name, extent in own.items() if extent > 1}
    kept |= set() if kept & {"f", "g"} else {"f"}
    kept |= {"c"} if not taps else set()  # there is something to sum over
    extents = {name: extent for name, extent in own.items() if name in kept} | extents

    def dims(names: str, more: Sequence[str]) -> list[str]:
        return [*(name for name in names if name in kept), *more]

    over_image, at = dims("bgc", image), dims("bgf", result)
    lines = [_at("X", over_image)] if places != image else []
    biased = node.has(2)
    first = "Y1" if biased else "Y"
    lines.append(f"{_at(first, at)} = {_at('X', dims('bgc', places))} * {_at('W', dims('gfc', taps))}")
    inputs = _two(node)
    if biased:
        lines.append(f"{_at('Y', at)} = add({_at('Y1', at)}, {_at('B', dims('gf', ()))})")
        inputs["B"] = node.inputs[2]
    steps = {"X": (1, 1, *windows.skipped)} if max(windows.skipped) > 1 else {}
    return LoweredNode(tuple(lines), extents, inputs, {"Y": node.outputs[0]}, steps=steps)


def _conv_transpose(node: NodeView) -> LoweredNode:
    """A transposed convolution whose windows do not overlap: each element of the image becomes a window of the result."""
    image, weights, result = (node.shape(name) for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    rank = len(weights) - 2
    taps = weights[2:]
    whole = tuple(size * tap for size, tap in zip(image[2:], taps, strict=True))
    if len(image) != rank + 2 or int(node.get("group", 1)) != 1 or tuple(node.get("strides", (1,) * rank)) != taps:
        raise NotLowered("a transposed convolution of groups, or with windows that overlap")
    if result != (image[0], weights[1], *whole) or max(node.get("dilations", (1,))) > 1:
        raise NotLowered("a transposed convolution with padding")
    extents = {"b": image[0], "f": weights[1], "c": image[1]}
    if extents["b"] == 1:
        del extents["b"]
    places, own = [f"p{axis}" for axis in range(rank)], [f"r{axis}" for axis in range(rank)]
    extents |= dict(zip(places, image[2:], strict=True)) | dict(zip(own, taps, strict=True))
    at = [*(name for name in "bf" if name in extents), *(name for pair in zip(places, own, strict=True) for name in pair)]
    read = [*(name for name in "bc" if name in extents), *places]
    biased = node.has(2)
    first = "Y1" if biased else "Y"
    lines = [f"{_at(first, at)} = {_at('X', read)} * {_at('W', ['c', 'f', *own])}"]
    inputs = _two(node)
    if biased:
        lines.append(f"{_at('Y', at)} = add({_at('Y1', at)}, B[f])")
        inputs["B"] = node.inputs[2]
    return LoweredNode(tuple(lines), extents, inputs, {"Y": node.outputs[0]})


def _pool(node: NodeView) -> LoweredNode:
    taps = tuple(node.get("kernel_shape", ()))
    if len(node.outputs) > 1 and node.outputs[1]:
        raise NotLowered("a pooling that gives the places of its maxima")
    windows = _windows(node, taps)
    extents, image, places, result, reduced = _spatial(windows)
    if not reduced:
        if places != image or max(windows.skipped) > 1:
            raise NotLowered("a pooling that only skips elements")
        return _map(node, "identity", inputs=node.inputs[:1])
    planes = math.prod(node.shape(node.inputs[0])[:2])
    extents = {"c": planes} | extents
    if max(windows.skipped) > 1:
        raise NotLowered("a pooling that skips rows")
    lines = [_at("X", ["c", *image])]
    source, at = _at("X", ["c", *places]), ["c", *result]
    inputs, outputs = {"X": node.inputs[0]}, {"Y": node.outputs[0]}
    if node.operator == "MaxPool":
        return LoweredNode((*lines, f"{_at('Y', at)} = max({source})"), extents, inputs, outputs)
    if (
        math.prod(windows.result) > PLACES_LIMIT
        or max(out * tap for out, tap in zip(windows.result, taps, strict=True)) > PLACES_LIMIT
    ):
        raise NotLowered(f"more than {PLACES_LIMIT:,} places with windows of several sizes")
    shares = _shares(windows, bool(node.get("count_include_pad", 0)))
    if (shares == shares.flat[0]).all() and math.isclose(1 / shares.flat[0], math.prod(windows.taps)):
        return LoweredNode((*lines, f"{_at('Y', at)} = mean({source})"), extents, inputs, outputs)
    lines += [f"{_at('S', at)} = sum({source})", f"{_at('Y', at)} = mul({_at('S', at)}, {_at('D', result)})"]
    return LoweredNode(tuple(lines), extents, inputs, outputs, {"D": shares.reshape([extents[name] for name in result])})


def _shares(windows: _Windows, padded: bool) -> Any:
    """By place of the result, 1 / the number of elements of its window; ``padded``: those of the padding count."""
    counts = np.ones((), float)
    for axis in range(len(windows.image)):
        places = np.arange(windows.result[axis])[:, None] * windows.strides[axis] - windows.before[axis]
        taps = places + np.arange(windows.taps[axis]) * windows.distances[axis]
        low, high = (-windows.before[axis], windows.image[axis] + windows.behind[axis]) if padded else (0, windows.image[axis])
        counts = np.multiply.outer(counts, ((taps >= low) & (taps < high)).sum(axis=1))
    return 1.0 / np.maximum(counts, 1)


# --- reductions and norms -----------------------------------------------------------------------------------------------------


def _reduction(name: str) -> Callable[[NodeView], LoweredNode]:
    def lowering(node: NodeView) -> LoweredNode:
        shape = node.shape(node.inputs[0])
        if "axes" in node.attributes:
            axes = [int(axis) % len(shape) for axis in node.get("axes", ())]
        elif node.has(1):
            axes = [int(axis) % len(shape) for axis in np.asarray(node.constant(1, "the axes")).reshape(-1)]
        elif node.get("noop_with_empty_axes", 0):
            return _map(node, "identity", inputs=node.inputs[:1])
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
        return _map(node, "identity", inputs=node.inputs[:1])
    if all(reduced for reduced, _ in groups):
        groups.insert(0, (False, 1))
    names = _names(len(groups))
    extents = {dim: extent for dim, (_, extent) in zip(names, groups, strict=True)}
    left = [dim for dim, (reduced, _) in zip(names, groups, strict=True) if not reduced]
    line = f"{_at('Y', left)} = {name}({_at('X', names)})"
    return LoweredNode((line,), extents, {"X": node.inputs[0]}, {"Y": node.outputs[0]})


def _global(name: str) -> Callable[[NodeView], LoweredNode]:
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


def _softmax(node: NodeView) -> LoweredNode:
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


def _log_softmax(node: NodeView) -> LoweredNode:
    made = _softmax(node)
    whole, row = made.lines[-1].split(" = ")[0].removeprefix("Y"), made.lines[0].split(" = ")[0].removeprefix("mx")
    lines = (
        *made.lines[:-1],
        f"l{row} = log(z{row})",
        f"D{whole} = subtract(X{whole}, mx{row})",
        f"Y{whole} = subtract(D{whole}, l{row})",
    )
    return LoweredNode(lines, made.dims, made.inputs, made.outputs)


def _groupnorm(node: NodeView) -> LoweredNode:
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
        f"r[i,g] = rsqrt_mean(v[i,g], count={extents['c'] * extents['j']}, epsilon={_real(node.get('epsilon', 1e-5))!r})",
        "Y[i,g,c,j] = normalise_affine(X[i,g,c,j], m[i,g], r[i,g], G[g,c], B[g,c])",
    )
    return LoweredNode(lines, extents, dict(zip("XGB", node.inputs, strict=True)), {"Y": node.outputs[0]})


def _layernorm(node: NodeView) -> LoweredNode:
    if len([name for name in node.outputs if name]) > 1:
        raise NotLowered("a norm that also gives its statistics")
    extents, _, _ = _rows(node, int(node.get("axis", -1)), behind=False)
    epsilon, count = _real(node.get("epsilon", 1e-5)), extents["n"]
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


def _instancenorm(node: NodeView) -> LoweredNode:
    """A norm of each channel of each image."""
    shape = node.shape(node.inputs[0])
    count = math.prod(shape[2:])
    if len(shape) < 3 or count == 1:
        raise NotLowered("channels of one element")
    epsilon = _real(node.get("epsilon", 1e-5))
    lines = (
        "m[i,c] = mean(X[i,c,j])",
        "v[i,c] = sum(square_difference(X[i,c,j], m[i,c]))",
        f"r[i,c] = rsqrt_mean(v[i,c], count={count}, epsilon={epsilon!r})",
        "Y[i,c,j] = normalise_affine(X[i,c,j], m[i,c], r[i,c], G[c], B[c])",
    )
    inputs = {"X": node.inputs[0], "G": node.inputs[1], "B": node.inputs[2]}
    return LoweredNode(lines, {"i": shape[0], "c": shape[1], "j": count}, inputs, {"Y": node.outputs[0]})


def _swish(node: NodeView) -> LoweredNode:
    if _real(node.get("alpha", 1.0)) != 1.0:
        raise NotLowered("a swish with a factor")
    return _map(node, "silu")


def _batchnorm(node: NodeView) -> LoweredNode:
    if len([name for name in node.outputs if name]) > 1 and node.opset >= 14:
        raise NotLowered("statistics of a batch in training")
    shape = node.shape(node.inputs[0])
    if len(shape) < 2:
        raise NotLowered("a tensor without channels")
    extents = {"i": shape[0], "c": shape[1], "j": math.prod(shape[2:])}
    dims = [name for name, extent in extents.items() if extent > 1 or name == "c"]
    whole, epsilon = ",".join(dims), _real(node.get("epsilon", 1e-5))
    lines = (
        f"r[c] = rsqrt_mean(V[c], count=1, epsilon={epsilon!r})",
        f"Y[{whole}] = normalise_affine(X[{whole}], M[c], r[c], G[c], B[c])",
    )
    inputs = dict(zip("XGBMV", node.inputs, strict=True))
    return LoweredNode(lines, {name: extents[name] for name in dims}, inputs, {"Y": node.outputs[0]})


def _local_response(node: NodeView) -> LoweredNode:
    """x / (bias + alpha / size * the sum of squares over ``size`` channels)^0.75, by r = rsqrt(...) as x * r * sqrt(r)."""
    if not math.isclose(float(node.get("beta", 0.75)), 0.75, rel_tol=1e-6):
        raise NotLowered("an exponent other than 3/4")
    size, alpha, bias = int(node.get("size", 1)), _real(node.get("alpha", 1e-4)), _real(node.get("bias", 1.0))
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


LOWERINGS: dict[str, Callable[[NodeView], LoweredNode]] = {
    "Abs": _absolute,
    "Add": _function("add"),
    "Attention": _attention,
    "AveragePool": _pool,
    "BatchNormalization": _batchnorm,
    "Clip": _clip,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": _scaled("divide"),
    "Einsum": _einsum,
    "Exp": _function("exp"),
    "Gather": _look_up,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": _global("mean"),
    "GlobalMaxPool": _global("max"),
    "GroupNormalization": _groupnorm,
    "HardSigmoid": _hard,
    "HardSwish": _hard,
    "InstanceNormalization": _instancenorm,
    "LRN": _local_response,
    "LayerNormalization": _layernorm,
    "LeakyRelu": _leaky_relu,
    "Log": _function("log"),
    "LogSoftmax": _log_softmax,
    "MatMul": _matmul,
    "Max": _folded("maximum"),
    "MaxPool": _pool,
    "Min": _folded("minimum"),
    "Mul": _scaled("mul"),
    "Neg": _function("scale", ", scale=-1"),
    "Pow": _power,
    "RMSNormalization": _layernorm,
    "Reciprocal": _function("reciprocal"),
    "ReduceMax": _reduction("max"),
    "ReduceMean": _reduction("mean"),
    "ReduceSum": _reduction("sum"),
    "Relu": _function("relu"),
    "Sigmoid": _function("sigmoid"),
    "Softmax": _softmax,
    "Softplus": _softplus,
    "Sqrt": _function("sqrt"),
    "Sub": _function("subtract"),
    "Sum": _folded("add"),
    "Swish": _swish,
    "Tanh": _function("tanh"),
}
"""By operator, its lowering."""

VIEWS = frozenset(
    {
        "Cast",
        "Concat",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Identity",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that select, reorder, repeat or rename elements. They cost nothing here: the layers on both sides read and write the
elements in any order."""
