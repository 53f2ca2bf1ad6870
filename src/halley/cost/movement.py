"""Fills, refills and drains of Holds (docs/model.md, "Hold" and "Bytes")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from halley.cost.bursts import Boxes, burst_bytes, drained_boxes
from halley.cost.counting import NO_AXES, Axes, AxisName, Counter, CountingScope, EnclosingHold, Loop
from halley.cost.estimate import Resource
from halley.cost.events import Access, Event, PortTraffic
from halley.cost.resources import added
from halley.formulas.numbers import Number, ceil_div, minimum, positive
from halley.formulas.terms import Term
from halley.formulas.timing import longest, total, transfer_time
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Parallel,
    Pipeline,
    Spatial,
    Temporal,
    children,
    filling_broadcast,
)
from halley.ir.workload import Op

SHARDING_KINDS = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER, CollectiveKind.ALL_TO_ALL)
ROOTED_KINDS = (CollectiveKind.REDUCE, CollectiveKind.GATHER)


Share = tuple[AxisName, int, int, int]
"""(axis, number of members, first member, id of the child) of a child of `Parallel` or `Pipeline`."""


@dataclass(frozen=True, slots=True)
class Touch:
    """An access in a Hold's body: its op or collective, the loops between the Hold and it, and the shares of axes."""

    node: Compute | Collective
    loops: tuple[Loop, ...] = ()
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldPart:
    """The part of its region that each instance of a distributed Hold holds: the loops that narrow it, and by axis the number of
    members that take part (``shares``) and the first of them (``firsts``)."""

    loops: tuple[Loop, ...]
    shares: Mapping[AxisName, int]
    firsts: Mapping[AxisName, int] = field(default_factory=dict)


