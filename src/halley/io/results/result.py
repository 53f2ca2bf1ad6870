"""result.json: a `Result` to text and back.

The plans are what counts: reading a file costs them again, so that what is shown follows from the plan and the chip, never from
figures that somebody may have edited. `read_record` gives the figures as they stand in the file, for whoever compares.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halley.answer import Status
from halley.cost.anatomy import anatomy
from halley.cost.estimate import Estimate, Resource
from halley.cost.evaluate import evaluate
from halley.errors import BadInput, Fault, IllegalMapping
from halley.io.chips.chip import read_chip
from halley.io.chips.save import chip_document
from halley.io.files.check import check
from halley.io.files.save import dumps, write_atomic
from halley.io.files.text import Document, read_text_bounded
from halley.io.results.models import BEFORE, SCHEMA, ResultFile, SolutionModel
from halley.ir.mapping import Node
from halley.ir.text import parse, to_text
from halley.ir.workload import Workload
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Certificate, Clause, Point, Result, Solution
from halley.rewrite import legality
from halley.version import halley_version
from halley.workloads import WORKLOADS, build

RESULT_LIMIT = 16 * 2**20
"""Largest result file that is read [B]."""

UNITS: dict[str, str] = {"time": "s", "energy": "J", "edp": "J s"}
"""Unit of each objective."""


def resource_name(resource: Resource) -> str:
    """One word or two for a resource, as files and tables have it.

    >>> resource_name(("read", "dram")), resource_name(("axis", "cluster", "x")), resource_name(("engine", "matrix"))
    ('read dram', 'network cluster.x', 'matrix engine')
    """
    match resource:
        case ("engine", name):
            return f"{name} engine"
        case ("port", level, way):
            return f"{level} port {way}"
        case ("axis", level, axis):
            return f"network {level}.{axis}"
        case _:
            return " ".join(resource)


# --- writing --------------------------------------------------------------------------------------------------------------


def result_document(result: Result) -> dict[str, Any]:
    """The content of result.json.

    Raises BadInput: the workload is not what its kind makes of its parameters, so that a file could not name it.
    """
    problem = result.problem
    _nameable(problem.workload)
    return {
        "schema": SCHEMA,
        "problem": {
            "workload": {"kind": problem.workload.name, "parameters": dict(problem.workload.parameters)},
            "chip": chip_document(problem.chip),
            "objective": problem.objective.value,
            "gap": problem.gap,
            "time_limit_s": problem.time_limit,
            "baselines": problem.baselines if isinstance(problem.baselines, bool) else list(problem.baselines),
            "front": problem.front,
            "fixed_variant": problem.fixed_variant,
        },
        "best": _solution(result.best),
        "baselines": [_solution(solution) for solution in result.baselines],
        "absent": list(result.absent),
        "front": [{"time_s": p.time, "energy_J": p.energy, "plan": to_text(p.plan)} for p in result.front],
        "provenance": {
            "halley": halley_version(),
            "python": platform.python_version(),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }


def save_result(result: Result, path: str | Path, force: bool = False) -> None:
    """Write result.json. Raises BadInput: the file exists and ``force`` is not set, or cannot be written."""
    write_atomic(path, dumps(result_document(result)), force)


def _nameable(workload: Workload) -> None:
    if workload.name not in WORKLOADS or build(workload.name, workload.parameters) != workload:
        where = f"workload {workload.name}"
        expected = "what a kind of workload makes of its parameters"
        raise BadInput(Fault(where, expected, "one made by hand", "keep the plan with to_text"))


def _solution(solution: Solution) -> dict[str, Any]:
    certificate = solution.certificate
    unit = UNITS[certificate.objective]
    return {
        "name": solution.name,
        "variant": solution.variant,
        "status": solution.status.name.lower(),
        "groups": solution.groups,
        "shape": solution.shape,
        "plan": to_text(solution.plan),
        "estimate": estimate_document(solution.plan, solution.estimate),
        "certificate": {
            "space": [asdict(clause) for clause in certificate.space],
            "left_out": [asdict(clause) for clause in certificate.left_out],
            "mappings": certificate.size,
            "method": certificate.method,
            "objective": certificate.objective,
            "bound": {"value": float(certificate.bound), "unit": unit},
            "value": {"value": float(certificate.value), "unit": unit},
            "costed": certificate.costed,
            "bounds": certificate.bounds,
            "search_s": certificate.seconds,
            "closed": certificate.closed,
        },
    }


def estimate_document(tree: Node, estimate: Estimate) -> dict[str, Any]:
    """The content of a mapping's estimate: numbers by name, units in the keys."""
    traffic: dict[str, dict[str, float]] = {}
    for key, accesses in (("read_B", estimate.reads()), ("write_B", estimate.writes())):
        for (memory, _, _), amount in accesses.items():
            entry = traffic.setdefault(memory, {"read_B": 0.0, "write_B": 0.0})
            entry[key] += float(amount)
    return {
        "time_s": float(estimate.time),
        "energy_J": float(estimate.energy),
        "energy_by_J": {name: float(value) for name, value in estimate.energy_by.items()},
        "busy_s": {resource_name(resource): float(value) for resource, value in estimate.busy.items()},
        "footprint_B": {memory: float(value) for memory, value in estimate.footprint.items()},
        "traffic": traffic,
        "anatomy_s": _anatomy_document(tree, estimate),
    }


