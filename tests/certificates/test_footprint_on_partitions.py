"""The footprint of a stage on a partition of the clusters, as other stages see it: enough to decide whether a plan fits."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from tests.certificates.test_implicit_frames import shared_out, whole_group

from halley.cost.affine import counter_of
from halley.cost.counting import Counter
from halley.cost.footprint import footprint
from halley.cost.movement import Body
from halley.ir.mapping import Compute, Node
from halley.ir.mapping import Sequence as Steps
from halley.mapping.bounds.capacity import footprint_on_partition, may_be_full
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import Frame


def drawn_mapping(frame: Frame, draw: random.Random) -> GroupMapping:
    """A mapping of a frame, any."""
    shapes = tuple(draw.choice(stage.skeletons) for stage in frame.stages)
    tiles: dict[str, int] = {}
    for slot in (*frame.shared, *(slot for shape in shapes for slot in shape.slots)):
        tiles[slot.name] = draw.choice(slot.sizes(int(slot.limit(tiles))))
    return GroupMapping(frame, shapes, tiles)


def used(search: GroupSearch, tree: Node) -> dict[str, float]:
    counter: Counter = counter_of(search.costs.workload, search.costs.chip)
    return {name: float(size) for name, size in footprint(counter, tree, Body(counter)).items()}


def test_stages_of_a_partition_fit_together_if_each_fits() -> None:
    """In the memories of the clusters a plan needs what the stage needs that needs most there, found for each by itself; and
    what stages tell of that overflows where that does."""
    draw, seen, full = random.Random(3), 0, 0
    for workload, chip, _ in shared_out(12):
        search = whole_group(workload, chip, ("time",))
        for frame in (frame for implicit_set in search.space.implicit_sets for frame in implicit_set):
            choice = drawn_mapping(frame, draw)
            whole = used(search, search.costs.enclose(choice.tree()))
            held = (search.costs.held(frame, at, shape, choice.tiles) for at, shape in enumerate(choice.skeletons))
            stages = [used(search, tree) for tree in held]
            for memory in chip.levels[-1].memories:
                needs = [stage.get(memory.name, 0.0) for stage in stages]
                assert whole.get(memory.name, 0.0) == max(needs)
                told = [footprint_on_partition(chip, frame.partition.level, stage).get(memory.name, 0.0) for stage in stages]
                assert (max(told) > memory.capacity) == (max(needs) > memory.capacity)
                assert len({size for size in told if size <= memory.capacity} - {0.0}) <= 1
                seen, full = seen + 1, full + (max(needs) > memory.capacity)
    assert seen > 100
    assert 0 < full < seen


def test_footprints_in_shared_memories_are_complete() -> None:
    ((_, chip, _),) = shared_out(1)
    level = chip.levels[-1].name
    every = {memory.name: 3.0 for memory in chip.memories}
    told = footprint_on_partition(chip, level, every)
    for memory in chip.memories:
        assert (told[memory.name] == 3.0) == (chip.depth(memory.name) < len(chip.levels) - 1)


def test_all_mappings_have_one_footprint_in_the_outermost_memory() -> None:
    """So it is asked for only where that does not fit."""
    draw, seen = random.Random(5), 0
    for workload, chip, _ in shared_out(6):
        search = whole_group(workload, chip, ("time",))
        needs = {
            used(search, search.costs.enclose(drawn_mapping(frame, draw).tree()))[chip.memories[0].name] for frame in search.space
        }
        (need,) = needs
        tree = search.costs.enclose(Steps(tuple(Compute(op.name) for op in workload.ops)))
        for capacity, limited in ((need, False), (need - 1, True), (math.inf, False)):
            levels = (replace(chip.levels[0], memories=(replace(chip.memories[0], capacity=capacity),)), *chip.levels[1:])
            found = may_be_full(workload, replace(chip, levels=levels), tree)
            assert (chip.memories[0].name in found) is limited
            assert set(found) >= {memory.name for memory in chip.memories[1:] if math.isfinite(memory.capacity)}
        seen += len(search.frames)
    assert seen > 20
