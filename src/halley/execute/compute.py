"""One `Compute` on all members in lockstep: read, evaluate, accumulate, write, and count the accesses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from halley.errors import Fault, IllegalMapping
from halley.execute.arithmetic import TileResult, align, dims_by_role, evaluate, passes
from halley.execute.counters import CountedMove
from halley.execute.functions import Array, exp_difference, merge
from halley.execute.holds import first_holders, written
from halley.execute.members import (
    AxisKey,
    Box,
    ExecutionScope,
    Instance,
    Member,
    Ranges,
    box_text,
    clipped,
    idle,
    region,
    size,
    slices,
)
from halley.execute.store import Buffer, OpenHold, Placements, Store
from halley.ir.affine import AffineIndex
from halley.ir.hardware import Dataflow, MatrixEngine
from halley.ir.mapping import Compute
from halley.ir.placement import Partial, Replicate, Shard
from halley.ir.workload import Op, OpKind, work_per_point


@dataclass(slots=True)
class Journal:
    """Points of each op that a member has run, and the number of updates of running maxima so far."""

    done: dict[str, dict[Member, Array]] = field(default_factory=dict)
    visit: int = 0


@dataclass(frozen=True, slots=True)
class ComputeSite:
    """An op with its scope and the innermost Hold of each tensor that it accesses."""

    op: Op
    scope: ExecutionScope
    holds: Mapping[str, OpenHold]


def compute(store: Store, journal: Journal, node: Compute, scope: ExecutionScope) -> None:
    """Run an op over the ranges of every member that is not idle."""
    op = store.workload.op(node.op)
    touched = (*op.inputs, *op.outputs, *((op.scaled_by,) if op.scaled_by else ()))
    site = ComputeSite(op, scope, {name: _innermost(op, name, scope) for name in touched})
    _check_loops(store, site)
    _check_engine(store, site)
    _check_array(store, site, node.array)
    active = [member for member, ranges in scope.ranges.items() if not idle(ranges)]
    reduced = store.reduced(op)
    results = {}
    for member in active:
        ranges = scope.ranges[member]
        _mark(store, journal, op, member, ranges)
        operands = [_operand(store, site, name, member) for name in op.inputs]
        results[member] = evaluate(store.workload, op, reduced, ranges, operands)
        points = size(tuple(ranges[dim] for dim in op.dims))
        store.tally.do({"mac": 1} if op.kind is OpKind.CONTRACT else work_per_point(op, store.workload.dims), points)
        if not any(member):
            store.tally.steps[op.name] += 1
    times = {member: passes(store.workload, op, scope.ranges[member], store.chip.matrix, node.array) for member in active}
    for index, name in enumerate(op.inputs):
        if name in op.inputs[:index] and op.kind is not OpKind.CONTRACT:
            continue  # lanes read a tensor once, however often the function names it
        boxes = {member: region(store.workload.tensors[name], scope.ranges[member]) for member in active}
        elements = {member: _elements(store, op, name, scope.ranges[member]) for member in active}
        moves = [CountedMove(member, box, elements[member] * times[member][0][index]) for member, box in boxes.items()]
        store.read(site.holds[name], name, "operand", moves)
    _write(store, journal, site, results, {member: each[1] for member, each in times.items()})


def _elements(store: Store, op: Op, name: str, ranges: Ranges) -> int:
    """Elements of an input that an engine reads for one tile, in one pass. An array takes one at each point of the dims that
    select an element, padding included; lanes read the region."""
    if op.kind is OpKind.CONTRACT:
        return size(tuple(ranges[dim] for dim in store.workload.points(op, name)))
    return size(clipped(region(store.workload.tensors[name], ranges), store.shapes[name]))


def _innermost(op: Op, name: str, scope: ExecutionScope) -> OpenHold:
    enclosing = scope.holds.get(name)
    if not enclosing:
        raise IllegalMapping(
            Fault(f"compute {op.name}", f"a hold around it with {name}", "none", f"hold {name} in a memory further out")
        )
    return enclosing[-1]


def _check_loops(store: Store, site: ComputeSite) -> None:
    op, scope, holds = site.op, site.scope, site.holds
    where = f"compute {op.name}"
    for dim, _ in scope.loops:
        if dim not in op.dims:
            raise IllegalMapping(
                Fault(
                    where,
                    f"loops in time over its own dims ({', '.join(op.dims)})",
                    f"a loop over {dim}",
                    "move it out of that loop",
                )
            )
    _check_indices(store, op, scope, where)
    scope.check_cut_once(where)
    reduced = store.reduced(op)
    for name in op.outputs:
        innermost = [dim for dim, _ in holds[name].scope.loops if dim in reduced]
        if innermost and store.stateful(op):
            raise IllegalMapping(
                Fault(
                    where,
                    f"no loop over {innermost[0]} outside the innermost hold of {name}",
                    "one",
                    f"hold {name} outside that loop",
                )
            )
        for hold in scope.holds[name]:
            inside = [key for key in scope.split if key not in hold.scope.split]
            distributed = any(scope.siblings.depths[scope.siblings.position(key)] <= hold.depth for key in inside)
            outside = [dim for dim, _ in hold.scope.loops if dim in reduced]
            if distributed and outside:
                raise IllegalMapping(
                    Fault(
                        where,
                        f"no loop over {outside[0]} outside the distributed hold {hold.node.memory}: {name}",
                        "one",
                        f"hold {name} outside that loop, or inside the split",
                    )
                )
            if outside and hold.reaches_beyond(name, scope):
                expected = f"no loop over {outside[0]} outside hold {hold.node.memory}: {name}, kept beyond its share"
                raise IllegalMapping(Fault(where, expected, "one", f"hold {name} outside that loop, or inside the share"))


def _check_indices(store: Store, op: Op, scope: ExecutionScope, where: str) -> None:
    """Splits that would give members overlapping or equal parts of a dim that is read at sums: of that dim itself, of several
    terms of one sum, of a term whose tiles all contain the dim; and, around an op that iterates the dim or reads it at another
    sum, of any term."""
    mine = {*op.dims, *(index.dim for index in op.indices)}
    for index in scope.indices:
        if index not in op.indices and index.dim not in mine:
            continue
        own = index in op.indices
        barred = {index.dim, *_coinciding(store, index)} if own else set(index.dims)
        split = {dim: key for key, dim in scope.split.items() if dim in barred}
        terms = {dim: key for key, dim in scope.split.items() if dim in index.dims}
        if split:
            dim, key = next(iter(split.items()))
            expected, got = f"no split of {' or '.join(sorted(barred))} around it", f"one of {dim} over {key[0]}.{key[1]}"
            raise IllegalMapping(Fault(where, expected, got, "spread another dim, or move it out"))
        if own and len(terms) > 1:
            expected, got = f"splits of one of the dims {', '.join(index.dims)} around it", f"splits of {' and '.join(terms)}"
            raise IllegalMapping(Fault(where, expected, got, "spread another dim"))


def _coinciding(store: Store, index: AffineIndex) -> set[str]:
    """Terms of which two tiles may have equal parts: both contain the whole dim."""
    extents, found = store.workload.dims, set[str]()
    reach = {dim: abs(coefficient) * (extents[dim] - 1) for dim, coefficient in index.terms}
    low = index.constant + sum(min(coefficient * (extents[dim] - 1), 0) for dim, coefficient in index.terms)
    if low >= 0 and low + sum(reach.values()) < extents[index.dim]:
        return found
    for dim, coefficient in index.terms:
        others = sum(far for other, far in reach.items() if other != dim)
        if others + 1 >= extents[index.dim] + abs(coefficient):
            found.add(dim)
    return found


def _check_engine(store: Store, site: ComputeSite) -> None:
    """The engine for the op's kind must exist and read from the memories that hold its operands."""
    op, holds = site.op, site.holds
    contract = op.kind is OpKind.CONTRACT
    engine = store.chip.matrix if contract else store.chip.vector
    if engine is None:
        raise IllegalMapping(
            Fault(
                f"compute {op.name}",
                f"a {'matrix' if contract else 'vector'} engine",
                f"none on {store.chip.name}",
                "use another chip",
            )
        )
    roles = [*(("input", "weight") if contract else ("input",) * len(op.inputs)), *("output",) * len(op.outputs)]
    for role, name in zip(roles, (*op.inputs, *op.outputs), strict=True):
        admitted = engine.reads.get(role, ()) if isinstance(engine, MatrixEngine) else engine.reads
        memory = holds[name].node.memory
        if admitted and memory not in admitted:
            raise IllegalMapping(
                Fault(
                    f"compute {op.name}",
                    f"{role} {name} in {' or '.join(admitted)}",
                    memory,
                    f"hold {name} in {admitted[0]} inside it",
                )
            )


