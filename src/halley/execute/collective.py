"""Collectives on arrays, step by step: every transfer of the algorithm's step table is executed and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from halley.errors import Fault, IllegalMapping
from halley.execute.compute import Journal, rescale
from halley.execute.functions import Array, merge
from halley.execute.members import Box, ExecutionScope, Instance, Ranges, region, size, slices
from halley.execute.store import OpenHold, Store
from halley.ir.hardware import Topology
from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.placement import Partial, Placement, Replicate, Shard, Single
from halley.ir.workload import MONOIDS, Op
from halley.network.algorithms.tables import Steps, Transfer
from halley.network.time.axis import route, steps

Kind = CollectiveKind
SHARDING = (Kind.REDUCE_SCATTER, Kind.SCATTER, Kind.ALL_TO_ALL)
NEEDS: dict[CollectiveKind, tuple[type[Placement], ...]] = {
    Kind.ALL_REDUCE: (Partial,),
    Kind.REDUCE_SCATTER: (Partial,),
    Kind.REDUCE: (Partial,),
    Kind.ALL_GATHER: (Shard,),
    Kind.GATHER: (Shard,),
    Kind.ALL_TO_ALL: (Shard,),
    Kind.BROADCAST: (Single,),
    Kind.SCATTER: (Single,),
    Kind.SHIFT: (Shard, Replicate, Single),
}
"""By kind, the placements along the axis that it accepts."""


@dataclass(slots=True)
class Payload:
    """Payload of one member: per tensor the region, flattened in C order, with the per-element state of `Buffer`."""

    value: dict[str, Array]
    count: dict[str, Array]
    stamp: dict[str, Array]
    relative: dict[str, Array]

    @property
    def tables(self) -> tuple[dict[str, Array], ...]:
        return self.value, self.count, self.stamp, self.relative

    def part(self, chunk: Array) -> Payload:
        """A copy of some elements."""
        return Payload(*({name: array[chunk] for name, array in table.items()} for table in self.tables))


@dataclass(frozen=True, slots=True)
class AxisGroup:
    """The instances along the axis that run one collective together, with the ranges and the box of their common payload."""

    instances: tuple[Instance, ...]
    ranges: Ranges
    box: Box


def collective(store: Store, journal: Journal, node: Collective, scope: ExecutionScope) -> None:
    """Move or combine the tensors along one axis, in every group of instances along that axis."""
    key = (node.level, node.axis)
    first, count, topology = scope.axis(key)
    position = scope.siblings.position(key)
    depth = scope.siblings.depths[position]
    holds = {name: _hold(store, node, name, scope, depth) for name in node.tensors}
    table = steps(node.kind, node.algorithm, topology, count)
    _check_network(store, node, table)
    for name in node.tensors:
        _check_share(node, name, holds[name], scope)
    if count == 1:
        return
    _check(store, node, scope, holds, depth)
    lines = [line for line in _axis_groups(store, node, scope, position, depth) if size(line.box)]
    for name in node.tensors:
        parts = ((holds[name].buffer(name, instance), line.box) for line in lines for instance in line.instances)
        if lines and not any(buffer.held(store.numbers[name], box).any() for buffer, box in parts):
            raise IllegalMapping(Fault(_text(node), f"{name} on some member", "none of it on any", f"compute {name} there first"))
    for line in lines:
        for name in node.tensors:
            if store.scaled_by(name):
                _rescale_to_maximum(store, node, name, holds[name], scope, line)
        payloads = [_payload(store, node, holds, instance, line.box) for instance in line.instances]
        _check_blocks(store, node, holds, line, payloads)
        chunks = _chunks(store, node, line, payloads)
        for step in table:
            _step(store, node, holds, step, payloads, chunks)
            _count(store, node, holds, step, chunks, first, topology, count)
        _put_back(store, node, holds, line, payloads)
    if store.maxima.intersection(node.tensors):
        journal.visit += 1
        for name in store.maxima.intersection(node.tensors):
            for line in lines:
                for instance in line.instances:
                    holds[name].buffer(name, instance).stamp[slices(line.box)] = journal.visit
    if node.kind is not Kind.SHIFT:
        for name in node.tensors:
            holds[name].placements[name] = {**holds[name].placements[name], key: _reached(node)}


def _reached(node: Collective) -> Placement:
    """The placement after a collective other than a shift, which does not change it."""
    match node.kind:
        case Kind.ALL_REDUCE | Kind.ALL_GATHER | Kind.BROADCAST:
            return Replicate()
        case Kind.REDUCE | Kind.GATHER:
            return Single()
        case _:
            return Shard(node.dim)


def _text(node: Collective) -> str:
    return f"{node.kind} {' '.join(node.tensors)} over {node.level}.{node.axis}"


def _hold(store: Store, node: Collective, name: str, scope: ExecutionScope, depth: int) -> OpenHold:
    if name not in store.workload.tensors:
        raise IllegalMapping(Fault(_text(node), "tensors of the workload", repr(name)))
    found = [hold for hold in scope.holds.get(name, ()) if hold.depth == depth]
    if not found:
        raise IllegalMapping(
            Fault(
                _text(node),
                f"{name} held in a memory of {node.level}",
                "no such hold around it",
                f"hold {name} there outside the collective",
            )
        )
    return found[-1]


def _check_share(node: Collective, name: str, hold: OpenHold, scope: ExecutionScope) -> None:
    """A collective inside a share of an axis must include every member that holds a part of the tensor."""
    if hold.reaches_beyond(name, scope):
        expected, got = f"all members that keep {name} in {hold.node.memory} in its share", "others outside it"
        raise IllegalMapping(Fault(_text(node), expected, got, f"move it out of that share, or hold {name} inside it"))


def _check_network(store: Store, node: Collective, table: Steps) -> None:
    """Transfers that the network merges need a network that copies, or adds."""
    axis = store.chip.axis(node.level, node.axis)
    shared = [transfer for step in table for transfer in step if transfer.shared]
    for needed, there, what in (
        (any(not transfer.combine for transfer in shared) or node.kind is Kind.ALL_REDUCE, axis.multicast, "copies"),
        (any(transfer.combine for transfer in shared), axis.reduction, "adds"),
    ):
        if shared and needed and not there:
            raise IllegalMapping(Fault(_text(node), f"a network that {what}", "one that does not", "use another algorithm"))


def _check(store: Store, node: Collective, scope: ExecutionScope, holds: Mapping[str, OpenHold], depth: int) -> None:
    where, key = _text(node), (node.level, node.axis)
    for other in scope.split:
        if scope.siblings.depths[scope.siblings.position(other)] > depth:
            raise IllegalMapping(
                Fault(
                    where, "a place outside splits of deeper levels", f"inside a split over {other[0]}.{other[1]}", "move it out"
                )
            )
    dims = {store.workload.tensors[name].dims for name in node.tensors}
    if len(dims) != 1:
        raise IllegalMapping(Fault(where, "tensors with the same dims", f"{sorted(dims)}", "use one collective each"))
    scope.check_cut_once(where)
    for index in scope.indices:
        cutting = set(index.dims).intersection((*(dim for dim, _ in scope.loops), *scope.split.values()))
        if index.dim in next(iter(dims)) and cutting:
            got = f"inside one over {min(cutting)}"
            expected = f"a place outside loops and splits that cut {index.dim} into overlapping parts"
            raise IllegalMapping(Fault(where, expected, got, "move it out"))
    if node.kind in SHARDING and node.dim not in next(iter(dims)):
        raise IllegalMapping(
            Fault(
                where, f"a dim of {node.tensors[0]} to shard", repr(node.dim), f"add 'to' and one of {sorted(next(iter(dims)))}"
            )
        )
    for name in node.tensors:
        found = holds[name].placements[name].get(key, Replicate())
        if not isinstance(found, NEEDS[node.kind]):
            expected = " or ".join(need.__name__ for need in NEEDS[node.kind])
            raise IllegalMapping(
                Fault(where, f"{name} {expected} over {key[0]}.{key[1]}", str(found), "remove it, or use the kind that fits")
            )
        if Shard in NEEDS[node.kind] and scope.split.get(key) in next(iter(dims)):
            raise IllegalMapping(
                Fault(
                    where,
                    f"a place outside the split of {scope.split[key]} over that axis",
                    "inside it",
                    "hold it outside the spread",
                )
            )
        sharded = holds[name].placements[name].items() if node.kind in SHARDING else ()
        doubled = [  # where a split around it cuts the dim, that cut is of the region that it works on
            axis
            for axis, placement in sharded
            if placement == Shard(node.dim) and axis != key and scope.split.get(axis) != node.dim
        ]
        if doubled:
            got = f"{node.dim}, which {doubled[0][0]}.{doubled[0][1]} shards already"
            raise IllegalMapping(Fault(where, "a dim that no other axis shards", got, "choose another dim"))
        op = store.producers.get(name)
        again = [dim for dim, _ in scope.loops[len(holds[name].scope.loops) :] if op and dim in store.reduced(op)]
        if again and node.kind is not Kind.SHIFT:
            remedy = "move it out of that loop, or the hold into it"
            raise IllegalMapping(Fault(where, f"no loop over {again[0]} between it and the hold of {name}", "one", remedy))
        outside = [hold for hold in scope.holds[name] if hold is not holds[name] and hold.depth == depth]
        if node.kind is Kind.SHIFT and op and outside:
            remedy = "hold it once at that level"
            raise IllegalMapping(Fault(where, f"one hold of {name} in {node.level}, for copies do not drain", "two", remedy))
        missing = [other for other in op.outputs if other not in node.tensors] if op else []
        if missing and node.kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.REDUCE):
            raise IllegalMapping(
                Fault(
                    where,
                    f"the whole state of {op.name if op else ''}",
                    f"{name} without {missing[0]}",
                    f"add {missing[0]} to the collective",
                )
            )


def _axis_groups(store: Store, node: Collective, scope: ExecutionScope, position: int, depth: int) -> list[AxisGroup]:
    """The groups of instances along the axis. The payload is selected by the ranges of the first member, also for idle
    members."""
    width = scope.siblings.width(depth)
    first: dict[Instance, Ranges] = {}
    for member in sorted(scope.ranges):
        first.setdefault(member[:width], scope.ranges[member])
    lines: dict[Instance, list[Instance]] = {}
    for instance in first:
        lines.setdefault(instance[:position] + instance[position + 1 :], []).append(instance)
    tensor = store.workload.tensors[node.tensors[0]]
    return [AxisGroup(tuple(line), first[line[0]], region(tensor, first[line[0]])) for line in lines.values()]


def _rescale_to_maximum(
    store: Store, node: Collective, name: str, hold: OpenHold, scope: ExecutionScope, line: AxisGroup
) -> None:
    """Rescale partial results to the current running maximum: they can be added only if they are relative to the same one."""
    largest = store.scaled_by(name)
    enclosing = scope.holds.get(largest)
    found = enclosing[-1].placements[largest].get((node.level, node.axis), Replicate()) if enclosing else None
    if not enclosing or isinstance(found, Partial):
        raise IllegalMapping(
            Fault(
                _text(node),
                f"{largest} Replicate over {node.level}.{node.axis}, for {name} is relative to it",
                str(found) if enclosing else f"no hold of {largest}",
                f"insert all-reduce {largest} over {node.level}.{node.axis} before it",
            )
        )
    rescale(store, name, hold, enclosing[-1], [(i, line.box, line.ranges) for i in line.instances], hold.depth)


def _payload(store: Store, node: Collective, holds: Mapping[str, OpenHold], instance: Instance, box: Box) -> Payload:
    payload = Payload({}, {}, {}, {})
    for name in node.tensors:
        buffer = holds[name].buffer(name, instance)
        counts = buffer.held(store.numbers[name], box)
        arrays = (buffer.value[slices(box)], counts, buffer.stamp[slices(box)], buffer.relative[slices(box)])
        for table, array in zip(payload.tables, arrays, strict=True):
            table[name] = np.array(array).ravel()
    return payload


def _chunks(store: Store, node: Collective, line: AxisGroup, payloads: Sequence[Payload]) -> list[Array]:
    """Indices into the flattened payload, per chunk of the step table."""
    count, elements = len(payloads), size(line.box)
    match node.kind:
        case Kind.ALL_REDUCE | Kind.REDUCE | Kind.BROADCAST:
            part = -(-elements // count)
            return [np.arange(min(i * part, elements), min((i + 1) * part, elements)) for i in range(count)]
        case Kind.REDUCE_SCATTER | Kind.SCATTER:
            return _shards(store, node, line.box, count)
        case Kind.ALL_TO_ALL:
            shards = _shards(store, node, line.box, count)
            return [np.intersect1d(block, shard) for block in _blocks(node, payloads) for shard in shards]
        case _:
            return _blocks(node, payloads)


def _shards(store: Store, node: Collective, box: Box, count: int) -> list[Array]:
    axis = store.workload.tensors[node.tensors[0]].dims.index(node.dim)
    extent = box[axis][1] - box[axis][0]
    tile = -(-extent // count)
    numbers = np.arange(size(box)).reshape([stop - start for start, stop in box])
    return [np.take(numbers, range(min(i * tile, extent), min((i + 1) * tile, extent)), axis).ravel() for i in range(count)]


def _blocks(node: Collective, payloads: Sequence[Payload]) -> list[Array]:
    """Indices of the elements that each member holds."""
    blocks = [np.nonzero(payload.count[node.tensors[0]])[0] for payload in payloads]
    for name in node.tensors[1:]:
        if any((np.nonzero(p.count[name])[0] != b).any() for p, b in zip(payloads, blocks, strict=True) if len(b)):
            raise IllegalMapping(
                Fault(_text(node), "tensors that are sharded alike", f"{name} sharded in another way", "use one collective each")
            )
    return blocks


def _check_blocks(
    store: Store, node: Collective, holds: Mapping[str, OpenHold], line: AxisGroup, payloads: Sequence[Payload]
) -> None:
    """Before a kind that moves what members hold: member i must hold the i-th tile of one dim, or each all, or the first all."""
    for name in node.tensors:
        found = holds[name].placements[name].get((node.level, node.axis), Replicate())
        held = [(payload.count[name] > 0).reshape([stop - start for start, stop in line.box]) for payload in payloads]
        match found:
            case Partial():
                return
            case Shard(dim):
                axis = store.workload.tensors[name].dims.index(dim)
                extent = line.box[axis][1] - line.box[axis][0]
                tile = int(np.moveaxis(held[0], axis, 0).reshape(extent, -1).any(axis=1).sum())
                shape = [-1 if index == axis else 1 for index in range(len(line.box))]
                number = (np.arange(extent) // max(tile, 1)).reshape(shape)
                expected = [np.broadcast_to(number == index, part.shape) for index, part in enumerate(held)]
            case Single():
                expected = [np.full(part.shape, index == 0) for index, part in enumerate(held)]
            case _:
                expected = [np.full(part.shape, True) for part in held]
        if any((a != b).any() for a, b in zip(expected, held, strict=True)):
            remedy = "put no loop between the hold and the split that distributes it, and the collective right outside that split"
            raise IllegalMapping(Fault(_text(node), f"{name} {found}, the i-th tile on member i", "other parts", remedy))


def _step(
    store: Store,
    node: Collective,
    holds: Mapping[str, OpenHold],
    step: Sequence[Transfer],
    payloads: list[Payload],
    chunks: Sequence[Array],
) -> None:
    """Execute one step: all messages are read before any is written."""
    messages = [payloads[transfer.source].part(chunks[transfer.chunk]) for transfer in step]
    for transfer, message in zip(step, messages, strict=True):
        mine, chunk = payloads[transfer.target], chunks[transfer.chunk]
        if transfer.combine:
            message = _combined(store, node, mine.part(chunk), message)
        for table, arrays in zip(mine.tables, message.tables, strict=True):
            for name, array in arrays.items():
                table[name][chunk] = array


def _combined(store: Store, node: Collective, mine: Payload, theirs: Payload) -> Payload:
    for op in _ops(store, node):
        names = op.outputs
        state, count = merge(
            store.monoid(op),
            tuple(mine.value[name] for name in names),
            mine.count[names[0]],
            tuple(theirs.value[name] for name in names),
            theirs.count[names[0]],
        )
        for name, value in zip(names, state, strict=True):
            empty = mine.count[name] == 0
            mine.stamp[name] = np.where(empty, theirs.stamp[name], mine.stamp[name])
            mine.relative[name] = np.where(empty, theirs.relative[name], mine.relative[name])
            mine.value[name], mine.count[name] = value, count
    return mine


def _ops(store: Store, node: Collective) -> list[Op]:
    """The ops whose results are combined, each once."""
    return list({op.name: op for name in node.tensors if (op := store.producers.get(name))}.values())


def _count(
    store: Store,
    node: Collective,
    holds: Mapping[str, OpenHold],
    step: Sequence[Transfer],
    chunks: Sequence[Array],
    first: int,
    topology: Topology,
    count: int,
) -> None:
    tally = store.tally
    seen: set[tuple[str, int, object]] = set()

    def again(what: str, transfer: Transfer, place: object) -> bool:
        """Whether a merged transfer of this step has already carried this chunk here."""
        key = (what, transfer.chunk, place)
        known = key in seen
        if transfer.shared:
            seen.add(key)
        return known

    for transfer in step:
        elements = len(chunks[transfer.chunk])
        if not elements:
            continue
        links = route(topology, count, transfer.source, transfer.target)
        crossed = [link for link in links if not again("link", transfer, link)]
        leaves, arrives = not again("send", transfer, transfer.source), not again("receive", transfer, transfer.target)
        for name in node.tensors:
            memory, amount = holds[name].node.memory, elements * store.workload.tensors[name].word
            if leaves:
                tally.reads[memory, name, "send"] += amount
            if arrives:
                tally.writes[memory, name, "receive"] += amount
            if arrives and transfer.combine:
                tally.reads[memory, name, "combine"] += amount
            for source, target in crossed:
                tally.links[node.level, node.axis, first + source, first + target] += amount
        if transfer.combine:
            for op in _ops(store, node):
                tally.do(MONOIDS[op.monoid or "sum"].work, elements)


def _put_back(
    store: Store, node: Collective, holds: Mapping[str, OpenHold], line: AxisGroup, payloads: Sequence[Payload]
) -> None:
    """Write the result of the kind to each member; other elements of the payload are dropped."""
    whole = np.arange(size(line.box))
    shards = _shards(store, node, line.box, len(payloads)) if node.kind in SHARDING else []
    for index, (instance, payload) in enumerate(zip(line.instances, payloads, strict=True)):
        kept = np.zeros(len(whole), bool)
        match node.kind:
            case Kind.REDUCE | Kind.GATHER:
                kept[:] = index == 0
            case Kind.REDUCE_SCATTER | Kind.SCATTER | Kind.ALL_TO_ALL:
                kept[shards[index]] = True
            case _:
                kept[:] = True
        for name in node.tensors:
            buffer, part = holds[name].buffer(name, instance), slices(line.box)
            shape = buffer.owner[part].shape
            buffer.drop(store.numbers[name], part)
            keep = (kept & (payload.count[name] > 0)).reshape(shape)
            arrays = (payload.value, payload.count, payload.stamp, payload.relative)
            for target, table in zip(buffer.arrays, arrays, strict=True):
                target[part] = np.where(keep, table[name].reshape(shape), target[part])
            buffer.owner[part] = np.where(keep, store.numbers[name], buffer.owner[part])
