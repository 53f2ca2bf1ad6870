"""Among mappings of equal energy, a faster one: a plan chosen for its energy alone leaves its time to chance."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from halley.cost.evaluate import evaluate
from halley.mapping.bounds.progress import Interrupted, Tally
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.solve.more_buffers import hasten
from halley.mapping.space.choice import Choice
from halley.mapping.space.frame_sets import Space

EQUAL = 1e-12
"""Energies, or times, that differ by this share differ by rounding."""

EFFORT = 10_000
"""Bounds that a search for a faster mapping may take."""


def fastest(search: GroupSearch, choice: Choice, tick: Callable[[], None], effort: int = EFFORT) -> Choice:
    """The fastest mapping of the choice's frame, with all shapes, tile sizes and numbers of buffers that it has, that takes no
    more energy; the best of what was met where that takes more than ``effort`` bounds, or ``tick`` raises `Interrupted`."""
    start = hasten(search, choice)
    estimate = evaluate(search.workload, search.chip, search.around(start.tree()))
    time_, energy = float(estimate.time), float(estimate.energy)
    faster = search.narrowed(Space((choice.frame,)), ("time", "energy"))
    faster.tally = faster.costs.tally = tally = Tally()

    def patient() -> None:
        tick()
        if tally.bounds > effort:
            raise Interrupted("enough")

    tally.tick = patient
    faster.found.add(np.array([time_, energy]), start)
    limit = np.array([[0.0, energy * (1 + EQUAL)]])
    with suppress(Interrupted):
        faster.run(limit)
    found: Choice = next(own for own in faster.found.payloads if own is not None)  # the first takes least time
    return found
