"""Bound tightening: least times of a stage's shapes with the shared sizes given, by a small branch-and-bound search.

A stage on a partition of the clusters is in many frames, which differ in the partitions of other stages, and its least time is
the same in all of them. So one search for it tightens the bounds of all these frames, and most of them are pruned.

It has a loop of its own: it keeps all sets in one array, sorted by bound, and ends at the first single mapping. No order of
`halley.optim.branch_and_bound` does that, and this is the only search that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from halley.cost.programs.program import Array, Indices
from halley.mapping.bounds.chain_sets import opened, split_in
from halley.mapping.bounds.incumbents import Flags
from halley.mapping.space.stages import BUFFERS
from halley.mapping.space.tile_chains import ChainTree

SETS_LIMIT = 1 << 13
"""Largest number of sets bounded in one search; then the bound reached so far is used."""

SETS_PER_STEP = 1 << 6
"""Number of sets, those of least time, that are split per step."""


def least_time(
    bounds: Callable[[Mapping[str, Indices], int], Array],
    trees: Mapping[str, ChainTree],
    start: Mapping[str, int],
    fits: Callable[[Array], Flags],
) -> float:
    """A lower bound of the time [s] of all chains below ``start`` (a node per dim) that fit, usually the minimum itself; infinite
    if none fits. ``bounds`` of sets (a column each): their time in the first row, then the arguments of ``fits``."""
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
