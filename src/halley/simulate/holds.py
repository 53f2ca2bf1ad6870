"""Open Holds: the data of each instance, and the requests of fills and drains (docs/model.md, "Hold")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np

from halley.ir.hardware import Chip
from halley.ir.mapping import (
    Collective,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Spatial,
    Temporal,
    filling_broadcast,
    walk,
)
from halley.ir.mapping import Sequence as Series
from halley.ir.masks import masks
from halley.ir.workload import Op, Workload
from halley.simulate.members import Axes, Box, Member, SimulationScope, cut, inside, points
from halley.simulate.tasks import Requests
from halley.simulate.traffic import PortMove, Ports, together


@dataclass(frozen=True, slots=True)
class PathStep:
    """A loop, split or share on the path to a leaf. ``position`` of the axis, -1 for a loop in time; ``begin``, ``count``:
    members of a share (a stage of a `Pipeline` is a share and a loop)."""

    node: int
    dim: str = ""
    tile: int = 0
    position: int = -1
    begin: int = 0
    count: int = 0

    @property
    def is_split(self) -> bool:
        return self.position >= 0 and bool(self.dim)


@dataclass(slots=True, eq=False)
class Visit:
    """A Hold between one entry and its exit.

    ``held``: by tensor and instance, the boxes that are present (identical or disjoint), evaluated lazily (see `later`).
    ``touched``: by tensor, the critical member's boxes that ops have written since the entry. ``stamps``: by tensor and such a
    box, the version of the running maximum that it is, or is relative to. ``refilled``: tensors whose earlier partial sums were
    filled on entry. ``filled``: by tensor, the fill task; ``drains``: by tensor, tasks of drains from inner Holds; ``returned``:
    the same by box. ``loops``: the number of enclosing loops.
    """

    node: Hold
    depth: int
    parents: dict[str, Visit | None]
    loops: int = 0
    _held: dict[str, dict[Member, dict[Box, None]]] = field(default_factory=dict)
    _later: dict[object, Callable[[], None]] = field(default_factory=dict)
    touched: dict[str, set[Box]] = field(default_factory=dict)
    stamps: dict[str, dict[Box, int]] = field(default_factory=dict)
    refilled: set[str] = field(default_factory=set)
    filled: dict[str, int] = field(default_factory=dict)
    drains: dict[str, list[int]] = field(default_factory=dict)
    returned: dict[str, dict[Box, int]] = field(default_factory=dict)

    @property
    def held(self) -> dict[str, dict[Member, dict[Box, None]]]:
        while self._later:
            todo, self._later = self._later, {}
            for note in todo.values():
                note()
        return self._held

    def later(self, key: object, note: Callable[[], None]) -> None:
        """Defer calls of `keep` until ``held`` is read, which may never happen. Callbacks with equal keys have equal effects."""
        self._later.setdefault(key, note)

    def keep(self, name: str, instance: Member, box: Box) -> None:
        """Record a box as present, unless a refilled box contains it."""
        if points(box):
            boxes = self._held.setdefault(name, {}).setdefault(instance, {})
            if name not in self.refilled or not any(inside(box, other) for other in boxes):
                boxes[box] = None


class Holds:
    """Requests of fills and drains of the Holds of one tree, cached for equal visits."""

    def __init__(self, workload: Workload, chip: Chip, axes: Axes) -> None:
        self.workload, self.chip, self.axes = workload, chip, axes
        self.ports = Ports(chip)
        self._bodies: dict[int, tuple[dict[str, Op], set[str], set[str]]] = {}
        self._touch_paths: dict[tuple[int, str], list[tuple[PathStep, ...]]] = {}
        self._reduced: dict[int, list[tuple[str, ...]]] = {}
        self._known: dict[tuple[object, ...], Requests] = {}
        hidden = dict.fromkeys(masks(workload).values())
        self._masked = [pair for m in hidden for pair in ((m.rows, m.queries), (m.keys, workload.dims[m.keys] + 1))]

    # ---- equal visits

    def traced(self, visit: Visit, name: str) -> bool:
        """Whether the contents of the instances are needed: for a drain, or by a collective."""
        drained = self.writer(visit.node, name) is not None and visit.parents[name] is not None
        return drained or name in self._body(visit.node)[2]

    def _alike(self, way: str, visit: Visit, name: str, scope: SimulationScope) -> tuple[object, ...]:
        """A key that is equal for visits with equal transfers, up to a translation: these depend on the members' ranges relative
        to each other, on which ops continue partial sums of an earlier visit, and on which tiles a mask shows."""
        if id(visit.node) not in self._reduced:
            ops = dict.fromkeys(self._body(visit.node)[0].values())
            self._reduced[id(visit.node)] = [self.workload.reduced(op) for op in ops]
        again = tuple(any(index and dim in dims for dim, index in scope.loops) for dims in self._reduced[id(visit.node)])
        seen = tuple(int(scope.ranges[scope.dims[dim], 0, 0]) % most for dim, most in self._masked)  # which tiles are visible
        return (way, scope.path, scope.team.critical, name, again, seen, scope.form)

    # ---- bodies

    def _body(self, node: Hold) -> tuple[dict[str, Op], set[str], set[str]]:
        """(op that writes each tensor, tensors read, tensors that collectives move) in the body of a Hold."""
        if id(node) not in self._bodies:
            writes: dict[str, Op] = {}
            reads: set[str] = set()
            moved: set[str] = set()
            for _, inner in walk(node.body):
                if isinstance(inner, Compute):
                    op = self.workload.op(inner.op)
                    writes.update(dict.fromkeys(op.outputs, op))
                    reads.update(op.inputs, (op.scaled_by,) if op.scaled_by else ())
                elif isinstance(inner, Collective):
                    moved.update(inner.tensors)
            self._bodies[id(node)] = (writes, reads | moved, moved)
        return self._bodies[id(node)]

    def writer(self, node: Hold, name: str) -> Op | None:
        """The op in the body that writes a tensor."""
        return self._body(node)[0].get(name)

    def _find(self, node: Node, name: str) -> Iterator[tuple[PathStep, ...]]:
        """The path to each leaf that accesses the tensor: the loops, splits and shares on it."""
        match node:
            case Compute():
                op = self.workload.op(node.op)
                if name in (*op.inputs, *op.outputs, op.scaled_by):
                    yield ()
            case Collective():
                if name in node.tensors:
                    yield ()
            case Hold():
                yield from self._find(node.body, name)
            case Temporal():
                step = PathStep(id(node), node.dim, node.tile)
                yield from ((step, *way) for way in self._find(node.body, name))
            case Spatial():
                step = PathStep(id(node), node.dim, node.tile, self.axes.position(node.level, node.axis))
                yield from ((step, *way) for way in self._find(node.body, name))
            case Series() | Overlap():
                for child in node.children:
                    yield from self._find(child, name)
            case Parallel() | Pipeline():
                position = self.axes.position(node.level, node.axis)
                for index, child in enumerate(node.children):
                    own = PathStep(id(node), position=position, begin=sum(node.shares[:index]), count=node.shares[index])
                    steps = (own, PathStep(id(node), node.dim, node.tile)) if isinstance(node, Pipeline) else (own,)
                    yield from ((*steps, *way) for way in self._find(child, name))
            case _:
                assert_never(node)

    def touch_paths(self, node: Hold, name: str) -> list[tuple[PathStep, ...]]:
        """All paths from a Hold to nodes in its body that access the tensor."""
        key = (id(node), name)
        if key not in self._touch_paths:
            self._touch_paths[key] = list(self._find(node.body, name))
        return self._touch_paths[key]

    # ---- regions of instances

    def held_regions(self, node: Hold, name: str, scope: SimulationScope, depth: int) -> list[PortMove]:
        """The regions that instances of the memory hold: each member's region, narrowed by splits of the memory's level or outer
        levels that all paths inside have in common."""
        touch_paths = self.touch_paths(node, name)
        if not touch_paths:
            return []
        joined = name in self._body(node)[2] and self.writer(node, name) is not None
        team, width = scope.team, self.axes.width(depth)
        ranges, present = scope.ranges, np.ones(len(team.members), dtype=bool)
        starts = {position: first for position, (first, _) in team.shares.items()}
        for step, kind in self._narrowing(touch_paths, self.workload.selectors(name), width):
            if step.count:
                starts[step.position] = begin = starts.get(step.position, 0) + step.begin
                if kind == "share":
                    present &= (begin <= team.indices[:, step.position]) & (team.indices[:, step.position] < begin + step.count)
            elif kind != "walk":
                index = team.indices[:, step.position] - starts.get(step.position, 0) if kind == "split" else 0
                ranges = cut(ranges, scope.dims, scope.indices, step.dim, step.tile, index)
        tensor = self.workload.tensors[name]
        found: dict[tuple[Member, Box], None] = {}
        for row, box in enumerate(replace(scope, ranges=ranges).boxes(tensor)):
            busy = points(box) > 0 if joined else bool((ranges[:, 1, row] > ranges[:, 0, row]).all())
            if present[row] and busy:
                found[team.members[row][:width], box] = None
        return [PortMove(who, box, points(box)) for who, box in found]

    def _narrowing(
        self, touch_paths: Sequence[tuple[PathStep, ...]], dims: tuple[str, ...], width: int
    ) -> list[tuple[PathStep, str]]:
        """The effect of each step of the first path on the region: a "split" narrows it; a "walk" does not, nor do later splits
        of the same dim; a "first" selects the first tile of a dim that the tensor lacks; a "share" selects members; a share that
        not all paths have in common is "apart"."""
        first, others = touch_paths[0], touch_paths[1:]
        walked: set[str] = set()
        kinds = []
        for index, step in enumerate(first):
            if step.count:
                kinds.append((step, "share" if step.position < width and all(step in way for way in others) else "apart"))
            elif (
                step.is_split
                and step.position < width
                and step.dim not in walked
                and all(_cuts(way, step) == _cuts(first[: index + 1], step) for way in others)
            ):
                kinds.append((step, "split"))
            elif step.dim in dims:
                walked.add(step.dim)
                kinds.append((step, "walk"))
            else:
                kinds.append((step, "first"))
        return kinds

    # ---- entry and exit

    def open(self, node: Hold, scope: SimulationScope) -> Visit:
        """A new visit, before anything is filled."""
        return Visit(node, self.chip.depth(node.memory), {name: scope.holds.get(name) for name in node.names}, len(scope.loops))

    def fill(self, visit: Visit, name: str, scope: SimulationScope) -> Requests | None:
        """The requests of a tensor's fill on entry; None if it is not filled."""
        writer, parent = self.writer(visit.node, name), visit.parents[name]
        reduced = self.workload.reduced(writer) if writer else ()
        if writer is None:
            if name not in self._body(visit.node)[1]:
                return None
        elif not any(dim in reduced and index for dim, index in scope.loops):
            return None
        if writer is not None:
            visit.refilled.add(name)
        known, traced = self._alike("fill", visit, name, scope), self.traced(visit, name)

        def moves() -> list[PortMove]:
            return self._wanted(visit, name, scope, reduced)

        def note() -> None:
            for move in moves():
                visit.keep(name, move.who, move.box)

        if traced:
            visit.later(known, note)
        if parent is None:
            return None
        if known not in self._known:
            self._known[known] = self._moved(name, parent.node.memory, visit.node.memory, visit.depth, moves(), scope)
        return self._known[known]

    def _moved(self, name: str, source: str, target: str, depth: int, moves: list[PortMove], scope: SimulationScope) -> Requests:
        """The requests of a transfer between two memories, for instances at a depth."""
        tensor = self.workload.tensors[name]
        stored = tuple(self.workload.dims[dim] for dim in tensor.dims)
        read = self.ports.read(scope.team, source, depth, moves, tensor.word, stored)
        return together(read, self.ports.write(scope.team, target, depth, moves, tensor.word, stored))

    def _wanted(self, visit: Visit, name: str, scope: SimulationScope, reduced: Sequence[str]) -> list[PortMove]:
        """The moves of a fill; along an axis that splits a reduced dim, only the first member is filled."""
        moves = self.held_regions(visit.node, name, scope, visit.depth)
        first = [position for position, dim in scope.splits.items() if dim in reduced and position < self.axes.width(visit.depth)]
        first += self._roots(visit.node, name, visit.depth)
        return [move for move in moves if all(move.who[i] == scope.team.span(i)[0] for i in first)]

    def _roots(self, node: Hold, name: str, depth: int) -> list[int]:
        """The axis over which the body broadcasts a filled tensor before anything reads it."""
        if self.writer(node, name) is not None:
            return []
        found = filling_broadcast(node, name, {op.name for op in self.workload.ops if name in (*op.inputs, op.scaled_by)})
        position = self.axes.position(found.level, found.axis) if found else -1
        return [position] if found and self.axes.depths[position] == depth else []

    def drain(self, visit: Visit, name: str, scope: SimulationScope) -> Requests | None:
        """The requests of a tensor's drain on exit; None if it is not drained. Each element present is drained once."""
        parent = visit.parents[name]
        if self.writer(visit.node, name) is None or parent is None:
            return None
        outer, known = parent, self._alike("drain", visit, name, scope)

        def moves() -> list[PortMove]:
            there = visit.held.get(name, {})
            return [PortMove(instance, box, points(box)) for instance, boxes in there.items() for box in _joined(list(boxes))]

        def note() -> None:
            for move in moves():
                outer.keep(name, move.who[: self.axes.width(outer.depth)], move.box)

        if self.traced(outer, name):
            outer.later((known, scope.box(self.workload.tensors[name])), note)
        if known not in self._known:
            self._known[known] = self._moved(name, visit.node.memory, outer.node.memory, visit.depth, moves(), scope)
        return self._known[known]


