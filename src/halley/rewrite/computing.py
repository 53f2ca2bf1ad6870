"""The rules of a `Compute`: its loops, its engine, what it reads, what it leaves behind."""

from __future__ import annotations

from dataclasses import replace

from halley.ir.hardware import MatrixEngine
from halley.ir.placement import Partial, Replicate
from halley.ir.workload import Op, OpKind
from halley.rewrite.residence import Held, is_stateful, network_adds, reduced_dims, written
from halley.rewrite.scopes import Path, Scope
from halley.rewrite.walk import Reader, Walk, dot


def compute(walk: Walk, op: Op, path: Path) -> None:
    where, scope = f"compute {op.name}", walk.scopes[path]
    touched = dict.fromkeys((*op.inputs, *op.outputs, *((op.scaled_by,) if op.scaled_by else ())))
    homeless = [name for name in touched if not walk.open.get(name)]
    for name in homeless:
        walk.fault(where, f"a hold around it with {name}", "none", f"hold {name} in a memory further out")
    _loops(walk, where, op, scope)
    _whole_dims(walk, where, op, scope)
    if homeless:
        return
    _engine(walk, where, op)
    for name in op.inputs:
        _read(walk, where, op, name, path)
    if op.scaled_by and op.scaled_by not in op.inputs:
        home = walk.open[op.scaled_by][-1]
        held = walk.present(where, home, op.scaled_by)
        if held:
            walk.covered(where, home, held, op.scaled_by, scope, [(scope, False)], path)
    _write(walk, where, op, path)


def _loops(walk: Walk, where: str, op: Op, scope: Scope) -> None:
    for dim in dict.fromkeys(loop.dim for loop in scope.loops if loop.dim not in op.dims):
        expected = f"loops in time over its own dims ({', '.join(op.dims)})"
        walk.fault(where, expected, f"a loop over {dim}", "move it out of that loop")
    reduced = reduced_dims(walk.workload, op)
    for name in op.outputs:
        homes = walk.open.get(name, ())
        for home in homes:
            outside = [loop.dim for loop in home.scope.loops if loop.dim in reduced]
            if not outside:
                continue
            if is_stateful(op) and home is homes[-1]:
                expected = f"no loop over {outside[0]} outside the innermost hold of {name}"
                walk.fault(where, expected, "one", f"hold {name} outside that loop")
            if any(key in home.axes and key not in home.scope.split for key in scope.split):
                expected = f"no loop over {outside[0]} outside the distributed hold {home.node.memory}: {name}"
                walk.fault(where, expected, "one", f"hold {name} outside that loop, or inside the spread")


def _whole_dims(walk: Walk, where: str, op: Op, scope: Scope) -> None:
    """Dims along which an op cannot be cut: that of a scan or transform, and the rows that an index selects."""
    tensors = walk.workload.tensors
    match op.kind:
        case OpKind.SCAN | OpKind.FFT:
            dims = {op.along}
        case OpKind.GATHER:
            dims = {dim for name in op.inputs for dim in tensors[name].dims} - set(tensors[op.outputs[0]].dims)
        case OpKind.SCATTER:
            dims = set(tensors[op.outputs[0]].dims) - {dim for name in op.inputs for dim in tensors[name].dims}
        case _:
            return
    for dim in sorted(dims):
        if scope.extents[dim] != {walk.workload.dims[dim]}:
            got = f"tiles of {max(scope.extents[dim])} of {walk.workload.dims[dim]}"
            walk.fault(where, f"{dim} whole in the tile", got, f"do not loop over or split {dim}")


