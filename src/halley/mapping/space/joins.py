"""Collectives of a split: joins, which combine partial results, and broadcasts of what one member loads for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from halley.cost.collective import exchange_rates
from halley.ir.hardware import Axis
from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.workload import Op, Workload, roles
from halley.mapping.space.hierarchy import OPERANDS, Hierarchy, LevelAxis
from halley.mapping.space.stages import Join, Split
from halley.network.time.axis import able, algorithms
from halley.network.time.dominance import worthwhile

PARTS_JOINED = 2
"""The largest number of axes over which a sum is joined where axes are in groups: there are twice as many, each with several
algorithms."""

MULTICAST = "multicast"
"""The broadcast by the network."""


def broadcasts(hierarchy: Hierarchy, workload: Workload, op: Op, split: Split) -> Mapping[str, tuple[Collective, ...]]:
    """By operand of a contraction, every way in which one member loads it for a row of members: a broadcast over an axis of the
    level beside the engine that splits a dim which the operand lacks. None where the network cannot copy, where one read serves
    all members without it, or where members have unequal parts of such dims: all that receive it must be at work whenever it is
    sent."""
    found = {}
    for role, tensor in zip(OPERANDS, op.inputs, strict=False):
        level = hierarchy.tiers[hierarchy.read_at(role)].level
        lacking: dict[str, int] = {}
        for own, dim in zip(hierarchy.axes, split, strict=True):
            if dim and dim not in workload.selectors(tensor):
                lacking[dim] = lacking.get(dim, 1) * own.axis.size
        axes = [
            own.axis
            for own, dim in zip(hierarchy.axes, split, strict=True)
            if own.level == level and _copies(own.axis) and dim in lacking
        ]
        equal = all(workload.dims[dim] % members == 0 for dim, members in lacking.items())
        if equal and hierarchy.loads_for_others(level):
            found[tensor] = tuple(Collective(CollectiveKind.BROADCAST, (tensor,), level, axis.name, MULTICAST) for axis in axes)
    return found


def _copies(axis: Axis) -> bool:
    """Whether the network of an axis broadcasts by itself."""
    return MULTICAST in algorithms(CollectiveKind.BROADCAST, axis.topology, axis.size, able(axis))


def joins(hierarchy: Hierarchy, workload: Workload, op: Op, split: Split, stays: bool) -> tuple[Join, ...]:
    """Every way to join the sums of an op under a split.

    None where an axis has no links, or is at another level than that of the results' memory. A result that ``stays`` in the
    clusters is wanted by all of them: an all-reduce. One that leaves does so from where it is made whole: a reduce-scatter, each
    axis over a dim of its own; no way where the axes are more than the dims. A reduce to one member costs no less (a law in
    `tests/laws/test_dominance.py`).
    """
    reduced = roles(workload, op).reduced
    axes = [axis for dim in reduced for axis, name in zip(hierarchy.axes, split, strict=True) if name == dim]
    if not axes:
        return ((),)
    if not all(map(hierarchy.joins, axes)) or _too_many(hierarchy, axes):
        return ()
    if stays:
        return tuple(all_reduces(hierarchy, op.outputs, axes))
    dims = _shards(workload, op)[: len(axes)]
    if len(dims) < len(axes):
        return ()
    kind = CollectiveKind.REDUCE_SCATTER
    return tuple(_join(hierarchy, kind, op.outputs, axes, names, dims) for names in _algorithms(hierarchy, kind, axes))


def all_reduces(hierarchy: Hierarchy, tensors: tuple[str, ...], axes: Sequence[LevelAxis]) -> Iterator[Join]:
    """Every join that leaves the full sums of tensors on all members of some axes. Each axis reduces all tensors, so algorithms
    of equal axes are interchangeable. Without axes there is one join, of no collective."""
    if not all(map(hierarchy.joins, axes)) or _too_many(hierarchy, axes):
        return
    kind, seen = CollectiveKind.ALL_REDUCE, set()
    for names in _algorithms(hierarchy, kind, axes):
        key = tuple(sorted((name, str(own.alike)) for name, own in zip(names, axes, strict=True)))
        if key not in seen:
            seen.add(key)
            yield _join(hierarchy, kind, tensors, axes, names, ("",) * len(axes))


def _algorithms(hierarchy: Hierarchy, kind: CollectiveKind, axes: Sequence[LevelAxis]) -> Iterator[tuple[str, ...]]:
    """Every choice of an algorithm for each axis, without dominated algorithms."""
    return product(
        *(
            worthwhile(kind, ((axis.topology, axis.size, able(axis), exchange_rates(axis, {hierarchy.sums: 1}), _stepped(axis)),))
            for axis in (own.axis for own in axes)
        )
    )


def _too_many(hierarchy: Hierarchy, axes: Sequence[LevelAxis]) -> bool:
    return hierarchy.grouped and len(axes) > PARTS_JOINED


def _stepped(axis: Axis) -> bool:
    """Whether a step costs something whatever its bytes."""
    return axis.exchange.startup > 0.0 or axis.exchange.barrier > 0.0


def _join(
    hierarchy: Hierarchy,
    kind: CollectiveKind,
    tensors: tuple[str, ...],
    axes: Sequence[LevelAxis],
    names: Sequence[str],
    dims: Sequence[str],
) -> Join:
    return tuple(
        Collective(kind, tensors, own.level, own.axis.name, name, dim) for own, name, dim in zip(axes, names, dims, strict=True)
    )


def _shards(workload: Workload, op: Op) -> tuple[str, ...]:
    """The dims over which a result can be sharded, in order of preference: columns before rows, as a group walks its rows a few
    at a time; of each, the longest first."""
    role = roles(workload, op)
    return tuple(dim for dims in (role.columns, role.rows) for dim in sorted(dims, key=workload.dims.__getitem__, reverse=True))
