"""Answers about collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from halley.answer import Certificate
from halley.answers.base import Answer, Comparison
from halley.answers.mapping import COMPARISON
from halley.errors import BadInput, Fault, did_you_mean
from halley.io.networks.collectives import CollectiveAnswer, CollectiveQuestion, SingleCollective, answered
from halley.io.results.collective import KIND, CollectiveFile, question_document, read_collective
from halley.io.results.envelope import Plain, Saved, enveloped
from halley.network.time.choice import busiest_time, bytes_sent
from halley.network.time.collective import CONVENTIONS, CollectiveCost
from halley.report.answers.comparison import decisions_document, decisions_table, parts_document, parts_table
from halley.report.answers.page import account_bars, simple_page
from halley.report.networks.collective import collective_document, collective_tables, facts
from halley.report.networks.sweep import sweep_plot
from halley.report.networks.topology import topology_figure
from halley.report.rows import Row
from halley.report.table import Table, gap_text
from halley.units import format_bytes, format_time
from halley.verify.collective import collective_findings
from halley.verify.findings import Finding, Progress

PARTS = {
    "waiting": "start-ups and latency",
    "bytes": "bytes on the busiest link",
    "idling": "idle time of that link while others work",
}
"""Parts of a collective's time."""

MOST_CANDIDATES_DRAWN = 8
"""Candidates in a figure."""

SIZES = tuple(1024 * 4**power for power in range(11))
"""Sizes [B] of a figure for an answer that has none: 1 KiB to 1 GiB."""


def document(answer: CollectiveAnswer) -> Plain:
    """The content of a file."""
    certificate = None if answer.single is None else answer.single.certificate
    return enveloped(KIND, question_document(answer.question), certificate, collective_document(answer))


