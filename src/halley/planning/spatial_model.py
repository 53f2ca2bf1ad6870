"""Where a plan search gets the costs of a model's parts on spatial chips: shardings and the fusion of kernels, together.

Each pass of a part is cut into partitions that run side by side (`halley.planning.partitioning`), exactly for a given sharding.
Two shardings are tried: the best as kernels run one by one, and the best at the prices of memory and network against work at
which `halley.planning.spatial_bounds` bounds all shardings from below, however their kernels are fused. The gap between the
bound and the better one goes into the certificate of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from halley.errors import Fault, Infeasible, InternalError
from halley.formulas.numbers import Number
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.planning.axis_bounds import Way
from halley.planning.communication import Communication
from halley.planning.dfmodel_chip import dfmodel_chip
from halley.planning.elimination import Table
from halley.planning.layouts import CollectiveTime
from halley.planning.machine import Efficiency, machine
from halley.planning.part_bounds import ModelBound, PartBound
from halley.planning.part_costs import ModelCosts, PartCosts, Room, model_costs, training_graphs
from halley.planning.part_solvers import Solvers, Terms
from halley.planning.partitioning import SpatialPlan, best_plan
from halley.planning.plan import TrainingProblem
from halley.planning.sharded import Sharding
from halley.planning.sharded_model import SQUEEZING, CostModel, Passes, ShardedModel
from halley.planning.sharding import ShardingGraph
from halley.planning.spatial import HALLEY, Graph, Problem, SpatialChip
from halley.planning.spatial_bounds import SpatialAxisBounds, part_tables, pass_floors
from halley.planning.spatial_passes import PASSES, ChipRates, PassGraphs, pass_groups, waited
from halley.planning.spatial_prices import PartTables, Priced, least_by_layout
from halley.planning.training_kernels import TrainingGraph

Floats = NDArray[np.float64]

LEFT_OUT = (
    "partitions over the border of two passes or layers, and of a fused attention core with its neighbours",
    "shardings other than the best kernel by kernel and the one that the bound takes for the best, beyond the bound",
)
"""What no plan of a spatial chip does."""

MOST_DOWNSETS = 2_000
"""Of a pass, up to which its partitions are the best of all; those of a larger one are runs of consecutive kernels, with a
bound."""

ROUNDING = 1e-9
"""Relative difference of sums of the same times in another order."""


def cost_model(problem: TrainingProblem) -> CostModel:
    """Of the problem's chips: fused on the chip where kernels run side by side, else kernel by kernel."""
    return SpatialModel(problem) if problem.system.chip.streams else ShardedModel(problem)


def spatial_chip(system: System, efficiency: Efficiency) -> SpatialChip:
    """The system's chip as its kernels find it side by side: engines and memory at the rates of the fit, and the memories through
    which kernels hand tensors on."""
    chip, sram, instances = dfmodel_chip(system, fused=True), 0.0, 1
    for level in system.chip.levels:
        instances *= level.count
        sram += instances * sum(memory.capacity for memory in level.memories if memory.name in system.chip.streams)
    return replace(
        chip,
        clock=chip.clock * efficiency.matrix,
        sram=sram,
        # the plan of an iteration looks after what lies in memory
        dram=math.inf,
        bandwidth=efficiency.memory * machine(system.chip).memory,
        start=efficiency.launch,
    )


@lru_cache(maxsize=8192)
def best_partitions(graph: Graph, chip: SpatialChip) -> SpatialPlan:
    """The fastest partitions of a pass that works off one microbatch."""
    return best_plan(Problem(graph, chip, HALLEY, most=1.0), most_downsets=MOST_DOWNSETS)


