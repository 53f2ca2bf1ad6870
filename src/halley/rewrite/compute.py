"""Legality rules of a `Compute`: its loops, its engine, its operands and its results."""

from __future__ import annotations

from dataclasses import replace

from halley.ir.array import Array
from halley.ir.hardware import MatrixEngine
from halley.ir.placement import Partial
from halley.ir.workload import Op, OpKind
from halley.rewrite.held_regions import held_outside_share
from halley.rewrite.hold_state import TensorState, is_stateful, network_adds, reduced_dims, repeating, written
from halley.rewrite.scopes import NodeScope, Path
from halley.rewrite.walk_state import WalkState, dot


def compute(state: WalkState, op: Op, array: Array, path: Path) -> None:
    where, scope = f"compute {op.name}", state.scopes[path]
    touched = dict.fromkeys((*op.inputs, *op.outputs, *((op.scaled_by,) if op.scaled_by else ())))
    unheld = [name for name in touched if not state.open.get(name)]
    for name in unheld:
        state.fault(where, f"a hold around it with {name}", "none", f"hold {name} in a memory further out")
    _loops(state, where, op, scope)
    _whole_dims(state, where, op, scope)
    cut_once(state, where, scope)
    _beside(state, where, array, scope)
    if unheld:
        return
    _engine(state, where, op)
    for name in op.inputs:
        _read(state, where, op, name, path)
    if op.scaled_by and op.scaled_by not in op.inputs:
        home = state.open[op.scaled_by][-1]
        held = state.present(where, home, op.scaled_by)
        if held:
            state.covered(state.reader(where, home, op.scaled_by, path), held)
    _write(state, where, op, path)


def _loops(state: WalkState, where: str, op: Op, scope: NodeScope) -> None:
    for dim in dict.fromkeys(loop.dim for loop in scope.loops if loop.dim not in op.dims):
        expected = f"loops in time over its own dims ({', '.join(op.dims)})"
        state.fault(where, expected, f"a loop over {dim}", "move it out of that loop")
    reduced = reduced_dims(state.workload, op)
    for name in op.outputs:
        homes = state.open.get(name, ())
        for home in homes:
            outside = [loop.dim for loop in home.scope.loops if loop.dim in reduced]
            if not outside:
                continue
            if is_stateful(op) and home is homes[-1]:
                expected = f"no loop over {outside[0]} outside the innermost hold of {name}"
                state.fault(where, expected, "one", f"hold {name} outside that loop")
            if any(key in home.axes and key not in home.scope.split for key in scope.split):
                expected = f"no loop over {outside[0]} outside the distributed hold {home.node.memory}: {name}"
                state.fault(where, expected, "one", f"hold {name} outside that loop, or inside the split")
            shared = held_outside_share(state.workload, home, name, state.scopes, scope)
            if shared:  # members outside the share would refill and drain sums to which they never add
                place = f"hold {home.node.memory}: {name}, kept beyond its share of {dot(shared)}"
                expected = f"no loop over {outside[0]} outside {place}"
                state.fault(where, expected, "one", f"hold {name} outside that loop, or inside the share")


def _whole_dims(state: WalkState, where: str, op: Op, scope: NodeScope) -> None:
    """Dims that must be untiled, such as that of a scan or transform and the rows that an index selects; and splits that would
    give members overlapping or equal parts of a dim that is read at affine indices."""
    for barred in state.workload.unsplit(op):
        for key, split in scope.split.items():
            if split.dim in barred:
                expected = f"no split of {' or '.join(sorted(barred))} around it"
                state.fault(where, expected, f"one over {dot(key)}", "spread another dim, or move it out")
    for index in op.indices:
        terms = sorted({split.dim for split in scope.split.values()}.intersection(index.dims))
        if len(terms) > 1:
            expected = f"splits of one of the dims {', '.join(index.dims)} around it"
            state.fault(where, expected, f"splits of {' and '.join(terms)}", "spread another dim")
    for dim in sorted(state.workload.whole(op)):
        if scope.extents[dim] != {state.workload.dims[dim]}:
            got = f"tiles of {max(scope.extents[dim])} of {state.workload.dims[dim]}"
            state.fault(where, f"{dim} whole in the tile", got, f"do not loop over or split {dim}")


def cut_once(state: WalkState, where: str, scope: NodeScope) -> None:
    """A dim that is read at a sum is not tiled together with a term of the sum: some tiles would be empty, and members with work
    would be idle."""
    enclosing = {loop.dim for loop in scope.loops} | {split.dim for split in scope.split.values()}
    for index in state.workload.indices:
        adding = sorted(enclosing.intersection(index.dims))
        if index.dim in enclosing and adding:
            expected = f"no loop or split of {index.dim} around it where one cuts {' or '.join(index.dims)}"
            state.fault(where, expected, f"one of {index.dim} and one of {adding[0]}", f"remove that of {index.dim}")


