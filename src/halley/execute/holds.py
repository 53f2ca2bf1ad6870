"""Entry and exit of Holds: fills, refills and drains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias, assert_never

import numpy as np

from halley.errors import Fault, IllegalMapping
from halley.execute.counters import CountedMove
from halley.execute.functions import Array, merge
from halley.execute.members import (
    AxisKey,
    Box,
    ExecutionScope,
    Instance,
    Member,
    box_text,
    clipped,
    idle,
    narrowed,
    region,
    size,
    slices,
    space,
)
from halley.execute.store import Buffer, OpenHold, Placements, Store
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
from halley.ir.mapping import (
    Sequence as Series,
)
from halley.ir.placement import Partial, Replicate, Shard, Single
from halley.ir.workload import DTYPE_BYTES, Op, OpKind


def written(store: Store, body: Node) -> dict[str, Op]:
    """Tensors that ops in the body write, each with its op."""
    ops = [store.workload.op(node.op) for _, node in walk(body) if isinstance(node, Compute)]
    return {name: op for op in ops for name in op.outputs}


def read(store: Store, body: Node) -> set[str]:
    """Tensors that ops or collectives in the body read."""
    found: set[str] = set()
    for _, node in walk(body):
        if isinstance(node, Compute):
            op = store.workload.op(node.op)
            found.update(op.inputs, (op.scaled_by,) if op.scaled_by else ())
        elif isinstance(node, Collective):
            found.update(node.tensors)
    return found


TreeStep: TypeAlias = tuple[Temporal | Spatial | Parallel | Pipeline, int]
"""A node on the path to a leaf, and the index of the next child on the path."""


def touch_paths(store: Store, node: Node, tensor: str) -> Iterator[tuple[TreeStep, ...]]:
    """The path to each compute and collective inside a node that accesses the tensor: the loops, splits and shares on it."""
    match node:
        case Compute():
            op = store.workload.op(node.op)
            if tensor in (*op.inputs, *op.outputs, op.scaled_by):
                yield ()
        case Collective():
            if tensor in node.tensors:
                yield ()
        case Hold():
            yield from touch_paths(store, node.body, tensor)
        case Temporal() | Spatial():
            yield from (((node, 0), *way) for way in touch_paths(store, node.body, tensor))
        case Series() | Overlap():
            for child in node.children:
                yield from touch_paths(store, child, tensor)
        case Parallel() | Pipeline():
            for index, child in enumerate(node.children):
                yield from (((node, index), *way) for way in touch_paths(store, child, tensor))
        case _:
            assert_never(node)


def _cuts(way: Sequence[TreeStep], split: Spatial) -> list[tuple[int, str]]:
    """The loops and splits over the split's dim on a path, up to that split or an equal one; empty if there is none."""
    found: list[tuple[int, str]] = []
    for node, _ in way:
        if not isinstance(node, Parallel) and node.dim == split.dim:
            found.append((node.tile, f"{node.level}.{node.axis}" if isinstance(node, Spatial) else ""))
            if isinstance(node, Spatial) and (node.level, node.axis) == (split.level, split.axis):
                return found
    return []


def _held_regions(store: Store, node: Hold, tensor: str, scope: ExecutionScope, depth: int) -> Iterator[tuple[Member, Box]]:
    """The region that each member holds: its own region, narrowed by splits over axes of the Hold's level or outer levels that
    all accesses inside have in common; nothing for idle members."""
    found = list(touch_paths(store, node.body, tensor))
    if not found:
        return
    item, width, position, start = store.workload.tensors[tensor], scope.siblings.width(depth), 0, 0
    selecting = store.workload.selectors(tensor)
    first, others = found[0], found[1:]
    # idle members take part in collectives, and may receive a part of the result
    leaves = (inner for _, inner in walk(node.body) if isinstance(inner, Collective))
    joined = tensor in written(store, node.body) and any(tensor in leaf.tensors for leaf in leaves)
    for member, own in scope.ranges.items():
        ranges, walked, shares, present = own, set[str](), dict(scope.shares), True
        for step, index in first:
            if not isinstance(step, Temporal):
                position = scope.siblings.position((step.level, step.axis))
                start = shares[step.level, step.axis][0] if (step.level, step.axis) in shares else 0
            if isinstance(step, Parallel | Pipeline):
                begin = start + sum(step.shares[:index])
                shares[step.level, step.axis] = (begin, step.shares[index])
                if position < width and all((step, index) in way for way in others):
                    present &= begin <= member[position] < begin + step.shares[index]
            if isinstance(step, Parallel):
                continue
            low, high = ranges[step.dim]
            shared = isinstance(step, Spatial) and position < width and all(_cuts(w, step) == _cuts(first, step) for w in others)
            if shared and step.dim not in walked:
                low = min(low + (member[position] - start) * step.tile, high)
            elif step.dim in selecting:
                walked.add(step.dim)
                continue
            ranges = narrowed(ranges, step.dim, (low, min(low + step.tile, high)), scope.indices)
        box = region(item, ranges)
        if present and (size(box) if joined else not idle(ranges)):
            yield member, box


