"""Splits of a single kernel over fewer members of an axis than it has: which are in the space, and what they gain."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.certificates.composing import assignments
from tests.certificates.exhaustive import draw_chip, draw_workload, kernels
from tests.certificates.test_search import compare, compare_first
from tests.certificates.test_untiled_relaxation import OBJECTIVES, drawn, some_group

from halley import Problem, load_chip, optimise
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node, Spatial, Temporal, walk
from halley.ir.workload import Workload
from halley.mapping.declared_space import LEFT_OUT, SPACE
from halley.mapping.solve.engine_work import engine_bounds
from halley.mapping.solve.outside_stages import shared_sizes
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.tile_sizes import SplitSizes
from halley.rewrite import legality
from halley.rewrite.canonical import canonical
from halley.simulate.simulation import simulate
from halley.workloads import gemm, gemm_softmax

Tiles = tuple[tuple[str, str, int], ...]
"""By axis that splits a dim, first axis first: its name, the dim and the tile size."""


def with_axes(draw: random.Random, sizes: tuple[int, ...]) -> Chip:
    """A drawn chip with axes of these sizes, which differ in more than their names."""
    chip = draw_chip(draw)
    *outer, level = chip.levels
    assert level.network is not None
    axis = level.network.axes[0]
    links = (replace(axis.link, bandwidth=bandwidth * 1e9) for bandwidth in (1.0, 2.0, 3.0))
    axes = tuple(replace(axis, name=name, size=size, link=link) for name, size, link in zip("xyz", sizes, links, strict=False))
    return replace(chip, levels=(*outer, replace(level, network=replace(level.network, axes=axes))))


def found_splits(workload: Workload, chip: Chip) -> Iterator[Tiles]:
    """The splits of the mappings of a GEMM, by frame and tile sizes of the split."""
    every = frames(workload, hierarchy(chip), workload.ops)
    for frame in (frame for frame in every if frame.stages[0].skeletons):
        skeleton = frame.stages[0].skeletons[0]
        for place, tiles in enumerate(assignments(frame.shared, {})):
            ones = {**{slot.name: 1 for slot in skeleton.slots}, **tiles}
            nodes = [node for _, node in walk(frame.tree(ones, [skeleton.build(ones)])) if isinstance(node, Spatial)]
            if place or not frame.known_first:
                yield tuple((node.axis, node.dim, int(node.tile)) for node in nodes)


def every_split(workload: Workload, chip: Chip, idling: int) -> Iterator[Tiles]:
    """The same from their definition: on each axis a dim and a tile of it, another one than equal parts on at most so many axes.
    Sums over three axes cannot be scattered over the two dims of a result."""
    axes, dims = [axis for _, axis in chip.axes], [dim for dim in ("m", "n", "k") if workload.dims[dim] > 1]
    engine = chip.matrix
    assert engine is not None

    def tiles(extent: int, members: int) -> set[int]:
        even = {math.ceil(extent / number) for number in (1, 2, 4, 8, members) if number <= members}
        whole = {width * math.ceil(size / width) for size in even for width in (engine.rows, engine.cols)}
        return even | {size for size in whole if size < extent}

    def below(left: dict[str, int], at: int, others: int) -> Iterator[Tiles]:
        if at == len(axes):
            yield ()
            return
        for place, dim in enumerate(dims):
            equal = math.ceil(left[dim] / axes[at].size)
            for tile in tiles(left[dim], axes[at].size):
                lone = tile == left[dim] and tile != equal
                if (lone and place) or (tile != equal and others == idling):
                    continue
                for rest in below({**left, dim: tile}, at + 1, others + (tile != equal)):
                    yield ((axes[at].name, dim, tile), *rest)

    yield from (split for split in below(dict(workload.dims), 0, 0) if [dim for _, dim, _ in split].count("k") < 3)


@pytest.mark.parametrize(
    ("sizes", "extents"),
    [
        ((3,), (7, 5, 2)),
        ((4,), (1, 3, 9)),
        ((3, 2), (7, 5, 2)),
        ((2, 4), (5, 1, 11)),
        ((2, 3, 2), (5, 3, 2)),
        ((2, 2, 3), (2, 7, 1)),
    ],
)
def test_every_tile_of_a_split_is_in_one_frame(sizes: tuple[int, ...], extents: tuple[int, int, int]) -> None:
    """On at most two axes, no other mapping and none twice."""
    workload, chip = gemm(*extents), with_axes(random.Random(sum(extents)), sizes)
    expected = sorted(every_split(workload, chip, 2))
    assert len(expected) == len(set(expected))
    assert sorted(found_splits(workload, chip)) == expected


@pytest.mark.parametrize(("extent", "members"), [*itertools.product((1, 2, 7, 64, 100, 1000, 1 << 20), (2, 5, 16, 17, 40))])
def test_sizes_give_each_working_member_a_part(extent: int, members: int) -> None:
    smallest = -(-extent // members)
    every = SplitSizes((8, 32), members, even=True, lone=True)(extent)
    assert list(every) == sorted(set(every))
    assert every[0] == smallest
    assert every[-1] == extent
    working = {-(-extent // size) for size in every}
    assert max(working) <= members
    for number in (1, 2, 4, 8, 16, 32):
        assert number > members or -(-extent // (-(-extent // number))) in working
    uneven = SplitSizes((8, 32), members, even=False, lone=False)(extent)
    assert {*uneven} == {*every} - {smallest, extent}


@pytest.mark.parametrize("block", range(4))
def test_engines_work_at_least_as_long_as_their_bound(block: int) -> None:
    """Against the costs of drawn tiles of the same split."""
    assert sum(compared_bounds(seed) for seed in range(10 * block, 10 * block + 10)) > 20


def compared_bounds(seed: int) -> int:
    draw, compared = random.Random(seed), 0
    workload = draw_workload(draw)
    alone = replace(workload, kernels=(), divisible=False) if len(kernels(workload)) == 1 else workload
    search = some_group(alone, with_axes(draw, draw.choice([(3,), (3, 2)])), OBJECTIVES[seed % 2], draw)
    for frame in (frame for frame in search.frames if frame.idles):
        bounds, sizes = engine_bounds(search.costs, frame), shared_sizes(search.costs, frame)
        for _ in range(5):
            skeleton = draw.choice(frame.stages[0].skeletons)
            tiles = drawn(frame, (skeleton,), draw)
            here = np.logical_and.reduce([np.asarray(sizes[slot.name]) == tiles[slot.name] for slot in frame.shared])
            (row,) = np.flatnonzero(here)
            if row == 0 and frame.known_first:
                assert np.isinf(bounds[0]).all()
                continue
            estimate = search.costs.estimate(frame, 0, skeleton, tiles)
            reached = np.array([float(getattr(estimate, name)) for name in search.objectives])
            assert (bounds[row] <= reached * (1 + 1e-12)).all()
            compared += 1
    return compared


def on_axes(draw: random.Random) -> Chip:
    return with_axes(draw, draw.choice([(3,), (4,), (3, 2)]))


def draw_gemm(draw: random.Random) -> Workload:
    sizes = [draw.randint(3, 6), draw.choice([1, 1, 2, 3]), 1]
    draw.shuffle(sizes)
    return gemm(*sizes)


@pytest.mark.medium
@pytest.mark.parametrize("seed", [2, 14, 28])
def test_search_of_a_gemm_equals_exhaustive_walk_on_axes_of_several_members(seed: int) -> None:
    assert compare(seed, 2500, draw_gemm, on_axes) == "equal"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 86))
def test_many_searches_equal_exhaustive_walks_on_axes_of_several_members(seed: int) -> None:
    """56 problems that are small enough: a third of those that are drawn."""
    assert compare_first(seed, 3000, draw_gemm, on_axes) in ("equal", "infeasible")


def spread_wider(node: Node, ranges: dict[str, int], chip: Chip) -> Node:
    """The same mapping with equal parts for all members of each axis that it splits over."""
    match node:
        case Spatial():
            tile = -(-ranges[node.dim] // chip.axis(node.level, node.axis).size)
            return replace(node, tile=tile, body=spread_wider(node.body, {**ranges, node.dim: tile}, chip))
        case Temporal() | Hold():
            return replace(node, body=spread_wider(node.body, ranges, chip))
        case _:
            return node


def idle_axes(plan: Node, workload: Workload, chip: Chip) -> list[str]:
    """The axes of a plan that it splits into other parts than equal ones for all members."""
    equal = spread_wider(plan, dict(workload.dims), chip)
    both = zip(walk(plan), walk(equal), strict=True)
    return [one.axis for (_, one), (_, other) in both if isinstance(one, Spatial) and one != other]


@pytest.mark.medium
def test_a_small_gemm_takes_less_energy_on_one_cluster() -> None:
    """32 x 32 x 32 fills the array of one cluster: more clusters only copy operands."""
    workload, chip = gemm(32, 32, 32), load_chip("edge")
    best = optimise(Problem(workload, chip, "energy", baselines=False)).best
    assert idle_axes(best.plan, workload, chip)
    everywhere = canonical(spread_wider(best.plan, dict(workload.dims), chip), workload.dims)
    assert best.certificate.value < 0.99 * float(evaluate(workload, chip, everywhere).energy)
    assert best.certificate.value <= 4.8406260e-07  # 4.897e-07 with a part for each cluster
    assert not legality.faults(best.plan, workload, chip)


@pytest.mark.medium
def test_a_gemm_of_128_is_faster_on_some_of_the_cores() -> None:
    """By the formulas and by the simulation: 17 % against equal parts of 11 x 15 for all 12 x 9 cores."""
    workload, chip = gemm(128, 128, 128), load_chip("a100")
    best = optimise(Problem(workload, chip, baselines=False)).best
    assert idle_axes(best.plan, workload, chip)
    assert best.certificate.gap == 0.0
    assert best.certificate.value <= 0.5891e-6  # 0.6614e-6 with a part for each core
    assert simulate(workload, chip, best.plan).time <= 0.6265e-6  # 0.7365e-6; 0.6264e-6 is the fastest of its ten neighbours


def test_the_space_and_what_it_leaves_out_are_stated() -> None:
    assert any(clause.what == "tile sizes of splits" and "idle" in clause.how for clause in SPACE)
    (clause,) = (clause for clause in LEFT_OUT if clause.what == "idle members")
    assert "several stages" in clause.how


@pytest.mark.parametrize("k", [4096, 3883])
def test_a_dot_product_is_mapped_to_a_chip_without_links(k: int) -> None:
    """Its only dim is summed, which members without links between them cannot split: one of them works."""
    best = optimise(Problem(gemm(1, 1, k), load_chip("tpu-v4i-like"), baselines=False)).best
    assert best.certificate.gap == 0
    assert not legality.faults(best.plan, gemm(1, 1, k), load_chip("tpu-v4i-like"))


def test_softmax_of_one_row_is_mapped_to_a_chip_without_links() -> None:
    """The columns are summed, and there is one row: one member has it, by itself and behind the GEMM."""
    found = optimise(Problem(gemm_softmax(1, 4096, 64), load_chip("tpu-v4i-like"), baselines=("unfused",)))
    (unfused,) = found.baselines
    assert len(unfused.groups) == 2
    assert unfused.certificate.gap == found.best.certificate.gap == 0
    assert found.best.certificate.value < unfused.certificate.value
