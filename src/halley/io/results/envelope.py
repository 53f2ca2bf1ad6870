"""The file of an answer, whatever its kind: what was asked, how good the answer is, the answer, and what made the file.

{"schema": "halley.answer/1", "kind": ..., "question": ..., "certificate": ..., "answer": ..., "provenance": ...}
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from halley.answer import Certificate, Status
from halley.errors import BadInput, Fault, did_you_mean
from halley.io.files.check import check_json
from halley.io.files.text import DocumentFault, KeyPath, read_text_bounded
from halley.io.results.models import SCHEMA, AnswerFile, CertificateModel
from halley.version import halley_version

FILE_LIMIT = 64 * 2**20
"""Largest file of an answer that is read [B]."""

KINDS = (
    "mapping",
    "estimate",
    "network-mapping",
    "collective",
    "sharding",
    "training-plan",
    "dfmodel-plan",
    "serving",
    "serving-plan",
)
"""Kinds of answers."""

Plain = dict[str, Any]
"""JSON as Python reads it."""

File = TypeVar("File", bound=AnswerFile)


@dataclass(frozen=True, slots=True)
class Saved:
    """A file of an answer as it stands: ``content`` is JSON whose kind is known, and no more. ``remark``: what changed since the
    version of the file; "" for a file of this version."""

    name: str
    kind: str
    content: Plain
    remark: str = ""

    def checked(self, model: type[File], besides: Sequence[DocumentFault] = ()) -> File:
        """The content as the model has it; ``besides``: what else is wrong with it.

        Raises BadInput: keys missing, unknown or of the wrong kind, each named with its place.
        """
        file, findings = check_json(model, self.content)
        if file is None or besides:
            raise BadInput(self.faults((*findings, *besides)))
        return file

    def faults(self, findings: Iterable[DocumentFault]) -> list[Fault]:
        """Findings with their place in the file."""
        return [Fault(_place(self.name, f.path), f.expected, f.got, f.remedy) for f in findings]


def enveloped(kind: str, question: Plain, certificate: Certificate | None, answer: Plain) -> Plain:
    """The content of a file."""
    return {
        "schema": SCHEMA,
        "kind": kind,
        "question": question,
        "certificate": None if certificate is None else certificate_document(certificate),
        "answer": answer,
        "provenance": provenance(),
    }


def provenance() -> dict[str, str]:
    """What makes a file now."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"halley": halley_version(), "python": platform.python_version(), "created": created}


def certificate_document(certificate: Certificate) -> Plain:
    """A certificate as plain data."""
    return {
        "value": float(certificate.value),
        "bound": float(certificate.bound),
        "gap": certificate.gap if math.isfinite(certificate.gap) else None,
        "unit": certificate.unit,
        "status": certificate.status.name.lower(),
        "space": [{"choice": name, "options": count} for name, count in certificate.space.items()],
        "size": certificate.size,
        "left_out": list(certificate.left_out),
        "effort": dict(certificate.effort),
        "seconds": certificate.seconds,
        "closed": certificate.closed,
    }


def read_certificate(model: CertificateModel) -> Certificate:
    """The certificate that a file claims."""
    return Certificate(
        model.value,
        model.bound,
        Status[model.status.upper()],
        model.unit,
        {item.choice: item.options for item in model.space},
        model.size,
        tuple(model.left_out),
        model.effort,
        model.seconds,
        model.closed,
    )


def read_saved(path: str | Path) -> Saved:
    """The file of an answer.

    Raises BadInput: no such file, too large, not JSON, not of Halley's, of a version that is not read, of an unknown kind.
    """
    name = str(path)
    data = _json(read_text_bounded(path, FILE_LIMIT), name)
    found = data.get("schema") if isinstance(data, dict) else None
    if isinstance(data, dict) and isinstance(found, str) and found in BEFORE:
        known, convert, remark = BEFORE[found]
        return Saved(name, known, convert(data), f"{name} is of the version {found}: {remark}")
    if not isinstance(data, dict) or found != SCHEMA:
        foreign = not isinstance(found, str) or not found.startswith("halley.")
        got = "a file that is none" if foreign else f"{'a file' if found in OF_MANY else 'the version'} {found!r}"
        remedy = (UNREAD | OF_MANY).get(str(found), "solve the problem again with this Halley")
        remedy = "write one with 'halley optimise ... -o FILE'" if foreign else remedy
        raise BadInput(Fault(name, f"the file of an answer ({SCHEMA})", got, remedy))
    kind = data.get("kind")
    if kind not in KINDS:
        raise BadInput(Fault(f"{name}: kind", f"one of {', '.join(KINDS)}", repr(kind), did_you_mean(str(kind), KINDS)))
    return Saved(name, str(kind), data)


