"""Among mappings of equal energy, a faster one: a plan chosen for its energy alone leaves its time to chance."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from halley.cost.evaluate import evaluate
from halley.mapping.bounds.progress import Interrupted, SearchCounter
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.solve.more_buffers import add_buffers
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import GroupSpace

RELATIVE_ROUNDING = 1e-12
"""Energies, or times, that differ by this share differ by rounding."""

BOUNDS_LIMIT = 10_000
"""Bounds that a search for a faster mapping may take."""


def fastest(search: GroupSearch, choice: GroupMapping, tick: Callable[[], None], effort: int = BOUNDS_LIMIT) -> GroupMapping:
    """The fastest mapping of the choice's frame, with all shapes, tile sizes and numbers of buffers that it has, that takes no
    more energy; the best of what was met where that takes more than ``effort`` bounds, or ``tick`` raises `Interrupted`."""
    start = add_buffers(search, choice)
    estimate = evaluate(search.workload, search.chip, search.around(start.tree()))
    time_, energy = float(estimate.time), float(estimate.energy)
    faster = search.narrowed(GroupSpace((choice.frame,)), ("time", "energy"))
    faster.tally = faster.costs.tally = tally = SearchCounter()

    def patient() -> None:
        tick()
        if tally.bounds > effort:
            raise Interrupted("enough")

    tally.tick = patient
    faster.found.add(np.array([time_, energy]), start)
    limit = np.array([[0.0, energy * (1 + RELATIVE_ROUNDING)]])
    with suppress(Interrupted):
        faster.run(limit)
    found: GroupMapping = next(own for own in faster.found.payloads if own is not None)  # the first takes least time
    return found
