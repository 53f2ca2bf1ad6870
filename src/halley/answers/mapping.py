"""Answers to mapping problems, and estimates of mappings that the user wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from halley.answer import Certificate, Status
from halley.answers.base import Answer, Comparison
from halley.cost.figures import resource_name
from halley.cost.own import OwnMapping, own_mapping
from halley.errors import BadInput, Fault
from halley.io.results.envelope import Plain, Saved, certificate_document
from halley.io.results.estimate import own_document, read_own
from halley.io.results.models import EstimateFile, MappingFile, SolutionModel
from halley.io.results.result import Record, record_of, result_document, result_of
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, walk
from halley.ir.text import parse
from halley.mapping.problem import Problem
from halley.mapping.result import MappingCertificate, Result, Solution
from halley.report.answers.comparison import loads_table
from halley.report.answers.page import simple_page
from halley.report.mapping import figures
from halley.report.mapping.explain import explanation
from halley.report.mapping.facts import (
    comparison,
    comparison_table,
    outer_name,
    outer_traffic,
    plan_text,
    problem_text,
    result_tables,
    solution_tables,
    time_table,
    verdict,
    workload_text,
)
from halley.report.mapping.page import page
from halley.report.mapping.reasons import all_reasons, memory_names, reasons, reasons_document, reasons_table
from halley.report.mapping.sheets import SHEETS
from halley.report.mapping.tree import find, lines
from halley.report.rows import Row
from halley.report.table import Table
from halley.units import format_bytes, format_energy, format_time
from halley.verify import verify
from halley.verify.findings import Finding, Progress
from halley.verify.findings import figures as same_figures
from halley.verify.mapping import (
    CertificateClaim,
    MappingClaim,
    PointClaim,
    front_finding,
    mapping_findings,
    mapping_search_finding,
)
from halley.workloads.registry import mapped_variant

COMPARISON = "halley.comparison/1"
"""Name and version of the document of a comparison."""


class MappingAnswer(Answer[Result]):
    """The best mapping of a workload on a chip."""

    kind, family, file = "mapping", "mapping", MappingFile

    @classmethod
    def read(cls, saved: Saved) -> MappingAnswer:
        record = record_of(saved)
        return cls(result_of(record), saved.content, saved.remark)

    @property
    def certificate(self) -> Certificate:
        return self.value.best.certificate

    def document(self) -> Plain:
        return result_document(self.value)

    def lines(self) -> tuple[str, ...]:
        problem, best = self.value.problem, self.value.best
        asked = problem_text(problem.workload, problem.chip, problem.objective)
        return asked, plan_text(best), verdict(best.certificate)

    def tables(self, details: bool = False) -> list[Table]:
        return list(result_tables(self.value, details))

    def explained(self, part: str) -> list[Table]:
        best, chip = self.value.best, self.value.problem.chip
        if part:
            return _node(chip, best, part)
        return [*_where(best), *map(reasons_table, all_reasons(self.value))]

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        return verify(self.value, limit, search, progress)

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        return {name: lambda make=make: make(self.value) for name, make in SHEETS.items()}  # type: ignore[misc]

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        return {name: lambda make=make: make(self.value) for name, make in figures.FIGURES.items()}  # type: ignore[misc]

    def page(self) -> str:
        return page(self.value, None if self.saved is None else self.saved.get("provenance"))

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        return _compared(self, other, names)

    def baselines(self) -> Comparison:
        """The best mapping beside its baselines, and why it is faster."""
        found = all_reasons(self.value)
        document = _document([self], [reasons_document(item) for item in found])
        return Comparison((comparison(self.value), *map(reasons_table, found)), document)


class EstimateAnswer(Answer[OwnMapping]):
    """The cost of a mapping that the user wrote."""

    kind, family, file = "estimate", "mapping", EstimateFile

    @classmethod
    def read(cls, saved: Saved) -> EstimateAnswer:
        return cls(read_own(saved), saved.content, saved.remark)

    @property
    def certificate(self) -> None:
        return None

    def document(self) -> Plain:
        return own_document(self.value)

    def lines(self) -> tuple[str, ...]:
        work = self.value.workload
        return f"{workload_text(work.name, work.parameters)} on {self.value.chip.label}, a given mapping", "not searched"

    def tables(self, details: bool = False) -> list[Table]:
        return list(solution_tables(self.value.chip, self.value.plan, self.value.estimate))

    def explained(self, part: str) -> list[Table]:
        solution = solution_of(self.value)
        return _node(self.value.chip, solution, part) if part else _where(solution)

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        return verify(self.value)

    def _result(self) -> Result:
        """As if it had been searched, for tables and figures."""
        return Result(Problem(self.value.workload, self.value.chip), solution_of(self.value), (), (), ())

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        made = self._result()
        return {name: lambda make=make: make(made) for name, make in SHEETS.items() if name != "front"}  # type: ignore[misc]

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        made = self._result()
        known = {name: make for name, make in figures.FIGURES.items() if name != "front"}
        return {name: lambda make=make: make(made) for name, make in known.items()}  # type: ignore[misc]

    def page(self) -> str:
        drawn = [make() for make in self.pictures().values()]
        estimate, chip = self.value.estimate, self.value.chip
        moved = f"{outer_name(chip)} traffic"
        main = {
            "time": format_time(float(estimate.time)),
            "energy": format_energy(float(estimate.energy)),
            moved: format_bytes(outer_traffic(chip, estimate)),
        }
        return simple_page("Halley estimate", self.lines(), drawn, self.tables(), self.content(), False, main)

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        return _compared(self, other, names)


def written(text: str, name: str, beside: Answer[Any]) -> EstimateAnswer:
    """A mapping in the text form, for the workload and the chip of another answer: of its variants, that whose ops it runs.

    Raises BadInput: another answer than to a mapping problem, text that is no mapping; IllegalMapping: it breaks a rule.
    """
    match beside.value:
        case Result(problem=Problem(workload=workload, chip=chip)) | OwnMapping(workload=workload, chip=chip):
            plan = parse(text, name)
            return EstimateAnswer(own_mapping(mapped_variant(workload, plan), chip, plan, name))
    raise BadInput(Fault(name, f"an answer of the kind {beside.kind}", "another file", "write it with '-o FILE.json'"))


def solution_of(own: OwnMapping) -> Solution:
    """An own mapping as a solution without a proof."""
    time = float(own.estimate.time)
    effort = {"costed": 1, "bounded": 0}
    proof = MappingCertificate(time, 0.0, Status.LIMIT, effort=effort, closed="not searched", method="none")
    ops = tuple(node.op for _, node in walk(own.plan) if isinstance(node, Compute))
    return Solution("own", own.plan, own.estimate, proof, (ops,), (), str(own.workload.parameters.get("variant", "")))


def _node(chip: Chip, solution: Solution, node: str) -> list[Table]:
    return list(explanation(chip, solution.estimate, find(lines(solution.plan, solution.estimate), node, "NODE")))


def _where(solution: Solution) -> list[Table]:
    """Time by cause, and how long each resource works."""
    from_causes, estimate = time_table(solution.plan, solution.estimate), solution.estimate
    busy = {resource_name(name): float(value) for name, value in estimate.busy.items() if float(value)}
    return [from_causes, loads_table("Resources at work", busy, float(estimate.time), format_time)]


def _side(answer: Answer[Any]) -> tuple[Chip, Solution]:
    match answer.value:
        case Result() as result:
            return result.problem.chip, result.best
        case OwnMapping() as own:
            return own.chip, solution_of(own)
    raise BadInput(Fault("comparison", "answers about mappings", f"a {answer.kind}"))


def _compared(first: Answer[Any], second: Answer[Any], names: tuple[str, str]) -> Comparison:
    """Two mappings: side by side, and the reasons of the difference of their times."""
    sides = [_side(answer) for answer in (first, second)]
    found = reasons(sides[0][1], sides[1][1], memory_names([chip for chip, _ in sides]), names)
    plans = [(name, chip, solution) for name, (chip, solution) in zip(names, sides, strict=True)]
    document = _document([first, second], [reasons_document(found)])
    return Comparison((comparison_table(plans), reasons_table(found)), document)


def _document(answers: list[Answer[Any]], found: list[Plain]) -> Plain:
    return {"schema": COMPARISON, "answers": [answer.content() for answer in answers], "reasons": found}


def mapping_file_findings(saved: Saved, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
    """The findings of a file of mappings: each one by itself, also where another breaks a rule.

    Raises BadInput: a file of another form.
    """
    record = record_of(saved)
    yield Finding("file", "form", True, f"{saved.name} holds an answer of the kind {saved.kind}")
    content, problem, passed = record.content.answer, record.problem, True
    for model in (content.best, *content.baselines):
        for finding in mapping_findings(_claim(record, model), problem.objective.value):
            passed = passed and finding.passed is not False
            yield finding
    if content.front:
        finding = front_finding(problem, tuple(PointClaim(point.plan, point.time_s, point.energy_J) for point in content.front))
        passed = passed and finding.passed is not False
        yield finding
    if passed and record.content.certificate is not None:
        finding = same_figures("file", saved.content["certificate"], certificate_document(result_of(record).best.certificate))
        passed = finding.passed is not False
        yield finding
    proof = _claim(record, content.best).proof
    if search and passed and proof is not None:
        yield mapping_search_finding(content.best.name, problem, proof, limit, progress)


def _claim(record: Record, model: SolutionModel) -> MappingClaim:
    own = model.certificate
    proof = CertificateClaim(own.objective, own.value.unit, own.value.value, own.bound.value, model.status == "optimal")
    unit = proof.unit if own.bound.unit == own.value.unit else f"{own.value.unit} and {own.bound.unit}"
    proof = CertificateClaim(proof.objective, unit, proof.value, proof.bound, proof.optimal)
    figures_of = model.estimate.model_dump()
    return MappingClaim(model.name, record.workload(model), record.problem.chip, model.plan, figures_of, proof)
