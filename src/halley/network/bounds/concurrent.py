"""The maximum concurrent flow problem: all demands at once, over any routes, in the least time.

    minimise t such that the flow of each source meets its demands and, on each link, all flows together carry at most t c

c [B/s] bandwidth. One commodity per source serves all its targets. Symmetries leave one source per orbit of ranks and one
capacity per orbit of links: `FlowProblem` has both, and with the identity alone it is the problem as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from halley.answer import relative_gap
from halley.network.bounds.demands import Demands
from halley.network.bounds.shortest import Floats, Indices
from halley.network.bounds.symmetry import Symmetry
from halley.network.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a solver is: seconds spent, the best time of a routing [s], the best lower bound [s]."""

    spent: float
    time: float
    bound: float

    @property
    def gap(self) -> float:
        """By how much the routing may be slower than the best, relative to the bound."""
        return relative_gap(self.time, self.bound)


Watch: TypeAlias = Callable[[Progress], None]
"""Called with every new state of the search."""


@dataclass(frozen=True, eq=False)
class FlowProblem:
    """Demands [ranks, ranks] on a graph, up to symmetry. Flows are [sources, links] in bytes, where ``sources`` are the
    symmetry's representatives."""

    graph: Graph
    demands: Demands
    symmetry: Symmetry

    @property
    def sources(self) -> Indices:
        return self.symmetry.representatives

    @cached_property
    def wanted(self) -> Floats:
        """[vertices, sources] bytes; nothing is wanted at switches."""
        wanted = np.zeros((self.graph.vertices, len(self.sources)))
        wanted[: self.graph.ranks] = self.demands[self.sources].T
        return wanted

    @cached_property
    def capacities(self) -> Floats:
        """[classes] B/s of one link of each class."""
        capacities = np.empty(len(self.symmetry.class_sizes))
        capacities[self.symmetry.classes] = self.graph.bandwidths
        return capacities

    def loads(self, flows: Floats, of: slice | Indices = slice(None)) -> Floats:
        """[classes] bytes on each link of a class, once all ranks of an orbit do as its representative; ``of``: the sources
        whose flows are given."""
        links = self.symmetry.counts[of] @ flows
        return np.bincount(self.symmetry.classes, links) / self.symmetry.class_sizes

    def lengths(self, weights: Floats) -> Floats:
        """[links] lengths that share the weights of the classes out, so that the sum of length times bandwidth is theirs."""
        return (weights / (self.capacities * self.symmetry.class_sizes))[self.symmetry.classes]

    def bound(self, distances: Floats) -> float:
        """`halley.network.bounds.demands.length_bound` for lengths of `lengths` whose weights sum up to 1; ``distances``
        [vertices, sources] under them."""
        carried = self.wanted * np.where(self.wanted > 0, distances, 0.0)
        return float(self.symmetry.counts @ carried.sum(axis=0))
