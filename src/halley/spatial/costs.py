"""Costs of a partition of a spatial chip: kernels that run concurrently on compute tiles of their own, or a single kernel on
the whole chip.

From `halley.formulas.spatial`, for one partition at a time; `halley.spatial.solve` finds the best partitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halley.formulas import spatial as formulas
from halley.formulas.numbers import ceil_div
from halley.formulas.timing import busy_time, longest, total
from halley.mapping.space.partitions import Kernels
from halley.spatial.chip import Kernel, SpatialGraph, SpatialProblem, SpatialTensor, TileChoices, tile_choices


@dataclass(frozen=True)
class Partition:
    """Costs of one partition. Times are per sample; ``ramp``, ``start`` and ``setup`` once for all samples in a row.

    ``tile``: points of a sequence tile; ``tiles``: compute tiles of each kernel. ``traffic``: bytes between DRAM and chip per
    sample; ``loaded``: of weights, once for all in a row; ``kept``: bytes stored in DRAM. ``unfused``: a single kernel that
    stores nothing on the chip (`Kernel.unfused_time`); its network follows its work.
    """

    names: tuple[str, ...]
    tile: int
    tiles: tuple[int, ...]
    streamed: tuple[str, ...]
    compute: float
    memory: float
    network: float
    ramp: float
    start: float
    setup: float
    sram: float
    traffic: float
    loaded: float
    kept: float
    unfused: bool = False

    @property
    def steady(self) -> float:
        if self.unfused:
            return self.compute + self.network
        return float(longest((self.compute, self.memory, self.network)))

    @property
    def once(self) -> float:
        return float(total((self.ramp, self.start, self.setup)))

    @property
    def bottleneck(self) -> str:
        return max(("compute", "memory", "network"), key=lambda name: float(getattr(self, name)))


def sequence_tiles(problem: SpatialProblem, tile: int) -> int:
    return int(ceil_div(problem.graph.sequence, tile))


def partition(problem: SpatialProblem, tile: int, group: Kernels, streamed: Kernels = 0) -> Partition | None:
    """Costs of a group of kernels with sequence tiles of ``tile`` points; None if it does not fit the chip. A single kernel
    runs unfused where that is faster.

    ``streamed``: kernels whose weights are read for each sequence tile.
    """
    found = _side_by_side(problem, tile, group, streamed)
    if group.bit_count() == 1:
        kernel = problem.graph.kernels[group.bit_length() - 1]
        if kernel.unfused_time < math.inf and (found is None or kernel.unfused_total <= found.steady + found.once):
            return _unfused(problem, group.bit_length() - 1)
    return found


def _unfused(problem: SpatialProblem, place: int) -> Partition:
    """A kernel on the whole chip that stores nothing on it."""
    kernel, chip = problem.graph.kernels[place], problem.chip
    return Partition(
        names=(kernel.name,),
        tile=problem.graph.sequence,
        tiles=(chip.tiles,),
        streamed=(),
        compute=kernel.unfused_time,
        memory=0.0,
        network=kernel.all_network,
        ramp=0.0,
        start=0.0,
        setup=0.0,
        sram=0.0,
        traffic=kernel.unfused_traffic,
        loaded=0.0,
        kept=float(total(boundary_bytes(problem, tensor, 1 << place)[1] for tensor in problem.tensors)),
        unfused=True,
    )


def _side_by_side(problem: SpatialProblem, tile: int, group: Kernels, streamed: Kernels) -> Partition | None:
    """The kernels of a group, concurrently, each on compute tiles of its own."""
    graph, chip, assumed = problem.graph, problem.chip, problem.assumptions
    count = sequence_tiles(problem, tile)
    inside = [place for place in range(len(graph.kernels)) if group >> place & 1]
    own = [graph.kernels[place] for place in inside]
    if any(kernel.unfused for kernel in own) or any(stalls(tensor, group) for tensor in graph.tensors):
        return None
    shares = allocation([tile_choices(kernel, graph.sequence, tile, chip) for kernel in own], chip.tiles)
    loaded = float(total(graph.kernels[place].weights for place in inside if not streamed >> place & 1))
    sram = total(held_bytes(problem, place, bool(streamed >> place & 1)) for place in inside)
    traffic = total(count * graph.kernels[place].weights for place in inside if streamed >> place & 1)
    kept = 0.0
    for tensor in problem.tensors:
        moved, stored = boundary_bytes(problem, tensor, group)
        traffic, kept = traffic + moved, kept + stored
        sram += on_chip(problem, tensor, group, tile)
    if shares is None or sram > chip.sram or (len(inside) > 1 and not problem.fused):
        return None
    cycles, tiles = shares
    compute = float(formulas.streamed_time(cycles, count, chip.clock))
    return Partition(
        names=tuple(kernel.name for kernel in own),
        tile=tile,
        tiles=tiles,
        streamed=tuple(graph.kernels[place].name for place in inside if streamed >> place & 1),
        compute=compute,
        memory=float(busy_time(traffic, chip.bandwidth)),
        network=total(network_time(problem, kernel, count) for kernel in own),
        ramp=float(formulas.ramp_time(compute, count, longest_path(graph, group))) if assumed.ramps else 0.0,
        start=chip.start if assumed.latency else 0.0,
        setup=float(busy_time(loaded, chip.bandwidth)),
        sram=sram,
        traffic=traffic,
        loaded=loaded,
        kept=kept,
    )


def allocation(options: Sequence[TileChoices], tiles: int) -> tuple[float, tuple[int, ...]] | None:
    """The least cycles per sequence tile at which all kernels run concurrently, and the compute tiles of each.

    Exact for any decrease of cycles with tiles: the answer is a time of one of the kernels, and with more time no kernel needs
    more tiles.
    """
    times = np.unique(np.concatenate([each.cycles for each in options]))
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if _needed(options, times[middle]) <= tiles:
            high = middle
        else:
            low = middle + 1
    if low == len(times):
        return None
    least = float(times[low])
    return least, tuple(int(each.tiles[each.within(least)]) for each in options)


def _needed(options: Sequence[TileChoices], cycles: float) -> float:
    found = 0.0
    for each in options:
        place = each.within(cycles)
        found += each.tiles[place] if place < len(each.tiles) else float("inf")
    return found


def held_bytes(problem: SpatialProblem, place: int, streamed: bool) -> float:
    """SRAM for a kernel's weights; for streamed weights, two slices as wide as a compute tile and as deep as the contraction."""
    kernel = problem.graph.kernels[place]
    if not streamed:
        return kernel.weights
    slices = ceil_div(kernel.rows, problem.chip.width)
    return min(kernel.weights, float(formulas.buffer_bytes(kernel.weights / slices, 1)))


