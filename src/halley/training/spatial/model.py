"""Source of the costs of a model's parts on spatial chips for a plan search: shardings and the fusion of kernels, together.

Each pass of a part is divided into partitions of concurrent kernels (`halley.spatial.solve`), exactly for a given sharding.
`halley.training.spatial.branches` bounds all shardings under any fusion, and finds shardings close to the bound. The best of
these are fused, and so is the best sharding for unfused kernels. The gap between the bound and the fastest is part of the
plan's certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.dfmodel.chip import dfmodel_chip
from halley.errors import Fault, Infeasible, InternalError
from halley.formulas.numbers import Number
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.kernels.machine import Efficiency, machine
from halley.optim.constrained import ConstrainedMinimum
from halley.optim.deadline import Deadline, Tick, no_limit
from halley.optim.elimination import CostTable, cost, weighted
from halley.rewrite.recompute import Recompute
from halley.sharding.communication import Communication
from halley.sharding.layouts import CollectiveTime
from halley.sharding.solution import Sharding, decoded
from halley.sharding.solve import ShardingGraph
from halley.spatial.chip import HALLEY, SpatialChip, SpatialGraph, SpatialProblem
from halley.spatial.solve import SpatialPlan, best_plan
from halley.training.axis_bounds import GraphVariant
from halley.training.kernels import TrainingGraph
from halley.training.part_bounds import ModelBound, PartBound
from halley.training.part_costs import (
    MemoryBudget,
    ModelCosts,
    PartCosts,
    allowed_layouts,
    model_costs,
    sharded_costs,
    training_graphs,
)
from halley.training.part_solvers import CostTerms, PartSolver, Solvers
from halley.training.plan import TrainingProblem
from halley.training.sharded_model import BUDGET_SEARCH_ENTRIES, CostModel, Passes, ShardedModel
from halley.training.spatial.bounds import SpatialAxisBounds, part_tables, pass_floors
from halley.training.spatial.branches import Branches
from halley.training.spatial.passes import PASSES, ChipRates, PassGraphs, awaited_collectives, pass_kernels
from halley.training.spatial.relaxation import PartTables, ShardingChoice, softened
from halley.workloads.transformer import Transformer

Floats = NDArray[np.float64]

LEFT_OUT = (
    "partitions across two passes or layers, or of a fused attention core with its neighbours",
    "shardings other than the best without fusion and a few with the lowest bounds; the bound holds for all",
)
"""What plans of spatial chips do not contain."""

MAX_DOWNSETS = 2_000
"""Downsets of a pass up to which its partitions are optimal; a larger pass gets the best runs of consecutive kernels, with a
bound."""

MAX_LAYOUTS, SHARDINGS_PER_LAYOUT = 4, 4
"""Layouts in which all parts are evaluated together, those of the lowest bounds; and shardings of each."""

Given = tuple[Transformer, int, int, CostTerms, Recompute, MemoryBudget | None, float]
"""Arguments of `model_costs`."""

PART_GAP = 5e-4
"""Relative gap of a model's time that is accepted for one kind of its parts."""

COMPARED_DIGITS = 9
"""Significant digits of times that are compared."""

RELATIVE_ROUNDING = 1e-9
"""Relative difference of sums of the same times in another order."""


def cost_model(problem: TrainingProblem, deadline: Deadline | None = None) -> CostModel:
    """For the problem's chips: fused on chips with concurrent kernels, else kernel by kernel. ``deadline``: after it, what takes
    long gives what it has where kernels are concurrent, and raises TimeIsUp where they are not."""
    last = deadline or Deadline()
    return SpatialModel(problem, last) if problem.system.chip.streams else ShardedModel(problem, last.check)


def spatial_chip(system: System, efficiency: Efficiency) -> SpatialChip:
    """The system's chip for concurrent kernels: engines and memory at the fitted rates, and the memories through which kernels
    stream to each other."""
    chip, sram, instances = dfmodel_chip(system, fused=True), 0.0, 1
    for level in system.chip.levels:
        instances *= level.count
        sram += instances * sum(memory.capacity for memory in level.memories if memory.name in system.chip.streams)
    return replace(
        chip,
        clock=chip.clock * efficiency.matrix,
        sram=sram,
        # memory is checked for the whole iteration
        dram=math.inf,
        bandwidth=efficiency.memory * machine(system.chip).memory,
        start=efficiency.launch,
    )


@lru_cache(maxsize=8192)
def best_partitions(graph: SpatialGraph, chip: SpatialChip) -> SpatialPlan:
    """The fastest partitions of a pass of one microbatch."""
    return best_plan(SpatialProblem(graph, chip, HALLEY, most=1.0), most_downsets=MAX_DOWNSETS)


