"""Changes of single sizes: among mappings of equal value to one with slack, where nothing that counts grows and the simulation
finds it no slower; and to better ones after a search that was stopped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.certificates.test_aligned import CASES, open_sizes, searched
from tests.certificates.test_ties import cost

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.mapping import Compute, Hold, Node, Temporal, walk
from halley.ir.text import parse
from halley.mapping.bounds.incumbents import Frontier
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.mapping.solve.descent import descend
from halley.mapping.solve.group import fits
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.solve.slack import unevenness, with_slack
from halley.mapping.solve.ties import EQUAL
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.stages import BUFFERS
from halley.simulate.simulation import simulate
from halley.workloads import build, gemm


def settled(search: GroupSearch, choice: GroupMapping, value: str = "time", allowed: float = EQUAL) -> GroupMapping:
    values = {"time": lambda time, energy: time, "energy": lambda time, energy: energy}
    return with_slack(search.costs.workload, search.costs.chip, search.costs.enclose, choice, values[value], allowed)


def evaluate_of(search: GroupSearch, choice: GroupMapping) -> Estimate:
    return evaluate(search.costs.workload, search.costs.chip, search.costs.enclose(choice.tree()))


@pytest.mark.medium
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("value", ["time", "energy"])
def test_nothing_that_counts_grows(name: str, value: str) -> None:
    search, before = searched(name)
    after = settled(search, before, value)
    old, new = cost(search, before), cost(search, after)
    kept = 0 if value == "time" else 1
    assert new[kept] == pytest.approx(old[kept], rel=1e-12)
    assert new[0] <= old[0] * (1 + 1e-12)
    assert fits(search.costs.chip, evaluate_of(search, after))
    for slot in open_sizes(after):
        assert int(after.tiles[slot.name]) in slot.sizes(int(slot.limit(after.tiles)))
    for slot in (slot for skeleton in after.skeletons for slot in skeleton.slots if slot.dim == BUFFERS):
        assert before.tiles[slot.name] <= after.tiles[slot.name] <= slot.limit({})
        assert bool(before.tiles[slot.name]) == bool(after.tiles[slot.name])


@pytest.mark.medium
@pytest.mark.parametrize("name", CASES)
def test_an_allowance_is_used_for_even_tiles_alone(name: str) -> None:
    """With 1 % allowed, the time grows by that at most, and the time with small tiles apart does not grow."""
    search, before = searched(name)
    after = settled(search, before, allowed=0.01)
    assert cost(search, after)[0] <= 1.01 * cost(search, before)[0]
    assert fits(search.costs.chip, evaluate_of(search, after))
    apart = [
        float(evaluate(search.costs.workload, search.costs.chip, search.costs.enclose(each.tree()), uneven=True).time)
        for each in (before, after)
    ]
    assert apart[1] <= 1.01 * max(apart[0], cost(search, before)[0])


@pytest.mark.slow
def test_an_answer_at_the_limit_has_even_tiles_too() -> None:
    """Tiles of 3, 3 and 1 of 7 columns take 10 % longer than those of 4 and 3, by simulation alone."""
    workload, chip = gemm(1, 4096, 4096), load_chip("sn10")
    found = optimise(Problem(workload, chip, baselines=False, time_limit=20.0)).best
    assert found.certificate.bound <= float(found.estimate.time)
    assert simulate(workload, chip, found.plan, limit=400_000).time <= 1.03 * float(found.estimate.time)


def test_less_traffic_where_the_engine_sets_the_time() -> None:
    """A GEMM that the engine limits takes equally long with sums that come and go, at 70 of 74 us of memory traffic; the
    simulation of that one takes 7 % longer."""
    workload, chip = gemm(2048, 2048, 2048), load_chip("tpu-v4")
    found = optimise(Problem(workload, chip, baselines=False)).best
    assert max(float(busy) for (kind, _), busy in ((k[:2], v) for k, v in found.estimate.busy.items()) if kind == "bus") < (
        0.5 * float(found.estimate.time)
    )
    assert simulate(workload, chip, found.plan).time <= 1.005 * float(found.estimate.time)


@pytest.mark.medium
def test_equal_sizes_of_a_dim_change_together() -> None:
    """Two rounds of 64 rows take as long as four of 32, once the operands have two buffers, and less energy. In simulation the
    four take 3 % longer."""
    workload, chip = gemm(128, 128, 128), load_chip("sn10")
    found = optimise(Problem(workload, chip, baselines=False, gap=0.001)).best
    assert simulate(workload, chip, found.plan).time <= 1.001 * float(found.estimate.time)
    assert [node.tile for _, node in walk(found.plan) if isinstance(node, Temporal) and node.dim == "m"] == [64]


@pytest.mark.slow
def test_more_buffers_where_they_fit() -> None:
    """Every Hold whose further buffers cost nothing has them: here all that a stage holds."""
    chip = load_chip("h20")
    found = optimise(Problem(gemm(4096, 4096, 64), chip, baselines=False, gap=0.002)).best
    inner = [node.buffers for _, node in walk(found.plan) if isinstance(node, Hold) and node.memory == "smem"]
    assert min(inner) > 2


@pytest.mark.slow
def test_an_even_tile_rather_than_a_large_and_a_small_one() -> None:
    """Of 37 columns in two tiles, 25 and 12 move as much as 19 and 18 and take as long by the formula, which takes the maximum of
    totals; in the simulation the small tile waits for latency and the large one for the memory."""
    workload, chip = build("gemm", {"m": 1, "n": 11008, "k": 4096}), load_chip("mi300x")
    found = optimise(Problem(workload, chip, baselines=False, gap=0.002)).best
    times = simulate(workload, chip, found.plan).time, float(found.estimate.time)
    assert times[0] <= 1.15 * times[1]
    tiles = [node.tile for _, node in walk(found.plan) if isinstance(node, Temporal) and node.dim == "n"]
    assert all(-(-37 // tile) * tile <= 1.1 * 37 for tile in tiles)


def test_unevenness_of_open_sizes() -> None:
    """Halves of an even range are even; a size just above a half is almost twice the mean."""
    _, choice = searched("ragged gemm")
    slot = open_sizes(choice)[0]
    extent = int(slot.limit(choice.tiles))
    half = replace(choice, tiles={**choice.tiles, slot.name: extent}).tiles
    more = {**choice.tiles, slot.name: extent - 1}
    assert unevenness((slot,), half) == 0
    assert unevenness((slot,), more) == pytest.approx(2 * (extent - 1) / extent - 1)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["gemm", "fused", "masked"])
def test_no_single_change_improves_a_descent(name: str) -> None:
    """From sizes that are far from the best; each declared size of each slot is costed by itself."""
    search, start = searched(name)
    for slot in open_sizes(start):
        small = {**start.tiles, slot.name: min(slot.sizes(int(slot.limit(start.tiles))))}
        if all(small[other.name] in other.sizes(int(other.limit(small))) for other in open_sizes(start)):
            start = replace(start, tiles=small)
    own = replace(search, group=replace(search.group, found=Frontier(1, 0.0)))
    descend(own, start, lambda: None)
    time = cost(search, start)[0]
    best = own.found.payloads[0] if own.found.payloads else start
    assert own.found.points.size == 0 or own.found.points[0, 0] == cost(search, best)[0] < time
    for slot in best.slots:
        for size in slot.sizes(int(slot.limit(best.tiles))):
            other = replace(best, tiles={**best.tiles, slot.name: size})
            declared = all(other.tiles[o.name] in o.sizes(int(o.limit(other.tiles))) for o in open_sizes(best))
            if declared and fits(search.costs.chip, evaluate_of(search, other)):
                assert cost(search, other)[0] >= cost(search, best)[0] * (1 - 1e-8)


UNEVEN = """
hold dram: A B C
  spread n by 342 over sm.x
    spread n by 38 over sm.y
      hold l2 x2: C
        for k by 1368
          hold l2 x2: A
            for n by {tile}
              hold rf x2: C
                for k by 48
                  hold smem x4: B
                    hold smem x4: A
                      compute gemm
