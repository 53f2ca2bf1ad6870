"""One `Collective`, step by step: how long its axis is taken, and what every member holds afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.workload import Op
from halley.network.axis import route, steps
from halley.simulate.computing import Computing
from halley.simulate.holds import Visit
from halley.simulate.members import Box, Member, Scope, common, inside, points
from halley.simulate.tasks import Requests

Kind = CollectiveKind


class Exchanging:
    """Collectives of one workload on one chip."""

    def __init__(self, computing: Computing) -> None:
        self.computing, self.workload, self.chip = computing, computing.workload, computing.chip

    def requests(self, node: Collective, scope: Scope) -> Iterator[Requests]:
        """What each step asks for; afterwards the members hold what the kind promises."""
        team = scope.team
        position = team.axes.position(node.level, node.axis)
        depth = team.axes.depths[position]
        first, size = team.span(position)
        if size == 1:
            return
        tensors = [self.workload.tensors[name] for name in node.tensors]
        box = scope.box(tensors[0])
        hold = _hold(scope, node.tensors[0], depth)
        before, after = team.critical[:position], team.critical[position + 1 : team.axes.width(depth)]
        line = [(*before, first + i, *after) for i in range(size)]
        parts = [[common(part, box) for part in hold.held.get(node.tensors[0], {}).get(who, ())] for who in line]
        chunks = [elements * sum(tensor.word for tensor in tensors) for elements in _chunks(node, tensors[0].dims, box, parts)]
        link = self.chip.axis(node.level, node.axis).link
        server = team.axes.server(team.critical, depth, "axis", node.level, node.axis)
        for step in steps(node.kind, node.algorithm, team.topology(position), size):
            ways = [(route(team.topology(position), size, move.source, move.target), chunks[move.chunk]) for move in step]
            load: dict[object, int] = {}
            for way, amount in ways:
                for crossed in way:
                    load[crossed] = load.get(crossed, 0) + amount
            seconds = max(len(way) for way, _ in ways) * link.latency + max(load.values()) / link.bandwidth
            yield ((server, seconds),)
        for name in node.tensors:
            self._put_back(node, name, _hold(scope, name, depth), scope, position)

    def rescale(self, node: Collective, scope: Scope) -> Iterator[Requests]:
        """Parts that are relative to an older maximum are brought to the present one first."""
        position = scope.team.axes.position(node.level, node.axis)
        depth = scope.team.axes.depths[position]
        if scope.team.span(position)[1] == 1:
            return
        for name in node.tensors:
            op = self.workload.producer(name)
            if op is None or not op.scaled_by:
                continue
            hold, present = _hold(scope, name, depth), self.computing.stamp(op.scaled_by, scope)
            box = scope.box(self.workload.tensors[name])
            stamps = hold.stamps.get(name, {})
            stale = [part for part, stamp in stamps.items() if inside(part, box) and stamp < present]
            if stale:
                stamps.update(dict.fromkeys(stale, present))
                yield self.computing.scaling(op, hold, scope, list(self._places(op, hold, scope, position)), depth)

    def _places(self, op: Op, hold: Visit, scope: Scope, position: int) -> Iterator[tuple[Member, Box, Box]]:
        """(instance, what it has of the accumulator, rows of the maximum) on every line."""
        accumulator, maximum = self.workload.tensors[op.outputs[0]], self.workload.tensors[op.scaled_by]
        for who, row in _lines(scope, hold, position).items():
            whole = scope.box(accumulator, row)
            held = [common(part, whole) for part in hold.held.get(op.outputs[0], {}).get(who, ()) if points(common(part, whole))]
            for part in held:
                extents = dict(zip(accumulator.dims, part, strict=True))
                rows = dict(zip(maximum.dims, scope.box(maximum, row), strict=True))
                yield who, part, tuple(extents.get(dim, rows[dim]) for dim in maximum.dims)

    def _put_back(self, node: Collective, name: str, hold: Visit, scope: Scope, position: int) -> None:
        """Members keep what the kind promises; whatever else stood in the payload is gone."""
        if any(op.scaled_by == name for op in self.workload.ops):
            self.computing.clock += 1
            boxes = (*hold.stamps.get(name, {}), scope.box(self.workload.tensors[name]))
            hold.stamps[name] = dict.fromkeys(boxes, self.computing.clock)
        if node.kind is Kind.SHIFT:  # copies with a neighbour; they do not drain
            return
        tensor = self.workload.tensors[name]
        first, size = scope.team.span(position)
        table = hold.held.setdefault(name, {})
        before = {who: list(boxes) for who, boxes in table.items()}
        for who, row in _lines(scope, hold, position).items():
            whole = scope.box(tensor, row)
            table[who] = {box: None for box in table.get(who, {}) if not inside(box, whole)}
            kept: Box | None = whole
            match node.kind:
                case Kind.REDUCE | Kind.GATHER:
                    kept = whole if who[position] == first else None
                case Kind.REDUCE_SCATTER | Kind.SCATTER | Kind.ALL_TO_ALL:
                    kept = _shards(whole, tensor.dims.index(node.dim), size)[who[position] - first]
            if kept is None:
                continue
            for other in range(first, first + size):
                for box in before.get((*who[:position], other, *who[position + 1 :]), ()):
                    hold.keep(name, who, common(box, kept))


def _hold(scope: Scope, name: str, depth: int) -> Visit:
    """The innermost Hold of the tensor at that depth."""
    found = scope.holds[name]
    while found.depth > depth and (outer := found.parents[name]) is not None:
        found = outer
    return found


def _lines(scope: Scope, hold: Visit, position: int) -> dict[Member, int]:
    """By instance at the axis' level, the row of the member whose ranges say what its line moves: the first on the axis."""
    width = scope.team.axes.width(hold.depth)
    first: dict[Member, int] = {}
    for row, member in enumerate(scope.team.members):
        first.setdefault(member[:width], row)
    begin = scope.team.span(position)[0]
    return {who: first[(*who[:position], begin, *who[position + 1 :])] for who in first}


def _shards(box: Box, dim: int, size: int) -> list[Box]:
    """A box dealt out evenly along one dim.

    >>> _shards(((0, 5), (2, 4)), 0, 2)
    [((0, 3), (2, 4)), ((3, 5), (2, 4))]
    """
    start, stop = box[dim]
    tile = -(-(stop - start) // size)
    cuts = [min(start + i * tile, stop) for i in range(size + 1)]
    return [(*box[:dim], (cuts[i], cuts[i + 1]), *box[dim + 1 :]) for i in range(size)]


def _chunks(node: Collective, dims: tuple[str, ...], box: Box, parts: list[list[Box]]) -> list[int]:
    """Elements of each chunk of the step table. ``parts``: what each member of the line holds of the payload."""
    size = len(parts)
    match node.kind:
        case Kind.ALL_REDUCE | Kind.REDUCE | Kind.BROADCAST:
            part = -(-points(box) // size)
            return [min((i + 1) * part, points(box)) - min(i * part, points(box)) for i in range(size)]
        case Kind.REDUCE_SCATTER | Kind.SCATTER:
            return [points(shard) for shard in _shards(box, dims.index(node.dim), size)]
        case Kind.ALL_TO_ALL:
            shards = _shards(box, dims.index(node.dim), size)
            return [sum(points(common(part, shard)) for part in held) for held in parts for shard in shards]
        case Kind.ALL_GATHER | Kind.GATHER | Kind.SHIFT:
            return [sum(points(part) for part in held) for held in parts]
        case _:
            assert_never(node.kind)
