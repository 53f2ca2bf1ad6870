"""Groups with a loop over a further dim inside their rows: the optimum is that of exhaustive enumeration, no drawn mapping of
larger blocks is better, the best mappings execute and count as costed, and sums stay in the shared buffer between tiles."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.certificates.exhaustive import draw_chip, draw_hidden, fitting
from tests.certificates.test_search import compare
from tests.reference.test_counts import Checker

from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Temporal, walk
from halley.ir.workload import Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Solution
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.rewrite.canonical import canonical
from halley.rewrite.legality import faults
from halley.workloads import gated_mlp, gemm_gelu_gemm, gemm_softmax, graph


def draw_far(draw: random.Random) -> Chip:
    """A chip with a small shared buffer, far from the outer memory: it pays to keep there what comes again."""
    chip = draw_chip(draw)
    outer, shared, clusters = chip.levels
    (memory,), (buffer,) = outer.memories, shared.memories
    far = replace(memory, read_energy=1e-10, write_energy=1e-10, read_bandwidth=1e8, write_bandwidth=1e8)
    local = tuple(replace(own, capacity=200.0) for own in clusters.memories)
    near = replace(shared, memories=(replace(buffer, capacity=draw.choice([24.0, 32.0, 48.0])),))
    return replace(chip, levels=(replace(outer, memories=(far,)), near, replace(clusters, memories=local)))


def draw_block(draw: random.Random) -> Workload:
    m, k, f = draw.randint(2, 4), draw.randint(1, 3), draw.randint(3, 8)
    return gated_mlp(m, k, f) if draw.random() < 0.4 else gemm_gelu_gemm(m, k, f)


def walks(workload: Workload, chip: Chip) -> list[Frame]:
    """The frames of all ops together that walk a further dim."""
    return [frame for frame in frames(workload, hierarchy(chip), workload.ops).plain if "walked" in frame.name]


def solved(seed: int, objective: Objective) -> tuple[Workload, Chip, Solution]:
    draw = random.Random(seed)
    workload, chip = draw_block(draw), draw_far(draw)
    return workload, chip, optimise(Problem(workload, chip, objective, baselines=False)).best


@pytest.mark.parametrize(
    "seed",
    [
        15,
        pytest.param(46, marks=pytest.mark.medium),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 19, 22, 57, 62, 91, 104)),
    ],
)
def test_search_equals_exhaustive_enumeration(seed: int) -> None:
    assert compare(seed, 8000, draw_hidden) in ("equal", "infeasible")


@pytest.mark.medium
def test_stages_on_parts_of_an_axis_far_from_memory() -> None:
    """The traffic of the whole group bounded each stage on a part of an axis, and the fill of the pipeline adds stages up: this
    search pruned the best mapping (184 ns), and proved 198 ns."""
    assert compare(1030, 3000, draw_hidden, draw_far) == "equal"


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_search_equals_exhaustive_enumeration_on_many(block: int) -> None:
    for seed in range(1000 + 10 * block, 1000 + 10 * block + 10):
        compare(seed, 3000, draw_hidden)
        compare(seed, 3000, draw_hidden, draw_far)


@pytest.mark.parametrize(
    ("seed", "objective"),
    [(0, Objective.ENERGY), (1, Objective.ENERGY), (2, Objective.TIME), (2, Objective.EDP)],
)
def test_best_mappings_execute_and_count_as_costed(seed: int, objective: Objective) -> None:
    workload, chip, best = solved(seed, objective)
    assert "walked" in best.shape[0]
    assert best.certificate.gap == 0.0
    assert not faults(best.plan, workload, chip)
    assert Checker(workload, chip, seed)(best.plan)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))])
def test_no_drawn_mapping_beats_the_best(seed: int) -> None:
    """Blocks of three and four kernels have too many mappings to walk through: some are drawn."""
    workload, chip, by_time = solved(seed, Objective.TIME)
    least = float(by_time.estimate.time), float(solved(seed, Objective.ENERGY)[2].estimate.energy)
    draw, outer = random.Random(seed), hierarchy(chip).outer
    kept = (*workload.inputs, *workload.outputs)
    found = 0
    for frame in draw.choices(walks(workload, chip), k=150):
        skeletons = [draw.choice(stage.skeletons) for stage in frame.stages]
        tiles: dict[str, int] = {}
        for slot in (*frame.shared, *(slot for skeleton in skeletons for slot in skeleton.slots)):
            tiles[slot.name] = draw.choice(slot.sizes(int(slot.limit(tiles))))
        tree = frame.tree(tiles, [skeleton.build(tiles) for skeleton in skeletons])
        whole = canonical(Hold(outer, tuple((name,) for name in kept), tree, 1), workload.dims)
        assert not faults(whole, workload, chip)
        for time, energy in fitting(workload, chip, whole, 1):
            found += 1
            assert time >= least[0] * (1 - 1e-9)
            assert energy >= least[1] * (1 - 1e-9)
    assert found


@pytest.mark.parametrize("work", [gemm_gelu_gemm(4, 4, 8), gated_mlp(4, 4, 8)])
def test_tensors_without_the_dim_are_held_outside_its_tiles(work: Workload) -> None:
    """The sums always, inputs or not; where stages overlap all of it, each part of it used by one child."""
    made = walks(work, load_chip("edge"))
    assert {tuple(name for name, _ in frame.kept) for frame in made} == {("Y",), ("X", "Y")}
    assert any(frame.cut for frame in made)
    for frame in made:
        assert not frame.cut or len(frame.kept) == 2
        assert all(sum(bool(users & {*child}) for child in frame.children) == 1 for _, users in frame.kept)
        sizes = {slot.name: 1 for stage in frame.stages for slot in stage.skeletons[0].slots}
        sizes |= {slot.name: 2 for slot in frame.shared}
        tree = frame.tree(sizes, [stage.skeletons[0].build(sizes) for stage in frame.stages])
        nodes = dict(walk(tree))
        around = next(path for path, node in nodes.items() if isinstance(node, Hold) and "Y" in node.names)
        loop = next(path for path, node in nodes.items() if isinstance(node, Temporal) and node.dim == "f")
        assert loop[: len(around)] == around


def test_no_loop_over_a_dim_that_a_softmax_sums_over() -> None:
    work = gemm_softmax(4, 4, 4, variant="plain")
    assert not walks(work, load_chip("edge"))


def test_a_block_whose_hidden_rows_do_not_fit_is_fused_through_its_hidden_dim() -> None:
    """The feed-forward block of BERT-base on edge: 4 MiB hold a sixth of the hidden tensor and its weights."""
    best = optimise(Problem(gemm_gelu_gemm(512, 768, 3072), load_chip("edge"), Objective.ENERGY, baselines=("unfused",))).best
    assert best.groups == (("expand", "activate", "contract"),)
    assert "f walked" in best.shape[0]


def test_no_further_loop_in_a_group_whose_intermediate_leaves() -> None:
    """It would go out from its one buffer between the tiles."""
    work = graph(["T[m,f] = X[m,k] * V[k,f]", "Y[m,n] = T[m,f] * W[f,n]", "R[m,f] = relu(T[m,f])"], dict.fromkeys("mknf", 4))
    machine = hierarchy(load_chip("edge"))
    assert any("walked" in frame.name for frame in frames(work, machine, work.ops).plain)
    assert not any("walked" in frame.name for frame in frames(work, machine, work.ops[:2]).plain)
