"""The search of `halley.spatial.solve` as arrays, for the compiled loop of `halley.spatial.growth_compiled`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.optim.downsets import Costs, Lattice
from halley.spatial.chip import Array
from halley.spatial.growth import Tables

Indices: TypeAlias = NDArray[np.int64]

UNLIMITED = 1e300
"""Bytes of a memory without a limit, with which can be reckoned."""


class Steps(NamedTuple):
    """Downsets (bits); the steps of downset i are places ``starts[i]`` to ``starts[i + 1]`` of ``kernels`` and ``targets``."""

    downsets: Indices
    starts: Indices
    kernels: Indices
    targets: Indices


class Kernels(NamedTuple):
    """By kernel: what it needs (bits), its level, compute tiles by sequence tile and time, least time on all compute tiles,
    network by sequence tile; and from ``starts``: variants (what streams of them, by sequence tile), tensors; its time alone, and
    its network at least."""

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
    alone: Array
    least_network: Array


class Tensors(NamedTuple):
    """By tensor: its writer (-1: outside), how many readers, whether it leaves, whether readers need all of it, bytes of a
    sample, as they are held by such readers, and by sequence tile what one of them has."""

    writers: Indices
    readers: Indices
    leaves: Indices
    whole: Indices
    moved: Array
    spread: Array
    slices: Array


class Machine(NamedTuple):
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


class Arrays(NamedTuple):
    """What the loop is given: by sequence tile, ``times`` [s] of kernels, and ``counts`` [1], how many such tiles a sequence has;
    ``rest`` as `halley.spatial.growth.rest` has it."""

    steps: Steps
    kernels: Kernels
    tensors: Tensors
    machine: Machine
    times: Array
    counts: Array
    rest: Array


def arrays(made: Sequence[Tables], downsets: Lattice, rest: Sequence[Costs]) -> Arrays:
    """``made``: by sequence tile that a block may have."""
    counts = np.array([float(each.count) for each in made])
    times = _stacked([each.times for each in made])
    return Arrays(_steps(downsets), _kernels(made), _tensors(made), _machine(made[0]), times, counts, np.array(rest))


def _rows(rows: Sequence[Sequence[Any]]) -> tuple[Indices, list[Any]]:
    """Where each row starts, and all entries one after the other."""
    starts = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    return starts, [entry for row in rows for entry in row]


def _stacked(arrays: Sequence[Array]) -> Array:
    """Arrays that differ in the length of their last axis, the last entry of shorter ones repeated."""
    length = max(each.shape[-1] for each in arrays)
    widths = [[(0, 0)] * (each.ndim - 1) + [(0, length - each.shape[-1])] for each in arrays]
    return np.stack([np.pad(each, width, mode="edge") for each, width in zip(arrays, widths, strict=True)])


def _whole(values: Sequence[int]) -> Indices:
    return np.array(values, dtype=np.int64)


@lru_cache(maxsize=16)
def _steps(downsets: Lattice) -> Steps:
    starts, entries = _rows(downsets.steps)
    pairs = np.array(entries, dtype=np.int64).reshape(-1, 2)
    return Steps(_whole(downsets.downsets), starts, pairs[:, 0].copy(), pairs[:, 1].copy())


def _kernels(tables: Sequence[Tables]) -> Kernels:
    made = tables[0]
    graph = made.problem.graph
    variant_starts, variants = _rows(made.variants)
    sizes = np.array(variants, dtype=np.float64).reshape(-1, 3)
    streamed = [[variant.streamed for row in each.variants for variant in row] for each in tables]
    write_starts, writes = _rows(made.writes)
    read_starts, reads = _rows(made.reads)
    return Kernels(
        _whole(graph.needs),
        _whole(graph.levels),
        _stacked([each.needed for each in tables]),
        np.min([each.area for each in tables], axis=0),
        np.stack([each.network for each in tables]),
        variant_starts,
        sizes[:, 0].copy(),
        sizes[:, 1].copy(),
        np.array(streamed),
        write_starts,
        _whole(writes),
        read_starts,
        _whole(reads),
        made.alone,
        np.min([each.least_network for each in tables], axis=0),
    )


def _tensors(made: Sequence[Tables]) -> Tensors:
    tensors = made[0].problem.tensors
    return Tensors(
        _whole([-1 if each.writer is None else each.writer for each in tensors]),
        _whole([len(each.readers) for each in tensors]),
        _whole([int(each.leaves) for each in tensors]),
        _whole([int(each.whole) for each in tensors]),
        np.array([each.bytes for each in tensors], dtype=np.float64),
        np.array([max(each.bytes, each.spread) for each in tensors], dtype=np.float64),
        np.array([each.slices for each in made], dtype=np.float64),
    )


def _machine(made: Tables) -> Machine:
    problem, chip, assumed = made.problem, made.problem.chip, made.problem.assumptions
    return Machine(
        float(chip.tiles),
        float(chip.sram),
        float(chip.bandwidth),
        min(float(chip.dram), UNLIMITED),
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
