"""The search on chips of any hierarchy: equal to the exhaustive walk of its space, and right where a chip lacks something."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from tests.certificates.exhaustive import (
    draw_batched,
    draw_dma,
    draw_graph,
    draw_hierarchy,
    draw_lockstep,
    draw_small,
    draw_workload,
)
from tests.certificates.test_search import compare, compare_first, compared
from tests.reference.test_counts import SEEDS, check_searched, many

from halley import BadInput, Problem, load_chip, optimise
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Axis, Chip, Level, Link, Memory, Network, Topology
from halley.ir.mapping import Spatial, walk
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.mapping.declared_space import IN_LOCKSTEP
from halley.mapping.problem import Objective
from halley.workloads import attention, gemm, gemm_softmax

DRAWS = (draw_workload, draw_batched, draw_graph)


SINGLE = ((Objective.TIME,), (), (Objective.ENERGY,), ())
"""Objectives that are searched alone, by the number of the problem modulo four: the ends of every front are optima of both."""


@pytest.mark.parametrize("block", [*range(60), *(pytest.param(block, marks=pytest.mark.slow) for block in range(60, 660))])
def test_search_of_small_problems_equals_exhaustive_enumeration(block: int) -> None:
    """Five problems a block, on chips of two to five levels: the front, the least EDP, the size of the space, and of every second
    problem the least time or energy by a search of its own."""
    seed, found = 2_000_000 + 1000 * block, 0
    while found < 5:
        problem = draw_small(random.Random(seed))
        found += compared(*problem, 24, SINGLE[seed % len(SINGLE)], (Objective.EDP,)) != "large"
        seed += 1


@pytest.mark.parametrize(
    "block",
    [
        *range(3),
        *(pytest.param(block, marks=pytest.mark.medium) for block in range(3, 8)),
        *(pytest.param(block, marks=pytest.mark.slow) for block in range(8, 120)),
    ],
)
def test_search_equals_exhaustive_enumeration_on_any_hierarchy(block: int) -> None:
    """Each block draws problems until three small ones were compared; at most so many walks, each over all numbers of buffers."""
    outcomes: list[str] = []
    seed = 700_000 + 1000 * block
    while sum(outcome != "large" for outcome in outcomes) < 3:
        outcomes.append(compare(seed, 200, DRAWS[seed % len(DRAWS)], draw_hierarchy))
        seed += 1


def draw_gemm(draw: random.Random) -> Workload:
    return gemm(*(draw.randint(1, 4) for _ in range(3)))


@pytest.mark.parametrize("seed", [25, 34, 40, 46, 54, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(55, 155))])
def test_search_of_a_gemm_equals_exhaustive_walk_with_lockstep_memories(seed: int) -> None:
    """In the first ones, the mapping that is best without barriers is not the best one with them; 100 more are drawn, all small
    enough, which two in five are."""
    assert compare_first(seed, 600, draw_gemm, draw_lockstep) in ("equal", "infeasible")


@pytest.mark.parametrize("block", [*range(2), *(pytest.param(block, marks=pytest.mark.slow) for block in range(2, 60))])
def test_search_equals_exhaustive_walk_with_lockstep_memories(block: int) -> None:
    """The same where double buffers swap at barriers."""
    outcomes: list[str] = []
    seed = 900_000 + 1000 * block
    while sum(outcome != "large" for outcome in outcomes) < 3:
        outcomes.append(compare(seed, 200, DRAWS[seed % len(DRAWS)], draw_lockstep))
        seed += 1


@pytest.mark.parametrize("block", [*range(2), *(pytest.param(block, marks=pytest.mark.slow) for block in range(2, 60))])
def test_search_equals_exhaustive_walk_with_dma_engines(block: int) -> None:
    """The same where the transfers of a memory take turns."""
    outcomes: list[str] = []
    seed = 1_100_000 + 1000 * block
    while sum(outcome != "large" for outcome in outcomes) < 3:
        outcomes.append(compare(seed, 200, (draw_gemm, *DRAWS)[seed % (1 + len(DRAWS))], draw_dma))
        seed += 1


@pytest.mark.medium
@given(SEEDS)
@many(100)
def test_mappings_on_any_hierarchy_are_executed_as_costed(seed: int) -> None:
    """Random mappings of the space, not the best alone: legal, with the right results, and with the bytes of the formulas."""
    check_searched(seed, draw_hierarchy)


@pytest.mark.slow
@given(SEEDS)
@many(5000)
def test_many_mappings_on_any_hierarchy_are_executed_as_costed(seed: int) -> None:
    check_searched(seed, draw_hierarchy)


def memory(name: str, capacity: int, bandwidth: float) -> Memory:
    return Memory(name, capacity, bandwidth, bandwidth, 0.0, 1e-12, 1e-12)


def two_levels() -> Chip:
    """`edge` without its shared buffer."""
    chip = load_chip("edge")
    return replace(chip, levels=(chip.levels[0], chip.levels[2]))


def one_core() -> Chip:
    """`edge` with one cluster and no network."""
    chip = load_chip("edge")
    return replace(chip, levels=(*chip.levels[:2], replace(chip.levels[2], network=None)))


def four_levels() -> Chip:
    """`edge` with registers, from and to which the array sums, inside each cluster."""
    chip = load_chip("edge")
    assert chip.matrix is not None
    assert chip.vector is not None
    cluster = replace(chip.levels[2], memories=(memory("smem", 1 << 18, 128e9),))
    registers = Level("registers", (memory("reg", 1 << 16, 256e9),))
    matrix = replace(chip.matrix, reads={"input": ("smem",), "weight": ("smem",), "output": ("reg",)})
    return replace(
        chip, levels=(*chip.levels[:2], cluster, registers), matrix=matrix, vector=replace(chip.vector, reads=("reg",))
    )


def clusters_of_clusters() -> Chip:
    """Two tiles, each with a buffer and the clusters of `edge`."""
    chip = load_chip("edge")
    link = Link(64e9, 1e-9, 1e-12)
    tile = Level("tile", (memory("l1", 1 << 19, 128e9),), Network((Axis("t", 2, Topology.RING, link),), link))
    return replace(chip, levels=(*chip.levels[:2], tile, chip.levels[2]))


@pytest.mark.parametrize("chip", [two_levels, one_core, four_levels, clusters_of_clusters])
def test_a_gemm_keeps_the_array_busy_on_chips_of_other_shapes(chip: Callable[[], Chip]) -> None:
    """At least the time of the arrays at their peak, and of the outer memory's port; no more than half above that."""
    problem = Problem(gemm(64, 128, 64), chip(), baselines=False, gap=0.05)
    found = optimise(problem).best
    engine, members = problem.chip.matrix, math.prod(axis.size for _, axis in problem.chip.axes)
    assert engine is not None
    peak = 64 * 128 * 64 / (engine.rows * engine.cols * members * engine.clock)
    bytes_at_least = 2 * (2 * 64 * 128 + 64 * 64) / problem.chip.memories[0].read_bandwidth
    assert 1 - 1e-9 <= found.certificate.value / max(peak, bytes_at_least) <= 1.5