def _boxes(store: Store, node: Hold, tensor: str, scope: ExecutionScope, depth: int) -> dict[Instance, tuple[Box, ...]]:
    """The distinct boxes that each instance of the memory holds: one, unless splits of a deeper level are outside the Hold."""
    width = scope.siblings.width(depth)
    boxes: dict[Instance, tuple[Box, ...]] = {}
    for member, box in sorted(_held_regions(store, node, tensor, scope, depth)):
        if box not in boxes.get(member[:width], ()):
            boxes[member[:width]] = (*boxes.get(member[:width], ()), box)
    return boxes


def _width(store: Store, node: Hold, tensor: str) -> int:
    """Bytes of an element in a Hold: that of the accumulator type, in the innermost Hold around the contraction."""
    own, made, engine = store.workload.tensors[tensor].word, store.producers.get(tensor), store.chip.matrix
    if made is None or made.kind is not OpKind.CONTRACT or engine is None:
        return own
    sums = engine.accumulators.get(store.workload.tensors[made.inputs[0]].dtype, "")
    inner = [path for path, item in walk(node.body) if isinstance(item, Hold) and tensor in item.names]
    for path, item in walk(node.body):
        if isinstance(item, Compute) and item.op == made.name and not any(path[: len(outer)] == outer for outer in inner):
            return max(own, DTYPE_BYTES.get(sums, 0))
    return own


def _space(store: Store, hold: OpenHold, name: str, instance: Instance) -> int:
    """Elements of a tensor for which an instance has space."""
    return sum(space(box, store.read_shapes[name]) for box in hold.boxes[name].get(instance, ()))


def _stored(store: Store, hold: OpenHold, name: str) -> Iterator[tuple[Instance, Box]]:
    """Each box of each instance, without padding."""
    for instance, boxes in hold.boxes[name].items():
        yield from ((instance, clipped(box, store.shapes[name])) for box in boxes)


def enter(store: Store, node: Hold, scope: ExecutionScope) -> OpenHold:
    """Open a Hold: allocate its buffers and run its fills."""
    depth = store.chip.depth(node.memory)
    hold = OpenHold(node, depth, scope)
    _check_position(store, hold)
    width = scope.siblings.width(depth)
    instances = sorted({member[:width] for member in scope.ranges})
    for group in node.tensors:
        _check_group(store, node, group)
        buffers = {i: Buffer(store.shapes[group[0]], np.result_type(*(store.dtypes[t] for t in group))) for i in instances}
        live = dict.fromkeys(instances, 0)
        for name in group:
            hold.buffers[name] = buffers
            hold.boxes[name] = _boxes(store, node, name, scope, depth)
            hold.placements[name] = {}
            for instance in hold.boxes[name]:
                live[instance] = max(live[instance], _space(store, hold, name, instance) * _width(store, node, name))
        for instance in instances:
            store.tally.allocate(node.memory, instance, live[instance] * node.buffers)
    made, wanted = written(store, node.body), read(store, node.body)
    for name in node.names:
        if name in made:
            if _revisited(store.reduced(made[name]), scope):
                _fill(store, hold, name, skip=store.reduced(made[name]))
        elif name in wanted:
            _fill(store, hold, name, root=_root(store, hold, name))
    return hold


def _root(store: Store, hold: OpenHold, name: str) -> AxisKey | None:
    """The axis over which the body broadcasts a tensor before anything reads it; None if it does not."""
    found = filling_broadcast(hold.node, name, {op.name for op in store.workload.ops if name in (*op.inputs, op.scaled_by)})
    if found is None:
        return None
    siblings, key = hold.scope.siblings, (found.level, found.axis)
    return key if siblings.depths[siblings.position(key)] == hold.depth else None


def leave(store: Store, hold: OpenHold) -> None:
    """Close a Hold: drain the tensors that its body wrote, and free its buffers."""
    for name in written(store, hold.node.body):
        if name in hold.node.names:
            _drain(store, hold, name)
    for group in hold.node.tensors:
        for instance in hold.buffers[group[0]]:
            sizes = (_space(store, hold, t, instance) * _width(store, hold.node, t) for t in group)
            store.tally.allocate(hold.node.memory, instance, -max(sizes) * hold.node.buffers)


