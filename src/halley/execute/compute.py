"""One `Compute` on all members in lockstep: read, run, join, write, and count each of these."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from halley.errors import BadInput, Fault, IllegalMapping
from halley.execute.arithmetic import align, parts
from halley.execute.counters import Move
from halley.execute.functions import Array, State, exp_difference, merge
from halley.execute.holds import OpenHold, Placements, Store, first_holders
from halley.execute.members import AxisKey, Box, Instance, Member, Ranges, Scope, idle, region, size, slices
from halley.ir.hardware import Dataflow, MatrixEngine
from halley.ir.placement import Partial, Replicate, Shard
from halley.ir.workload import Op, OpKind, work_per_point


@dataclass(slots=True)
class Journal:
    """Which points of each op a member has run, and the visit of a running maximum that was computed last."""

    done: dict[str, dict[Member, Array]]
    visit: int = 0


def compute(store: Store, journal: Journal, op: Op, scope: Scope) -> None:
    """Run an op over the ranges of every member that is not idle."""
    holds = {name: _innermost(op, name, scope) for name in (*op.inputs, *op.outputs, *((op.scaled_by,) if op.scaled_by else ()))}
    _check_loops(store, op, scope, holds)
    _check_engine(store, op, holds)
    active = [member for member, ranges in scope.ranges.items() if not idle(ranges)]
    results = {}
    for member in active:
        ranges = scope.ranges[member]
        _mark(store, journal, op, member, ranges)
        results[member] = parts(store, op, ranges, [_operand(store, op, name, holds, member, scope) for name in op.inputs])
        store.tally.do(*_work(store, op, ranges))
        if member == tuple(0 for _ in member):
            store.tally.steps[op.name] += 1
    times = {member: _times(store, op, scope.ranges[member]) for member in active}
    members = len(store.chip.levels) - 1
    for index, name in enumerate(op.inputs):
        boxes = {member: region(store.workload.tensors[name], scope.ranges[member]) for member in active}
        moves = [Move(member, box, size(box) * times[member][0][index]) for member, box in boxes.items()]
        hold, word = holds[name], store.workload.tensors[name].word
        store.tally.read((hold.node.memory, name, "operand"), word, (hold.depth, members), moves)
    _write(store, journal, op, scope, holds, results, {member: each[1] for member, each in times.items()})


def _innermost(op: Op, name: str, scope: Scope) -> OpenHold:
    around = scope.holds.get(name)
    if not around:
        raise IllegalMapping(Fault(f"compute {op.name}", f"a hold around it with {name}", "none", f"hold {name} in a memory further out"))
    return around[-1]


def _check_loops(store: Store, op: Op, scope: Scope, holds: Mapping[str, OpenHold]) -> None:
    where = f"compute {op.name}"
    for dim, _ in scope.loops:
        if dim not in op.dims:
            raise IllegalMapping(
                Fault(where, f"loops in time over its own dims ({', '.join(op.dims)})", f"a loop over {dim}", "move it out of that loop")
            )
    reduced = store.reduced(op)
    for name in op.outputs:
        innermost = [dim for dim, _ in holds[name].scope.loops if dim in reduced]
        if innermost and store.stateful(op):
            raise IllegalMapping(
                Fault(where, f"no loop over {innermost[0]} outside the innermost hold of {name}", "one", f"hold {name} outside that loop")
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
                        f"hold {name} outside that loop, or inside the spread",
                    )
                )


def _check_engine(store: Store, op: Op, holds: Mapping[str, OpenHold]) -> None:
    """The engine for the op's kind exists and is wired to the memories that hold its operands."""
    contract = op.kind is OpKind.CONTRACT
    engine = store.chip.matrix if contract else store.chip.vector
    if engine is None:
        raise IllegalMapping(
            Fault(f"compute {op.name}", f"a {'matrix' if contract else 'vector'} engine", f"none on {store.chip.name}", "use another chip")
        )
    roles = [*(("input", "weight") if contract else ("input",) * len(op.inputs)), *("output",) * len(op.outputs)]
    for role, name in zip(roles, (*op.inputs, *op.outputs), strict=True):
        admitted = engine.reads.get(role, ()) if isinstance(engine, MatrixEngine) else engine.reads
        memory = holds[name].node.memory
        if admitted and memory not in admitted:
            raise IllegalMapping(
                Fault(f"compute {op.name}", f"{role} {name} in {' or '.join(admitted)}", memory, f"hold {name} in {admitted[0]} inside it")
            )


