"""Better tile sizes for a mapping that may not be optimal, as the search was stopped or had a gap: one size is changed at a time,
as long as that helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from halley.cost.evaluate import evaluate
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.solve.slack import LEAST_RELATIVE_GAIN, other_sizes, those_that_fit
from halley.mapping.space.choice import GroupMapping


def descend(search: GroupSearch, choice: GroupMapping, tick: Callable[[], None]) -> None:
    """Add mappings with less of the search's single objective to its incumbents: slot by slot, the best declared size or
    number of buffers with the others given, until no single change helps. ``tick`` may end it."""
    costs, (objective,) = search.costs, search.objectives
    gained = True
    while gained:
        gained = False
        for slot in choice.slots:
            tick()
            sizes = list(other_sizes(choice.slots, slot, choice))
            if not sizes:
                continue
            columns = np.array([choice.tiles[slot.name], *sizes], dtype=np.float64)
            tree = replace(choice, tiles={**choice.tiles, slot.name: columns}).tree()
            estimate = evaluate(costs.workload, costs.chip, costs.enclose(tree))
            values = np.broadcast_to(np.asarray(getattr(estimate, objective), dtype=np.float64), len(columns))
            values = np.where(those_that_fit(costs.chip, estimate, len(columns)), values, np.inf)
            best = int(values.argmin())
            if values[best] < values[0] * (1 - LEAST_RELATIVE_GAIN):
                choice = replace(choice, tiles={**choice.tiles, slot.name: int(columns[best])})
                search.group.reach(choice.frame, choice.skeletons, {name: int(size) for name, size in choice.tiles.items()})
                gained = True
