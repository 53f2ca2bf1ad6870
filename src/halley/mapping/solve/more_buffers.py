"""Further buffers for a plan that was chosen only for its energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from halley.cost.evaluate import evaluate
from halley.mapping.bounds.costing import Costing
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.stages import BUFFERS, Slot


def add_buffers(costs: Costing, choice: GroupMapping) -> GroupMapping:
    """The mapping of a group with more buffers wherever that makes it faster and fits.

    Stages are sequential, so each is optimised separately; the traffic does not change."""
    frame = choice.frame
    for slots in (frame.shared, *(skeleton.slots for skeleton in choice.skeletons)):
        choice = _fastest(costs, choice, [s for s in slots if s.dim == BUFFERS and choice.tiles[s.name]])
    return choice


def _fastest(costs: Costing, choice: GroupMapping, slots: Sequence[Slot]) -> GroupMapping:
    """The fastest numbers of buffers of some Holds that fit, with the others given; all combinations are costed as arrays."""
    if not slots:
        return choice
    grid = np.meshgrid(*(np.arange(1.0, int(slot.limit({})) + 1) for slot in slots), indexing="ij")
    columns = {slot.name: axis.ravel() for slot, axis in zip(slots, grid, strict=True)}
    estimate = evaluate(costs.workload, costs.chip, costs.enclose(replace(choice, tiles={**choice.tiles, **columns}).tree()))
    times = np.broadcast_to(np.asarray(estimate.time, dtype=np.float64), grid[0].size).copy()
    for memory, used in estimate.footprint.items():
        times[np.broadcast_to(used > costs.chip.memory(memory).capacity, times.shape)] = np.inf
    best = int(np.argmin(times))
    return replace(choice, tiles={**choice.tiles, **{name: int(column[best]) for name, column in columns.items()}})