class Body:
    """The accesses of each subtree, cached."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._by_name = {op.name: op for op in counter.workload.ops}
        self._of_op: dict[str, tuple[str, ...]] = {}
        self._kept: dict[int, tuple[Node, tuple[Touch, ...]]] = {}
        self._by_tensor: dict[int, dict[str, list[Touch]]] = {}
        self._parts: dict[tuple[int, int, str], tuple[Hold, HeldPart | None]] = {}

    def touches(self, node: Node) -> tuple[Touch, ...]:
        """All accesses in execution order. Their loops are new objects, so caches by id do not apply to them."""
        known = self._kept.get(id(node))
        if known is None:
            known = self._kept[id(node)] = node, self._find(node)
        return known[1]

    def _find(self, node: Node) -> tuple[Touch, ...]:
        match node:
            case Compute() | Collective():
                return (Touch(node),)
            case Hold():
                return self.touches(node.body)
            case Temporal() | Spatial():
                loop = as_loop(node)
                return tuple([Touch(touch.node, (loop, *touch.loops), touch.shares) for touch in self.touches(node.body)])
            case Parallel() | Pipeline():
                loops = (as_loop(node),) if isinstance(node, Pipeline) else ()
                found: list[Touch] = []
                for index, child in enumerate(node.children):
                    share = ((node.level, node.axis), node.shares[index], sum(node.shares[:index]), id(child))
                    found += [Touch(own.node, (*loops, *own.loops), (share, *own.shares)) for own in self.touches(child)]
                return tuple(found)
            case _:
                return tuple([touch for child in children(node) for touch in self.touches(child)])

    def names(self, node: Node) -> frozenset[str]:
        """The tensors that are accessed in a subtree."""
        return frozenset(name for touch in self.touches(node) for name in self._touched(touch))

    def writer(self, node: Node, tensor: str) -> tuple[Op, Touch] | None:
        """The first op in a subtree that computes a tensor, and its access."""
        for touch in self.touching(node, tensor):
            if isinstance(touch.node, Compute) and tensor in self._by_name[touch.node.op].outputs:
                return self._by_name[touch.node.op], touch
        return None

    def touching(self, node: Node, tensor: str) -> Sequence[Touch]:
        """The accesses of one tensor in a subtree."""
        found = self._by_tensor.get(id(node))
        if found is None:
            found = self._by_tensor[id(node)] = {}
            for touch in self.touches(node):
                for name in self._touched(touch):
                    found.setdefault(name, []).append(touch)
        return found.get(tensor, ())

    def _touched(self, touch: Touch) -> Iterable[str]:
        """The tensors of an access, each once."""
        if isinstance(touch.node, Collective):
            return dict.fromkeys(touch.node.tensors)
        found = self._of_op.get(touch.node.op)
        if found is None:
            op = self._by_name[touch.node.op]
            found = self._of_op[op.name] = tuple(dict.fromkeys((*op.inputs, *op.outputs, op.scaled_by)))
        return found

    def part(self, hold: Hold, depth: int, tensor: str) -> HeldPart | None:
        """The part of a tensor that each instance of a Hold holds: splits of the Hold's level or outer levels that all accesses
        inside have in common narrow the region. None if there are no accesses."""
        key = (id(hold), depth, tensor)
        if key not in self._parts:
            self._parts[key] = (hold, self._find_part(hold, depth, tensor))
        return self._parts[key][1]

    def _find_part(self, hold: Hold, depth: int, tensor: str) -> HeldPart | None:
        touches = self.touching(hold.body, tensor)
        if not touches:
            return None
        own, first = self._counter.upto(depth), touches[0]
        narrows = any(loop.axis in own for loop in first.loops)
        loops = self._narrowing(touches, own, tensor) if narrows else ()
        shares: dict[AxisName, int] = {}
        firsts: dict[AxisName, int] = {}
        for share in first.shares:
            axis, members, begin, _ = share
            if axis in own and all(share in touch.shares for touch in touches):
                shares[axis], firsts[axis] = members, firsts.get(axis, 0) + begin
        return HeldPart(loops, shares, firsts)

    def _narrowing(self, touches: Sequence[Touch], own: Axes, tensor: str) -> tuple[Loop, ...]:
        """The loops that narrow an instance's part of a tensor."""
        dims = self._counter.workload.selectors(tensor)
        loops: list[Loop] = []
        blocked: set[str] = set()
        for index, loop in enumerate(touches[0].loops):
            if loop.axis in own and loop.dim not in blocked and all(_shared_split(touches[0], index, t) for t in touches[1:]):
                loops.append(loop)
            elif loop.dim in dims:
                blocked.add(loop.dim)
            else:  # the first iteration determines which members are active
                loops.append(Loop(loop.dim, loop.tile, None, True, loop.path))
        return tuple(loops) if any(loop.axis for loop in loops) else ()

    def root(self, hold: Hold, depth: int, tensor: str) -> Axes:
        """The axis of which a fill of the tensor brings it to the first member only, as the body broadcasts it before use."""
        first = self.touching(hold.body, tensor)[0].node
        if not isinstance(first, Collective) or self._counter.axis_depth[first.level, first.axis] != depth:
            return frozenset()
        found = filling_broadcast(hold, tensor, frozenset())
        return frozenset({(found.level, found.axis)}) if found else frozenset()

    def joined(self, hold: Hold, tensor: str) -> bool:
        """Whether a collective inside may move parts of a computed tensor to idle members."""
        moved = any(isinstance(touch.node, Collective) for touch in self.touching(hold.body, tensor))
        return moved and self.writer(hold.body, tensor) is not None


def _shared_split(first: Touch, index: int, other: Touch) -> bool:
    """Whether another access is inside the same split, with the same loops over its dim outside the split."""
    split = first.loops[index]
    mine = [loop for loop in first.loops[: index + 1] if loop.dim == split.dim]
    place = next((i for i, loop in enumerate(other.loops) if loop.axis == split.axis and loop.dim == split.dim), -1)
    theirs = [loop for loop in other.loops[: place + 1] if loop.dim == split.dim]
    pairs = list(zip(mine, theirs, strict=False))
    return len(mine) == len(theirs) and all(a.axis == b.axis and _equal(a.tile, b.tile) for a, b in pairs)


def _equal(a: Number, b: Number) -> bool:
    return a is b or (not isinstance(a, Term) and not isinstance(b, Term) and bool(np.array_equal(a, b)))


def as_loop(node: Temporal | Spatial | Pipeline) -> Loop:
    return Loop(node.dim, node.tile, (node.level, node.axis) if isinstance(node, Spatial) else None)