def _joined(boxes: list[Box]) -> list[Box]:
    """Disjoint boxes merged to one if they fill it, else neighbours merged dim by dim, so that equal elements give equal boxes.

    >>> _joined([((0, 3),), ((3, 5),)]), _joined([((0, 3),), ((4, 5),), ((5, 6),)])
    ([((0, 5),)], [((0, 3),), ((4, 6),)])
    """
    if len(boxes) < 2:
        return boxes
    whole = tuple((min(start for start, _ in cuts), max(stop for _, stop in cuts)) for cuts in zip(*boxes, strict=True))
    if points(whole) == sum(points(box) for box in boxes):
        return [whole]
    for at in reversed(range(len(whole))):
        merged: list[Box] = []
        for box in sorted(boxes, key=lambda box: (box[:at], box[at + 1 :], box[at])):
            last = merged[-1] if merged else None
            if last and (last[:at], last[at + 1 :], last[at][1]) == (box[:at], box[at + 1 :], box[at][0]):
                merged[-1] = (*box[:at], (last[at][0], box[at][1]), *box[at + 1 :])
            else:
                merged.append(box)
        boxes = merged
    return boxes


def _cuts(way: Sequence[PathStep], split: PathStep) -> list[tuple[int, int]]:
    """(tile, axis) of the loops and splits over the split's dim on a path, up to an equal split; empty if there is none."""
    found: list[tuple[int, int]] = []
    for step in way:
        if step.dim == split.dim:
            found.append((step.tile, step.position))
            if step.is_split and step.position == split.position:
                return found
    return []
