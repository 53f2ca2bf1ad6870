"""Tie-breaking: among mappings of equal energy, a faster one, as a search for energy only leaves the time arbitrary."""

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

EQUAL = 1e-12
"""Relative difference of energies or times up to which they count as equal."""

BOUNDS_LIMIT = 10_000
"""Largest number of bounds in a search for a faster mapping."""


def fastest(search: GroupSearch, choice: GroupMapping, tick: Callable[[], None], effort: int = BOUNDS_LIMIT) -> GroupMapping:
    """The fastest mapping of the choice's frame, over all its shapes, tile sizes and numbers of buffers, with no more energy; the
    fastest one found so far if that takes more than ``effort`` bounds, or if ``tick`` raises `Interrupted`."""
    costs = search.group.costs
    start = add_buffers(costs, choice)
    estimate = evaluate(costs.workload, costs.chip, costs.enclose(start.tree()))
    time_, energy = float(estimate.time), float(estimate.energy)
    faster = search.narrowed(GroupSpace((choice.frame,)), ("time", "energy"))
    faster.group.costs.tally = tally = SearchCounter()

    def patient() -> None:
        tick()
        if tally.bounds > effort:
            raise Interrupted("enough")

    tally.tick = patient
    faster.found.add(np.array([time_, energy]), start)
    limit = np.array([[0.0, energy * (1 + EQUAL)]])
    with suppress(Interrupted):
        faster.run(limit)
    found: GroupMapping = next(own for own in faster.found.payloads if own is not None)  # the first takes least time
    return found
