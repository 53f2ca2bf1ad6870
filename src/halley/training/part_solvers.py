"""One part of a model on a mesh, solved once for all layouts of its boundary, and cached."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.searched import SearchedKernels
from halley.kernels.software import Software
from halley.optim.constrained import RELATIVE_TOLERANCE, ConstrainedMinimum, tie_break_multiplier
from halley.optim.deadline import Tick, no_limit
from halley.optim.elimination import CostTable, cost, weighted
from halley.optim.least_sum import MinMarginals
from halley.pipeline.data_parallel import RECIPES, Recipe
from halley.sharding.layouts import CollectiveTime, Layout, Mesh, shared_router
from halley.sharding.solution import Sharding, decoded
from halley.sharding.solve import ShardingGraph, sharding_graph, with_memory
from halley.training.groups import GroupTimes, product_groups
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import OpCosts, launches
from halley.training.sharding import training_problem


@dataclass(frozen=True, slots=True)
class CostTerms:
    """What a model is costed on: ``mesh`` and ``collective`` times of the chips that share each op, a ``chip`` and its
    ``efficiency``, the ``recipe``. ``fused``: attention is one kernel. ``boundary``: the layout in which parts meet, if it
    is fixed; ``splits``: by op, the dims that axes split, where the user fixed them. ``resident`` [B]: what a parameter
    occupies permanently, if not all of the recipe (state that is sharded over other ranks). ``update`` [s]: optimizer time
    per parameter of a chip, divided by the microbatches. It counts in the choice of shardings and is in none of the times;
    certificates, and ``ModelCosts.least``, are then of the sum. ``microbatches`` of an iteration: gradients of weights that
    are partial sums are reduced once for all of them, and times contain one microbatch's part. ``searched``: as in `OpCosts`.
    ``software``: launches kernels; None: the chip never waits for its host.

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
    searched: SearchedKernels | None = None
    software: Software | None = None

    def __post_init__(self) -> None:
        if not self.microbatches >= 1:
            raise BadInput(Fault("costs of parts", "at least 1 microbatch of an iteration", repr(self.microbatches)))
        if not self.weight_bytes > 0 or not self.update >= 0:
            got = f"{self.weight_bytes} B, {self.update} s"
            raise BadInput(Fault("costs of parts", "above 0 bytes for a parameter, and an update of at least 0 s", got))

    @property
    def weight_bytes(self) -> float:
        """What an element of a weight occupies permanently [B]."""
        whole = self.recipe.weight + self.recipe.gradient + self.recipe.state
        return whole if self.resident is None else self.resident


@dataclass(frozen=True, slots=True)
class HostTimes:
    """What the host takes for the passes of a part. ``launches``: kernels by pass; ``software``: that launches them; None, and
    no launches: hosts take no time."""

    launches: Mapping[str, float]
    software: Software | None = None

    def time(self, passing: str, collectives: float = 0.0) -> float:
        """Of one pass, with so many collectives between chips [s]; 0 without software."""
        return 0.0 if self.software is None else self.software.host_time(self.launches[passing], collectives)

    @property
    def least(self) -> float:
        """Of all passes of a microbatch, under any sharding [s]."""
        return math.fsum(self.time(passing) for passing in self.launches)


@dataclass(frozen=True, slots=True, eq=False)
class PartSolver:
    """``objective`` [s]: the tables whose sum is minimised. ``least``: its least value for a microbatch, by the layout of the
    tensor ``end``. ``host``: time of the host in each pass."""

    graph: TrainingGraph
    costs: OpCosts
    tables: ShardingGraph
    objective: list[CostTable]
    end: str
    least: MinMarginals
    host: HostTimes

    def within(self, weight_bytes: float, in_flight: float) -> PartSolver:
        """The part with other permanent bytes of weights, and another number of saved microbatches."""
        weights = dict.fromkeys(self.graph.weights, weight_bytes)
        if (weights, in_flight) == (self.tables.problem.weights, self.tables.problem.in_flight):
            return self
        return replace(self, tables=with_memory(self.tables, weights, in_flight))

    @property
    def entries(self) -> int:
        """Entries of the tables of time."""
        return sum(item.values.size for item in self.tables.time)

    @property
    def times(self) -> NDArray[np.float64]:
        """[layouts] lower bounds over the shardings with this layout of the boundary [s]."""
        return self.least.bounds

    @property
    def variable(self) -> str:
        return self.tables.variables[f"end {self.end}"]

    def time(self, layout: int, limit: float) -> float:
        """The least time with this layout of the boundary [s]; inf if it is impossible, or takes ``limit`` or more."""
        found = self.least.solved(layout, limit)
        return found.total if found else math.inf

    def fastest(self, layout: int) -> Sharding:
        """The sharding of least time with this layout of the boundary, which must be possible."""
        found = self.least.solved(layout)
        assert found is not None  # the layout was chosen by its time
        time, memory = cost(self.tables.time, found.values), cost(self.tables.memory, found.values)
        return decoded(
            self.tables, ConstrainedMinimum(found.values, time, memory, time * (1 - RELATIVE_TOLERANCE), 1, found.entries)
        )

    def along(self, forwards: float, backwards: float) -> Iterator[CostTable]:
        """Tables of the time of so many forward passes, and backward passes with recomputation, instead of one of each."""
        passes = self.graph.found.passes
        times = [forwards if passes[name] == "forward" else backwards for name in self.tables.caller]
        for number, item in enumerate(self.tables.time):
            many = times[number] if number < len(times) else 0.0
            yield CostTable(item.variables, item.values * many if many else np.where(np.isinf(item.values), np.inf, 0.0))

    def barring_more_parameters(self, most: float) -> Iterator[CostTable]:
        """Tables that forbid each layout of a weight with which a chip has more than ``most`` parameters under any layouts of
        the other weights."""
        weights = self.tables.weights
        word, least = max(self.tables.problem.weights.values(), default=1.0), [float(item.values.min()) for item in weights]
        spare = most * word - math.fsum(least)
        for item, own in zip(weights, least, strict=True):
            yield CostTable(item.variables, np.where(item.values <= (own + spare) * (1 + RELATIVE_TOLERANCE), 0.0, np.inf))

    def renamed(self, tables: Iterable[CostTable], number: int, scale: float, boundary: str) -> Iterator[CostTable]:
        """Tables with variable names that are unique to the part, other than the layout of the boundary."""
        own = self.variable
        for item in tables:
            names = (boundary if name == own else f"{number} {name}" for name in item.variables)
            yield CostTable(tuple(names), item.values if scale == 1 else scale * item.values)


