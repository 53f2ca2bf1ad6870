"""Matrix products, einsums and attention of ONNX in Halley's notation."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from halley.importers.lowering.node import LoweredNode, NodeView, NotLowered, factors, indexed, real


def gemm(node: NodeView) -> LoweredNode:
    a, b = node.shape(node.inputs[0]), node.shape(node.inputs[1])
    if len(a) != 2 or len(b) != 2:
        raise NotLowered("operands that are no matrices")
    turned = node.get("transA", 0), node.get("transB", 0)
    rows, inner = (a[1], a[0]) if turned[0] else a
    columns = b[0] if turned[1] else b[1]
    first = "X[k,m]" if turned[0] else "X[m,k]"
    second = "W[n,k]" if turned[1] else "W[k,n]"
    alpha, beta = real(node.get("alpha", 1.0)), real(node.get("beta", 1.0))
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
            raise NotLowered("a bias of one number")
        inputs["C"] = node.inputs[2]
        source = indexed("C", own)
        if beta != 1.0:
            before.append(f"{indexed('D', own)} = scale({source}, scale={beta!r})")
            source = indexed("D", own)
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


def matmul(node: NodeView) -> LoweredNode:
    a, b = node.shape(node.inputs[0]), node.shape(node.inputs[1])
    if len(a) < 2 or len(b) < 2:
        raise NotLowered("a product with a vector")
    rows, inner, columns = a[-2], a[-1], b[-1]
    batch = node.shape(node.outputs[0])[:-2]
    if len(b) == 2 or all(extent == 1 for extent in b[:-2]):  # all rows meet the same matrix
        extents = {"m": math.prod(a[:-1]), "n": columns, "k": inner}
        if node.has(2):
            lines = ("Y1[m,n] = X[m,k] * W[k,n]", "Y[m,n] = add(Y1[m,n], B[n])")
            return LoweredNode(lines, extents, factors(node) | {"B": node.inputs[2]}, {"Y": node.outputs[0]})
        return LoweredNode(("Y[m,n] = X[m,k] * W[k,n]",), extents, factors(node), {"Y": node.outputs[0]})
    names = [f"b{place}" for place in range(len(batch))]
    extents = {name: extent for name, extent in zip(names, batch, strict=True) if extent > 1}
    own = []
    for shape in (a, b):
        padded = (1,) * (len(batch) + 2 - len(shape)) + tuple(shape)
        own.append([name for name, extent in zip(names, padded, strict=False) if name in extents and extent > 1])
    result = [name for name in names if name in extents]
    line = f"{indexed('Y', [*result, 'm', 'n'])} = {indexed('X', [*own[0], 'm', 'k'])} * {indexed('W', [*own[1], 'k', 'n'])}"
    return LoweredNode((line,), extents | {"m": rows, "n": columns, "k": inner}, factors(node), {"Y": node.outputs[0]})


_EQUATION = re.compile(r"([a-zA-Z]+)(?:,([a-zA-Z]+))?->([a-zA-Z]*)")


def einsum(node: NodeView) -> LoweredNode:
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
    terms = [indexed(letter, word) for letter, word in zip(letters, operands, strict=True)]
    summed = set(extents) - set(result)
    if len(operands) == 1:
        value = f"sum({terms[0]})" if summed else terms[0]
    elif all(summed <= set(word) for word in operands):
        value = " * ".join(terms)
    else:
        value = f"sum(mul({', '.join(terms)}))"
    inputs = dict(zip(letters, node.inputs, strict=True))
    return LoweredNode((f"{indexed('Y', result)} = {value}",), extents, inputs, {"Y": node.outputs[0]})


def attention(node: NodeView) -> LoweredNode:
    """softmax(scale Q K^T + mask) V for all heads, from operands with an axis of heads or with heads side by side. A mask of
    numbers is added; one of truths (the attribute ``boolean``) is read as infinities, of which the minimum is taken: a tile whose
    keys are all masked is computed like any other. ``turned``: keys have their axis of channels before that of the keys."""
    if any(node.has(place) for place in range(4, len(node.inputs))) or any(node.outputs[1:]):
        raise NotLowered("attention with a cache or more results")
    if real(node.get("softcap", 0.0)) or node.get("softmax_precision", None):
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
    q, k, v, o = (indexed(letter, [name for name in word if name in kept]) for letter, word in zip("QKVY", order, strict=True))
    row = [name for name in "bhgm" if name in kept]
    whole, at = ",".join([*row, "n"]), ",".join(row)
    scale = real(node.get("scale", None) or 1 / math.sqrt(split))
    scaled = f"scale(S[{whole}], scale={scale!r})"
    if node.get("is_causal", 0):
        scaled = f"scale_mask(S[{whole}], scale={scale!r}, causal=1, queries={rows}, offset=0)"
    scaling = [f"T[{whole}] = {scaled}"]
    inputs = dict(zip("QKV", node.inputs[:3], strict=True))
    if node.has(3):
        function = "minimum" if node.get("boolean", 0) else "add"
        own = _mask_dims(node, heads, kv_heads, rows, columns)
        scaling = [f"R[{whole}] = {scaled}", f"T[{whole}] = {function}(R[{whole}], {indexed('M', own)})"]
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
