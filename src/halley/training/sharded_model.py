"""Where a plan search gets the costs of a model's parts: shardings of its graphs, and bounds of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from halley.formulas.numbers import Number
from halley.kernels.machine import Machine, machine
from halley.sharding.communication import Communication
from halley.training.axis_bounds import AxisBounds, Way
from halley.training.kernels import TrainingGraph
from halley.training.part_bounds import ModelBound, model_bound
from halley.training.part_costs import MemoryBudget, ModelCosts, least_along, least_layer_times, model_costs, training_graphs
from halley.training.part_solvers import Solvers, Terms
from halley.training.plan import TrainingProblem
from halley.training.product_bounds import ProductBounds

Floats = NDArray[np.float64]

Passes = tuple[Floats, Floats]
"""[parts] forward passes, and backward passes."""

SQUEEZING = 1 << 27
"""How long shardings that fit are looked for, at most, before the best so far is taken, in entries of tables: some tenths of a
second; a gap is left then."""


class CostModel(Protocol):
    """Costs of a model's parts. The calls are told the chips that share each op, the sequences of a microbatch, and the way."""

    @property
    def spent(self) -> int:
        """What was done so far, in entries of tables that are joined: the same on every machine."""

    def costs(
        self,
        communication: Communication,
        microbatch: int,
        way: Way,
        budget: MemoryBudget | None = None,
        resident: float | None = None,
    ) -> ModelCosts:
        """Of the shardings that take the least time and fit in ``budget``, with ``resident`` bytes of each parameter on the chip.
        Raises Infeasible: none fits."""

    def along(
        self,
        communication: Communication,
        microbatch: int,
        way: Way,
        passes: Passes,
        budget: MemoryBudget,
        resident: float,
        most: Floats | None = None,
    ) -> tuple[float, ModelCosts] | None:
        """No shardings that fit take less [s] for so many forward and backward passes of each part, and the costs under those
        that take the least; None where that is not known. ``most`` [parts]: only those are asked for under which a chip has so
        many parameters of each part at most; others may count as well. Raises as `costs`."""

    def bound(self, ranks: Number, microbatch: Number, way: Way) -> ModelBound:
        """No sharding over so many ranks costs less, in any field; numbers and arrays."""

    def raised(self, bound: ModelBound, ranks: Number, microbatch: Number, way: Way) -> ModelBound:
        """The same with better bounds of times, for more effort, if there are any."""

    def tighter(self, communication: Communication, microbatch: int, way: Way) -> Iterable[Floats]:
        """Better and better bounds of a microbatch through one layer of each kind [kinds] [s], beside the ``excess`` in `bound`,
        for less effort than `layers`."""

    def layers(self, communication: Communication, microbatch: int, way: Way, rough: bool = False) -> Floats:
        """[kinds] what a microbatch through one layer of each kind takes at least [s], for less effort than `costs`; ``rough``:
        for still less, and no more than without."""


@dataclass(frozen=True, slots=True)
class ShardedModel:
    """The model of a problem, every part under its best sharding (`halley.training.part_costs`)."""

    problem: TrainingProblem
    chip: Machine = field(init=False)
    products: ProductBounds = field(init=False)
    axes: AxisBounds = field(init=False)
    solvers: Solvers = field(init=False, default_factory=Solvers)

    def __post_init__(self) -> None:
        chip, problem = machine(self.problem.chip), self.problem
        object.__setattr__(self, "chip", chip)
        object.__setattr__(self, "products", ProductBounds(chip, problem.efficiency, problem.recipe.gradient))
        object.__setattr__(self, "axes", AxisBounds(problem, chip))

    @property
    def spent(self) -> int:
        """As in `CostModel`."""
        return self.solvers.spent

    def costs(
        self,
        communication: Communication,
        microbatch: int,
        way: Way,
        budget: MemoryBudget | None = None,
        resident: float | None = None,
    ) -> ModelCosts:
        """As in `CostModel`."""
        problem, terms = self.problem, self.terms(communication, way, resident)
        return model_costs(problem.shape, microbatch, problem.sequence, terms, way.recompute, budget, SQUEEZING, self.solvers)

    def along(
        self,
        communication: Communication,
        microbatch: int,
        way: Way,
        passes: Passes,
        budget: MemoryBudget,
        resident: float,
        most: Floats | None = None,
    ) -> tuple[float, ModelCosts] | None:
        """As in `CostModel`."""
        problem, terms = self.problem, self.terms(communication, way, resident)
        given = problem.shape, microbatch, problem.sequence, terms, way.recompute, budget, passes
        return least_along(*given, SQUEEZING, self.solvers, most)

    def terms(self, communication: Communication, way: Way, resident: float | None = None) -> Terms:
        """On what parts are costed, kernel by kernel."""
        problem = self.problem
        return Terms(
            communication.mesh,
            communication.model,
            self.chip,
            problem.efficiency,
            problem.recipe,
            way.fused,
            boundary=problem.fixed.boundary,
            splits=problem.fixed.splits,
            resident=resident,
        )

    def layers(self, communication: Communication, microbatch: int, way: Way, rough: bool = False) -> Floats:
        """As in `CostModel`."""
        problem, terms = self.problem, self.terms(communication, way)
        found = least_layer_times(problem.shape, microbatch, problem.sequence, terms, way.recompute, self.solvers, rough)
        # where none is possible, `costs` says why
        return np.where(np.isfinite(found), found, 0.0)

    def bound(self, ranks: Number, microbatch: Number, way: Way) -> ModelBound:
        """As in `CostModel`: kernels at the rates of the chip."""
        problem = self.problem
        given = (problem.shape, microbatch, problem.sequence, ranks, self.chip, problem.efficiency)
        return model_bound(*given, way.recompute, way.fused, problem.recipe)

    def raised(self, bound: ModelBound, ranks: Number, microbatch: Number, way: Way) -> ModelBound:
        """As in `CostModel`: products are no faster than their kernels."""
        return self.products.raised(bound, self._graphs(way), microbatch, ranks)

    def _graphs(self, way: Way) -> tuple[TrainingGraph, ...]:
        """Of the parts, for one sequence."""
        return training_graphs(self.problem.shape, 1, self.problem.sequence, way.recompute, way.fused)

    def tighter(self, communication: Communication, microbatch: int, way: Way) -> Iterable[Floats]:
        """As in `CostModel`."""
        return self.axes.tighter(communication, microbatch, way)