def _check_position(store: Store, hold: OpenHold) -> None:
    node = hold.node
    for name in node.names:
        if name not in store.workload.tensors:
            raise IllegalMapping(Fault(f"hold {node.memory}", "tensors of the workload", repr(name)))
        if node.names.count(name) > 1:
            raise IllegalMapping(Fault(f"hold {node.memory}", "each tensor once", f"{name} twice", "remove one"))
        outer = hold.scope.holds.get(name, ())
        if outer and outer[-1].depth > hold.depth:
            raise IllegalMapping(
                Fault(
                    f"hold {node.memory}: {name}",
                    "a memory as deep as the hold around it or deeper",
                    f"{outer[-1].node.memory} around it",
                )
            )
        ends = not outer and (name in store.workload.outputs or name not in store.producers)
        if ends and hold.depth != 0:
            raise IllegalMapping(
                Fault(
                    f"hold {node.memory}: {name}",
                    f"an outermost hold of {name} in a memory of {store.chip.levels[0].name}",
                    f"none around {node.memory}",
                    f"hold {name} further out first",
                )
            )


def _check_group(store: Store, node: Hold, group: Sequence[str]) -> None:
    for before, after in pairwise(group):
        op = store.producers.get(after)
        tensors = store.workload.tensors
        made = op is not None and op.kind is OpKind.MAP and before in op.inputs and tensors[before].dims == tensors[after].dims
        if not made:
            raise IllegalMapping(
                Fault(
                    f"hold {node.memory}: {'|'.join(group)}",
                    f"{after} to be a map of {before} over the same dims",
                    "another op" if op else "an input",
                    f"give {after} a buffer of its own",
                )
            )


def _revisited(reduced: tuple[str, ...], scope: ExecutionScope) -> bool:
    return any(dim in reduced and index for dim, index in scope.loops)


def _parent(hold: OpenHold, tensor: str) -> OpenHold | None:
    outer = hold.scope.holds.get(tensor, ())
    return outer[-1] if outer else None


def _fill(store: Store, hold: OpenHold, name: str, skip: tuple[str, ...] = (), root: AxisKey | None = None) -> None:
    """Copy each instance's box from the parent. ``skip``: reduced dims; along an axis that splits one of them, only the first
    member is filled. So it is along the axis ``root``."""
    parent = _parent(hold, name)
    siblings, number = hold.scope.siblings, store.numbers[name]
    first = {siblings.position(key): hold.scope.axis(key)[0] for key, dim in hold.scope.split.items() if dim in skip}
    if root is not None:
        first[siblings.position(root)] = hold.scope.axis(root)[0]
    where = f"fill of {name} into {hold.node.memory}"
    if parent is None:
        _load(store, hold, name, where)
        return
    moves = []
    for instance, box in _stored(store, hold, name):
        if not size(box) or any(instance[position] != index for position, index in first.items() if position < len(instance)):
            continue
        source = parent.buffers[name].get(instance[: siblings.width(parent.depth)])
        if source is None or not source.held(number, box).all():
            raise IllegalMapping(
                Fault(
                    where,
                    f"{name}{box_text(box)} to be there in {parent.node.memory}",
                    "elements that are not written, or overwritten in place",
                    f"write {name} earlier, or hold it further out",
                )
            )
        hold.buffers[name][instance].take(source, number, slices(box))
        moves.append(CountedMove(instance, box, size(box)))
    hold.placements[name] = dict(parent.placements[name])
    if root is not None and hold.scope.axis(root)[1] > 1:
        hold.placements[name][root] = Single()
    store.read(parent, name, "fill", moves, hold.depth)
    store.write(hold, name, "fill", moves, hold.depth)


def _load(store: Store, hold: OpenHold, name: str, where: str) -> None:
    """The outermost Hold of an input: the data is already in its memory, so nothing moves."""
    if name in store.producers:
        raise IllegalMapping(
            Fault(
                where, f"a hold of {name} further out that has it", "none", f"hold {name} outside both its writer and its readers"
            )
        )
    for instance, box in _stored(store, hold, name):
        buffer, part = hold.buffers[name][instance], slices(box)
        buffer.value[part] = store.arrays[name][part]
        buffer.owner[part] = store.numbers[name]
        buffer.count[part] = 1


