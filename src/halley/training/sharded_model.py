"""Source of the costs of a model's parts for a plan search: shardings of its graphs, and bounds of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number, maximum
from halley.kernels.machine import Machine, machine
from halley.optim.deadline import Tick, no_limit
from halley.sharding.communication import Communication
from halley.training.axis_bounds import AxisBounds, GraphVariant
from halley.training.kernels import TrainingGraph
from halley.training.op_costs import launches
from halley.training.part_bounds import ModelBound, model_bound
from halley.training.part_costs import MemoryBudget, ModelCosts, least_along, least_layer_times, model_costs, training_graphs
from halley.training.part_solvers import CostTerms, HostTimes, Solvers
from halley.training.plan import TrainingProblem
from halley.training.product_bounds import ProductBounds

Floats = NDArray[np.float64]

Passes = tuple[Floats, Floats]
"""[parts] figures of forward passes, and of backward passes with recomputation: numbers of them, or times [s]."""

BUDGET_SEARCH_ENTRIES = 1 << 27
"""Effort limit of a search for shardings within a memory budget, in entries of tables: some tenths of a second; a gap may
remain."""


class CostModel(Protocol):
    """Costs of a model's parts. Arguments: the chips that share each op, the sequences of a microbatch, and the graph variant."""

    @property
    def spent(self) -> int:
        """Work so far, in entries of joined tables: equal on every machine."""

    def costs(
        self,
        communication: Communication,
        microbatch: int,
        variant: GraphVariant,
        budget: MemoryBudget | None = None,
        resident: float | None = None,
    ) -> ModelCosts:
        """Costs under the shardings of least time that fit in ``budget``, with ``resident`` bytes of each parameter on the
        chip. Raises Infeasible: none fits."""

    def along(
        self,
        communication: Communication,
        microbatch: int,
        variant: GraphVariant,
        passes: Passes,
        budget: MemoryBudget,
        resident: float,
        most: Floats | None = None,
    ) -> tuple[float, ModelCosts] | None:
        """A lower bound [s] of the numbers of forward and backward passes of each part, over all shardings that fit, and the
        costs under those that attain it; None where it is not known. ``most`` [parts]: only shardings with at most so many
        parameters of each part on a chip have to count; others may. Raises as `costs`."""

    def bound(self, ranks: Number, microbatch: Number, variant: GraphVariant) -> ModelBound:
        """Lower bounds of every field over all shardings over so many ranks; numbers and arrays."""

    def raised(
        self, bound: ModelBound, ranks: Number, microbatch: Number, variant: GraphVariant, tick: Tick = no_limit
    ) -> ModelBound:
        """The same with better bounds of times, for more effort, if there are any; ``tick``: called between the products."""

    def tighter(self, communication: Communication, microbatch: int, variant: GraphVariant) -> Iterable[Floats]:
        """Increasingly better bounds of a microbatch through one layer of each kind [kinds] [s], to which the ``excess`` of
        `bound` is added; for less effort than `layers`."""

    def layers(self, communication: Communication, microbatch: int, variant: GraphVariant, rough: bool = False) -> Floats:
        """[kinds] lower bounds of a microbatch through one layer of each kind [s], for less effort than `costs`; ``rough``:
        lower bounds for even less effort."""


