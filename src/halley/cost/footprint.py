"""Bytes live per memory: the largest sum of open Holds in one instance (docs/model.md, "Footprint")."""

from __future__ import annotations

from halley.cost.counting import Counter, OpenHold, Scope
from halley.cost.movement import Body, as_loop
from halley.formulas.numbers import Number, maximum
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal

Footprint = dict[str, Number]


def footprint(counter: Counter, node: Node, scope: Scope, body: Body) -> Footprint:
    """Peak bytes in one instance of each memory while the node runs."""
    match node:
        case Temporal() | Spatial():
            return footprint(counter, node.body, scope.with_loop(as_loop(node)), body)
        case Hold():
            inner = footprint(counter, node.body, scope, body)
            own = hold_bytes(counter, node, scope, body)
            return {**inner, node.memory: inner.get(node.memory, 0) + own}
        case Sequence():
            return _merge([footprint(counter, child, scope, body) for child in node.children], maximum)
        case Overlap():
            return _merge([footprint(counter, child, scope, body) for child in node.children], _add)
        case Parallel() | Pipeline():
            inside = scope.with_loop(as_loop(node)) if isinstance(node, Pipeline) else scope
            return _apart(counter, node, [footprint(counter, child, inside, body) for child in node.children])
        case Compute() | Collective():
            return {}


def hold_bytes(counter: Counter, node: Hold, scope: Scope, body: Body) -> Number:
    """Bytes that a Hold keeps in one instance of its memory."""
    within = counter.upto(counter.chip.depth(node.memory))
    result: Number = 0
    for group in node.tensors:
        box: Number = 0
        for name in group:
            box = maximum(box, _box(counter, name, node, scope, within, body))
        result = result + box * node.buffers
    return result


def _box(counter: Counter, name: str, node: Hold, scope: Scope, within: frozenset[tuple[str, str]], body: Body) -> Number:
    """Bytes of the tensor that instance 0 keeps in the Hold: its part of the region, once per distinct box of deeper splits."""
    tensor = counter.workload.tensors[name]
    part = body.part(node, counter.chip.depth(node.memory), name)
    if part is None:
        return 0
    loops = scope.loops + part.loops if part.loops else scope.loops
    result: Number = tensor.word
    for dim in tensor.dims:
        result = result * counter.kept(dim, loops, within)
    return result


def _apart(counter: Counter, node: Parallel | Pipeline, parts: list[Footprint]) -> Footprint:
    """Children on members of their own have instances of their own of what lies as deep as the axis, or deeper; the rest they share."""
    own = counter.axis_depth[node.level, node.axis]
    together, largest = _merge(parts, _add), _merge(parts, maximum)
    return {memory: (largest if counter.chip.depth(memory) >= own else together)[memory] for memory in together}


def _add(a: Number, b: Number) -> Number:
    return a + b


def _merge(parts: list[Footprint], combine: object) -> Footprint:
    result: Footprint = {}
    for part in parts:
        for memory, amount in part.items():
            result[memory] = combine(result[memory], amount) if memory in result else amount  # type: ignore[operator]
    return result


__all__ = ["OpenHold", "footprint", "hold_bytes"]
