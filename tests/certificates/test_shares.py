"""What a search finds once for all shares of an axis: what lies around them, least times of shapes, stages of baselines."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress

import numpy as np
import pytest
from tests.certificates.exhaustive import draw_chip, draw_workload

from halley.cost.program import Indices
from halley.errors import Infeasible
from halley.io.load import load_chip
from halley.search import around, overlap, sharpen
from halley.search.around import Around
from halley.search.baselines import Shapes
from halley.search.frames import frames
from halley.search.optimise import optimise
from halley.search.overlap import Rounds, Vector
from halley.search.problem import Problem
from halley.search.sets import starts
from halley.search.solve import GroupSearch
from halley.search.space import Frame
from halley.search.template import template
from halley.workloads import attention

SEEDS = (100_003, 100_006, 100_010)


def solve_all() -> None:
    """Search drawn problems, as far as anything fits."""
    for draw in map(random.Random, SEEDS):
        with suppress(Infeasible):
            optimise(Problem(draw_workload(draw), draw_chip(draw), baselines=False, fixed_variant=True))


def test_what_lies_around_shares_is_the_same_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of equal cut and axis differ in how many members each child has, and in the shapes that are there for these."""
    known: dict[object, Around] = {}
    seen = 0

    def checked(search: GroupSearch, frame: Frame) -> Around:
        nonlocal seen
        found = around._found(search, frame)
        if frame.shares:
            before = known.setdefault((search.around, frame.cut, frame.shares.axis), found)
            assert found.busy.keys() == before.busy.keys()
            for name in ("entries", "ramps", "energy", "room", "counted"):
                np.testing.assert_array_equal(getattr(found, name), getattr(before, name))
            for resource, time in found.busy.items():
                np.testing.assert_array_equal(time, before.busy[resource])
            seen += before is not found
        return found

    monkeypatch.setattr(overlap, "around", checked)
    solve_all()
    assert seen > 10


def singles(part: Vector, start: dict[str, int]) -> dict[str, Indices]:
    """Every mapping below some nodes, a leaf of each dim."""
    leaves = [tree.singles(np.array([start[dim]]))[0] for dim, tree in part.trees.items()]
    grid = np.array(list(itertools.product(*leaves)), dtype=np.int64).reshape(-1, len(leaves))
    return {dim: np.ascontiguousarray(grid[:, at]) for at, dim in enumerate(part.trees)}


@pytest.mark.parametrize("patience", [0, sharpen.PATIENCE])
def test_least_times_are_those_of_all_mappings_that_fit(patience: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no patience they are no more."""
    seen, least_time = 0, Rounds._least_time

    def checked(self: Rounds, part: Vector, at: Indices) -> float:
        nonlocal seen
        found = least_time(self, part, at)
        start = {dim: int(own[at[0]]) for dim, own in starts(part.trees, self.frame.shared, self.rows).items()}
        nodes = singles(part, start)
        values = part.bounds(nodes, len(next(iter(nodes.values()))))
        room = np.maximum(values[2 + len(part.resources) :] - self.around.counted[:, at], 0.0)
        times = values[0, (room <= self.capacities[:, None]).all(axis=0)]
        expected = times.min(initial=np.inf)
        assert found == expected if patience else found <= expected
        seen += 1
        return found

    monkeypatch.setattr(sharpen, "PATIENCE", patience)
    monkeypatch.setattr(Rounds, "_least_time", checked)
    solve_all()
    assert seen > 10


def test_stages_in_common_stay_in_common_in_a_baseline() -> None:
    """And have the shapes that split no reduction, all of them."""
    work = attention(1, 1, 1, 4, 4, 4, variant="plain")
    every = frames(work, template(load_chip("cloud")), work.ops)
    local = Shapes.LOCAL.of(every)
    before = {frame.name: frame for frame in every}
    for frame in local:
        for stage, whole in zip(frame.stages, before[frame.name].stages, strict=True):
            assert stage.skeletons == tuple(s for s in whole.skeletons if not s.splits_reduction)
    wide = {id(stage) for frame in local for stage in before[frame.name].stages}
    assert len({id(stage) for frame in local for stage in frame.stages}) == len(wide)
