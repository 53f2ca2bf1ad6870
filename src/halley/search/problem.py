"""What is asked: a workload on a chip, an objective, limits."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from halley.ir.hardware import Chip
from halley.ir.workload import Workload


class Objective(StrEnum):
    """What to minimise. `EDP` is energy times time [Js]."""

    TIME = "time"
    ENERGY = "energy"
    EDP = "edp"


@dataclass(frozen=True, slots=True)
class Problem:
    """A workload (the search also tries its other variants unless ``fixed_variant``), a chip, an objective, limits.

    ``gap``: with the objectives time and energy, an answer is good enough when it is proved to be within this factor
    (0.01: one per cent) of the optimum. ``time_limit`` [s] stops the search with the best so far; ``baselines`` are searched
    beside the best: all that apply, none, or those of these names (`halley.search.baselines.BASELINES`); ``front`` asks for
    the time-energy front.
    """

    workload: Workload
    chip: Chip
    objective: Objective = Objective.TIME
    _: KW_ONLY
    gap: float = 0.0
    time_limit: float | None = None
    baselines: bool | tuple[str, ...] = True
    front: bool = False
    fixed_variant: bool = False
