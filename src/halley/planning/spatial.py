"""Spatial chips: kernels fused into partitions that run one after the other, each kernel on compute tiles of its own.

What a partition takes is put together here from `halley.formulas.spatial`, for one partition at a time;
`halley.planning.partitioning` finds the best of all. Extents and bytes are those of one chip, after sharding, for one sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas import spatial as formulas
from halley.formulas.numbers import ceil_div
from halley.formulas.timing import busy_time, longest, total
from halley.search.partitions import Kernels

Array: TypeAlias = NDArray[np.float64]


class Engine(StrEnum):
    """What of a compute tile a kernel uses."""

    MATRIX = "matrix"
    VECTOR = "vector"


class Walked(StrEnum):
    """The dim of a kernel that the sequence tiles cut: columns of its result, or its contraction (gradients of weights)."""

    COLUMNS = "columns"
    DEPTH = "depth"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the model counts; the published models differ in nothing else.

    ``ramps``: filling and draining a partition's pipeline. ``latency``: the start of a partition, and collectives' latency for
    each sequence tile. ``conversions``: layout conversions occupy the network. ``streaming``: weights may be read again for each
    sequence tile instead of being kept. ``shared``: a tensor with several readers is stored once, and loaded once per partition;
    else each reader has a copy of its own. ``boundary``: what enters and leaves the graph passes through memory.
    ``kept_twice``: memory keeps a tensor for its writer and again for its reader.
    """

    ramps: bool
    latency: bool
    conversions: bool
    streaming: bool
    shared: bool
    boundary: bool
    kept_twice: bool


DFMODEL = Assumptions(False, False, False, streaming=False, shared=False, boundary=False, kept_twice=True)
"""As the published code of DFModel has it (arXiv 2412.16432)."""

HALLEY = Assumptions(True, True, True, streaming=True, shared=True, boundary=True, kept_twice=False)

MODELS = {"dfmodel": DFMODEL, "halley": HALLEY}


