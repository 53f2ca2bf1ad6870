"""Joins: the collectives that combine partial results where clusters split a reduced dim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from halley.cost.collective import exchange_rates
from halley.ir.hardware import Axis, Topology
from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.workload import Op, Workload, roles
from halley.mapping.space.chip import Template
from halley.mapping.space.stages import Join, Split
from halley.network.time.axis import able
from halley.network.time.dominance import worthwhile


def joins(template: Template, workload: Workload, op: Op, split: Split, stays: bool) -> tuple[Join, ...]:
    """Every way to join the sums of an op under a split.

    A result that ``stays`` in the clusters is wanted by all of them: an all-reduce. One that leaves does so from where it is made
    whole: a reduce-scatter, each axis over a dim of its own; no way where the axes are more than the dims. A reduce to one member
    costs no less (a law in `tests/laws/test_dominance.py`).
    """
    reduced = roles(workload, op).reduced
    axes = [axis for dim in reduced for axis, name in zip(template.axes, split, strict=True) if name == dim]
    if not axes:
        return ((),)
    if stays:
        return tuple(all_reduces(template, op.outputs, axes))
    dims = _shards(workload, op)[: len(axes)]
    if len(dims) < len(axes):
        return ()
    kind = CollectiveKind.REDUCE_SCATTER
    return tuple(_join(template, kind, op.outputs, axes, names, dims) for names in _algorithms(template, kind, axes))


def all_reduces(template: Template, tensors: tuple[str, ...], axes: Sequence[Axis]) -> Iterator[Join]:
    """Every way to make tensors whole on all members of some axes. Each axis moves all of them, so that of axes that are alike it
    does not matter which one has which algorithm; no axis: one way, without a collective."""
    kind, seen = CollectiveKind.ALL_REDUCE, set()
    for names in _algorithms(template, kind, axes):
        told = tuple(sorted((name, str(replace(axis, name=""))) for name, axis in zip(names, axes, strict=True)))
        if told not in seen:
            seen.add(told)
            yield _join(template, kind, tensors, axes, names, ("",) * len(axes))


def _algorithms(template: Template, kind: CollectiveKind, axes: Sequence[Axis]) -> Iterator[tuple[str, ...]]:
    """An algorithm for each axis, in every way; those that another one outdoes are not among them. None where an axis has no
    links."""
    if any(axis.topology is Topology.NONE for axis in axes):
        return iter(())
    return product(
        *(
            worthwhile(kind, ((axis.topology, axis.size, able(axis), exchange_rates(axis, {template.sums: 1}), _stepped(axis)),))
            for axis in axes
        )
    )


def _stepped(axis: Axis) -> bool:
    """Whether a step costs something whatever its bytes."""
    return axis.exchange.startup > 0.0 or axis.exchange.barrier > 0.0


def _join(
    template: Template,
    kind: CollectiveKind,
    tensors: tuple[str, ...],
    axes: Sequence[Axis],
    names: Sequence[str],
    dims: Sequence[str],
) -> Join:
    return tuple(
        Collective(kind, tensors, template.level, axis.name, name, dim) for axis, name, dim in zip(axes, names, dims, strict=True)
    )


def _shards(workload: Workload, op: Op) -> tuple[str, ...]:
    """The dims that a result is shared out over, in the order in which they are taken: longest first; before rows the columns,
    as a group walks its rows a few at a time."""
    role = roles(workload, op)
    return tuple(dim for dims in (role.columns, role.rows) for dim in sorted(dims, key=workload.dims.__getitem__, reverse=True))
