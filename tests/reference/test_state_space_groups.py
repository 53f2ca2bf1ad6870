"""Groups of scans, transforms and short convolutions, cut anywhere by the search: they run as they are costed."""

from __future__ import annotations

from random import Random

import pytest
from tests.reference.sequences import SIZES
from tests.reference.test_counts import Checker, drawn_tiles, search_chip, slots_of, whole

from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.partitions import before, consecutive_groups, group_ops, in_order
from halley.rewrite.canonical import canonical
from halley.workloads import build, mamba_2, variants

BLOCKS = ("mamba", "mamba-2", "hyena")


def checked(seed: int, kind: str) -> int:
    """Interpreter and formulas on a mapping of one fused group of a block and its other ops, each alone; the number of ops in the
    group, 0 where it has no frame."""
    random = Random(seed)
    workload = random.choice(variants(build(kind, SIZES[kind](random))))
    chip, count = search_chip(random), len(workload.ops)
    fused = random.choice([group for group in consecutive_groups(count) if 2 <= group.bit_count() <= 6])
    if not frames(workload, hierarchy(chip), group_ops(workload, fused)):
        return 0
    alone = [1 << place for place in range(count) if not fused >> place & 1]
    drawn = []
    for group in in_order(before(workload), [fused, *alone]):
        ops = group_ops(workload, group)
        frame = random.choice(list(frames(workload, hierarchy(chip), ops)))
        drawn.append((ops, frame, [random.choice(stage.skeletons) for stage in frame.stages]))
    tree = whole(workload, chip, drawn, [drawn_tiles(random, slots_of(group), False) for group in drawn])
    assert Checker(workload, chip, seed % 1000)(canonical(tree, workload.dims)), "a mapping of the declared space breaks a rule"
    return fused.bit_count()


@pytest.mark.parametrize("kind", BLOCKS)
def test_groups_of_a_block_run_as_they_are_costed(kind: str) -> None:
    """Until some fused ops were compared."""
    fused, seed = 0, 0
    while fused < 12:
        fused += checked(seed, kind)
        seed += 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("block", range(10))
def test_groups_of_a_block_run_as_they_are_costed_on_many(kind: str, block: int) -> None:
    for seed in range(1000 * (block + 1), 1000 * (block + 1) + 40):
        checked(seed, kind)


@pytest.mark.parametrize("seed", range(4))
def test_windows_of_a_tensor_without_the_streamed_dim_run_as_they_are_costed(seed: int) -> None:
    """The second pass copies windows of a tensor that lacks the dim of their places, over which the first pass sums."""
    draw = Random(seed)
    workload = mamba_2(2, 4, 8, 2, 4, state=2, variant="chunked")
    chip, names = search_chip(draw), [op.name for op in workload.ops]
    fused = sum(1 << names.index(name) for name in ("convolve_b", "activate_b", "window_c"))
    alone = [1 << place for place in range(len(names)) if not fused >> place & 1]
    made = []
    for group in in_order(before(workload), [fused, *alone]):
        ops = group_ops(workload, group)
        frame = draw.choice(list(frames(workload, hierarchy(chip), ops)))
        shapes = [[s for s in stage.skeletons if group != fused or s.name.startswith("rows streamed")] for stage in frame.stages]
        made.append((ops, frame, [draw.choice(own) for own in shapes]))
    tree = whole(workload, chip, made, [drawn_tiles(draw, slots_of(group), False) for group in made])
    assert Checker(workload, chip, seed)(canonical(tree, workload.dims))


def test_slots_of_a_stage_have_names_of_their_own() -> None:
    """Also where what is streamed are the rows themselves: of two slots of one name, one would hide the other's choices."""
    workload, machine = build("hyena", {"length": 6, "model": 4}), hierarchy(search_chip(Random(1)))
    met = 0
    for group in consecutive_groups(len(workload.ops)):
        if group.bit_count() > 3:
            continue
        for frame in frames(workload, machine, group_ops(workload, group)):
            for skeleton in (skeleton for stage in frame.stages for skeleton in stage.skeletons):
                names = [slot.name for slot in (*frame.shared, *skeleton.slots)]
                assert len(set(names)) == len(names), (frame.name, skeleton.name, names)
                met += 1
    assert met > 100
