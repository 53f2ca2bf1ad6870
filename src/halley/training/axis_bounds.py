"""Least times of a layer from the collectives over some axes of the mesh alone: bounds that see the network, at the price of a
mesh with one axis or two.

    T(m1 x m2) >= T(m1 alone, kernels at the rates of the chip) / m2 + excess of the kernels over these rates

Here m1 and m2 are any two parts of the axes. Ranks along the axes of m2 have at least 1/m2 of the work, and send at least 1/m2 of
what a rank sends where these axes split nothing: a collective's time is no more than proportional to its size, and no less than
that over some of its axes. The same holds for microbatches: b sequences take at least b/c of what c of them take, for c above b.
So one sharding bounds all smaller microbatches, and all meshes with such axes.
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
from halley.training.part_bounds import Rates
from halley.training.part_costs import training_graphs
from halley.training.plan import TrainingProblem
from halley.training.sharding import training_problem

Floats = NDArray[np.float64]


PAIR = 2
"""Axes at most that are looked at together."""

NEAR = 4
"""How many times as large a microbatch may be whose bound is good enough: only latencies of collectives make another."""


class Way(NamedTuple):
    """Choices that shardings depend on, beside the mesh and the microbatch."""

    recompute: Recompute
    fused: bool


class Part(NamedTuple):
    """Some axes of a mesh. ``known`` [kinds] [s]: what layers take over these axes alone, by microbatch."""

    mesh: Mesh
    known: dict[int, Floats]

    def others(self, ranks: int) -> float:
        """The ranks along the other axes of a mesh with so many."""
        return ranks / math.prod(axis.ranks for axis in self.mesh)

    def larger(self, microbatch: int, ranks: int) -> Iterator[Floats]:
        """The best bound of a microbatch from those that are known of it and of larger ones, if there are any."""
        bounds = [times * (microbatch / larger) for larger, times in self.known.items() if larger >= microbatch]
        if bounds:
            yield np.max(bounds, axis=0) / self.others(ranks)


@dataclass(slots=True, eq=False)
class AxisBounds:
    """Bounds of the kinds of layers of a problem. ``known`` [kinds] [s]: by lanes and way, for microbatches solved so far."""

    problem: TrainingProblem
    chip: Machine
    known: dict[tuple[object, Way], dict[int, Floats]] = field(default_factory=dict)

    def tighter(self, communication: Communication, microbatch: int, way: Way) -> Iterator[Floats]:
        """[kinds] bounds of a microbatch through one layer of each kind [s]: what is known; then what is found out, axis by axis,
        the outermost first, and then pair by pair."""
        ranks = degree(communication.assignment, Role.MODEL)
        parts = self._parts(communication, way)
        yield from (bound for part in parts for bound in part.larger(microbatch, ranks))
        for part in parts:
            known = any(microbatch <= each <= NEAR * microbatch for each in part.known)
            # of two axes both together say more than the inner one, and the outer one mostly says enough
            if not known and not (len(communication.mesh) == PAIR and part.mesh == communication.mesh[1:]):
                part.known[microbatch] = self._layers(communication, part.mesh, microbatch, way)
                yield part.known[microbatch] / part.others(ranks)

    def _parts(self, communication: Communication, way: Way) -> list[Part]:
        """The single axes of a mesh, then the pairs; of equal ones the first."""
        axes = list(zip(communication.mesh, (lanes for _, lanes in communication.model_key), strict=True))
        found: dict[tuple[Dimensions, ...], Part] = {}
        for count in range(1, min(PAIR, len(axes)) + 1):
            for some in combinations(axes, count):
                mesh, key = tuple(axis for axis, _ in some), tuple(lanes for _, lanes in some)
                found.setdefault(key, Part(mesh, self.known.setdefault((key, way), {})))
        return list(found.values())

    def _layers(self, communication: Communication, mesh: Mesh, microbatch: int, way: Way) -> Floats:
        """[kinds] layers sharded over some axes of the mesh alone."""
        shape, sequence = self.problem.shape, self.problem.sequence
        graphs = training_graphs(shape, microbatch, sequence, way.recompute, way.fused)[1:-1]
        return np.array([self.least(graph, self._problem(graph, communication, mesh)) for graph in graphs])

    def least(self, graph: TrainingGraph, problem: ShardingProblem) -> float:
        """What a layer takes at least under any sharding [s]: work and collectives follow each other."""
        tables = sharding_graph(problem, shared_router(problem.mesh, problem.collective_time))
        return float(MinMarginals(tables.time, tables.variables["end X"]).floor) * (1 - RELATIVE_TOLERANCE)

    def _problem(self, graph: TrainingGraph, communication: Communication, mesh: Mesh) -> ShardingProblem:
        """A layer over some axes, its kernels at the rates of the chip."""
        work = Rates(graph, self.chip, self.problem.efficiency, self.problem.recipe.gradient)
        weights = dict.fromkeys(graph.weights, 1.0)
        return training_problem(graph.found, mesh, work, communication.model, weights, {"Y": "X"}, same_split=graph.same_split)