@dataclass(frozen=True, slots=True)
class ShardedModel:
    """The model of a problem, every part under its best sharding (`halley.training.part_costs`). ``tick``: called before the
    tables of each part on a mesh are built."""

    problem: TrainingProblem
    tick: Tick = no_limit
    chip: Machine = field(init=False)
    products: ProductBounds = field(init=False)
    axes: AxisBounds = field(init=False)
    solvers: Solvers = field(init=False)

    def __post_init__(self) -> None:
        problem = self.problem
        chip = machine(problem.chip) if problem.searched is None else problem.searched.limits
        object.__setattr__(self, "chip", chip)
        object.__setattr__(self, "products", ProductBounds(chip, problem.efficiency, problem.recipe.gradient, problem.searched))
        object.__setattr__(self, "axes", AxisBounds(problem, chip))
        object.__setattr__(self, "solvers", Solvers(tick=self.tick))

    @property
    def spent(self) -> int:
        """As in `CostModel`."""
        return self.solvers.spent

    def costs(
        self,
        communication: Communication,
        microbatch: int,
        variant: GraphVariant,
        budget: MemoryBudget | None = None,
        resident: float | None = None,
    ) -> ModelCosts:
        """As in `CostModel`."""
        problem, terms = self.problem, self.terms(communication, variant, resident)
        return model_costs(
            problem.shape, microbatch, problem.sequence, terms, variant.recompute, budget, BUDGET_SEARCH_ENTRIES, self.solvers
        )

    def along(
        self,
        communication: Communication,
        microbatch: int,
        variant: GraphVariant,
        passes: Passes,
        budget: MemoryBudget,
        resident: float,
        most: Floats | None = None,
    ) -> tuple[float, ModelCosts] | None:
        """As in `CostModel`."""
        problem, terms = self.problem, self.terms(communication, variant, resident)
        given = problem.shape, microbatch, problem.sequence, terms, variant.recompute, budget, passes
        return least_along(*given, BUDGET_SEARCH_ENTRIES, self.solvers, most)

    def terms(self, communication: Communication, variant: GraphVariant, resident: float | None = None) -> CostTerms:
        """The terms for costs of parts, kernel by kernel."""
        problem = self.problem
        return CostTerms(
            communication.mesh,
            communication.model,
            self.chip,
            problem.efficiency,
            problem.recipe,
            variant.fused,
            boundary=problem.fixed.boundary,
            splits=problem.fixed.splits,
            resident=resident,
            searched=problem.searched,
            software=problem.software,
        )

    def layers(self, communication: Communication, microbatch: int, variant: GraphVariant, rough: bool = False) -> Floats:
        """As in `CostModel`."""
        problem, terms = self.problem, self.terms(communication, variant)
        found = least_layer_times(problem.shape, microbatch, problem.sequence, terms, variant.recompute, self.solvers, rough)
        # where none is possible, `costs` says why
        return np.where(np.isfinite(found), found, 0.0)

    def bound(self, ranks: Number, microbatch: Number, variant: GraphVariant) -> ModelBound:
        """As in `CostModel`: kernels at the rates of the chip."""
        problem = self.problem
        given = (problem.shape, microbatch, problem.sequence, ranks, self.chip, problem.efficiency)
        grouped = problem.searched is not None and problem.searched.grouped
        return self._launched(model_bound(*given, variant.recompute, variant.fused, problem.recipe, grouped), variant)

    def raised(
        self, bound: ModelBound, ranks: Number, microbatch: Number, variant: GraphVariant, tick: Tick = no_limit
    ) -> ModelBound:
        """As in `CostModel`: products are no faster than their kernels."""
        if self.problem.software is not None:
            # what products take longer adds to the work of the chip, not to that of its host
            given = (self.problem.shape, microbatch, self.problem.sequence, ranks, self.chip, self.problem.efficiency)
            bound = model_bound(*given, variant.recompute, variant.fused, self.problem.recipe)
        return self._launched(self.products.raised(bound, self._graphs(variant), microbatch, ranks, tick), variant)

    def _launched(self, bound: ModelBound, variant: GraphVariant) -> ModelBound:
        """The bound, where a host launches the kernels: no pass takes less than its launches."""
        software = self.problem.software
        if software is None:
            return bound
        parts = []
        for part, graph in zip(bound.parts, self._graphs(variant), strict=True):
            host = HostTimes(launches(graph), software)
            passes = {name: maximum(getattr(part, name), host.time(name)) for name in host.launches}
            parts.append(replace(part, **passes))
        return ModelBound(parts[0], tuple(zip(parts[1:-1], bound.layers, strict=True)), parts[-1])

    def _graphs(self, variant: GraphVariant) -> tuple[TrainingGraph, ...]:
        """Of the parts, for one sequence."""
        return training_graphs(self.problem.shape, 1, self.problem.sequence, variant.recompute, variant.fused)

    def tighter(self, communication: Communication, microbatch: int, variant: GraphVariant) -> Iterable[Floats]:
        """As in `CostModel`."""
        return self.axes.tighter(communication, microbatch, variant)