@dataclass(frozen=True, slots=True)
class HoldTransfer:
    """Fill or drain of one tensor at one Hold: its events, the busy time of each resource in the first iteration (``round`` [s]),
    its latency [s], and the resources that it uses (1; 0 if an open number of buffers omits the Hold)."""

    events: tuple[Event, ...] = ()
    round: Mapping[Resource, Number] = field(default_factory=dict)
    latency: Number = 0.0
    uses: Mapping[Resource, Number] = field(default_factory=dict)

    def with_engine(self, engine: Resource) -> HoldTransfer:
        """The same by a DMA engine, which it occupies as long as its slowest port."""
        if not self.round:
            return self
        uses = {**self.uses, engine: longest(self.uses.values())}
        return replace(self, round={**self.round, engine: longest(self.round.values())}, uses=uses)

    @property
    def once(self) -> Number:
        """Time [s] of one transfer."""
        return transfer_time(self.latency, *self.round.values())


def _within(scope: CountingScope, part: HeldPart) -> CountingScope:
    """The scope with the shares of axes of a held part."""
    return replace(scope, shares={**scope.shares, **part.shares}) if part.shares else scope


def parents(hold: EnclosingHold) -> list[tuple[EnclosingHold, Number]]:
    """The possible parents of a Hold, each with 1 if it is the parent, else 0: a Hold with an open number of buffers is omitted
    if that number is 0. All are 0 if the Hold itself is omitted."""
    found: list[tuple[EnclosingHold, Number]] = []
    left, parent = _present(hold), hold.parent
    while parent is not None:
        there = _present(parent)
        found.append((parent, left * there))
        if type(there) is int:
            break
        left, parent = left * (1 - there), parent.parent
    return found


def _present(hold: EnclosingHold) -> Number:
    return 1 if type(hold.node.buffers) is int else minimum(hold.node.buffers, 1)


def _joined(transfers: Iterable[HoldTransfer]) -> HoldTransfer:
    """The transfers from or to the possible parents, merged."""
    found = list(transfers)
    if len(found) == 1:
        return found[0]
    events = tuple(event for transfer in found for event in transfer.events)
    return HoldTransfer(
        events, added(*(x.round for x in found)), total(x.latency for x in found), added(*(x.uses for x in found))
    )


def fill(counter: Counter, scope: CountingScope, hold: EnclosingHold, tensor: str, body: Body) -> HoldTransfer:
    """Fill from the parent on every entry: each instance gets its part."""
    part = body.part(hold.node, hold.depth, tensor)
    if part is None:
        return HoldTransfer()
    loops = scope.loops + part.loops if part.loops else scope.loops
    within, root = _within(scope, part), body.root(hold.node, hold.depth, tensor)

    def come(parent: EnclosingHold, there: Number) -> HoldTransfer:
        ends = _Ends(counter, within, hold, parent, tensor)
        each = counter.upto(hold.depth) - root, counter.asking(parent.depth, hold.depth) - root
        events, round = ends.events("fill", loops, *each, there, ()), ends.round("fill", loops, *each, there)
        return HoldTransfer(events, round, there * ends.latency, ends.uses(events, there))

    return _joined(come(parent, there) for parent, there in parents(hold))


def refill(counter: Counter, scope: CountingScope, hold: EnclosingHold, tensor: str, op: Op, body: Body) -> HoldTransfer:
    """Refill of partial sums on every visit except for the first; along axes that split a reduced dim, only to member 0."""
    reduced = counter.workload.reduced(op)
    partial = any(loop.dim in reduced and loop.axis is None for loop in scope.loops)
    if hold.parent is None or counter.once or not partial:
        return HoldTransfer()
    part = body.part(hold.node, hold.depth, tensor)
    scope = _within(scope, part) if part else scope
    times = refills(counter, scope.loops, reduced)
    splitting: Axes = frozenset(loop.axis for loop in scope.loops if loop.axis and loop.dim in reduced)
    child = counter.upto(hold.depth) - splitting
    # share of visits with a refill: first visits have no latency, but serial time multiplies it by all entries
    again = counter.boxes((), scope, scope.loops, frozenset(), skip=reduced) * times / counter.entries(scope)

    def come(parent: EnclosingHold, there: Number) -> HoldTransfer:
        ends = _Ends(counter, scope, hold, parent, tensor)
        asking = counter.asking(parent.depth, hold.depth) - splitting
        events = ends.events("fill", scope.loops, child, asking, times * there, reduced)
        # with an open number of visits there may be no refill; then its resources are not used
        return HoldTransfer(events, {}, there * ends.latency * again, ends.uses(events, there * positive(times)))

    return _joined(come(parent, there) for parent, there in parents(hold))


