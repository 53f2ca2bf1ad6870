"""Tie-breaking: among mappings of equal time and energy, one whose tile sizes are multiples of a few elements.

Memories and engines work in units of several elements, which the formulas model only where the chip file states them (bursts,
granularity). So of tile sizes that cost the same, aligned ones are the safer choice. The decision is
docs/decisions/0062-aligned-ties.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.mapping.solve.slack import other_sizes, those_that_fit, unevenness
from halley.mapping.solve.ties import EQUAL
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.stages import BUFFERS, Slot

LARGEST_EXCESS = 0.1
"""By how much (relative) the full tile of a dim may be larger than the mean one, if its size is changed."""

ALIGNED_ELEMENTS = 16
"""Elements: a tile of a multiple of these is aligned. 16 elements of two bytes are a sector of a GPU's memory (32 B), and 16 is
the least k of a matrix instruction on current GPUs."""


def is_aligned(size: int, extent: int) -> bool:
    """Whether a tile is a multiple of `ALIGNED_ELEMENTS` elements, or the whole extent.

    >>> is_aligned(24, 100), is_aligned(48, 100), is_aligned(7, 7)
    (False, True, True)
    """
    return size % ALIGNED_ELEMENTS == 0 or size >= extent


def with_aligned_tiles(workload: Workload, chip: Chip, enclose: Callable[[Node], Node], choice: GroupMapping) -> GroupMapping:
    """The mapping with aligned tile sizes wherever time and energy stay equal (to rounding), the buffers fit, and the last tile
    stays about as large as the others (`LARGEST_EXCESS`). One size is changed at a time, outer ones first, to the nearest one of
    the declared sizes. ``enclose`` wraps the group's tree."""
    slots = [slot for slot in choice.slots if slot.dim != BUFFERS]
    costs: tuple[float, float] | None = None
    for slot in slots:
        sizes = _aligned_sizes(slots, slot, choice)
        if not sizes:
            continue
        if costs is None:
            known = evaluate(workload, chip, enclose(choice.tree()))
            costs = float(known.time), float(known.energy)
        columns = np.array(sizes, dtype=np.float64)
        found = evaluate(workload, chip, enclose(replace(choice, tiles={**choice.tiles, slot.name: columns}).tree()))
        equal = those_that_fit(chip, found, len(sizes))
        for value, own in zip((found.time, found.energy), costs, strict=True):
            equal &= np.abs(value - own) <= EQUAL * own
        if equal.any():
            choice = replace(choice, tiles={**choice.tiles, slot.name: sizes[int(equal.argmax())]})
    return choice


def _aligned_sizes(slots: Sequence[Slot], slot: Slot, choice: GroupMapping) -> list[int]:
    """The aligned sizes to try in place of one that is not, the nearest first: those that leave all sizes within the declared
    ones."""
    extent, now = int(slot.limit(choice.tiles)), int(choice.tiles[slot.name])
    if is_aligned(now, extent):
        return []
    most = max(LARGEST_EXCESS, unevenness((slot,), choice.tiles))
    aligned = (size for size in other_sizes(slots, slot, choice) if is_aligned(size, extent))
    found = [size for size in aligned if unevenness((slot,), {**choice.tiles, slot.name: size}) <= most]
    return sorted(found, key=lambda size: (abs(size - now), size))
