"""The untiled relaxation of a stage bounds its cost for all tile sizes; the coarsest cuts bound the footprint of all cuts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tests.certificates.exhaustive import draw_batched, draw_chip, draw_divisible, draw_graph, draw_workload
from tests.certificates.test_compulsory_bounds import attentions, drawn, sequences, sums
from tests.certificates.test_implicit_frames import shared_out, whole_group

from halley import load_chip
from halley.cost.estimate import Estimate
from halley.formulas.timing import total
from halley.ir.hardware import Chip
from halley.ir.mapping import Sequence as Steps
from halley.ir.workload import Workload
from halley.mapping.bounds.incumbents import Values
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.groups import FusedGroups
from halley.mapping.problem import Problem
from halley.mapping.solve import axis_partitions as shares
from halley.mapping.solve import outside_stages as around
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.partitions import every_partition, group_ops
from halley.mapping.space.stages import BUFFERS, Skeleton

SLACK = 1 + 1e-12
FRAMES, MAPPINGS = 6, 3
OBJECTIVES = [("time", "energy"), ("energy",)]


def some_group(workload: Workload, chip: Chip, objectives: tuple[str, ...], draw: random.Random) -> GroupSearch:
    """The search of one group, drawn from those that have frames."""
    tried = list(every_partition(workload)[0].groups)
    draw.shuffle(tried)
    kernels = next(group for group in tried if frames(workload, hierarchy(chip), group_ops(workload, group)))
    return (
        FusedGroups(Problem(workload, chip, fixed_variant=True), objectives, objectives, 0.0, SearchCounter())
        .of(workload, kernels)
        .search
    )


def some_frames(search: GroupSearch, draw: random.Random) -> list[Frame]:
    """Frames on all clusters, and stages of others alone on some."""
    found = draw.sample(search.space.plain, min(FRAMES, len(search.space.plain)))
    for implicit_set in search.space.implicit_sets:
        stage, members = draw.randrange(len(implicit_set.sequential.stages)), draw.randrange(1, implicit_set.members)
        if implicit_set.stage(stage, members).skeletons:
            found.append(implicit_set.alone(stage, members))
    return found


def row(search: GroupSearch, frame: Frame, tiles: Mapping[str, int]) -> int:
    """The combination of the shared sizes."""
    sizes = around.shared_sizes(search.costs, frame)
    here = np.full(search.costs.combinations(frame), True)
    for slot in frame.shared:
        here &= np.asarray(sizes[slot.name] == tiles[slot.name])
    (found,) = np.flatnonzero(here)
    return int(found)


def compare(search: GroupSearch, frame: Frame, index: int, skeleton: Skeleton, tiles: Mapping[str, int]) -> None:
    """One stage on drawn tiles against the same with its own tiles whole, and against the bounds of all of its tiles. Times only
    against these: on whole tiles they are found for open numbers of buffers."""
    costs = search.costs
    tree, node = costs.alone_on(frame, index, skeleton, tiles)
    whole, body = costs.untiled(frame, index, skeleton, tiles)
    single = len(frame.stages) == 1
    found = costs.share(tree, tree if single else node, Steps(()))
    least = costs.share(whole, whole if single else body, Steps(()), ramps=False)
    name = f"{frame.name}: {skeleton.name}, {tiles}"
    assert dynamic(least) <= dynamic(found) * SLACK, name
    for resource, busy in least.busy.items():
        assert float(busy) <= float(found.busy.get(resource, 0)) * SLACK, (name, resource)
    at = row(search, frame, tiles)
    if frame.partition is None:
        bounds, reached = costs.bounds(frame, index, skeleton)[at], [getattr(found, name) for name in search.objectives]
    else:
        bounds = shares._alone(search.group, frame, index, skeleton)[at]
        energy = dynamic(found)
        reached = [
            found.time,
            energy,
            *(found.busy.get(resource, 0) for resource in shares.common_resources(search.group, frame)),
        ]
    assert (bounds <= np.array(reached, dtype=np.float64) * SLACK).all(), name
    if not frame.cut and not around.holds_fit(search.costs, frame)[at]:
        used = costs.estimate(frame, index, skeleton, tiles).footprint
        assert any(amount > search.costs.chip.memory(memory).capacity for memory, amount in used.items()), name


def dynamic(estimate: Estimate) -> float:
    """Energy [J] without the static energy, which is that of the time."""
    return float(total(part for name, part in estimate.energy_by.items() if name != "static"))


def lean(search: GroupSearch, frame: Frame, skeleton: Skeleton, tiles: Mapping[str, int]) -> dict[str, int]:
    """Tiles with one buffer for each Hold, where a second one makes no difference."""
    ones = {slot.name for slot in (*frame.shared, *skeleton.slots) if slot.dim == BUFFERS} if search.costs.lean else set()
    return {name: min(size, 1) if name in ones else size for name, size in tiles.items()}


DRAWN = [draw_workload, draw_batched, draw_graph, draw_divisible, sequences, attentions, sums]
CHIPS: list[Callable[[random.Random], Chip]] = [draw_chip, lambda draw: load_chip("edge"), lambda draw: load_chip("cloud")]


@pytest.mark.parametrize("seed", [1, 4])
def test_rows_on_successive_rounds_cost_no_less_than_the_untiled_stage(seed: int) -> None:
    """Every shape whose operations and collectives work on successive tiles of rows: small tiles have more rounds, which overlap,
    while the untiled stage has one."""
    draw = random.Random(seed)
    search = some_group(attentions(draw), load_chip("edge"), ("time",), draw)
    shapes = [
        (frame, index, skeleton)
        for frame in some_frames(search, draw)
        for index, stage in enumerate(frame.stages)
        if not frame.partition or index in frame.cut[0]
        for skeleton in stage.skeletons
        if "whole rows, overlapped" in skeleton.name
    ]
    assert shapes
    for frame, index, skeleton in shapes:
        for _ in range(MAPPINGS):
            compare(search, frame, index, skeleton, lean(search, frame, skeleton, drawn(frame, (skeleton,), draw)))


@pytest.mark.parametrize(
    ("drawn_from", "seed"),
    # the last has Holds that always have one buffer, around others that have two
    [*itertools.product(DRAWN, range(4)), (sequences, 396)],
)
def test_no_tile_sizes_cost_less_than_the_untiled_stage(drawn_from: Callable[[random.Random], Workload], seed: int) -> None:
    draw = random.Random(seed)
    workload, chip = drawn_from(draw), CHIPS[seed % 3](draw)
    search = some_group(workload, chip, OBJECTIVES[seed % 2], draw)
    for frame in some_frames(search, draw):
        for _ in range(MAPPINGS):
            stages = [at for at, stage in enumerate(frame.stages) if not frame.partition or at in frame.cut[0]]
            index = draw.choice(stages)
            skeleton = draw.choice(frame.stages[index].skeletons)
            compare(search, frame, index, skeleton, lean(search, frame, skeleton, drawn(frame, (skeleton,), draw)))


def test_a_finer_cut_has_no_smaller_footprint() -> None:
    """So that what fits in none of the coarsest cuts of an implicit set fits in no other."""
    less = 0
    for workload, chip, _ in shared_out(10):
        search = whole_group(workload, chip, ("time",))
        for implicit_set in search.space.implicit_sets:
            room = {frame.cut: room_of(search, frame) for frame in implicit_set.coarsest()}
            for frame in implicit_set:
                starts = {child[0] for child in frame.cut}
                coarser = [found for cut, found in room.items() if {child[0] for child in cut} <= starts]
                assert coarser
                for found in coarser:
                    assert (found <= room_of(search, frame)).all()
                    less += bool((found < room_of(search, frame)).any())
    assert less


def room_of(search: GroupSearch, frame: Frame) -> Values:
    return around._footprint(search.costs, frame, frame.tree(around.shared_sizes(search.costs, frame), frame.users()))
