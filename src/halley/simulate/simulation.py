"""`simulate`: start and end of each task of a mapping, and its total time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halley.ir.hardware import Chip
from halley.ir.mapping import Node, Pipeline, Spatial, Temporal, children
from halley.ir.masks import with_extents
from halley.ir.workload import Workload
from halley.simulate.tasks import BusyInterval, Server, run
from halley.simulate.walk import Walk

TASK_LIMIT = 200_000
"""Default limit on the number of tasks of a simulation."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """``time`` [s] from the first fill to the last drain; ``busy`` [s] by server; ``intervals``: busy intervals of the servers,
    in the order of the grants; ``tasks``: number of tasks."""

    time: float
    busy: Mapping[Server, float]
    intervals: tuple[BusyInterval, ...]
    tasks: int


def simulate(workload: Workload, chip: Chip, tree: Node, limit: int = TASK_LIMIT) -> Simulation:
    """Simulate a legal mapping iteration by iteration, with resources as queues.

    Time and memory grow with the number of tiles, not with their size. Raises BadInput: more than ``limit`` tasks, or a chip of
    too many members; `first_iterations` gives a smaller problem.
    """
    tasks = Walk(workload, chip, tree, limit).tasks
    schedule = run(tasks)
    return Simulation(schedule.time, schedule.busy, schedule.intervals, len(tasks.names))


def first_iterations(workload: Workload, tree: Node, iterations: int) -> Workload:
    """The workload truncated to the range of the first iterations of each dim's outermost loop in time.

    The same tree maps it, with the same tiles and the same steady state. A dim whose outermost node is a split keeps its extent.
    If a dim has several outermost loops, the largest tile counts.
    """
    tiles: dict[str, int] = {}
    fixed: set[str] = set()
    _outermost(tree, frozenset(), tiles, fixed)
    along = {op.along for op in workload.ops}
    cut = {dim: tile for dim, tile in tiles.items() if dim not in fixed | along}
    dims = {dim: min(extent, cut[dim] * iterations) if dim in cut else extent for dim, extent in workload.dims.items()}
    return with_extents(workload, dims)


def _outermost(node: Node, met: frozenset[str], tiles: dict[str, int], fixed: set[str]) -> None:
    if isinstance(node, Temporal | Spatial | Pipeline) and node.dim not in met:
        met = met | {node.dim}
        if isinstance(node, Spatial):
            fixed.add(node.dim)
        else:
            tiles[node.dim] = max(tiles.get(node.dim, 0), node.tile)
    for child in children(node):
        _outermost(child, met, tiles, fixed)