def _mark(store: Store, journal: Journal, op: Op, member: Member, ranges: Ranges) -> None:
    done = journal.done[op.name].get(member)
    if done is None:
        done = journal.done[op.name][member] = np.zeros([store.workload.dims[dim] for dim in op.dims], bool)
    part = slices(tuple(ranges[dim] for dim in op.dims))
    if done[part].any():
        raise IllegalMapping(Fault(f"compute {op.name}", "every point once", "a point twice", "keep one compute per op, outside foreign loops"))
    done[part] = True


def _operand(store: Store, op: Op, name: str, holds: Mapping[str, OpenHold], member: Member, scope: Scope) -> Array:
    """The member's region of an input, after the checks that it is there and complete."""
    hold, box = holds[name], region(store.workload.tensors[name], scope.ranges[member])
    buffer = hold.buffer(name, member)
    number, where = store.numbers[name], f"compute {op.name}"
    _check_placement(store, op, name, hold, scope)
    overwritten = buffer.owner[slices(box)]
    if ((overwritten != number) & (overwritten >= 0)).any():
        other = next(n for n, k in store.numbers.items() if (overwritten == k).any() and k != number)
        raise IllegalMapping(
            Fault(where, f"{name} in {hold.node.memory}", f"{other}, which overwrote it in place", f"give {other} a buffer of its own")
        )
    count = buffer.held(number, box)
    if not count.all():
        raise IllegalMapping(
            Fault(
                where,
                f"{name}{_text(box)} in {hold.node.memory} of member {_name(member)}",
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
    _check_relative(store, op, name, buffer, box, holds, member, scope)
    return np.asarray(buffer.value[slices(box)])


def _check_placement(store: Store, op: Op, name: str, hold: OpenHold, scope: Scope) -> None:
    for key, placement in hold.placements[name].items():
        if isinstance(placement, Partial) and not (name in op.running and _splits_with(store, name, key, scope)):
            axis = f"{key[0]}.{key[1]}"
            raise IllegalMapping(
                Fault(
                    f"compute {op.name}", f"{name} Replicate over {axis}", f"{placement}", f"insert all-reduce {name} over {axis} before it"
                )
            )


def _splits_with(store: Store, name: str, key: AxisKey, scope: Scope) -> bool:
    """The reader runs on the same split of the reduced dim as the writer: each member follows its own running value."""
    producer = store.producers.get(name)
    return producer is not None and scope.split.get(key) in store.reduced(producer)


def _check_relative(
    store: Store, op: Op, name: str, buffer: OpenHoldBuffer, box: Box, holds: Mapping[str, OpenHold], member: Member, scope: Scope
) -> None:
    """A value relative to a running maximum is used with that same visit of the maximum."""
    producer = store.producers.get(name)
    maximum = (producer.scaled_by or next((t for t in producer.running if t in store.maxima), "")) if producer else ""
    if not maximum or maximum not in scope.holds:
        return
    if not producer.scaled_by and op.scaled_by != maximum:
        return
    stamp, _ = _maximum(store, maximum, scope.holds[maximum][-1], member, scope, store.workload.tensors[name].dims)
    if (buffer.stamp[slices(box)] != stamp).any():
        raise IllegalMapping(
            Fault(
                f"compute {op.name}",
                f"{name} relative to the present {maximum}",
                f"{name} relative to an earlier visit of {maximum}",
                f"compute or combine {name} after {maximum}",
            )
        )
