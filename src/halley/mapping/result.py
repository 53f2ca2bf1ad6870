"""Result of a search: plans, their estimates, and certificates."""

from __future__ import annotations

from dataclasses import dataclass

from halley.answer import Status, relative_gap
from halley.cost.estimate import Estimate
from halley.ir.mapping import Node
from halley.mapping.problem import Problem


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a certificate's declaration: ``what`` is searched or left out, and ``how``."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class MappingCertificate:
    """Certificate of a mapping.

    ``space`` and ``left_out``: what was searched and what was not; ``size``: exact number of mappings of the space, None if not
    counted; no mapping of the space has an objective below ``bound`` [s, J or Js]; ``gap`` = value / bound - 1. ``costed``:
    number of mappings evaluated; ``bounds``: number of lower bounds computed; ``closed``: how the proof ended.
    """

    space: tuple[Clause, ...]
    left_out: tuple[Clause, ...]
    size: int | None
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
    """A plan with its estimate and certificate. ``groups``: names of the ops of each fused group; ``shape``: the chosen frame and
    stage shapes."""

    name: str
    plan: Node
    estimate: Estimate
    certificate: MappingCertificate
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
        everything = (self.best, *self.baselines)
        return Status.LIMIT if any(s.status is Status.LIMIT for s in everything) else Status.OPTIMAL
