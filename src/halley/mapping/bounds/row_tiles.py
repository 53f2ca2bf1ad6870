"""Lower bounds of a group with several stages, over the numbers of tiles in which they walk their rows.

Every frame of such a group walks the rows of one dim tile by tile, and batch dims one by one, with all of its stages inside.
With few tiles, intermediates need large buffers. With many tiles, tensors without rows, such as weights, are read again for
every tile, and the folds of the array are short. The bounds depend on no frame and no shape: they are computed before the
formulas of a group are compiled."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from halley.ir.hardware import Chip
from halley.ir.masks import masks
from halley.mapping.space.frames.shared_buffer import walkable
from halley.mapping.space.fused_group import FusedOps
from halley.mapping.space.hierarchy import Hierarchy

TILES_ONE_BY_ONE = 32
"""Up to this number of tiles each has a bound of its own; above it, ranges of numbers that grow by `RANGE_GROWTH`."""

RANGE_GROWTH = 1.25
"""Ratio of the ends of a range of numbers of tiles."""


@dataclass(frozen=True, slots=True)
class RowTiles:
    """A range of numbers of tiles of the rows: ``fewest`` tiles; ``tile`` [1]: most rows of a tile of a member; ``rounds`` [1]:
    most runs of the stages, over rows and batch dims, infinite where they also walk another dim."""

    fewest: int
    tile: float
    rounds: float


def row_tiles(group: FusedOps) -> Iterator[RowTiles]:
    """Every number of tiles of the rows with which some frame of the group can hold what its stages hand over; none if not even
    single rows fit."""
    rows, workload = group.workload.dims[group.row], group.workload
    further = any(op.running or op.scaled_by for op in group.ops) or any(True for _ in walkable(group))
    runs = math.inf if further else math.prod(workload.dims[dim] for dim in group.batch)
    at = 1 if further else max(1, math.ceil(_fewest(group) * (1 - 1e-9)))
    while at <= rows:
        end = at if at < TILES_ONE_BY_ONE else min(rows, int(at * RANGE_GROWTH))
        yield RowTiles(at, rows if at == 1 else rows / (at - 1), end * runs)
        at = end + 1


def _fewest(group: FusedOps) -> float:
    """The least number of tiles with which what is handed over fits, in the memory of results or in one further out.

    Tiles of t rows on s groups of members occupy at least s t b bytes of all instances of the memory together, with b bytes for
    each row, and there are at least M / (s t) tiles of M rows. In the memory of results tensors computed in place share a buffer,
    so only the largest counts; further out each tensor has its own.
    """
    machine, workload = group.hierarchy, group.workload
    points = workload.dims[group.row] * math.prod(workload.dims[dim] for dim in group.batch)
    walked = {group.row, *group.batch}

    def bytes_of_rows(name: str) -> float:
        tensor = workload.tensors[name]
        return workload.bytes(name) / points * workload.dims[group.row] if walked <= set(tensor.dims) else 0.0

    every = {name: bytes_of_rows(name) for name in {*group.inside, *group.handed_over}}
    found = [
        sum(every[name] for name in group.handed_over) / _capacity(machine, memory)
        for tier in machine.hands_over()
        for memory in machine.tiers[tier].memories
    ]
    if machine.takes_results():
        found.append(max(every.values(), default=0.0) / _capacity(machine, machine.output))
    return min(found, default=1.0)


def _capacity(machine: Hierarchy, memory: str) -> float:
    """Bytes of all instances of a memory."""
    chip: Chip = machine.chip
    depth = chip.depth(memory)
    instances = math.prod(axis.size for level in chip.levels[: depth + 1] if level.network for axis in level.network.axes)
    return chip.memory(memory).capacity * instances


def reloads(group: FusedOps, name: str, tiles: RowTiles) -> float:
    """How often at least a tensor that comes from the outer memory is read: once for each tile of rows that it lacks, and each
    batch that it lacks, as its Holds lie inside these loops. Of keys under a mask, a tile of rows may see few."""
    workload = group.workload
    selectors, members = workload.selectors(name), math.prod(own.axis.size for own in group.hierarchy.axes)
    if any(mask.keys in selectors for mask in masks(workload).values()):
        return 1.0
    batches = math.prod(workload.dims[dim] for dim in group.batch if dim not in selectors)
    return (1 if group.row in selectors else tiles.fewest) * max(1.0, math.ceil(batches / members))


def least_work(matrix: float, vector: float, tiles: RowTiles) -> float:
    """Least time [s] of the engines, of stages that keep them busy for so long.

    .. math:: t = b + \\max(0, S - b) / N,\\; b = \\max(T_{matrix}, T_{vector}),\\; S = T_{matrix} + T_{vector}

    Symbols: T [s] work of an engine, N [1] rounds. Overlapped stages work on different rounds: in the first and in the last
    round not all of them do. In a single round, and one after the other, they take S. So they do on parts of the clusters, each
    of which is only at one of the engines at a time. Source: docs/model.md, "Nodes".
    """
    busiest, every = max(matrix, vector), matrix + vector
    return busiest + (every - busiest) / tiles.rounds
