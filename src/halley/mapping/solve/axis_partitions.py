"""Lower bounds of stages that each run on a part of the clusters of an axis, before they are compiled together.

Every part of an axis is another layout of each stage, and most of these are pruned by two bounds: the time of the ops on the
engines of their clusters (`halley.mapping.bounds.compulsory`), and the least cost of each shape of each stage alone. The latter
is found once for all groups, cuts and parts of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from halley.cost.estimate import Estimate, Resource
from halley.formulas.numbers import Number
from halley.ir.mapping import Spatial, walk
from halley.mapping.bounds.incumbents import Flags, Values
from halley.mapping.solve.group import GroupState
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.stages import Skeleton, Slot, members, one


def promising(group: GroupState, frame: Frame) -> tuple[Frame, list[Values]] | None:
    """The frame with the shapes of its stages that may improve on the incumbents, and the least cost of each alone (shapes x
    combinations of the shared sizes x (time, energy without leakage)); None if a stage has no such shape."""
    if group.found.pruned(group.least_of(frame)).all() or (useful := group.useful(frame)) is None:
        return None
    frame = useful
    rows, stages = group.costs.combinations(frame), range(len(frame.stages))
    alone: list[Values] = [np.zeros((1, rows, 2)) for _ in stages]
    known = group.costs.lone
    for index in sorted(stages, key=lambda index: sum(id(shape) not in known for shape in frame.stages[index].skeletons)):
        found = [_alone(group, frame, index, shape)[:, :2] for shape in frame.stages[index].skeletons]
        alone[index] = np.array(found).reshape(-1, rows, 2)
        if _pruned(group, frame, index, alone).all():
            return None
    kept = []
    for index, stage in enumerate(frame.stages):
        left = np.flatnonzero(~_pruned(group, frame, index, alone))
        if not len(left):
            return None
        alone[index] = alone[index][left]
        kept.append(replace(stage, skeletons=tuple(stage.skeletons[at] for at in left)))
    return replace(frame, stages=tuple(kept)), alone


def least_alone(group: GroupState, frame: Frame, index: int) -> Values:
    """Least cost of a stage alone (`_alone`) over all its shapes; infinite if it has none."""
    least: Values = np.full((group.costs.combinations(frame), 2 + len(common_resources(group, frame))), np.inf)
    for shape in frame.stages[index].skeletons:
        if not group.wastes(frame, shape):
            least = np.minimum(least, _alone(group, frame, index, shape))
    return least


MEMBER_COUNTS_FOR_JOINT_BOUND = 4
"""With at least this many different numbers of members, a stage is bounded on all of its partitions together."""


def common_resources(group: GroupState, frame: Frame) -> list[Resource]:
    """Resources that all partitions of the clusters share: ports of the memories outside the clusters."""
    chip, partition = group.chip, frame.partition
    assert partition is not None
    outside = [memory for memory in chip.memories if chip.depth(memory.name) < chip.levels.index(chip.level(partition.level))]
    return [(way, memory.name) for memory in outside for way in (("bus",) if memory.shared_bus else ("read", "write"))]


def _alone(group: GroupState, frame: Frame, index: int, skeleton: Skeleton) -> Values:
    """Least costs of a shape of a stage alone, for any of its own tile sizes and without capacity constraints: time, energy
    without leakage, and busy times of resources shared with other partitions, a row for each combination of the shared sizes. It
    is the same in frames that differ in their cut, or in the partitions of other stages."""
    known = group.costs.lone
    if id(skeleton) not in known:
        known[id(skeleton)] = _found_alone(group, frame, index, skeleton)
    return known[id(skeleton)]


def _found_alone(group: GroupState, frame: Frame, index: int, skeleton: Skeleton) -> Values:
    number = _open_members(group, frame, skeleton)
    partition = frame.partition
    assert partition is not None
    if number is None:
        return _bounds(group, frame, index, skeleton, ())
    *_, most = number.sizes(1)
    every = replace(frame, partition=replace(partition, counts=(most,) * len(frame.cut)))
    found = _bounds(group, every, index, skeleton, (number,))
    child = next(at for at, stages in enumerate(frame.cut) if index in stages)
    by_number = found.reshape(group.costs.combinations(frame), -1, found.shape[1])  # shared sizes, numbers of members, parts
    return np.asarray(by_number[:, number.sizes(1).index(partition.counts[child])])


def _open_members(group: GroupState, frame: Frame, skeleton: Skeleton) -> Slot | None:
    """The number of members of a stage's partition as an open number, if there are many partitions of its axis and the number
    determines only the sizes of split tiles. It does not for one member, which splits nothing, nor with collectives, whose steps
    depend on it."""
    partition = frame.partition
    assert partition is not None
    most = group.chip.axis(partition.level, partition.axis).size - 1
    if most - 1 < MEMBER_COUNTS_FOR_JOINT_BOUND or skeleton.splits_reduction:
        return None
    node = skeleton.build(group.costs.symbols(frame, skeleton))
    split = [
        inner.dim
        for _, inner in walk(node)
        if isinstance(inner, Spatial) and (inner.level, inner.axis) == (partition.level, partition.axis)
    ]
    return _members(partition.level, partition.axis, split[0], most) if split else None


@cache
def _members(level: str, axis: str, dim: str, most: int) -> Slot:
    numbers = tuple(range(2, most + 1))
    return Slot(members(level, axis), dim, lambda extent: numbers, one, (2, most))


def _bounds(group: GroupState, frame: Frame, index: int, skeleton: Skeleton, further: Sequence[Slot]) -> Values:
    """The same with further open numbers in addition to the shared sizes: all combinations."""

    def parts(found: Estimate) -> list[Number]:
        return [
            found.time,
            found.energy_of_actions,
            *(found.busy.get(resource, 0) for resource in common_resources(group, frame)),
        ]

    return group.costs.on_untiled(frame, index, skeleton, parts, further)


def _pruned(group: GroupState, frame: Frame, index: int, alone: list[Values]) -> Flags:
    """Which shapes of a stage are pruned for all shared sizes and all shapes of the other stages: the time is that of the longest
    child, energies add up."""
    least = [own.min(axis=0) for own in alone]
    child_of = {stage: at for at, child in enumerate(frame.cut) for stage in child}
    times: Values = np.zeros((len(frame.cut), *alone[index].shape[:2]))
    energy: Values = np.zeros(alone[index].shape[:2])
    for stage, best in enumerate(least):
        found = alone[index] if stage == index else best
        times[child_of[stage]] += found[..., 0]
        energy = energy + found[..., 1]
    floor = group.least(frame, None)
    time = np.maximum(times.max(axis=0), floor["time"])
    costs = {"time": time, "energy": np.maximum(energy + group.chip.static_power * time, floor["energy"])}
    bounds = np.stack([costs[name] for name in group.objectives], axis=-1)
    return np.asarray(group.found.pruned(bounds.reshape(-1, bounds.shape[-1])).reshape(bounds.shape[:2]).all(axis=1))
