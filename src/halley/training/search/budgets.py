"""Shardings within a memory budget. Each budget is solved once, and one that is harder than an infeasible one is not solved."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halley.errors import Infeasible
from halley.optim.constrained import OverCapacity
from halley.training.part_costs import MemoryBudget, ModelCosts

Floats = NDArray[np.float64]

RELATIVE_ROUNDING = 1e-12
"""Relative difference of shares of a budget that counts as rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Budgets:
    """Solutions for groups of plans and budgets, and demands that were infeasible."""

    _found: dict[tuple[Hashable, MemoryBudget, float], ModelCosts] = field(default_factory=dict)
    _unfit: dict[Hashable, list[Floats]] = field(default_factory=dict)

    def costs(
        self, group: Hashable, budget: MemoryBudget, resident: float, solve: Callable[[MemoryBudget, float], ModelCosts]
    ) -> ModelCosts | None:
        """Costs of a group's parts under the shardings that ``solve`` finds in a ``budget`` with ``resident`` bytes per
        parameter; None where none fits. Demands that are at least an infeasible one for every part are infeasible."""
        held = np.array(budget.held) / budget.capacity if budget.capacity > 0 else np.full(len(budget.held), np.inf)
        demand = np.concatenate((held * resident, held * budget.in_flight, held))
        if any((demand >= least).all() for least in self._unfit.get(group, ())):
            return None
        key = group, budget, resident
        if key not in self._found:
            try:
                self._found[key] = solve(budget, resident)
            except Infeasible as error:
                # scaled down to the demand at which the least use equals the capacity
                short = error.use / budget.capacity if isinstance(error, OverCapacity) and budget.capacity > 0 else 1.0
                self._unfit.setdefault(group, []).append(demand / max(1.0, short * (1 - RELATIVE_ROUNDING)))
                return None
        return self._found[key]
