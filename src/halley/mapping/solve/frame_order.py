"""The order in which the frames of a group are searched: those on all clusters, then those with stages on partitions of an axis.

The latter are searched in batches, so that neither the frames nor their bounds have to be stored, and against the incumbents of
earlier batches: most are pruned without being constructed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from halley.mapping.bounds.incumbents import Values
from halley.mapping.bounds.progress import Interrupted
from halley.mapping.solve.first_plans import dive
from halley.mapping.solve.pipelines import Pipelines

if TYPE_CHECKING:
    from halley.mapping.solve.group_search import GroupSearch

FRAMES_PER_BATCH = 1 << 8
"""Number of frames with stages on partitions in one batch: each stores bounds of all its remaining shapes."""


def search_all(search: GroupSearch) -> None:
    """Search every frame of a group. On `Interrupted`, ``open_bounds`` has lower bounds of what was left."""
    every = [Pipelines(search, family) for family in search.space.families]
    _wave(search, range(len(search.frames)), _bounds(search, every))
    for at, pipelines in enumerate(every):
        _on_shares(search, pipelines, _bounds(search, every[at:]))


def _bounds(search: GroupSearch, every: Sequence[Pipelines]) -> Values:
    """Lower bounds of several implicit sets of frames."""
    return np.vstack([np.empty((0, len(search.objectives))), *(pipelines.bounds() for pipelines in every)])


def _on_shares(search: GroupSearch, pipelines: Pipelines, left: Values) -> None:
    """Search an implicit set of frames. ``left``: lower bounds of this and the following sets."""
    first, frames = len(search.frames), pipelines.frames()
    try:
        while wave := list(islice(frames, FRAMES_PER_BATCH)):
            search.frames += wave
            _wave(search, range(first, len(search.frames)), left)
            search.forget(first)
    except (Interrupted, KeyboardInterrupt):
        search.forget(first)
        search.leave(left)
        raise


def _wave(search: GroupSearch, numbers: Sequence[int], later: Values) -> None:
    """Search one batch of frames. ``later``: lower bounds of the following ones."""
    left = np.vstack([np.empty((0, len(search.objectives))), *(search.least_of(search.frames[number]) for number in numbers)])
    try:
        bounds, places = search.candidates(numbers)
        left, order = bounds, np.lexsort(bounds.T[::-1])
        order = order[~search.found.pruned(bounds[order])]
        dive(search, bounds, places, order)
        order = order[~search.found.pruned(bounds[order])]
        if len(search.objectives) > 1:  # against a poor front stages that overlap have too many trade-offs: the others before
            order = order[np.argsort([bool(search.frames[places[position][0]].cut) for position in order], kind="stable")]
        for index, position in enumerate(order):
            if search.found.pruned(bounds[position][None, :])[0]:
                continue
            left = bounds[order[index:]]
            search.tally.tick()
            search.solve(*places[position])
    except (Interrupted, KeyboardInterrupt):
        search.leave(np.vstack([left, later]))
        raise
