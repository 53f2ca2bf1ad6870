"""Bytes live per memory: the largest sum of open Holds in one instance (docs/model.md, "Footprint")."""

from __future__ import annotations

from dataclasses import replace

from halley.cost.counting import Counter, Loop, OpenHold, Scope
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
        case Overlap() | Parallel():
            return _merge([footprint(counter, child, scope, body) for child in node.children], _add)
        case Pipeline():
            inside = scope.with_loop(as_loop(node))
            return _merge([footprint(counter, child, inside, body) for child in node.children], _add)
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
    """Bounding box of what member 0 touches of the tensor in the Hold, in bytes."""
    tensor = counter.workload.tensors[name]
    narrowed = _touched(counter, name, node, scope, within, body)
    result: Number = tensor.word
    for dim in tensor.dims:
        extent: Number = 0
        for loops in narrowed:
            own = tuple(loop for loop in loops if loop.dim == dim)
            outer = tuple(loop for loop in own if loop in scope.loops)
            if len(own) == len(outer) or all(loop.axis is None for loop in own[len(outer) :]):
                extent = maximum(extent, counter.kept(dim, outer, within))
            else:
                held = tuple(replace(loop, first_only=True) if loop in outer else loop for loop in own)
                extent = maximum(extent, counter.reach(dim, held))
        result = result * extent
    return result


def _touched(
    counter: Counter, name: str, node: Hold, scope: Scope, within: frozenset[tuple[str, str]], body: Body
) -> list[tuple[Loop, ...]]:
    """The loops down to each touch of the tensor; the Hold's own region where it is filled or moved by a collective."""
    if name in scope.holds and body.reads(node.body, name) and body.writer(node.body, name) is None:
        return [scope.loops]
    result: list[tuple[Loop, ...]] = []
    for touch in body.touches(node.body):
        if isinstance(touch.node, Collective):
            if name in touch.node.tensors:
                result.append(scope.loops + tuple(x for x in touch.loops if x.axis is None or x.axis in within))
        else:
            op = counter.workload.op(touch.node.op)
            if name in op.inputs or name in op.outputs:
                result.append(scope.loops + tuple(x for x in touch.loops if x.axis is None or x.axis in within))
    return result or [scope.loops]


def _add(a: Number, b: Number) -> Number:
    return a + b


def _merge(parts: list[Footprint], combine: object) -> Footprint:
    result: Footprint = {}
    for part in parts:
        for memory, amount in part.items():
            result[memory] = combine(result[memory], amount) if memory in result else amount  # type: ignore[operator]
    return result


__all__ = ["OpenHold", "footprint", "hold_bytes"]
