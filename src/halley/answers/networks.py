"""Answers about whole networks on one chip: the best mapping of every distinct layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element

from halley.answer import Certificate, Status
from halley.answers.base import Answer, Comparison, unknown_part
from halley.answers.mapping import COMPARISON, MappingAnswer
from halley.io.results.envelope import Plain, Saved
from halley.io.results.networks import KIND, NetworkMappingFile, network_result_document, read_network_result
from halley.mapping.network import NetworkResult
from halley.report.answers.comparison import decisions_document, decisions_table, parts_document, parts_table
from halley.report.answers.page import simple_page
from halley.report.mapping.facts import plan_text
from halley.report.mapping.networks_on_chip import layer_rows, layers_figure, network_roofline, on_chip_lines, on_chip_tables
from halley.report.rows import Row
from halley.report.table import Table, gap_text
from halley.units import format_energy, format_time
from halley.verify import verify
from halley.verify.findings import Finding, Progress


class NetworkAnswer(Answer[NetworkResult]):
    """The best mappings of the layers of a network on a chip."""

    kind, family, file = KIND, KIND, NetworkMappingFile

    @classmethod
    def read(cls, saved: Saved) -> NetworkAnswer:
        return cls(read_network_result(saved), saved.content, saved.remark)

    @property
    def certificate(self) -> Certificate:
        return self.value.certificate

    def document(self) -> Plain:
        return network_result_document(self.value)

    def lines(self) -> tuple[str, ...]:
        return on_chip_lines(self.value)

    def tables(self, details: bool = False) -> list[Table]:
        rows = tuple((item.layer.name, plan_text(item.result.best)) for item in self.value.layers if item.result)
        return [*on_chip_tables(self.value), *([Table("Kernels of each layer", ("layer", "kernels"), rows)] if details else [])]

    def layer(self, name: str) -> MappingAnswer:
        """The answer of one layer. Raises BadInput: there is no layer of that name with a mapping."""
        known = {item.layer.name: item.result for item in self.value.layers if item.result is not None}
        if name not in known:
            raise unknown_part(name, known)
        return MappingAnswer(known[name])

    def explained(self, part: str) -> list[Table]:
        if not part:
            return list(on_chip_tables(self.value))
        return self.layer(part).explained("")

    def own_findings(self, limit: float, search: bool, progress: Progress | None) -> Iterator[Finding]:
        return verify(self.value, limit, search, progress)

    def sheets(self) -> Mapping[str, Callable[[], Iterable[Row]]]:
        return {"layers": lambda: layer_rows(self.value)}

    def pictures(self) -> Mapping[str, Callable[[], Element]]:
        if not any(item.result for item in self.value.layers):
            return {}
        return {"layers": lambda: layers_figure(self.value), "roofline": lambda: network_roofline(self.value)}

    def page(self) -> str:
        proven = self.certificate.status is Status.OPTIMAL
        drawn = [make() for make in self.pictures().values()]
        return simple_page("Halley network", self.lines(), drawn, self.tables(True), self.content(), proven, self._main())

    def _main(self) -> dict[str, str]:
        result = self.value
        time, energy, layers = format_time(result.time), format_energy(result.energy), f"{len(result.layers):,}"
        return {"time": time, "energy": energy, "distinct layers": layers, "gap to the bound": gap_text(self.certificate.gap)}

    def compared(self, other: Answer[Any], names: tuple[str, str]) -> Comparison:
        first, second = self.value, other.value
        accounts = _times(first), _times(second)
        decided = _mappings(first), _mappings(second)
        tables = (parts_table(names, *accounts, {}, format_time), decisions_table(names, *decided))
        made = {"answers": [self.content(), other.content()], "decisions": decisions_document(*decided)}
        return Comparison(tables, {"schema": COMPARISON, **made, "reasons": [parts_document(names, *accounts)]})


def _times(result: NetworkResult) -> dict[str, float]:
    """By layer, the time of all its nodes [s]."""
    return {item.layer.name: item.layer.count * item.time for item in result.layers}


def _mappings(result: NetworkResult) -> dict[str, str]:
    """By layer, its kernels in words."""
    asked = {"network": result.network.name, "chip": result.chip.label, "objective": result.objective.value}
    return asked | {item.layer.name: plan_text(item.result.best) if item.result else item.reason for item in result.layers}
