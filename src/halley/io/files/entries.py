"""Single values of a file, and where they come from.

Any number may be given plainly (``25.6 GB/s``) or as an entry that says where it comes from: ``{value: 25.6 GB/s, source: data
sheet}``, ``{value: 2 cycles, assumed: why}``, ``{row: sram-256kB}`` (a row of the energy table). A model holds each as an
`Entry`, already in SI. The clock for units that count cycles is taken from the validation context.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError, core_schema

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.files.text import read_yaml
from halley.library import energy_text
from halley.units import (
    BYTES,
    BYTES_PER_SECOND,
    HERTZ,
    JOULES,
    JOULES_PER_BYTE,
    SECONDS,
    SQUARE_METRES,
    WATTS,
    Dimension,
    parse,
)
from halley.workloads.construction.parameters import SIZE_LIMIT

T = TypeVar("T")
JsonSchema: TypeAlias = dict[str, Any]
FAULTS = "faults"
"""Type of the validation errors that carry `Fault`s of their own; a fault's ``where`` is then the key within the value."""
COUNT_LIMIT = 2**20
"""Most rows, lanes, or members of an axis."""
BUFFERS_LIMIT = 8
"""Most buffers that a search may try: each number is tried with each of the others."""
UP_TO = rf"^up to ([1-{BUFFERS_LIMIT}])$"
Text: TypeAlias = Annotated[str, Field(min_length=1, pattern=r"\S")]


class EnergyRow(BaseModel):
    """One published figure."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
    value: Text
    source: Text


class EnergyFile(BaseModel):
    """The energy table."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
    dated: Text
    rows: dict[str, EnergyRow]


@cache
def energy_table() -> EnergyFile:
    """The shipped energy table."""
    return EnergyFile.model_validate(read_yaml(energy_text(), "energy.yaml").data)


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A value in SI and what its own entry says of its origin; "" where the section's source applies."""

    value: T
    origin: str = ""


def origin(source: str | None, assumed: str | None) -> str:
    """One text for a number's origin.

    >>> origin("data sheet", None), origin(None, "as the edge chip"), origin("row x", "nearest size")
    ('data sheet', 'assumed: as the edge chip', 'row x; assumed: nearest size')
    """
    return "; ".join(part for part in (source, assumed and f"assumed: {assumed}") if part)


def shown(value: object) -> str:
    """A value as messages show it: short, maps and lists by their kind.

    >>> shown({}), shown([]), shown(None), shown(0.5), shown("x")
    ('a map', 'a list', 'nothing', '0.5', "'x'")
    """
    match value:
        case dict():
            return "a map"
        case list():
            return "a list"
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case _:
            text = repr(value)
            return text if len(text) <= 80 else f"{text[:77]}..."


def nearest(value: object, known: Iterable[str]) -> str:
    """``did you mean ...?`` if a known word is close, else nothing.

    >>> nearest("rign", ["line", "ring"]), nearest(3, ["line"])
    ("did you mean 'ring'?", '')
    """
    hint = did_you_mean(value, known) if isinstance(value, str) else ""
    return hint if hint.startswith("did you mean") else ""


