"""Requests of a `Collective`, step by step, to its axis, and the data that every member holds afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias, assert_never

from halley.ir.hardware import Axis, Memory
from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.workload import Op
from halley.network.algorithms.tables import Steps, Transfer
from halley.network.time.axis import route, steps
from halley.simulate.compute import ComputeRequests
from halley.simulate.holds import Visit
from halley.simulate.members import Box, Member, SimulationScope, common, inside, points
from halley.simulate.tasks import Requests

Kind = CollectiveKind


class CollectiveRequests:
    """Requests of the collectives of one workload on one chip."""

    def __init__(self, computing: ComputeRequests) -> None:
        self.computing, self.workload, self.chip = computing, computing.workload, computing.chip

    def requests(self, node: Collective, scope: SimulationScope) -> Iterator[Requests]:
        """The requests of each step; afterwards the members hold the result of the kind."""
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
        sizes = _chunks(node, tensors[0].dims, box, parts)
        chunks = [elements * sum(tensor.word for tensor in tensors) for elements in sizes]
        axis = self.chip.axis(node.level, node.axis)
        stores: dict[Memory, int] = {}
        for name, tensor in zip(node.tensors, tensors, strict=True):
            memory = self.chip.memory(_hold(scope, name, depth).node.memory)
            stores[memory] = stores.get(memory, 0) + tensor.word
        server = team.axes.server(team.critical, depth, "axis", node.level, node.axis)
        engines = [team.axes.server(team.critical, depth, "dma", memory.name) for memory in stores if memory.dma]
        table = steps(node.kind, node.algorithm, team.topology(position), size)
        waiting = max(_accessing(memory, word, table, sizes) for memory, word in stores.items())  # of the busiest memory
        pipeline = self.chip.vector.latency if self.chip.vector is not None else 0.0  # members' adders fill once
        for number, step in enumerate(table, start=1):
            routes = [(move, route(team.topology(position), size, move.source, move.target)) for move in step]
            carrying = _carrying(axis, routes, chunks)
            waiting -= carrying
            seconds = _fixed(axis, routes) + carrying
            if number == len(table):  # memory time that the links do not hide
                seconds += max(0.0, waiting)
            if any(move.combine and not move.shared for move in step):
                seconds, pipeline = seconds + pipeline, 0.0
            yield ((server, seconds), *((engine, seconds) for engine in engines))
        for name in node.tensors:
            self._put_back(node, name, _hold(scope, name, depth), scope, position)

    def rescale(self, node: Collective, scope: SimulationScope) -> Iterator[Requests]:
        """Requests to rescale partial results that are relative to an older running maximum, before the collective."""
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

    def _places(self, op: Op, hold: Visit, scope: SimulationScope, position: int) -> Iterator[tuple[Member, Box, Box]]:
        """(instance, box of the accumulator that it holds, box of the maximum) in all groups along the axis."""
        accumulator, maximum = self.workload.tensors[op.outputs[0]], self.workload.tensors[op.scaled_by]
        for who, row in _axis_groups(scope, hold, position).items():
            whole = scope.box(accumulator, row)
            held = [common(part, whole) for part in hold.held.get(op.outputs[0], {}).get(who, ()) if points(common(part, whole))]
            for part in held:
                extents = dict(zip(accumulator.dims, part, strict=True))
                rows = dict(zip(maximum.dims, scope.box(maximum, row), strict=True))
                yield who, part, tuple(extents.get(dim, rows[dim]) for dim in maximum.dims)

    def _put_back(self, node: Collective, name: str, hold: Visit, scope: SimulationScope, position: int) -> None:
        """Record the result of the kind on each member; other parts of the payload are dropped."""
        if any(op.scaled_by == name for op in self.workload.ops):
            self.computing.clock += 1
            boxes = (*hold.stamps.get(name, {}), scope.box(self.workload.tensors[name]))
            hold.stamps[name] = dict.fromkeys(boxes, self.computing.clock)
        if node.kind is Kind.SHIFT:  # it leaves copies on neighbours, which are not drained
            return
        tensor = self.workload.tensors[name]
        first, size = scope.team.span(position)
        table = hold.held.setdefault(name, {})
        groups = {who: scope.box(tensor, row) for who, row in _axis_groups(scope, hold, position).items()}
        payloads: dict[Member, list[Box]] = {}
        for who, whole in groups.items():
            if who[position] == first:  # equal for the whole line
                line = ((*who[:position], first + other, *who[position + 1 :]) for other in range(size))
                parts = (part for other in line for part in _parts(table.get(other, {}), whole))
                payloads[who] = list(dict.fromkeys(parts))
        for who, whole in groups.items():
            present = table.setdefault(who, {})
            for box in [whole] if whole in present else [box for box in present if inside(box, whole)]:
                del present[box]
            kept: Box | None = whole
            match node.kind:
                case Kind.REDUCE | Kind.GATHER:
                    kept = whole if who[position] == first else None
                case Kind.REDUCE_SCATTER | Kind.SCATTER | Kind.ALL_TO_ALL:
                    kept = _shards(whole, tensor.dims.index(node.dim), size)[who[position] - first]
            if kept is None:
                continue
            for part in payloads[(*who[:position], first, *who[position + 1 :])]:
                hold.keep(name, who, common(part, kept))


def _parts(boxes: Mapping[Box, None], whole: Box) -> list[Box]:
    """What there is of a box. The others do not overlap with it where it is one of them."""
    return [whole] if whole in boxes else [part for part in (common(box, whole) for box in boxes) if points(part)]


Routes: TypeAlias = list[tuple[Transfer, tuple[tuple[int, int], ...]]]
"""Each transfer of a step, and the links that it crosses."""


def _fixed(axis: Axis, routes: Routes) -> float:
    """Time of a step [s] apart from its bytes: start-up, hops of the longest route, adders on the route of a sum, barrier."""
    adders = max((len(links) for move, links in routes if move.shared and move.combine), default=0)
    hops = max(len(links) for _, links in routes)
    return axis.exchange.startup + hops * axis.link.latency + adders * axis.exchange.adder + axis.exchange.barrier


def _carrying(axis: Axis, routes: Routes, chunks: list[int]) -> float:
    """Time [s] of the busiest link of a step for ``chunks`` [B]; merged transfers cross a link once."""
    load: dict[tuple[int, int], int] = {}
    together: set[tuple[int, tuple[int, int]]] = set()
    for move, links in routes:
        for crossed in links:
            if (move.chunk, crossed) not in together:
                load[crossed] = load.get(crossed, 0) + chunks[move.chunk]
            if move.shared:
                together.add((move.chunk, crossed))
    adding = any(move.shared and move.combine for move, _ in routes)
    bandwidth = min(axis.link.bandwidth, axis.exchange.add_bandwidth) if adding else axis.link.bandwidth
    return max(load.values()) / bandwidth


def _accessing(memory: Memory, word: int, table: Steps, sizes: list[int]) -> float:
    """Time [s] of the busiest member's memory to read what it sends and adds to, and to write what it receives."""
    read: dict[int, float] = {}
    written: dict[int, float] = {}
    for step in table:
        known: set[tuple[str, int, int]] = set()
        for move in step:
            uses = (("send", move.source, read), ("receive", move.target, written), ("own", move.target, read))
            for what, member, counts in uses:
                if (what == "own" and not move.combine) or (move.shared and (what, member, move.chunk) in known):
                    continue
                known.add((what, member, move.chunk))
                counts[member] = counts.get(member, 0.0) + sizes[move.chunk] * word
    reading = {member: amount / memory.read_bandwidth for member, amount in read.items()}
    writing = {member: amount / memory.write_bandwidth for member, amount in written.items()}
    if memory.shared_bus:
        return max(reading.get(member, 0.0) + writing.get(member, 0.0) for member in {*reading, *writing})
    return max((*reading.values(), *writing.values()))


