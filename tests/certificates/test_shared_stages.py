"""Stages that several groups share: each group has the shapes that it would have alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from halley import build
from halley.io.chips.load import load_chip
from halley.ir.workload import Workload
from halley.mapping.bounds.shapes import Trees
from halley.mapping.space.frame_sets import Frame, GroupSpace
from halley.mapping.space.frames.group import frames
from halley.mapping.space.frames.shared_buffer import Laid
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.partitions import every_partition, group_ops
from halley.workloads import attention, gated_mlp

GROUPS = 12
"""Groups of a workload, with stages on partitions of the clusters, that are compared."""


def scanned() -> Workload:
    """With ops that leave a dim whole in some groups."""
    return build("mamba", {"length": 4, "model": 4})


def at_hand(space: GroupSpace) -> list[Frame]:
    """The plain frames, and of each family the first of each number of members."""
    found = list(space.plain)
    for implicit_set in space.implicit_sets:
        stages = range(len(implicit_set.sequential.stages))
        found += [implicit_set.alone(stage, count) for stage in stages for count in range(1, implicit_set.members)]
    return found


@pytest.mark.parametrize("made", [lambda: gated_mlp(8, 12, 6), lambda: attention(1, 2, 1, 4, 4, 4, variant="plain"), scanned])
def test_shared_stages_are_those_of_each_group_alone(made: Callable[[], Workload]) -> None:
    workload, machine = made(), hierarchy(load_chip("cloud"))
    groups = list(every_partition(workload)[0].groups)
    random.Random(0).shuffle(groups)
    laid, trees, spaces, asked = Laid(), Trees(), 0, 0
    while groups and spaces < GROUPS:
        ops = group_ops(workload, groups.pop())
        space = frames(workload, machine, ops)
        if space.implicit_sets:
            spaces += 1
            alone, common = at_hand(space), at_hand(frames(workload, machine, ops, laid))
            asked += len({id(stage) for frame in alone if frame.partition for stage in frame.stages})
            assert [frame.name for frame in alone] == [frame.name for frame in common]
            for mine, other in zip(alone, common, strict=True):
                compare(mine, other, trees)
    assert 0 < len(laid.stages) < asked


def compare(mine: Frame, other: Frame, trees: Trees) -> None:
    """The same shapes: names, chains of tile sizes (of equal ones, ``trees`` has one), and the tree of the last sizes."""
    assert [stage.ops for stage in mine.stages] == [stage.ops for stage in other.stages]
    for first, second in zip(mine.stages, other.stages, strict=True):
        assert [shape.name for shape in first.skeletons] == [shape.name for shape in second.skeletons]
        for shape, twin in zip(first.skeletons, second.skeletons, strict=True):
            assert shape.splits_reduction == twin.splits_reduction
            own, theirs = trees.of(mine.shared, shape.slots), trees.of(other.shared, twin.slots)
            assert list(own.items()) == list(theirs.items())
            tiles = {name: int(column[-1]) for tree in own.values() for name, column in tree.columns.items()}
            assert shape.build(tiles) == twin.build(tiles)