def _check_array(store: Store, site: ComputeSite, array: tuple[tuple[str, ...], ...]) -> None:
    """The dims named for the array must be allowed there."""
    op, engine, where = site.op, store.chip.matrix, f"compute {site.op.name}"
    if not array:
        return
    if op.kind is not OpKind.CONTRACT or engine is None or engine.dataflow is Dataflow.NONE or len(array) != 2:
        raise IllegalMapping(Fault(where, "two sides of an array for a contraction", "others", "leave 'array' out"))
    m, n, k = dims_by_role(store.workload, op)
    able = {Dataflow.WEIGHT: (k, n), Dataflow.INPUT: (k, m), Dataflow.OUTPUT: (m, n)}[engine.dataflow]
    for named, dims in zip(array, able, strict=True):
        if not set(named) <= set(dims) or len(set(named)) < len(named) or bool(named) < bool(dims):
            got = ", ".join(named) or "none"
            raise IllegalMapping(Fault(where, f"some of {', '.join(dims) or 'no dims'} on one side of the array", got))
        for dim in named[1:]:
            sizes = {ranges[dim][1] - ranges[dim][0] for ranges in site.scope.ranges.values() if not idle(ranges)}
            if sizes - {store.workload.dims[dim]}:
                raise IllegalMapping(Fault(where, f"{dim} whole, as it lies on the array with {named[0]}", f"tiles of {sizes}"))


