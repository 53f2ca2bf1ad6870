"""What a search returns: a plan, its estimate, and a certificate of how good it can be at most."""

from __future__ import annotations

from dataclasses import dataclass

from halley.answer import Status, relative_gap
from halley.cost.estimate import Estimate
from halley.ir.mapping import Node
from halley.mapping.problem import Problem


@dataclass(frozen=True, slots=True)
class Clause:
    """A point of what a certificate declares: ``what`` is chosen, or is not, and ``how``."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """Proof that goes with an answer.

    ``space`` and ``left_out`` list what was searched and what was not; ``size`` counts its mappings exactly; no mapping of
    the space has an objective below ``bound`` [s, J or Js]; ``gap`` = value / bound - 1. ``costed`` mappings were evaluated,
    ``bounds`` partial ones were bounded; ``closed`` says how the proof ended.
    """

    space: tuple[Clause, ...]
    left_out: tuple[Clause, ...]
    size: int
    method: str
    objective: str
    bound: float
    value: float
    costed: int
    bounds: int
    seconds: float
    closed: str

    @property
    def gap(self) -> float:
        return relative_gap(self.value, self.bound)


@dataclass(frozen=True, slots=True)
class Solution:
    """A plan with its estimate and certificate. ``groups`` names the ops that are fused together; ``shape`` the frame and the
    stage shapes chosen."""

    name: str
    plan: Node
    estimate: Estimate
    certificate: Certificate
    status: Status
    groups: tuple[tuple[str, ...], ...]
    shape: tuple[str, ...]
    variant: str


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a time-energy front."""

    time: float
    energy: float
    plan: Node


@dataclass(frozen=True, slots=True)
class Result:
    """Answer to a problem: the best plan, the baselines searched with the same rigour, and the front where asked for.

    ``absent`` names baselines that have mappings of such a workload, but none that fits, or none that was found in time.
    """

    problem: Problem
    best: Solution
    baselines: tuple[Solution, ...]
    front: tuple[Point, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        everything = (self.best, *self.baselines)
        return Status.LIMIT if any(s.status is Status.LIMIT for s in everything) else Status.OPTIMAL
