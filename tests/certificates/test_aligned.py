"""Among mappings of equal cost, aligned tile sizes: nothing else changes, and all sizes are declared ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.certificates.test_ties import cost

from halley.io.chips.load import load_chip
from halley.ir.mapping import Temporal, walk
from halley.ir.workload import Workload
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.groups import FusedGroups
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.mapping.solve.aligned_tiles import is_aligned, with_aligned_tiles
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.stages import BUFFERS, Slot
from halley.workloads import attention, gemm, gemm_softmax

CASES: dict[str, Workload] = {
    "gemm": gemm(96, 200, 500),
    "ragged gemm": gemm(300, 500, 700),
    "fused": gemm_softmax(100, 300, 70, variant="plain"),
    "masked": attention(1, 1, 1, 72, 72, 40, causal=True, variant="online"),
}


@cache
def searched(name: str) -> tuple[GroupSearch, GroupMapping]:
    """A fast mapping of all kernels as one group: the best of a GEMM, and one that is good enough of others."""
    workload, gap = CASES[name], 0.0 if "gemm" in name else 0.5
    groups = FusedGroups(Problem(workload, load_chip("edge"), gap=gap), ("time",), ("time",), gap, SearchCounter())
    group = groups.of(workload, (1 << len(workload.kernels)) - 1)
    group.run(np.empty((0, 1)))
    return group.search, group.choices[0]


def open_sizes(choice: GroupMapping) -> list[Slot]:
    slots = (*choice.frame.shared, *(slot for skeleton in choice.skeletons for slot in skeleton.slots))
    return [slot for slot in slots if slot.dim != BUFFERS]


@pytest.mark.parametrize("name", CASES)
def test_aligned_sizes_cost_the_same_and_are_declared(name: str) -> None:
    search, before = searched(name)
    after = with_aligned_tiles(search.costs.workload, search.costs.chip, search.costs.enclose, before)
    assert cost(search, after) == pytest.approx(cost(search, before), rel=1e-12)
    for slot in open_sizes(after):
        size, extent = int(after.tiles[slot.name]), int(slot.limit(after.tiles))
        assert size in slot.sizes(extent)
        assert size == before.tiles[slot.name] or is_aligned(size, extent)
    assert with_aligned_tiles(search.costs.workload, search.costs.chip, search.costs.enclose, after) == after


def test_sizes_that_are_not_aligned_are_replaced() -> None:
    """Each mapping of equal cost that differs in one size that is not aligned gets an aligned one there."""
    replaced = 0
    for name in CASES:
        search, before = searched(name)
        aligned = with_aligned_tiles(search.costs.workload, search.costs.chip, search.costs.enclose, before)
        slots = open_sizes(aligned)
        for slot in slots:
            extent = int(slot.limit(aligned.tiles))
            for size in slot.sizes(extent):
                other = replace(aligned, tiles={**aligned.tiles, slot.name: size})
                declared = all(other.tiles[own.name] in own.sizes(int(own.limit(other.tiles))) for own in slots)
                if not declared or is_aligned(size, extent) or not is_aligned(int(aligned.tiles[slot.name]), extent):
                    continue
                if cost(search, other) == pytest.approx(cost(search, aligned), rel=1e-13):
                    found = with_aligned_tiles(search.costs.workload, search.costs.chip, search.costs.enclose, other)
                    assert is_aligned(int(found.tiles[slot.name]), int(slot.limit(found.tiles)))
                    replaced += 1
    assert replaced


def test_the_certificate_of_an_aligned_plan() -> None:
    """The value is the plan's own, and the plan is one with aligned sizes: of 700 rows of the sum, 64 and 32 are held."""
    result = optimise(Problem(gemm(600, 500, 700), load_chip("edge"), baselines=False))
    certificate = result.best.certificate
    assert certificate.value == certificate.bound == float(result.best.estimate.time)
    tiles = [node.tile for _, node in walk(result.best.plan) if isinstance(node, Temporal) and node.dim == "k"]
    assert all(is_aligned(int(tile), 700) for tile in tiles)
