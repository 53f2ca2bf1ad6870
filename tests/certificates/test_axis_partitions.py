"""What is computed once for all partitions of an axis: costs outside the stages, least times of shapes, stages of baselines."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.certificates.test_implicit_frames import shared_out, whole_group

from halley.cost.programs.program import Indices
from halley.io.chips.load import load_chip
from halley.mapping.baselines import AdmittedShapes
from halley.mapping.bounds import tighten
from halley.mapping.bounds.chain_sets import starts
from halley.mapping.solve import outside_stages as around
from halley.mapping.solve.outside_stages import OutsideCost
from halley.mapping.solve.overlap import Vector
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.workloads import attention


def test_costs_outside_the_stages_are_equal_for_all_partitions() -> None:
    """Frames of equal cut and axis differ in how many members each child has, and in the shapes that are there for these."""
    seen = 0
    for workload, chip, _ in shared_out(12):
        search = whole_group(workload, chip, ("time",))
        known: dict[object, OutsideCost] = {}
        for frame in (frame for implicit_set in search.space.implicit_sets for frame in implicit_set):
            assert frame.partition
            found = around._found(search.costs, frame)
            before = known.setdefault((frame.cut, frame.partition.axis), found)
            assert found.busy.keys() == before.busy.keys()
            for name in ("entries", "ramps", "energy", "footprint", "counted"):
                np.testing.assert_array_equal(getattr(found, name), getattr(before, name))
            for resource, time in found.busy.items():
                np.testing.assert_array_equal(time, before.busy[resource])
            np.testing.assert_array_equal(found.entries, around.rounds(search.costs, frame))
            seen += before is not found
    assert seen > 10


def singles(part: Vector, start: dict[str, int]) -> dict[str, Indices]:
    """Every mapping below some nodes, a leaf of each dim."""
    leaves = [tree.singles(np.array([start[dim]]))[0] for dim, tree in part.trees.items()]
    grid = np.array(list(itertools.product(*leaves)), dtype=np.int64).reshape(-1, len(leaves))
    return {dim: np.ascontiguousarray(grid[:, at]) for at, dim in enumerate(part.trees)}


@pytest.mark.parametrize("limit", [0, tighten.SETS_LIMIT])
def test_least_times_are_those_of_all_mappings_that_fit(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no sets to bound, they are lower bounds."""
    monkeypatch.setattr(tighten, "SETS_LIMIT", limit)
    seen = 0
    for workload, chip, _ in shared_out(6):
        search = whole_group(workload, chip, ("time",))
        for frame in (number for number, frame in enumerate(search.frames) if frame.cut):
            rounds = search._overlapped(frame)
            assert rounds
            parts = itertools.chain(*rounds.parts) if len(rounds.left) else ()
            for part, at in itertools.product(parts, rounds.left[:1]):
                found, combination = rounds._least_time(part, np.array([at])), np.array([at])
                start = {dim: int(own[at]) for dim, own in starts(part.trees, rounds.frame.shared, rounds.rows).items()}
                nodes = singles(part, start)
                values = part.bounds(nodes, len(next(iter(nodes.values()))))
                room = np.maximum(values[2 + len(part.resources) :] - rounds.outside.counted[:, combination], 0.0)
                times = values[0, (room <= rounds.capacities[:, None]).all(axis=0)]
                expected = times.min(initial=np.inf)
                assert found == expected if limit else found <= expected
                seen += 1
    assert seen > 10


def test_a_baseline_shares_stages_as_the_search_does() -> None:
    """And have the shapes that split no reduction, all of them."""
    work = attention(1, 1, 1, 4, 4, 4, variant="plain")
    every = frames(work, hierarchy(load_chip("cloud")), work.ops)
    local = AdmittedShapes.LOCAL.of(every)
    before = {frame.name: frame for frame in every}
    for frame in local:
        for stage, whole in zip(frame.stages, before[frame.name].stages, strict=True):
            assert stage.skeletons == tuple(s for s in whole.skeletons if not s.splits_reduction)
    wide = {id(stage) for frame in local for stage in before[frame.name].stages}
    assert len({id(stage) for frame in local for stage in frame.stages}) == len(wide)
