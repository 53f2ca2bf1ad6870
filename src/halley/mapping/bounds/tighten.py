"""Least times of the shapes of a stage, with the shared sizes given: closer than what one look at all of its mappings can say.

A stage on a share of the clusters is in as many frames as the other stages have shares, and its least time is the same in all of
them. So it is worth a search of its own, which is done once; frames that differ in shares are then mostly seen to be hopeless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from halley.cost.program import Array, Indices
from halley.mapping.bounds.chain_sets import opened, split_in
from halley.mapping.bounds.incumbents import Flags
from halley.mapping.space.stages import BUFFERS
from halley.mapping.space.tile_chains import ChainTree

SETS_LIMIT = 1 << 13
"""Sets that are bounded before the least time is left as it is known by then."""

SETS_PER_STEP = 1 << 6
"""Sets that are split at once, those of the least times."""


def least_time(
    bounds: Callable[[Mapping[str, Indices], int], Array],
    trees: Mapping[str, ChainTree],
    start: Mapping[str, int],
    fits: Callable[[Array], Flags],
) -> float:
    """A lower bound of the time [s] of all chains below ``start`` (a node per dim) that fit, mostly the least one itself;
    infinite where none fits. ``bounds`` of sets (a column each): their time first, then what ``fits`` judges."""
    dims, every = tuple(trees), tuple(trees.values())
    rows = np.array([[start[dim] for dim in dims]], dtype=np.int64)
    if BUFFERS in trees:
        rows = opened(rows, dims.index(BUFFERS), trees[BUFFERS].singles)
    times, looked = np.zeros(len(rows)), 0
    fresh, left = rows, rows[:0]
    known = times[:0]
    while True:
        found = bounds({dim: np.ascontiguousarray(fresh[:, at]) for at, dim in enumerate(dims)}, len(fresh))
        kept = np.flatnonzero(fits(found))
        times, rows = np.append(known, found[0, kept]), np.vstack([left, fresh[kept]])
        looked += len(fresh)
        if not len(rows):
            return float("inf")
        order = np.argsort(times, kind="stable")
        times, rows = times[order], rows[order]
        sizes = np.stack([tree.size[rows[:SETS_PER_STEP, at]] for at, tree in enumerate(every)], axis=1)
        splits = sizes.argmax(axis=1)
        first_single = int(np.argmax(np.append(sizes.max(axis=1) == 1, True)))
        if not first_single or looked > SETS_LIMIT:
            return float(times[0])
        fresh = split_in(every, rows[:first_single], splits[:first_single])
        known, left = times[first_single:], rows[first_single:]
