"""The sharding problem of a layer with its backward pass: ops with equal splits, and tensors with equal layouts."""

from __future__ import annotations

from collections.abc import Mapping

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import OpKind
from halley.rewrite.backward import Differentiated
from halley.sharding.joint import FusibleKernels
from halley.sharding.layouts import CollectiveTime, Layout, Mesh
from halley.sharding.solve import KernelTime, ShardingProblem
from halley.sharding.space import CompoundKernel


def tied_products(found: Differentiated) -> tuple[tuple[str, ...], ...]:
    """Each product of the forward graph with those of its backward pass over the same dims, and with its own repetition.

    >>> from halley.rewrite.backward import backward
    >>> from halley.workloads.gemm import gemm
    >>> tied_products(backward(gemm(4, 5, 6)))
    (('gemm', 'gemm_d_A', 'gemm_d_B'),)
    """
    later = {op.name: op for op in found.backward if op.kind is OpKind.CONTRACT}
    groups = []
    for name in found.forward:
        op = found.workload.op(name)
        wanted = [f"again_{name}", *(f"{name}_d_{source}" for source in op.inputs)]
        same = [each for each in wanted if each in later and set(later[each].dims) == set(op.dims)]
        if op.kind is OpKind.CONTRACT and same:
            groups.append((name, *same))
    return tuple(groups)


def training_problem(
    found: Differentiated,
    mesh: Mesh,
    kernel_time: KernelTime,
    collective_time: CollectiveTime,
    weights: Mapping[str, float],
    passes: Mapping[str, str] | None = None,
    layouts: Mapping[str, Layout] | None = None,
    splits: Mapping[str, Mapping[str, str]] | None = None,
    in_flight: float = 1.0,
    same_split: tuple[tuple[str, ...], ...] = (),
    same_layout: tuple[tuple[str, ...], ...] = (),
    runs_per_change: Mapping[str, int] | None = None,
    groups: tuple[FusibleKernels, ...] = (),
    compounds: tuple[CompoundKernel, ...] = (),
) -> ShardingProblem:
    """The problem of a layer between equal layers.

    ``weights``: by input, bytes per element with gradient and optimizer state; a weight has the layout of its gradient.
    ``passes``: by output, the input of the next layer that it becomes; both have one layout, and so do their gradients.
    ``same_layout``: further groups of equal layouts. Others as in `ShardingProblem`.

    Raises BadInput: names that the graph lacks; as `ShardingProblem`.
    """
    given = passes or {}
    where = f"sharding of {found.workload.name}"
    faults = [
        Fault(where, "an output with a gradient", repr(y), did_you_mean(y, found.seeds)) for y in given if y not in found.seeds
    ]
    faults += [
        Fault(where, "an input with a gradient", repr(x), did_you_mean(x, found.gradients))
        for x in given.values()
        if x not in found.gradients
    ]
    if faults:
        raise BadInput(faults)
    same: list[tuple[str, ...]] = [(x, y, found.seeds[y], found.gradients[x]) for y, x in given.items()]
    same += [(name, found.gradients[name]) for name in weights if name in found.gradients]
    first = found.backward[0].name if found.backward else ""
    return ShardingProblem(
        found.workload,
        mesh,
        kernel_time,
        collective_time,
        layouts=layouts or {},
        splits=splits or {},
        tied=tied_products(found),
        same_split=same_split,
        same_layout=tuple(tuple(dict.fromkeys(group)) for group in (*same, *same_layout)),
        weights=weights,
        runs_per_change=runs_per_change or {},
        backward=first,
        in_flight=in_flight,
        groups=groups,
        compounds=compounds,
    )
