"""Lower bounds of a layer's time from the collectives over some axes of the mesh: bounds that include the network, for the
effort of a mesh with one or two axes.

    T(m1 x m2) >= T(m1 alone, kernels at the rates of the chip) / m2 + excess of the kernels over these rates

Here m1 and m2 are any two subsets of the axes. A rank along the axes of m2 has at least 1/m2 of the work. It sends at least
1/m2 of what a rank sends where these axes split nothing, because a collective's time grows at most in proportion to its size,
and is at least that over some of its axes. The same holds for microbatches: b sequences take at least b/c of the time of c > b
sequences. So one sharding gives bounds of all smaller microbatches, and of all meshes with these axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.kernels.machine import Machine
from halley.optim.constrained import RELATIVE_TOLERANCE
from halley.optim.least_sum import MinMarginals
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role, degree
from halley.sharding.communication import Communication, Dimensions
from halley.sharding.layouts import Mesh, shared_router
from halley.sharding.solve import ShardingProblem, sharding_graph
from halley.training.kernels import TrainingGraph
from halley.training.part_bounds import RateTimes
from halley.training.part_costs import training_graphs
from halley.training.plan import TrainingProblem
from halley.training.sharding import training_problem

Floats = NDArray[np.float64]


MAX_AXES_TOGETHER = 2
"""Largest number of axes in a subset."""

MAX_MICROBATCH_RATIO = 4
"""A bound of a microbatch up to so many times as large suffices: only latencies of collectives would improve it."""


class GraphVariant(NamedTuple):
    """Choices that shardings depend on, other than the mesh and the microbatch."""

    recompute: Recompute
    fused: bool


class AxisSubset(NamedTuple):
    """Some axes of a mesh. ``known`` [kinds] [s]: by microbatch, times of layers over these axes alone."""

    mesh: Mesh
    known: dict[int, Floats]

    def others(self, ranks: int) -> float:
        """Ranks along the other axes of a mesh with ``ranks`` in all."""
        return ranks / math.prod(axis.ranks for axis in self.mesh)

    def larger(self, microbatch: int, ranks: int) -> Iterator[Floats]:
        """The best bound of a microbatch from known times of it and of larger ones, if there are any."""
        bounds = [times * (microbatch / larger) for larger, times in self.known.items() if larger >= microbatch]
        if bounds:
            yield np.max(bounds, axis=0) / self.others(ranks)


@dataclass(slots=True, eq=False)
class AxisBounds:
    """Bounds of the kinds of layers of a problem. ``known`` [kinds] [s]: by lanes and variant, for the microbatches solved so
    far."""

    problem: TrainingProblem
    chip: Machine
    known: dict[tuple[object, GraphVariant], dict[int, Floats]] = field(default_factory=dict)

    def tighter(self, communication: Communication, microbatch: int, variant: GraphVariant) -> Iterator[Floats]:
        """[kinds] bounds of a microbatch through one layer of each kind [s]: first from known times; then from times computed
        axis by axis, the outermost first, and then pair by pair."""
        ranks = degree(communication.assignment, Role.MODEL)
        parts = self._parts(communication, variant)
        yield from (bound for part in parts for bound in part.larger(microbatch, ranks))
        for part in parts:
            known = any(microbatch <= each <= MAX_MICROBATCH_RATIO * microbatch for each in part.known)
            # with two axes, both together give a better bound than the inner one, and the outer one mostly suffices
            if not known and not (len(communication.mesh) == MAX_AXES_TOGETHER and part.mesh == communication.mesh[1:]):
                part.known[microbatch] = self._layers(communication, part.mesh, microbatch, variant)
                yield part.known[microbatch] / part.others(ranks)

    def _parts(self, communication: Communication, variant: GraphVariant) -> list[AxisSubset]:
        """The single axes of a mesh, then the pairs; of equal ones only the first."""
        axes = list(zip(communication.mesh, (lanes for _, lanes in communication.model_key), strict=True))
        found: dict[tuple[Dimensions, ...], AxisSubset] = {}
        for count in range(1, min(MAX_AXES_TOGETHER, len(axes)) + 1):
            for some in combinations(axes, count):
                mesh, key = tuple(axis for axis, _ in some), tuple(lanes for _, lanes in some)
                found.setdefault(key, AxisSubset(mesh, self.known.setdefault((key, variant), {})))
        return list(found.values())

    def _layers(self, communication: Communication, mesh: Mesh, microbatch: int, variant: GraphVariant) -> Floats:
        """[kinds] layers sharded over some axes of the mesh alone."""
        shape, sequence = self.problem.shape, self.problem.sequence
        graphs = training_graphs(shape, microbatch, sequence, variant.recompute, variant.fused)[1:-1]
        return np.array([self.layer_bound(graph, self._problem(graph, communication, mesh)) for graph in graphs])

    def layer_bound(self, graph: TrainingGraph, problem: ShardingProblem) -> float:
        """Lower bound of a layer's time under any sharding [s], with work and collectives in sequence."""
        tables = sharding_graph(problem, shared_router(problem.mesh, problem.collective_time))
        return float(MinMarginals(tables.time, tables.variables["end X"]).floor) * (1 - RELATIVE_TOLERANCE)

    def _problem(self, graph: TrainingGraph, communication: Communication, mesh: Mesh) -> ShardingProblem:
        """A layer over some axes, its kernels at the rates of the chip."""
        work = RateTimes(graph, self.chip, self.problem.efficiency, self.problem.recipe.gradient)
        weights = dict.fromkeys(graph.weights, 1.0)
        searched = self.problem.searched
        groups = work.groups() if searched is not None and searched.grouped else ()
        return training_problem(
            graph.found,
            mesh,
            work,
            communication.model,
            weights,
            {"Y": "X"},
            same_split=graph.same_split,
            groups=groups,
            compounds=graph.compounds,
        )
