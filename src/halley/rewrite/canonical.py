"""Canonical form of a tree: no loop that runs once, no tile larger than its range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from halley.ir.mapping import Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal


def canonical(node: Node, ranges: Mapping[str, int]) -> Node:
    """Drop temporal loops with one iteration and limit tiles to their range; the mapping's meaning and cost are unchanged.

    before: ``for m by 64`` over a range of 32, around ``compute S``  ->  after: ``compute S``
    """
    match node:
        case Temporal(dim, tile, body):
            if tile >= ranges[dim]:
                return canonical(body, ranges)
            return replace(node, tile=int(tile), body=canonical(body, {**ranges, dim: int(tile)}))
        case Spatial(dim, tile, level, axis, body):
            cut = int(min(tile, ranges[dim]))
            return Spatial(dim, cut, level, axis, canonical(body, {**ranges, dim: cut}))
        case Hold():
            return replace(node, body=canonical(node.body, ranges))
        case Pipeline():
            cut = int(min(node.tile, ranges[node.dim]))
            inside = {**ranges, node.dim: cut}
            return replace(node, tile=cut, children=tuple(canonical(child, inside) for child in node.children))
        case Sequence() | Overlap() | Parallel():
            return replace(node, children=tuple(canonical(child, ranges) for child in node.children))
        case _:
            return node
