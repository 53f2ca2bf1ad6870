"""Joins: the collectives that bring the partial sums of a contraction together, where clusters split a dim that it sums over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.workload import Op, Workload, roles
from halley.search.stages import Join, Split, collective_names
from halley.search.template import Template


def joins(template: Template, workload: Workload, op: Op, split: Split, stays: bool) -> tuple[Join, ...]:
    """Every way to join the sums of an op under a split.

    A result that ``stays`` in the clusters is wanted by all of them: an all-reduce. One that leaves does so from where it is made
    whole: a reduce-scatter, each axis over a dim of its own, in every way; dims of one point only where others do not suffice.
    No way where the axes are more than the dims.
    """
    reduced = roles(workload, op).reduced
    axes = [axis.name for dim in reduced for axis, name in zip(template.axes, split, strict=True) if name == dim]
    if not axes:
        return ((),)
    kind = CollectiveKind.ALL_REDUCE if stays else CollectiveKind.REDUCE_SCATTER
    shards = [("",) * len(axes)] if stays else _shards(workload, op, len(axes))
    return tuple(
        tuple(Collective(kind, op.outputs, template.level, axis, name, dim) for axis, dim in zip(axes, dims, strict=True))
        for name in collective_names(template, kind)
        for dims in shards
    )


def _shards(workload: Workload, op: Op, axes: int) -> Sequence[tuple[str, ...]]:
    """The dims that the axes may share the result out over."""
    role = roles(workload, op)
    dims = (*role.rows, *role.columns)
    long = tuple(dim for dim in dims if workload.dims[dim] > 1)
    return tuple(permutations(long if len(long) >= axes else dims, axes))