def _mark(store: Store, journal: Journal, op: Op, member: Member, ranges: Ranges) -> None:
    done = journal.done.setdefault(op.name, {}).get(member)
    if done is None:
        done = journal.done[op.name][member] = np.zeros([store.workload.dims[dim] for dim in op.dims], bool)
    part = slices(tuple(ranges[dim] for dim in op.dims))
    if done[part].any():
        raise IllegalMapping(
            Fault(f"compute {op.name}", "every point once", "a point twice", "keep one compute per op, outside foreign loops")
        )
    done[part] = True


def _operand(store: Store, site: ComputeSite, name: str, member: Member) -> Array:
    """The member's region of an input, after checks that it is present and complete."""
    op, scope, hold = site.op, site.scope, site.holds[name]
    box = clipped(region(store.workload.tensors[name], scope.ranges[member]), store.shapes[name])
    buffer = hold.buffer(name, member)
    number, where = store.numbers[name], f"compute {op.name}"
    _check_placement(store, op, name, hold, scope)
    overwritten = buffer.owner[slices(box)]
    if ((overwritten != number) & (overwritten >= 0)).any():
        other = next(n for n, k in store.numbers.items() if (overwritten == k).any() and k != number)
        raise IllegalMapping(
            Fault(
                where,
                f"{name} in {hold.node.memory}",
                f"{other}, which overwrote it in place",
                f"give {other} a buffer of its own",
            )
        )
    count = buffer.held(number, _needed(store, op, name, hold, box))
    if not count.all():
        raise IllegalMapping(
            Fault(
                where,
                f"{name}{box_text(box)} in {hold.node.memory} of member {member}",
                "elements that are not there",
                f"compute {name} earlier, gather or exchange it, or hold it further out",
            )
        )
    full = store.full(name)
    if name not in op.running and (count != full).any():
        raise IllegalMapping(
            Fault(
                where,
                f"{name} reduced over all its {full} points",
                f"elements that have seen {int(count.min())} to {int(count.max())}",
                f"move the read of {name} out of the loop over its reduced dims, or insert the collective that completes it",
            )
        )
    _check_relative(store, site, name, buffer, box, member)
    return np.asarray(buffer.value[slices(box)])


def _needed(store: Store, op: Op, name: str, hold: OpenHold, box: Box) -> Box:
    """The part of an input that must be there: its region; of a tensor computed inside its Hold, all along dims that are read at
    affine indices, because members do not have tiles of these dims in common."""
    sums = {index.dim for index in op.indices}
    if not sums or name not in written(store, hold.node.body):
        return box
    dims, shape = store.workload.tensors[name].dims, store.shapes[name]
    return tuple((0, most) if dim in sums else own for dim, own, most in zip(dims, box, shape, strict=True))


def _check_placement(store: Store, op: Op, name: str, hold: OpenHold, scope: ExecutionScope) -> None:
    for key, placement in hold.placements[name].items():
        if isinstance(placement, Partial) and not (name in op.running and _splits_with(store, name, key, scope)):
            axis = f"{key[0]}.{key[1]}"
            raise IllegalMapping(
                Fault(
                    f"compute {op.name}",
                    f"{name} Replicate over {axis}",
                    f"{placement}",
                    f"insert all-reduce {name} over {axis} before it",
                )
            )


