"""Studies: workloads on a family of chips, or plans on a family of systems; what to minimise, and the designs that axes span."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from halley.errors import BadInput, Fault
from halley.io.cache import model_key
from halley.io.files.entries import shown
from halley.io.files.text import Document, DocumentFault, KeyPath
from halley.ir.digest import digest
from halley.ir.hardware import Chip
from halley.ir.system import System
from halley.ir.workload import Workload
from halley.mapping.problem import Objective, Problem
from halley.sweeps.bases import Base, Subject
from halley.sweeps.deployments import ServingQuestion, StudyDeployment
from halley.sweeps.expressions import Expression
from halley.sweeps.figures import figure_text, figures_of
from halley.sweeps.plans import PlanQuestion, StudyPlan
from halley.sweeps.values import AxisValue, in_si

Question: TypeAlias = Problem | PlanQuestion | ServingQuestion
"""What is searched for a design."""

PLANNERS = ("kernels", "memory", "network", "pipeline", "serving", "sharding", "training")
"""The packages on which plans and deployments depend, beside those of mappings."""


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """An axis: its ``steps`` set the ``places`` of the base's file, one value for each place; or an axis without places, whose
    name stands in braces in the study. ``line``: its place in the study."""

    name: str
    places: tuple[KeyPath, ...]
    steps: tuple[tuple[AxisValue, ...], ...]
    line: KeyPath = ()


@dataclass(frozen=True, slots=True)
class StudyWorkload:
    """A workload of a study, how often it counts, and what the file says of it."""

    name: str
    workload: Workload
    weight: float
    given: Mapping[str, object]

    @property
    def fixed(self) -> bool:
        """Whether the file names the variant, so that no other is tried."""
        return "variant" in self.given


@dataclass(frozen=True, slots=True)
class Design:
    """A chip or system of the study. ``number``: its place among all combinations of the axes' values, those that break a
    constraint among them, from 0, so that a design has one number in every run; ``setting``: the value of each axis as text;
    ``figures``: its numbers, and those of its axes, by name, in SI units."""

    number: int
    setting: Mapping[str, str]
    subject: Subject
    figures: Mapping[str, float]

    @property
    def chip(self) -> Chip:
        """The chip, of a system that of which it has many."""
        return self.subject if isinstance(self.subject, Chip) else self.subject.chip

    @property
    def label(self) -> str:
        """What the design is called where it comes from."""
        return self.subject.label if isinstance(self.subject, Chip) else self.subject.name


@dataclass(frozen=True, slots=True)
class Study:
    """A study that was read and checked, but for its designs, which `Study.designs` makes.

    ``document``: of the study, with its lines for messages; ``base``: what the axes change. ``workloads`` are all mappings of a
    chip, or all plans and deployments on a system. ``objective``: what each search minimises; ``minimised``: the figures that the
    front minimises beside it. ``gap``, ``time_limit`` [s]: of each search.
    """

    name: str
    document: Document
    base: Base
    workloads: tuple[StudyWorkload | StudyPlan | StudyDeployment, ...]
    axes: tuple[SweepAxis, ...]
    own: Mapping[str, Expression]
    where: tuple[Expression, ...]
    objective: Objective
    minimised: tuple[str, ...]
    gap: float = 0.0
    time_limit: float | None = None

    @property
    def points(self) -> int:
        """Number of combinations of the axes' values, constraints aside."""
        return math.prod(len(axis.steps) for axis in self.axes)

    @property
    def of_chips(self) -> bool:
        """Whether designs are chips, and their workloads mappings; otherwise they are systems with plans and deployments."""
        return isinstance(self.workloads[0], StudyWorkload)

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(each.weight for each in self.workloads)

    def problem(self, design: Design, workload: int) -> Question:
        """What is searched for a design and the workload of that index. Raises BadInput: there is no such problem."""
        asked = self.workloads[workload]
        if not isinstance(asked, StudyWorkload):
            assert isinstance(design.subject, System)
            try:
                return asked.question(design.subject, design.setting, self.time_limit)
            except BadInput as error:
                where = self.document.where(("plans" if isinstance(asked, StudyPlan) else "deployments", asked.name))
                raise BadInput([replace(fault, where=f"{where}: {fault.where}".rstrip(": ")) for fault in error.faults]) from None
        return Problem(
            asked.workload,
            design.chip,
            self.objective,
            gap=0.0 if self.objective is Objective.EDP else self.gap,
            time_limit=self.time_limit,
            baselines=False,
            fixed_variant=asked.fixed,
        )

    def designs(self) -> tuple[Design, ...]:
        """Every design that keeps the constraints. Raises BadInput: values that make no chip, all of them; no design is left."""
        self._check_values()
        found = tuple(self._designs())
        if not found:
            raise BadInput(self._constrained_away())
        return found

    def _constrained_away(self) -> Fault:
        """No design keeps the constraints: which values they are about are possible."""
        every = list(replace(self, where=())._designs())
        named = dict.fromkeys(name for rule in self.where for name in sorted(rule.names))
        spans = []
        for name in named:
            values = sorted({design.figures[name] for design in every if name in design.figures})
            ends = dict.fromkeys(self.text_of(name, value) for value in (values[0], values[-1]))
            spans.append(f"{name} from {' to '.join(ends)}" if len(ends) > 1 else f"{name} {next(iter(ends))}")
        line = self.document.where(("where",) if self.where else ("axes",))
        got = f"none of {self.points:,}, which have {', '.join(spans)}"
        return Fault(line, "a design that keeps all constraints", got, "relax a constraint")

    def text_of(self, name: str, value: float) -> str:
        """A figure or the value of an axis, with its unit."""
        steps = (step[0] for axis in self.axes if axis.name == name for step in axis.steps)
        written = (f"{step}" for step in steps if in_si(step, self.base.clock) == value)
        return next(written, figure_text(name, value))

    def _check_values(self) -> None:
        """Each value by itself, beside the first of the other axes. Raises BadInput: all that are wrong, each at its axis."""
        own: dict[DocumentFault, None] = {}
        beside: dict[object, DocumentFault] = {}
        for axis in self.axes:
            for step in axis.steps:
                first = {other.name: other.steps[0] for other in self.axes} | {axis.name: step}
                for each in self._subject(first)[1]:
                    got = shown(step[0]) if each.got == "a map" else each.got
                    if self._axis_at(each.path, axis):
                        own[DocumentFault(axis.line, each.expected, got, each.remedy)] = None
                    else:  # of another axis, which tells it too, or of several together
                        words = self.base.words(each.path)
                        place = f" at {words}" if words else ""
                        reported = DocumentFault(axis.line, each.expected, f"{got}{place} with {shown(step[0])}", each.remedy)
                        beside.setdefault((axis.line, step, each) if words else each, reported)
        if own or beside:
            raise BadInput(self.document.faults(own or beside.values()))

    @staticmethod
    def _axis_at(path: KeyPath, axis: SweepAxis) -> bool:
        return any(path[: len(place)] == place or place[: len(path)] == path for place in axis.places)

    def _subject(self, steps: Mapping[str, tuple[AxisValue, ...]]) -> tuple[Subject | None, list[DocumentFault]]:
        changes = [pair for axis in self.axes if axis.places for pair in zip(axis.places, steps[axis.name], strict=True)]
        return self.base.subject(changes, _setting(steps))

    def _designs(self) -> Iterator[Design]:
        for choice in itertools.product(*(range(len(axis.steps)) for axis in self.axes)):
            design = self.design(choice)
            if design is not None:
                yield design

    def design(self, choice: Sequence[int]) -> Design | None:
        """The design of one step of each axis, by their places; None if it breaks a constraint. Raises BadInput: the values make
        none."""
        steps, number = [axis.steps[place] for axis, place in zip(self.axes, choice, strict=True)], 0
        for axis, place in zip(self.axes, choice, strict=True):
            number = number * len(axis.steps) + place
        early = [rule for rule in self.where if rule.names <= {axis.name for axis in self.axes}]
        named = {axis.name: step for axis, step in zip(self.axes, steps, strict=True)}
        values = {name: in_si(step[0], self.base.clock) for name, step in named.items()}
        numbers = {name: value for name, value in values.items() if value is not None}
        if not all(self._keeps(rule, numbers) for rule in early):
            return None
        subject, findings = self._subject(named)
        if subject is None:
            words = ", ".join(f"{name} {step[0]}" for name, step in named.items())
            where = f"{self.document.where(('axes',))}: {words}"
            raise BadInput(
                [
                    Fault(f"{where}: {self.base.words(each.path)}".rstrip(": "), each.expected, each.got, each.remedy)
                    for each in findings
                ]
            )
        numbers |= figures_of(subject)
        for name, formula in self.own.items():
            numbers[name] = self._number(formula, numbers, ("figures", name))
        self._check_minimised(numbers)
        kept = all(self._keeps(rule, numbers) for rule in self.where if rule not in early)
        return Design(number, _setting(named), subject, numbers) if kept else None

    def _check_minimised(self, numbers: Mapping[str, float]) -> None:
        if missing := [name for name in self.minimised if name not in numbers]:
            raise BadInput(numberless(self.document.where(("minimise",)), missing[0]))

    def _keeps(self, rule: Expression, numbers: Mapping[str, float]) -> bool:
        return bool(self._number(rule, numbers, ("where", self.where.index(rule))))

    def _number(self, formula: Expression, numbers: Mapping[str, float], path: KeyPath) -> float:
        where = self.document.where(path)
        if missing := sorted(formula.names - numbers.keys()):
            raise BadInput(numberless(where, missing[0]))
        try:
            return formula.value(numbers)
        except BadInput as error:
            raise BadInput([replace(fault, where=where) for fault in error.faults]) from None


