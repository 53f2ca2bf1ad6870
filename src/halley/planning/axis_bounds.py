"""Least times of a layer from the collectives over one axis of the mesh alone: bounds that see the network, at the price of a
mesh with one axis.

    T(m1 x m2) >= T(m1 alone, kernels at the rates of the chip) / m2 + excess of the kernels over these rates

Ranks along the other axes have at least 1/m2 of the work, and send at least 1/m2 of what a rank sends where these axes split
nothing: a collective's time is no more than proportional to its size. The same holds for microbatches: b sequences take at
least b/c of what c of them take, for c above b. So one sharding bounds all smaller microbatches, and all meshes with such an
axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.planning.axes import Role, degree
from halley.planning.communication import Communication
from halley.planning.elimination import eliminate
from halley.planning.layouts import MeshAxis
from halley.planning.machine import Machine
from halley.planning.part_bounds import Rates
from halley.planning.part_costs import training_graphs
from halley.planning.plan import TrainingProblem
from halley.planning.sharding import ShardingProblem, sharding_graph
from halley.planning.training_kernels import TrainingGraph
from halley.planning.training_sharding import training_problem
from halley.rewrite.recompute import Recompute

Floats = NDArray[np.float64]


NEAR = 4
"""How many times as large a microbatch may be whose bound is good enough: only latencies of collectives make another."""


class Way(NamedTuple):
    """Choices that shardings depend on, beside the mesh and the microbatch."""

    recompute: Recompute
    fused: bool


@dataclass(slots=True, eq=False)
class AxisBounds:
    """Bounds of the kinds of layers of a problem. ``known`` [kinds] [s]: by axis and way, for microbatches solved so far."""

    problem: TrainingProblem
    chip: Machine
    known: dict[tuple[object, Way], dict[int, Floats]] = field(default_factory=dict)

    def tighter(self, communication: Communication, microbatch: int, way: Way) -> Iterator[Floats]:
        """[kinds] bounds of a microbatch through one layer of each kind [s]: what is known; then what is found out, axis by axis,
        the outermost first."""
        ranks = degree(communication.assignment, Role.MODEL)
        axes = [(axis, ranks / axis.ranks, self.known.setdefault((lanes, way), {}))
                for axis, (_, lanes) in zip(communication.mesh, communication.model_key, strict=True)]  # fmt: skip
        yield from (bound for _, others, known in axes for bound in _larger(known, microbatch, others))
        for axis, others, known in axes:
            if not any(microbatch <= each <= NEAR * microbatch for each in known):
                known[microbatch] = self._layers(communication, axis, microbatch, way)
                yield known[microbatch] / others

    def _layers(self, communication: Communication, axis: MeshAxis, microbatch: int, way: Way) -> Floats:
        """[kinds] layers sharded over one axis of the mesh alone."""
        shape, sequence = self.problem.shape, self.problem.sequence
        graphs = training_graphs(shape, microbatch, sequence, way.recompute, way.fused)[1:-1]
        return np.array([self.least(graph, self._problem(graph, communication, axis)) for graph in graphs])

    def least(self, graph: TrainingGraph, problem: ShardingProblem) -> float:
        """What a layer takes at least under any sharding [s]: work and collectives follow each other."""
        tables = sharding_graph(problem)
        done = eliminate(tables.time, (tables.variables["end X"],))
        return float(done.rest.values.min())

    def _problem(self, graph: TrainingGraph, communication: Communication, axis: MeshAxis) -> ShardingProblem:
        """A layer over one axis, its kernels at the rates of the chip."""
        work = Rates(graph, self.chip, self.problem.efficiency, self.problem.recipe.gradient)
        weights = dict.fromkeys(graph.weights, 1.0)
        problem = training_problem(graph.found, (axis,), work, communication.model, weights, {"Y": "X"})
        return replace(problem, alike=graph.alike)


def _larger(known: Mapping[int, Floats], microbatch: int, others: float) -> Iterator[Floats]:
    """The best bound of a microbatch from those that are known of it and of larger ones, if there are any."""
    bounds = [times * (microbatch / larger) for larger, times in known.items() if larger >= microbatch]
    if bounds:
        yield np.max(bounds, axis=0) / others
