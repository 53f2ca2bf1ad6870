"""What a partition of a spatial chip takes: the kernels of it side by side on compute tiles of their own, or a kernel alone.

Put together from `halley.formulas.spatial`, for one partition at a time; `halley.spatial.solve` finds the best of all.
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
from halley.spatial.chip import Choices, Graph, Kernel, Problem, Tensor, choices


@dataclass(frozen=True)
class Partition:
    """What one partition takes. Times are per sample; ``ramp``, ``start`` and ``setup`` are paid once for all in a row.

    ``tile``: points of a sequence tile; ``tiles``: compute tiles of each kernel. ``traffic``: bytes between DRAM and chip for a
    sample, ``loaded``: of weights, once for all in a row; ``kept``: bytes that DRAM keeps.
    ``apart``: a kernel that runs alone and keeps nothing on the chip (`Kernel.alone`); its network follows its work."""

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
    apart: bool = False

    @property
    def steady(self) -> float:
        if self.apart:
            return self.compute + self.network
        return float(longest((self.compute, self.memory, self.network)))

    @property
    def once(self) -> float:
        return float(total((self.ramp, self.start, self.setup)))

    @property
    def bottleneck(self) -> str:
        return max(("compute", "memory", "network"), key=lambda name: float(getattr(self, name)))


def sequence_tiles(problem: Problem, tile: int) -> int:
    return int(ceil_div(problem.graph.sequence, tile))


def partition(problem: Problem, tile: int, group: Kernels, streamed: Kernels = 0) -> Partition | None:
    """What a group of kernels takes, with sequence tiles of ``tile`` points; None if it does not fit the chip. A single kernel
    runs alone where that is faster.

    ``streamed``: kernels whose weights are read for each sequence tile."""
    found = _side_by_side(problem, tile, group, streamed)
    if group.bit_count() == 1:
        kernel = problem.graph.kernels[group.bit_length() - 1]
        if kernel.alone < math.inf and (found is None or kernel.one_by_one <= found.steady + found.once):
            return _apart(problem, group.bit_length() - 1)
    return found


def _apart(problem: Problem, place: int) -> Partition:
    """A kernel on the whole chip, which keeps nothing there."""
    kernel, chip = problem.graph.kernels[place], problem.chip
    return Partition(
        names=(kernel.name,),
        tile=problem.graph.sequence,
        tiles=(chip.tiles,),
        streamed=(),
        compute=kernel.alone,
        memory=0.0,
        network=kernel.all_network,
        ramp=0.0,
        start=0.0,
        setup=0.0,
        sram=0.0,
        traffic=kernel.alone_traffic,
        loaded=0.0,
        kept=float(total(crossing(problem, tensor, 1 << place)[1] for tensor in problem.tensors)),
        apart=True,
    )


def _side_by_side(problem: Problem, tile: int, group: Kernels, streamed: Kernels) -> Partition | None:
    """The kernels of a group on compute tiles of their own."""
    graph, chip, assumed = problem.graph, problem.chip, problem.assumptions
    count = sequence_tiles(problem, tile)
    inside = [place for place in range(len(graph.kernels)) if group >> place & 1]
    own = [graph.kernels[place] for place in inside]
    if any(kernel.apart for kernel in own) or any(stalls(tensor, group) for tensor in graph.tensors):
        return None
    shares = allocation([choices(kernel, graph.sequence, tile, chip) for kernel in own], chip.tiles)
    loaded = float(total(graph.kernels[place].weights for place in inside if not streamed >> place & 1))
    sram = total(held_bytes(problem, place, bool(streamed >> place & 1)) for place in inside)
    traffic = total(count * graph.kernels[place].weights for place in inside if streamed >> place & 1)
    kept = 0.0
    for tensor in problem.tensors:
        moved, stored = crossing(problem, tensor, group)
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
        memory=busy_time(traffic, chip.bandwidth),
        network=total(network_time(problem, kernel, count) for kernel in own),
        ramp=float(formulas.ramp_time(compute, count, longest_path(graph, group))) if assumed.ramps else 0.0,
        start=chip.start if assumed.latency else 0.0,
        setup=busy_time(loaded, chip.bandwidth),
        sram=sram,
        traffic=traffic,
        loaded=loaded,
        kept=kept,
    )


def allocation(options: Sequence[Choices], tiles: int) -> tuple[float, tuple[int, ...]] | None:
    """The least cycles in which all kernels get through a sequence tile side by side, and the compute tiles of each.

    Exact for any fall of cycles with tiles: the answer is a time of one of the kernels, and with more time none needs more tiles.
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


def _needed(options: Sequence[Choices], cycles: float) -> float:
    found = 0.0
    for each in options:
        place = each.within(cycles)
        found += each.tiles[place] if place < len(each.tiles) else float("inf")
    return found


def held_bytes(problem: Problem, place: int, streamed: bool) -> float:
    """SRAM for a kernel's weights; of weights that stream, two slices: as wide as a compute tile, as deep as the contraction."""
    kernel = problem.graph.kernels[place]
    if not streamed:
        return kernel.weights
    slices = ceil_div(kernel.rows, problem.chip.width)
    return min(kernel.weights, float(formulas.buffer_bytes(kernel.weights / slices, 1)))


def crossing(problem: Problem, tensor: Tensor, group: Kernels) -> tuple[float, float]:
    """Bytes of a tensor that pass between DRAM and a partition, and bytes that DRAM keeps for it."""
    read = [reader for reader in tensor.readers if group >> reader & 1]
    written = tensor.writer is not None and bool(group >> tensor.writer & 1)
    if written:
        crosses = tensor.leaves or len(read) < len(tensor.readers)
        return (tensor.bytes, tensor.bytes) if crosses else (0.0, 0.0)
    moved = tensor.bytes if read else 0.0
    return moved, moved if problem.assumptions.kept_twice else 0.0


def stalls(tensor: Tensor, group: Kernels) -> bool:
    """A partition would have to wait for itself: it writes the tensor, and needs all of it."""
    written = tensor.writer is not None and bool(group >> tensor.writer & 1)
    return tensor.whole and written and any(group >> reader & 1 for reader in tensor.readers)


def on_chip(problem: Problem, tensor: Tensor, group: Kernels, tile: int) -> float:
    """SRAM of a tensor in a partition: one buffer, deep enough for the reader furthest away; memory is one step away."""
    if tensor.whole and any(group >> reader & 1 for reader in tensor.readers):
        return max(tensor.bytes, tensor.spread)
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


def tile_bytes(problem: Problem, tensor: Tensor, tile: int) -> float:
    return float(np.ceil(max(tensor.bytes, tensor.spread) / sequence_tiles(problem, tile)))


def network_time(problem: Problem, kernel: Kernel, tiles: int) -> float:
    """Time of the network for a sample."""
    assumed = problem.assumptions
    conversions = kernel.conversions if assumed.conversions else 0.0
    return float(total((kernel.network, conversions, tiles * kernel.latency if assumed.latency else 0.0)))


def longest_path(graph: Graph, group: Kernels) -> int:
    """Kernels on the longest path inside a group."""
    found: dict[int, int] = {}
    for place, needed in enumerate(graph.needs):
        if group >> place & 1:
            found[place] = 1 + max((length for other, length in found.items() if needed >> other & 1), default=0)
    return max(found.values(), default=0)