TABLE_BUILD_ENTRIES = 1 << 24
"""Time to build the tables of a part, as the number of entries that are joined in it."""

MAX_SOLVERS = 24
"""Parts that `Solvers` caches, the most recently used ones: on a mesh of two axes each takes some MB."""

MAX_TABLE_ENTRIES = 1 << 24
"""Entries of all their tables: over three axes, two or three parts have as many."""


@dataclass(slots=True, eq=False)
class Solvers:
    """Parts by their graphs and meshes, for calls of `model_costs` that share chip, efficiency, recipe, splits, updates and
    microbatches. Memory terms do not change the times of shardings. ``objective``: tables that replace the times of kernels
    run one by one as the objective. ``done``: other work, in entries of tables. ``tick``: called before the tables of a part are
    built; what it raises leaves the other parts cached."""

    objective: Callable[[TrainingGraph, CostTerms, ShardingGraph], list[CostTable]] | None = None
    done: int = 0
    tick: Tick = no_limit
    _known: dict[tuple[TrainingGraph, Mesh, CollectiveTime], PartSolver] = field(default_factory=dict)
    _entries: int = 0

    def of(self, graph: TrainingGraph, terms: CostTerms) -> PartSolver:
        """The part on a mesh, with the permanent bytes of the terms or of an earlier call."""
        key = graph, terms.mesh, terms.collective
        found = self._known.pop(key, None)
        if found is None:
            self.tick()
            found = _solver(graph, terms, self.objective)
            self.done += TABLE_BUILD_ENTRIES
            self._entries += found.entries
        self._known[key] = found
        while len(self._known) > MAX_SOLVERS or (len(self._known) > 1 and self._entries > MAX_TABLE_ENTRIES):
            last = self._known.pop(next(iter(self._known)))
            self._entries -= last.entries
            self.done += last.least.entries
        return found

    @property
    def spent(self) -> int:
        """All work so far, in entries of tables: equal on every machine."""
        return self.done + sum(each.least.entries for each in self._known.values())


def _solver(
    graph: TrainingGraph, terms: CostTerms, chosen_by: Callable[[TrainingGraph, CostTerms, ShardingGraph], list[CostTable]] | None
) -> PartSolver:
    found, work = graph.found, graph.workload
    attention = 1.0 if terms.software is None else terms.software.attention
    costs = OpCosts(graph, terms.chip, terms.efficiency, terms.recipe.gradient, terms.searched, attention)
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
        groups=_groups(graph, terms),
        compounds=graph.compounds,
    )
    tables = sharding_graph(problem, shared_router(terms.mesh, terms.collective))
    objective = list(tables.time) if chosen_by is None else chosen_by(graph, terms, tables)
    if terms.update:
        objective += (CostTable(item.variables, item.values * (terms.update / terms.weight_bytes)) for item in tables.weights)
    multiplier = tie_break_multiplier(objective, tables.memory)
    least_by = MinMarginals(list(weighted(objective, tables.memory, multiplier)), tables.variables[f"end {end}"])
    hosts = HostTimes({} if terms.software is None else launches(graph), terms.software)
    return PartSolver(graph, costs, tables, objective, end, least_by, hosts)


def _groups(graph: TrainingGraph, terms: CostTerms) -> tuple[GroupTimes, ...]:
    """The kernels that may run as one: where they are searched and the problem allows it."""
    if terms.searched is None or not terms.searched.grouped:
        return ()
    return tuple(GroupTimes(group, terms.searched.times, terms.recipe.gradient) for group in product_groups(graph))