def _splits_with(store: Store, name: str, key: AxisKey, scope: ExecutionScope) -> bool:
    """Whether the reader has the same split of the reduced dim as the writer, so each member reads its own running value."""
    producer = store.producers.get(name)
    return producer is not None and scope.split.get(key) in store.reduced(producer)


def _check_relative(store: Store, site: ComputeSite, name: str, buffer: Buffer, box: Box, member: Member) -> None:
    """A value relative to a running maximum must be read with the same version of the maximum."""
    producer, op = store.producers.get(name), site.op
    if producer is None:
        return
    maximum = producer.scaled_by or next((t for t in producer.running if t in store.maxima), "")
    if maximum not in site.scope.holds or not (producer.scaled_by or op.scaled_by == maximum):
        return
    stamp, _ = maximum_at(store, maximum, site.scope.holds[maximum][-1], member, site.scope.ranges[member], name)
    if (buffer.stamp[slices(box)] != stamp).any():
        raise IllegalMapping(
            Fault(
                f"compute {op.name}",
                f"{name} relative to the present {maximum}",
                f"{name} relative to an earlier visit of {maximum}",
                f"compute or combine {name} after {maximum}",
            )
        )


def maximum_at(store: Store, maximum: str, hold: OpenHold, member: Instance, ranges: Ranges, name: str) -> tuple[Array, Array]:
    """(version, value) of a running maximum on a member's ranges, aligned to the dims of the tensor ``name``."""
    tensor = store.workload.tensors[maximum]
    box, buffer = region(tensor, ranges), hold.buffer(maximum, member)
    if not buffer.held(store.numbers[maximum], box).all():
        where = f"{name} relative to {maximum}"
        raise IllegalMapping(
            Fault(
                where,
                f"{maximum} in {hold.node.memory} of member {member}",
                "elements that are not there",
                f"compute {maximum} first",
            )
        )
    dims = store.workload.tensors[name].dims
    part = slices(box)
    return align(buffer.stamp[part], tensor.dims, dims), align(buffer.value[part], tensor.dims, dims)


def _placements(store: Store, site: ComputeSite) -> Placements:
    """The placement of the op's outputs along each split axis after the write."""
    found: Placements = {}
    kept = store.workload.tensors[site.op.outputs[0]].dims
    for key, dim in site.scope.split.items():
        if site.scope.axis(key)[1] == 1:
            continue  # an axis of one member splits nothing
        if dim in store.reduced(site.op):
            found[key] = Partial(site.op.monoid or "sum")
        elif dim in kept:
            found[key] = Shard(dim)
        else:
            found[key] = Replicate()
    return found


def _write(
    store: Store, journal: Journal, site: ComputeSite, results: Mapping[Member, TileResult], times: Mapping[Member, int]
) -> None:
    """Accumulate each member's result into the innermost Hold, and count the engine's accesses."""
    op, siblings = site.op, site.scope.siblings
    hold = site.holds[op.outputs[0]]
    placements = _placements(store, site)
    crossed = range(siblings.width(hold.depth), len(siblings.keys))
    _check_outputs(store, site, placements, [siblings.keys[i] for i in crossed])
    writers = first_holders(siblings.keys, crossed, placements, list(results))
    if any(name in store.maxima for name in op.outputs):
        journal.visit += 1
    groups: dict[tuple[Instance, Box], list[Member]] = {}
    for member in sorted(writers):
        box = region(store.workload.tensors[op.outputs[0]], site.scope.ranges[member])
        groups.setdefault((member[: siblings.width(hold.depth)], box), []).append(member)
    outgoing = [CountedMove(member, box, size(box) * times[member]) for (_, box), group in groups.items() for member in group]
    again: dict[str, list[CountedMove]] = {name: [] for name in op.outputs}
    for (_, box), group in groups.items():
        if op.scaled_by:
            name = op.outputs[0]
            rescale(
                store,
                name,
                hold,
                site.holds[op.scaled_by],
                [(group[0], box, site.scope.ranges[group[0]])],
                len(store.chip.levels) - 1,
            )
        for name in op.outputs:
            fresh = int((site.holds[name].buffer(name, group[0]).held(store.numbers[name], box) == 0).sum())
            reads = size(box) * max(times[member] for member in group) - fresh
            again[name].append(CountedMove(group[0], box, reads))
        for member in group:
            _join(store, journal, site, member, box, results[member])
    for name in op.outputs:
        store.write(site.holds[name], name, "result", outgoing)
        if op.kind in (OpKind.CONTRACT, OpKind.REDUCE, OpKind.SCATTER):
            store.read(site.holds[name], name, "accumulate", again[name])
        deep = set(siblings.keys[: siblings.width(site.holds[name].depth)])
        site.holds[name].placements[name] = {key: value for key, value in placements.items() if key in deep}


