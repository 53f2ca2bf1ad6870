"""Compulsory lower bounds of a group are no higher than the cost of any of its mappings."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.certificates.exhaustive import draw_batched, draw_chip, draw_divisible, draw_graph, draw_workload
from tests.reference.sequences import SIZES
from tests.reference.test_counts import search_chip

from halley import Problem, load_chip, optimise
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold
from halley.ir.workload import Workload
from halley.mapping.bounds.compulsory import CompulsoryBounds
from halley.mapping.groups import _kept
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.partitions import every_partition, group_ops
from halley.mapping.space.stages import Skeleton
from halley.rewrite.canonical import canonical
from halley.workloads import attention, build, graph, variants

MAPPINGS = 6
"""Of each frame that is drawn."""

TRIES = 15
"""Until so many of them are found that fit."""

CHIPS: list[Callable[[random.Random], Chip]] = [
    draw_chip,
    search_chip,
    lambda draw: load_chip("edge"),
    lambda draw: load_chip("cloud"),
]


def sequences(draw: random.Random) -> Workload:
    kind = draw.choice(["mamba", "mamba-2", "hyena"])
    return draw.choice(variants(build(kind, SIZES[kind](draw))))


def attentions(draw: random.Random) -> Workload:
    variant = draw.choice(["plain", "deferred", "online"])
    return attention(1, 4, draw.choice([1, 4]), draw.choice([1, 48, 256]), 200, 64, variant=variant)


def masked(draw: random.Random) -> Workload:
    queries, keys = draw.choice([1, 64, 256]), 256
    window = draw.choice([None, 16, 100])
    return attention(1, 2, draw.choice([1, 2]), queries, keys, 64, variant="online", causal=True, window=window)


def compared(workload: Workload, chip: Chip, draw: random.Random) -> int:
    """Mappings of one group, drawn in some of its frames, against the floors of the frame and of the group."""
    machine = hierarchy(chip)
    groups = every_partition(workload)[0].groups
    tried = draw.sample(groups, len(groups))
    kernels = next(group for group in tried if frames(workload, machine, group_ops(workload, group)))
    ops, kept = group_ops(workload, kernels), _kept(workload, kernels)
    space = list(frames(workload, machine, ops))
    floors = CompulsoryBounds(workload, chip, machine, ops, kept)
    least, count = floors.group(), 0
    for frame in draw.sample(space, min(8, len(space))):
        floor = floors.frame(frame)
        assert all(least[name] <= floor[name] * (1 + 1e-12) for name in least), frame.name
        fitting = 0
        for _ in range(TRIES):
            skeletons = tuple(draw.choice(stage.skeletons) for stage in frame.stages)
            tiles = drawn(frame, skeletons, draw)
            tree = Hold(machine.outer, tuple((name,) for name in kept), GroupMapping(frame, skeletons, tiles).tree(), 1)
            estimate = evaluate(workload, chip, canonical(tree, workload.dims))
            if any(used > chip.memory(name).capacity for name, used in estimate.footprint.items()):
                continue  # the bounds make use of what fits
            fitting += 1
            assert floor["time"] <= float(estimate.time) * (1 + 1e-12), frame.name
            assert floor["energy"] <= float(estimate.energy) * (1 + 1e-12), frame.name
            for skeleton in skeletons:  # of what lies on the array
                closer = floors.frame(frame, skeleton.laid)
                assert floor["time"] <= closer["time"] <= float(estimate.time) * (1 + 1e-12), (frame.name, skeleton.name)
                assert floor["energy"] <= closer["energy"] <= float(estimate.energy) * (1 + 1e-12), (frame.name, skeleton.name)
            if fitting == MAPPINGS:
                break
        count += fitting
    return count


def drawn(frame: Frame, skeletons: tuple[Skeleton, ...], draw: random.Random) -> dict[str, int]:
    """Tile sizes; large ones half of the time, as floors are close to these."""
    tiles: dict[str, int] = {}
    large = draw.random() < 0.5
    for slot in (*frame.shared, *(slot for skeleton in skeletons for slot in skeleton.slots)):
        sizes = slot.sizes(int(slot.limit(tiles)))
        tiles[slot.name] = sizes[-1] if large and draw.random() < 0.7 else draw.choice(sizes)
    return tiles


def sums(draw: random.Random) -> Workload:
    """A contraction with several dims in each role, few points in some of them; alone, or with a function of its results."""
    lines = ["S[p,q,f,g] = U[p,q,c,r] * W[f,g,c,r]", "Y[p,q,f,g] = relu(S[p,q,f,g])"]
    return graph(lines[: draw.randint(1, 2)], {dim: draw.choice([1, 2, 3, 7, 40]) for dim in "pqfgcr"})


@pytest.mark.parametrize(
    "drawn_from", [draw_workload, draw_batched, draw_graph, draw_divisible, sequences, attentions, masked, sums]
)
@pytest.mark.parametrize("seed", range(5))
def test_no_mapping_costs_less_than_its_compulsory_bound(drawn_from: Callable[[random.Random], Workload], seed: int) -> None:
    draw = random.Random(seed)
    if not sum(compared(drawn_from(draw), CHIPS[seed % len(CHIPS)](draw), draw) for _ in range(2)):
        pytest.skip("no mapping that was drawn fits")


def test_causal_attention_is_faster_than_all_its_points() -> None:
    """Running softmax skips hidden tiles: the work at all points is no bound."""
    chip = load_chip("edge")

    def bound(work: Workload) -> float:
        return CompulsoryBounds(work, chip, hierarchy(chip), work.ops, (*work.inputs, *work.outputs)).group()["time"]

    causal, full = (attention(1, 1, 1, 2048, 2048, 32, variant="online", causal=causal) for causal in (True, False))
    best = optimise(Problem(causal, chip, baselines=False, fixed_variant=True, gap=0.2)).best
    assert bound(causal) <= best.certificate.value < bound(full)