def _from_result_3(data: Mapping[str, Any]) -> Plain:
    """A result file of version 3: one record of the question and all solutions, with a certificate for each."""
    answer = {key: data[key] for key in ("best", "baselines", "absent", "front") if key in data}
    rest = {key: value for key, value in data.items() if key not in (*answer, "problem", "schema")}
    question = {"question": data["problem"]} if "problem" in data else {}
    return {"schema": SCHEMA, "kind": "mapping", **question, "answer": answer, **rest}


def _from_result_2(data: Mapping[str, Any]) -> Plain:
    """A result file of version 2. What was searched was a single text there, what was not a list of texts without names. What has
    neither form stays as it is: the check names it."""

    def listed(solution: object) -> object:
        match solution:
            case {"certificate": {"space": str(space), "left_out": [*texts], **rest}, **others}:
                left_out = [{"what": "left out", "how": text} for text in texts]
                return {**others, "certificate": {**rest, "space": [{"what": "space", "how": space}], "left_out": left_out}}
        return solution

    baselines = data.get("baselines")
    own = {"baselines": [listed(item) for item in baselines]} if isinstance(baselines, list) else {}
    best = {"best": listed(data["best"])} if "best" in data else {}
    return _from_result_3({**data, **own, **best})


APART = "question and answer are now separate, in one schema for all kinds of answers"

BEFORE: dict[str, tuple[str, Callable[[Mapping[str, Any]], Plain], str]] = {
    "halley.result/3": ("mapping", _from_result_3, APART),
    "halley.result/2": ("mapping", _from_result_2, f"{APART}, and the space is a list"),
}
"""Versions before that are read: the kind, what makes this version of it, and what has changed."""

UNREAD = {
    "halley.plan/1": "it lacks the layouts between ops, from which a plan is costed again: run 'halley plan' again",
    "halley.graph-plan/1": "it lacks the system and the layouts between ops: run 'halley shard' again",
    "halley.dfmodel-plan/1": "it lacks the system and the partitions: run 'halley plan --view dfmodel' again",
    "halley.network-on-chip/1": "it lacks the mappings: run 'halley optimise NETWORK' again",
    "halley.network/1": "it lists layers: 'halley optimise NETWORK --layer NAME' maps one of them",
    "halley.estimate/1": "it lacks the chip: run 'halley estimate' again",
}
"""Versions before that lack what an answer is costed again from, and what to do."""

OF_MANY = {
    "halley.codesign-answer/1": "a design has several answers: write the best chip with 'halley codesign ... --chip CHIP', then "
    "'halley optimise ... --chip CHIP -o FILE'",
    "halley.sweep-answer/1": "a sweep has many answers: write the chip of a design with 'halley sweep show ... --chip CHIP', "
    "then 'halley optimise ... --chip CHIP -o FILE'",
}
"""Files that hold more than one answer, and what to do."""


def _place(name: str, path: KeyPath) -> str:
    return f"{name}: {'.'.join(map(str, path))}" if path else name


def _json(text: str, name: str) -> object:
    """JSON without the extensions of Python's reader: no NaN, no key twice."""

    def refuse(word: str) -> object:
        raise BadInput(Fault(name, "finite numbers", word))

    def once(pairs: list[tuple[str, object]]) -> Mapping[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise BadInput(Fault(name, "each key once", f"{key!r} twice"))
            found[key] = value
        return found

    try:
        data = json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    except RecursionError:
        raise BadInput(Fault(name, "the file of an answer", "JSON that is nested too deep")) from None
    except json.JSONDecodeError as error:
        got, remedy = f"text that is none ({error.msg.lower()})", f"look at column {error.colno}"
        raise BadInput(Fault(f"{name}:{error.lineno}", "JSON", got, remedy)) from None
    except ValueError as error:  # a number with thousands of digits
        raise BadInput(Fault(name, "JSON", str(error).splitlines()[0])) from None
    if _depth(data) > NESTING_LIMIT:
        raise BadInput(Fault(name, "the file of an answer", "JSON that is nested too deep"))
    return data


NESTING_LIMIT = 64
"""Deepest nesting of a file; what Halley writes has some 12 levels."""


def _depth(data: object) -> int:
    """How deep maps and lists are nested, up to one more than is allowed."""
    level: list[object] = [data]
    for depth in range(NESTING_LIMIT + 2):
        inner = [item for value in level if isinstance(value, (dict, list)) for item in _items(value)]
        if not inner:
            return depth
        level = inner
    return NESTING_LIMIT + 1


def _items(value: dict[str, object] | list[object]) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value
