"""Many equal layers, one after the other: each may be sharded in its own way, and the layouts between them are chosen with them.

One layer gives a matrix: the least time for each pair of layouts at its two sides. Layers are joined by min-plus products with
it, so that the optimum over all layers costs little more than that of one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.optim.constrained import TOLERANCE, Least, slight
from halley.optim.elimination import Eliminated, cost, eliminate, weighted
from halley.sharding.layouts import Layout
from halley.sharding.solution import Sharding, decoded
from halley.sharding.solve import ShardingGraph, ShardingProblem, sharding_graph


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where two layers meet: the tensors ``right`` of a layer are ``left`` of the next, and all of them lie alike (what passes
    forward and its gradient, say). Give each a boundary of its own where they may lie differently."""

    left: tuple[str, ...]
    right: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LayerShardings:
    """``runs``: (how many layers in a row, their sharding). ``time`` [s] and ``memory`` [B per rank] of all layers; no sharding
    of the layers takes less than ``bound`` [s]. ``states``: layouts between layers that were looked at."""

    runs: tuple[tuple[int, Sharding], ...]
    time: float
    memory: float
    bound: float
    states: int


@dataclass(slots=True, eq=False)
class LayerMatrix:
    """One layer, ready for any number of them: ``times`` [left, right] [s] between the layouts of its two sides, infinite where a
    side cannot lie so."""

    graph: ShardingGraph
    boundaries: tuple[Boundary, ...]
    eliminated: Eliminated
    times: NDArray[np.float64]
    _known: dict[tuple[int, int], Sharding] = field(default_factory=dict)

    def sharding(self, left: int, right: int) -> Sharding:
        """The best sharding of a layer between two layouts."""
        if (left, right) not in self._known:
            rest = self.eliminated.rest
            kept = np.unravel_index(left * self.times.shape[1] + right, rest.values.shape)
            values = self.eliminated.complete({name: int(value) for name, value in zip(rest.variables, kept, strict=True)})
            time, memory = cost(self.graph.time, values), cost(self.graph.memory, values)
            found = Least(values, time, memory, time * (1 - TOLERANCE), 1, self.eliminated.entries)
            self._known[left, right] = decoded(self.graph, found)
        return self._known[left, right]

    def states(self, fixed: Mapping[str, Layout], right: bool) -> NDArray[np.bool_]:
        """Which layouts of a side are as ``fixed`` says."""
        masks = []
        known = set(itertools.chain(*((item.right if right else item.left) for item in self.boundaries)))
        for name in fixed:
            if name not in known:
                expected = f"tensors of the {'right' if right else 'left'} side: {', '.join(sorted(known))}"
                raise BadInput(Fault("layouts of layers", expected, repr(name)))
        for item in self.boundaries:
            names = item.right if right else item.left
            options = np.array(self.graph.layouts[names[0]].complete)
            mask = np.ones(len(options), bool)
            for name in names:
                if name in fixed:
                    mask &= np.array(self.graph.layouts[name].complete) == self.graph.layouts[name].index(fixed[name])
            masks.append(mask)
        return np.array([all(each) for each in itertools.product(*masks)])


def layer_matrix(problem: ShardingProblem, boundaries: Sequence[Boundary]) -> LayerMatrix:
    """The times of one layer between all layouts of its sides.

    Raises BadInput: as `sharding_graph`; sides that differ in their extents, or share a tensor.
    """
    faults = []
    for item in boundaries:
        sides = [[_shape(problem, name) for name in names] for names in (item.left, item.right)]
        if not item.left or not item.right or len(set(sides[0] + sides[1])) != 1:
            got = f"{item.left} and {item.right}"
            faults.append(Fault("boundary of layers", "tensors of equal extents on both sides", got))
    if faults or not boundaries:
        raise BadInput(faults or Fault("layers", "at least one boundary", "none", "say which output is the next layer's input"))
    groups = tuple(group for item in boundaries for group in (item.left, item.right))
    graph = sharding_graph(replace(problem, together=(*problem.together, *groups)))
    left = [graph.variables[f"end {item.left[0]}"] for item in boundaries]
    right = [graph.variables[f"end {item.right[0]}"] for item in boundaries]
    if len({*left, *right}) != 2 * len(boundaries):
        remedy = "use shard() where both sides lie alike"
        raise BadInput(Fault("boundary of layers", "sides that lie apart", "tensors on both, or tied", remedy))
    price = slight(graph.time, graph.memory)
    done = eliminate(weighted(graph.time, graph.memory, price), (*left, *right))
    count = math.prod(done.rest.values.shape[: len(left)])
    return LayerMatrix(graph, tuple(boundaries), done, done.rest.values.reshape(count, -1))


def _shape(problem: ShardingProblem, name: str) -> tuple[int, ...]:
    tensor = problem.workload.tensors.get(name)
    return tuple(problem.workload.dims[dim] for dim in tensor.dims) if tensor else ()


def shard_layers(
    layer: LayerMatrix, layers: int, first: Mapping[str, Layout] | None = None, last: Mapping[str, Layout] | None = None
) -> LayerShardings:
    """The shardings of equal layers that take the least time together; ``first`` and ``last``: layouts of the left side of the
    first layer and of the right side of the last, where they are not free.

    Raises BadInput: fewer than one layer; sides that no sharding has.
    """
    if layers < 1:
        raise BadInput(Fault("layers", "at least 1", str(layers)))
    best = np.where(layer.states(first or {}, right=False), 0.0, np.inf)
    before = []
    for _ in range(layers):
        reached = best[:, None] + layer.times
        before.append(reached.argmin(axis=0))
        best = reached.min(axis=0)
    best = np.where(layer.states(last or {}, right=True), best, np.inf)
    state = int(best.argmin())
    if math.isinf(best[state]):
        raise BadInput(Fault("layers", "a sharding between the layouts of both ends", "none", "free one of them"))
    pairs: list[tuple[int, int]] = []
    for origin in reversed(before):
        pairs.append((int(origin[state]), state))
        state = int(origin[state])
    runs = tuple((len(list(same)), layer.sharding(*pair)) for pair, same in itertools.groupby(reversed(pairs)))
    time = math.fsum(count * plan.time for count, plan in runs)
    memory = math.fsum(count * plan.memory for count, plan in runs)
    return LayerShardings(runs, time, memory, time * (1 - TOLERANCE), layer.times.size)