def _setting(steps: Mapping[str, tuple[AxisValue, ...]]) -> dict[str, str]:
    """The value of each axis as text."""
    return {name: " / ".join(dict.fromkeys(map(str, step))) for name, step in steps.items()}


def numberless(where: str, name: str) -> Fault:
    """An axis whose values are words, or a figure that a design does not have."""
    if name == "die_area":
        return Fault(
            where, "a die_area of every chip of the study", "none of some", "add a die to the chip file: die: {process: 7 nm}"
        )
    if name == "peak_power":
        remedy = "state bandwidths that cost energy"
        return Fault(where, "a finite peak_power of every chip of the study", "none of some", remedy)
    if name in ("price", "power"):
        remedy = f"state it in a system file: costs: {{chip: {{{name}: ...}}}}"
        return Fault(where, f"a {name} of every chip of the study", "none of some", remedy)
    return Fault(where, "numbers", f"{name}, whose values are words", "leave it out")


def problem_key(problem: Question) -> str:
    """Of all that an answer depends on but the limits and the source of the cost model and the search of mappings: workload, chip
    or system, and objective; of plans and deployments also the source of their search. Names, descriptions and sources of figures
    do not matter."""
    if not isinstance(problem, Problem):
        return digest((problem.inputs, model_key(packages=PLANNERS)))
    chip = replace(problem.chip, name="", description="", sources={}, version=0, die=None)
    inputs = (problem.workload, chip, problem.objective.value, problem.fixed_variant)
    return digest(inputs)