@dataclass(frozen=True, slots=True, eq=False)  # by identity: type annotations are hashed
class Reads:
    """Annotation of an `Entry`: ``read(value, clock)`` gives the value or raises BadInput; ``shape`` is the JSON Schema of the
    plain value; ``cited``: it may be given with its origin; ``rows``: a row of the energy table may stand for it."""

    read: Callable[[object, float | None], Any]
    shape: JsonSchema
    cited: bool = True
    rows: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> JsonSchema:
        if not self.cited:
            return self.shape
        text = {"type": "string", "minLength": 1}
        keys: JsonSchema = {
            "value": self.shape,
            "source": {**text, "description": "document, table or page that gives the value"},
            "assumed": {**text, "description": "why this value was assumed"},
        }
        entry: JsonSchema = {"type": "object", "additionalProperties": False, "properties": keys}
        if self.rows:
            keys["row"] = {"enum": sorted(energy_table().rows), "description": "row of the energy table"}
            entry["oneOf"] = [{"required": ["value"]}, {"required": ["row"], "not": {"required": ["source"]}}]
        else:
            entry["required"] = ["value"]
        return {"anyOf": [self.shape, entry]}

    def check(self, value: object, info: ValidationInfo) -> Entry[Any]:
        """The entry; every fault in it travels in one validation error, as each has a place of its own."""
        clock = (info.context or {}).get("clock")
        faults: list[Fault] = []
        if isinstance(value, dict) and self.cited:
            result = self._entry(value, clock, faults)
        else:
            result = Entry(self._value("", value, clock, faults))
        if faults:
            raise PydanticCustomError(FAULTS, "see the faults", {FAULTS: faults})
        return result

    def _value(self, key: str, value: object, clock: float | None, faults: list[Fault]) -> Any:
        try:
            return self.read(value, clock)
        except BadInput as error:
            faults += [Fault(key, fault.expected, fault.got, fault.remedy) for fault in error.faults]
            return None

    def _entry(self, entry: dict[str, object], clock: float | None, faults: list[Fault]) -> Entry[Any]:
        known = ("value", "row", "source", "assumed") if self.rows else ("value", "source", "assumed")
        faults += [Fault(key, "a known key", repr(key), did_you_mean(key, known)) for key in entry if key not in known]
        texts: dict[str, str] = {}
        for key in ("source", "assumed"):
            text = entry.get(key)
            if isinstance(text, str) and text.strip():
                texts[key] = text
            elif key in entry:
                faults.append(Fault(key, "text", shown(text)))
        source, assumed = texts.get("source"), texts.get("assumed")
        if self.rows and "row" in entry:
            if "value" in entry or "source" in entry:
                got = "a value or a source beside it"
                faults.append(Fault("row", "a row alone, as it brings its value and its source", got, "remove one"))
            return self._row(entry["row"], clock, assumed, faults)
        if "value" not in entry:
            faults.append(Fault("", f"the key value{' or row' if self.rows else ''}", "neither" if self.rows else "nothing"))
            return Entry(None)
        return Entry(self._value("value", entry["value"], clock, faults), origin(source, assumed))

    def _row(self, name: object, clock: float | None, assumed: str | None, faults: list[Fault]) -> Entry[Any]:
        table = energy_table()
        row = table.rows.get(name) if isinstance(name, str) else None
        if row is None:
            faults.append(Fault("row", "a row of the energy table", shown(name), did_you_mean(str(name), table.rows)))
            return Entry(None)
        source = f"energy table of {table.dated}, row {name}: {row.source}"
        return Entry(self._value("row", row.value, clock, faults), origin(source, assumed))


def _quantity(dimension: Dimension, zero: bool = False) -> Reads:
    def read(value: object, clock: float | None) -> float:
        if value is None or isinstance(value, (bool, dict, list)):
            raise BadInput(Fault("", dimension.name, shown(value), f"write for example '{dimension.example}'"))
        return parse(value, dimension, clock=clock, zero=zero)

    return Reads(read, _shape(dimension), rows=dimension in (JOULES, JOULES_PER_BYTE))


def _shape(dimension: Dimension) -> JsonSchema:
    return {"type": "string", "pattern": dimension.pattern, "examples": [dimension.example]}


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(value: object, clock: float | None) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= COUNT_LIMIT:
        return value
    raise BadInput(Fault("", f"a whole number from 1 to {COUNT_LIMIT}", shown(value)))


def _buffers(value: object, clock: float | None) -> int:
    upto = re.fullmatch(UP_TO, value) if isinstance(value, str) else None
    number = int(upto[1]) if upto else value
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= BUFFERS_LIMIT:
        return number
    raise BadInput(Fault("", f"a whole number from 1 to {BUFFERS_LIMIT}, or e.g. 'up to 4'", shown(value)))


def _burst(value: object, clock: float | None) -> int:
    size = _quantity(replace(BYTES, example="64 B")).read(value, clock)
    if size == int(size):
        return int(size)
    raise BadInput(Fault("", "a whole number of bytes", shown(value), "write for example '64 B'"))


def _extent(value: object, clock: float | None) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= SIZE_LIMIT:
        return value
    raise BadInput(Fault("", f"a whole number from 1 to {SIZE_LIMIT}", shown(value)))


