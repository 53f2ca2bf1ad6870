"""A mapping at a reduced size: the same tree over smaller extents, for the interpreter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from halley.ir.mapping import Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal
from halley.ir.masks import with_extents
from halley.ir.workload import Workload

EXTENT = 16
"""Extents are halved until they are no larger."""
POINTS = 2**16
"""Most points over all dims; with more, extents shrink further, so that the interpreter takes seconds."""


def reduced(workload: Workload, tree: Node) -> tuple[Workload, Node]:
    """The workload and its mapping with the extent and all tiles of each dim divided by one power of two, rounded up.

    With e <= p t, also ceil(e / f) <= p ceil(t / f): no loop gets more parts than it had, so a split still fits its axis and the
    mapping stays legal. Powers of two keep what divides evenly even.

    before: ``for m by 128`` over 1024  ->  after: ``for m by 2`` over 16
    """
    extent = EXTENT
    while extent > 2 and math.prod(min(size, extent) for size in workload.dims.values()) > POINTS:
        extent //= 2
    factors = {dim: _factor(size, extent) for dim, size in workload.dims.items()}
    extents = {dim: -(-size // factors[dim]) for dim, size in workload.dims.items()}
    return with_extents(workload, extents | _read_at_sums(workload, extents)), _scaled(tree, factors)


def _read_at_sums(workload: Workload, extents: Mapping[str, int]) -> dict[str, int]:
    """Extents of dims that no op iterates, for terms of these ``extents``: with as much padding behind the last position as in
    the whole workload."""
    iterated = {dim for op in workload.ops for dim in op.dims}
    found: dict[str, int] = {}
    for index in workload.indices:
        if index.dim not in iterated:
            left = workload.dims[index.dim] - index.positions(workload.dims)[1]
            found[index.dim] = max(found.get(index.dim, 1), index.positions(extents)[1] + left)
    return found


def _factor(size: int, extent: int) -> int:
    factor = 1
    while -(-size // factor) > extent:
        factor *= 2
    return factor


def _scaled(node: Node, factors: Mapping[str, int]) -> Node:
    match node:
        case Temporal() | Spatial():
            return replace(node, tile=-(-node.tile // factors[node.dim]), body=_scaled(node.body, factors))
        case Hold():
            return replace(node, body=_scaled(node.body, factors))
        case Pipeline():
            children = tuple(_scaled(child, factors) for child in node.children)
            return replace(node, tile=-(-node.tile // factors[node.dim]), children=children)
        case Sequence() | Overlap() | Parallel():
            return replace(node, children=tuple(_scaled(child, factors) for child in node.children))
        case _:
            return node
