"""Studies: workloads on a family of chips, what to minimise, and the designs that the axes span."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from halley.errors import BadInput, Fault
from halley.io.chips.chip import clock_of, read_chip
from halley.io.files.entries import shown
from halley.io.files.text import Document, Finding, KeyPath
from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.mapping.problem import Objective, Problem
from halley.sweeps.expressions import Expression
from halley.sweeps.figures import figures_of
from halley.sweeps.places import with_values
from halley.sweeps.values import AxisValue, in_si


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """An axis: its ``steps`` set the ``places`` of the chip file, one value for each place. ``line``: its place in the study."""

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
    """A chip of the study. ``setting``: the value of each axis as text; ``figures``: numbers of the chip, and of its axes, by
    name, in SI units."""

    index: int
    setting: Mapping[str, str]
    chip: Chip
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Study:
    """A study that was read and checked, but for its designs, which `Study.designs` makes.

    ``base``: the chip file that the axes change, with the lines of the study for messages. ``objective``: what each search
    minimises; ``minimised``: the figures that the front minimises beside it. ``gap``, ``time_limit`` [s]: of each search.
    """

    name: str
    document: Document
    base: Document
    workloads: tuple[StudyWorkload, ...]
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
    def weights(self) -> tuple[float, ...]:
        return tuple(each.weight for each in self.workloads)

    def problem(self, design: Design, workload: int) -> Problem:
        """What is searched for a design and the workload of that index."""
        asked = self.workloads[workload]
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
            line = self.document.where(("where",) if self.where else ("axes",))
            raise BadInput(Fault(line, "a design that keeps all constraints", f"none of {self.points:,}"))
        return found

    def _check_values(self) -> None:
        """Each value by itself, beside the first of the other axes. Raises BadInput: all that are wrong, each at its axis."""
        own: dict[Finding, None] = {}
        beside: dict[Finding, None] = {}
        for axis in self.axes:
            for step in axis.steps:
                first = {other.name: other.steps[0] for other in self.axes} | {axis.name: step}
                for each in self._chip(first)[1]:
                    got = shown(step[0]) if each.got == "a map" else each.got
                    if self._axis_at(each.path, axis):
                        own[Finding(axis.line, each.expected, got, each.remedy)] = None
                    else:  # of another axis, which tells it too, or of several together
                        words = ".".join(self.base.words(each.path))
                        beside[Finding(axis.line, each.expected, f"{got} at {words} with {shown(step[0])}", each.remedy)] = None
        if own or beside:
            raise BadInput(self.document.faults(own or beside))

    @staticmethod
    def _axis_at(path: KeyPath, axis: SweepAxis) -> bool:
        return any(path[: len(place)] == place or place[: len(path)] == path for place in axis.places)

    def _chip(self, steps: Mapping[str, tuple[AxisValue, ...]]) -> tuple[Chip | None, list[Finding]]:
        changes = [pair for axis in self.axes for pair in zip(axis.places, steps[axis.name], strict=True)]
        changed = Document(self.base.name, with_values(self.base.data, changes), self.base.lines)
        return read_chip(changed)

    def _designs(self) -> Iterator[Design]:
        early = [rule for rule in self.where if rule.names <= {axis.name for axis in self.axes}]
        late = [rule for rule in self.where if rule not in early]
        clock = clock_of(self.base.data)
        index = 0
        for steps in itertools.product(*(axis.steps for axis in self.axes)):
            named = dict(zip((axis.name for axis in self.axes), steps, strict=True))
            numbers = {name: number for name, step in named.items() if (number := in_si(step[0], clock)) is not None}
            if not all(self._keeps(rule, numbers) for rule in early):
                continue
            chip, findings = self._chip(named)
            if chip is None:
                words = ", ".join(f"{name} {step[0]}" for name, step in named.items())
                raise BadInput(
                    [
                        Fault(
                            f"{self.document.where(('axes',))}: {words}: {'.'.join(self.base.words(finding.path))}",
                            finding.expected,
                            finding.got,
                            finding.remedy,
                        )
                        for finding in findings
                    ]
                )
            numbers |= figures_of(chip)
            for name, formula in self.own.items():
                numbers[name] = self._number(formula, numbers, ("figures", name))
            if all(self._keeps(rule, numbers) for rule in late):
                setting = {name: " / ".join(dict.fromkeys(map(str, step))) for name, step in named.items()}
                yield Design(index, setting, chip, numbers)
                index += 1

    def _keeps(self, rule: Expression, numbers: Mapping[str, float]) -> bool:
        if missing := sorted(rule.names - numbers.keys()):
            where, got = self.document.where(("where",)), f"{missing[0]}, whose values are words"
            raise BadInput(Fault(where, "constraints on numbers", got, "remove the constraint"))
        return bool(self._number(rule, numbers, ("where", self.where.index(rule))))

    def _number(self, formula: Expression, numbers: Mapping[str, float], path: KeyPath) -> float:
        try:
            return formula.value(numbers)
        except BadInput as error:
            raise BadInput([replace(fault, where=self.document.where(path)) for fault in error.faults]) from None


def problem_key(problem: Problem) -> str:
    """Of all that an answer depends on but the model's source and the limits: workload, chip and objective. Names, descriptions
    and sources do not matter."""
    chip = replace(problem.chip, name="", description="", sources={}, version=0)
    inputs = (problem.workload, chip, problem.objective.value, problem.fixed_variant)
    return hashlib.sha256(repr(inputs).encode()).hexdigest()
