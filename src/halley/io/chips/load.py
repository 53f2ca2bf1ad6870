"""Chip and problem files: text in, checked values out.

All faults of a file are gathered and raised together, in the order of its lines, each as one line
``file:line: key: expected ...; got ...; do ...``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from halley.errors import BadInput, Fault
from halley.io.chips.chip import read_chip
from halley.io.files.check import check
from halley.io.files.entries import shown
from halley.io.files.models import GraphWorkload, ProblemModel, WorkloadFile
from halley.io.files.shelf import found, is_path
from halley.io.files.text import SIZE_LIMIT, Document, DocumentFault, KeyPath, read_text_bounded, read_yaml
from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.library import CHIPS
from halley.workloads import build
from halley.workloads.user import assemble, extents_text

__all__ = ["SIZE_LIMIT", "ProblemFile", "load_chip", "load_problem", "parse_chip", "parse_problem", "read_text_bounded"]


@dataclass(frozen=True, slots=True)
class ProblemFile:
    """What a problem file asks for: map ``workload`` (a kind, with its parameters as yet unchecked) to ``chip``.

    ``limits`` holds the limits that the file sets, in SI: ``time_limit`` [s] for the search. ``gap`` is the relative distance
    to the proven bound at which the search may stop. ``places``: file and line of each key of the workload, and of the whole
    under no name.
    """

    workload: str
    parameters: Mapping[str, int | str | bool]
    chip: Chip
    objective: str = "time"
    limits: Mapping[str, float] = field(default_factory=dict)
    gap: float = 0.0
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def built(self) -> Workload:
        """The workload. Raises BadInput: every fault of the kind and its parameters, each with its line."""
        try:
            return build(self.workload, self.parameters)
        except BadInput as error:
            raise BadInput([self._placed(fault) for fault in error.faults]) from None

    def _placed(self, fault: Fault) -> Fault:
        place = self.places.get(fault.where.partition(", parameter ")[2]) or self.places.get("", "problem")
        return replace(fault, where=f"{place}: {fault.where}")


def load_chip(path_or_name: str | Path) -> Chip:
    """The chip of that name, if it is one that ships with Halley, else that of the file.

    >>> load_chip("edge").memory("glb").capacity
    4194304.0

    Raises BadInput: neither a shipped chip nor a file that can be read; every fault of the file.
    """
    return parse_chip(*found(CHIPS, path_or_name))


def parse_chip(text: str, name: str = "chip", sourced: bool = False) -> Chip:
    """The chip that the text of a file describes; ``name`` is the file's name for messages.

    ``sourced``: every number must have a source or an assumption, as in shipped chips.

    Raises BadInput: every fault of the text.
    """
    document = read_yaml(text, name)
    chip, findings = read_chip(document, sourced=sourced)
    if chip is None:
        raise BadInput(document.faults(findings))
    return chip


def load_problem(path: str | Path) -> ProblemFile:
    """The problem that the file describes; a path to a chip in it starts at the file's folder.

    Raises BadInput: every fault of the file and of the chip file that it names.
    """
    return parse_problem(read_text_bounded(path), str(path), Path(path).parent)


def parse_problem(text: str, name: str = "problem", folder: Path = Path()) -> ProblemFile:
    """The problem that the text of a file describes; ``name`` is for messages, paths to a chip start at ``folder``.

    >>> parse_problem("workload: {kind: gemm, m: 64, n: 64, k: 64}\\nchip: edge\\ntime_limit: 60 s").limits
    {'time_limit': 60.0}

    Raises BadInput: every fault of the text and of the chip file that it names.
    """
    document = read_yaml(text, name)
    model, findings = check(ProblemModel, document.data)
    asked, inside = read_workload(document, ("workload",))
    findings += inside
    chip, elsewhere = None, []
    match document.at(("chip",)):
        case str() as reference if reference.strip():
            try:
                chip = load_chip(folder / reference if is_path(reference) else reference)
            except BadInput as error:
                elsewhere = [_in_context(document.where(("chip",)), fault) for fault in error.faults]
        case dict():
            chip, inner = read_chip(document, ("chip",))
            findings += inner
        case value if isinstance(document.data, dict) and "chip" in document.data:
            findings.append(DocumentFault(("chip",), "the name of a chip, a path to its file, or a map", shown(value)))
    if model is None or asked is None or chip is None or findings:
        raise BadInput([*document.faults(findings), *elsewhere])
    kind, parameters = asked
    return ProblemFile(
        workload=kind,
        parameters=parameters,
        chip=chip,
        objective=model.objective.value,
        limits={"time_limit": model.time_limit.value} if model.time_limit else {},
        gap=model.gap.value,
        places=_places(document),
    )


def _places(document: Document) -> dict[str, str]:
    """File and line of the workload, under no name, and of each of its keys."""
    data = document.at(("workload",))
    keys = {str(key): ("workload", key) for key in data} if isinstance(data, dict) else {}
    return {name: f"{document.name}:{document.line(path)}" for name, path in ({"": ("workload",)} | keys).items()}


Asked: TypeAlias = tuple[str, dict[str, int | str | bool]]
"""A kind of workload and its parameters."""


def read_workload(document: Document, path: KeyPath) -> tuple[Asked | None, list[DocumentFault]]:
    """What the map at ``path`` asks for: a kind with parameters, or a graph, which is checked line by line."""
    data = document.at(path)
    if data is None:
        around = document.at(path[:-1])
        missing = isinstance(around, dict) and path[-1] in around
        return None, [DocumentFault(path, "a map of keys", "nothing")] if missing else []
    if not (isinstance(data, dict) and "graph" in data and "kind" not in data):
        named, findings = check(WorkloadFile, data, path)
        parameters = (named.__pydantic_extra__ or {}) if named else {}
        return (named.kind, {key: entry.value for key, entry in parameters.items()}) if named else None, findings
    drawn, findings = check(GraphWorkload, data, path)
    if drawn is None:
        return None, findings
    graph, place = drawn.graph, (*path, "graph")
    extents = {name: entry.value for name, entry in graph.dims.items()}
    for name in extents:
        if not name.isidentifier() or not name.isascii():
            findings.append(DocumentFault((*place, "dims", name), "a dim's name of letters, digits and _", repr(name)))
    _, misfits = assemble(graph.lines, extents, graph.dtype.value, graph.outputs)
    for misfit in misfits:
        inner: KeyPath = ("lines", misfit.line - 1, f"column {misfit.column}") if misfit.line else ()
        findings.append(DocumentFault((*place, *inner), misfit.expected, misfit.got, misfit.remedy))
    given: dict[str, int | str | bool] = {"lines": "\n".join(graph.lines), "dims": extents_text(extents)}
    given |= {"dtype": graph.dtype.value} | ({"outputs": " ".join(graph.outputs)} if graph.outputs else {})
    return ("graph", given), findings


def _in_context(where: str, fault: Fault) -> Fault:
    """A fault of the chip that a problem file names, located at the line that names it."""
    return Fault(where if fault.where == "chip" else f"{where}: {fault.where}", fault.expected, fault.got, fault.remedy)
