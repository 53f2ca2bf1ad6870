"""Where a plan search gets the costs of a model's parts on spatial chips: shardings and the fusion of kernels, together.

Each pass of a part is cut into partitions that run side by side (`halley.planning.partitioning`), exactly for a given sharding.
Several shardings are tried, each the best for some price of memory and network against work, as kernels run one by one; what no
sharding falls below, however its kernels are fused, comes from `halley.planning.spatial_bounds`. The gap between the two goes
into the certificate of the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from halley.errors import Fault, Infeasible, InternalError
from halley.formulas.numbers import Number
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.planning.axis_bounds import Way
from halley.planning.communication import Communication
from halley.planning.dfmodel_chip import dfmodel_chip
from halley.planning.layouts import CollectiveTime
from halley.planning.machine import Efficiency, machine
from halley.planning.op_costs import OpCosts
from halley.planning.part_bounds import ModelBound, PartBound
from halley.planning.part_costs import ModelCosts, PartCosts, Room, Solvers, Terms, model_costs, training_graphs
from halley.planning.partitioning import SpatialPlan, best_plan
from halley.planning.plan import TrainingProblem
from halley.planning.sharded import Sharding
from halley.planning.sharded_model import SQUEEZING, CostModel, ShardedModel
from halley.planning.sharding import KernelTime, work_time
from halley.planning.spatial import HALLEY, Graph, Problem, SpatialChip
from halley.planning.spatial_bounds import SpatialAxisBounds, least_by_layout, part_tables, pass_floors
from halley.planning.spatial_passes import PASSES, ChipRates, PassGraphs, pass_groups, waited
from halley.planning.training_kernels import TrainingGraph

Floats = NDArray[np.float64]

class Price(NamedTuple):
    """What shardings are looked for at: a share of the time of ``collectives``, and a factor of the bandwidth of ``memory``."""

    collectives: float
    memory: float


ONE_BY_ONE = Price(1.0, 1.0)
"""As kernels run one by one."""

PRICES = (ONE_BY_ONE, Price(0.25, 16.0))
"""The second: where partitions hide most of both."""

LEFT_OUT = (
    "partitions over the border of two passes or layers, and of a fused attention core with its neighbours",
    "shardings other than the best kernel by kernel and the best where memory and network are mostly hidden, beyond the bound",
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
class _Scaled:
    """Collectives at a share of their time."""

    collective: CollectiveTime
    share: float

    def __call__(self, kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        return self.share * self.collective(kind, axes, size)


@dataclass(frozen=True, slots=True)
class SpatialModel:
    """The model of a problem on spatial chips: a `halley.planning.sharded_model.CostModel`. ``solvers``: by price, what earlier
    calls found out; ``known`` [layouts] [s]: by part and mesh, what no sharding falls below."""

    problem: TrainingProblem
    base: ShardedModel = field(init=False)
    rates: ChipRates = field(init=False)
    axes: SpatialAxisBounds = field(init=False)
    solvers: Mapping[Price, Solvers] = field(init=False, default_factory=lambda: {price: Solvers() for price in PRICES})
    known: dict[object, Floats] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.problem
        chip = spatial_chip(problem.system, problem.efficiency)
        object.__setattr__(self, "base", ShardedModel(problem))
        rates = ChipRates(machine(problem.system.chip), chip, problem.efficiency, problem.recipe.gradient)
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "axes", SpatialAxisBounds(problem, rates.machine, rates=rates))

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

    def layers(self, communication: Communication, microbatch: int, way: Way) -> Floats:
        """As in `CostModel`: by the bounds that hold however kernels are fused."""
        terms = self.base.terms(communication, way)
        graphs = self._graphs(microbatch, way)[1:-1]
        if not terms.mesh:
            # there is one sharding, which `costs` finds at once
            return np.zeros(len(graphs))
        return np.array([self._least(graph, terms).min() for graph in graphs]) * (1 - ROUNDING)

    def _graphs(self, microbatch: int, way: Way) -> tuple[TrainingGraph, ...]:
        return training_graphs(self.problem.shape, microbatch, self.problem.sequence, way.recompute, way.fused)

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
        given = self.base.terms(communication, way, resident)
        for price in PRICES if communication.mesh else (ONE_BY_ONE,):
            terms, solvers = given if price == ONE_BY_ONE else priced(given, price), self.solvers[price]
            try:
                costs = model_costs(problem.shape, microbatch, problem.sequence, terms, way.recompute, room, SQUEEZING, solvers)
            except Infeasible:
                if price == ONE_BY_ONE:
                    raise
                continue
            parts = [self._fused(part, graph, communication) for part, graph in zip(costs.parts, graphs, strict=True)]
            key = tuple(item.ways for part in parts for item in part.sharding.ops), costs.boundary
            if key not in known:
                known.add(key)
                blocks = tuple(zip(parts[1:-1], costs.layers, strict=True))
                yield replace(costs, embedding=parts[0], blocks=blocks, head=parts[-1])

    def _fused(self, part: PartCosts, graph: TrainingGraph, communication: Communication) -> PartCosts:
        """A part under the sharding that it has, at its real times, its kernels fused as is best."""
        collective = communication.model
        own = OpCosts(graph, self.base.chip, self.problem.efficiency, self.problem.recipe.gradient)
        sharding = _at_real_times(part.sharding, collective, own)
        times = {item.op: item.time for item in sharding.ops}
        graphs = PassGraphs(graph, self.rates, collective).of(sharding, times)
        plans = {
            name: best_partitions(made, self.rates.chip) for name, made in zip(PASSES, graphs, strict=True) if made is not None
        }
        passes = {name: plans[name].layer if name in plans else 0.0 for name in PASSES}
        return replace(
            part,
            **passes,
            traffic=math.fsum(each.traffic + _loaded(each) for each in plans.values()),
            exposed=dict(_exposed(graph, sharding, collective, plans)),
            sharding=sharding,
            on_chip={name: plan for name, plan in plans.items() if plan.layer > 0},
        )

    def _bounded(self, best: ModelCosts, terms: Terms, graphs: Sequence[TrainingGraph]) -> ModelCosts:
        """With what no sharding falls below. Over one chip there is one sharding, and its partitions are the best."""
        counts = np.array(best.counts, np.float64)
        if terms.mesh:
            rows = np.stack([self._least(graph, terms) for graph in graphs], axis=1)
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

    def _least(self, graph: TrainingGraph, terms: Terms) -> Floats:
        """[layouts] what a part takes at least, by the layout in which it meets others [s]."""
        key = graph, terms.mesh, terms.collective
        if key not in self.known:
            end = "X" if "X" in graph.workload.inputs else "Y"
            problem = self.solvers[ONE_BY_ONE].of(graph, terms).tables.problem
            self.known[key] = least_by_layout(part_tables(graph, self.rates, problem, end))
        return self.known[key]


def priced(terms: Terms, price: Price) -> Terms:
    """The same with collectives and memory at a price."""
    chip = replace(terms.chip, memory=price.memory * terms.chip.memory)
    return replace(terms, collective=_Scaled(terms.collective, price.collectives), chip=chip)


def _at_real_times(sharding: Sharding, collective: CollectiveTime, kernel_times: KernelTime) -> Sharding:
    """A sharding that was found at other prices."""
    problem = replace(sharding.problem, collective_time=collective, kernel_time=kernel_times)
    moves = tuple(
        replace(
            move,
            steps=tuple(
                step if step.kind is None else replace(step, time=collective(step.kind, step.axes, step.bytes) / move.runs)
                for step in move.steps
            ),
        )
        for move in sharding.moves
    )
    ops = tuple(
        replace(item, time=work_time(problem, problem.workload.op(item.op), item.ways)) for item in sharding.ops
    )
    time = math.fsum((*(item.time for item in ops), *(step.time for move in moves for step in move.steps)))
    return replace(sharding, problem=problem, ops=ops, moves=moves, time=time)


def _loaded(plan: SpatialPlan) -> float:
    """Bytes of weights that partitions load before they start."""
    return math.fsum(part.setup for part in plan.partitions) * plan.problem.chip.bandwidth


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