def _hold(scope: SimulationScope, name: str, depth: int) -> Visit:
    """The innermost Hold of the tensor at that depth."""
    found = scope.holds[name]
    while found.depth > depth and (outer := found.parents[name]) is not None:
        found = outer
    return found


def _axis_groups(scope: SimulationScope, hold: Visit, position: int) -> dict[Member, int]:
    """By instance at the axis' level, the row of the member whose ranges define the payload: the first one on the axis."""
    width = scope.team.axes.width(hold.depth)
    first: dict[Member, int] = {}
    for row, member in enumerate(scope.team.members):
        first.setdefault(member[:width], row)
    begin = scope.team.span(position)[0]
    return {who: first[(*who[:position], begin, *who[position + 1 :])] for who in first}


def _shards(box: Box, dim: int, size: int) -> list[Box]:
    """A box distributed evenly along one dim.

    >>> _shards(((0, 5), (2, 4)), 0, 2)
    [((0, 3), (2, 4)), ((3, 5), (2, 4))]
    """
    start, stop = box[dim]
    tile = -(-(stop - start) // size)
    cuts = [min(start + i * tile, stop) for i in range(size + 1)]
    return [(*box[:dim], (cuts[i], cuts[i + 1]), *box[dim + 1 :]) for i in range(size)]


def _chunks(node: Collective, dims: tuple[str, ...], box: Box, parts: list[list[Box]]) -> list[int]:
    """Elements of each chunk of the step table. ``parts``: the boxes of the payload that each member holds."""
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
