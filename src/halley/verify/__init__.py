"""Verification, independent of the searches: legality, figures computed anew, execution on arrays, simulation, search again.

import halley
from halley.verify import verify

for finding in verify(halley.optimise(problem)):
    print(finding.passed, finding.part, finding.what, finding.detail)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, runtime_checkable

from halley.cost.own import OwnMapping
from halley.dfmodel.plan import DFModelResult
from halley.errors import BadInput, Fault
from halley.graphs.plan import GraphPlan
from halley.ir.text import to_text
from halley.mapping.network import NetworkResult
from halley.mapping.result import Result, Solution
from halley.training.plan import TrainingResult
from halley.verify.findings import Finding, Progress
from halley.verify.mapping import (
    CertificateClaim,
    MappingClaim,
    PointClaim,
    front_finding,
    mapping_findings,
    mapping_search_finding,
)
from halley.verify.sharding import graph_plan_findings
from halley.verify.training import dfmodel_findings, training_findings
from halley.workloads import build

__all__ = ["Finding", "verify"]


@runtime_checkable
class Verifiable(Protocol):
    """What verifies itself: an answer that was loaded from a file, with what the file claims."""

    def findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]: ...


Subject = Verifiable | Result | NetworkResult | OwnMapping | GraphPlan | TrainingResult | DFModelResult


def verify(subject: Subject, limit: float = 60.0, search: bool = True, progress: Progress | None = None) -> Iterator[Finding]:
    """The findings of a verification, one after the other as they are made. ``limit`` [s] of a search; ``search``: whether to
    search again.

    Raises BadInput: something of another kind.
    """
    match subject:
        case Result():
            yield from _result(subject, limit, search, progress)
        case NetworkResult():
            yield from _network(subject, limit, search, progress)
        case OwnMapping(workload=workload, chip=chip, plan=plan):
            yield from mapping_findings(MappingClaim("mapping", workload, chip, to_text(plan)))
        case GraphPlan():
            yield from graph_plan_findings(subject, limit, search, progress)
        case TrainingResult():
            yield from training_findings(subject, limit, search, progress)
        case DFModelResult():
            yield from dfmodel_findings(subject, limit, search, progress)
        case Verifiable():
            yield from subject.findings(limit, search, progress)
        case _:
            got = type(subject).__name__
            raise BadInput(Fault("verify", "an answer, a result, a plan or a mapping", f"a {got}", "see halley.as_answer"))


def _result(result: Result, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
    problem, goal = result.problem, result.problem.objective.value
    for solution in (result.best, *result.baselines):
        yield from mapping_findings(_claim(result, solution), goal)
    if result.front:
        points = tuple(PointClaim(to_text(point.plan), point.time, point.energy) for point in result.front)
        yield front_finding(problem, points)
    if search:
        claim = _claim(result, result.best)
        if claim.proof is not None:
            yield mapping_search_finding(claim.name, problem, claim.proof, limit, progress)


def _network(network: NetworkResult, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
    """Each layer by itself, with an equal part of the time for its search."""
    done = [(item.layer.name, item.result) for item in network.layers if item.result is not None]
    for name, result in done:
        for finding in _result(result, limit / len(done), search, progress):
            yield replace(finding, part=name)


def _claim(result: Result, solution: Solution) -> MappingClaim:
    workload, own = result.problem.workload, solution.certificate
    parameters = dict(workload.parameters)
    if "variant" in parameters:
        workload = build(workload.name, {**parameters, "variant": solution.variant})
    proof = CertificateClaim(own.objective, own.unit, own.value, own.bound, solution.status.name == "OPTIMAL")
    return MappingClaim(solution.name, workload, result.problem.chip, to_text(solution.plan), None, proof)
