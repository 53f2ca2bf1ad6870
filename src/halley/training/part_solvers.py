"""One part of a model on a mesh, solved once for all layouts in which it may meet the other parts, and kept for the next call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.kernels.machine import Efficiency, Machine
from halley.optim.constrained import RELATIVE_TOLERANCE, ConstrainedMinimum, tie_break_multiplier
from halley.optim.elimination import CostTable, cost, weighted
from halley.optim.least_sum import MinMarginals
from halley.pipeline.data_parallel import RECIPES, Recipe
from halley.sharding.layouts import CollectiveTime, Layout, Mesh, shared_router
from halley.sharding.solution import Sharding, decoded
from halley.sharding.solve import ShardingGraph, sharding_graph, with_memory
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import OpCosts
from halley.training.sharding import training_problem


@dataclass(frozen=True, slots=True)
class Terms:
    """On what a model is costed: ``mesh`` and ``collective`` times of the chips that share each op, a ``chip`` and its
    ``efficiency``, the ``recipe``. ``fused``: attention is one kernel. ``boundary``: the layout in which parts meet, if it is
    given; ``splits``: by op, the dims that axes split, where the user says so. ``resident`` [B]: what a parameter takes for
    good, if not all that the recipe says (state that is shared out over other ranks). ``update`` [s]: what each parameter of a
    chip adds to an iteration (the optimizer's step), divided by the microbatches: it counts when shardings are chosen, and is
    in none of the times; certificates, and ``ModelCosts.least``, are then of the sum. ``microbatches`` of an iteration: gradients
    of weights that are partial sums are reduced once, for all of them, and times have the share of one.

    Raises BadInput: a ``resident`` size that is not above 0, an ``update`` below 0, fewer than one microbatch.
    """

    mesh: Mesh
    collective: CollectiveTime
    chip: Machine
    efficiency: Efficiency
    recipe: Recipe = RECIPES["mixed-adam-fp32-gradients"]
    fused: bool = True
    boundary: Layout | None = None
    splits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    resident: float | None = None
    update: float = 0.0
    microbatches: int = 1

    def __post_init__(self) -> None:
        if not self.microbatches >= 1:
            raise BadInput(Fault("costs of parts", "at least 1 microbatch of an iteration", repr(self.microbatches)))
        if not self.weight_bytes > 0 or not self.update >= 0:
            got = f"{self.weight_bytes} B, {self.update} s"
            raise BadInput(Fault("costs of parts", "above 0 bytes for a parameter, and an update of at least 0 s", got))

    @property
    def weight_bytes(self) -> float:
        """What an element of a weight takes for good [B]."""
        whole = self.recipe.weight + self.recipe.gradient + self.recipe.state
        return whole if self.resident is None else self.resident


@dataclass(frozen=True, slots=True, eq=False)
class PartSolver:
    """``objective`` [s]: what is minimised, in tables; ``least``: the least of it for a microbatch, by the layout of what passes
    through ``end``."""

    graph: TrainingGraph
    costs: OpCosts
    tables: ShardingGraph
    objective: list[CostTable]
    end: str
    least: MinMarginals

    def within(self, weight_bytes: float, in_flight: float) -> PartSolver:
        """The same part where weights take other bytes for good, and as many microbatches are kept."""
        weights = dict.fromkeys(self.graph.weights, weight_bytes)
        if (weights, in_flight) == (self.tables.problem.weights, self.tables.problem.in_flight):
            return self
        return replace(self, tables=with_memory(self.tables, weights, in_flight))

    @property
    def entries(self) -> int:
        """Of the tables of time."""
        return sum(item.values.size for item in self.tables.time)

    @property
    def times(self) -> NDArray[np.float64]:
        """[layouts] no sharding with this layout takes less [s]."""
        return self.least.bounds

    @property
    def variable(self) -> str:
        return self.tables.variables[f"end {self.end}"]

    def time(self, layout: int, limit: float) -> float:
        """The least with the boundary in this layout [s]; inf if it cannot lie so, or takes ``limit`` or more."""
        found = self.least.solved(layout, limit)
        return found.total if found else math.inf

    def fastest(self, layout: int) -> Sharding:
        """The sharding of least time with the boundary in this layout, which it can have."""
        found = self.least.solved(layout)
        assert found is not None  # the layout was chosen by its time
        time, memory = cost(self.tables.time, found.values), cost(self.tables.memory, found.values)
        return decoded(
            self.tables, ConstrainedMinimum(found.values, time, memory, time * (1 - RELATIVE_TOLERANCE), 1, found.entries)
        )

    def along(self, forwards: float, backwards: float) -> Iterator[CostTable]:
        """Tables of the time of so many forward passes, and backward passes with what they repeat, instead of one of each."""
        passes = self.graph.found.passes
        times = [forwards if passes[name] == "forward" else backwards for name in self.tables.caller]
        for number, item in enumerate(self.tables.time):
            many = times[number] if number < len(times) else 0.0
            yield CostTable(item.variables, item.values * many if many else np.where(np.isinf(item.values), np.inf, 0.0))

    def without(self, most: float) -> Iterator[CostTable]:
        """Tables that forbid each layout of a weight with which a chip has more than ``most`` parameters, whatever it has of the
        others."""
        weights = self.tables.weights
        word, least = max(self.tables.problem.weights.values(), default=1.0), [float(item.values.min()) for item in weights]
        spare = most * word - math.fsum(least)
        for item, own in zip(weights, least, strict=True):
            yield CostTable(item.variables, np.where(item.values <= (own + spare) * (1 + RELATIVE_TOLERANCE), 0.0, np.inf))

    def renamed(self, tables: Iterable[CostTable], number: int, scale: float, boundary: str) -> Iterator[CostTable]:
        """Tables in which the part's variables are told from others', but for the layout of the boundary."""
        own = self.variable
        for item in tables:
            names = (boundary if name == own else f"{number} {name}" for name in item.variables)
            yield CostTable(tuple(names), item.values if scale == 1 else scale * item.values)


BUILT = 1 << 24
"""What it takes to put the tables of a part together, in entries that are joined in this time."""

REMEMBERED = 24
"""Parts that `Solvers` keep at most, the last ones that were asked for: on a mesh of two axes each takes some MB."""

ENTRIES = 1 << 24
"""Entries of their tables at most, of all together: over three axes, two or three parts have as many."""


@dataclass(slots=True, eq=False)
class Solvers:
    """Parts by their graphs and meshes, for calls of `model_costs` that share chip, efficiency, recipe, splits, updates and
    microbatches. Whatever takes memory, how fast shardings are stays the same. ``objective``: tables of what shardings are chosen
    by, if not by the times of kernels that run one by one; ``done``: what was done besides, in entries of tables."""

    objective: Callable[[TrainingGraph, Terms, ShardingGraph], list[CostTable]] | None = None
    done: int = 0
    _known: dict[tuple[TrainingGraph, Mesh, CollectiveTime], PartSolver] = field(default_factory=dict)
    _entries: int = 0

    def of(self, graph: TrainingGraph, terms: Terms) -> PartSolver:
        """The part on a mesh, with what it takes for good as the terms say, or those of an earlier call."""
        key = graph, terms.mesh, terms.collective
        found = self._known.pop(key, None)
        if found is None:
            found = _solver(graph, terms, self.objective)
            self.done += BUILT
            self._entries += found.entries
        self._known[key] = found
        while len(self._known) > REMEMBERED or (len(self._known) > 1 and self._entries > ENTRIES):
            last = self._known.pop(next(iter(self._known)))
            self._entries -= last.entries
            self.done += last.least.entries
        return found

    @property
    def spent(self) -> int:
        """What all of them took, in entries of tables: the same on every machine."""
        return self.done + sum(each.least.entries for each in self._known.values())


def _solver(
    graph: TrainingGraph, terms: Terms, chosen_by: Callable[[TrainingGraph, Terms, ShardingGraph], list[CostTable]] | None
) -> PartSolver:
    found, work = graph.found, graph.workload
    costs = OpCosts(graph, terms.chip, terms.efficiency, terms.recipe.gradient)
    inner = "X" in work.inputs and "Y" in work.outputs
    end = "X" if "X" in work.inputs else "Y"
    gradient = found.gradients["X"] if end == "X" else found.seeds["Y"]
    sums = {found.gradients[name]: terms.microbatches for name in graph.weights if name in found.gradients}
    read = {name for op in work.ops for name in op.inputs}
    problem = training_problem(
        found,
        terms.mesh,
        costs,
        terms.collective,
        dict.fromkeys(graph.weights, terms.weight_bytes),
        {"Y": "X"} if inner else {},
        splits={op: split for op, split in terms.splits.items() if any(op == each.name for each in work.ops)},
        same_split=graph.same_split,
        same_layout=() if inner else ((end, gradient),),
        runs_per_change={name: runs for name, runs in sums.items() if name not in read},
    )
    tables = sharding_graph(problem, shared_router(terms.mesh, terms.collective))
    objective = list(tables.time) if chosen_by is None else chosen_by(graph, terms, tables)
    if terms.update:
        objective += (CostTable(item.variables, item.values * (terms.update / terms.weight_bytes)) for item in tables.weights)
    price = tie_break_multiplier(objective, tables.memory)
    least_by = MinMarginals(list(weighted(objective, tables.memory, price)), tables.variables[f"end {end}"])
    return PartSolver(graph, costs, tables, objective, end, least_by)