def test_softmax_and_attention_are_fused_without_a_shared_buffer() -> None:
    for workload in (gemm_softmax(64, 128, 64), attention(1, 1, 1, 64, 64, 32)):
        best = optimise(Problem(workload, two_levels(), baselines=False)).best
        assert len(best.groups) == 1
        assert best.certificate.gap == 0.0


def test_the_chip_of_the_reference_page_is_searched(tmp_path: Path) -> None:
    """Two levels, one buffer for all operands, a ring of four cores."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    (text,) = (block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "levels:" in block and "engines:" in block)
    (tmp_path / "chip.yaml").write_text(text, encoding="utf-8")
    best = optimise(Problem(gemm_softmax(64, 128, 64), load_chip(str(tmp_path / "chip.yaml")), baselines=False)).best
    assert best.certificate.gap == 0.0
    assert len(best.groups) == 1


@pytest.mark.parametrize(("place", "dims"), [(0, (256, 256, 256)), pytest.param(1, (64, 128, 64), marks=pytest.mark.medium)])
def test_the_chips_of_the_how_to_page_are_searched(place: int, dims: tuple[int, int, int], tmp_path: Path) -> None:
    """Two levels, and four: the page states the times, and the mapping of the second."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "describe-a-chip.md").read_text(encoding="utf-8")
    (tmp_path / "chip.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[place], encoding="utf-8")
    workload, chip = gemm(*dims), load_chip(str(tmp_path / "chip.yaml"))
    assert len(chip.levels) == (2, 4)[place]
    best = optimise(Problem(workload, chip, baselines=False)).best
    assert best.certificate.gap == 0.0
    assert f"The best mapping takes {(82.02, 1.02)[place]} us" in page
    assert best.certificate.value == pytest.approx((82.02e-6, 1.02e-6)[place], rel=1e-9)
    if place:
        tree = parse(re.findall(r"```text\n(.*?)```", page, re.DOTALL)[0])
        assert float(evaluate(workload, chip, tree).time) == pytest.approx(best.certificate.value, rel=1e-9)


@pytest.mark.medium
@pytest.mark.parametrize(("name", "dtype", "gap"), [("simba", "int8", 0.01), ("h100-clusters", "bf16", 0.0)])
def test_shipped_chips_with_clusters_of_clusters_are_searched(name: str, dtype: str, gap: float) -> None:
    """Members of both levels work, and the time is no less than the peak of them all allows. On simba the best mapping takes
    0.13 % longer than its DRAM traffic; the proof of that takes more than ten minutes."""
    chip, size = load_chip(name), 512
    best = optimise(Problem(gemm(size, size, size, dtype=dtype), chip, baselines=False, gap=gap)).best
    assert best.certificate.gap <= gap
    assert {node.level for _, node in walk(best.plan) if isinstance(node, Spatial)} == {level for level, _ in chip.axes}
    assert chip.matrix is not None
    members = math.prod(axis.size for _, axis in chip.axes)
    rate = members * chip.matrix.rows * chip.matrix.cols * chip.matrix.rate[dtype] * chip.matrix.clock
    assert best.certificate.value >= size**3 / rate


def test_what_is_left_out_in_lockstep_memories_is_stated() -> None:
    chip = two_levels()
    held = tuple(replace(memory, lockstep=True) for memory in chip.levels[1].memories)
    for own, stated in ((chip, False), (replace(chip, levels=(chip.levels[0], replace(chip.levels[1], memories=held))), True)):
        best = optimise(Problem(gemm(16, 16, 16), own, baselines=False)).best
        assert (IN_LOCKSTEP in best.certificate.left_out) is stated


def test_ops_without_an_engine_are_named() -> None:
    chip = replace(load_chip("edge"), vector=None)
    assert optimise(Problem(gemm(16, 16, 16), chip, baselines=False)).best.certificate.gap == 0.0
    with pytest.raises(BadInput, match="chip edge: expected a vector engine for max, exp, sum, divide; got none"):
        optimise(Problem(gemm_softmax(16, 16, 16), chip))
    with pytest.raises(BadInput, match="chip edge: expected a matrix engine for gemm; got none"):
        optimise(Problem(gemm(16, 16, 16), replace(load_chip("edge"), matrix=None)))


def test_chips_without_a_memory_to_work_in_are_refused() -> None:
    chip = load_chip("edge")
    with pytest.raises(BadInput, match="a memory inside the outermost level; got none"):
        optimise(Problem(gemm(16, 16, 16), replace(chip, levels=chip.levels[:1])))
    outer = replace(chip.levels[0], memories=(chip.levels[0].memories[0], memory("second", 1 << 30, 1e9)))
    with pytest.raises(BadInput, match="one memory at the outermost level; got 2 at level dram"):
        optimise(Problem(gemm(16, 16, 16), replace(chip, levels=(outer, *chip.levels[1:]))))
