"""Loops over the visible keys of a mask, for members in lockstep (docs/model.md, "Masks")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from halley.ir.mapping import Spatial, Temporal, walk
from halley.ir.masks import Mask, mask_over
from halley.ir.workload import Workload
from halley.simulate.members import SimulationScope


def visible_tiles(node: Temporal, scope: SimulationScope, workload: Workload) -> Iterator[tuple[int, Any]]:
    """(index, ranges) of each tile of keys that some member sees; other members get an empty range of keys."""
    mask = mask_over(workload, node.dim)
    assert mask is not None
    place = scope.dims[node.dim]
    low, high = _sight(mask, *scope.ranges[scope.dims[mask.rows]])
    for index in range(scope.steps(node.dim, node.tile)):
        ranges = scope.narrowed(node.dim, node.tile, index)
        begin, end = ranges[place]
        seen = (begin < high) & (end > low) & (end > begin)
        if seen.any():
            ranges[place, 1] = np.where(seen, end, begin)
            yield index, ranges


def busiest_first(node: Spatial, scope: SimulationScope, workload: Workload, places: Any) -> Any:
    """The index of each member's tile in a split. If the split is over the rows of a mask, with a loop over visible keys inside,
    the critical member swaps its tile with that of the member with most work."""
    for _, inner in walk(node.body):
        mask = mask_over(workload, inner.dim) if isinstance(inner, Temporal) and inner.visible else None
        if isinstance(inner, Temporal) and mask is not None and mask.rows == node.dim:
            busiest = _busiest(mask, node, inner, scope)
            return np.where(places == 0, busiest, np.where(places == busiest, 0, places))
    return places


def _busiest(mask: Mask, node: Spatial, loop: Temporal, scope: SimulationScope) -> int:
    """The index of the tile with most points to compute, among the tiles of the critical member's rows."""
    start, stop = (int(value) for value in scope.ranges[scope.dims[node.dim], :, 0])
    begin = np.arange(start, max(stop, start + 1), node.tile)
    end = np.minimum(begin + node.tile, stop)
    low, high = _sight(mask, begin, end)
    keys = int(scope.ranges[scope.dims[loop.dim], 1, 0])
    whole = np.minimum(-(-np.minimum(high, keys) // loop.tile) * loop.tile, keys) - low // loop.tile * loop.tile
    return int(((end - begin) * whole).argmax())


def _sight(mask: Mask, begin: Any, end: Any) -> tuple[Any, Any]:
    """The keys [low, high) from the first to the last that any of the rows [begin, end) sees."""
    several = begin // mask.queries < (end - 1) // mask.queries
    last = np.where(several, mask.queries - 1, (end - 1) % mask.queries) + mask.offset
    first = np.where(several, 0, begin % mask.queries) + mask.offset
    low = np.zeros_like(first) if mask.window is None else np.maximum(first - mask.window + 1, 0)
    return np.where(end > begin, low, 0), np.where(end > begin, last + 1, 0)
