"""Two orders of the loops outside a fused contraction: columns inside, or the sum inside."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from tests.certificates.exhaustive import draw_chip
from tests.certificates.test_compulsory_bounds import drawn

from halley import load_chip
from halley.cost.estimate import Estimate
from halley.ir.workload import Workload, roles
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.groups import FusedGroups
from halley.mapping.problem import Problem
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.space.frame_sets import Frame
from halley.mapping.space.stages import Skeleton, outer_orders
from halley.workloads import attention, graph


def blocks(draw: random.Random) -> Workload:
    """Contractions that follow each other, with a function between; or attention."""
    sizes = {dim: draw.choice([1, 3, 8, 40]) for dim in "mkfn"}
    lines = ["S[m,f] = X[m,k] * V[k,f]", "T[m,f] = relu(S[m,f])", "Y[m,n] = T[m,f] * W[f,n]"]
    return draw.choice([graph(lines, sizes), attention(1, 2, 1, sizes["m"], sizes["f"], sizes["k"], variant="plain")])


def whole(workload: Workload, draw: random.Random) -> GroupSearch:
    chip = draw.choice([draw_chip(draw), load_chip("edge"), load_chip("cloud")])
    groups = FusedGroups(Problem(workload, chip, fixed_variant=True), ("time", "energy"), ("energy",), 0.0, SearchCounter())
    return groups.of(workload, (1 << len(workload.kernels or workload.ops)) - 1).search


@pytest.mark.parametrize("seed", range(3))
def test_revisiting_orders_have_no_less_traffic_or_footprint(seed: int) -> None:
    """So that it is left out where no time counts. Its twin has the sum inside, and the same sizes."""
    draw, seen, fewer = random.Random(seed), 0, 0
    for _ in range(12):
        search = whole(blocks(draw), draw)
        frames = [frame for frame in search.space.plain if not frame.cut]
        for frame in draw.sample(frames, min(4, len(frames))):
            for index, stage in enumerate(frame.stages):
                revisiting = [shape for shape in stage.skeletons if shape.revisits]
                for shape in draw.sample(revisiting, min(4, len(revisiting))):
                    head, _, rest = shape.name.partition(" innermost outside, ")
                    (twin,) = (
                        other for other in stage.skeletons
                        if other.name != shape.name and other.name.partition(" innermost outside, ")[2] == rest
                    )  # fmt: skip
                    assert not twin.revisits, head
                    tiles = drawn(frame, (shape,), draw)
                    found, other = (_cost(search, frame, index, own, tiles) for own in (shape, twin))
                    assert float(other.energy) <= float(found.energy) * (1 + 1e-12), (frame.name, shape.name, tiles)
                    assert other.footprint == found.footprint
                    seen, fewer = seen + 1, fewer + (float(other.energy) < float(found.energy))
    assert seen
    assert fewer


def test_a_stationary_result_has_one_loop_order() -> None:
    """It comes and goes in neither."""
    workload = graph(["Y[m,n] = T[m,f] * W[f,n]"], {"m": 2, "n": 3, "f": 4})
    role = roles(workload, workload.ops[0])
    assert outer_orders(role, leaves=False) == ((("f", "n"), "n"),)
    assert outer_orders(role, leaves=True) == ((("f", "n"), "n"), (("n", "f"), "f"))


def _cost(search: GroupSearch, frame: Frame, index: int, shape: Skeleton, tiles: Mapping[str, int]) -> Estimate:
    """What a stage costs on given tiles, with the footprint of the whole tree."""
    tree, node = search.costs.alone_on(frame, index, shape, tiles)
    return search.costs.share(tree, node, search.costs.held(frame, index, shape, tiles))