def _drain(store: Store, hold: OpenHold, name: str) -> None:
    """Copy the data of each instance to the parent or, from the outermost Hold of an output, to the outputs."""
    parent = _parent(hold, name)
    if parent is None and name not in store.workload.outputs:
        return
    siblings, depth = hold.scope.siblings, parent.depth if parent else -1
    placements = hold.placements[name]
    crossed = range(siblings.width(depth), siblings.width(hold.depth))
    added = _added(store, hold, name, [siblings.keys[i] for i in crossed])
    parts = [(instance, where) for instance, where in _parts(store, hold, name) if where.any()]
    senders = first_holders(siblings.keys, crossed, placements, [instance for instance, _ in parts])
    moves: list[CountedMove] = []
    done: dict[Instance, Array] = {}
    for instance, where in parts:
        if instance not in senders:
            continue
        buffer = hold.buffers[name][instance]
        target = instance[: siblings.width(depth)]
        before = done.setdefault(target, np.zeros(where.shape, bool))
        if not added:
            where = where & ~before  # a shift leaves copies on the next member; only the first owner drains an element
        if parent is None:
            _deliver(store, name, buffer, where)
        elif where.any():
            _merge_into(store, name, parent.buffers[name][target], buffer, where & ~before, where & before)
            moves.append(CountedMove(instance, _bounds(where), int(where.sum())))
        before |= where
    if parent is not None:
        outer = set(siblings.keys[: siblings.width(parent.depth)])
        parent.placements[name] = {key: value for key, value in placements.items() if key in outer}
        store.read(hold, name, "drain", moves, hold.depth)
        store.write(parent, name, "drain", moves, hold.depth)


def _parts(store: Store, hold: OpenHold, name: str) -> Iterator[tuple[Instance, Array]]:
    number = store.numbers[name]
    for instance, buffer in hold.buffers[name].items():
        if not _space(store, hold, name, instance):
            continue
        if ((buffer.owner > -1) & (buffer.owner != number)).any():
            raise IllegalMapping(
                Fault(
                    f"drain of {name} from {hold.node.memory}",
                    f"{name} to be there still",
                    "a buffer overwritten in place",
                    f"take {name} out of the group, or do not hold it further out",
                )
            )
        yield instance, (buffer.owner == number) & (buffer.count > 0)


def first_holders(
    keys: Sequence[AxisKey], crossed: Iterable[int], placements: Placements, instances: Sequence[Instance]
) -> set[Instance]:
    """The instances that drain: the first one along crossed axes with equal copies, all along the others."""
    same = [i for i in crossed if not isinstance(placements.get(keys[i], Replicate()), Shard | Partial)]
    chosen: dict[Instance, Instance] = {}
    for instance in sorted(instances):
        chosen.setdefault(tuple(-1 if i in same else index for i, index in enumerate(instance)), instance)
    return set(chosen.values())


def _added(store: Store, hold: OpenHold, name: str, crossed: Iterable[AxisKey]) -> bool:
    """Whether the members have partial results that the network adds on the way to the parent."""
    siblings, found = hold.scope.siblings, False
    for key in crossed:
        partial = hold.placements[name].get(key)
        if not isinstance(partial, Partial):
            continue
        op = store.producers[name]
        if siblings.reduction[siblings.position(key)] and store.monoid(op).adds and not store.stateful(op):
            found = True
            continue
        raise IllegalMapping(
            Fault(
                f"drain of {name} from {hold.node.memory}",
                f"Replicate, Shard or Single over {key[0]}.{key[1]}",
                str(partial),
                f"insert all-reduce {name} over {key[0]}.{key[1]} before the hold ends",
            )
        )
    return found


def _merge_into(store: Store, name: str, target: Buffer, source: Buffer, fresh: Array, again: Array) -> None:
    """Overwrite elements that this drain writes first, and add to elements that other members drained before."""
    number = store.numbers[name]
    target.take(source, number, fresh)
    if again.any():
        monoid = store.monoid(store.producers[name])
        state, count = merge(monoid, (target.value[again],), target.count[again], (source.value[again],), source.count[again])
        target.value[again], target.count[again] = state[0], count


def _deliver(store: Store, name: str, buffer: Buffer, where: Array) -> None:
    if (buffer.count[where] != store.full(name)).any():
        raise IllegalMapping(
            Fault(
                f"output {name}",
                f"every element to be reduced over {store.full(name)} points",
                f"elements that have seen {int(buffer.count[where].min())} to {int(buffer.count[where].max())}",
                "complete the reduction before the outermost hold ends",
            )
        )
    store.outputs[name][where] = buffer.value[where]
    store.stored[name] |= where


def _bounds(where: Array) -> Box:
    if not where.ndim:
        return ()
    return tuple((int(index.min()), int(index.max()) + 1) for index in np.nonzero(where))
