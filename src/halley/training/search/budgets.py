"""Shardings that are found again for the memory that is left. Each budget is looked at once; what cannot fit is not asked
again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halley.errors import Infeasible
from halley.optim.constrained import OverCapacity
from halley.training.part_costs import MemoryBudget, ModelCosts

Floats = NDArray[np.float64]

CLOSE = 1e-12
"""Relative difference of shares of a budget that are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Budgets:
    """What was found for groups of plans in some budgets, and what asked for too much of one."""

    _found: dict[tuple[Hashable, MemoryBudget, float], ModelCosts] = field(default_factory=dict)
    _unfit: dict[Hashable, list[Floats]] = field(default_factory=dict)

    def costs(
        self, group: Hashable, budget: MemoryBudget, resident: float, solve: Callable[[MemoryBudget, float], ModelCosts]
    ) -> ModelCosts | None:
        """Those of a group's parts under the shardings that ``solve`` finds in a ``budget`` with ``resident`` bytes per
        parameter; None where none fits. What asks for as much of every part as something that did not fit does not fit either.
        """
        held = np.array(budget.held) / budget.capacity if budget.capacity > 0 else np.full(len(budget.held), np.inf)
        demand = np.concatenate((held * resident, held * budget.in_flight, held))
        if any((demand >= least).all() for least in self._unfit.get(group, ())):
            return None
        key = group, budget, resident
        if key not in self._found:
            try:
                self._found[key] = solve(budget, resident)
            except Infeasible as error:
                # shares of what was asked take at least as large a share of the budget
                short = error.use / budget.capacity if isinstance(error, OverCapacity) and budget.capacity > 0 else 1.0
                self._unfit.setdefault(group, []).append(demand / max(1.0, short * (1 - CLOSE)))
                return None
        return self._found[key]
