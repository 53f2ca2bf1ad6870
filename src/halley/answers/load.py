"""Answers from files and from values. A kind's code is loaded when the first answer of it is."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from halley.answers.base import Answer, verified
from halley.errors import BadInput, Fault
from halley.io.files.text import read_text_bounded
from halley.io.results.envelope import read_saved
from halley.verify.findings import Finding, Progress

KINDS: dict[str, tuple[str, str]] = {
    "mapping": ("halley.answers.mapping", "MappingAnswer"),
    "estimate": ("halley.answers.mapping", "EstimateAnswer"),
    "network-mapping": ("halley.answers.networks", "NetworkAnswer"),
    "collective": ("halley.answers.collective", "CollectivesAnswer"),
    "sharding": ("halley.answers.plans", "ShardingAnswer"),
    "training-plan": ("halley.answers.plans", "TrainingAnswer"),
    "dfmodel-plan": ("halley.answers.plans", "DFModelAnswer"),
    "serving": ("halley.answers.serving", "ServingAnswer"),
    "serving-plan": ("halley.answers.serving", "ServingPlanAnswer"),
}
"""By kind of a file, the module and the class of its answers."""

VALUES: dict[str, str] = {
    "Result": "mapping",
    "NetworkResult": "network-mapping",
    "OwnMapping": "estimate",
    "CollectiveAnswer": "collective",
    "GraphPlan": "sharding",
    "TrainingResult": "training-plan",
    "DFModelResult": "dfmodel-plan",
    "Served": "serving",
    "ServingPlan": "serving-plan",
}
"""By class of a value, the kind of its answer."""


def load(path: str | Path) -> Answer[Any]:
    """The answer in a file: what a command wrote with ``-o``. Its figures are computed anew from its decisions; what the file
    claims is in ``saved``.

    Raises BadInput: no file of an answer, with every fault; IllegalMapping, Infeasible: decisions that cannot be.
    """
    saved = read_saved(path)
    return _class(saved.kind).read(saved)


def as_answer(value: object) -> Answer[Any]:
    """The answer of a value that a search returned: `Result`, `NetworkResult`, `OwnMapping`, `CollectiveAnswer`, `GraphPlan`,
    `TrainingResult`, `DFModelResult`, `Served` or `ServingPlan`. Raises BadInput: another value.

    >>> import halley
    >>> made = halley.optimise(halley.Problem(halley.build("gemm", {"m": 4, "n": 4, "k": 4}), halley.load_chip("edge")))
    >>> as_answer(made).kind
    'mapping'
    """
    if isinstance(value, Answer):
        return value
    name = type(value).__name__
    if name not in VALUES or not type(value).__module__.startswith("halley."):
        raise BadInput(Fault("answer", f"one of {', '.join(VALUES)}", f"a {name}", "give what a search returned"))
    return _class(VALUES[name])(value)


def load_beside(path: str | Path, other: Answer[Any]) -> Answer[Any]:
    """The answer in a file; or, from a file that does not end in .json, a mapping in the text form, for the workload and the chip
    of ``other``. Raises as `load`."""
    if str(path).endswith(".json"):
        return load(path)
    found: Answer[Any] = import_module("halley.answers.mapping").written(read_text_bounded(path), str(path), other)
    return found


def check_file(path: str | Path, limit: float = 60.0, search: bool = True, progress: Progress | None = None) -> Iterator[Finding]:
    """The findings of a file, one after the other as they are made: its form, its decisions, its figures, and what
    `halley.verify` finds. Decisions that cannot be are a finding, and no error.

    Raises BadInput: a file of another form.
    """
    saved = read_saved(path)
    if saved.kind == "mapping":
        yield from import_module("halley.answers.mapping").mapping_file_findings(saved, limit, search, progress)
    else:
        yield from verified(_class(saved.kind), saved, limit, search, progress)


def _class(kind: str) -> type[Answer[Any]]:
    module, name = KINDS[kind]
    found: type[Answer[Any]] = getattr(import_module(module), name)
    return found