"""


@pytest.mark.parametrize(("tile", "longer"), [(32, 1.2), (25, 1.02), (19, 1.0)])
def test_full_and_smaller_tiles_apart(tile: int, longer: float) -> None:
    """Of 32 and 6 columns the memory limits the first tile and the matrix engine the second: the simulation takes 24 % longer
    than the maximum of totals. The three mappings take equally long by that."""
    workload, chip = build("gemm", {"m": 16, "n": 4096, "k": 4096, "dtype": "bf16"}), load_chip("a100")
    tree = parse(UNEVEN.format(tile=tile).strip())
    together, apart = evaluate(workload, chip, tree), evaluate(workload, chip, tree, uneven=True)
    assert together.time == pytest.approx(16.948e-6, rel=1e-4)
    assert apart.time / together.time == pytest.approx(longer, abs=0.01)
    assert simulate(workload, chip, tree).time == pytest.approx(apart.time, rel=0.05)
    assert (apart.energy_by | {"static": 0}, apart.busy) == (together.energy_by | {"static": 0}, together.busy)
    tiles = np.array([32, 25, 19])
    batch = evaluate(workload, chip, with_tiles(tree, tile, tiles), uneven=True)
    assert batch.time[tiles.tolist().index(tile)] == pytest.approx(apart.time, rel=1e-12)


def with_tiles(node: Node, tile: int, tiles: np.ndarray) -> Node:
    """The tree with many tiles in place of one."""
    if isinstance(node, Compute):
        return node
    body = with_tiles(node.body, tile, tiles)
    return replace(node, body=body, tile=tiles) if getattr(node, "tile", 0) == tile else replace(node, body=body)


def test_even_tiles_are_not_apart() -> None:
    workload, chip = gemm(256, 256, 256), load_chip("edge")
    found = optimise(Problem(workload, chip, baselines=False)).best
    assert evaluate(workload, chip, found.plan, uneven=True).time == found.estimate.time
