"""Parameters of workload builders: their description and their check.

A `WorkloadKind` pairs a builder with the description of its arguments. Every builder checks its arguments against its kind, so
direct calls, files and the command line obey the same rules; `faults` finds all faults at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import assert_never

from halley.errors import BadInput, Fault, did_you_mean
from halley.ir.workload import DTYPE_BYTES, Workload

SIZE_LIMIT = 2**40
"""Largest extent of a dim: beyond it byte counts overflow 64-bit integers, and no machine holds the tensor."""


TEXT_LIMIT = 2**18
"""Longest text [characters]."""


class ParameterType(StrEnum):
    """The type of a parameter's value."""

    SIZE = "size"  # a whole number from 1 to SIZE_LIMIT
    COUNT = "count"  # a whole number from 0 to SIZE_LIMIT
    FLAG = "flag"  # true or false
    CHOICE = "choice"  # one of `choices`
    TEXT = "text"  # any text but an empty one, of at most TEXT_LIMIT characters


class Absent(Enum):
    """`REQUIRED` marks a parameter without a default (None is a default: "derived from the others")."""

    REQUIRED = "required"


REQUIRED = Absent.REQUIRED


@dataclass(frozen=True, slots=True)
class SameAs:
    """The default of a parameter that has the value of another one unless given."""

    name: str

    def __str__(self) -> str:
        return f"as {self.name}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a builder: its name, type, one-line meaning, default and, for a choice, the allowed words."""

    name: str
    type: ParameterType
    meaning: str
    default: int | bool | str | SameAs | Absent | None = REQUIRED
    choices: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on several parameters; ``check`` gets the values of ``needs`` once each of them is valid by itself."""

    needs: tuple[str, ...]
    check: Callable[..., Fault | None]


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A compound operation that can be built by name."""

    name: str
    meaning: str
    builder: Callable[..., Workload]
    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...] = ()

    def parameter(self, name: str) -> Parameter | None:
        return next((item for item in self.parameters if item.name == name), None)

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the algorithmic variants; empty where there is only one algorithm."""
        variant = self.parameter("variant")
        return variant.choices if variant else ()


def grouped_heads(kind: str) -> Rule:
    """Rule: all key and value heads serve the same number of query heads."""

    def check(heads: int, kv_heads: int) -> Fault | None:
        if heads % kv_heads == 0:
            return None
        return Fault(f"workload {kind}, parameter kv_heads", f"a divisor of heads ({heads})", str(kv_heads))

    return Rule(("heads", "kv_heads"), check)


def size(name: str, meaning: str, default: int | SameAs | Absent | None = REQUIRED) -> Parameter:
    """A whole number from 1 to `SIZE_LIMIT`."""
    return Parameter(name, ParameterType.SIZE, meaning, default)


def count(name: str, meaning: str, default: int | Absent = 0) -> Parameter:
    """A whole number from 0 to `SIZE_LIMIT`."""
    return Parameter(name, ParameterType.COUNT, meaning, default)


def flag(name: str, meaning: str, default: bool | Absent = REQUIRED) -> Parameter:
    """True or false."""
    return Parameter(name, ParameterType.FLAG, meaning, default)


def text(name: str, meaning: str, default: str | Absent | None = REQUIRED) -> Parameter:
    """Any text but an empty one."""
    return Parameter(name, ParameterType.TEXT, meaning, default)


def algorithm(*choices: str) -> Parameter:
    """The algorithm; the first choice is the default."""
    return Parameter("variant", ParameterType.CHOICE, "algorithm", choices[0], choices)


def element_type(default: str = "bf16") -> Parameter:
    """The element type of all tensors except statistics, which are fp32, and indices, which are int32."""
    return Parameter("dtype", ParameterType.CHOICE, "element type", default, tuple(DTYPE_BYTES))


def value_fault(where: str, parameter: Parameter, value: object) -> Fault | None:
    """The fault of one value by itself, or None.

    >>> print(value_fault("workload gemm", size("m", "rows"), 0))
    workload gemm, parameter m: expected a whole number from 1 to 1099511627776; got 0
    """
    if value is None and parameter.default is None:
        return None
    at = f"{where}, parameter {parameter.name}"
    match parameter.type:
        case ParameterType.SIZE | ParameterType.COUNT:
            least = 1 if parameter.type is ParameterType.SIZE else 0
            if isinstance(value, int) and not isinstance(value, bool) and least <= value <= SIZE_LIMIT:
                return None
            return Fault(at, f"a whole number from {least} to {SIZE_LIMIT}", repr(value))
        case ParameterType.FLAG:
            return None if isinstance(value, bool) else Fault(at, "true or false", repr(value))
        case ParameterType.CHOICE:
            if isinstance(value, str) and value in parameter.choices:
                return None
            return Fault(at, "a known word", repr(value), did_you_mean(str(value), parameter.choices))
        case ParameterType.TEXT:
            if not isinstance(value, str):
                return Fault(at, "text", repr(value), parameter.meaning)
            if not value.strip() or len(value) > TEXT_LIMIT:
                got = f"{len(value)}" if value.strip() else "none"
                return Fault(at, f"1 to {TEXT_LIMIT} characters", got, parameter.meaning)
            return None
        case _:
            assert_never(parameter.type)


def faults(kind: WorkloadKind, given: Mapping[str, object]) -> list[Fault]:
    """All faults of the arguments: unknown, missing and invalid ones, and broken rules between the valid ones."""
    where = f"workload {kind.name}"
    found: list[Fault] = []
    known = [parameter.name for parameter in kind.parameters]
    for name in given:
        if name not in known:
            found.append(Fault(where, "known parameters", repr(name), did_you_mean(str(name), known)))
    valid: dict[str, object] = {}
    for parameter in kind.parameters:
        if parameter.name not in given and parameter.required:
            remedy = f"give {parameter.name}: {parameter.meaning}"
            found.append(Fault(where, f"parameter {parameter.name} ({parameter.type})", "nothing", remedy))
            continue
        value = given.get(parameter.name, parameter.default)
        if isinstance(value, SameAs):
            if value.name not in valid:  # its own fault is named
                continue
            value = valid[value.name]
        fault = value_fault(where, parameter, value)
        if fault:
            found.append(fault)
        else:
            valid[parameter.name] = value
    for rule in kind.rules:
        if all(need in valid for need in rule.needs):
            broken = rule.check(*(valid[need] for need in rule.needs))
            if broken:
                found.append(broken)
    return found


def completed(kind: WorkloadKind, given: Mapping[str, object]) -> dict[str, object]:
    """The arguments with the defaults of those left out that a builder needs.

    >>> kind = WorkloadKind("square", "", Workload, (size("m", "rows"), size("n", "columns", SameAs("m"))))
    >>> completed(kind, {"m": 3})
    {'m': 3, 'n': 3}
    """
    found = dict(given)
    for parameter in kind.parameters:
        default = parameter.default
        if parameter.name in given or parameter.required or default is None:
            continue
        if not isinstance(default, SameAs):
            found[parameter.name] = default
        elif default.name in found:
            found[parameter.name] = found[default.name]
    return found


def check(kind: WorkloadKind, given: Mapping[str, object]) -> None:
    """Raise `BadInput` with every fault of the arguments, if there is one."""
    found = faults(kind, given)
    if found:
        raise BadInput(found)