def _anatomy_document(tree: Node, estimate: Estimate) -> dict[str, Any]:
    parts = anatomy(tree, estimate).total
    return {
        "compute": {resource_name(resource): time for resource, time in parts.compute.items()},
        "ramps": parts.ramps,
        "serial": parts.serial,
        "stages": parts.stages,
        "latency": parts.latency,
        "bandwidth": {resource_name(resource): time for resource, time in parts.bandwidth.items()},
        "collective": {resource_name(resource): time for resource, time in parts.collective.items()},
    }


# --- reading --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """A result file as it stands: the problem it answers, and its figures, checked for form but not for truth."""

    name: str
    problem: Problem
    content: ResultFile

    def workload(self, solution: SolutionModel) -> Workload:
        """The variant that the solution maps."""
        parameters = dict(self.problem.workload.parameters)
        if "variant" in parameters:
            parameters["variant"] = solution.variant
        return build(self.problem.workload.name, parameters)

    def plan(self, solution: SolutionModel) -> Node:
        return parse(solution.plan, f"{self.name}: {solution.name}")


def read_record(path: str | Path) -> Record:
    """The result file, its form checked.

    Raises BadInput: no such file, too large, not JSON, not a result of Halley's, one of another version, or one with keys
    missing, unknown or of the wrong kind (each is named).
    """
    name = str(path)
    data = _json(read_text_bounded(path, RESULT_LIMIT), name)
    found = data.get("schema") if isinstance(data, dict) else None
    if isinstance(data, dict) and found == BEFORE:
        data = _from_before(data)
    elif found != SCHEMA:
        foreign = not isinstance(found, str) or not found.startswith("halley.result/")
        got = "a file that is none" if foreign else f"the version {found!r}"
        remedy = "write one with 'halley optimise ... -o FILE'" if foreign else "solve the problem again with this Halley"
        raise BadInput(Fault(name, f"a result file of Halley's ({SCHEMA})", got, remedy))
    document = Document(name, data, {(): 1})
    content, findings = check(ResultFile, data)
    chip, inner = read_chip(document, ("problem", "chip"))
    if content is None or chip is None or findings or inner:
        raise BadInput([Fault(_place(name, f.path), f.expected, f.got, f.remedy) for f in (*findings, *inner)])
    question = content.problem
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
    return Record(name, problem, content)


def load_result(path: str | Path) -> Result:
    """The result in the file, its plans costed again.

    Raises BadInput as `read_record` does; IllegalMapping: a plan that breaks a rule.
    """
    record = read_record(path)
    solutions = [_rebuilt(record, model) for model in (record.content.best, *record.content.baselines)]
    front = tuple(Point(p.time_s, p.energy_J, parse(p.plan, f"{record.name}: front")) for p in record.content.front)
    return Result(record.problem, solutions[0], tuple(solutions[1:]), front, tuple(record.content.absent))


def _rebuilt(record: Record, model: SolutionModel) -> Solution:
    workload, chip, plan = record.workload(model), record.problem.chip, record.plan(model)
    if faults := legality.faults(plan, workload, chip):
        raise IllegalMapping([Fault(f"{record.name}: {f.where}", f.expected, f.got, f.remedy) for f in faults])
    c = model.certificate
    certificate = Certificate(
        tuple(Clause(clause.what, clause.how) for clause in c.space),
        tuple(Clause(clause.what, clause.how) for clause in c.left_out),
        c.mappings,
        c.method,
        c.objective,
        c.bound.value,
        c.value.value,
        c.costed,
        c.bounds,
        c.search_s,
        c.closed,
    )
    return Solution(
        model.name,
        plan,
        evaluate(workload, chip, plan),
        certificate,
        Status[model.status.upper()],
        tuple(tuple(group) for group in model.groups),
        tuple(model.shape),
        model.variant,
    )


def _from_before(data: Mapping[str, Any]) -> dict[str, Any]:
    """A file of the version before as one of this version. What was searched was a single text there, what was not a list of
    texts without names. What has neither form stays as it is: the check names it."""

    def listed(solution: object) -> object:
        match solution:
            case {"certificate": {"space": str(space), "left_out": [*texts], **rest}, **others}:
                left_out = [{"what": "left out", "how": text} for text in texts]
                return {**others, "certificate": {**rest, "space": [{"what": "space", "how": space}], "left_out": left_out}}
        return solution

    baselines = data.get("baselines")
    own = {"baselines": [listed(item) for item in baselines]} if isinstance(baselines, list) else {}
    return {**data, **own, "best": listed(data.get("best")), "schema": SCHEMA}


def _place(name: str, path: tuple[str | int, ...]) -> str:
    return f"{name}: {'.'.join(map(str, path))}" if path else name


def _json(text: str, name: str) -> object:
    """JSON without the extensions of Python's reader: no NaN, no key twice."""

    def refuse(word: str) -> object:
        raise BadInput(Fault(name, "finite numbers", word))

    def once(pairs: list[tuple[str, object]]) -> Mapping[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise BadInput(Fault(name, "each key once", f"{key!r} twice"))
            found[key] = value
        return found

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    except RecursionError:
        raise BadInput(Fault(name, "a result file", "JSON that is nested too deep")) from None
    except json.JSONDecodeError as error:
        got, remedy = f"text that is none ({error.msg.lower()})", f"look at column {error.colno}"
        raise BadInput(Fault(f"{name}:{error.lineno}", "JSON", got, remedy)) from None
    except ValueError as error:  # a number with thousands of digits
        raise BadInput(Fault(name, "JSON", str(error).splitlines()[0])) from None
