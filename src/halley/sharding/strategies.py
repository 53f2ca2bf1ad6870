"""Sharding strategies of an op along one axis: the dim that is split, and the placements of inputs and outputs.

| strategy | reads | leaves |
|---|---|---|
| repeated | all inputs whole | outputs whole; every member does all of the work |
| split on a dim | inputs that have the dim split on it, others whole | outputs split on it; partial, if the op sums over it |
| partial sums | the inputs in which the op is linear as partial sums | partial sums, for work that costs little to repeat |
| rows of a table split | the table split on its rows, the index whole | partial sums: a member adds zero for rows that it lacks |
| exchanged | a gather's table split on its rows | the result split on a dim of the index, by all-to-all; a scatter in reverse |

Nonlinear ops need complete inputs. A state of two tensors (softmax, Welford) is combined by the op that produces it. Products
do not read partial sums, because each member would repeat the whole product; those of a compound kernel do
(`halley.sharding.space.CompoundKernel`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Partial, Placement, Replicate, Shard
from halley.ir.workload import FUNCTIONS, Op, OpKind, Workload
from halley.rewrite.derivatives import DERIVATIVES

LINEAR: dict[str, tuple[tuple[int, ...], ...]] = {
    # the gradient of an argument is linear in the gradient of the result
    **{rule.function: ((rule.arguments.index("d"),),) for rules in DERIVATIVES.values() for rule in rules if rule},
    "identity": ((0,),),
    "scale": ((0,),),
    "add": ((0, 1),),
    "subtract": ((0, 1),),
    "mul": ((0,), (1,)),
    "divide": ((0,),),
    "multiply_add": ((0, 2), (1, 2)),
    "affine": ((0, 2), (1, 2)),
    "normalise": ((0, 1), (2,)),
    "normalise_gain": ((0,), (1,), (2,)),
    "product": ((0,), (1,), (2,)),
    "product_sum": ((0, 2), (0, 3), (1, 2), (1, 3)),
    "product_difference": ((0, 2), (0, 3), (1, 2), (1, 3)),
    "decay_mask": ((0,),),
    "add_decayed": ((0, 1),),
}
"""By function, the sets of arguments in which it is linear while the others are fixed: f(sum x_i) = sum f(x_i)."""

TWO_TENSOR_STATES = ("softmax", "welford")
"""Reductions whose state consists of two tensors that can only be combined together."""


@dataclass(frozen=True, slots=True)
class AxisStrategy:
    """A strategy along one axis. ``split``: the dim that is divided among the members, "" where all repeat the work. ``name``:
    unique among the strategies of an op. ``collective``: within the op, of its outputs (all-reduce) or of ``moved``
    (all-to-all)."""

    name: str
    split: str
    reads: tuple[Placement, ...]
    writes: tuple[Placement, ...]
    collective: CollectiveKind | None = None
    moved: str = ""


def axis_strategies(workload: Workload, op: Op, partials: Mapping[str, str], products: bool = False) -> tuple[AxisStrategy, ...]:
    """All strategies of an op along one axis; ``partials``: the monoid by which each input may be partial, "" if it never is;
    ``products``: products may read partial sums.

    >>> from halley.workloads.user import graph
    >>> gemm = graph("C[m,n] = A[m,k] * B[k,n]", {"m": 4, "k": 4, "n": 4})
    >>> [(way.name, *map(str, way.reads), *map(str, way.writes)) for way in axis_strategies(gemm, gemm.ops[0], {})][1:3]
    [('m', 'Shard(m)', 'Replicate', 'Shard(m)'), ('k', 'Shard(k)', 'Shard(k)', 'Partial(sum)')]
    """
    found = [AxisStrategy("", "", *_everywhere(op)), *(_split(workload, op, dim) for dim in _dims(workload, op))]
    if op.kind is OpKind.PERMUTE:
        found += _permuted(workload, op)
    if op.kind in (OpKind.GATHER, OpKind.SCATTER):
        found += _by_rows(workload, op)
    own = {way.writes[0].monoid for way in found if isinstance(way.writes[0], Partial)}
    found += (
        way
        for way in _partial_sums(workload, op, partials, products)
        if not own or all(item == Partial(*own) for item in way.writes)
    )
    return tuple(found)


def partial_monoid(found: tuple[AxisStrategy, ...]) -> str:
    """The monoid by which the outputs of these strategies may be partial, "" if by none."""
    return next((item.monoid for way in found for item in way.writes if isinstance(item, Partial)), "")


def _everywhere(op: Op) -> tuple[tuple[Placement, ...], tuple[Placement, ...]]:
    return (Replicate(),) * len(op.inputs), (Replicate(),) * len(op.outputs)


def _dims(workload: Workload, op: Op) -> Iterator[str]:
    """Dims that can be split without elements of neighbouring parts."""
    barred = set(workload.whole(op)) | {dim for index in op.indices for dim in (index.dim, *index.dims)}
    yield from (dim for dim in op.dims if dim not in barred and workload.dims[dim] > 1)


def _split(workload: Workload, op: Op, dim: str) -> AxisStrategy:
    reads = tuple(_along(workload, name, dim) for name in op.inputs)
    if dim not in workload.reduced(op):
        return AxisStrategy(dim, dim, reads, tuple(_along(workload, name, dim) for name in op.outputs))
    if op.monoid in TWO_TENSOR_STATES:
        return AxisStrategy(dim, dim, reads, _everywhere(op)[1], CollectiveKind.ALL_REDUCE)
    # every member of a mean divides by the full count, so partial means add up
    monoid = op.monoid if op.monoid not in ("", "mean") else "sum"
    return AxisStrategy(dim, dim, reads, (Partial(monoid),) * len(op.outputs))


def _along(workload: Workload, tensor: str, dim: str) -> Placement:
    return Shard(dim) if dim in workload.tensors[tensor].dims else Replicate()


def _permuted(workload: Workload, op: Op) -> Iterator[AxisStrategy]:
    """A copy to another dim name is split on the old and the new name together."""
    source, target = (workload.tensors[name].dims for name in (op.inputs[0], op.outputs[0]))
    old, new = [dim for dim in source if dim not in target], [dim for dim in target if dim not in source]
    for before, after in zip(old, new, strict=True):
        if workload.dims[after] > 1:
            yield AxisStrategy(after, after, (Shard(before),), (Shard(after),))


def _by_rows(workload: Workload, op: Op) -> Iterator[AxisStrategy]:
    """Gathers and scatters whose table is split by rows."""
    if len(op.inputs) != 2 or len(op.sequence) != 1 or workload.dims[op.along] < 2:
        return
    at, row = workload.index_input(op), op.along
    index, other, result = op.inputs[at], op.inputs[1 - at], op.outputs[0]
    whole, rows = Replicate(), Shard(row)

    def reads(placement: Placement) -> tuple[Placement, ...]:
        return tuple(whole if place == at else placement for place in range(2))

    gather = op.kind is OpKind.GATHER
    yield AxisStrategy(row, row, reads(rows if gather else whole), (Partial("sum") if gather else rows,))
    for dim in workload.tensors[index].dims:
        if dim in workload.tensors[result if gather else other].dims and workload.dims[dim] > 1:
            yield AxisStrategy(
                f"{dim} exchanged",
                dim,
                reads(rows if gather else Shard(dim)),
                (Shard(dim) if gather else rows,),
                CollectiveKind.ALL_TO_ALL,
                result if gather else other,
            )


def _partial_sums(workload: Workload, op: Op, partials: Mapping[str, str], products: bool) -> Iterator[AxisStrategy]:
    """Partial sums that pass through linear ops."""
    for group in ((0,), (1,)) if products and op.kind is OpKind.CONTRACT else _linear(workload, op):
        monoids = {partials.get(op.inputs[place], "") for place in group}
        copies = op.kind is OpKind.PERMUTE or (op.kind is OpKind.REDUCE and op.monoid == "max" and op.function == "identity")
        fits = monoids == {"sum"} if not copies else monoids == ({op.monoid} if op.monoid else monoids - {""})
        if fits and len(monoids) == 1 and "" not in monoids:
            partial = Partial(*monoids)
            reads = tuple(partial if place in group else Replicate() for place in range(len(op.inputs)))
            names = " ".join(op.inputs[place] for place in group)
            yield AxisStrategy(f"partial {names}", "", reads, (partial,) * len(op.outputs))


def _linear(workload: Workload, op: Op) -> tuple[tuple[int, ...], ...]:
    """Sets of inputs in which an op is linear; of a copy or a maximum, those that it passes on."""
    match op.kind:
        case OpKind.MAP:
            return LINEAR.get(op.function, ())
        case OpKind.REDUCE if op.monoid in ("sum", "mean"):
            return LINEAR.get(op.function, ())
        case OpKind.REDUCE if op.monoid == "max" and op.function == "identity":
            return ((0,),)
        case OpKind.PERMUTE:
            return ((0,),)
        case OpKind.GATHER | OpKind.SCATTER:
            return ((1 - workload.index_input(op) if len(op.inputs) == 2 else 0,),)
        case OpKind.FFT:
            return (tuple(range(len(op.inputs))),)
        case OpKind.SCAN if op.monoid == "sum" and FUNCTIONS[op.function].arity == 1:
            return LINEAR.get(op.function, ())
        case _:
            return ()
