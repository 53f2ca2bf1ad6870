"""Times of fused groups on one chip: the kernels that they are, no faster than a table of searched mappings allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from halley.ir.workload import Op
from halley.kernels.machine import Efficiency, Machine
from halley.training.fusion.groups import Fusion, fusions
from halley.training.fusion.table import FusionTable
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import OpCosts

Floats = NDArray[np.float64]
Extents = Mapping[str, NDArray[np.int64]]


class OpTimes(Protocol):
    """Times of ops of one graph [s]."""

    def many(self, op: Op, local: Extents) -> Floats: ...


@dataclass(frozen=True, slots=True, eq=False)
class FusedPair:
    """A group as the `Pair` of a sharding. ``times``: of ops in the group's own graph; ``table``: what no fused kernel is faster
    than, if it counts."""

    fusion: Fusion
    times: OpTimes
    table: FusionTable | None = None

    @property
    def first(self) -> tuple[str, ...]:
        """Ops of the first kernel."""
        return self.fusion.first

    @property
    def second(self) -> tuple[str, ...]:
        """Ops of the second kernel."""
        return self.fusion.second

    def many(self, local: Extents) -> Floats:
        """Times [many] [s] of both as one."""
        work = self.fusion.graph.workload
        found = np.sum([self.times.many(work.op(name), local) for name in self.fusion.ops], axis=0)
        return np.asarray(found if self.table is None else np.maximum(found, self.table.least(self.fusion, local)))


def fused_pairs(
    graph: TrainingGraph, chip: Machine, efficiency: Efficiency, gradient: int, table: FusionTable
) -> tuple[FusedPair, ...]:
    """The groups of a graph, timed as kernels."""
    return tuple(FusedPair(each, OpCosts(each.graph, chip, efficiency, gradient), table) for each in fusions(graph))
