"""What stages need to know of each other's room: only what may overflow, where they have a memory in common."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from halley.formulas.numbers import Number, maximum
from halley.ir.hardware import Chip


def on_a_share(chip: Chip, level: str, footprint: Mapping[str, Number]) -> dict[str, Number]:
    """The ``footprint`` [B] by memory of a stage that has a share of the clusters of a ``level`` to itself, as it matters to the
    other stages: of a memory in the clusters all of it, the capacity, if it fits.

    The Holds around shares lie outside the clusters. So a memory there holds what one stage after the other has in it, and the
    stages of a share fit if each of them does; once it does, it is all one how much it takes. Sets of mappings that differ in
    this alone are equal then, and the smaller one no longer has to be kept beside the cheaper one. The order is kept: a lower
    bound of what a set takes gives one of this, and it is above the capacity where that is."""
    inside = chip.levels.index(chip.level(level))

    def told(name: str, used: Number) -> Number:
        capacity = chip.memory(name).capacity
        return maximum(used, capacity) if chip.depth(name) >= inside and isfinite(capacity) else used

    return {name: told(name, used) for name, used in footprint.items()}
