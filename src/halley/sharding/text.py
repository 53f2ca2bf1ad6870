"""A sharding as text, with the field's names of its splits.

The names follow from the graph. A split of a matrix is tensor parallelism (TP). A split of a dim that matrices share with all
their operands, such as experts, is expert parallelism (EP). Other dims are batches, or sequences along which tokens interact.
On an axis that also splits matrices, a split of either divides the tokens between the split matrices, which is sequence
parallelism (SP). On other axes a split batch is data parallelism (DP), and a split sequence context parallelism (CP). A matrix
that is stored sharded and gathered for its readers is fully sharded (FSDP).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from halley.ir.placement import Replicate, Shard
from halley.ir.workload import OpKind, Workload
from halley.sharding.solution import Sharding


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