def _count(value: Any, clock: float | None) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_LIMIT:
        return value
    raise BadInput(Fault("", f"a whole number from 0 to {COUNT_LIMIT}", shown(value)))


def _ratio(value: Any, clock: float | None) -> float:
    if _number(value) and 0 < value <= COUNT_LIMIT:
        return float(value)
    raise BadInput(Fault("", f"a number above 0, at most {COUNT_LIMIT}, without a unit", shown(value)))


def _gap(value: Any, clock: float | None) -> float:
    if _number(value) and 0 <= value < 1:
        return float(value)
    raise BadInput(Fault("", "a number from 0 (proven optimal) to below 1, without a unit", shown(value)))


def _flag(value: object, clock: float | None) -> bool:
    if isinstance(value, bool):
        return value
    raise BadInput(Fault("", "true or false", shown(value)))


def _parameter(value: object, clock: float | None) -> int | str | bool:
    if isinstance(value, (int, str)):
        return value
    raise BadInput(Fault("", "a whole number, a word, true or false", shown(value)))


def word(words: Iterable[str], cited: bool = True) -> Reads:
    """Annotation of an entry that holds one of the words."""
    known = tuple(str(item) for item in words)

    def read(value: object, clock: float | None) -> str:
        if isinstance(value, str) and value in known:
            return value
        raise BadInput(Fault("", f"one of {', '.join(known)}", shown(value), nearest(value, known)))

    return Reads(read, {"enum": list(known)}, cited)


Whole: TypeAlias = Annotated[Entry[int], Reads(_whole, {"type": "integer", "minimum": 1, "maximum": COUNT_LIMIT})]
Count: TypeAlias = Annotated[Entry[int], Reads(_count, {"type": "integer", "minimum": 0, "maximum": COUNT_LIMIT})]
_FORMS = [{"type": "integer", "minimum": 1, "maximum": BUFFERS_LIMIT}, {"type": "string", "pattern": UP_TO}]
Buffers: TypeAlias = Annotated[Entry[int], Reads(_buffers, {"anyOf": _FORMS})]
Ratio: TypeAlias = Annotated[Entry[float], Reads(_ratio, {"type": "number", "exclusiveMinimum": 0, "maximum": COUNT_LIMIT})]
Flag: TypeAlias = Annotated[Entry[bool], Reads(_flag, {"type": "boolean"})]
Size: TypeAlias = Annotated[Entry[float], _quantity(BYTES)]
BurstLength: TypeAlias = Annotated[Entry[int], Reads(_burst, _shape(replace(BYTES, example="64 B")))]
Bandwidth: TypeAlias = Annotated[Entry[float], _quantity(BYTES_PER_SECOND)]
Latency: TypeAlias = Annotated[Entry[float], _quantity(SECONDS, zero=True)]
Frequency: TypeAlias = Annotated[Entry[float], _quantity(HERTZ)]
EnergyPerByte: TypeAlias = Annotated[Entry[float], _quantity(JOULES_PER_BYTE, zero=True)]
EnergyPerOp: TypeAlias = Annotated[Entry[float], _quantity(JOULES, zero=True)]
Power: TypeAlias = Annotated[Entry[float], _quantity(WATTS, zero=True)]
Area: TypeAlias = Annotated[Entry[float], _quantity(SQUARE_METRES)]

# Settings of a problem: no facts, so no sources.
_WALL_TIME = replace(SECONDS, example="60 s")
_WALL_TIME_SHAPE = _shape(replace(_WALL_TIME, per_cycle={}))  # no clock counts the time of a search
Duration: TypeAlias = Annotated[Entry[float], Reads(_quantity(_WALL_TIME).read, _WALL_TIME_SHAPE, cited=False)]
Gap: TypeAlias = Annotated[Entry[float], Reads(_gap, {"type": "number", "minimum": 0, "exclusiveMaximum": 1}, cited=False)]
Extent: TypeAlias = Annotated[Entry[int], Reads(_extent, {"type": "integer", "minimum": 1, "maximum": SIZE_LIMIT}, cited=False)]
Parameter: TypeAlias = Annotated[
    Entry[int | str | bool], Reads(_parameter, {"type": ["integer", "string", "boolean"]}, cited=False)
]
