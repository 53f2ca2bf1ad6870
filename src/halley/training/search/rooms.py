"""Shardings that are found again for the memory that is left. Each room is looked at once; what cannot fit is not asked again."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from halley.errors import Infeasible
from halley.optim.constrained import TooMuch
from halley.training.part_costs import ModelCosts, Room

Floats = NDArray[np.float64]

CLOSE = 1e-12
"""Relative difference of shares of a room that are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """What was found for groups of plans in some rooms, and what asked for too much of one."""

    _found: dict[tuple[Hashable, Room, float], ModelCosts] = field(default_factory=dict)
    _unfit: dict[Hashable, list[Floats]] = field(default_factory=dict)

    def costs(
        self, group: Hashable, room: Room, resident: float, solve: Callable[[Room, float], ModelCosts]
    ) -> ModelCosts | None:
        """Those of a group's parts under the shardings that ``solve`` finds in a ``room`` with ``resident`` bytes per parameter;
        None where none fits. What asks for as much of every part as something that did not fit does not fit either.
        """
        held = np.array(room.held) / room.capacity if room.capacity > 0 else np.full(len(room.held), np.inf)
        demand = np.concatenate((held * resident, held * room.in_flight, held))
        if any((demand >= least).all() for least in self._unfit.get(group, ())):
            return None
        key = group, room, resident
        if key not in self._found:
            try:
                self._found[key] = solve(room, resident)
            except Infeasible as error:
                # shares of what was asked take at least as large a share of the room
                short = error.use / room.capacity if isinstance(error, TooMuch) and room.capacity > 0 else 1.0
                self._unfit.setdefault(group, []).append(demand / max(1.0, short * (1 - CLOSE)))
                return None
        return self._found[key]
