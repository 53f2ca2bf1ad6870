"""Answers to mapping problems: a `Result` to text and back.

The plans are what counts: reading a file costs them again, so that what is shown follows from the plan and the chip, never from
figures that somebody may have edited. `read_record` gives the figures as they stand in the file, for whoever compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halley.answer import Status
from halley.cost.evaluate import evaluate
from halley.cost.figures import UNITS, estimate_document
from halley.errors import BadInput, Fault, IllegalMapping
from halley.io.chips.chip import read_chip
from halley.io.chips.save import chip_document
from halley.io.files.save import dumps, write_atomic
from halley.io.files.text import Document
from halley.io.results.envelope import File, Saved, enveloped, read_saved
from halley.io.results.models import MappingFile, SolutionModel
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.text import parse, to_text
from halley.ir.workload import Workload
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Clause, MappingCertificate, Point, Result, Solution
from halley.rewrite import legality
from halley.workloads import WORKLOADS, build

# --- writing --------------------------------------------------------------------------------------------------------------


def result_document(result: Result) -> dict[str, Any]:
    """The content of result.json.

    Raises BadInput: the workload is not what its kind makes of its parameters, so that a file could not name it.
    """
    problem = result.problem
    question = {
        "workload": workload_document(problem.workload),
        "chip": chip_document(problem.chip),
        "objective": problem.objective.value,
        "gap": problem.gap,
        "time_limit_s": problem.time_limit,
        "baselines": problem.baselines if isinstance(problem.baselines, bool) else list(problem.baselines),
        "front": problem.front,
        "fixed_variant": problem.fixed_variant,
    }
    answer = {
        "best": solution_document(result.best),
        "baselines": [solution_document(solution) for solution in result.baselines],
        "absent": list(result.absent),
        "front": [{"time_s": p.time, "energy_J": p.energy, "plan": to_text(p.plan)} for p in result.front],
    }
    return enveloped("mapping", question, result.best.certificate, answer)


def save_result(result: Result, path: str | Path, force: bool = False) -> None:
    """Write result.json. Raises BadInput: the file exists and ``force`` is not set, or cannot be written."""
    write_atomic(path, dumps(result_document(result)), force)


def workload_document(workload: Workload) -> dict[str, Any]:
    """The workload by its kind and parameters. Raises BadInput: it is not what its kind makes of these."""
    if workload.name not in WORKLOADS or build(workload.name, workload.parameters) != workload:
        where = f"workload {workload.name}"
        expected = "what a kind of workload makes of its parameters"
        raise BadInput(Fault(where, expected, "one made by hand", "keep the plan with to_text"))
    return {"kind": workload.name, "parameters": dict(workload.parameters)}


def solution_document(solution: Solution) -> dict[str, Any]:
    """A mapping with its estimate and its certificate as plain data."""
    certificate = solution.certificate
    return {
        "name": solution.name,
        "variant": solution.variant,
        "status": solution.status.name.lower(),
        "groups": solution.groups,
        "shape": solution.shape,
        "plan": to_text(solution.plan),
        "estimate": estimate_document(solution.plan, solution.estimate),
        "certificate": {
            "space": [clause.document() for clause in certificate.declaration],
            "left_out": [clause.document() for clause in certificate.left_out],
            "mappings": certificate.size,
            "method": certificate.method,
            "objective": certificate.objective,
            "bound": {"value": float(certificate.bound), "unit": certificate.unit},
            "value": {"value": float(certificate.value), "unit": certificate.unit},
            "costed": certificate.costed,
            "bounds": certificate.bounds,
            "search_s": certificate.seconds,
            "closed": certificate.closed,
        },
    }


# --- reading --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """A result file as it stands: the problem it answers, and its figures, checked for form but not for truth."""

    name: str
    problem: Problem
    content: MappingFile

    def workload(self, solution: SolutionModel) -> Workload:
        """The variant that the solution maps."""
        return _variant(self.problem.workload, solution)

    def plan(self, solution: SolutionModel) -> Node:
        return parse(solution.plan, f"{self.name}: {solution.name}")


def read_record(path: str | Path) -> Record:
    """The result file, its form checked.

    Raises BadInput: no such file, too large, not JSON, not a result of Halley's, one of another version, or one with keys
    missing, unknown or of the wrong kind (each is named).
    """
    return record_of(read_saved(path))


def record_of(saved: Saved) -> Record:
    """The result in a file of an answer. Raises BadInput as `read_record`."""
    if saved.kind != "mapping":
        raise BadInput(
            Fault(saved.name, "the answer to a mapping problem", f"one of the kind {saved.kind}", "'halley show' reads it")
        )
    content, chip = with_chip(saved, MappingFile)
    question = content.question
    problem = Problem(
        build(question.workload.kind, question.workload.parameters),
        chip,
        Objective(question.objective),
        gap=question.gap,
        time_limit=question.time_limit_s,
        baselines=question.baselines if isinstance(question.baselines, bool) else tuple(question.baselines),
        front=question.front,
        fixed_variant=question.fixed_variant,
    )
    return Record(saved.name, problem, content)


def with_chip(saved: Saved, model: type[File]) -> tuple[File, Chip]:
    """A file and the chip of its question. Raises BadInput: every fault of both."""
    chip, findings = read_chip(Document(saved.name, saved.content, {(): 1}), ("question", "chip"))
    file = saved.checked(model, findings)
    if chip is None:
        raise BadInput(Fault(f"{saved.name}: question.chip", "a chip", "none"))
    return file, chip


def load_result(path: str | Path) -> Result:
    """The result in the file, its plans costed again.

    Raises BadInput as `read_record` does; IllegalMapping: a plan that breaks a rule.
    """
    return result_of(read_record(path))


def result_of(record: Record) -> Result:
    """The result of a record, its plans costed again. Raises as `load_result`."""
    solutions = [
        rebuilt(record.name, record.problem, model) for model in (record.content.answer.best, *record.content.answer.baselines)
    ]
    front = tuple(Point(p.time_s, p.energy_J, parse(p.plan, f"{record.name}: front")) for p in record.content.answer.front)
    return Result(record.problem, solutions[0], tuple(solutions[1:]), front, tuple(record.content.answer.absent))


def _variant(workload: Workload, model: SolutionModel) -> Workload:
    parameters = dict(workload.parameters)
    if "variant" in parameters:
        parameters["variant"] = model.variant
    return build(workload.name, parameters)


def rebuilt(name: str, problem: Problem, model: SolutionModel) -> Solution:
    """A solution of the problem in the file of that name, costed again. Raises BadInput: no mapping; IllegalMapping: it breaks a
    rule."""
    workload, chip, plan = _variant(problem.workload, model), problem.chip, parse(model.plan, f"{name}: {model.name}")
    if faults := legality.faults(plan, workload, chip):
        raise IllegalMapping([Fault(f"{name}: {f.where}", f.expected, f.got, f.remedy) for f in faults])
    c = model.certificate
    certificate = MappingCertificate(
        c.value.value,
        c.bound.value,
        Status[model.status.upper()],
        UNITS[c.objective],
        size=c.mappings,
        left_out=tuple(Clause(clause.what, clause.how) for clause in c.left_out),
        effort={"costed": c.costed, "bounded": c.bounds},
        seconds=c.search_s,
        closed=c.closed,
        declaration=tuple(Clause(clause.what, clause.how) for clause in c.space),
        objective=c.objective,
        method=c.method,
    )
    return Solution(
        model.name,
        plan,
        evaluate(workload, chip, plan),
        certificate,
        tuple(tuple(group) for group in model.groups),
        tuple(model.shape),
        model.variant,
    )
