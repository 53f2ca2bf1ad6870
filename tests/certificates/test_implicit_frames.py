"""Frames with stages on partitions of the clusters: those that may be the best are made, and all are counted."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import astuple, replace
from itertools import islice

import numpy as np
import pytest
from tests.certificates.exhaustive import draw_chip, draw_graph, draw_hierarchy, draw_workload

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Overlap, walk
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Workload
from halley.mapping.baselines import AdmittedShapes
from halley.mapping.bounds.incumbents import Frontier
from halley.mapping.bounds.progress import Interrupted, SearchCounter
from halley.mapping.bounds.shapes import Trees
from halley.mapping.groups import FusedGroups
from halley.mapping.problem import Problem
from halley.mapping.solve import group_search
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.solve.outside_stages import OutsideCost, outside_cost
from halley.mapping.solve.pipelines import Pipelines
from halley.mapping.solve.space_size import count_mappings
from halley.mapping.space.frame_sets import Frame, GroupSpace, ImplicitFrames
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.stages import GroupStage, Skeleton
from halley.workloads import attention, gated_mlp

OBJECTIVES = [("time",), ("energy",), ("time", "energy")]
COUNTS = [2, pytest.param(12, marks=pytest.mark.slow)]
"""Problems that are drawn."""


def drawn(seed: int) -> tuple[Workload, Chip]:
    draw = random.Random(seed)
    return draw_workload(draw), draw_chip(draw)


def whole_group(workload: Workload, chip: Chip, objectives: tuple[str, ...]) -> GroupSearch:
    """The search of all kernels of a workload together."""
    groups = FusedGroups(Problem(workload, chip, fixed_variant=True), objectives, objectives, 0.0, SearchCounter())
    return groups.of(workload, (1 << len(workload.kernels or workload.ops)) - 1).search


def shared_out(count: int) -> Iterator[tuple[Workload, Chip, GroupSpace]]:
    """Drawn problems of which the whole has stages on partitions of an axis."""
    seed = 100_000
    while count:
        workload, chip = drawn(seed)
        space = frames(workload, hierarchy(chip), workload.ops)
        if any(True for implicit_set in space.implicit_sets for _ in implicit_set):
            count -= 1
            yield workload, chip, space
        seed += 1


@pytest.mark.parametrize("shapes", [AdmittedShapes.EVERY, AdmittedShapes.LOCAL])
def test_the_count_of_implicit_frames_is_that_of_all_frames(shapes: AdmittedShapes) -> None:
    spaces = [space for _, _, space in shared_out(6)]
    spaces += [frames(work, hierarchy(load_chip("cloud")), work.ops) for work in (gated_mlp(8, 12, 6), plain_attention())]
    for space in map(shapes.of, spaces):
        every = list(space)
        assert len(every) > len(space.plain)
        trees = Trees()
        assert count_mappings(space, Trees()) == sum(count_mappings(GroupSpace((frame,)), trees) for frame in every)


def plain_attention() -> Workload:
    return attention(1, 1, 1, 4, 4, 4, variant="plain")


def optima(search: GroupSearch) -> Iterator[tuple[object, np.ndarray]]:
    """Every frame of a search's families, by its cut and shares, with the front of its mappings."""
    for implicit_set in search.space.implicit_sets:
        for frame in implicit_set:
            alone = search.narrowed(GroupSpace((frame,)), search.objectives)
            yield (frame.cut, frame.partition), alone.run(np.empty((0, len(search.objectives)))).points


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("objectives", OBJECTIVES)
def test_every_frame_better_than_the_incumbents_is_made(objectives: tuple[str, ...], count: int) -> None:
    """Against values around those of all frames, each searched by itself; and the bounds of a family hold for all of it."""
    made_any = left_out = 0
    for workload, chip, _ in shared_out(count):
        search = whole_group(workload, chip, objectives)
        fronts = [(key, points) for key, points in optima(search) if len(points)]
        if not fronts:
            continue
        values = np.vstack([points for _, points in fronts])
        for share, rank in ((0.3, 0.0), (0.6, 0.0), (1.0, 0.0), (1.0, 0.2), (1.0, 0.5), (1.0, 0.9)):
            search.group.found = Frontier(len(objectives))
            search.found.add(share * np.quantile(values, rank, axis=0), None)
            made, bounds = set(), np.empty((0, len(objectives)))
            for implicit_set in search.space.implicit_sets:
                pipelines = Pipelines(search.group, implicit_set)
                bounds = np.vstack([bounds, pipelines.bounds()])
                made |= {(frame.cut, frame.partition) for frame in pipelines.frames()}
            better = {key for key, points in fronts if not search.found.pruned(points).all()}
            assert better <= made
            for _, points in fronts:
                beats = points[~search.found.pruned(points)]
                assert all((bounds <= point * (1 + 1e-12)).all(axis=1).any() for point in beats)
            made_any, left_out = made_any + len(made), left_out + len(fronts) - len(made & {key for key, _ in fronts})
    assert made_any
    assert left_out


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("objectives", OBJECTIVES)
def test_small_batches_find_the_same_and_keep_no_frames(
    objectives: tuple[str, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for workload, chip, _ in shared_out(count):
        incumbents = np.empty((0, len(objectives)))
        expected = whole_group(workload, chip, objectives).run(incumbents).points
        monkeypatch.setattr(group_search, "FRAMES_PER_BATCH", 2)
        search = whole_group(workload, chip, objectives)
        np.testing.assert_allclose(search.run(incumbents).points, expected, rtol=1e-12)
        assert len(search.frames) == len(search.space.plain)
        monkeypatch.undo()


@pytest.mark.parametrize("objectives", OBJECTIVES)
def test_a_search_stopped_anywhere_leaves_bounds_that_hold(objectives: tuple[str, ...]) -> None:
    """Of the whole group, wherever it is: among the frames on all clusters, in the walk, or in a wave that it sends out."""
    stopped = 0
    for workload, chip, _ in shared_out(1):
        best = whole_group(workload, chip, objectives).run(np.empty((0, len(objectives)))).points
        for ticks in (20, 50, 100, 200, 400):
            search, left = whole_group(workload, chip, objectives), ticks

            def tick() -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Interrupted

            search.group.tally.tick = tick
            with suppress(Interrupted):
                search.run(np.empty((0, len(objectives))))
                continue
            stopped += 1
            if search.open_bounds:
                lower = np.vstack([*search.open_bounds, search.found.points])
                assert all((lower <= point * (1 + 1e-12)).all(axis=1).any() for point in best)
    assert stopped


def test_millions_of_frames_are_counted_without_making_one() -> None:
    """Stages that are one mapping each, wherever they are: as many mappings as there are cuts and shares. With a border or none
    behind each of 6 stages, and as many borders among 39 gaps of an axis, but for no border at all: C(45, 6) - 1."""
    shape = Skeleton(lambda: "the only one", (), lambda tiles: Steps(()), False)
    stages = tuple(GroupStage(f"stage {index}", (), (shape,)) for index in range(7))
    whole = Frame("whole", (), stages, lambda tiles, nodes, cut, shares: Steps(tuple(nodes)), False)
    implicit_set = ImplicitFrames("cluster", "x", 40, whole, lambda index, members: stages[index])
    assert count_mappings(GroupSpace((), (implicit_set,)), Trees()) == math.comb(45, 6) - 1
    assert len(list(replace(implicit_set, members=5))) == math.comb(10, 6) - 1


def test_overlap_in_a_single_round_is_no_better_than_a_sequence() -> None:
    """So that a search leaves them out: they take no less time and energy, and no smaller footprint in any memory."""
    draw, compared = random.Random(0), 0
    for seed in range(100_000, 100_008):
        workload, chip = drawn(seed)
        search = whole_group(workload, chip, ("time",))
        cut = [frame for frame in search.space.plain if frame.cut]
        for frame in draw.sample(cut, min(len(cut), 12)):
            skeletons = tuple(draw.choice(stage.skeletons) for stage in frame.stages)
            tiles: dict[str, int] = {slot.name: slot.sizes(int(slot.limit({})))[-1] for slot in frame.shared}
            for slot in (slot for skeleton in skeletons for slot in skeleton.slots):
                tiles[slot.name] = draw.choice(slot.sizes(int(slot.limit(tiles))))
            nodes = [skeleton.build(tiles) for skeleton in skeletons]
            tree = search.costs.enclose(frame.tree(tiles, nodes))
            at_once, in_turn = (
                evaluate(workload, chip, each) for each in (tree, search.costs.enclose(frame.sequential(tiles, nodes)))
            )
            if [at_once.nodes[path].entries for path, node in walk(tree) if isinstance(node, Overlap)] != [1]:
                continue
            compared += 1
            assert float(in_turn.time) <= float(at_once.time) * (1 + 1e-12)
            assert float(in_turn.energy) <= float(at_once.energy) * (1 + 1e-12)
            assert all(used <= at_once.footprint[memory] for memory, used in in_turn.footprint.items())
    assert compared > 10


def several_on_one_axis() -> Iterator[GroupSearch]:
    """Searches of drawn groups that have several sets of frames on parts of one axis: through other memories, or with another
    split around the stages."""
    for seed in range(739_000, 740_000):
        draw = random.Random(seed)
        workload = draw.choice([draw_graph, draw_workload])(draw)
        groups = FusedGroups(
            Problem(workload, draw_hierarchy(draw), fixed_variant=True), ("time",), ("time",), 0.0, SearchCounter()
        )
        for mask in (0b11, 0b111):
            search = groups.of(workload, mask).search if mask < 1 << len(workload.kernels or workload.ops) else None
            sets = search.space.implicit_sets if search else ()
            if search and len({(own.level, own.axis) for own in sets}) < len(sets):
                yield search


def test_costs_outside_the_stages_are_those_of_the_frame() -> None:
    """Whatever frames of other sets on the same axis were asked for before."""
    compared, known_elsewhere = 0, 0
    for search in islice(several_on_one_axis(), 8):
        known: dict[Hashable, OutsideCost] = {}
        seen: dict[Hashable, int] = {}
        for implicit_set in search.space.implicit_sets:
            for frame in islice(implicit_set, 40):
                compared += 1
                known_elsewhere += seen.setdefault((frame.cut, implicit_set.axis), id(implicit_set)) != id(implicit_set)
                of_its_own = astuple(outside_cost(search.costs, frame, {}))
                np.testing.assert_equal(astuple(outside_cost(search.costs, frame, known)), of_its_own)
    assert compared > 20
    assert known_elsewhere


def test_the_counterpart_of_a_frame_is_in_the_set_at_its_place() -> None:
    """Of each frame of a space in another one that is alike, as that of an equal group."""
    for search in islice(several_on_one_axis(), 8):
        work, chip = search.costs.workload, search.costs.chip
        alike = frames(work, hierarchy(chip), [work.op(op) for op in search.space.ops])
        pairs = zip(search.space, alike, strict=True)
        assert all(alike.counterpart(theirs, search.space).name == mine.name for theirs, mine in islice(pairs, 500))