def _check_outputs(store: Store, site: ComputeSite, placements: Placements, crossed: list[AxisKey]) -> None:
    op, siblings = site.op, site.scope.siblings
    if len({site.holds[name].depth for name in op.outputs}) > 1:
        names = " and ".join(op.outputs)
        raise IllegalMapping(Fault(f"compute {op.name}", f"{names} in memories of one level", "two levels", "hold them together"))
    for key in crossed:
        adds = siblings.reduction[siblings.position(key)] and store.monoid(op).adds and not store.stateful(op)
        if isinstance(placements.get(key), Partial) and not adds:
            name, axis = op.outputs[0], f"{key[0]}.{key[1]}"
            raise IllegalMapping(
                Fault(
                    f"compute {op.name}",
                    f"{name} held inside {key[0]}, or a network there that adds on the way up",
                    f"{placements[key]} over {axis}",
                    f"hold {name} in a memory of {key[0]} or deeper, and insert all-reduce {name} over {axis}",
                )
            )


def _join(store: Store, journal: Journal, site: ComputeSite, member: Member, box: Box, result: TileResult) -> None:
    op, part = site.op, slices(box)
    buffers = [site.holds[name].buffer(name, member) for name in op.outputs]
    count = buffers[0].held(store.numbers[op.outputs[0]], box)
    state = result.state
    total = np.full(count.shape, result.points)
    if count.any():
        state, total = merge(store.monoid(op), tuple(buffer.value[part] for buffer in buffers), count, state, total)
    for name, buffer, value in zip(op.outputs, buffers, state, strict=True):
        buffer.value[part] = value
        buffer.count[part] = total
        buffer.owner[part] = store.numbers[name]
        _stamp(store, journal, site, name, buffer, member, box)


def _stamp(store: Store, journal: Journal, site: ComputeSite, name: str, buffer: Buffer, member: Member, box: Box) -> None:
    """Record the version of the running maximum that the value is, or is relative to."""
    maximum = site.op.scaled_by or next((t for t in site.op.running if t in store.maxima), "")
    if name in store.maxima:
        buffer.stamp[slices(box)] = journal.visit
    elif maximum:
        stamp, value = maximum_at(store, maximum, site.holds[maximum], member, site.scope.ranges[member], name)
        buffer.stamp[slices(box)] = stamp
        buffer.relative[slices(box)] = value


def rescale(
    store: Store, name: str, hold: OpenHold, maximum: OpenHold, places: list[tuple[Instance, Box, Ranges]], to: int
) -> None:
    """Rescale the elements of an accumulator that are relative to an earlier version of the running maximum."""
    largest = store.producers[name].scaled_by
    dims = store.workload.tensors[name].dims
    scaled, rows_read = [], []
    for who, box, ranges in places:
        buffer, part = hold.buffer(name, who), slices(box)
        held = buffer.held(store.numbers[name], box)
        if not held.any():
            continue
        stamp, value = maximum_at(store, largest, maximum, who, ranges, name)
        stale = (held > 0) & (buffer.stamp[part] < stamp)
        factor = exp_difference(buffer.relative[part], np.broadcast_to(value, stale.shape))
        buffer.value[part] = np.where(stale, buffer.value[part] * factor, buffer.value[part])
        buffer.relative[part] = np.where(stale, value, buffer.relative[part])
        buffer.stamp[part] = np.where(stale, stamp, buffer.stamp[part])
        rows = stale.any(axis=tuple(i for i, dim in enumerate(dims) if dim not in store.workload.tensors[largest].dims))
        scaled.append(CountedMove(who, box, int(stale.sum())))
        rows_read.append(CountedMove(who, region(store.workload.tensors[largest], ranges), int(rows.sum())))
    elements, rows_seen = sum(move.elements for move in scaled), sum(move.elements for move in rows_read)
    store.tally.do({"mul": 1}, elements)
    store.tally.do({"add": 1, "exp": 1}, rows_seen)
    store.read(hold, name, "rescale", scaled, to)
    store.write(hold, name, "rescale", scaled, to)
    store.read(maximum, largest, "rescale", rows_read, to)