def _first_visits(loops: tuple[Loop, ...], selectors: Sequence[str]) -> tuple[Loop, ...]:
    """The loops, with loops in time over dims that do not select the tensor restricted to their first tile."""
    return tuple([loop.first if loop.axis is None and loop.dim not in selectors else loop for loop in loops])


def refills(counter: Counter, loops: tuple[Loop, ...], reduced: Sequence[str]) -> Number:
    """Number of visits of member 0 to one element of an accumulator, after the first."""
    result: Number = 1
    for dim in reduced:
        result = result * counter.visits(dim, loops, frozenset())
    return result - 1


def drain(counter: Counter, scope: CountingScope, hold: EnclosingHold, tensor: str, op: Op, body: Body) -> HoldTransfer:
    """Drain to the parent on every exit; of equal copies only that of member 0."""
    if hold.parent is None:
        return HoldTransfer()
    touches = body.touching(hold.node.body, tensor)
    reduced = counter.workload.reduced(op)
    writing = next(t.loops for t in touches if isinstance(t.node, Compute) and t.node.op == op.name)
    enclosing = (*scope.loops, *writing)
    adding = frozenset(loop.axis for loop in enclosing if loop.axis in counter.adding and loop.dim in reduced and loop.axis)
    adding -= {(t.node.level, t.node.axis) for t in touches if isinstance(t.node, Collective)}
    left = _at_exit(counter, scope, hold, tensor, body)
    # a drain moves the whole held region: loops in time inside the Hold do not narrow it
    outside = len(scope.loops)
    kept = (*left.loops[:outside], *(loop for loop in left.loops[outside:] if loop.axis is not None))
    selectors, own = counter.workload.selectors(tensor), counter.upto(hold.depth)
    boxes, kept_boxes = (
        drained_boxes(counter, loops, outside, selectors, own) if counter.bursts else () for loops in (left.loops, kept)
    )

    def leave(parent: EnclosingHold, there: Number) -> HoldTransfer:
        ends = _Ends(counter, _within(scope, left), hold, parent, tensor)
        parent_each = counter.upto(parent.depth)
        child_each = parent_each | (adding & counter.upto(hold.depth))  # partial sums in one shared buffer have one copy per box
        events = ends.events("drain", left.loops, child_each, parent_each, there, (), boxes)
        round = ends.round("drain", kept, child_each, parent_each, there, kept_boxes)
        return HoldTransfer(events, round, there * ends.latency, ends.uses(events, there))

    return _joined(leave(parent, there) for parent, there in parents(hold))