@dataclass(frozen=True, slots=True)
class SpatialModel:
    """The model of a problem on spatial chips: a `halley.training.sharded_model.CostModel`. ``relaxed``: solvers of shardings
    with the multipliers of their bound; ``known``: by part and mesh, that bound. ``stopped``: whether a time limit has passed:
    the shardings for unfused kernels are fused then, and no others."""

    problem: TrainingProblem
    stopped: Callable[[], bool] = lambda: False
    base: ShardedModel = field(init=False)
    rates: ChipRates = field(init=False)
    axes: SpatialAxisBounds = field(init=False)
    relaxed: Solvers = field(init=False)
    known: dict[object, Branches] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.problem
        chip = spatial_chip(replace(problem.system, chip=problem.chip, memories=(problem.memory.name,)), problem.efficiency)
        object.__setattr__(self, "base", ShardedModel(problem))
        rates = ChipRates(machine(problem.chip), chip, problem.efficiency, problem.recipe.gradient)
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "relaxed", Solvers(self._objective))
        object.__setattr__(self, "axes", SpatialAxisBounds(problem, rates.machine, rates=rates))

    @property
    def spent(self) -> int:
        """As in `CostModel`."""
        return self.base.solvers.spent + self.relaxed.spent + sum(each.entries for each in self.known.values())

    def bound(self, ranks: Number, microbatch: Number, variant: GraphVariant) -> ModelBound:
        """As in `CostModel`."""
        problem = self.problem
        known = self.base.bound(ranks, microbatch, variant)
        graphs = training_graphs(problem.shape, 1, problem.sequence, variant.recompute, variant.fused)
        parts = [self._floor(part, graph, microbatch, ranks) for part, graph in zip(known.parts, graphs, strict=True)]
        return ModelBound(parts[0], tuple(zip(parts[1:-1], known.layers, strict=True)), parts[-1])

    def raised(
        self, bound: ModelBound, ranks: Number, microbatch: Number, variant: GraphVariant, tick: Tick = no_limit
    ) -> ModelBound:
        """As in `CostModel`: there are no better ones."""
        return bound

    def _floor(self, part: PartBound, graph: TrainingGraph, microbatch: Number, ranks: Number) -> PartBound:
        forward, recompute, backward = pass_floors(graph, self.rates, microbatch, ranks)
        return replace(part, forward=forward, recompute=recompute, backward=backward, traffic=0.0, excess=0.0)

    def tighter(self, communication: Communication, microbatch: int, variant: GraphVariant) -> Iterable[Floats]:
        """As in `CostModel`."""
        return self.axes.tighter(communication, microbatch, variant)

    def layers(self, communication: Communication, microbatch: int, variant: GraphVariant, rough: bool = False) -> Floats:
        """As in `CostModel`: from the bounds for any fusion; ``rough``, or where better ones would take long, with multipliers
        by pass."""
        terms = self.base.terms(communication, variant)
        graphs = self._graphs(microbatch, variant)[1:-1]
        if not terms.mesh:
            # there is a single sharding, which `costs` finds at once
            return np.zeros(len(graphs))
        known = [self._least(graph, terms) for graph in graphs]
        for each in known:
            if each.cheap and not rough:
                each.refine()
        return np.array([each.bounds.min() for each in known]) * (1 - RELATIVE_ROUNDING)

    def _graphs(self, microbatch: int, variant: GraphVariant) -> tuple[TrainingGraph, ...]:
        return training_graphs(self.problem.shape, microbatch, self.problem.sequence, variant.recompute, variant.fused)

    def along(
        self,
        communication: Communication,
        microbatch: int,
        variant: GraphVariant,
        passes: Passes,
        budget: MemoryBudget,
        resident: float,
        most: Floats | None = None,
    ) -> None:
        """As in `CostModel`: not known, because passes of overlapping kernels are not sums over ops."""

    def costs(
        self,
        communication: Communication,
        microbatch: int,
        variant: GraphVariant,
        budget: MemoryBudget | None = None,
        resident: float | None = None,
    ) -> ModelCosts:
        """As in `CostModel`: of the best of several shardings, each with its best partitions."""
        problem, graphs = self.problem, self._graphs(microbatch, variant)
        terms = self.base.terms(communication, variant, resident)
        given = problem.shape, microbatch, problem.sequence, terms, variant.recompute, budget, BUDGET_SEARCH_ENTRIES
        # Infeasible here means that no sharding fits
        best = self._all_fused(model_costs(*given, self.base.solvers), graphs, communication)
        if terms.mesh and not self.stopped():
            best = self._at_multipliers(best, graphs, communication, given)
            for part, graph, count in zip(best.parts, graphs, best.counts, strict=True):
                # a small part of the model may have a large relative gap
                self._least(graph, terms).raise_to(part.time, PART_GAP * best.time / count)
            best = self._best_combination(best, graphs, communication, terms, budget)
        return self._bounded(best, terms, graphs)

    def _all_fused(self, costs: ModelCosts, graphs: Sequence[TrainingGraph], communication: Communication) -> ModelCosts:
        parts = [self.fused(part, graph, communication) for part, graph in zip(costs.parts, graphs, strict=True)]
        return _with_parts(costs, parts)

    def _at_multipliers(
        self, best: ModelCosts, graphs: Sequence[TrainingGraph], communication: Communication, given: Given
    ) -> ModelCosts:
        """The shardings that fit and take the least with the multipliers of the bound, if they are better."""
        try:
            found = self._all_fused(model_costs(*given, self.relaxed), graphs, communication)
        except Infeasible:
            return best
        return min(best, found, key=_rank_of)

    def _best_combination(
        self,
        best: ModelCosts,
        graphs: Sequence[TrainingGraph],
        communication: Communication,
        terms: CostTerms,
        budget: MemoryBudget | None,
    ) -> ModelCosts:
        """The fastest parts that fit among the shardings found for their bounds, with one layout of the boundary; or ``best``
        if that is no slower."""
        known, in_flight = [self._least(graph, terms) for graph in graphs], budget.in_flight if budget else 1.0
        solvers = [self.base.solvers.of(graph, terms).within(terms.weight_bytes, in_flight) for graph in graphs]
        bounds = np.stack([each.bounds for each in known], axis=1) @ np.array(best.counts, np.float64)
        bounds = np.where(allowed_layouts(solvers[0], terms), bounds, math.inf)
        fastest = best
        for layout in _promising(bounds, known[1:-1]):
            if bounds[layout] >= fastest.time or self.stopped():
                break
            found = [
                self._best_met(each.candidates(layout, _beside(solver, self.rates.chip)), solver, in_flight, communication)
                for each, solver in zip(known, solvers, strict=True)
            ]
            parts = [part for part in found if part is not None]
            if len(parts) < len(found):
                continue
            made = replace(_with_parts(best, parts), boundary=parts[0].sharding.ends["Y"])
            if budget is None or _fits(made, budget):
                fastest = min(fastest, made, key=_rank_of)
        return fastest

    def _best_met(
        self, choices: Sequence[ShardingChoice], solver: PartSolver, in_flight: float, communication: Communication
    ) -> PartCosts | None:
        """A part under the best of some shardings: the most promising ones, and those of nearly equal time with least memory;
        None where there is none."""
        best: PartCosts | None = None
        tables = solver.tables
        held = [cost(tables.memory, choice.values) for choice in choices]
        like = [
            at
            for at, choice in enumerate(choices)
            if at >= SHARDINGS_PER_LAYOUT and choice.time <= choices[0].time * (1 + PART_GAP)
        ]
        like.sort(key=lambda at: held[at])
        for at in (*range(min(SHARDINGS_PER_LAYOUT, len(choices))), *like[:SHARDINGS_PER_LAYOUT]):
            choice, memory = choices[at], held[at]
            if best is not None and (choice.time >= best.time or self.stopped()):
                continue
            time = cost(tables.time, choice.values)
            sharding = decoded(tables, ConstrainedMinimum(choice.values, time, memory, choice.time, 1, 0))
            found = self.fused(sharded_costs(solver, sharding, in_flight), solver.graph, communication)
            best = found if best is None else min(best, found, key=lambda part: _rank(part.time, part.sharding.memory))
        return best

    def fused(self, part: PartCosts, graph: TrainingGraph, communication: Communication) -> PartCosts:
        """A part under its sharding, with its kernels in the best partitions."""
        collective, sharding = communication.model, part.sharding
        times = {item.op: item.time for item in sharding.ops}
        graphs = PassGraphs(graph, self.rates, collective).of(sharding, times)
        plans = {
            name: best_partitions(made, self.rates.chip) for name, made in zip(PASSES, graphs, strict=True) if made is not None
        }
        forward, recompute, backward = (plans[name].layer if name in plans else 0.0 for name in PASSES)
        return replace(
            part,
            forward=forward,
            recompute=recompute,
            backward=backward,
            traffic=math.fsum(each.traffic + each.loaded for each in plans.values()),
            exposed=dict(_exposed(graph, sharding, collective, plans)),
            on_chip={name: plan for name, plan in plans.items() if plan.layer > 0},
        )

    def _bounded(self, best: ModelCosts, terms: CostTerms, graphs: Sequence[TrainingGraph]) -> ModelCosts:
        """The costs with lower bounds over all shardings. On one chip there is a single sharding, and its partitions are
        optimal."""
        counts = np.array(best.counts, np.float64)
        if terms.mesh:
            rows = np.stack([self._least(graph, terms).bounds for graph in graphs], axis=1)
            rows = rows[np.isfinite(rows).all(axis=1)] * (1 - RELATIVE_ROUNDING)
        else:
            plans = [[plan.bound for plan in part.on_chip.values()] for part in best.parts]
            rows = np.array([[math.fsum(bounds) * (1 - RELATIVE_ROUNDING) for bounds in plans]])
        bound = float((rows @ counts).min())
        if bound > best.time * (1 + RELATIVE_ROUNDING):
            expected = f"at most {best.time!r} s, which was found"
            raise InternalError(Fault(f"bound of {self.problem.shape.name}", expected, f"{bound!r} s"))
        least = tuple(rows.min(axis=0).tolist())
        return replace(best, least=least, by_boundary=tuple(map(tuple, rows.tolist())), bound=bound)

    def _least(self, graph: TrainingGraph, terms: CostTerms) -> Branches:
        """Lower bounds of a part, by the layout of its boundary."""
        key = graph, terms.mesh, terms.collective
        if key not in self.known:
            tables = self._tables(graph, self.base.solvers.of(graph, terms).tables)
            self.known[key] = Branches(tables, self.stopped)
        return self.known[key]

    def _tables(self, graph: TrainingGraph, tables: ShardingGraph) -> PartTables:
        return part_tables(graph, self.rates, tables.problem, "X" if "X" in graph.workload.inputs else "Y")

    def _objective(self, graph: TrainingGraph, terms: CostTerms, tables: ShardingGraph) -> list[CostTable]:
        """The times of a part with the multipliers of its bound."""
        known = self._least(graph, terms)
        return known.tables.relaxed(softened(known.relaxed.multipliers))