def _engine(walk: Walk, where: str, op: Op) -> None:
    contract = op.kind is OpKind.CONTRACT
    engine = walk.chip.matrix if contract else walk.chip.vector
    if engine is None:
        kind = "matrix" if contract else "vector"
        walk.fault(where, f"a {kind} engine", f"none on {walk.chip.name}", "use another chip")
        return
    roles = [*(("input", "weight") if contract else ("input",) * len(op.inputs)), *("output",) * len(op.outputs)]
    for role, name in zip(roles, (*op.inputs, *op.outputs), strict=True):
        admitted = engine.reads.get(role, ()) if isinstance(engine, MatrixEngine) else engine.reads
        memory = walk.open[name][-1].node.memory
        if admitted and memory not in admitted:
            remedy = f"hold {name} in {admitted[0]} around it"
            walk.fault(where, f"{role} {name} in {' or '.join(admitted)}", memory, remedy)


def _read(walk: Walk, where: str, op: Op, name: str, path: Path) -> None:
    scope, home = walk.scopes[path], walk.open[name][-1]
    held = walk.present(where, home, name)
    if held is None:
        return
    producer = walk.producers.get(name)
    reduced = reduced_dims(walk.workload, producer) if producer else ()
    running = name in op.running
    for key in held.partial:
        alike = key in scope.split and scope.split[key].dim in reduced
        if not (running and alike):
            walk.wrong_placement(where, home, held, name, key, Replicate(), scope, path)
            return
    if not walk.covered(where, home, held, name, scope, [(scope, False)], path) or producer is None:
        return
    shared = repeating(walk.scopes[walk.computes[producer.name]]) & repeating(scope)
    partly = sorted({loop.dim for loop in scope.loops if loop.path in shared and loop.dim in reduced})
    if partly and not running:
        remedy = f"move the read of {name} out of the loop over {partly[0]}"
        walk.fault(where, f"{name} reduced over all {' '.join(partly)}", "a part of it", remedy)
    _check_relative(walk, where, op, name, held, producer, path)


def _check_relative(walk: Walk, where: str, op: Op, name: str, held: Held, producer: Op, path: Path) -> None:
    """A value that is relative to a running maximum is used with that same state of the maximum."""
    maximum = walk.maximum(producer)
    if not maximum or not walk.open.get(maximum) or not (producer.scaled_by or op.scaled_by == maximum):
        return
    reduced = reduced_dims(walk.workload, walk.producers[maximum])
    around = walk.scopes[walk.computes[walk.producers[maximum].name]]
    both = repeating(around) & repeating(walk.scopes[walk.computes[producer.name]])
    left = [loop.dim for loop in around.loops if loop.path in both and loop.dim in reduced]
    inside = [loop.dim for loop in walk.scopes[path].loops if loop.path in both and loop.dim in reduced]
    stale = not producer.scaled_by and left != inside
    if stale or held.relative != (maximum, walk.versions[maximum]):
        got = f"{name} relative to an earlier visit of {maximum}"
        remedy = f"compute or combine {name} after {maximum}"
        walk.fault(where, f"{name} relative to the present {maximum}", got, remedy)


def _write(walk: Walk, where: str, op: Op, path: Path) -> None:
    scope, homes = walk.scopes[path], {name: walk.open[name][-1] for name in op.outputs}
    if len({home.depth for home in homes.values()}) > 1:
        walk.fault(where, f"{' and '.join(op.outputs)} in memories of one level", "two levels", "hold them together")
        return
    reduced, home = reduced_dims(walk.workload, op), homes[op.outputs[0]]
    for key, split in scope.split.items():
        crossed = key not in home.axes and split.dim in reduced and scope.size(key) > 1
        if crossed and not network_adds(scope, key, op):
            name, partial = op.outputs[0], Partial(op.monoid or "sum")
            expected = f"{name} held inside {key[0]}, or a network there that adds on the way up"
            remedy = f"hold {name} in a memory of {key[0]} or deeper, and all-reduce it over {dot(key)}"
            walk.fault(where, expected, f"{partial} over {dot(key)}", remedy)
    for name in op.outputs:
        if name in walk.maxima:
            walk.versions[name] += 1
    maximum = walk.maximum(op)
    for name, home in homes.items():
        held = written(walk.workload, scope, op, name, home.axes, path)
        home.put(name, replace(held, relative=(maximum, walk.versions[maximum]) if maximum else None))
