"""The cost of a mapping that the user wrote: to the file of an answer and back."""

from __future__ import annotations

from typing import Any

from halley.cost.figures import estimate_document
from halley.cost.own import OwnMapping, own_mapping
from halley.io.chips.save import chip_document
from halley.io.results.envelope import Saved, enveloped
from halley.io.results.models import EstimateFile
from halley.io.results.result import with_chip, workload_document
from halley.ir.text import parse, to_text
from halley.workloads import build


def own_document(made: OwnMapping) -> dict[str, Any]:
    """The content of a file. Raises BadInput: the workload is not what its kind makes of its parameters."""
    question = {"workload": workload_document(made.workload), "chip": chip_document(made.chip)}
    answer = {"plan": to_text(made.plan), "estimate": estimate_document(made.plan, made.estimate)}
    return enveloped("estimate", question, None, answer)


def read_own(saved: Saved) -> OwnMapping:
    """The mapping in a file, costed again. Raises BadInput: every fault of the file; IllegalMapping: a mapping that breaks a
    rule."""
    file, chip = with_chip(saved, EstimateFile)
    asked = file.question.workload
    workload = build(asked.kind, asked.parameters)
    return own_mapping(workload, chip, parse(file.answer.plan, saved.name), saved.name)
