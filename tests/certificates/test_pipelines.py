"""Stages on partitions of the clusters in the search: every partition is there; winners run, count and cost as they should."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from tests.certificates.composing import mappings, narrower
from tests.certificates.exhaustive import draw_chip, draw_workload
from tests.certificates.test_search import compare
from tests.reference.test_counts import Checker

from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip, Topology
from halley.ir.mapping import Node, Parallel, walk
from halley.ir.workload import Workload
from halley.mapping.bounds.incumbents import Values
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.solve import axis_partitions as shares
from halley.mapping.solve.group import GroupState
from halley.mapping.space.compose import compositions
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.stages import Skeleton
from halley.simulate.simulation import simulate
from halley.workloads import attention, gemm_softmax

SEEDS = (100_015, 100_093, 100_167)
"""Drawn problems in which a pipeline takes least energy: fewer members of the axis keep copies of what they share."""


def drawn(seed: int) -> tuple[Workload, Chip]:
    draw = random.Random(seed)
    return draw_workload(draw), draw_chip(draw)


def pipelines(tree: Node) -> list[Parallel]:
    return [node for _, node in walk(tree) if isinstance(node, Parallel)]


@pytest.mark.parametrize("members", range(1, 6))
@pytest.mark.parametrize("parts", range(1, 5))
def test_compositions_are_all_rows_of_positive_numbers_with_that_sum(members: int, parts: int) -> None:
    every = itertools.product(range(1, members + 1), repeat=parts)
    assert sorted(compositions(members, parts)) == sorted(row for row in every if sum(row) == members)


@pytest.mark.parametrize("seed", SEEDS[1:])
def test_search_equals_exhaustive_enumeration_where_pipelines_win(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With stages looked at on all of their shares at once, as on chips of many clusters."""
    monkeypatch.setattr(shares, "MEMBER_COUNTS_FOR_JOINT_BOUND", 1)
    assert compare(seed, 3000) == "equal"


@pytest.mark.parametrize("seed", SEEDS)
def test_winning_pipelines_run_and_count_and_the_queues_agree(seed: int) -> None:
    workload, chip = drawn(seed)
    best = optimise(Problem(workload, chip, Objective.ENERGY, baselines=False, fixed_variant=True)).best
    assert pipelines(best.plan)
    assert Checker(workload, chip, seed)(best.plan)
    deviation = float(best.estimate.time) / simulate(workload, chip, best.plan).time - 1
    assert -0.5 <= deviation <= 0.35  # as demanded of all plans (docs/simulation.md)


def test_every_partition_and_every_cut_is_in_the_space() -> None:
    """On 4 x 4 alike: of four stages, each cut into runs, and each way to give all four columns to these."""
    work = attention(1, 1, 1, 4, 4, 4, variant="plain")
    found = [frame for frame in frames(work, hierarchy(load_chip("cloud")), work.ops) if frame.partition]
    stages = len(found[0].stages)
    shares = {(frame.cut, frame.partition.counts) for frame in found if frame.partition}
    expected = {2: 3, 3: 3, 4: 1}  # parts -> compositions of four columns
    assert all(sum(counts) == 4 and len(cut) == len(counts) for cut, counts in shares)
    assert len(shares) == len(found)
    assert len(found) == sum(expected[len(cut)] for cut in {frame.cut for frame in found})
    assert len({frame.cut for frame in found}) == 2 ** (stages - 1) - 1


def test_part_of_a_ring_is_a_line() -> None:
    chips = (chip for _, chip in map(drawn, range(100)))
    chip = next(chip for chip in chips if chip.axes[0][1].topology is Topology.RING and chip.axes[0][1].size > 1)
    axis = chip.axes[0][1]
    assert hierarchy(chip).narrowed(chip.axes[0][0], axis.name, 1).axes == hierarchy(narrower(chip, axis.name, 1)).axes
    assert hierarchy(chip).narrowed(chip.axes[0][0], axis.name, axis.size) == hierarchy(chip)
    assert hierarchy(chip).narrowed(chip.axes[0][0], axis.name, 1).axes[0].axis.topology is Topology.LINE


def test_clusters_of_their_own_share_only_what_lies_further_out() -> None:
    """None of the walk's pipelines has a Hold of the clusters around its children: they could not reach each other's."""
    workload, chip = gemm_softmax(2, 2, 1, variant="plain"), drawn(SEEDS[0])[1]
    inner = {memory.name for memory in chip.levels[2].memories}
    seen = 0
    for tree, _ in mappings(workload, chip, workload.ops):
        for path, node in walk(tree):
            if isinstance(node, Parallel):
                seen += 1
                around = [other for where, other in walk(tree) if where == path[: len(where)] and where != path]
                assert not inner & {getattr(other, "memory", "") for other in around}
    assert seen


@pytest.mark.parametrize("objective", [Objective.TIME, Objective.ENERGY])
def test_bounds_of_all_numbers_of_members_hold_for_each(objective: Objective, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 12 x 9 clusters, where a stage is looked at on all of its shares at once: of none more than by itself, and of energies
    no less. Of times it can be less, as these are bounded for open numbers of buffers."""
    seen, found_alone = 0, shares._found_alone

    class Enough(Exception):
        """No need to search on."""

    def checked(search: GroupState, frame: Frame, index: int, skeleton: Skeleton) -> Values:
        nonlocal seen
        found = found_alone(search, frame, index, skeleton)
        if shares._open_members(search, frame, skeleton) is not None:
            expected = shares._bounds(search, frame, index, skeleton, ())
            assert (found <= expected * (1 + 1e-12)).all()
            if objective is Objective.ENERGY:
                np.testing.assert_allclose(found, expected, rtol=1e-12)
            seen += 1
            if seen == 100:
                raise Enough
        return found

    monkeypatch.setattr(shares, "_found_alone", checked)
    workload, chip = gemm_softmax(24, 30, 16, variant="plain"), load_chip("a100")
    with pytest.raises(Enough):
        optimise(Problem(workload, chip, objective, baselines=False, fixed_variant=True))
