"""Result of a search: plans, their estimates, and certificates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from halley.answer import Answerable, Certificate, Status
from halley.cost.estimate import Estimate
from halley.ir.mapping import Node
from halley.mapping.problem import Problem
from halley.units import format_energy, format_time


class Clause(str):
    """A clause of a certificate's declaration: ``what`` is searched or left out, and ``how``. As text: both.

    >>> str(Clause("buffers", "one or two")), Clause("buffers", "one or two").how
    ('buffers: one or two', 'one or two')
    """

    __slots__ = ("how", "what")

    what: str
    how: str

    def __new__(cls, what: str, how: str) -> Self:
        made = super().__new__(cls, f"{what}: {how}")
        made.what, made.how = what, how
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return self.what, self.how

    def document(self) -> dict[str, str]:
        """As plain data."""
        return {"what": self.what, "how": self.how}


@dataclass(frozen=True, slots=True)
class MappingCertificate(Certificate):
    """Certificate of a mapping: value and bound are those of the ``objective``, size counts mappings (None: not counted), and the
    effort is mappings ``costed`` and lower bounds computed (``bounds``). ``declaration``: what was searched; ``method``: how."""

    left_out: tuple[Clause, ...] = ()
    declaration: tuple[Clause, ...] = ()
    objective: str = "time"
    method: str = ""

    @property
    def costed(self) -> int:
        return self.effort["costed"]

    @property
    def bounds(self) -> int:
        return self.effort["bounded"]


@dataclass(frozen=True, slots=True)
class Solution:
    """A plan with its estimate and certificate. ``groups``: names of the ops of each fused group; ``shape``: the chosen frame and
    stage shapes."""

    name: str
    plan: Node
    estimate: Estimate
    certificate: MappingCertificate
    groups: tuple[tuple[str, ...], ...]
    shape: tuple[str, ...]
    variant: str

    def __repr__(self) -> str:
        time, energy = format_time(float(self.estimate.time)), format_energy(float(self.estimate.energy))
        return f"Solution({self.name}: {time}, {energy}, gap {self.certificate.gap:.2g})"

    @property
    def status(self) -> Status:
        """How the search ended."""
        return self.certificate.status


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a time-energy front."""

    time: float
    energy: float
    plan: Node


@dataclass(frozen=True, slots=True, repr=False)
class Result(Answerable):
    """Answer to a problem: the best plan, the baselines searched in the same way, and the front if requested.

    ``absent``: baselines that apply to the workload, but without a mapping that fits, or without one found in time.
    """

    problem: Problem
    best: Solution
    baselines: tuple[Solution, ...]
    front: tuple[Point, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        found = {solution.status for solution in (self.best, *self.baselines)}
        return next((status for status in (Status.LIMIT, Status.WITHIN) if status in found), Status.OPTIMAL)