def _rank(time: float, memory: float) -> tuple[float, float]:
    """Orders shardings by time, and equal ones by memory: fewer bytes of weights also take less time to update."""
    return float(f"{time:.{COMPARED_DIGITS}g}"), memory


def _rank_of(costs: ModelCosts) -> tuple[float, float]:
    return _rank(costs.time, math.fsum(many * each.sharding.memory for many, each in zip(costs.counts, costs.parts, strict=True)))


def _promising(bounds: Floats, layers: Sequence[Branches]) -> list[int]:
    """The layouts of the lowest bounds, and those of the most promising shardings of layers."""
    best = {min(each.choices, key=lambda choice: choice.time).values[each.tables.end] for each in layers if each.choices}
    order = np.argsort(bounds, kind="stable").tolist()
    return [each for place, each in enumerate(order) if place < MAX_LAYOUTS or each in best]


def _fits(costs: ModelCosts, budget: MemoryBudget) -> bool:
    """Whether the weights and saved activations of all parts fit the budget."""
    held = budget.held or (1.0,) * len(costs.parts)
    return math.fsum(many * part.sharding.memory for many, part in zip(held, costs.parts, strict=True)) <= budget.capacity


def _beside(solver: PartSolver, chip: SpatialChip) -> list[CostTable]:
    """The times of unfused kernels, and one memory pass over weights and saved activations: weights are updated."""
    return list(weighted(solver.tables.time, solver.tables.memory, 1.0 / chip.bandwidth))


