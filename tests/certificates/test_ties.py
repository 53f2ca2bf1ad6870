"""Among mappings of equal energy the faster one is returned: against every mapping of the frame, one by one."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.certificates.composing import buffered, in_turn
from tests.certificates.exhaustive import draw_chip, draw_workload, fitting, group_search
from tests.certificates.test_buffers import put

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.mapping.bounds.progress import Interrupted
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.solve.more_buffers import add_buffers
from halley.mapping.solve.ties import fastest
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import GroupSpace
from halley.workloads import attention_einsum

WALKS = 300
"""Trees of a frame that are costed one by one."""

GAINING = (5, 7, 26, 35, 54)
"""Draws in which a faster mapping differs from the first by more than its numbers of buffers."""


def least_energy(seed: int) -> tuple[GroupSearch, GroupMapping] | None:
    """The first mapping of least energy that a search of one frame finds; None where none fits."""
    draw = random.Random(seed)
    workload, chip = draw_workload(draw), replace(draw_chip(draw), static_power=0.0)
    space = in_turn(workload, chip, workload.ops)
    if not space:
        return None

    def around(node: Node) -> Node:
        return put(workload, node)

    search = group_search(workload, chip, GroupSpace((draw.choice(space),)), around, ("energy",))
    search.run(np.empty((0, 1)))
    return (search, search.found.payloads[0]) if search.found.payloads else None


def cost(search: GroupSearch, choice: GroupMapping) -> tuple[float, float]:
    """Time and energy."""
    estimate = evaluate(search.costs.workload, search.costs.chip, search.costs.enclose(choice.tree()))
    return float(estimate.time), float(estimate.energy)


@pytest.mark.parametrize("seed", [*range(4), *GAINING])
def test_no_mapping_of_the_frame_is_faster_at_this_energy(seed: int) -> None:
    found = least_energy(seed)
    if found is None:
        return
    search, first = found
    faster = fastest(search, first, lambda: None)
    time_, energy = cost(search, faster)
    before = cost(search, add_buffers(search.costs, first))
    assert energy == pytest.approx(before[1], rel=1e-12)
    assert time_ <= before[0] * (1 + 1e-12)
    if seed in GAINING:
        assert time_ < before[0] * (1 - 1e-9)
    best = by_hand(search.costs.workload, search.costs.chip, first, energy)
    if best is not None and not faster.frame.cut:
        assert time_ == pytest.approx(best, rel=1e-12)


def by_hand(workload: Workload, chip: Chip, choice: GroupMapping, energy: float) -> float | None:
    """Least time of the mappings with sequential stages that take no more energy; None where they are too many to walk."""
    frame, times = replace(choice.frame, cut=(), partition=None), []
    if frame.kept or len(frame.stages) > 3:
        return None
    for count, (tree, several) in enumerate(buffered(frame, frame.stages)):
        if count == WALKS:
            return None
        times += [t for t, e in fitting(workload, chip, put(workload, tree), several) if e <= energy * (1 + 1e-12)]
    return min(times)


def stop() -> None:
    raise Interrupted("now")


@pytest.mark.parametrize("seed", GAINING[:2])
def test_a_search_that_is_stopped_gives_what_it_had(seed: int) -> None:
    found = least_energy(seed)
    assert found is not None
    search, first = found
    assert cost(search, fastest(search, first, stop)) == cost(search, add_buffers(search.costs, first))
    assert cost(search, fastest(search, first, lambda: None, effort=0))[0] <= cost(search, add_buffers(search.costs, first))[0]


def test_single_elementwise_kernels_take_large_tiles() -> None:
    """The energy of a kernel that reads and writes each value once is the same whatever its tiles are; one value at a time took
    thirty times as long as the bus needs."""
    chip = load_chip("tpu-v4i-like")
    result = optimise(Problem(attention_einsum(8, 512, 512, 128), chip, Objective.ENERGY, baselines=("unfused",)))
    (unfused,) = result.baselines
    scores = 8 * 512 * 512
    bus = 4 * scores / chip.memory("dram").read_bandwidth
    assert float(unfused.estimate.time) < 2 * bus