def _beside(state: WalkState, where: str, array: Array, scope: NodeScope) -> None:
    """Dims mapped to one side of the array are untiled except for the first, so that their number of points is constant."""
    for first, *others in filter(None, array):
        for dim in others:
            if scope.extents[dim] != {state.workload.dims[dim]}:
                got, others_first = f"tiles of {max(scope.extents[dim])} of {state.workload.dims[dim]}", f"{dim}|{first}"
                expected = f"{dim} whole in the tile, as it lies on the array together with {first}"
                state.fault(where, expected, got, f"do not loop over or split {dim}, or name it first ({others_first})")


def _engine(state: WalkState, where: str, op: Op) -> None:
    contract = op.kind is OpKind.CONTRACT
    engine = state.chip.matrix if contract else state.chip.vector
    if engine is None:
        kind = "matrix" if contract else "vector"
        state.fault(where, f"a {kind} engine", f"none on {state.chip.name}", "use another chip")
        return
    roles = [*(("input", "weight") if contract else ("input",) * len(op.inputs)), *("output",) * len(op.outputs)]
    for role, name in zip(roles, (*op.inputs, *op.outputs), strict=True):
        admitted = engine.reads.get(role, ()) if isinstance(engine, MatrixEngine) else engine.reads
        memory = state.open[name][-1].node.memory
        if admitted and memory not in admitted:
            remedy = f"hold {name} in {admitted[0]} around it"
            state.fault(where, f"{role} {name} in {' or '.join(admitted)}", memory, remedy)


def _read(state: WalkState, where: str, op: Op, name: str, path: Path) -> None:
    scope, home = state.scopes[path], state.open[name][-1]
    held = state.present(where, home, name)
    if held is None:
        return
    reader = state.reader(where, home, name, path)
    producer = state.producers.get(name)
    reduced = reduced_dims(state.workload, producer) if producer else ()
    running = name in op.running
    for key in held.partial:
        alike = key in scope.split and scope.split[key].dim in reduced
        if not (running and alike):
            state.wrong_placement(reader, held, key, state.needed(reader, key))
            return
    if not state.covered(reader, held) or producer is None:
        return
    shared = set(state.scopes[state.computes[producer.name]].loops).intersection(scope.loops)
    partly = sorted({loop.dim for loop in shared if loop.dim in reduced})
    if partly and not running:
        remedy = f"move the read of {name} out of the loop over {partly[0]}"
        state.fault(where, f"{name} reduced over all {' '.join(partly)}", "both inside that loop", remedy)
    _check_relative(state, where, op, name, held, producer, path)


def _check_relative(state: WalkState, where: str, op: Op, name: str, held: TensorState, producer: Op, path: Path) -> None:
    """A value relative to a running maximum must be read with the same version of the maximum."""
    maximum = state.maximum(producer)
    if not maximum or not state.open.get(maximum) or not (producer.scaled_by or op.scaled_by == maximum):
        return
    home = state.open[maximum][-1]
    present = state.present(where, home, maximum)
    if present is None or not state.covered(state.reader(where, home, maximum, path), present):
        return
    reduced = reduced_dims(state.workload, state.producers[maximum])
    enclosing = state.scopes[state.computes[state.producers[maximum].name]]
    both = repeating(enclosing) & repeating(state.scopes[state.computes[producer.name]])
    left = [loop.dim for loop in enclosing.loops if loop.path in both and loop.dim in reduced]
    inside = [loop.dim for loop in state.scopes[path].loops if loop.path in both and loop.dim in reduced]
    stale = not producer.scaled_by and left != inside
    if stale or held.relative != present.relative:
        got = f"{name} relative to an earlier visit of {maximum}"
        remedy = f"compute or combine {name} after {maximum}"
        state.fault(where, f"{name} relative to the present {maximum}", got, remedy)


def _write(state: WalkState, where: str, op: Op, path: Path) -> None:
    scope, homes = state.scopes[path], {name: state.open[name][-1] for name in op.outputs}
    if len({home.depth for home in homes.values()}) > 1:
        state.fault(where, f"{' and '.join(op.outputs)} in memories of one level", "two levels", "hold them together")
        return
    reduced, home = reduced_dims(state.workload, op), homes[op.outputs[0]]
    for key, split in scope.split.items():
        crossed = key not in home.axes and split.dim in reduced and scope.size(key) > 1
        if crossed and not network_adds(scope, key, op):
            name, partial = op.outputs[0], Partial(op.monoid or "sum")
            expected = f"{name} held inside {key[0]}, or a network there that adds on the way up"
            remedy = f"hold {name} in a memory of {key[0]} or deeper, and all-reduce it over {dot(key)}"
            state.fault(where, expected, f"{partial} over {dot(key)}", remedy)
    maximum = state.maximum(op)
    present = state.version(maximum) if maximum else None
    for name, home in homes.items():
        held = written(state.workload, scope, op, name, home.axes, path)
        state.put(home, name, replace(held, relative=state.renewed(name) if name in state.maxima else present))