def boundary_bytes(problem: SpatialProblem, tensor: SpatialTensor, group: Kernels) -> tuple[float, float]:
    """Bytes of a tensor that pass between DRAM and a partition, and bytes stored in DRAM for it."""
    read = [reader for reader in tensor.readers if group >> reader & 1]
    written = tensor.writer is not None and bool(group >> tensor.writer & 1)
    if written:
        crosses = tensor.leaves or len(read) < len(tensor.readers)
        return (tensor.bytes, tensor.bytes) if crosses else (0.0, 0.0)
    moved = tensor.bytes if read else 0.0
    return moved, moved if problem.assumptions.kept_twice else 0.0


def stalls(tensor: SpatialTensor, group: Kernels) -> bool:
    """Whether a partition would wait for itself: it writes the tensor, and needs all of it."""
    written = tensor.writer is not None and bool(group >> tensor.writer & 1)
    return tensor.needed_whole and written and any(group >> reader & 1 for reader in tensor.readers)


def on_chip(problem: SpatialProblem, tensor: SpatialTensor, group: Kernels, tile: int) -> float:
    """SRAM of a tensor in a partition: one buffer, deep enough for the most distant reader; memory is one step away."""
    if tensor.needed_whole and any(group >> reader & 1 for reader in tensor.readers):
        return max(tensor.bytes, tensor.gathered_bytes)
    levels = problem.graph.levels
    read = [levels[reader] for reader in tensor.readers if group >> reader & 1]
    away = 1 if problem.fused else 0
    if tensor.writer is not None and group >> tensor.writer & 1:
        distance = max([level - levels[tensor.writer] for level in read], default=away)
    elif read:
        distance = max(read) - min(read) + away
    else:
        return 0.0
    return float(formulas.buffer_bytes(tile_bytes(problem, tensor, tile), distance))


def tile_bytes(problem: SpatialProblem, tensor: SpatialTensor, tile: int) -> float:
    return float(np.ceil(max(tensor.bytes, tensor.gathered_bytes) / sequence_tiles(problem, tile)))


def network_time(problem: SpatialProblem, kernel: Kernel, tiles: int) -> float:
    """Time of the network per sample."""
    assumed = problem.assumptions
    conversions = kernel.conversions if assumed.conversions else 0.0
    return float(total((kernel.network, conversions, tiles * kernel.latency if assumed.latency else 0.0)))


def longest_path(graph: SpatialGraph, group: Kernels) -> int:
    """Number of kernels on the longest path inside a group."""
    found: dict[int, int] = {}
    for place, needed in enumerate(graph.needs):
        if group >> place & 1:
            found[place] = 1 + max((length for other, length in found.items() if needed >> other & 1), default=0)
    return max(found.values(), default=0)
