"""Footprint: the peak bytes of open Holds in one instance of each memory (docs/model.md, "Footprint").

Members differ only in their child of `Parallel` and `Pipeline`, and in ragged tiles. So it is enough to compute the footprint of
the first member of each share: no other member of the share has larger tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import product

from halley.cost.counting import AxisName, Counter, CountingScope
from halley.cost.movement import Body, HeldPart, as_loop
from halley.formulas.numbers import Number, maximum, positive
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, children
from halley.ir.workload import DTYPE_BYTES, OpKind
from halley.rewrite.prefetch import ends_prefetch, handed_over, in_lockstep, prefetched_holds

Footprint = dict[str, Number]
Where = Mapping[AxisName, int]
"""Position of the instance along the axes that are partitioned into shares; 0 on others."""


def footprint(counter: Counter, tree: Node, body: Body) -> Footprint:
    """Peak bytes in one instance of each memory."""
    starts: dict[AxisName, set[int]] = {}
    for axis, start in _starts(tree, {}):
        starts.setdefault(axis, {0}).add(start)
    places = [dict(zip(starts, combination, strict=True)) for combination in product(*map(sorted, starts.values()))]
    return _merge([_live(counter, tree, CountingScope(), body, where, False) for where in places], maximum)


def _starts(node: Node, firsts: Where) -> Iterator[tuple[AxisName, int]]:
    """First members of all shares, and the ends of the shares."""
    for index, child in enumerate(children(node)):
        inside = firsts
        if isinstance(node, Parallel | Pipeline):
            axis = (node.level, node.axis)
            begin = firsts.get(axis, 0) + sum(node.shares[:index])
            yield axis, begin
            yield axis, begin + node.shares[index]
            inside = {**firsts, axis: begin}
        yield from _starts(child, inside)


def _live(counter: Counter, node: Node, scope: CountingScope, body: Body, where: Where, again: bool) -> Footprint:
    """Peak bytes in the instance of each memory at position ``where``, while the node runs; ``again``: a loop repeats the node in
    the same phase."""
    match node:
        case Temporal() | Spatial():
            again = again or isinstance(node, Temporal)
            return _live(counter, node.body, scope.with_loop(as_loop(node)), body, where, again)
        case Hold():
            inner = _live(counter, node.body, scope, body, where, again and not ends_prefetch(node, in_lockstep(counter.chip)))
            return {**inner, node.memory: inner.get(node.memory, 0) + _hold_bytes(counter, node, scope, body, where)}
        case Sequence():
            live = [_live(counter, child, scope, body, where, False) for child in node.children]
            return _merge(_beside(live, counter, node, scope, body, where, again) if node.prefetch else live, maximum)
        case Overlap():
            return _merge([_live(counter, child, scope, body, where, False) for child in node.children], _add)
        case Parallel() | Pipeline():
            return _shared(counter, node, scope, body, where)
        case Compute() | Collective():
            return {}


def _shared(counter: Counter, node: Parallel | Pipeline, scope: CountingScope, body: Body, where: Where) -> Footprint:
    """Children on disjoint members: an instance inside the axis has one of them, a memory outside the axis' level all."""
    axis = (node.level, node.axis)
    outer = scope.with_loop(as_loop(node)) if isinstance(node, Pipeline) else scope
    parts: list[Footprint] = []
    begin = scope.firsts.get(axis, 0)
    for child, share in zip(node.children, node.shares, strict=True):
        inside = replace(outer, shares={**scope.shares, axis: share}, firsts={**scope.firsts, axis: begin})
        here = begin <= where[axis] < begin + share
        live = _live(counter, child, inside, body, where if here else {**where, axis: begin}, False)
        parts.append({m: size for m, size in live.items() if here or counter.chip.depth(m) < counter.axis_depth[axis]})
        begin += share
    return _merge(parts, _add)


