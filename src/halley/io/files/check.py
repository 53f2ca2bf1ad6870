"""Checks a part of a document against a model and says, in Halley's words, all that is wrong with it."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from halley.errors import did_you_mean
from halley.io.files.entries import FAULTS, shown
from halley.io.files.text import DocumentFault, KeyPath

M = TypeVar("M", bound=BaseModel)

_KINDS = {
    "model_type": "a map of keys",
    "model_attributes_type": "a map of keys",
    "dict_type": "a map of keys",
    "list_type": "a list",
    "string_type": "text",
    "string_too_short": "text",
    "string_pattern_mismatch": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
"""What the built-in validation errors expected, by their type."""


def check(model: type[M], data: object, path: KeyPath = (), clock: float | None = None) -> tuple[M | None, list[DocumentFault]]:
    """The data as the model, or None and every finding. ``path`` is where the data is in its document; ``clock`` [Hz] is what
    units that count cycles refer to."""
    try:
        return model.model_validate(data, context={"clock": clock}), []
    except ValidationError as error:
        return None, list(_findings(model, error, path))


def check_with_rest(
    model: type[M], data: object, path: KeyPath = (), clock: float | None = None
) -> tuple[M | None, list[DocumentFault]]:
    """As `check`; of data with faults, the model without the keys that are wrong, so that rules between the others can be checked
    in the same run (`about_others`). None where a key that is needed is wrong or missing."""
    found, findings = check(model, data, path, clock)
    rest, wrong = copy.deepcopy(data), findings
    while found is None and wrong and all(_remove(rest, item, len(path)) for item in wrong):
        found, wrong = check(model, rest, path, clock)
    return found, findings


def about_others(findings: Iterable[DocumentFault], known: Iterable[DocumentFault]) -> list[DocumentFault]:
    """The findings of rules between keys, less those at keys where a fault is known already."""
    gone = [_place(item) for item in known]
    return [item for item in findings if not any(other and _place(item)[: len(other)] == other for other in gone)]


def _place(finding: DocumentFault) -> KeyPath:
    """The key that a finding is about: that of an entry, where it is about its value."""
    path = (*finding.path, finding.key) if finding.key else finding.path
    return path[:-1] if path[-1:] in (("value",), ("row",)) else path


def _remove(data: object, finding: DocumentFault, above: int) -> bool:
    """Remove the key of a finding, or the section that lacks a key; False where that cannot be: the whole document, or an entry
    of a list, whose removal would number the others anew. ``above``: how much of the finding's path leads to the data."""
    path = finding.path[above:]
    if not path:
        return False
    for part in path[:-1]:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
    if not isinstance(data, dict) or path[-1] not in data:
        return False
    del data[path[-1]]
    return True


def check_json(model: type[M], data: object, path: KeyPath = ()) -> tuple[M | None, list[DocumentFault]]:
    """As `check`, for data that was read from JSON: enums are text there, and tuples are lists. Models may have dataclasses as
    fields.

    Raises BadInput: a value that breaks a rule of such a dataclass.
    """
    try:
        return model.model_validate_json(json.dumps(data)), []
    except ValidationError as error:
        return None, list(_findings(model, error, path))


def _findings(model: type[BaseModel], error: ValidationError, prefix: KeyPath) -> Iterator[DocumentFault]:
    for item in error.errors(include_url=False):
        kind, location, got = item["type"], item["loc"], shown(item["input"])
        path: KeyPath = (*prefix, *location)
        if kind == FAULTS:
            for fault in item["ctx"][FAULTS]:
                place = (*path, fault.where) if fault.where else path
                yield DocumentFault(place, fault.expected, fault.got, fault.remedy)
        elif kind == "missing":
            parent = model_at(model, location[:-1])
            purpose = (parent.model_fields[str(location[-1])].description or "") if parent else ""
            got, remedy = _instead(str(location[-1]), item["input"], parent)
            yield DocumentFault(path[:-1], f"this key ({purpose})" if purpose else "this key", got, remedy, key=str(location[-1]))
        elif kind == "extra_forbidden":
            parent = model_at(model, location[:-1])
            known = list(parent.model_fields) if parent else []
            yield DocumentFault(path, "a known key", repr(location[-1]), did_you_mean(str(location[-1]), known))
        elif kind == "too_short":
            yield DocumentFault(path, "at least one entry", "none")
        else:
            said = item["msg"].removeprefix("Input should be ")
            expected = _KINDS.get(kind, f"a number {said}" if kind.startswith(("greater_than", "less_than")) else said)
            remedy = "put it in quotes" if kind == "string_type" and isinstance(item["input"], (int, float)) else ""
            yield DocumentFault(path, expected, got, remedy)


def _instead(key: str, data: object, parent: type[BaseModel] | None) -> tuple[str, str]:
    """(got, remedy) for a missing key. A map that takes keys of any name may hold it misspelt; elsewhere such a key is a finding
    of its own."""
    others: list[str] = []
    if isinstance(data, dict) and parent is not None and parent.model_config.get("extra") == "allow":
        others = [str(name) for name in data if name not in parent.model_fields]
    alike = difflib.get_close_matches(key, others, n=1)
    return (repr(alike[0]), f"write {key}") if alike else ("nothing", "add it")


def model_at(model: type[BaseModel], location: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The model of the part that a location leads to; None where that is no model."""
    kind: Any = model
    for part in location:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            item = kind.model_fields.get(str(part))
            kind = _without_none(item.annotation) if item else None
        else:
            kind = get_args(kind)[-1] if get_origin(kind) in (list, dict) else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        return next(part for part in get_args(annotation) if part is not type(None))
    return annotation
