"""Joins: the collectives that bring the partial sums of a contraction together, where clusters split a dim that it sums over."""

from __future__ import annotations

from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.workload import Op, Workload, roles
from halley.search.stages import Join, Split, collective_names
from halley.search.template import Template


def joins(template: Template, workload: Workload, op: Op, split: Split, stays: bool) -> tuple[Join, ...]:
    """Every way to join the sums of an op under a split: by algorithm.

    A result that ``stays`` in the clusters is wanted by all of them: an all-reduce. One that leaves does so from where it is made
    whole: a reduce-scatter, each axis over a dim of its own. No way where the axes are more than the dims.
    """
    reduced = roles(workload, op).reduced
    axes = [axis.name for dim in reduced for axis, name in zip(template.axes, split, strict=True) if name == dim]
    if not axes:
        return ((),)
    kind = CollectiveKind.ALL_REDUCE if stays else CollectiveKind.REDUCE_SCATTER
    shards = ("",) * len(axes) if stays else _shards(workload, op)
    if len(shards) < len(axes):
        return ()
    return tuple(
        tuple(Collective(kind, op.outputs, template.level, axis, name, dim) for axis, dim in zip(axes, shards, strict=False))
        for name in collective_names(template, kind)
    )


def _shards(workload: Workload, op: Op) -> tuple[str, ...]:
    """The dims that a result is shared out over, in the order in which they are taken: longest first; before rows the columns,
    as a group walks its rows a few at a time."""
    role = roles(workload, op)
    return tuple(dim for dims in (role.columns, role.rows) for dim in sorted(dims, key=workload.dims.__getitem__, reverse=True))
