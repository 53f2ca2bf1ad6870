"""Spatial chips: kernels fused into partitions that run one after the other, each kernel on compute tiles of its own.

The values: kernels, tensors between them, chips, and the cycles of a kernel by compute tiles. `halley.spatial.costs` gives the
costs of a partition; `halley.spatial.solve` finds the best partitions. Extents and bytes are those of one chip, after sharding,
for one sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas import spatial as formulas
from halley.formulas.numbers import ceil_div
from halley.formulas.timing import total
from halley.mapping.space.partitions import Kernels

Array: TypeAlias = NDArray[np.float64]


class Engine(StrEnum):
    """The part of a compute tile that a kernel uses."""

    MATRIX = "matrix"
    VECTOR = "vector"


class TiledDim(StrEnum):
    """The dim of a kernel that sequence tiles divide: columns of its result, or its contraction (gradients of weights)."""

    COLUMNS = "columns"
    DEPTH = "depth"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the model counts. The published models differ in nothing else.

    ``ramps``: filling and draining a partition's pipeline. ``latency``: the start of a partition, and the latency of
    collectives for each sequence tile. ``conversions``: layout conversions occupy the network. ``streaming``: weights may be
    read again for each sequence tile instead of staying on the chip. ``shared``: a tensor with several readers is stored once,
    and loaded once per partition; otherwise each reader has its own copy. ``boundary``: inputs and outputs of the graph pass
    through memory. ``kept_twice``: memory stores a tensor for its writer and again for its reader.
    """

    ramps: bool
    latency: bool
    conversions: bool
    streaming: bool
    shared: bool
    boundary: bool
    kept_twice: bool


DFMODEL = Assumptions(False, False, False, streaming=False, shared=False, boundary=False, kept_twice=True)
"""As in the published code of DFModel (arXiv 2412.16432)."""

HALLEY = Assumptions(True, True, True, streaming=True, shared=True, boundary=True, kept_twice=False)


@dataclass(frozen=True, slots=True)
class SpatialChip:
    """``tiles`` compute tiles of ``width`` lanes x ``height`` stages at ``clock`` [1/s]; ``sram``, ``dram`` [B], infinite where
    the capacity is checked elsewhere; ``bandwidth`` [B/s] of the DRAM; ``start`` [s] until a partition runs."""

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

    ``rows`` x ``columns``, contraction ``depth`` (1 without one); ``weights`` [B]; ``network`` [s]: its collectives without
    latency; ``conversions`` [s]: of its operands' layouts; ``latency`` [s]: of its collectives per sequence tile; ``work`` [1]:
    operations per sample.

    ``cycles`` [1]: lane cycles per point of an elementwise kernel. ``unfused_time`` [s]: as a separate kernel on the whole chip
    that stores nothing on it, without its network, which follows. It then needs no SRAM, and moves ``unfused_traffic`` [B],
    which is less than its tensors where it generates some of them itself (an attention core, random masks). ``unfused``: it can
    only run that way.
    """

    name: str
    engine: Engine
    rows: int
    columns: int
    depth: int = 1
    tiled: TiledDim = TiledDim.COLUMNS
    weights: float = 0.0
    network: float = 0.0
    conversions: float = 0.0
    latency: float = 0.0
    cycles: float = 1.0
    unfused_time: float = float("inf")
    unfused_traffic: float = 0.0
    unfused: bool = False

    @property
    def work(self) -> float:
        per_point = 2.0 * self.depth if self.engine is Engine.MATRIX else 1.0
        return per_point * self.rows * self.columns

    @property
    def unfused_total(self) -> float:
        """Time as a separate kernel followed by its network; infinite where that is impossible [s]."""
        return self.unfused_time + self.all_network

    @property
    def all_network(self) -> float:
        """Time of its network for a whole sample at once [s]."""
        return self.network + self.conversions + self.latency


@dataclass(frozen=True, slots=True)
class SpatialTensor:
    """``bytes`` per sample that kernel ``writer`` (None: an input of the graph) passes to ``readers``; ``leaves``: it is an
    output.

    ``gathered_bytes`` [B]: its size for readers, where collectives enlarge it. ``least_read`` [B]: what each reader reads at
    least, if not all. ``needed_whole``: readers need all of it before they start, so none is in a partition with the writer,
    and a partition that reads it holds all of it.
    """

    writer: int | None
    readers: tuple[int, ...]
    bytes: float
    leaves: bool = False
    gathered_bytes: float = 0.0
    least_read: float = float("inf")
    needed_whole: bool = False


@dataclass(frozen=True)
class SpatialGraph:
    """Kernels in an order in which they can run, the tensors between them, and the number of points of the ``sequence`` that is
    tiled.

    Raises BadInput: a tensor whose writer does not precede its readers, or that names no kernel; sizes that are not positive.
    """

    kernels: tuple[Kernel, ...]
    tensors: tuple[SpatialTensor, ...]
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
            times = kernel.network, kernel.conversions, kernel.latency, kernel.cycles, kernel.unfused_time
            if min(kernel.weights, kernel.unfused_traffic, *times) < 0:
                yield Fault(f"kernel {kernel.name}", "bytes and times of at least 0", "a negative one")
        for place, tensor in enumerate(self.tensors):
            least = -1 if tensor.writer is None else tensor.writer
            if min(tensor.bytes, tensor.gathered_bytes, tensor.least_read) < 0:
                yield Fault(
                    f"tensor {place}", "bytes of at least 0", f"{min(tensor.bytes, tensor.gathered_bytes, tensor.least_read):g}"
                )
            if least < -1 or not all(least < reader < len(self.kernels) for reader in tensor.readers):
                expected = f"readers after its writer, among {len(self.kernels)} kernels"
                remedy = "put the kernels into an order in which they can run; a cycle has none"
                yield Fault(f"tensor {place}", expected, f"kernel {tensor.writer} to {list(tensor.readers)}", remedy)
            if len(set(tensor.readers)) < len(tensor.readers) or least >= len(self.kernels):
                yield Fault(f"tensor {place}", "kernels of the graph, each once", f"{tensor.writer} to {list(tensor.readers)}")

    @cached_property
    def needs(self) -> tuple[Kernels, ...]:
        """For each kernel the set of kernels that it reads from."""
        found = [0] * len(self.kernels)
        for tensor in self.tensors:
            for reader in tensor.readers:
                found[reader] |= 0 if tensor.writer is None else 1 << tensor.writer
        return tuple(found)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """For each kernel the longest path to it; a tensor is buffered for as many steps as its ends differ in level."""
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
class SpatialProblem:
    """A layer's graph on a chip that is one of ``stages`` pipeline stages, over which ``layers`` such layers are evenly
    distributed.

    ``transfer`` [s]: of a sample to the next stage, in parallel with a layer's work. ``fused``: False runs kernels one by one.
    ``most``: samples that a partition may process in a row; memory may hold fewer, but at least the ``fewest``.
    """

    graph: SpatialGraph
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
        if not self.one_sample and any(kernel.unfused_time < math.inf for kernel in self.graph.kernels):
            expected = "one sample at a time, and a memory without a limit here, where kernels may run unfused"
            faults.append(Fault("problem", expected, f"most {self.most}, {self.chip.dram} B"))
        if faults:
            raise BadInput(faults)

    @cached_property
    def tensors(self) -> tuple[SpatialTensor, ...]:
        """The graph's tensors under the assumptions."""
        found = self.graph.tensors
        if not self.assumptions.boundary:
            found = tuple(replace(tensor, leaves=False) for tensor in found if tensor.writer is not None)
        if not self.assumptions.shared:
            found = tuple(
                replace(tensor, readers=(reader,), leaves=False) for tensor in found for reader in tensor.readers
            ) + tuple(replace(tensor, readers=()) for tensor in found if tensor.leaves)
        return tuple(tensor for tensor in found if tensor.readers or tensor.leaves)

    @property
    def one_sample(self) -> bool:
        """Whether a layer processes one sample at a time for all partitions, so only the sum of its times counts."""
        return self.most == 1 and self.chip.dram == math.inf

    def samples(self, kept: float) -> float:
        """Samples that a partition processes in a row if a layer stores ``kept`` bytes per sample; 0 if not even one fits."""
        if self.chip.dram == math.inf:
            return self.most

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
class TileChoices:
    """Cycles per sequence tile of one kernel, by number of compute tiles: ``tiles`` ascend, ``cycles`` decrease; the compute
    tiles are ``lanes`` x ``stages``."""

    tiles: Array
    cycles: Array
    lanes: Array
    stages: Array

    def within(self, cycles: float) -> int:
        """Index of the fewest compute tiles that take at most these cycles; the number of choices if none does."""
        return int(np.searchsorted(-self.cycles, -cycles))


