"""The search of `halley.spatial.solve` as arrays, for the compiled loop of `halley.spatial.growth_compiled`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.optim.downsets import Costs, Lattice
from halley.spatial.chip import Array
from halley.spatial.growth import GrowthTables

Indices: TypeAlias = NDArray[np.int64]

UNLIMITED_BYTES = 1e300
"""Bytes of a memory without a limit, as a finite number."""


class LatticeArrays(NamedTuple):
    """Downsets (bit sets); the steps of downset i are entries ``starts[i]`` to ``starts[i + 1]`` of ``kernels`` and
    ``targets``."""

    downsets: Indices
    starts: Indices
    kernels: Indices
    targets: Indices


class KernelArrays(NamedTuple):
    """By kernel: the kernels it needs (bit set), its level, compute tiles by sequence tile and time, least time on all compute
    tiles, network by sequence tile; from ``starts`` on its variants (their streamed bytes by sequence tile) and tensors; its
    unfused time, and the lower bound of its network."""

    needs: Indices
    levels: Indices
    needed: Array
    area: Array
    network: Array
    variant_starts: Indices
    held: Array
    loaded: Array
    streamed: Array
    write_starts: Indices
    writes: Indices
    read_starts: Indices
    reads: Indices
    unfused_time: Array
    least_network: Array


class TensorArrays(NamedTuple):
    """By tensor: its writer (-1: outside), number of readers, whether it leaves, whether readers need all of it, bytes per
    sample, bytes held by such readers, and bytes per sequence tile."""

    writers: Indices
    readers: Indices
    leaves: Indices
    needed_whole: Indices
    moved: Array
    gathered_bytes: Array
    slices: Array


class ProblemNumbers(NamedTuple):
    """Numbers of the problem. ``away``: steps between chip and memory, 0 where kernels run one by one."""

    tiles: float
    sram: float
    bandwidth: float
    dram: float
    stages: float
    layers: float
    weights: float
    most: float
    start: float
    fewest: float
    ramps: int
    kept_twice: int
    away: int
    one_sample: int


class SearchArrays(NamedTuple):
    """The inputs of the loop: ``times`` [s] of kernels and ``counts`` [1] of sequence tiles per sequence, by sequence tile;
    ``rest`` from `halley.spatial.growth.remaining_bounds`."""

    steps: LatticeArrays
    kernels: KernelArrays
    tensors: TensorArrays
    machine: ProblemNumbers
    times: Array
    counts: Array
    rest: Array


def search_arrays(made: Sequence[GrowthTables], downsets: Lattice, rest: Sequence[Costs]) -> SearchArrays:
    """``made``: by sequence tile that a partition may have."""
    counts = np.array([float(each.count) for each in made])
    times = _stacked([each.times for each in made])
    return SearchArrays(_steps(downsets), _kernels(made), _tensors(made), _machine(made[0]), times, counts, np.array(rest))


def _rows(rows: Sequence[Sequence[Any]]) -> tuple[Indices, list[Any]]:
    """Start of each row, and all entries in one list."""
    starts = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    return starts, [entry for row in rows for entry in row]


def _stacked(search_arrays: Sequence[Array]) -> Array:
    """Stacks arrays that differ in the length of their last axis; shorter ones repeat their last entry."""
    length = max(each.shape[-1] for each in search_arrays)
    widths = [[(0, 0)] * (each.ndim - 1) + [(0, length - each.shape[-1])] for each in search_arrays]
    return np.stack([np.pad(each, width, mode="edge") for each, width in zip(search_arrays, widths, strict=True)])


def _integers(values: Sequence[int]) -> Indices:
    return np.array(values, dtype=np.int64)


@lru_cache(maxsize=16)
def _steps(downsets: Lattice) -> LatticeArrays:
    starts, entries = _rows(downsets.steps)
    pairs = np.array(entries, dtype=np.int64).reshape(-1, 2)
    return LatticeArrays(_integers(downsets.downsets), starts, pairs[:, 0].copy(), pairs[:, 1].copy())


def _kernels(tables: Sequence[GrowthTables]) -> KernelArrays:
    made = tables[0]
    graph = made.problem.graph
    variant_starts, variants = _rows(made.variants)
    sizes = np.array(variants, dtype=np.float64).reshape(-1, 3)
    streamed = [[variant.streamed for row in each.variants for variant in row] for each in tables]
    write_starts, writes = _rows(made.writes)
    read_starts, reads = _rows(made.reads)
    return KernelArrays(
        _integers(graph.needs),
        _integers(graph.levels),
        _stacked([each.needed for each in tables]),
        np.min([each.area for each in tables], axis=0),
        np.stack([each.network for each in tables]),
        variant_starts,
        sizes[:, 0].copy(),
        sizes[:, 1].copy(),
        np.array(streamed),
        write_starts,
        _integers(writes),
        read_starts,
        _integers(reads),
        made.unfused_time,
        np.min([each.least_network for each in tables], axis=0),
    )


def _tensors(made: Sequence[GrowthTables]) -> TensorArrays:
    tensors = made[0].problem.tensors
    return TensorArrays(
        _integers([-1 if each.writer is None else each.writer for each in tensors]),
        _integers([len(each.readers) for each in tensors]),
        _integers([int(each.leaves) for each in tensors]),
        _integers([int(each.needed_whole) for each in tensors]),
        np.array([each.bytes for each in tensors], dtype=np.float64),
        np.array([max(each.bytes, each.gathered_bytes) for each in tensors], dtype=np.float64),
        np.array([each.slices for each in made], dtype=np.float64),
    )


def _machine(made: GrowthTables) -> ProblemNumbers:
    problem, chip, assumed = made.problem, made.problem.chip, made.problem.assumptions
    return ProblemNumbers(
        float(chip.tiles),
        float(chip.sram),
        float(chip.bandwidth),
        min(float(chip.dram), UNLIMITED_BYTES),
        float(problem.stages),
        float(problem.layers),
        float(problem.graph.weights),
        float(problem.most),
        chip.start if assumed.latency else 0.0,
        float(problem.fewest),
        int(assumed.ramps),
        int(assumed.kept_twice),
        int(problem.fused),
        int(problem.one_sample),
    )
