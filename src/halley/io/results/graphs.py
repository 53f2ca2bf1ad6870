"""Shardings of any graph over a whole system: to the file of an answer and back, in SI units."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Literal

from pydantic import Field

from halley.errors import BadInput, Fault
from halley.graphs.plan import GraphPlan, GraphProblem, decided_graph_plan
from halley.graphs.searched import graph_kernels, searched_products
from halley.io.files.models import Model
from halley.io.results.envelope import Saved, enveloped, read_certificate
from halley.io.results.kernels import ProductModel, time_again
from halley.io.results.models import AnswerFile, CertificateModel, WorkloadModel
from halley.io.results.result import workload_document
from halley.io.results.systems import AxisPartModel, ShardingModel, sharding_document, system_in, whole_system
from halley.kernels.machine import Efficiency
from halley.kernels.searched import Product, SearchedKernels
from halley.sharding.text import op_names
from halley.workloads import build

KIND = "sharding"


class GraphQuestionModel(Model):
    """What was asked (`halley.graphs.plan.GraphProblem`)."""

    workload: WorkloadModel = Field(description="the graph")
    system: dict[str, Any] = Field(description="the system with its whole chip, as in a system file")
    layers: int = Field(description="the graph is one of so many equal layers")
    microbatches: int = Field(description="so many inputs follow each other")
    layouts: dict[str, dict[str, str]] = Field(description="by input or output, the dim that an axis splits")
    same_layout: tuple[tuple[str, ...], ...] = Field(description="inputs and outputs with equal layouts")
    splits: dict[str, dict[str, str]] = Field(default_factory=dict, description="by op, the dim that an axis splits, where fixed")
    in_place: dict[str, str] = Field(description="by output, the input whose memory it takes")
    overlap: bool = Field(description="the view of DFModel: compute, memory and network overlap")
    fused: bool = Field(description="chips run kernels side by side")
    efficiency: Efficiency = Field(description="how near kernels come to the data sheet")
    kernels: Literal["library", "searched"] = Field("library", description="where the times of products come from")


class GraphAnswerModel(Model):
    """The best sharding."""

    axes: list[AxisPartModel] = Field(description="parts of the axes: for stages, and for ops")
    sharding: ShardingModel = Field(description="how every op is split")
    figures: dict[str, Any] = Field(description="time with its breakdown, memory, price")
    products: list[ProductModel] = Field([], description="the searched products of the sharding")
    by_formula: bool = Field(False, description="whether products without a mapping take their times from formulas")


class ShardingFile(AnswerFile):
    """The best sharding of a graph over a system: what ``halley shard`` writes."""

    kind: Literal["sharding"] = Field(description="kind of the answer")
    question: GraphQuestionModel = Field(description="what was asked")
    certificate: CertificateModel = Field(description="how good the sharding is")
    answer: GraphAnswerModel = Field(description="the best sharding")


def graph_document(plan: GraphPlan) -> dict[str, Any]:
    """The content of a file. Raises BadInput: the workload is not what its kind makes of its parameters."""
    problem = plan.problem
    question = {
        "workload": workload_document(problem.workload),
        "system": whole_system(problem.system),
        "layers": problem.layers,
        "microbatches": problem.microbatches,
        "layouts": {name: dict(splits) for name, splits in problem.layouts.items()},
        "same_layout": problem.same_layout,
        "splits": {op: dict(split) for op, split in problem.splits.items()},
        "in_place": dict(problem.in_place),
        "overlap": problem.overlap,
        "fused": problem.fused,
        "efficiency": asdict(problem.efficiency),
        "kernels": "library" if problem.searched is None else "searched",
    }
    figures = {
        "time": plan.time,
        "work": problem.work,
        "peak": problem.peak,
        "utilisation": plan.utilisation,
        "price": plan.bill.price,
        "power": plan.bill.power,
        "account": dict(plan.account),
        "memory": asdict(plan.memory),
        "partitions": [
            {"kernels": list(part.names), "tiles": list(part.tiles), "limit": part.bottleneck, "time": part.steady}
            for part in plan.partitions
        ],
    }
    axes = [asdict(part) for part in plan.assignment]
    answer: dict[str, Any] = {
        "axes": axes,
        "sharding": sharding_document(plan.sharding, op_names(plan.sharding, ())),
        "figures": figures,
    }
    answer["products"] = [shape._asdict() | cost._asdict() for shape, cost in searched_products(plan).items()]
    answer["by_formula"] = problem.searched is not None and problem.searched.by_formula
    return enveloped(KIND, question, plan.certificate, answer)


def read_graph_plan(saved: Saved) -> GraphPlan:
    """The sharding in a file, costed again from its decisions. The certificate is as the file claims it.

    Raises BadInput: every fault of the file, decisions that contradict each other; Infeasible: what does not fit.
    """
    file = saved.checked(ShardingFile)
    asked = file.question
    problem = GraphProblem(
        build(asked.workload.kind, asked.workload.parameters),
        system_in(saved, asked.system),
        asked.layers,
        asked.microbatches,
        asked.layouts,
        asked.same_layout,
        asked.in_place,
        asked.overlap,
        asked.fused,
        asked.efficiency,
        asked.splits,
        _searched(saved, file) if asked.kernels == "searched" else None,
    )
    plan = decided_graph_plan(problem, tuple(part.part() for part in file.answer.axes), file.answer.sharding.decisions())
    kernels = problem.searched
    if kernels is not None and not kernels.by_formula and (missing := kernels.missing(graph_kernels(plan))):
        raise BadInput(
            Fault(f"{saved.name}: answer.products", "the mapping of every product", f"none of {missing[0]}", "plan again")
        )
    return replace(plan, certificate=read_certificate(file.certificate))


def _searched(saved: Saved, file: ShardingFile) -> SearchedKernels:
    """The searched products of a file, timed again from their mappings. Raises BadInput: every mapping that is none."""
    found = SearchedKernels(system_in(saved, file.question.system).chip, by_formula=file.answer.by_formula)
    products = enumerate(file.answer.products)
    shapes = [
        (f"products.{at}", Product(*(getattr(each, name) for name in Product._fields)), each.mapping) for at, each in products
    ]
    if faults := time_again(saved, found, shapes):
        raise BadInput(faults)
    return found