def per_tile(kernel: Kernel, sequence: int, tile: int) -> tuple[int, int, int]:
    """Rows, columns and depth of one sequence tile."""
    match kernel.tiled:
        case TiledDim.COLUMNS:
            return kernel.rows, ceil_div(kernel.columns * min(tile, sequence), sequence), kernel.depth
        case TiledDim.DEPTH:
            return kernel.rows, kernel.columns, ceil_div(kernel.depth * min(tile, sequence), sequence)
        case _:
            assert_never(kernel.tiled)


def tile_choices(kernel: Kernel, sequence: int, tile: int, chip: SpatialChip) -> TileChoices:
    """Every number of compute tiles that is faster than fewer."""
    found = _choices(kernel.engine, *per_tile(kernel, sequence, tile), chip.tiles, chip.width, chip.height)
    return found if kernel.engine is Engine.MATRIX else replace(found, cycles=found.cycles * kernel.cycles)


@cache
def _choices(engine: Engine, rows: int, columns: int, depth: int, tiles: int, width: int, height: int) -> TileChoices:
    lanes, stages = _counts(ceil_div(rows, width), tiles), np.ones(1)
    if engine is Engine.MATRIX:
        stages = _counts(ceil_div(columns, height), tiles)
    lanes, stages = (each.ravel() for each in np.meshgrid(lanes, stages))
    if engine is Engine.MATRIX:
        taken = formulas.matrix_tile_cycles(float(rows), float(columns), float(depth), lanes * width, stages * height)
    else:
        taken = formulas.vector_tile_cycles(float(rows), float(columns), lanes * width)
    cycles = np.asarray(taken)
    order = np.lexsort((cycles, lanes * stages))
    order = order[(lanes * stages)[order] <= tiles]
    least = np.minimum.accumulate(cycles[order])
    order = order[np.concatenate(([True], least[1:] < least[:-1]))]
    return TileChoices((lanes * stages)[order], cycles[order], lanes[order], stages[order])


def _counts(parts: int, most: int) -> Array:
    """The numbers up to ``most`` that are the least to cover ``parts`` in some number of rounds."""
    rounds = np.unique(ceil_div(parts, np.arange(1.0, min(parts, most) + 1)))
    return np.asarray(np.unique(ceil_div(parts, rounds)))
