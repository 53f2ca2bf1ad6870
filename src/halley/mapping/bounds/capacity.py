"""Capacity constraints: the memories that may overflow, and footprints of stages on partitions of an axis."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from halley.cost.affine import counter_of
from halley.cost.footprint import footprint
from halley.cost.movement import Body
from halley.formulas.numbers import Number, maximum
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload


def may_be_full(workload: Workload, chip: Chip, tree: Node) -> tuple[str, ...]:
    """The memories that some mapping of a group may overflow. ``tree``: the ops of the group under the Holds of the outermost
    memory.

    Frames hold nothing else in the outermost memory, and Holds outside all loops and splits hold whole tensors once. So every
    mapping needs the same bytes of that memory as the tree: if these fit, the memory is not a constraint."""
    counter, (outermost, *_) = counter_of(workload, chip), chip.memories
    fits = footprint(counter, tree, Body(counter)).get(outermost.name, 0) <= outermost.capacity
    return tuple(m.name for m in chip.memories if isfinite(m.capacity) and not (fits and m is outermost))


def footprint_on_partition(chip: Chip, level: str, footprint: Mapping[str, Number]) -> dict[str, Number]:
    """The ``footprint`` [B] by memory of a stage on its own partition of the clusters of a ``level``, simplified: for memories in
    the clusters, a footprint that fits is rounded up to the capacity.

    Holds outside the partitions are outside the clusters. So the stages of a partition use a memory in the clusters one after the
    other, and fit if each of them fits; the exact footprint of one that fits does not matter. With the simplified footprint, sets
    of mappings that differ only in it dominate each other by cost. The simplification is monotonic: a lower bound of the
    footprint gives a lower bound of the result, which exceeds the capacity if and only if the footprint's bound does."""
    inside = chip.levels.index(chip.level(level))

    def rounded_up(name: str, used: Number) -> Number:
        capacity = chip.memory(name).capacity
        return maximum(used, capacity) if chip.depth(name) >= inside and isfinite(capacity) else used

    return {name: rounded_up(name, used) for name, used in footprint.items()}