class CollectivesAnswer(Answer[CollectiveAnswer]):
    """What a collective costs on a network."""

    kind, family, file = KIND, KIND, CollectiveFile

    @classmethod
    def read(cls, saved: Saved) -> CollectivesAnswer:
        return cls(read_collective(saved), saved.content, saved.remark)

    @property
    def certificate(self) -> Certificate | None:
        return None if self.value.single is None else self.value.single.certificate

    def document(self) -> Plain:
        return document(self.value)

    def lines(self) -> tuple[str, ...]:
        return ()

    def tables(self, details: bool = False) -> list[Table]:
        return collective_tables(self.value, details)

    def _single(self) -> SingleCollective:
        if self.value.single is None:
            raise BadInput(Fault(self.value.title, "a collective of one size", "many sizes alone", "ask with --size"))
        return self.value.single

    def explained(self, part: str) -> list[Table]:
        single = self._single()
        if not part:
            return [_parts_of(single), *collective_tables(self.value, True)]
        known = {item.algorithm: item for item in single.candidates}
        if part not in known:
            raise BadInput(Fault("PART", "the name of a candidate", repr(part), did_you_mean(part, known)))
        chosen = SingleCollective(single.fabric, single.team, single.startup, known[part], single.candidates)
        return [Table(part, ("", ""), tuple(facts(chosen).items()))]

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        single = self.value.single
        if single is not None:
            yield from collective_findings(single.cost, single.team, single.startup)
            least = single.candidates[0]
            best = single.cost.time <= least.time
            text = f"fastest of {len(single.candidates)} candidates" if best else f"{least.algorithm} is faster"
            yield Finding(single.cost.algorithm, "choice", best, text)
        swept = self.value.sweep
        for cost in swept.best if swept is not None else ():
            above = cost.time >= cost.bound.value * (1 - 1e-9)
            yield Finding(cost.algorithm, "bound", above, f"{format_time(cost.time)} at {format_bytes(cost.size)}")

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        found: dict[str, Callable[[], Iterable[Row]]] = {}
        if self.value.single is not None:
            found["candidates"] = self._candidates
        if self.value.sweep is not None:
            found["sizes"] = self._sizes
        return found

    def _candidates(self) -> Iterator[Row]:
        single = self._single()
        yield ("algorithm", "time_s", "waiting_s", "busiest_s", "steps", "sent_B", "energy_J", "gap")
        for cost in single.candidates:
            parts = _parts(cost, single)
            row: Row = (cost.algorithm, cost.time, parts["waiting"], parts["bytes"], cost.steps)
            yield (*row, bytes_sent(cost, single.team), cost.energy, cost.gap)

    def _sizes(self) -> Iterator[Row]:
        swept = self.value.sweep
        yield ("size_B", "algorithm", "time_s", "bound_s")
        if swept is not None:
            for size, cost in zip(swept.sizes, swept.best, strict=True):
                yield (size, cost.algorithm, cost.time, cost.bound.value)

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        found: dict[str, Callable[[], Element]] = {}
        if self.value.single is not None:
            found["candidates"] = self._bars
        return found | {"sizes": self._plot, "network": lambda: topology_figure(self.value.question.fabric)}

    def _bars(self) -> Element:
        single = self._single()
        bars = {cost.algorithm: _parts(cost, single) for cost in single.candidates[:MOST_CANDIDATES_DRAWN]}
        return account_bars("Time of the fastest candidates", bars, PARTS, single.cost.algorithm)

    def _plot(self) -> Element:
        value = self.value
        if value.sweep is None:
            asked = value.question
            value = answered(
                CollectiveQuestion(asked.kind, asked.fabric, None, asked.ranks, asked.algorithm, asked.startup, sizes=SIZES)
            )
        assert value.sweep is not None  # sizes were asked for
        return sweep_plot(value.sweep, value.title, value.swept_software)

    def page(self) -> str:
        drawn = [self._bars()] if self.value.single is not None else []
        drawn += [self._plot()] if self.value.sweep is not None else []
        certificate = self.certificate
        verdict = "times over sizes" if certificate is None else certificate.status.value
        proven = certificate is not None and certificate.gap == 0
        title, main = self.value.title, {}
        if (single := self.value.single) is not None and certificate is not None:
            title += f", {format_bytes(single.cost.size)}"
            if single.software is not None:  # what a user will see comes before what the links allow
                main["measured library"] = format_time(single.software.time)
            main |= {"time at link rates": format_time(single.cost.time), "gap to the bound": gap_text(certificate.gap)}
            main |= {"algorithm": single.cost.algorithm, "ranks": f"{len(single.team.ranks):,}"}
        lines = title, verdict
        return simple_page("Halley collective", lines, drawn, self.tables(True), self.content(), proven, main)

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        assert isinstance(other, CollectivesAnswer)  # of one family
        first, second = self._single(), other._single()
        decided = [_decisions(answer, single) for answer, single in ((self.value, first), (other.value, second))]
        parts = [_parts(single.cost, single) for single in (first, second)]
        tables = (parts_table(names, parts[0], parts[1], PARTS, format_time), decisions_table(names, decided[0], decided[1]))
        made = {"answers": [self.content(), other.content()], "decisions": decisions_document(decided[0], decided[1])}
        return Comparison(tables, {"schema": COMPARISON, **made, "reasons": [parts_document(names, parts[0], parts[1])]})


def _parts(cost: CollectiveCost, single: SingleCollective) -> dict[str, float]:
    """The time [s] in parts that add up to it."""
    busy = busiest_time(cost, single.team)
    return {"waiting": cost.waiting, "bytes": busy, "idling": max(cost.time - cost.waiting - busy, 0.0)}


def _parts_of(single: SingleCollective) -> Table:
    rows = tuple((PARTS[name], format_time(value)) for name, value in _parts(single.cost, single).items())
    title = f"Where the {format_time(single.cost.time)} of {single.cost.algorithm} go"
    return Table(title, ("", "time"), rows, frozenset({1}))


def _decisions(answer: CollectiveAnswer, single: SingleCollective) -> dict[str, str]:
    cost = single.cost
    return {
        "collective": str(cost.kind),
        "network": answer.question.fabric.name,
        "ranks": str(single.team.graph.ranks),
        "size": f"{format_bytes(cost.size)}, {CONVENTIONS[cost.kind]}",
        "start-up": format_time(single.startup),
        "algorithm": cost.algorithm,
        "steps": str(cost.steps),
        "leave the busiest rank": format_bytes(bytes_sent(cost, single.team)),
    }
