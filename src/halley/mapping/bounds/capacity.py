"""Room, as far as it can matter: the memories that may overflow, and what stages need to know of each other's."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from halley.cost.footprint import footprint
from halley.cost.movement import Body
from halley.cost.window import counter_of
from halley.formulas.numbers import Number, maximum
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload


def may_be_full(workload: Workload, chip: Chip, tree: Node) -> tuple[str, ...]:
    """The memories that some mapping of a group may fill. ``tree``: the ops of the group under the Holds of the outermost memory.

    Frames hold nothing else there, and what lies around all loops and splits is held whole, once. So every mapping needs as much
    of that memory as the tree: if that fits, it need not be asked again."""
    counter, (outermost, *_) = counter_of(workload, chip), chip.memories
    fits = footprint(counter, tree, Body(counter)).get(outermost.name, 0) <= outermost.capacity
    return tuple(m.name for m in chip.memories if isfinite(m.capacity) and not (fits and m is outermost))


def footprint_on_partition(chip: Chip, level: str, footprint: Mapping[str, Number]) -> dict[str, Number]:
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
