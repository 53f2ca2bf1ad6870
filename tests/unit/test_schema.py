"""The JSON Schemas: they accept what the loader accepts, refuse what it refuses, and describe every key."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halley import library
from halley.errors import BadInput
from halley.io.chips.load import load_chip, parse_chip
from halley.io.files.text import read_yaml
from halley.io.results.result import result_document
from halley.io.schema import SCHEMAS, schema
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.workloads import gemm

KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}
REMARKS = {"$schema", "$defs", "description", "default", "title", "examples"}


def fits(value: Any, rule: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether a value fits a JSON Schema: the keywords that Halley's schemas use, and an error for any other."""
    return all(word in REMARKS or obeys(value, word, wanted, rule, root) for word, wanted in rule.items())


def is_kind(value: Any, name: str) -> bool:
    return isinstance(value, KINDS[name]) and (name == "boolean" or not isinstance(value, bool))


def obeys(value: Any, word: str, wanted: Any, rule: dict[str, Any], root: dict[str, Any]) -> bool:
    match word:
        case "$ref":
            return fits(value, root["$defs"][wanted.removeprefix("#/$defs/")], root)
        case "type":
            return any(is_kind(value, name) for name in ([wanted] if isinstance(wanted, str) else wanted))
        case "enum":
            return value in wanted
        case "const":
            return bool(value == wanted)
        case "anyOf":
            return any(fits(value, choice, root) for choice in wanted)
        case "oneOf":
            return sum(fits(value, choice, root) for choice in wanted) == 1
        case "not":
            return not fits(value, wanted, root)
    if isinstance(value, dict):
        return obeys_map(value, word, wanted, rule, root)
    match word:
        case "pattern":
            return not isinstance(value, str) or re.search(wanted, value) is not None
        case "minLength":
            return not isinstance(value, str) or len(value) >= wanted
        case "minItems":
            return not isinstance(value, list) or len(value) >= wanted
        case "items":
            return not isinstance(value, list) or all(fits(item, wanted, root) for item in value)
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
            return not is_kind(value, "number") or ORDERS[word](value, wanted)
        case "required" | "properties" | "additionalProperties" | "propertyNames" | "minProperties":
            return True
    raise AssertionError(f"keyword {word}")


def obeys_map(value: dict[str, Any], word: str, wanted: Any, rule: dict[str, Any], root: dict[str, Any]) -> bool:
    match word:
        case "required":
            return set(wanted) <= set(value)
        case "properties":
            return all(fits(value[key], wanted[key], root) for key in wanted if key in value)
        case "additionalProperties":
            others = [item for key, item in value.items() if key not in rule.get("properties", {})]
            return not others if wanted is False else wanted is True or all(fits(item, wanted, root) for item in others)
        case "propertyNames":
            return all(fits(key, wanted, root) for key in value)
        case "minProperties":
            return len(value) >= wanted
    return True


def fits_file(value: object, name: str) -> bool:
    rules = schema(name)
    return fits(value, rules, rules)


@pytest.mark.parametrize("name", library.CHIPS.names())
def test_the_schema_accepts_shipped_chips(name: str) -> None:
    assert fits_file(read_yaml(library.CHIPS.text(name), name).data, "chip")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("capacity: 4 MiB", "capacity: 4 MB/s"),
        ("capacity: 4 MiB", "capacity: 4194304"),
        ("capacity: 4 MiB", "capcity: 4 MiB"),
        ("capacity: 4 MiB", "capacity: {value: 4 MiB, sauce: x}"),
        ("capacity: 4 MiB", "capacity: {source: x}"),
        ("row: dram-lpddr4, assumed: LPDDR4 ", "row: dram-lpddr5, assumed: LPDDR4 "),
        ("row: dram-lpddr4, assumed: LPDDR4 ", "row: dram-lpddr4, source: LPDDR4 "),
        ("dataflow: weight-stationary", "dataflow: weight"),
        ("    rows: 32\n", "    rows: 0\n"),
        ("    rows: 32\n", ""),
        ("rate: {add: 1, ", "rate: {"),
        ("rate: {add: 1, ", "rate: {add: 1, sin: 1, "),
        ("latency: 2 cycles\n", "latency: fast\n"),
    ],
)
def test_the_schema_and_the_loader_refuse_the_same(old: str, new: str) -> None:
    text = library.CHIPS.text("edge")
    assert old in text
    text = text.replace(old, new, 1)
    assert not fits_file(read_yaml(text, "edge").data, "chip")
    with pytest.raises(BadInput):
        parse_chip(text)


def test_the_schema_of_problems() -> None:
    problem: dict[str, Any] = {"workload": {"kind": "gemm", "m": 4, "dtype": "bf16"}, "chip": "edge", "time_limit": "60 s"}
    assert fits_file(problem, "problem")
    assert fits_file(problem | {"chip": read_yaml(library.CHIPS.text("edge"), "edge").data}, "problem")
    wrong: list[dict[str, Any]] = [{"time_limit": 60}, {"objective": "speed"}, {"chip": 3}, {"gap": 1}, {"tiem_limit": "60 s"}]
    for part in (*wrong, {"workload": {"m": 4}}, {"time_limit": "60 cycles"}):
        assert not fits_file(problem | part, "problem"), part


def test_the_schema_of_results_fits_a_result() -> None:
    chip = load_chip("edge")
    result = optimise(Problem(gemm(8, 8, 8), chip, baselines=False))
    document = json.loads(json.dumps(result_document(result)))
    assert fits_file(document, "mapping")
    for wrong in ({"schema": "halley.result/0"}, {"front": 3}, {"worst": 1}):
        assert not fits_file(document | wrong, "mapping"), wrong


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_has_a_description(name: str) -> None:
    def keys(node: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(node, dict):
            yield from node.get("properties", {}).items()
            for item in node.values():
                yield from keys(item)
        elif isinstance(node, list):
            for item in node:
                yield from keys(item)

    found = schema(name)
    assert json.loads(json.dumps(found)) == found
    # a value is described by the key that holds it
    assert [key for key, item in keys(found) if "description" not in item and key != "value"] == []


def test_an_unknown_kind_of_file() -> None:
    with pytest.raises(BadInput, match=r"got 'chips'; did you mean 'chip'\?"):
        schema("chips")
