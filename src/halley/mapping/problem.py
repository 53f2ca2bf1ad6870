"""A search problem: a workload on a chip, an objective, limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from numbers import Real

from halley.errors import BadInput, Fault, UnitError, did_you_mean
from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.units import SECONDS, parse

WALL_TIME = replace(SECONDS, example="60 s", per_cycle={})
"""The time of a search; no clock counts it."""


class Objective(StrEnum):
    """The objective to minimise. `EDP` is the energy-delay product [Js]."""

    TIME = "time"
    ENERGY = "energy"
    EDP = "edp"


def objective_value(objective: Objective, time_: float, energy: float) -> float:
    """The value of the objective: [s], [J] or [Js]."""
    match objective:
        case Objective.TIME:
            return time_
        case Objective.ENERGY:
            return energy
        case Objective.EDP:
            return time_ * energy


@dataclass(frozen=True, slots=True)
class Problem:
    """A workload (the search also tries its other variants unless ``fixed_variant``), a chip, an objective, limits.

    ``gap``: relative gap, for the objectives time and energy: the search ends when the answer is proven to be within it (0.01:
    one per cent). ``time_limit`` [s] stops the search with the best so far; it may be given as text such as "60 s".
    ``baselines``: True for the usual ones that apply, False for none, or their names (`halley.mapping.baselines.BASELINES`).
    ``front``: also compute the time-energy front. The objective may be given by its name.

    Raises BadInput with all faults.

    >>> from halley import build, load_chip
    >>> Problem(build("gemm", {"m": 64, "n": 64, "k": 64}), load_chip("edge"), "energy").objective
    <Objective.ENERGY: 'energy'>
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

    def __repr__(self) -> str:
        parameters = "".join(f" {name}={value}" for name, value in self.workload.parameters.items() if value is not None)
        limit = "" if self.time_limit is None else f", time limit {self.time_limit:g} s"
        on = f"{self.workload.name}{parameters} on {self.chip.label}"[:200]
        return f"Problem({on}; {self.objective.value}, gap {self.gap:g}{limit})"

    def __post_init__(self) -> None:
        faults = []
        if isinstance(self.time_limit, str):
            try:
                object.__setattr__(self, "time_limit", parse(self.time_limit, WALL_TIME, where="problem, time_limit", zero=True))
            except UnitError as error:
                faults += error.faults
                object.__setattr__(self, "time_limit", None)
        if isinstance(self.baselines, list):
            object.__setattr__(self, "baselines", tuple(self.baselines))
        if not isinstance(self.workload, Workload):
            faults.append(Fault("problem, workload", "a Workload", repr(self.workload), "make one with halley.build"))
        if not isinstance(self.chip, Chip):
            faults.append(Fault("problem, chip", "a Chip", repr(self.chip), "load one with halley.load_chip"))
        faults += [*objective_faults("problem, objective", self.objective), *gap_faults("problem, gap", self.gap, repr(self.gap))]
        faults += [*_baseline_faults(self.baselines)]
        for name in ("front", "fixed_variant"):
            if not isinstance(getattr(self, name), bool):
                faults.append(Fault(f"problem, {name}", "True or False", repr(getattr(self, name))))
        if self.time_limit is not None and not (isinstance(self.time_limit, Real) and self.time_limit >= 0):
            faults.append(Fault("problem, time_limit", "seconds, at least 0", repr(self.time_limit)))
        if faults:
            raise BadInput(faults)
        object.__setattr__(self, "objective", Objective(self.objective))


def _baseline_faults(baselines: object) -> Iterator[Fault]:
    """Names that no baseline has are found by the search (`halley.mapping.baselines`)."""
    if isinstance(baselines, bool) or (isinstance(baselines, tuple) and all(isinstance(name, str) for name in baselines)):
        return
    yield Fault("problem, baselines", "True, False or a tuple of names", repr(baselines)[:60], "write for example ('unfused',)")


def objective_faults(where: str, word: str) -> Iterator[Fault]:
    """Faults of an objective's name."""
    words = [item.value for item in Objective]
    if word not in words:
        yield Fault(where, "time, energy or edp", repr(word), did_you_mean(word, words))


def gap_faults(where: str, gap: float, written: str) -> Iterator[Fault]:
    """Faults of a relative gap; ``written``: its text in the input."""
    if not isinstance(gap, Real) or not 0 <= gap < 1:
        yield Fault(where, "a number from 0 to below 1", written, "write 0.01 for one per cent")
