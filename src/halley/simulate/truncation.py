"""The beginning of a mapping that is too long to simulate: its first iterations, at the same tiles.

A cut mapping differs from the whole in how often its outermost loops go round, and in nothing inside them. Holds outside these
loops keep, and are filled with, less. So its time is that of another, smaller mapping, for which formula and simulation can be
compared like for any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from halley.ir.mapping import Collective, Compute, Hold, Node, Pipeline, Spatial, Temporal, children
from halley.ir.masks import masks
from halley.ir.workload import Workload

ITERATION_COUNTS = (256, 128, 64, 32, 16, 8, 6, 5, 4, 3, 2, 1)
"""How many first iterations `truncated_to_tasks` tries."""


_Split = tuple[str, str, str, int]
"""Dim, level, axis, tile."""


@dataclass(frozen=True, slots=True)
class TruncatedMapping:
    """``tree`` maps ``workload``. ``iterations`` of each dim's outermost loop are left, 0: all of them."""

    workload: Workload
    tree: Node
    iterations: int = 0


def truncated_to_tasks(workload: Workload, tree: Node, visits: int) -> TruncatedMapping:
    """As much of a mapping as takes about so many tasks."""
    if estimated_tasks(tree, workload.dims) <= visits:
        return TruncatedMapping(workload, tree)
    for count in ITERATION_COUNTS:
        found = truncated(workload, tree, count)
        if estimated_tasks(found.tree, found.workload.dims) <= visits:
            break
    return found


def truncated(workload: Workload, tree: Node, iterations: int) -> TruncatedMapping:
    """The mapping with each dim cut to what the first iterations of its outermost loop in time cover.

    Where splits lie around that loop, each member gets so many iterations: the splits' tiles shrink with it.

    before: ``spread m by 64 over pe.x``, ``for m by 2`` over 256  ->  after: ``spread m by 8 over pe.x``, ``for m by 2`` over 32

    A dim keeps its extent where an op needs it whole or has no loop over it, where a mask tells its points apart, and where not
    all ways to its outermost loop pass the same splits. Where a dim is walked in several places, the largest tile counts.
    """
    whole = {dim for op in workload.ops for dim in workload.whole(op)}
    whole |= {dim for window in workload.windows.values() for dim in (window.dim, window.base, window.offset)}
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
    """(splits passed, tile of the outermost loop in time) on the way to each op that has the dim: tile 0 without a loop."""
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
    """The extent and the splits' tiles, outermost first, where a member gets ``most`` points; None where it has no more.

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
    """The tree with other tiles in some splits."""
    if isinstance(node, Spatial):
        node = replace(node, tile=shrunk.get((node.dim, node.level, node.axis, node.tile), node.tile))
    if isinstance(node, Temporal | Spatial | Hold):
        return replace(node, body=_rebuilt(node.body, shrunk))
    if isinstance(node, Compute | Collective):
        return node
    return replace(node, children=tuple(_rebuilt(child, shrunk) for child in node.children))


def estimated_tasks(node: Node, extents: Mapping[str, int]) -> int:
    """Holds, computes and collectives that are entered, at most (as if each tile were whole): about the tasks of a simulation."""
    times = 1
    if isinstance(node, Temporal | Spatial | Pipeline):
        extent, tile = extents[node.dim], min(node.tile, extents[node.dim])
        times = 1 if isinstance(node, Spatial) else -(-extent // tile)
        extents = {**extents, node.dim: tile}
    own = isinstance(node, Hold | Compute | Collective)
    return times * (own + sum(estimated_tasks(child, extents) for child in children(node)))
