"""Answers about serving: one deployment, and the best one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from halley.answer import Certificate
from halley.answers.base import Answer, Comparison, unknown_part
from halley.answers.mapping import COMPARISON
from halley.io.results.envelope import Plain, Saved
from halley.io.results.serving import KIND, ServingFile, read_serving, serving_document
from halley.io.results.serving_plan import KIND as PLAN_KIND
from halley.io.results.serving_plan import ServingPlanFile, read_serving_plan, serving_plan_document
from halley.report.answers.comparison import decisions_document, decisions_table, parts_document, parts_table
from halley.report.answers.page import account_bars, simple_page
from halley.report.plans.plan import account_table
from halley.report.rows import Row
from halley.report.serving.deployment import (
    bound_words,
    serving_headline,
    serving_roofline,
    serving_tables,
    serving_words,
)
from halley.report.serving.plan import (
    front_figure,
    front_table,
    serving_certificate,
    serving_plan_headline,
    serving_plan_tables,
    serving_plan_verdict,
    serving_plan_words,
)
from halley.report.table import Table
from halley.serving.plans.problem import ServingObjective
from halley.serving.plans.search import ServingPlan
from halley.serving.served import Served
from halley.serving.step import PARTS
from halley.units import format_time
from halley.verify.findings import Finding, Progress, certificate_finding


def serving_answer_document(value: Served) -> Plain:
    """The content of a file."""
    bounds = [{"name": item.name, "requests_per_s": item.rate, "why": item.why} for item in value.bounds]
    return serving_document(value, bounds)


EXTRAS = ("events", "speculation", "cost")
"""Parts of an answer that ``halley serve`` adds on demand."""


class ServingAnswer(Answer[Served]):
    """What one deployment does under a load."""

    kind, family, file = KIND, KIND, ServingFile

    @classmethod
    def read(cls, saved: Saved) -> ServingAnswer:
        return cls(read_serving(saved), saved.content, saved.remark)

    @property
    def certificate(self) -> Certificate | None:
        return None

    def document(self) -> Plain:
        made = serving_answer_document(self.value)
        if self.saved is not None:
            # the question does not say what was drawn or drafted: these figures are taken over
            made["answer"] |= {name: self.saved["answer"][name] for name in EXTRAS if name in self.saved["answer"]}
        return made

    def lines(self) -> tuple[str, ...]:
        value = self.value
        return serving_headline(value.deployment, value.load), serving_words(value), bound_words(value)

    def tables(self, details: bool = False) -> list[Table]:
        return serving_tables(self.value)

    def explained(self, part: str) -> list[Table]:
        state = self.value.state
        if not part:
            return [account_table("Where the time of a mean step goes", state.parts, state.step, PARTS, "step")]
        if part not in state.parts:
            raise unknown_part(part, state.parts)
        time = state.parts[part]
        rows = (("time", format_time(time)), ("what it is", PARTS[part]), ("share of a mean step", f"{time / state.step:.1%}"))
        return [Table(part, ("", ""), rows)]

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        value = self.value
        for item in value.bounds:
            holds = value.requests <= item.rate * (1 + 1e-9)
            yield Finding(
                "deployment", f"bound: {item.name}", holds, f"{value.requests:.4g} of at most {item.rate:.4g} requests/s"
            )
        memory = value.deployment.memory
        used = memory.usable - memory.cache + value.used
        fits = used <= memory.usable * (1 + 1e-9)
        yield Finding("deployment", "memory", fits, f"{used / 2**30:.1f} of {memory.usable / 2**30:.1f} GiB on a chip")

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        return {"parts": lambda: _part_rows(self.value)}

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        return {"parts": lambda: _part_bars(self.value), "roofline": lambda: serving_roofline(self.value)}

    def page(self) -> str:
        drawn, main = [make() for make in self.pictures().values()], _main(self.value)
        return simple_page("Halley serving", self.lines(), drawn, self.tables(True), self.content(), False, main)

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        assert isinstance(other, ServingAnswer)  # of one family
        first, second = self.value, other.value
        decided = _decisions(first), _decisions(second)
        accounts = first.state.parts, second.state.parts
        tables = (parts_table(names, *accounts, PARTS, format_time), decisions_table(names, *decided))
        made = {"answers": [self.content(), other.content()], "decisions": decisions_document(*decided)}
        return Comparison(tables, {"schema": COMPARISON, **made, "reasons": [parts_document(names, *accounts)]})


def _main(value: Served) -> dict[str, str]:
    """The figures that a reader looks for first."""
    ttft, tpot = format_time(value.state.ttft), format_time(value.state.tpot)
    return {"output": f"{value.output:,.0f} tokens/s", "TTFT": ttft, "TPOT": tpot, "chips": f"{value.deployment.chips:,}"}


def _part_rows(value: Served) -> Iterator[Row]:
    yield ("part", "time_s")
    yield from value.state.parts.items()


def _part_bars(value: Served) -> Element:
    return account_bars("Time of a mean step", {"step": value.state.parts}, PARTS)


def _decisions(value: Served) -> dict[str, str]:
    deployment, load = value.deployment, value.load
    return {
        "model": deployment.model.shape.name,
        "weights": deployment.model.weights,
        "cache": deployment.model.cache,
        "chips": f"{deployment.chips} x {deployment.system.chip.name}",
        "layout": deployment.layout.text,
        "software": deployment.software.name,
        "speculation": "none" if deployment.speculation is None else deployment.speculation.text,
        "tokens in, out": f"{load.lengths.input:g}, {load.lengths.output:g}",
        "load": f"{load.concurrency:g} users" if load.concurrency is not None else f"{load.rate:g} requests/s",
        "tokens/s": f"{value.output:,.1f}",
        "TTFT": format_time(value.state.ttft),
        "TPOT": format_time(value.state.tpot),
    }


class ServingPlanAnswer(Answer[ServingPlan]):
    """The best deployment under limits."""

    kind, family, file = PLAN_KIND, PLAN_KIND, ServingPlanFile

    @classmethod
    def read(cls, saved: Saved) -> ServingPlanAnswer:
        return cls(read_serving_plan(saved), saved.content, saved.remark)

    @property
    def certificate(self) -> Certificate:
        return self.value.certificate

    def document(self) -> Plain:
        made = serving_plan_document(self.value)
        if self.saved is not None:
            # how long a search took, nobody can compute anew
            made["certificate"]["seconds"] = self.saved["certificate"]["seconds"]
        return made

    def lines(self) -> tuple[str, ...]:
        plan = self.value
        return serving_plan_headline(plan.problem), serving_plan_words(plan), serving_plan_verdict(plan)

    def tables(self, details: bool = False) -> list[Table]:
        return serving_plan_tables(self.value, details)

    def explained(self, part: str) -> list[Table]:
        if part == "front":
            return [front_table(self.value.front, len(self.value.front))]
        if part == "certificate":
            return [serving_certificate(self.value.certificate, self.value)]
        return ServingAnswer(self.value.served).explained(part)

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        plan = self.value
        reached = plan.pools.rate if plan.pools is not None else plan.best.rate
        value = plan.problem.system.chips / (reached * plan.problem.lengths.output)
        if plan.problem.objective is ServingObjective.CHIPS:
            value = plan.pools.chips if plan.pools is not None else plan.served.deployment.chips
        yield certificate_finding("plan", plan.certificate, value)
        limits, found = plan.problem.limits, plan.pools or plan.best
        kept = found.ttft <= limits.ttft * (1 + 1e-9) and found.tpot <= limits.tpot * (1 + 1e-9)
        yield Finding("plan", "limits", kept, f"TTFT {format_time(found.ttft)}, TPOT {format_time(found.tpot)}")
        yield from ServingAnswer(plan.served).own_findings(limit, search, progress)

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        return {"front": self._front, "parts": lambda: _part_rows(self.value.served)}

    def _front(self) -> Iterator[Row]:
        yield ("tokens_per_s_user", "tokens_per_s_chip", "ttft_s", "tpot_s", "layout", "weights", "users", "window")
        for point, deployment in self.value.front:
            layout, weights = deployment.layout.text, deployment.model.weights
            window = deployment.speculation.window if deployment.speculation else 0
            yield (point.user, point.chip, point.ttft, point.tpot, layout, weights, point.users, window)

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        front = {"front": lambda: front_figure(self.value.front)} if self.value.front else {}
        return front | dict(ServingAnswer(self.value.served).pictures())

    def page(self) -> str:
        drawn = [item() for item in self.pictures().values()]
        main = _main(self.value.served)
        return simple_page("Halley serving", self.lines(), drawn, self.tables(True), self.content(), False, main)

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        assert isinstance(other, ServingPlanAnswer)  # of one family
        found = ServingAnswer(self.value.served).compared(ServingAnswer(other.value.served), names)
        return Comparison(found.tables, found.document | {"answers": [self.content(), other.content()]})
