"""Among mappings of equal cost, aligned tile sizes: nothing else changes, and all sizes are declared ones."""

from __future__ import annotations

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
    """A fast mapping of all kernels as one group."""
    workload = CASES[name]
    groups = FusedGroups(Problem(workload, load_chip("edge"), gap=0.5), ("time",), ("time",), 0.5, SearchCounter())
    group = groups.of(workload, (1 << len(workload.kernels)) - 1)
    group.run(np.empty((0, 1)))
    return group.search, group.choices[0]


def open_sizes(choice: GroupMapping) -> list[Slot]:
    slots = (*choice.frame.shared, *(slot for skeleton in choice.skeletons for slot in skeleton.slots))
    return [slot for slot in slots if slot.dim != BUFFERS]


@pytest.mark.parametrize("name", CASES)
def test_aligned_sizes_cost_the_same_and_are_declared(name: str) -> None:
    search, before = searched(name)
    after = with_aligned_tiles(search.costs.workload, search.costs.chip, search.costs.around, before)
    assert cost(search, after) == pytest.approx(cost(search, before), rel=1e-12)
    for slot in open_sizes(after):
        size, extent = int(after.tiles[slot.name]), int(slot.limit(after.tiles))
        assert size in slot.sizes(extent)
        assert size == before.tiles[slot.name] or is_aligned(size, extent)
    assert with_aligned_tiles(search.costs.workload, search.costs.chip, search.costs.around, after) == after


def test_some_mappings_have_a_size_that_an_aligned_one_can_replace() -> None:
    """Which ones depends on the order of the search: it keeps the first of equal mappings."""
    found = map(searched, CASES)
    assert any(
        with_aligned_tiles(search.costs.workload, search.costs.chip, search.costs.around, own) != own for search, own in found
    )


@pytest.mark.parametrize("name", CASES)
def test_no_single_size_that_is_not_aligned_could_be(name: str) -> None:
    """One by one on plain numbers: every aligned size in place of one that is not costs more, does not fit, or leaves another
    size outside the declared ones."""
    search, before = searched(name)
    after = with_aligned_tiles(search.costs.workload, search.costs.chip, search.costs.around, before)
    *_, last = open_sizes(after)
    extent = int(last.limit(after.tiles))
    if is_aligned(int(after.tiles[last.name]), extent):
        return
    for size in last.sizes(extent):
        if is_aligned(size, extent):
            other = GroupMapping(after.frame, after.skeletons, {**after.tiles, last.name: size})
            assert cost(search, other) != pytest.approx(cost(search, after), rel=1e-12)


def test_the_certificate_of_an_aligned_plan() -> None:
    """The value is the plan's own, and the plan is one with aligned sizes: of 350 rows of the sum, 352 are held."""
    result = optimise(Problem(CASES["ragged gemm"], load_chip("edge"), baselines=False))
    certificate = result.best.certificate
    assert certificate.value == certificate.bound == float(result.best.estimate.time)
    tiles = [node.tile for _, node in walk(result.best.plan) if isinstance(node, Temporal) and node.dim == "k"]
    assert all(is_aligned(int(tile), 700) for tile in tiles)
