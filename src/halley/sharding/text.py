"""A sharding as text, with the field's names of its splits.

The names follow from the graph. A split of a matrix is tensor parallelism (TP). A split of a dim that matrices share with all
their operands, such as experts, is expert parallelism (EP). Other dims are batches, or sequences along which tokens interact.
On an axis that also splits matrices, a split of either divides the tokens between the split matrices, which is sequence
parallelism (SP). On other axes a split batch is data parallelism (DP), and a split sequence context parallelism (CP). A matrix
that is stored sharded and gathered for its readers is fully sharded (FSDP).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from halley.ir.placement import Replicate, Shard
from halley.ir.workload import OpKind, Workload
from halley.sharding.layouts import CollectiveStep, layout_text
from halley.sharding.solution import Redistribution, Sharding
from halley.units import format_bytes, format_time


def dim_roles(work: Workload, weights: Iterable[str]) -> dict[str, str]:
    """The role of each dim: ``expert``, ``matrix``, ``sequence`` or ``batch``; ``weights``: the inputs that are parameters.

    >>> from halley.workloads.user import graph
    >>> lines = ["Q[m,d] = X[m,k] * W[k,d]", "S[m,n] = Q[m,d] * K[n,d]"]
    >>> dim_roles(graph(lines, {"m": 8, "n": 8, "k": 4, "d": 4}), ["W"])
    {'m': 'sequence', 'n': 'sequence', 'k': 'matrix', 'd': 'matrix'}
    """
    matrix = {dim for name in weights for dim in work.tensors[name].dims}
    expert, sequence = set[str](), set[str]()
    for op in work.ops:
        inputs = [set(work.tensors[name].dims) for name in op.inputs]
        if op.kind is OpKind.PERMUTE:
            sequence |= inputs[0] ^ set(work.tensors[op.outputs[0]].dims)
        if op.kind is OpKind.CONTRACT and set(op.inputs) & set(weights):
            expert |= set.intersection(*inputs) & set(work.tensors[op.outputs[0]].dims)
        elif op.kind is OpKind.CONTRACT:
            sequence |= set.symmetric_difference(*inputs)
    return {
        dim: "expert" if dim in expert & matrix else "matrix" if dim in matrix else "sequence" if dim in sequence else "batch"
        for dim in work.dims
    }


ORDER = ("TP", "SP", "CP", "EP", "FSDP", "DP")
"""The usual order of the names."""


def joined(names: Iterable[str]) -> str:
    """The names of one axis' uses in one word.

    >>> joined({"SP", "TP"})
    'TP+SP'
    """
    return "+".join(sorted(names, key=ORDER.index))


def op_names(plan: Sharding, elsewhere: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """By op, the name of its split on each axis, "" where every member repeats the work. ``elsewhere``: axes that split
    matrices in other parts of the model."""
    roles, splitting = dim_roles(plan.problem.workload, plan.problem.weights), {*splitting_axes(plan), *elsewhere}
    matrices = [axis.name in splitting for axis in plan.problem.mesh]
    names = [
        {
            "expert": "EP",
            "matrix": "TP" if split else "CP",
            "sequence": "SP" if split else "CP",
            "batch": "SP" if split else "DP",
            "": "",
        }
        for split in matrices
    ]
    return {
        item.op: tuple(known[roles.get(way.split, "")] for way, known in zip(item.strategy, names, strict=True))
        for item in plan.ops
    }


def splitting_axes(plan: Sharding) -> frozenset[str]:
    """The axes along which some op reads a part of a matrix."""
    roles = dim_roles(plan.problem.workload, plan.problem.weights)
    return frozenset(axis.name for place, axis in enumerate(plan.problem.mesh) if _splits_matrix(plan, roles, place))


def _splits_matrix(plan: Sharding, roles: Mapping[str, str], place: int) -> bool:
    work, weights = plan.problem.workload, plan.problem.weights
    for item in plan.ops:
        split = item.strategy[place].split
        read = [name for name in work.op(item.op).inputs if name in weights]
        if roles.get(split) == "matrix" and any(split in work.tensors[name].dims for name in read):
            return True
    return False


def parallelisms(plan: Sharding, elsewhere: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """By axis, the names of its uses. Without `ShardingProblem.weights` there are no matrices, and all dims are data.
    ``elsewhere``: as in `op_names`."""
    by_op = op_names(plan, elsewhere)
    found = {}
    for place, axis in enumerate(plan.problem.mesh):
        names = {each[place] for each in by_op.values()} - {""}
        if any(_gathered(plan, weight, place) for weight in plan.problem.weights):
            names.add("FSDP")
        found[axis.name] = tuple(sorted(names))
    return found


def _gathered(plan: Sharding, weight: str, place: int) -> bool:
    if not isinstance(plan.ends[weight][place], Shard):
        return False
    readers = plan.problem.workload.consumers(weight)
    return any(plan.strategy(op.name)[place].reads[op.inputs.index(weight)] == Replicate() for op in readers)


def sharding_text(plan: Sharding) -> str:
    """Tables of the axes, the ops with their splits, and the collectives with tensor, axes, bytes and time."""
    mesh, by_op = plan.problem.mesh, op_names(plan)
    used = parallelisms(plan)
    head = [
        f"{format_time(plan.time)}: work {format_time(plan.work_time)}, collectives {format_time(plan.collective_time)}; "
        f"per rank weights {format_bytes(plan.weights_memory)}, between the passes {format_bytes(plan.saved_memory)}; "
        f"{_proof(plan)}",
        *(f"axis {axis.name}, {axis.ranks} ranks: {', '.join(used[axis.name]) or 'repeats all work'}" for axis in mesh),
    ]
    called = {name: " ".join(dict.fromkeys(filter(None, each))) for name, each in by_op.items()}
    ops = [[item.op, *(way.name or "-" for way in item.strategy), called[item.op], format_time(item.time)] for item in plan.ops]
    moved = [
        [
            str(step.kind),
            move.tensor,
            " ".join(step.axes),
            _change(move, step),
            move.reader or "-",
            format_bytes(step.bytes),
            format_time(step.time),
        ]
        for move, step in plan.steps
    ]
    tables = [
        _table(["op", *(axis.name for axis in mesh), "name", "work"], ops),
        _table(["collective", "tensor", "axes", "change", "before", "bytes", "time"], moved) if moved else ["no collectives"],
        _table(["end", "layout"], [[name, layout_text(layout, mesh)] for name, layout in plan.ends.items()]),
    ]
    return "\n".join("\n".join(lines) + "\n" for lines in (head, *tables))


def _proof(plan: Sharding) -> str:
    if plan.certificate.gap:
        return f"at most {plan.certificate.gap:.2%} above the optimum"
    return f"optimal of {plan.certificate.size:.3g} shardings of the ops"


def _change(move: Redistribution, step: CollectiveStep) -> str:
    if move.inside:
        return "inside the op"
    changes = [f"{a} -> {b}" for a, b in zip(step.before, step.after, strict=True) if a != b]
    return "; ".join(dict.fromkeys(changes)) + (f", once in {move.runs} runs" if move.runs > 1 else "")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns."""
    widths = [max(len(row[place]) for row in (titles, *rows)) for place in range(len(titles))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (titles, *rows)]