def _beside(
    live: list[Footprint], counter: Counter, node: Sequence, scope: CountingScope, body: Body, where: Where, again: bool
) -> list[Footprint]:
    """Live bytes during each child, including prefetched Holds of its neighbours. In a loop, the first child follows the last."""
    waits, lockstep = handed_over(node, counter.workload), in_lockstep(counter.chip)
    early = [_early(counter, child, waits, lockstep, scope, body, where) for child in node.children]
    count = len(live)
    found = []
    for index, own in enumerate(live):
        next_to = {index - 1, index + 1}
        next_to = {i % count for i in next_to} if again else next_to & set(range(count))
        found.append(_merge([own, *(early[i] for i in sorted(next_to - {index}))], _add))
    return found


def _early(
    counter: Counter, child: Node, waits: Set[str], lockstep: Set[str], scope: CountingScope, body: Body, where: Where
) -> Footprint:
    """Bytes of a child's prefetched Holds, which are also live while its neighbours run."""
    sizes: list[Footprint] = []
    for *passed, hold in prefetched_holds(child, waits, lockstep):
        inside = scope
        for node in passed:
            if isinstance(node, Temporal | Spatial):
                inside = inside.with_loop(as_loop(node))
        if isinstance(hold, Hold):
            sizes.append({hold.memory: _hold_bytes(counter, hold, inside, body, where)})
    return _merge(sizes, _add)


def _hold_bytes(counter: Counter, node: Hold, scope: CountingScope, body: Body, where: Where) -> Number:
    """Bytes of a Hold in one instance of its memory: the largest tensor of each group."""
    result: Number = 0
    for group in node.tensors:
        box: Number = 0
        for name in group:
            box = maximum(box, _box(counter, name, node, scope, body, where))
        result = result + box * node.buffers
    return result


def _box(counter: Counter, name: str, node: Hold, scope: CountingScope, body: Body, where: Where) -> Number:
    """Bytes of a tensor in the instance of a Hold: its part of the region, once per distinct box of deeper splits."""
    depth = counter.chip.depth(node.memory)
    part = body.part(node, depth, name)
    if part is None or not _present(part, scope, where):
        return 0
    tensor, within = counter.workload.tensors[name], counter.upto(depth)
    loops = scope.loops + part.loops if part.loops else scope.loops
    firsts = {axis: scope.firsts.get(axis, 0) + part.firsts.get(axis, 0) for axis in where}
    index = {axis: position - firsts[axis] for axis, position in where.items() if axis in within}
    result = _word(counter, node, name) * counter.space(tensor.dims, loops, within, index)
    if any(index.values()) and not body.joined(node, name):  # a member whose range of another dim is empty is idle
        for dim in {loop.dim for loop in loops if loop.axis in index} - set(tensor.dims):
            result = result * positive(counter.resident(dim, loops, within, index))
    return result


def _word(counter: Counter, node: Hold, name: str) -> int:
    """Bytes of an element in the Hold: those of the accumulator type, where the matrix engine accumulates into the Hold."""
    workload, engine = counter.workload, counter.chip.matrix
    word, op = workload.tensors[name].word, workload.producer(name)
    if engine is None or not engine.accumulators or op is None or op.kind is not OpKind.CONTRACT:
        return word
    wider = engine.accumulators.get(workload.tensors[op.inputs[0]].dtype)
    return max(word, DTYPE_BYTES[wider]) if wider and _summed_in(node.body, op.name, name) else word


def _summed_in(node: Node, op: str, name: str) -> bool:
    """Whether the op is computed in the node without another Hold of the tensor around it."""
    match node:
        case Compute():
            return node.op == op
        case Hold() if name in node.names:
            return False
        case _:
            return any(_summed_in(child, op, name) for child in children(node))


def _present(part: HeldPart, scope: CountingScope, where: Where) -> bool:
    """Whether the instance is in the share that contains all accesses of the tensor."""
    begins = {axis: scope.firsts.get(axis, 0) + begin for axis, begin in part.firsts.items()}
    return all(begins[axis] <= where[axis] < begins[axis] + size for axis, size in part.shares.items())


def _add(a: Number, b: Number) -> Number:
    return a + b


def _merge(parts: list[Footprint], combine: Callable[[Number, Number], Number]) -> Footprint:
    result: Footprint = {}
    for part in parts:
        for memory, amount in part.items():
            result[memory] = combine(result[memory], amount) if memory in result else amount
    return result
