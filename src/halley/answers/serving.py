"""Answers about serving: one deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from halley.answer import Certificate
from halley.answers.base import Answer, Comparison
from halley.answers.mapping import COMPARISON
from halley.errors import BadInput, Fault, did_you_mean
from halley.io.results.envelope import Plain, Saved
from halley.io.results.serving import KIND, ServingFile, read_serving, serving_document
from halley.report.answers.comparison import decisions_document, decisions_table, parts_document, parts_table
from halley.report.answers.page import account_bars, simple_page
from halley.report.plans.plan import account_table
from halley.report.rows import Row
from halley.report.serving.deployment import bound_words, bounds_of, serving_headline, serving_tables, serving_words
from halley.report.table import Table
from halley.serving.deployment import Served
from halley.serving.step import PARTS
from halley.units import format_time
from halley.verify.findings import Finding, Progress


def serving_answer_document(value: Served) -> Plain:
    """The content of a file."""
    bounds = [{"name": item.name, "requests_per_s": item.rate, "why": item.why} for item in bounds_of(value)]
    return serving_document(value, bounds)


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
        return serving_answer_document(self.value)

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
            names = list(state.parts)
            raise BadInput(Fault("PART", f"one of: {', '.join(names)}", repr(part), did_you_mean(part, names)))
        time = state.parts[part]
        rows = (("time", format_time(time)), ("what it is", PARTS[part]), ("share of a mean step", f"{time / state.step:.1%}"))
        return [Table(part, ("", ""), rows)]

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        value = self.value
        for item in bounds_of(value):
            holds = value.requests <= item.rate * (1 + 1e-9)
            yield Finding("deployment", f"bound: {item.name}", holds, f"{value.requests:.4g} of at most {item.rate:.4g} requests/s")
        memory = value.deployment.memory
        used = memory.weights + memory.activations + memory.reserve + value.used
        fits = used <= memory.usable * (1 + 1e-9)
        yield Finding("deployment", "memory", fits, f"{used / 2**30:.1f} of {memory.usable / 2**30:.1f} GiB on a chip")

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        return {"parts": self._parts}

    def _parts(self) -> Iterator[Row]:
        yield ("part", "time_s")
        yield from self.value.state.parts.items()

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        return {"parts": self._bars}

    def _bars(self) -> Element:
        return account_bars("Time of a mean step", {"step": self.value.state.parts}, PARTS)

    def page(self) -> str:
        return simple_page("Halley serving", self.lines(), [self._bars()], self.tables(True), self.content(), False)

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        assert isinstance(other, ServingAnswer)  # of one family
        first, second = self.value, other.value
        decided = _decisions(first), _decisions(second)
        accounts = first.state.parts, second.state.parts
        tables = (parts_table(names, *accounts, PARTS, format_time), decisions_table(names, *decided))
        made = {"answers": [self.content(), other.content()], "decisions": decisions_document(*decided)}
        return Comparison(tables, {"schema": COMPARISON, **made, "reasons": [parts_document(names, *accounts)]})


def _decisions(value: Served) -> dict[str, str]:
    deployment, load = value.deployment, value.load
    return {
        "model": deployment.model.shape.name,
        "weights": deployment.model.weights,
        "cache": deployment.model.cache,
        "chips": f"{deployment.chips} x {deployment.system.chip.name}",
        "layout": deployment.layout.text,
        "software": deployment.software.name,
        "tokens in, out": f"{load.lengths.input:g}, {load.lengths.output:g}",
        "load": f"{load.concurrency:g} users" if load.concurrency is not None else f"{load.rate:g} requests/s",
        "tokens/s": f"{value.output:,.1f}",
        "TTFT": format_time(value.state.ttft),
        "TPOT": format_time(value.state.tpot),
    }
