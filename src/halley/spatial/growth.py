"""Partitions grown by one kernel at a time: the costs of `halley.spatial.costs.partition`, updated from those without the
kernel.

SRAM and compute tiles only increase with more kernels: a partition that does not fit is dropped with all that contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from halley.formulas.spatial import buffer_bytes, ramp_time, streamed_time
from halley.formulas.timing import busy_time, longest, total
from halley.mapping.space.partitions import Kernels, members
from halley.optim.downsets import Costs, Lattice
from halley.spatial.chip import Array, SpatialProblem, tile_choices
from halley.spatial.costs import held_bytes, network_time, sequence_tiles, stalls, tile_bytes


class Variant(NamedTuple):
    """A kernel's weights, resident or streamed: bytes in SRAM, loaded once, and read per sample."""

    held: float
    loaded: float
    streamed: float


class PartitionTensor(NamedTuple):
    """A tensor of a growing partition: the number of its readers inside, and the lowest and highest level of the kernels that
    access it."""

    readers: int
    low: int
    high: int


@dataclass(frozen=True)
class GrowthTables:
    """Tables for one size of the sequence tile.

    ``times`` [s]: ascending, every time that some kernel can take per sample. ``needed`` [kernels, times]: compute tiles with
    which a kernel takes that time (more than the chip has if none do). ``area`` [s]: least product of compute tiles and time,
    over all tiles. ``writes``, ``reads``: numbers of tensors by kernel. ``slices`` [B]: bytes of each tensor per sequence tile.
    ``unfused_time`` [s]: of each kernel on the whole chip, with its network; ``least_network`` [s]: a lower bound of its
    network, fused or not.
    """

    problem: SpatialProblem
    tile: int
    count: int
    times: Array
    needed: Array
    area: Array
    network: Array
    variants: tuple[tuple[Variant, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    slices: tuple[float, ...]
    rows: tuple[list[float], ...]
    unfused_time: Array
    least_network: Array


class GrowingPartition(NamedTuple):
    """Kernels of a partition; ``streamed``: those with streamed weights. ``fastest``: index of its time; ``paths``: kernels on
    the longest path to each. The rest are sums in bytes and seconds; ``entering``: the part of the traffic that further
    kernels cannot remove. ``number``: of its `GrowthTables`."""

    group: Kernels = 0
    streamed: Kernels = 0
    fastest: int = 0
    sram: float = 0.0
    loaded: float = 0.0
    traffic: float = 0.0
    kept: float = 0.0
    network: float = 0.0
    entering: float = 0.0
    paths: dict[int, int] = {}  # noqa: RUF012 - never written to
    passing: dict[int, PartitionTensor] = {}  # noqa: RUF012 - never written to
    number: int = 0


def growth_tables(problem: SpatialProblem, tile: int, every: bool = True) -> GrowthTables | None:
    """The tables; None if ``every`` kernel has to fit the chip or run unfused, and some kernel does neither."""
    graph, chip = problem.graph, problem.chip
    count = sequence_tiles(problem, tile)
    options = [tile_choices(kernel, graph.sequence, tile, chip) for kernel in graph.kernels]
    cycles = np.unique(np.concatenate([each.cycles for each in options]))
    needed = np.full((len(options), len(cycles)), float(chip.tiles + 1))
    for place, each in enumerate(options):
        if graph.kernels[place].unfused:
            continue
        first = np.searchsorted(-each.cycles, -cycles)
        reached = first < len(each.cycles)
        needed[place, reached] = each.tiles[first[reached]]
    times = np.asarray(streamed_time(cycles, count, chip.clock))
    area = [(each.tiles * streamed_time(each.cycles, count, chip.clock)).min() / chip.tiles for each in options]
    alone = np.array([kernel.unfused_time for kernel in graph.kernels])
    one_by_one = np.array([kernel.unfused_total for kernel in graph.kernels])
    network = np.array([network_time(problem, kernel, count) for kernel in graph.kernels], dtype=np.float64)
    made = GrowthTables(
        problem,
        tile,
        count,
        times,
        needed,
        # an unfused kernel occupies the whole chip; one that only runs unfused does so for that time
        np.where([kernel.unfused for kernel in graph.kernels], alone, np.minimum(area, alone)),
        network,
        tuple(tuple(_variants(problem, place, count)) for place in range(len(graph.kernels))),
        tuple(tuple(n for n, t in enumerate(problem.tensors) if t.writer == place) for place in range(len(options))),
        tuple(tuple(n for n, t in enumerate(problem.tensors) if place in t.readers) for place in range(len(options))),
        tuple(tile_bytes(problem, tensor, tile) for tensor in problem.tensors),
        tuple(needed.tolist()),
        one_by_one,
        np.minimum(network, one_by_one),
    )
    fits = not every or all(alone[place] < np.inf or grow(made, GrowingPartition(), place) for place in range(len(options)))
    return made if fits else None


def _variants(problem: SpatialProblem, place: int, count: int) -> list[Variant]:
    weights = problem.graph.kernels[place].weights
    found = [Variant(held_bytes(problem, place, False), weights, 0.0)]
    if weights and problem.assumptions.streaming:
        found.append(Variant(held_bytes(problem, place, True), 0.0, count * weights))
    return found


def grow(made: GrowthTables, block: GrowingPartition, kernel: int) -> list[GrowingPartition]:
    """The partition with one more kernel, for each variant of its weights that fits."""
    problem = made.problem
    if block.group and not problem.fused:
        return []
    group = block.group | 1 << kernel
    fastest = _fastest(made, group, block.fastest)
    if fastest == len(made.times):
        return []
    if any(stalls(problem.tensors[number], group) for number in made.reads[kernel]):
        return []
    needs = problem.graph.needs[kernel]
    paths = block.paths | {kernel: 1 + max((path for other, path in block.paths.items() if needs >> other & 1), default=0)}
    passing, sram, traffic, kept, entering = _passed(made, block, kernel)
    network = block.network + float(made.network[kernel])
    return [
        GrowingPartition(
            group,
            block.streamed | (1 << kernel if number else 0),
            fastest,
            sram + variant.held,
            block.loaded + variant.loaded,
            traffic + variant.streamed,
            kept,
            network,
            entering + variant.streamed,
            paths,
            passing,
            block.number,
        )
        for number, variant in enumerate(made.variants[kernel])
        if sram + variant.held <= problem.chip.sram
    ]


def _passed(
    made: GrowthTables, block: GrowingPartition, kernel: int
) -> tuple[dict[int, PartitionTensor], float, float, float, float]:
    """Tensors, SRAM, traffic, stored and entering bytes of a partition with one more kernel, without its weights."""
    problem, level = made.problem, made.problem.graph.levels[kernel]
    passing, sram, traffic, kept, entering = dict(block.passing), block.sram, block.traffic, block.kept, block.entering
    for number in made.writes[kernel]:
        moved = problem.tensors[number].bytes
        passing[number] = PartitionTensor(0, level, level)
        sram, traffic, kept = sram + _held(made, number, passing[number], True), traffic + moved, kept + moved
    for number in made.reads[kernel]:
        tensor, old = problem.tensors[number], passing.get(number)
        inside = tensor.writer is not None and bool(block.group >> tensor.writer & 1)
        if old is None:
            new = PartitionTensor(1, level, level)
            traffic, entering = traffic + tensor.bytes, entering + tensor.bytes
            kept += tensor.bytes if problem.assumptions.kept_twice else 0.0
        else:
            new = PartitionTensor(old.readers + 1, min(old.low, level), max(old.high, level))
            sram -= _held(made, number, old, inside)
        if inside and new.readers == len(tensor.readers) and not tensor.leaves:
            traffic, kept = traffic - tensor.bytes, kept - tensor.bytes
        sram += _held(made, number, new, inside)
        passing[number] = new
    return passing, sram, traffic, kept, entering


def _held(made: GrowthTables, number: int, passing: PartitionTensor, inside: bool) -> float:
    """SRAM of a tensor; the writer, if inside, is on its lowest level."""
    away = 1 if made.problem.fused else 0
    tensor = made.problem.tensors[number]
    if tensor.needed_whole and passing.readers:
        return max(tensor.bytes, tensor.gathered_bytes)
    spread = passing.high - passing.low
    return float(buffer_bytes(made.slices[number], (spread or away) if inside else spread + away))


def _fastest(made: GrowthTables, group: Kernels, remaining_with_block: int) -> int:
    """Index of the least time for which the compute tiles suffice for all kernels; a larger group is never faster."""
    rows = [made.rows[place] for place in members(group)]
    tiles = made.problem.chip.tiles
    low, high = remaining_with_block, len(made.times)
    while low < high:
        middle = (low + high) // 2
        if sum(row[middle] for row in rows) <= tiles:
            high = middle
        else:
            low = middle + 1
    return low


def unfused_partition(made: GrowthTables, kernel: int) -> GrowingPartition:
    """A kernel that runs unfused."""
    return GrowingPartition(1 << kernel)


def unfused_kernel_costs(made: GrowthTables, kernel: int) -> Costs | None:
    """Costs of a kernel that runs unfused, as in `partition_costs` (only with `SpatialProblem.one_sample`); None if it cannot."""
    if made.unfused_time[kernel] == np.inf:
        return None
    return float(made.unfused_time[kernel]), 0.0, 0.0


def _costs(problem: SpatialProblem, steady: float, once: float, kept: float) -> Costs:
    """Where only the sum of times counts, it is the only cost."""
    return (steady + once, 0.0, 0.0) if problem.one_sample else (steady, once, kept)


def partition_costs(made: GrowthTables, block: GrowingPartition) -> Costs:
    """Time per sample, time once for all samples in a row, and bytes per sample stored in memory (with
    `SpatialProblem.one_sample`: all of the time is the first)."""
    problem = made.problem
    assumed, bandwidth = problem.assumptions, problem.chip.bandwidth
    compute = float(made.times[block.fastest])
    steady = longest((compute, busy_time(block.traffic, bandwidth), block.network))
    ramp = ramp_time(compute, made.count, max(block.paths.values())) if assumed.ramps else 0.0
    start = problem.chip.start if assumed.latency else 0.0
    return _costs(problem, float(steady), float(total((ramp, start, busy_time(block.loaded, bandwidth)))), block.kept)


def remaining_with_block(made: GrowthTables, done: Kernels, block: GrowingPartition, tiles: Sequence[GrowthTables]) -> Costs:
    """A lower bound of the remaining costs after a downset if the next partition contains this one; further partitions may have
    any of the ``tiles``.

    Kernels are added in ascending order, so a partition leaves those that it skips to other partitions.
    """
    skipped = list(members((1 << block.group.bit_length()) - 1 & ~(done | block.group)))
    work, network = (np.min([getattr(each, name)[skipped] for each in tiles], axis=0).sum() for name in ("area", "least_network"))
    others = max(work, network)
    own = longest((made.times[block.fastest], busy_time(block.entering, made.problem.chip.bandwidth), block.network))
    return float(own + others), 0.0, 0.0


def remaining_bounds(made: GrowthTables, downsets: Lattice) -> list[Costs]:
    """For each downset a lower bound of the remaining costs: work on all compute tiles, network, bytes to be read."""
    problem = made.problem
    outside = 1.0 - membership(downsets.downsets, len(problem.graph.kernels))
    read = np.zeros(len(outside))
    for tensor in problem.tensors:
        ready = np.ones(len(outside)) if tensor.writer is None else 1.0 - outside[:, tensor.writer]
        wanted = outside[:, list(tensor.readers)].max(axis=1) if tensor.readers else 0.0
        read += min(tensor.bytes, tensor.least_read) * ready * wanted
    steady = np.maximum(np.maximum(outside @ made.area, outside @ made.least_network), read / problem.chip.bandwidth)
    least_loaded = [min(variant.loaded for variant in each) for each in made.variants]
    loaded = outside @ np.where(np.isfinite(made.unfused_time), 0.0, least_loaded)
    setup = np.asarray(busy_time(loaded, problem.chip.bandwidth))
    kept = read if problem.assumptions.kept_twice else np.zeros(len(outside))
    return list(zip(steady.tolist(), setup.tolist(), kept.tolist(), strict=True))


def membership(sets: Sequence[Kernels], count: int) -> Array:
    """[sets, kernels] 1 where the set contains the kernel.

    >>> membership([0b01, 0b10], 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if count < 63:
        return (np.array(sets, dtype=np.int64)[:, None] >> np.arange(count) & 1).astype(np.float64)
    return np.array([[each >> place & 1 for place in range(count)] for each in sets], dtype=np.float64)
