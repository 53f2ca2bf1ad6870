"""Partitions of spatial chips: the search against every chain of every drawn graph, costed by code of its own."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from halley.errors import BadInput, Infeasible
from halley.optim.downsets import best_chain, chain_lattice, lattice
from halley.spatial import solve as partitioning
from halley.spatial.chip import (
    DFMODEL,
    HALLEY,
    Assumptions,
    Engine,
    Kernel,
    SpatialChip,
    SpatialGraph,
    SpatialProblem,
    SpatialTensor,
    TileChoices,
    TiledDim,
    tile_choices,
)
from halley.spatial.costs import allocation, partition
from halley.spatial.growth import GrowingPartition, grow, growth_tables, partition_costs
from halley.spatial.solve import best_plan, plan

CASES = 150
MODELS = {"dfmodel": DFMODEL, "halley": HALLEY}


@pytest.fixture(params=["plain", "compiled"])
def _loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to search."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    monkeypatch.setattr(partitioning.SWITCH, "mode", "on" if request.param == "compiled" else "off")


def drawn(seed: int, assumptions: Assumptions, most: int = 5) -> SpatialProblem:
    """A small graph on a small chip; half of them cannot hold all that they would like to."""
    draw = random.Random(seed)
    count = draw.randint(2, most)
    kernels = tuple(
        Kernel(
            f"k{place}",
            draw.choice(list(Engine)),
            draw.randint(1, 20),
            draw.randint(1, 12),
            draw.randint(1, 6),
            draw.choice(list(TiledDim)),
            weights=float(draw.choice((0, 0, 30, 200))),
            network=draw.choice((0.0, 0.0, 40.0)),
            conversions=draw.choice((0.0, 7.0)),
            latency=draw.choice((0.0, 0.5)),
        )
        for place in range(count)
    )
    tensors = []
    for writer in (None, *range(count)):
        first = 0 if writer is None else writer + 1
        readers = tuple(place for place in range(first, count) if draw.random() < 0.45)
        tensors.append(SpatialTensor(writer, readers, float(draw.randint(1, 120)), draw.random() < 0.2))
    chip = SpatialChip(
        draw.randint(count, 9), 2, 2, 1.0, draw.choice((260.0, 600.0, 3000.0)), draw.choice((1500.0, 9000.0)), 4.0, start=3.0
    )
    return SpatialProblem(
        SpatialGraph(kernels, tuple(tensors), draw.choice((4, 6))),
        chip,
        assumptions,
        layers=2,
        stages=draw.choice((1, 2)),
        transfer=draw.choice((0.0, 60.0)),
        fused=draw.random() < 0.9,
        most=draw.choice((math.inf, 3.0)),
        fewest=draw.choice((1.0, 2.0)),
    )


# The oracle: every chain of every drawn graph, in arithmetic of its own.


def blocks_after(problem: SpatialProblem, done: frozenset[int]) -> Iterator[frozenset[int]]:
    left = [place for place in range(len(problem.graph.kernels)) if place not in done]
    for chosen in product((False, True), repeat=len(left)):
        block = frozenset(place for place, taken in zip(left, chosen, strict=True) if taken)
        ready = done | block
        sources = {t.writer for t in problem.graph.tensors for reader in t.readers if reader in block and t.writer is not None}
        if block and sources <= ready:
            yield block


def least_cycles(problem: SpatialProblem, tile: int, block: frozenset[int]) -> float:
    """Over every distribution of the compute tiles, one by one."""
    chip, sequence = problem.chip, problem.graph.sequence

    def cycles(kernel: Kernel, tiles: int) -> float:
        share = min(tile, sequence)
        columns = math.ceil(kernel.columns * share / sequence) if kernel.tiled is TiledDim.COLUMNS else kernel.columns
        depth = math.ceil(kernel.depth * share / sequence) if kernel.tiled is TiledDim.DEPTH else kernel.depth
        if kernel.engine is Engine.VECTOR:
            return math.ceil(kernel.rows / (chip.width * tiles)) * columns * kernel.cycles
        folds = (
            math.ceil(kernel.rows / (chip.width * lanes)) * math.ceil(columns / (chip.height * (tiles // lanes)))
            for lanes in range(1, tiles + 1)
        )
        return min(folds) * depth

    best = {0: 0.0}  # by number of compute tiles distributed: the slowest kernel
    for place in block:
        after: dict[int, float] = {}
        for used, slowest in best.items():
            for tiles in range(1, chip.tiles - used + 1):
                time = max(slowest, cycles(problem.graph.kernels[place], tiles))
                after[used + tiles] = min(time, after.get(used + tiles, math.inf))
        best = after
    return min(best.values(), default=math.inf)


def levels(problem: SpatialProblem) -> list[int]:
    found: list[int] = []
    for place in range(len(problem.graph.kernels)):
        writers = (t.writer for t in problem.graph.tensors if place in t.readers and t.writer is not None)
        found.append(max((found[writer] + 1 for writer in writers), default=0))
    return found


def path(problem: SpatialProblem, block: frozenset[int], end: int) -> int:
    before = {t.writer for t in problem.graph.tensors if end in t.readers and t.writer in block}
    return 1 + max((path(problem, block, other) for other in before if other is not None), default=0)


def cost(
    problem: SpatialProblem, tile: int, block: frozenset[int], streamed: frozenset[int]
) -> tuple[float, float, float] | None:
    """Steady time, time once, kept bytes."""
    graph, chip, assumed = problem.graph, problem.chip, problem.assumptions
    if (len(block) > 1 and not problem.fused) or any(graph.kernels[place].unfused for place in block):
        return None
    count, level, sram, traffic, kept = math.ceil(graph.sequence / tile), levels(problem), 0.0, 0.0, 0.0
    for tensor in graph.tensors:
        if tensor.writer is None and not assumed.boundary:
            continue
        leaves = tensor.leaves and assumed.boundary
        copies = [tensor.readers] if assumed.shared else [(reader,) for reader in tensor.readers] + [()] * leaves
        for readers in copies:
            within = [reader for reader in readers if reader in block]
            part, away = math.ceil(max(tensor.bytes, tensor.gathered_bytes) / count), 1 if problem.fused else 0
            if tensor.needed_whole and within:
                if tensor.writer in block:
                    return None
                sram, traffic = sram + max(tensor.bytes, tensor.gathered_bytes), traffic + tensor.bytes
                kept += tensor.bytes if assumed.kept_twice else 0.0
            elif tensor.writer in block and (readers or leaves):
                sram += part * (1 + max([away, *(level[reader] - level[tensor.writer] for reader in within)]))
                if leaves or len(within) < len(readers):
                    traffic, kept = traffic + tensor.bytes, kept + tensor.bytes
            elif within:
                spread = max(level[reader] for reader in within) - min(level[reader] for reader in within)
                sram, traffic = sram + part * (1 + away + spread), traffic + tensor.bytes
                kept += tensor.bytes if assumed.kept_twice else 0.0
    for place in block:
        kernel = graph.kernels[place]
        slices = 2 * kernel.weights / math.ceil(kernel.rows / chip.width)
        sram += min(slices, kernel.weights) if place in streamed else kernel.weights
        traffic += count * kernel.weights if place in streamed else 0.0
    compute = least_cycles(problem, tile, block) * count / chip.clock
    if sram > chip.sram or compute == math.inf:
        return None
    own = [graph.kernels[place] for place in block]
    network = sum(k.network + k.conversions * assumed.conversions + count * k.latency * assumed.latency for k in own)
    ramp = (max(path(problem, block, place) for place in block) - 1) * compute / count if assumed.ramps else 0.0
    loaded = sum(graph.kernels[place].weights for place in block - streamed)
    once = ramp + (chip.start if assumed.latency else 0.0) + loaded / chip.bandwidth
    return max(compute, traffic / chip.bandwidth, network), once, kept


def everything(problem: SpatialProblem, *tiles: int) -> float:
    """The least time of a layer, over all chains, all ways to stream weights, and all sequence tiles of each partition."""
    graph, chip = problem.graph, problem.chip
    weights = [place for place, kernel in enumerate(graph.kernels) if kernel.weights and problem.assumptions.streaming]
    free = chip.dram * problem.stages / problem.layers - sum(kernel.weights for kernel in graph.kernels)
    known: dict[tuple[int, frozenset[int], frozenset[int]], tuple[float, float, float] | None] = {}

    def walk(done: frozenset[int], steady: float, once: float, kept: float) -> float:
        if len(done) == len(graph.kernels):
            room = math.inf if free == math.inf or not kept else math.floor(free / kept)
            samples = min(problem.most, room) if free >= 0 else 0
            return steady + once / samples if samples >= problem.fewest else math.inf
        best = math.inf
        for block in blocks_after(problem, done):
            if len(block) == 1 and (own_time := graph.kernels[min(block)].unfused_time) < math.inf:
                kernel = graph.kernels[min(block)]
                with_network = own_time + kernel.network + kernel.conversions + kernel.latency
                best = min(best, walk(done | block, steady + with_network, once, kept))
            own = [place for place in weights if place in block]
            for tile, *chosen in product(tiles, *((False, True) for _ in own)):
                streamed = frozenset(place for place, taken in zip(own, chosen, strict=True) if taken)
                if (tile, block, streamed) not in known:
                    known[tile, block, streamed] = cost(problem, tile, block, streamed)
                found = known[tile, block, streamed]
                if found is not None:
                    best = min(best, walk(done | block, steady + found[0], once + found[1], kept + found[2]))
        return best

    return max(walk(frozenset(), 0.0, 0.0, 0.0), problem.transfer)


def best_of_all_chains(problems: Iterable[SpatialProblem]) -> None:
    """The search finds the best chain of each, or that there is none; there is one of most."""
    solved = []
    for seed, problem in enumerate(problems):
        least = everything(problem, 2)
        solved.append(least < math.inf)
        if not solved[-1]:
            with pytest.raises(Infeasible):
                best_plan(problem, [2])
            continue
        found = best_plan(problem, [2])
        assert found.layer == pytest.approx(least, rel=1e-12), seed
        assert found.proven
    assert sum(solved) > len(solved) / 2


@pytest.mark.usefixtures("_loop")
@pytest.mark.parametrize("model", MODELS)
def test_best_of_all_chains(model: str) -> None:
    best_of_all_chains(drawn(seed, MODELS[model], 4 if model == "halley" else 5) for seed in range(CASES))


@pytest.mark.usefixtures("_loop")
def test_best_of_all_sequence_tiles() -> None:
    for seed in range(40):
        problem = drawn(seed, HALLEY, 3)
        least = min(everything(problem, tile) for tile in (1, 2, problem.graph.sequence))
        if least < math.inf:
            assert best_plan(problem, [1, 2, problem.graph.sequence]).layer == pytest.approx(least, rel=1e-12), seed


@pytest.mark.usefixtures("_loop")
def test_each_partition_has_the_sequence_tile_that_suits_it() -> None:
    """Where there is one sample at a time; of several, partitions that process the same ones have one tile."""
    mixed = 0
    for seed in range(40):
        made = drawn(seed, HALLEY, most=4)
        problem = replace(made, chip=replace(made.chip, dram=math.inf), most=1.0, fewest=1.0, transfer=0.0)
        least = everything(problem, 1, 3, problem.graph.sequence)
        if least == math.inf:
            with pytest.raises(Infeasible):
                best_plan(problem, [1, 3, problem.graph.sequence])
            continue
        found = best_plan(problem, [1, 3, problem.graph.sequence])
        assert found.layer == pytest.approx(least, rel=1e-12), seed
        assert found.proven
        mixed += len({part.tile for part in found.partitions}) > 1
    assert mixed > 5


def test_both_loops_find_the_same() -> None:
    """On graphs too large for the oracle."""
    pytest.importorskip("numba")
    for seed, model in product(range(25), MODELS.values()):
        problem = drawn(seed, model, 9)
        problem = replace(problem, chip=replace(problem.chip, sram=4000.0, dram=1e6))
        found = []
        for mode in ("off", "on"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(partitioning.SWITCH, "mode", mode)
                found.append(best_plan(problem, [1, 2]))
        assert found[0].layer == found[1].layer, seed


# The parts.


def test_grown_blocks_cost_what_they_cost_from_scratch() -> None:
    for seed in range(60):
        draw = random.Random(seed)
        problem = drawn(seed, draw.choice(list(MODELS.values())), 7)
        made = growth_tables(problem, 2)
        if made is None:
            continue
        block = GrowingPartition()
        for place in range(len(problem.graph.kernels)):
            grown = grow(made, block, place) if draw.random() < 0.7 else []
            if not grown:
                continue
            block = draw.choice(grown)
            part = partition(problem, 2, block.group, block.streamed)
            assert part is not None
            assert partition_costs(made, block) == pytest.approx((part.steady, part.once, part.kept), rel=1e-12)
            assert (block.sram, block.traffic) == pytest.approx((part.sram, part.traffic), rel=1e-12)


def test_allocation_is_the_best_of_all() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        options = []
        for _ in range(draw.randint(1, 4)):
            cycles = sorted(draw.sample(range(1, 40), draw.randint(1, 5)), reverse=True)
            tiles = sorted(draw.sample(range(1, 9), len(cycles)))
            options.append(made_choices(tiles, cycles))
        room = draw.randint(1, 20)
        ways = product(*(range(len(each.tiles)) for each in options))
        fitting = [way for way in ways if sum(each.tiles[at] for each, at in zip(options, way, strict=True)) <= room]
        best = min((max(each.cycles[at] for each, at in zip(options, way, strict=True)) for way in fitting), default=None)
        found = allocation(options, room)
        assert (found is None) == (best is None)
        if found is not None:
            assert found[0] == best
            assert sum(found[1]) <= room


def made_choices(tiles: list[int], cycles: list[int]) -> TileChoices:
    return TileChoices(*(np.array(column, dtype=float) for column in (tiles, cycles, tiles, [1] * len(tiles))))


def test_choices_leave_no_better_one_out() -> None:
    chip = SpatialChip(30, 2, 3, 1.0, 1.0, 1.0, 1.0)
    for seed in range(40):
        draw = random.Random(seed)
        kernel = Kernel("k", draw.choice(list(Engine)), draw.randint(1, 90), draw.randint(1, 30), draw.randint(1, 5))
        problem = SpatialProblem(SpatialGraph((kernel,), (), 7), chip, DFMODEL)
        found = tile_choices(kernel, 7, 7, chip)
        for tiles in range(1, chip.tiles + 1):
            best = least_cycles(replace(problem, chip=replace(chip, tiles=tiles)), 7, frozenset({0}))
            assert min(cycles for cycles, used in zip(found.cycles, found.tiles, strict=True) if used <= tiles) == best


def test_downsets_are_all_there() -> None:
    for seed in range(100):
        draw = random.Random(seed)
        count = draw.randint(1, 8)
        needs = tuple(sum(1 << other for other in range(place) if draw.random() < 0.3) for place in range(count))
        closed = {s for s in range(1 << count) if all(not s >> place & 1 or not need & ~s for place, need in enumerate(needs))}
        found = lattice(needs)
        assert set(found.downsets) == closed
        assert len(found.downsets) == len(closed)
        for downset, steps in zip(found.downsets, found.steps, strict=True):
            expected = [(place, downset | 1 << place) for place in range(count) if not downset >> place & 1]
            assert [(k, found.downsets[to]) for k, to in steps] == [pair for pair in expected if pair[1] in closed]


Pair = tuple[float, ...]


def of_no_sum(pair: Pair) -> float:
    return max(pair) + 0.25 * min(pair) ** 1.5


def least_value(costs: dict[int, Pair], closed: tuple[int, ...], done: int = 0, sums: Pair = (0.0, 0.0)) -> float:
    """Over every chain of downsets."""
    if done == closed[-1]:
        return of_no_sum(sums)
    after = [larger for larger in closed if larger != done and not done & ~larger]
    return min(
        least_value(costs, closed, larger, tuple(a + b for a, b in zip(sums, costs[larger - done], strict=True)))
        for larger in after
    )


def grown_by(group: int, kernel: int) -> list[int]:
    return [group | 1 << kernel]


def test_any_cost_of_a_block_will_do() -> None:
    """Several costs and a value that is no sum, against every chain."""
    for seed in range(60):
        draw = random.Random(seed)
        count = draw.randint(1, 5)
        needs = tuple(sum(1 << other for other in range(place) if draw.random() < 0.3) for place in range(count))
        costs: dict[int, Pair] = {group: (float(draw.randint(0, 30)), float(draw.randint(0, 30))) for group in range(1 << count)}
        downsets = lattice(needs)
        zeros: list[Pair] = [(0.0, 0.0)] * len(downsets.downsets)
        found = best_chain(downsets, [0], grown_by, costs.__getitem__, of_no_sum, zeros)
        assert found.value == least_value(costs, downsets.downsets)
        assert sum(found.chain) == (1 << count) - 1
        assert best_chain(downsets, [0], grown_by, costs.__getitem__, of_no_sum, zeros, found.value).chain == ()


# Laws.


@pytest.mark.parametrize("name", ["bandwidth", "sram", "dram", "tiles"])
def test_more_is_never_slower(name: str) -> None:
    for seed in range(40):
        problem = drawn(seed, HALLEY, 4)
        try:
            less = best_plan(problem, [1, 2]).layer
        except Infeasible:
            continue
        more = replace(problem, chip=replace(problem.chip, **{name: 2 * getattr(problem.chip, name)}))
        assert best_plan(more, [1, 2]).layer <= less * (1 + 1e-12)


@pytest.mark.parametrize(("name", "sign"), [("ramps", 1), ("latency", 1), ("conversions", 1), ("boundary", 1), ("streaming", -1)])
def test_assumptions_cost_or_spare(name: str, sign: int) -> None:
    for seed in range(40):
        found = []
        for on in (False, True):
            problem = drawn(seed, replace(HALLEY, **{name: on}), 4)
            try:
                found.append(best_plan(problem, [1, 2]).layer)
            except Infeasible:
                found.append(math.inf)
        assert found[0] == found[1] or sign * found[1] >= sign * found[0] * (1 - sign * 1e-12)


# What cannot be done.


def chain_of_two(sram: float = 100.0, dram: float = 1e6) -> SpatialProblem:
    kernels = (Kernel("first", Engine.MATRIX, 4, 4, 4, weights=60.0), Kernel("second", Engine.VECTOR, 4, 4))
    chip = SpatialChip(4, 2, 2, 1.0, sram, dram, 1.0)
    return SpatialProblem(SpatialGraph(kernels, (SpatialTensor(0, (1,), 16.0),), 4), chip, DFMODEL)


def test_a_kernel_that_fits_nowhere_is_named() -> None:
    with pytest.raises(Infeasible, match=r"kernel first: expected at most 50 B of SRAM; got 68 B; shard it over at least 2"):
        best_plan(chain_of_two(sram=50.0))


def test_memory_that_is_too_small_is_named() -> None:
    with pytest.raises(Infeasible, match=r"dram: expected one sample in 50 B of 1 chips; got weights of 60 B"):
        best_plan(chain_of_two(dram=50.0))


def test_a_plan_of_the_user() -> None:
    problem = chain_of_two()
    found = plan(problem, 4, [(0b01, 0), (0b10, 0)])
    # 16 bytes out and in at 1 B/s outlast 4 cycles each; 999,940 free bytes hold 32 per sample 31,248 times
    assert found.samples == 31_248
    assert found.layer == pytest.approx(16 + 16 + 60 / 31_248)
    assert [part.tiles for part in found.partitions] == [(4,), (2,)]
    with pytest.raises(BadInput, match=r"partition 1: expected the sources of second in it or before; got first later"):
        plan(problem, 4, [(0b10, 0), (0b01, 0)])
    with pytest.raises(BadInput, match=r"partitions: expected all kernels; got none with second"):
        plan(problem, 4, [(0b01, 0)])
    with pytest.raises(BadInput, match=r"partition 2: expected kernels of the graph that no other has"):
        plan(problem, 4, [(0b11, 0), (0b01, 0)])
    with pytest.raises(BadInput, match=r"partition 1, streamed: expected kernels of it, if weights may stream at all"):
        plan(problem, 4, [(0b11, 0b01)])
    with pytest.raises(Infeasible, match=r"partition 1: expected at most 10 B of SRAM; got 92 B"):
        plan(replace(problem, chip=replace(problem.chip, sram=10.0)), 4, [(0b11, 0)])


def test_a_chip_without_memory_is_refused() -> None:
    with pytest.raises(BadInput, match=r"spatial chip, sram: expected a number above 0; got 0"):
        SpatialChip(4, 2, 2, 1.0, 0.0, 1.0, 1.0)
    with pytest.raises(BadInput, match=r"problem, layers: expected at least 1; got 0"):
        replace(chain_of_two(), layers=0)


@pytest.mark.usefixtures("_loop")
def test_a_long_line_of_kernels() -> None:
    """More kernels than fit a 64-bit number: all runs of consecutive ones, in arithmetic of the test's own."""
    draw = random.Random(3)
    count = 66
    sizes = [(draw.randint(1, 9), float(draw.randint(0, 9))) for _ in range(count)]
    kernels = tuple(Kernel(f"k{n}", Engine.VECTOR, rows, 4, weights=weights) for n, (rows, weights) in enumerate(sizes))
    tensors = tuple(SpatialTensor(n, (n + 1,), float(draw.randint(1, 40))) for n in range(count - 1))
    chip = SpatialChip(12, 2, 2, 1.0, 90.0, 1e6, 4.0)
    problem = SpatialProblem(SpatialGraph(kernels, tensors, 4), chip, DFMODEL, most=1)
    least = [0.0] + [math.inf] * count
    for start in range(count):
        for end in range(start + 1, count + 1):
            found = cost(problem, 2, frozenset(range(start, end)), frozenset())
            if found is None:
                break
            least[end] = min(least[end], least[start] + found[0] + found[1])
    assert best_plan(problem, [2]).layer == pytest.approx(least[-1], rel=1e-12)


def test_a_graph_in_the_wrong_order_is_refused() -> None:
    kernels = chain_of_two().graph.kernels
    with pytest.raises(BadInput, match=r"tensor 0: expected readers after its writer, among 2 kernels; got kernel 1 to \[0\]"):
        SpatialGraph(kernels, (SpatialTensor(1, (0,), 16.0),), 4)
    with pytest.raises(BadInput, match="sizes of at least 1"):
        best_plan(chain_of_two(), [0])


def test_too_many_downsets_leave_a_bound() -> None:
    for seed in range(30):
        problem = drawn(seed, DFMODEL, 5)
        try:
            best = best_plan(problem, [2])
            rough = best_plan(problem, [2], most_downsets=1)
        except Infeasible:
            continue
        assert rough.bound <= best.layer * (1 + 1e-12)
        assert best.layer <= rough.layer
        assert rough.downsets == len(chain_lattice(len(problem.graph.kernels)).downsets)
