"""Better tile sizes for a mapping that may not be optimal, as the search was stopped or had a gap: one size is changed at a time,
as long as that helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from halley.cost.evaluate import evaluate
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.solve.slack import LEAST_RELATIVE_GAIN, changed_tiles, those_that_fit, with_columns
from halley.mapping.space.choice import GroupMapping


def descend(search: GroupSearch, choice: GroupMapping, tick: Callable[[], None]) -> None:
    """Add mappings with less of the search's single objective to its incumbents: slot by slot, the best change of its size or
    number of buffers with the others given, until no single change helps. ``tick`` may end it."""
    costs, (objective,) = search.costs, search.objectives
    gained = True
    while gained:
        gained = False
        for slot in choice.slots:
            tick()
            changes = list(changed_tiles(choice.slots, slot, choice))
            if not changes:
                continue
            tree = replace(choice, tiles=with_columns(choice.tiles, changes)).tree()
            estimate, count = evaluate(costs.workload, costs.chip, costs.enclose(tree)), 1 + len(changes)
            values = np.broadcast_to(np.asarray(getattr(estimate, objective), dtype=np.float64), count)
            values = np.where(those_that_fit(costs.chip, estimate, count), values, np.inf)
            best = int(values.argmin())
            if values[best] < values[0] * (1 - LEAST_RELATIVE_GAIN):
                choice = replace(choice, tiles={**choice.tiles, **changes[best - 1]})
                search.group.reach(choice.frame, choice.skeletons, {name: int(size) for name, size in choice.tiles.items()})
                gained = True