@dataclass(frozen=True, slots=True)
class SpatialModel:
    """The model of a problem on spatial chips: a `halley.planning.sharded_model.CostModel`. ``priced``: shardings by the prices
    of their bound; ``known``: by part and mesh, that bound."""

    problem: TrainingProblem
    base: ShardedModel = field(init=False)
    rates: ChipRates = field(init=False)
    axes: SpatialAxisBounds = field(init=False)
    priced: Solvers = field(init=False)
    known: dict[object, Priced] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.problem
        chip = spatial_chip(replace(problem.system, chip=problem.chip, memories=(problem.memory.name,)), problem.efficiency)
        object.__setattr__(self, "base", ShardedModel(problem))
        rates = ChipRates(machine(problem.chip), chip, problem.efficiency, problem.recipe.gradient)
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "priced", Solvers(self._objective))
        object.__setattr__(self, "axes", SpatialAxisBounds(problem, rates.machine, rates=rates))

    @property
    def spent(self) -> int:
        """As in `CostModel`."""
        return self.base.solvers.spent + self.priced.spent

    def bound(self, ranks: Number, microbatch: Number, way: Way) -> ModelBound:
        """As in `CostModel`."""
        problem = self.problem
        known = self.base.bound(ranks, microbatch, way)
        graphs = training_graphs(problem.shape, 1, problem.sequence, way.recompute, way.fused)
        parts = [self._floor(part, graph, microbatch, ranks) for part, graph in zip(known.parts, graphs, strict=True)]
        return ModelBound(parts[0], tuple(zip(parts[1:-1], known.layers, strict=True)), parts[-1])

    def _floor(self, part: PartBound, graph: TrainingGraph, microbatch: Number, ranks: Number) -> PartBound:
        forward, recompute, backward = pass_floors(graph, self.rates, microbatch, ranks)
        return replace(part, forward=forward, recompute=recompute, backward=backward, traffic=0.0, excess=0.0)

    def tighter(self, communication: Communication, microbatch: int, way: Way) -> Iterable[Floats]:
        """As in `CostModel`."""
        return self.axes.tighter(communication, microbatch, way)

    def layers(self, communication: Communication, microbatch: int, way: Way, rough: bool = False) -> Floats:
        """As in `CostModel`: by the bounds that hold however kernels are fused; there are none that are rougher."""
        terms = self.base.terms(communication, way)
        graphs = self._graphs(microbatch, way)[1:-1]
        if not terms.mesh:
            # there is one sharding, which `costs` finds at once
            return np.zeros(len(graphs))
        return np.array([self._least(graph, terms).bounds.min() for graph in graphs]) * (1 - ROUNDING)

    def _graphs(self, microbatch: int, way: Way) -> tuple[TrainingGraph, ...]:
        return training_graphs(self.problem.shape, microbatch, self.problem.sequence, way.recompute, way.fused)

    def along(
        self,
        communication: Communication,
        microbatch: int,
        way: Way,
        passes: Passes,
        room: Room,
        resident: float,
        most: Floats | None = None,
    ) -> None:
        """As in `CostModel`: passes of kernels that overlap are no sums over ops."""

    def costs(
        self, communication: Communication, microbatch: int, way: Way, room: Room | None = None, resident: float | None = None
    ) -> ModelCosts:
        """As in `CostModel`: of the best of several shardings, each with its best partitions."""
        found = list(self._candidates(communication, microbatch, way, room, resident))
        best = min(found, key=lambda each: each.time)
        return self._bounded(best, self.base.terms(communication, way), self._graphs(microbatch, way))

    def _candidates(
        self, communication: Communication, microbatch: int, way: Way, room: Room | None, resident: float | None
    ) -> Iterator[ModelCosts]:
        """Shardings fused on the chip, the one that is best as kernels run one by one first. Raises Infeasible: that one does not
        fit, so that none does."""
        problem, known, graphs = self.problem, set[object](), self._graphs(microbatch, way)
        terms = self.base.terms(communication, way, resident)
        for solvers in (self.base.solvers, self.priced) if communication.mesh else (self.base.solvers,):
            try:
                costs = model_costs(problem.shape, microbatch, problem.sequence, terms, way.recompute, room, SQUEEZING, solvers)
            except Infeasible:
                if not known:
                    raise
                continue
            key = tuple(item.ways for part in costs.parts for item in part.sharding.ops), costs.boundary
            if key not in known:
                known.add(key)
                parts = [self._fused(part, graph, communication) for part, graph in zip(costs.parts, graphs, strict=True)]
                blocks = tuple(zip(parts[1:-1], costs.layers, strict=True))
                yield replace(costs, embedding=parts[0], blocks=blocks, head=parts[-1])

    def _fused(self, part: PartCosts, graph: TrainingGraph, communication: Communication) -> PartCosts:
        """A part under the sharding that it has, its kernels fused as is best."""
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

    def _bounded(self, best: ModelCosts, terms: Terms, graphs: Sequence[TrainingGraph]) -> ModelCosts:
        """With what no sharding falls below. Over one chip there is one sharding, and its partitions are the best."""
        counts = np.array(best.counts, np.float64)
        if terms.mesh:
            rows = np.stack([self._least(graph, terms).bounds for graph in graphs], axis=1)
            rows = rows[np.isfinite(rows).all(axis=1)] * (1 - ROUNDING)
        else:
            plans = [[plan.bound for plan in part.on_chip.values()] for part in best.parts]
            rows = np.array([[math.fsum(bounds) * (1 - ROUNDING) for bounds in plans]])
        bound = float((rows @ counts).min())
        if bound > best.time * (1 + ROUNDING):
            expected = f"at most {best.time!r} s, which was found"
            raise InternalError(Fault(f"bound of {self.problem.shape.name}", expected, f"{bound!r} s"))
        least = tuple(rows.min(axis=0).tolist())
        return replace(best, least=least, by_boundary=tuple(map(tuple, rows.tolist())), bound=bound)

    def _least(self, graph: TrainingGraph, terms: Terms) -> Priced:
        """What a part takes at least, by the layout in which it meets others."""
        key = graph, terms.mesh, terms.collective
        if key not in self.known:
            self.known[key] = least_by_layout(self._tables(graph, self.base.solvers.of(graph, terms).tables))
        return self.known[key]

    def _tables(self, graph: TrainingGraph, tables: ShardingGraph) -> PartTables:
        return part_tables(graph, self.rates, tables.problem, "X" if "X" in graph.workload.inputs else "Y")

    def _objective(self, graph: TrainingGraph, terms: Terms, tables: ShardingGraph) -> list[Table]:
        """The times of a part at the prices of its bound."""
        return self._tables(graph, tables).priced(self._least(graph, terms).shares)


def _exposed(
    graph: TrainingGraph, sharding: Sharding, collective: CollectiveTime, plans: Mapping[str, SpatialPlan]
) -> Iterator[tuple[CollectiveKind, float]]:
    """By kind, the collectives that work waits for [s]: behind a kernel that runs alone, and what a partition's take longer than
    its work and its memory, shared out among them."""
    kinds: dict[str, dict[CollectiveKind, float]] = {}
    for op, time, kind, _, _ in waited(graph, sharding, collective):
        own = kinds.setdefault(op, {})
        own[kind] = own.get(kind, 0.0) + time
    found: dict[CollectiveKind, float] = {}
    for name, groups in zip(PASSES, pass_groups(graph), strict=True):
        ops = {group.name: group.ops for group in groups}
        for part in plans[name].partitions if name in plans else ():
            asked = [(kind, time) for each in part.names for op in ops[each] for kind, time in kinds.get(op, {}).items()]
            whole = math.fsum(time for _, time in asked)
            beyond = part.network if part.apart else max(0.0, part.network - max(part.compute, part.memory))
            for kind, time in asked:
                found[kind] = found.get(kind, 0.0) + beyond * time / whole if whole else 0.0
    yield from found.items()