@dataclass(frozen=True, slots=True)
class SpatialChip:
    """``tiles`` compute tiles of ``width`` lanes x ``height`` stages at ``clock`` [1/s]; ``sram``, ``dram`` [B]; ``bandwidth``
    [B/s] of the DRAM; ``start`` [s] until a partition runs."""

    tiles: int
    width: int
    height: int
    clock: float
    sram: float
    dram: float
    bandwidth: float
    start: float = 0.0

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("tiles", "width", "height", "clock", "sram", "dram", "bandwidth")}
        faults = [Fault(f"spatial chip, {name}", "a number above 0", f"{size}") for name, size in sizes.items() if not size > 0]
        if not self.start >= 0:
            faults.append(Fault("spatial chip, start", "at least 0 s", f"{self.start}"))
        if faults:
            raise BadInput(faults)

    @property
    def peak(self) -> float:
        """Operations per second."""
        return float(formulas.peak_rate(self.width * self.height * self.tiles, self.clock))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's part on one chip.

    ``rows`` x ``columns``, contraction ``depth`` (1 where there is none); ``weights`` [B] that it needs; ``network`` [s] of its
    collectives, without latency, and ``conversions`` [s] of its operands' layouts; ``latency`` [s] of its collectives for one
    sequence tile; ``work`` [1] operations of a sample."""

    name: str
    engine: Engine
    rows: int
    columns: int
    depth: int = 1
    walked: Walked = Walked.COLUMNS
    weights: float = 0.0
    network: float = 0.0
    conversions: float = 0.0
    latency: float = 0.0

    @property
    def work(self) -> float:
        per_point = 2.0 * self.depth if self.engine is Engine.MATRIX else 1.0
        return per_point * self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Tensor:
    """``bytes`` of a sample that kernel ``writer`` (None: it comes from outside) hands to ``readers``; ``leaves``: it is wanted
    outside."""

    writer: int | None
    readers: tuple[int, ...]
    bytes: float
    leaves: bool = False


@dataclass(frozen=True)
class Graph:
    """Kernels in an order in which they can run, the tensors between them, and the points of the ``sequence`` that is tiled.

    Raises BadInput: a tensor whose writer does not come before its readers, or that names no kernel; sizes that are not positive.
    """

    kernels: tuple[Kernel, ...]
    tensors: tuple[Tensor, ...]
    sequence: int

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise BadInput(faults)

    def _faults(self) -> Iterator[Fault]:
        if not self.kernels or self.sequence < 1:
            yield Fault("graph", "a kernel, and a sequence of at least 1", f"{len(self.kernels)} kernels, {self.sequence} points")
        for kernel in self.kernels:
            if min(kernel.rows, kernel.columns, kernel.depth) < 1:
                got = f"{kernel.rows} x {kernel.columns} x {kernel.depth}"
                yield Fault(f"kernel {kernel.name}", "extents of at least 1", got)
            if min(kernel.weights, kernel.network, kernel.conversions, kernel.latency) < 0:
                yield Fault(f"kernel {kernel.name}", "bytes and times of at least 0", "a negative one")
        for place, tensor in enumerate(self.tensors):
            least = -1 if tensor.writer is None else tensor.writer
            if tensor.bytes < 0:
                yield Fault(f"tensor {place}", "bytes of at least 0", f"{tensor.bytes:g}")
            if least < -1 or not all(least < reader < len(self.kernels) for reader in tensor.readers):
                expected = f"readers after its writer, among {len(self.kernels)} kernels"
                remedy = "put the kernels into an order in which they can run; a circle has none"
                yield Fault(f"tensor {place}", expected, f"kernel {tensor.writer} to {list(tensor.readers)}", remedy)
            if len(set(tensor.readers)) < len(tensor.readers) or least >= len(self.kernels):
                yield Fault(f"tensor {place}", "kernels of the graph, each once", f"{tensor.writer} to {list(tensor.readers)}")

    @cached_property
    def needs(self) -> tuple[Kernels, ...]:
        """For each kernel those that it reads from."""
        found = [0] * len(self.kernels)
        for tensor in self.tensors:
            for reader in tensor.readers:
                found[reader] |= 0 if tensor.writer is None else 1 << tensor.writer
        return tuple(found)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """For each kernel the longest way to it: a tensor is on its way for as many steps as its ends are levels apart."""
        found: list[int] = []
        for needed in self.needs:
            found.append(max((level + 1 for place, level in enumerate(found) if needed >> place & 1), default=0))
        return tuple(found)

    @property
    def work(self) -> float:
        return float(total(kernel.work for kernel in self.kernels))

    @property
    def weights(self) -> float:
        return float(total(kernel.weights for kernel in self.kernels))


@dataclass(frozen=True)
class Problem:
    """A layer's graph on a chip that is one of ``stages`` pipeline stages; ``layers`` such layers are dealt out evenly over them.

    ``transfer`` [s]: of a sample to the next stage, beside a layer's work. ``fused``: False runs kernel by kernel, each alone.
    ``most``: samples that a partition may work off in a row; memory may hold fewer, but has to hold the ``fewest``.
    """

    graph: Graph
    chip: SpatialChip
    assumptions: Assumptions
    layers: int = 1
    stages: int = 1
    transfer: float = 0.0
    fused: bool = True
    most: float = float("inf")
    fewest: float = 1.0

    def __post_init__(self) -> None:
        counts = {name: getattr(self, name) for name in ("layers", "stages", "most")}
        faults = [Fault(f"problem, {name}", "at least 1", f"{count}") for name, count in counts.items() if not count >= 1]
        if not self.transfer >= 0:
            faults.append(Fault("problem, transfer", "at least 0 s", f"{self.transfer}"))
        if not 1 <= self.fewest <= self.most:
            faults.append(Fault("problem, fewest", f"from 1 to most, {self.most}", f"{self.fewest}"))
        if faults:
            raise BadInput(faults)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Of the graph, as the assumptions see them."""
        found = self.graph.tensors
        if not self.assumptions.boundary:
            found = tuple(replace(tensor, leaves=False) for tensor in found if tensor.writer is not None)
        if not self.assumptions.shared:
            found = tuple(
                replace(tensor, readers=(reader,), leaves=False) for tensor in found for reader in tensor.readers
            ) + tuple(replace(tensor, readers=()) for tensor in found if tensor.leaves)
        return tuple(tensor for tensor in found if tensor.readers or tensor.leaves)

    def samples(self, kept: float) -> float:
        """Samples that a partition works off in a row where a layer keeps ``kept`` bytes of each; 0 if not even one fits."""
        def held(bytes_: float) -> float:
            return float(formulas.resident_samples(self.chip.dram, self.stages, self.layers, self.graph.weights, bytes_))

        if kept == 0:
            return self.most if held(1.0) >= 0 else 0.0
        return max(0.0, min(self.most, held(kept)))

    def value(self, steady: float, once: float, kept: float) -> float:
        """Time of a layer per sample; infinite if the fewest samples do not fit into memory."""
        samples = self.samples(kept)
        return float(formulas.amortised_time(steady, once, samples)) if samples >= self.fewest else float("inf")


