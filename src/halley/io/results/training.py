"""Plans of training: to the file of an answer and back, in SI units.

A plan is costed again from its decisions when it is read: axes, pipeline, recomputation, and how every op is split. The figures
beside them are for other programs, and for `halley check`, which compares them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from pydantic import Field

from halley.errors import BadInput, Fault
from halley.io.files.models import Model
from halley.io.networks.fits import load_fit, load_libraries
from halley.io.results.envelope import Saved, enveloped, read_certificate
from halley.io.results.kernels import ProductModel, time_again
from halley.io.results.models import AnswerFile, CertificateModel
from halley.io.results.systems import AxisPartModel, ShardingModel, sharding_document, system_in, whole_system
from halley.ir.system import System
from halley.kernels.groups import GroupShape, pattern_text
from halley.kernels.machine import Efficiency
from halley.kernels.searched import AttentionShape, KernelShape, Product, SearchedKernels
from halley.kernels.software import Software
from halley.network.fit.overlay import Overlay
from halley.pipeline.data_parallel import Recipe, Sharded
from halley.pipeline.schedule import PipelineSchedule, TrainingPipeline
from halley.rewrite.recompute import Recompute
from halley.sharding.text import op_names
from halley.spatial.solve import SpatialPlan
from halley.training.framework import FrameworkLimits
from halley.training.groups import product_groups
from halley.training.part_costs import training_graphs
from halley.training.plan import Alternative, Fixed, Plan, PlanCost, TrainingProblem, TrainingResult
from halley.training.search.answer import alternative
from halley.training.search.decided import decided_cost
from halley.training.search.joint import plan_kernels, searched_in_plan
from halley.workloads.transformer import Transformer

KIND = "training-plan"

Figures = dict[str, Any]
"""Numbers and names that follow from the decisions."""


class TrainingQuestionModel(Model):
    """What was asked (`halley.training.plan.TrainingProblem`)."""

    model: Transformer = Field(description="extents of the model, as in a model file")
    system: dict[str, Any] = Field(description="the system with its whole chip, as in a system file")
    batch: int = Field(ge=1, description="sequences of an iteration")
    sequence: int = Field(ge=1, description="tokens of a sequence")
    efficiency: Efficiency = Field(description="how near kernels come to the data sheet")
    libraries: dict[str, str] = Field(description="by axis, the fit of its communication library, of those the system names")
    recipe: Recipe = Field(description="bytes per parameter")
    fixed: Fixed = Field(description="what the user had decided; null: the search decides")
    whole: bool = Field(description="whether each axis has one role")
    home: str = Field(description="memory of a chip that tensors live in")
    kernels: Literal["library", "searched"] = Field("library", description="where the times of products and attention come from")
    usable: float | None = Field(None, gt=0, description="bytes of a chip's outermost memory that plans may fill; null: all")
    software: Software | None = Field(None, description="what launches the kernels; null: the chips never wait for their hosts")
    limits: FrameworkLimits | None = Field(None, description="what the framework that runs the plan has; null: any plan")


class PlanModel(Model):
    """A plan (`halley.training.plan.Plan`)."""

    axes: list[AxisPartModel] = Field(description="parts of the axes, outermost first")
    data: int = Field(description="data-parallel ranks; follows from the axes")
    stages: int = Field(description="stages of the pipeline")
    model: int = Field(description="chips that share each op; follows from the axes")
    microbatch: int = Field(ge=1, description="sequences of a microbatch")
    microbatches: int = Field(description="microbatches of an iteration for each data-parallel rank")
    schedule: PipelineSchedule = Field(description="gpipe or 1f1b")
    chunks: int = Field(description="chunks of layers per stage")
    layers: tuple[int, ...] = Field(description="layers of each chunk, in the order of the model")
    recompute: Recompute = Field(description="none, selective or full")
    zero: Sharded = Field(description="what is sharded over data-parallel ranks, as ZeRO counts it: 0 to 3")
    offload: bool = Field(description="whether a second tier of memory has the optimizer's state")
    fused: bool = Field(description="whether attention is one kernel")

    def plan(self) -> Plan:
        """As the search has it. Raises BadInput: no pipeline has these numbers."""
        pipeline = TrainingPipeline(self.stages, self.microbatches, self.chunks, self.schedule)
        assignment = tuple(part.part() for part in self.axes)
        given = (self.recompute, self.zero, self.offload, self.fused)
        return Plan(assignment, self.microbatch, pipeline, *given, self.layers)


class AlternativeModel(Model):
    """The best plan of another kind."""

    plan: PlanModel = Field(description="the plan")
    shardings: list[ShardingModel] = Field(description="of embedding, each kind of layer, head")
    figures: Figures = Field(description="time, account, what is different and what takes longer")


class AttentionModel(Model):
    """Attention, forward, and its best mapping on the chip."""

    queries: int = Field(ge=1, description="queries of a head")
    keys: int = Field(ge=1, description="keys of a head")
    heads: int = Field(ge=1, description="query heads of all sequences")
    kv_heads: int = Field(ge=1, description="heads of keys and values of all sequences")
    head_dim: int = Field(ge=1, description="width of queries and keys")
    value_dim: int = Field(ge=1, description="width of values")
    causal: bool = Field(description="whether a query sees the keys up to its own position only")
    dtype: str = Field(description="type of the tensors")
    time: float = Field(description="time [s]; follows from the mapping")
    mapping: str = Field(description="the mapping, as text")


class GroupModel(Model):
    """Products with the ops behind them, and their best mapping on the chip."""

    pattern: str = Field(description="the ops, as the model has them")
    extents: str = Field(pattern=r"^[1-9]\d{0,11}( [1-9]\d{0,11})*$", description="extents of its dims, separated by spaces")
    time: float = Field(description="time [s]; follows from the mapping")
    mapping: str = Field(description="the mapping, as text")


class TrainingAnswerModel(Model):
    """The best plan."""

    plan: PlanModel = Field(description="the plan")
    shardings: list[ShardingModel] = Field(description="of embedding, each kind of layer, head")
    parts: list[str] = Field(description="names of these")
    cost: Figures = Field(description="what an iteration takes")
    on_chip: Figures = Field(description="on spatial chips, the partitions of each pass")
    alternatives: list[AlternativeModel] = Field(description="the best plans of other kinds, the fastest first")
    untimed: float | None = Field(description="no plan that was not timed takes less [s]; null: there is none")
    unfit: float | None = Field(description="no plan that did not fit takes less [s]; null: there is none")
    products: list[ProductModel] = Field([], description="the searched products of the plan")
    attention: list[AttentionModel] = Field([], description="the searched attention of the plan")
    groups: list[GroupModel] = Field([], description="the searched groups of products and ops behind them, of the plan")
    by_formula: bool = Field(False, description="whether kernels without a mapping take their times from formulas")


class TrainingFile(AnswerFile):
    """The best way to train a model on a system: what ``halley plan`` writes."""

    kind: Literal["training-plan"] = Field(description="kind of the answer")
    question: TrainingQuestionModel = Field(description="what was asked")
    certificate: CertificateModel = Field(description="how good the plan is")
    answer: TrainingAnswerModel = Field(description="the best plan")


def plan_document(result: TrainingResult) -> dict[str, Any]:
    """The content of a file. Times in seconds, sizes in bytes, work in operations, prices in USD, power in watts.

    Raises BadInput: libraries of collectives other than those that the system names.
    """
    problem = result.problem
    question = {
        "model": asdict(problem.shape),
        "system": whole_system(problem.system),
        "batch": problem.batch,
        "sequence": problem.sequence,
        "efficiency": asdict(problem.efficiency),
        "libraries": _named(problem.system, problem.libraries),
        "recipe": asdict(problem.recipe),
        "fixed": asdict(problem.fixed),
        "whole": problem.whole,
        "home": problem.home,
        "kernels": "library" if problem.searched is None else "searched",
        "usable": problem.usable,
        "software": None if problem.software is None else asdict(problem.software),
        "limits": None if problem.limits is None else asdict(problem.limits),
    }
    searched = searched_in_plan(result)
    answer = {
        "plan": _plan(result.plan),
        "shardings": _shardings(result.cost),
        "parts": _part_names(result.cost),
        "cost": _cost(result.cost),
        "on_chip": {
            name: {passing: _partitions(plan) for passing, plan in part.on_chip.items()}
            for name, part in zip(_part_names(result.cost), result.cost.parts.parts, strict=True)
            if part.on_chip
        },
        "alternatives": [_alternative(item) for item in result.alternatives],
        "untimed": _finite(result.untimed),
        "unfit": _finite(result.unfit),
        "products": [shape._asdict() | cost._asdict() for shape, cost in searched.items() if isinstance(shape, Product)],
        "attention": [shape._asdict() | cost._asdict() for shape, cost in searched.items() if isinstance(shape, AttentionShape)],
        "groups": [shape._asdict() | cost._asdict() for shape, cost in searched.items() if isinstance(shape, GroupShape)],
        "by_formula": problem.searched is not None and problem.searched.by_formula,
    }
    return enveloped(KIND, question, result.certificate, answer)


def read_training(saved: Saved) -> TrainingResult:
    """The result in a file, its plans costed again from their decisions. The certificate is as the file claims it.

    Raises BadInput: every fault of the file, decisions that contradict each other; Infeasible: a plan that does not fit.
    """
    file = saved.checked(TrainingFile)
    asked, answer = file.question, file.answer
    system = system_in(saved, asked.system)
    libraries = _libraries(saved, system, asked.libraries)
    given = (asked.model, system, asked.batch, asked.sequence, asked.efficiency, libraries)
    problem = TrainingProblem(*given, asked.recipe, asked.fixed, asked.whole, asked.home)
    problem = replace(problem, software=asked.software, usable=asked.usable, limits=asked.limits)
    if asked.kernels == "searched":
        problem = replace(problem, searched=_searched(saved, problem, answer))
    plan, cost = _costed(problem, answer.plan, answer.shardings)
    kernels = plan_kernels(problem, plan, cost.parts)
    if problem.searched is not None and not answer.by_formula and (missing := problem.searched.missing(kernels)):
        expected = "the mapping of every product, of attention and of every group"
        raise BadInput(Fault(f"{saved.name}: answer", expected, f"none of {missing[0]}", "plan again"))
    others = [_costed(problem, item.plan, item.shardings) for item in answer.alternatives]
    return TrainingResult(
        problem,
        plan,
        cost,
        tuple(alternative(plan, cost, *other) for other in others),
        read_certificate(file.certificate),
        math.inf if answer.untimed is None else answer.untimed,
        math.inf if answer.unfit is None else answer.unfit,
    )


def _searched(saved: Saved, problem: TrainingProblem, answer: TrainingAnswerModel) -> SearchedKernels:
    """The searched kernels of a file, timed again from their mappings. Raises BadInput: every mapping that is none, and groups
    that the model does not have."""
    chip = problem.chip
    found, faults = SearchedKernels(chip, by_formula=answer.by_formula), list[Fault]()
    shapes: list[tuple[str, KernelShape, str]] = []
    for place, product in enumerate(answer.products):
        shapes.append((f"products.{place}", Product(*(getattr(product, name) for name in Product._fields)), product.mapping))
    for place, core in enumerate(answer.attention):
        fields = (getattr(core, name) for name in AttentionShape._fields)
        shapes.append((f"attention.{place}", AttentionShape(*fields), core.mapping))
    known = _patterns(problem, answer.plan) if answer.groups else {}
    for place, group in enumerate(answer.groups):
        count = len(group.extents.split())
        if known.get(group.pattern) == count:
            shapes.append((f"groups.{place}", GroupShape(group.pattern, group.extents), group.mapping))
        else:
            where = f"{saved.name}: answer.groups.{place}"
            faults.append(Fault(where, "a group of ops of this model, with all its extents", f"another one, {count} extents"))
    faults += time_again(saved, found, shapes)
    if faults:
        raise BadInput(faults)
    return found


def _patterns(problem: TrainingProblem, plan: PlanModel) -> dict[str, int]:
    """The groups that the parts of the model have, as text, with their number of dims."""
    graphs = training_graphs(problem.shape, plan.microbatch, problem.sequence, plan.recompute, plan.fused)
    groups = (group.pattern for graph in graphs for group in product_groups(graph))
    return {pattern_text(pattern): len(pattern.dims) for pattern in groups}


def _costed(problem: TrainingProblem, model: PlanModel, shardings: Sequence[ShardingModel]) -> tuple[Plan, PlanCost]:
    plan = model.plan()
    return plan, decided_cost(problem, plan, [item.decisions() for item in shardings])


def _named(system: System, libraries: Mapping[str, Overlay]) -> dict[str, str]:
    """The libraries by the names that the system has for them."""
    known = load_libraries(system) if libraries else {}
    strange = [axis for axis, library in libraries.items() if known.get(axis) != library]
    if strange:
        where, expected = f"libraries of {system.name}", "those that the system names, which a file can name too"
        raise BadInput(Fault(where, expected, f"another one of {', '.join(strange)}", "name it in a system file"))
    return {axis: system.libraries[axis] for axis in libraries}


def _libraries(saved: Saved, system: System, names: Mapping[str, str]) -> dict[str, Overlay]:
    """The libraries that count. Raises BadInput: some that the system does not name."""
    faults = [
        Fault(f"{saved.name}: question.libraries.{axis}", "the library that the system names", repr(name))
        for axis, name in names.items()
        if system.libraries.get(axis) != name
    ]
    if faults:
        raise BadInput(faults)
    return {axis: load_fit(name) for axis, name in names.items()}


def _part_names(cost: PlanCost) -> list[str]:
    return [part.sharding.problem.workload.name for part in cost.parts.parts]


def _shardings(cost: PlanCost) -> list[dict[str, Any]]:
    splitting = cost.splitting
    return [sharding_document(part.sharding, op_names(part.sharding, splitting)) for part in cost.parts.parts]


def _alternative(item: Alternative) -> dict[str, Any]:
    figures = {"time": item.cost.time, "account": dict(item.cost.account)}
    figures |= {"changes": list(item.changes), "slower": dict(item.slower)}
    return {"plan": _plan(item.plan), "shardings": _shardings(item.cost), "figures": figures}


def _finite(time: float) -> float | None:
    return time if math.isfinite(time) else None


def _plan(plan: Plan) -> dict[str, Any]:
    pipeline = plan.pipeline
    return {
        "axes": [asdict(part) for part in plan.assignment],
        "data": plan.data,
        "stages": pipeline.stages,
        "model": plan.model,
        "microbatch": plan.microbatch,
        "microbatches": pipeline.microbatches,
        "schedule": str(pipeline.schedule),
        "chunks": pipeline.chunks,
        "layers": list(plan.layers),
        "recompute": str(plan.recompute),
        "zero": int(plan.sharded),
        "offload": plan.offload,
        "fused": plan.fused,
    }


def _cost(cost: PlanCost) -> dict[str, Any]:
    return {
        "time": cost.time,
        "account": dict(cost.account),
        "tokens_per_second": cost.tokens_per_second,
        "utilisation": cost.utilisation,
        "hardware_utilisation": cost.hardware_utilisation,
        "model_work": cost.model_work,
        "hardware_work": cost.hardware_work,
        "peak": cost.peak,
        "price": cost.bill.price,
        "power": cost.bill.power,
        "memory": [dict(stage) for stage in cost.memory],
        "offloaded": list(cost.offloaded),
        "tier": cost.tier,
        "second_tier": cost.second,
        "capacity": cost.capacity,
        "exposed": [{"role": str(item.role), "kind": item.kind, "time": item.time} for item in cost.exposed],
        "traffic": [asdict(item) | {"role": str(item.role), "axes": list(item.axes)} for item in cost.traffic],
        "loads": [asdict(load) for load in cost.loads],
        "parallelisms": {axis: list(names) for axis, names in cost.parallelisms.items()},
    }


def _partitions(plan: SpatialPlan) -> dict[str, Any]:
    """A pass on a spatial chip: its partitions in the order in which they run."""
    return {
        "time": plan.layer,
        "bound": plan.bound,
        "tokens": plan.problem.graph.sequence,
        "partitions": [
            {
                "kernels": list(part.names),
                "tokens_at_a_time": min(part.tile, plan.problem.graph.sequence),
                "tiles": list(part.tiles),
                "alone": part.unfused,
                "streamed": list(part.streamed),
                "time": part.steady + part.once,
                "compute": part.compute,
                "memory": part.memory,
                "network": part.network,
                "once": part.once,
                "traffic": part.traffic,
                "loaded": part.loaded,
                "sram": part.sram,
                "limit": part.bottleneck,
            }
            for part in plan.partitions
        ],
    }