def _at_exit(counter: Counter, scope: CountingScope, hold: EnclosingHold, tensor: str, body: Body) -> HeldPart:
    """The part of the tensor that members hold at the end of the body, after its writer and collectives. The loops are those from
    the root."""
    dims = counter.workload.tensors[tensor].dims
    present: tuple[Loop, ...] = ()
    narrowed: list[Loop] = []
    shares: dict[AxisName, int] = {}
    moved: set[AxisName] = set()  # axes whose sharding is that of a collective instead of the split
    for touch in body.touching(hold.node.body, tensor):
        if isinstance(touch.node, Compute):
            if tensor in counter.workload.op(touch.node.op).outputs:
                others = (loop for loop in touch.loops if loop.dim not in dims)
                present = tuple(loop if loop.axis else loop.first for loop in others)
                narrowed = [loop for loop in touch.loops if loop.dim in dims]
                shares = {share[0]: share[1] for share in touch.shares}
                moved = set()
            continue
        axis, dim = (touch.node.level, touch.node.axis), touch.node.dim
        size = {share[0]: share[1] for share in touch.shares}.get(axis, counter.axis_size(axis, scope))
        if size == 1 or touch.node.kind is CollectiveKind.SHIFT:
            continue
        enclosing = {id(loop) for loop in touch.loops}  # inside loops in time, the collective distributes each tile
        narrowed = [loop for loop in narrowed if (loop.axis and loop.axis != axis) or (not loop.axis and id(loop) in enclosing)]
        shares[axis] = size
        moved.add(axis)
        if touch.node.kind in SHARDING_KINDS:
            extent = counter.first_tile(dim, (*scope.loops, *touch.loops))
            narrowed.append(Loop(dim, ceil_div(extent, size), axis))
        elif touch.node.kind in ROOTED_KINDS and dims:  # member 0 has all
            narrowed.append(Loop(dims[0], counter.first_tile(dims[0], scope.loops), axis))

    def outside(loop: Loop) -> Loop:
        return Loop(loop.dim, loop.tile, None, True, loop.path) if loop.axis in moved and loop.dim not in dims else loop

    return HeldPart((*(outside(loop) for loop in scope.loops), *narrowed, *(outside(loop) for loop in present)), shares)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The two Holds between which a tensor moves."""

    counter: Counter
    scope: CountingScope
    child: EnclosingHold
    parent: EnclosingHold
    tensor: str

    def events(
        self,
        cause: str,
        loops: tuple[Loop, ...],
        child_each: Axes,
        parent_each: Axes,
        times: Number,
        skip: tuple[str, ...],
        boxes: Boxes = (),
    ) -> tuple[Event, ...]:
        """Accesses at both ends, and port traffic in between. ``child_each``, ``parent_each``: as ``each`` of `Counter.boxes`;
        ``boxes``: what divides the tensor into the boxes that move one by one (``loops`` if not given)."""
        counter, tensor = self.counter, self.counter.workload.tensors[self.tensor]
        is_fill = cause == "fill"
        moving = _first_visits(loops, counter.workload.selectors(self.tensor)) if counter.once else loops

        def count(each: Axes, depth: int, critical: bool) -> Number:
            if not counter.wanted(critical):
                return 0
            only_first = counter.upto(depth) if critical else NO_AXES
            boxes = counter.boxes(tensor.dims, self.scope, moving, each, only_first, skip=skip)
            return boxes * times * tensor.word

        def bursts(end: EnclosingHold, each: Axes, critical: bool) -> Number | None:
            burst = counter.bursts.get(end.memory)
            if not burst or counter.once:  # in any order of the loops, a run takes at least its own bytes
                return None
            if not counter.wanted(critical):
                return 0
            only_first = counter.upto(end.depth) if critical else NO_AXES
            found = total(
                there * burst_bytes(counter, tensor, self.scope, dividing, each, only_first, skip, burst)
                for there, dividing in boxes or ((1, loops),)
            )
            return found * times

        path = self.scope.path
        c, p = self.child, self.parent
        result: list[Event] = [
            Access(
                path, end.memory, self.tensor, cause, is_read, count(each, end.depth, False), count(each, end.depth, True),
                bursts(end, each, False), bursts(end, each, True),
            )
            for end, is_read, each in ((p, is_fill, parent_each), (c, not is_fill, child_each))
        ]  # fmt: skip
        for depth in range(p.depth + 1, c.depth + 1):
            level = counter.chip.levels[depth]
            if level.network and level.network.port:
                each = counter.upto(depth) & child_each
                result.append(PortTraffic(path, level.name, is_fill, count(each, depth, False), count(each, depth, True)))
        return tuple(result)

    def round(
        self,
        cause: str,
        loops: tuple[Loop, ...],
        child_each: Axes,
        parent_each: Axes,
        times: Number,
        boxes: Boxes = (),
    ) -> dict[Resource, Number]:
        """Busy time [s] of each resource in the first iteration of the loops in time."""
        if not self.counter.times:
            return {}

        def first(own: tuple[Loop, ...]) -> tuple[Loop, ...]:
            return tuple(loop if loop.axis else loop.first for loop in own)

        boxes = tuple((there, first(own)) for there, own in boxes)
        return self.counter.resources.busy(self.events(cause, first(loops), child_each, parent_each, times, (), boxes))

    def uses(self, events: Iterable[Event], there: Number) -> dict[Resource, Number]:
        """The resources of events, each with ``there``."""
        return {self.counter.resources.of(event)[0]: there for event in events} if self.counter.times else {}

    @property
    def latency(self) -> float:
        return self.counter.chip.transfer_latency(self.parent.memory, self.child.memory)