@dataclass(frozen=True)
class Choices:
    """Of one kernel: on how many compute tiles it takes which cycles per sequence tile. ``tiles`` ascend, ``cycles`` fall;
    ``lanes`` x ``stages`` of them are the compute tiles."""

    tiles: Array
    cycles: Array
    lanes: Array
    stages: Array

    def within(self, cycles: float) -> int:
        """Place of the fewest compute tiles that take at most this; all places where none does."""
        return int(np.searchsorted(-self.cycles, -cycles))


def per_tile(kernel: Kernel, sequence: int, tile: int) -> tuple[int, int, int]:
    """Rows, columns and depth of one sequence tile."""
    match kernel.walked:
        case Walked.COLUMNS:
            return kernel.rows, ceil_div(kernel.columns * min(tile, sequence), sequence), kernel.depth
        case Walked.DEPTH:
            return kernel.rows, kernel.columns, ceil_div(kernel.depth * min(tile, sequence), sequence)
        case _:
            assert_never(kernel.walked)


def choices(kernel: Kernel, sequence: int, tile: int, chip: SpatialChip) -> Choices:
    """Every number of compute tiles that is of use to a kernel."""
    return _choices(kernel.engine, *per_tile(kernel, sequence, tile), chip.tiles, chip.width, chip.height)


@cache
def _choices(engine: Engine, rows: int, columns: int, depth: int, tiles: int, width: int, height: int) -> Choices:
    lanes, stages = _counts(ceil_div(rows, width), tiles), np.ones(1)
    if engine is Engine.MATRIX:
        stages = _counts(ceil_div(columns, height), tiles)
    lanes, stages = (each.ravel() for each in np.meshgrid(lanes, stages))
    if engine is Engine.MATRIX:
        cycles = formulas.matrix_tile_cycles(float(rows), float(columns), float(depth), lanes * width, stages * height)
    else:
        cycles = formulas.vector_tile_cycles(float(rows), float(columns), lanes * width)
    order = np.lexsort((cycles, lanes * stages))
    order = order[(lanes * stages)[order] <= tiles]
    least = np.minimum.accumulate(cycles[order])
    order = order[np.concatenate(([True], least[1:] < least[:-1]))]
    return Choices((lanes * stages)[order], cycles[order], lanes[order], stages[order])


def _counts(parts: int, most: int) -> Array:
    """Of the numbers up to ``most``, the least of those that cover ``parts`` in as many rounds."""
    rounds = np.unique(ceil_div(parts, np.arange(1, min(parts, most) + 1)))
    return np.asarray(np.unique(ceil_div(parts, rounds)), dtype=np.float64)


@dataclass(frozen=True)
class Partition:
    """What one partition takes. Times are per sample; ``ramp``, ``start`` and ``setup`` are paid once for all in a row.

    ``tiles``: compute tiles of each kernel. ``traffic``: bytes between DRAM and chip; ``kept``: bytes that DRAM keeps."""

    names: tuple[str, ...]
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
    kept: float

    @property
    def steady(self) -> float:
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
    """What a group of kernels takes, with sequence tiles of ``tile`` points; None if it does not fit the chip.

    ``streamed``: kernels whose weights are read for each sequence tile."""
    graph, chip, assumed = problem.graph, problem.chip, problem.assumptions
    count = sequence_tiles(problem, tile)
    inside = [place for place in range(len(graph.kernels)) if group >> place & 1]
    own = [graph.kernels[place] for place in inside]
    shares = allocation([choices(kernel, graph.sequence, tile, chip) for kernel in own], chip.tiles)
    held = [place for place in inside if not streamed >> place & 1]
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
        tiles=tiles,
        streamed=tuple(graph.kernels[place].name for place in inside if streamed >> place & 1),
        compute=compute,
        memory=busy_time(traffic, chip.bandwidth),
        network=total(network_time(problem, kernel, count) for kernel in own),
        ramp=float(formulas.ramp_time(compute, count, longest_path(graph, group))) if assumed.ramps else 0.0,
        start=chip.start if assumed.latency else 0.0,
        setup=busy_time(total(graph.kernels[place].weights for place in held), chip.bandwidth),
        sram=sram,
        traffic=traffic,
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


def on_chip(problem: Problem, tensor: Tensor, group: Kernels, tile: int) -> float:
    """SRAM of a tensor in a partition: one buffer, deep enough for the reader furthest away; memory is one step away."""
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
    return float(np.ceil(tensor.bytes / sequence_tiles(problem, tile)))


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