def _with_parts(costs: ModelCosts, parts: Sequence[PartCosts]) -> ModelCosts:
    return replace(costs, embedding=parts[0], blocks=tuple(zip(parts[1:-1], costs.layers, strict=True)), head=parts[-1])


def _exposed(
    graph: TrainingGraph, sharding: Sharding, collective: CollectiveTime, plans: Mapping[str, SpatialPlan]
) -> Iterator[tuple[CollectiveKind, float]]:
    """By kind, the exposed collectives [s]: those after an unfused kernel, and the excess of a partition's network over its
    work and memory, divided in proportion to their times."""
    kinds: dict[str, dict[CollectiveKind, float]] = {}
    for op, time, kind, _, _ in awaited_collectives(graph, sharding, collective):
        own = kinds.setdefault(op, {})
        own[kind] = own.get(kind, 0.0) + time
    found: dict[CollectiveKind, float] = {}
    for name, groups in zip(PASSES, pass_kernels(graph), strict=True):
        ops = {group.name: group.ops for group in groups}
        for part in plans[name].partitions if name in plans else ():
            asked = [(kind, time) for each in part.names for op in ops[each] for kind, time in kinds.get(op, {}).items()]
            whole = math.fsum(time for _, time in asked)
            beyond = part.network if part.unfused else max(0.0, part.network - max(part.compute, part.memory))
            for kind, time in asked:
                found[kind] = found.get(kind, 0.0) + beyond * time / whole if whole else 0.0
    yield from found.items()
