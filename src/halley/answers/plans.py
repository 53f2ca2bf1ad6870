"""Answers on whole systems: shardings of graphs, plans of training, and plans in the view of DFModel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from halley.answer import Certificate, Status
from halley.answers.base import Answer, Comparison, unknown_part
from halley.answers.mapping import COMPARISON
from halley.dfmodel.plan import DFModelResult
from halley.graphs.plan import GraphPlan
from halley.io.results.dfmodel import DFModelFile, dfmodel_certificate, dfmodel_document, read_dfmodel
from halley.io.results.envelope import Plain, Saved
from halley.io.results.graphs import ShardingFile, graph_document, read_graph_plan
from halley.io.results.training import TrainingFile, plan_document, read_training
from halley.pipeline.data_parallel import Sharded
from halley.report.answers.comparison import decisions_document, decisions_table, loads_table, parts_document, parts_table
from halley.report.answers.page import account_bars, simple_page
from halley.report.plans import figures
from halley.report.plans.dfmodel import dfmodel_headline, dfmodel_tables, dfmodel_verdict
from halley.report.plans.graph import PARTS, graph_headline, graph_tables, graph_verdict, partition_tables
from halley.report.plans.op import op_text
from halley.report.plans.others import others_table
from halley.report.plans.page import plan_page
from halley.report.plans.plan import (
    ACCOUNT,
    HELD,
    SHARDED,
    account_table,
    headline,
    memory_table,
    plan_tables,
    short_tables,
    verdict,
)
from halley.report.plans.sharding import sharding_tables
from halley.report.plans.traffic import traffic_tables
from halley.report.plans.words import DIMS, plan_words, schedule_words, short_words
from halley.report.rows import Row
from halley.report.table import Table, gap_text
from halley.sharding.axes import Role, assignment_text, degree, parts_of
from halley.sharding.solution import Sharding
from halley.training.op_mapping import OpMapping, op_mapping
from halley.training.plan import Plan, PlanCost, TrainingResult
from halley.units import format_bytes, format_time
from halley.verify import verify
from halley.verify.findings import Finding, Progress

Decisions = dict[str, str]


def _compared(
    answers: tuple[Answer[Any], Answer[Any]],
    names: tuple[str, str],
    decided: tuple[Decisions, Decisions],
    accounts: tuple[Mapping[str, float], Mapping[str, float]],
    words: Mapping[str, str],
    more: tuple[Table, ...] = (),
) -> Comparison:
    """Two plans: what they decide otherwise, and the parts of the time that make the difference."""
    tables = (parts_table(names, *accounts, words, format_time), *more, decisions_table(names, *decided))
    made = {"answers": [answer.content() for answer in answers], "decisions": decisions_document(*decided)}
    return Comparison(tables, {"schema": COMPARISON, **made, "reasons": [parts_document(names, *accounts)]})


def _ops(shardings: Mapping[str, Sharding]) -> Iterator[Row]:
    """Every op, how it is split, and the time of its own work."""
    yield ("part", "op", "split", "time_s")
    for name, sharding in shardings.items():
        for item in sharding.ops:
            axes = zip(sharding.problem.mesh, item.strategy, strict=True)
            yield (name, item.op, " ".join(f"{axis.name}:{way.name or '-'}" for axis, way in axes), item.time)


def _collectives(shardings: Mapping[str, Sharding]) -> Iterator[Row]:
    yield ("part", "collective", "tensor", "axes", "bytes_B", "time_s")
    for name, sharding in shardings.items():
        for move, step in sharding.steps:
            yield (name, str(step.kind), move.tensor, " ".join(step.axes), step.bytes, step.time)


def _account_rows(account: Mapping[str, float]) -> Iterator[Row]:
    yield ("part", "time_s")
    yield from account.items()


def _split(sharding: Sharding) -> Decisions:
    """By op, how it is split."""
    mesh = [axis.name for axis in sharding.problem.mesh]
    split = {item.op: zip(mesh, (way.name for way in item.strategy), strict=True) for item in sharding.ops}
    return {f"op {op}": ", ".join(f"{dim} over {axis}" for axis, dim in own if dim) or "not split" for op, own in split.items()}


class ShardingAnswer(Answer[GraphPlan]):
    """The best sharding of a graph over a system."""

    kind, family, file = "sharding", "sharding", ShardingFile

    @classmethod
    def read(cls, saved: Saved) -> ShardingAnswer:
        return cls(read_graph_plan(saved), saved.content, saved.remark)

    @property
    def certificate(self) -> Certificate:
        return self.value.certificate

    def document(self) -> Plain:
        return graph_document(self.value)

    def lines(self) -> tuple[str, ...]:
        return graph_headline(self.value), graph_verdict(self.value)

    def tables(self, details: bool = False) -> list[Table]:
        return graph_tables(self.value, details)

    def explained(self, part: str) -> list[Table]:
        plan = self.value
        if part not in ("", "ops"):
            raise unknown_part(part, ["ops"])
        ops = list(sharding_tables(plan.problem.workload.name, plan.sharding, "the graph", True))
        return ops if part else [account_table("Where the time goes", plan.account, plan.time, PARTS, "in all"), *ops]

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        return verify(self.value, limit, search, progress)

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        shardings = {self.value.problem.workload.name: self.value.sharding}
        return {
            "account": lambda: _account_rows(self.value.account),
            "ops": lambda: _ops(shardings),
            "collectives": lambda: _collectives(shardings),
        }

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        bars = {self.value.problem.workload.name: self.value.account}
        return {
            "account": lambda: account_bars("Where the time goes", bars, PARTS),
            "roofline": lambda: figures.graph_roofline_figure(self.value),
        }

    def page(self) -> str:
        drawn = [make() for make in self.pictures().values()]
        proven = self.certificate.status is Status.OPTIMAL
        main = {
            "time": format_time(self.value.time),
            "memory of a chip": format_bytes(self.value.memory.total),
            "chips": f"{self.value.problem.system.chips:,}",
            "gap to the bound": gap_text(self.certificate.gap),
        }
        return simple_page("Halley sharding", self.lines(), drawn, self.tables(True), self.content(), proven, main)

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        first, second = self.value, other.value
        accounts = first.account, second.account
        return _compared((self, other), names, (_graph_decisions(first), _graph_decisions(second)), accounts, PARTS)


def _graph_decisions(plan: GraphPlan) -> Decisions:
    problem = plan.problem
    asked = {
        "graph": problem.workload.name,
        "system": problem.system.name,
        "layers": str(problem.layers),
        "microbatches": str(problem.microbatches),
        "view": "of DFModel: all overlaps" if problem.overlap else "one after the other",
        "axes": assignment_text(plan.assignment),
        "memory of a chip": format_bytes(plan.memory.total),
    }
    return asked | _split(plan.sharding)


class TrainingAnswer(Answer[TrainingResult]):
    """The best way to train a model on a system."""

    kind, family, file = "training-plan", "training-plan", TrainingFile

    @classmethod
    def read(cls, saved: Saved) -> TrainingAnswer:
        return cls(read_training(saved), saved.content, saved.remark)

    @property
    def certificate(self) -> Certificate:
        return self.value.certificate

    def document(self) -> Plain:
        return plan_document(self.value)

    def lines(self) -> tuple[str, ...]:
        result = self.value
        return headline(result), plan_words(result.plan, result.cost), verdict(result.certificate, result.status)

    def tables(self, details: bool = False) -> list[Table]:
        return plan_tables(self.value, ops=True) if details else short_tables(self.value)

    def op(self, name: str) -> OpMapping:
        """One op of the plan, as in `op_text`, as values. Raises BadInput: there is no op of that name."""
        return op_mapping(self.value, name)

    def op_text(self, name: str) -> str:
        return op_text(self.value, self.op(name))

    def explained(self, part: str) -> list[Table]:
        result, cost = self.value, self.value.cost
        if part:
            if part not in cost.shardings:
                raise unknown_part(part, cost.shardings)
            of = "one microbatch, forward and backward"
            return list(sharding_tables(part, cost.shardings[part], of, True, cost.splitting, DIMS))
        title = "Where the time goes, on the stage that finishes last"
        account = account_table(title, cost.account, cost.time, ACCOUNT, "iteration")
        busy = {load.resource: load.time for load in cost.loads}
        loads = loads_table("Demand of a chip on each resource, at its full rate", busy, cost.time, format_time)
        return [account, loads, *traffic_tables(result.plan, cost), memory_table(cost), *others_table(result)]

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        return verify(self.value, limit, search, progress)

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        cost = self.value.cost
        return {
            "account": self._account,
            "memory": self._memory,
            "loads": self._loads,
            "ops": lambda: _ops(cost.shardings),
            "collectives": lambda: _collectives(cost.shardings),
        }

    def _plans(self) -> Iterator[tuple[Plan, PlanCost]]:
        yield self.value.plan, self.value.cost
        yield from ((item.plan, item.cost) for item in self.value.alternatives)

    def _account(self) -> Iterator[Row]:
        yield ("plan", "part", "time_s")
        for plan, cost in self._plans():
            yield from ((short_words(plan), part, time) for part, time in cost.account.items())

    def _memory(self) -> Iterator[Row]:
        yield ("stage", "what", "bytes_B")
        for stage, held in enumerate(self.value.cost.memory, 1):
            yield from ((stage, part, size) for part, size in held.items())

    def _loads(self) -> Iterator[Row]:
        yield ("resource", "demand", "capacity_per_s", "unit", "time_s")
        for load in self.value.cost.loads:
            yield (load.resource, load.demand, load.capacity, load.unit, load.time)

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        return {name: lambda make=make: make(self.value) for name, make in figures.FIGURES.items()}  # type: ignore[misc]

    def page(self) -> str:
        return plan_page(self.value)

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        first, second = self.value, other.value
        accounts = first.cost.account, second.cost.account
        fullest = _fullest(first.cost), _fullest(second.cost)
        memory = parts_table(names, fullest[0], fullest[1], HELD, format_bytes, "Memory of the fullest chip")
        decided = _training_decisions(first), _training_decisions(second)
        return _compared((self, other), names, decided, accounts, ACCOUNT, (memory,))


def _fullest(cost: PlanCost) -> Mapping[str, float]:
    return cost.memory[cost.fullest]


def _training_decisions(result: TrainingResult) -> Decisions:
    problem, plan = result.problem, result.plan
    decided = {
        "model": problem.shape.name,
        "system": problem.system.name,
        "batch": f"{problem.batch} sequences of {problem.sequence} tokens",
        "degrees": f"data {plan.data} x pipeline {plan.pipeline.stages} x model {plan.model}",
        "axes": assignment_text(plan.assignment),
        "microbatch": f"{plan.microbatch}, {plan.pipeline.microbatches} of them",
        "schedule": schedule_words(plan) if plan.pipeline.stages > 1 else "one stage",
        "layers of a chunk": f"{min(plan.layers)} to {max(plan.layers)}",
        "recomputed": str(plan.recompute),
        "sharded over data-parallel ranks": SHARDED[Sharded(plan.sharded)],
        "optimizer state": "offloaded" if plan.offload else "on the chip",
        "attention": "one kernel" if plan.fused else "kernel by kernel",
    }
    for name, sharding in result.cost.shardings.items():
        if sharding.problem.mesh:
            decided |= {f"{name}, {op}": how for op, how in _split(sharding).items()}
    return decided


class DFModelAnswer(Answer[DFModelResult]):
    """The best way to train a model in the view of DFModel."""

    kind, family, file = "dfmodel-plan", "dfmodel-plan", DFModelFile

    @classmethod
    def read(cls, saved: Saved) -> DFModelAnswer:
        return cls(read_dfmodel(saved), saved.content, saved.remark)

    @property
    def certificate(self) -> Certificate:
        return dfmodel_certificate(self.value)

    def document(self) -> Plain:
        return dfmodel_document(self.value)

    def lines(self) -> tuple[str, ...]:
        return dfmodel_headline(self.value), dfmodel_verdict(self.value)

    def tables(self, details: bool = False) -> list[Table]:
        return dfmodel_tables(self.value)

    def explained(self, part: str) -> list[Table]:
        result = self.value
        if part not in ("", "partitions"):
            raise unknown_part(part, ["partitions"])
        chip = list(partition_tables(result.layer.partitions, result.problem.chip.tiles))
        return chip if part else [account_table("Where the time goes", result.account, result.time, PARTS, "iteration"), *chip]

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        return verify(self.value, limit, search, progress)

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        return {"account": lambda: _account_rows(self.value.account), "partitions": self._partitions}

    def _partitions(self) -> Iterator[Row]:
        yield ("partition", "kernels", "tiles", "limit", "time_s")
        for number, part in enumerate(self.value.layer.partitions, 1):
            yield (number, " ".join(part.names), sum(part.tiles), part.bottleneck, part.steady)

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        bars = {self.value.problem.shape.name: self.value.account}
        return {
            "account": lambda: account_bars("Where the time goes", bars, PARTS),
            "roofline": lambda: figures.dfmodel_roofline_figure(self.value),
        }

    def page(self) -> str:
        drawn = [make() for make in self.pictures().values()]
        value = self.value
        main = {
            "iteration": format_time(value.time),
            "tokens": f"{value.problem.batch * value.problem.sequence / value.time:,.0f} /s",
            "chips": f"{value.problem.system.chips:,}",
            "gap to the bound": gap_text(self.certificate.gap),
        }
        return simple_page("Halley plan, view of DFModel", self.lines(), drawn, self.tables(), self.content(), True, main)

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        first, second = self.value, other.value
        decided = _dfmodel_decisions(first), _dfmodel_decisions(second)
        return _compared((self, other), names, decided, (first.account, second.account), PARTS)


def _dfmodel_decisions(result: DFModelResult) -> Decisions:
    problem, choice = result.problem, result.choice
    roles = {str(role): degree(choice.assignment, role) for role in Role if parts_of(choice.assignment, role)}
    return {
        "model": problem.shape.name,
        "system": problem.system.name,
        "batch": f"{problem.batch} sequences of {problem.sequence} tokens",
        "kernels": "side by side" if problem.fused else "one by one",
        "degrees": " x ".join(f"{role} {ranks}" for role, ranks in roles.items()),
        "axes": assignment_text(choice.assignment),
        "microbatch": str(choice.microbatch),
        "partitions": " | ".join(" ".join(part.names) for part in result.layer.partitions),
    }
