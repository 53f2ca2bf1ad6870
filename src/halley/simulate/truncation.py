"""Truncation of a mapping that is too long to simulate to its first iterations, with the same tiles.

A truncated mapping has fewer iterations of its outermost loops; their bodies are unchanged. Holds outside these loops hold and
fill less. It is a smaller mapping of its own, for which formula and simulation can be compared like for any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from halley.ir.mapping import Collective, Compute, Hold, Node, Pipeline, Spatial, Temporal, children
from halley.ir.masks import masks
from halley.ir.workload import Workload

ITERATION_COUNTS = (256, 128, 64, 32, 16, 8, 6, 5, 4, 3, 2, 1)
"""Numbers of iterations that `truncated_to_tasks` tries, in this order."""


_Split = tuple[str, str, str, int]
"""Dim, level, axis, tile."""


@dataclass(frozen=True, slots=True)
class TruncatedMapping:
    """``tree`` maps ``workload``. ``iterations``: how many of each dim's outermost loop remain; 0: all."""

    workload: Workload
    tree: Node
    iterations: int = 0


def truncated_to_tasks(workload: Workload, tree: Node, visits: int) -> TruncatedMapping:
    """The mapping, truncated to about as many tasks as ``visits``."""
    if estimated_tasks(tree, workload.dims) <= visits:
        return TruncatedMapping(workload, tree)
    for count in ITERATION_COUNTS:
        found = truncated(workload, tree, count)
        if estimated_tasks(found.tree, found.workload.dims) <= visits:
            break
    return found


def truncated(workload: Workload, tree: Node, iterations: int) -> TruncatedMapping:
    """The mapping with each dim truncated to the range of the first iterations of its outermost loop in time.

    If there are splits outside that loop, each member gets this number of iterations, and the tiles of the splits shrink.

    before: ``spread m by 64 over pe.x``, ``for m by 2`` over 256  ->  after: ``spread m by 8 over pe.x``, ``for m by 2`` over 32

    A dim keeps its extent if it must be untiled in some op, if some op has no loop over it, if it is a dim of a mask, or if not
    all paths to its outermost loops have the same splits. If a dim has several outermost loops, the largest tile counts.
    """
    whole = {dim for op in workload.ops for dim in workload.whole(op)}
    whole |= {dim for index in workload.indices for dim in (index.dim, *index.dims)}
    whole |= {dim for mask in masks(workload).values() for dim in (mask.rows, mask.keys)}  # the first rows see the fewest keys
    extents = dict(workload.dims)
    shrunk: dict[_Split, int] = {}
    for dim in workload.dims:
        ways = set(_touch_paths(workload, tree, dim, ()))
        tiles = [tile for _, tile in ways]
        if dim in whole or not all(tiles) or len({splits for splits, _ in ways}) != 1:
            continue
        splits, _ = next(iter(ways))
        if (cut := _cut(workload.dims[dim], [tile for *_, tile in splits], max(tiles) * iterations)) is not None:
            extents[dim], made = cut
            shrunk.update(zip(splits, made, strict=True))
    return TruncatedMapping(replace(workload, dims=extents), _rebuilt(tree, shrunk), iterations)


def _touch_paths(
    workload: Workload, node: Node, dim: str, splits: tuple[_Split, ...]
) -> Iterator[tuple[tuple[_Split, ...], int]]:
    """(splits, tile of the outermost loop in time) on the path to each op that has the dim; tile 0 if there is no loop."""
    if isinstance(node, Temporal | Pipeline) and node.dim == dim:
        yield splits, node.tile
        return
    if isinstance(node, Spatial) and node.dim == dim:
        splits = (*splits, (dim, node.level, node.axis, node.tile))
    if isinstance(node, Compute):
        op = workload.op(node.op)
        if dim in op.dims or any(dim in workload.tensors[name].dims for name in (*op.inputs, *op.outputs)):
            yield splits, 0
    for child in children(node):
        yield from _touch_paths(workload, child, dim, splits)


def _cut(extent: int, tiles: list[int], most: int) -> tuple[int, list[int]] | None:
    """The extent and the splits' tiles, outermost first, if a member gets ``most`` points; None if it has no more than that.

    >>> _cut(256, [64], 8), _cut(256, [64, 16], 8), _cut(100, [], 30), _cut(20, [], 30)
    ((32, [8]), (128, [32, 8]), (30, []), None)
    """
    if most >= (tiles[-1] if tiles else extent):
        return None
    made, inner, before = [most], most, tiles[-1] if tiles else extent
    for tile in reversed([extent, *tiles[:-1]] if tiles else []):
        inner *= -(-tile // before)
        before = tile
        made.append(inner)
    made.reverse()
    return made[0], made[1:]


def _rebuilt(node: Node, shrunk: Mapping[_Split, int]) -> Node:
    """The tree with new tiles in some splits."""
    if isinstance(node, Spatial):
        node = replace(node, tile=shrunk.get((node.dim, node.level, node.axis, node.tile), node.tile))
    if isinstance(node, Temporal | Spatial | Hold):
        return replace(node, body=_rebuilt(node.body, shrunk))
    if isinstance(node, Compute | Collective):
        return node
    return replace(node, children=tuple(_rebuilt(child, shrunk) for child in node.children))


def estimated_tasks(node: Node, extents: Mapping[str, int]) -> int:
    """Upper estimate of the number of tasks of a simulation: entries of Holds, computes and collectives with full tiles."""
    times = 1
    if isinstance(node, Temporal | Spatial | Pipeline):
        extent, tile = extents[node.dim], min(node.tile, extents[node.dim])
        times = 1 if isinstance(node, Spatial) else -(-extent // tile)
        extents = {**extents, node.dim: tile}
    own = isinstance(node, Hold | Compute | Collective)
    return times * (own + sum(estimated_tasks(child, extents) for child in children(node)))
