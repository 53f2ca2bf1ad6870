"""A chip as DFModel models it: compute tiles of lanes and stages, on-chip memory, DRAM. Kernels run fused, in the best
partitions, or one by one.

One by one, each kernel runs on all compute tiles, tensors that exceed the chip are streamed in pieces, and weights are read
once for all samples in a row. There is nothing to choose, so many problems are costed at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from halley.errors import BadInput, Fault
from halley.formulas.spatial import streamed_time
from halley.formulas.timing import busy_time
from halley.ir.hardware import Chip
from halley.ir.system import System
from halley.kernels.machine import machine
from halley.optim.downsets import Costs, Lattice, chain_lattice, lattice
from halley.spatial.chip import Array, SpatialChip, SpatialGraph, SpatialProblem, tile_choices
from halley.spatial.costs import network_time
from halley.spatial.growth import GrowthTables, growth_tables, remaining_bounds
from halley.spatial.solve import PartitionGroup, PartitionSearch, TiledGroup, sequence_choices

Chosen = TypeVar("Chosen")

LIMITING_RESOURCES = ("compute", "memory", "network")
"""What may limit a partition."""

MAX_TILES = 2048
"""Largest number of compute tiles that kernels are distributed over; on a chip with more cores, blocks of cores are tiles."""

EMPTY_DOWNSET = Lattice((0,), ((),))
"""For a lower bound of a whole layer by `halley.spatial.growth.remaining_bounds`."""


def dfmodel_chip(system: System, fused: bool, dtype: str = "bf16") -> SpatialChip:
    """The system's chip. ``fused``: kernels run concurrently, limited by on-chip memory; otherwise on-chip memory limits
    nothing.

    At its clock a lane and stage does one multiply-accumulate of the type. Raises BadInput: no matrix engine, or one without
    the type.
    """
    chip = system.chip
    rate = machine(chip).mac_rate(dtype)
    if chip.matrix is None:
        raise BadInput(Fault(f"chip {chip.name}", "a matrix engine", "none"))
    cores = math.prod(level.count for level in chip.levels)
    side = 1 if cores <= MAX_TILES else math.ceil(math.sqrt(cores / MAX_TILES))
    tiles, width, height = max(cores // side**2, 1), chip.matrix.rows * side, chip.matrix.cols * side
    memory = system.tiers[-1]
    return SpatialChip(
        tiles,
        width,
        height,
        rate / (tiles * width * height),
        on_chip_bytes(chip) if fused else math.inf,
        memory.capacity,
        memory.read_bandwidth,
    )


def on_chip_bytes(chip: Chip) -> float:
    """Bytes of all memories of a chip other than the outermost."""
    instances, found = 1, 0.0
    for place, level in enumerate(chip.levels):
        instances *= level.count
        found += instances * sum(memory.capacity for memory in level.memories[1 if place == 0 else 0 :])
    return found


@dataclass(frozen=True, slots=True)
class UnfusedCosts:
    """Costs of a graph's kernels one after the other, per sample: ``compute``, ``memory``, ``network`` [kernels] [s]; ``setup``
    [s] once for all samples in a row; ``kept`` [B] stored in DRAM."""

    compute: Array
    memory: Array
    network: Array
    setup: float
    kept: float

    @property
    def steady(self) -> float:
        """Time of all kernels, each the longest of the three [s]."""
        return float(np.maximum(np.maximum(self.compute, self.memory), self.network).sum())


def unfused_costs(problem: SpatialProblem) -> UnfusedCosts:
    """Costs without fusion, with the whole sequence as one tile: smaller tiles round up more often, and move and store the same
    bytes."""
    graph, chip = problem.graph, problem.chip
    cycles = [tile_choices(kernel, graph.sequence, graph.sequence, chip).cycles[-1] for kernel in graph.kernels]
    traffic = np.zeros(len(graph.kernels))
    kept = 0.0
    for tensor in problem.tensors:
        ends = [*tensor.readers, *(() if tensor.writer is None else (tensor.writer,))]
        np.add.at(traffic, ends, tensor.bytes)
        stored = len(tensor.readers) if problem.assumptions.kept_twice else 0
        kept += tensor.bytes * (stored + (tensor.writer is not None))
    return UnfusedCosts(
        np.asarray(streamed_time(np.array(cycles), 1, chip.clock)),
        np.asarray(busy_time(traffic, chip.bandwidth)),
        np.array([network_time(problem, kernel, 1) for kernel in graph.kernels]),
        float(busy_time(graph.weights, chip.bandwidth)),
        kept,
    )


def single_kernel_groups(graph: SpatialGraph) -> tuple[PartitionGroup, ...]:
    """Each kernel as a partition of its own."""
    return tuple((1 << place, 0) for place in range(len(graph.kernels)))


def usable_tables(problem: SpatialProblem) -> tuple[GrowthTables, ...]:
    """The tables of the search for each sequence tile with which every kernel fits on the chip."""
    made = (growth_tables(problem, tile) for tile in sequence_choices(problem.graph.sequence))
    return tuple(each for each in made if each is not None)


def floor_costs(made: GrowthTables) -> Costs:
    """A lower bound of the costs of a layer over all partitions."""
    return remaining_bounds(made, EMPTY_DOWNSET)[0]


@dataclass(slots=True)
class TileSearch(Generic[Chosen]):
    """The search for the best partitions with one sequence tile, as a part of a larger ``choice``: its times are ``scale``
    times a layer's, and at least ``least`` [s]. ``floor``: a lower bound of the layer's costs (`floor_costs`).

    It is a `halley.spatial.solve.LimitedSearch`, so searches of several choices can share a limit.
    """

    choice: Chosen
    made: GrowthTables
    floor: Costs
    scale: float
    least: float
    _search: PartitionSearch | None = None

    @property
    def root(self) -> float:
        """A lower bound [s]."""
        return max(self.made.problem.value(*self.floor) * self.scale, self.least)

    def consecutive(self, limit: float) -> tuple[tuple[TiledGroup, ...], float]:
        """The best partitions into consecutive kernels below the limit."""
        return self._below(PartitionSearch((self.made,), chain_lattice(len(self.made.problem.graph.kernels))), limit)

    def __call__(self, limit: float = math.inf) -> tuple[tuple[TiledGroup, ...], float]:
        """The best partitions below the limit and their time; empty, and the limit, where there are none."""
        if self._search is None:
            self._search = PartitionSearch((self.made,), lattice(self.made.problem.graph.needs))
        return self._below(self._search, limit)

    def _below(self, search: PartitionSearch, limit: float) -> tuple[tuple[TiledGroup, ...], float]:
        if self.least >= limit:
            return (), limit
        groups, layer = search(limit / self.scale)
        time = max(layer * self.scale, self.least)
        return (groups, time) if groups and time < limit else ((), limit)
