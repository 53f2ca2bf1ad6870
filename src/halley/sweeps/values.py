"""Values of an axis as a study file has them: lists, lists with a common unit, powers of two, ranges."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from halley.errors import BadInput, Fault, UnitError
from halley.io.files.entries import shown
from halley.units import (
    BYTES,
    BYTES_PER_SECOND,
    DIMENSIONS,
    HERTZ,
    JOULES,
    JOULES_PER_BYTE,
    SECONDS,
    SQUARE_METRES,
    WATTS,
    Quantity,
    parse,
)

AxisValue: TypeAlias = int | float | str | bool
"""A value as a chip file has it: a number, a quantity with its unit, a word, true or false."""

VALUES_LIMIT = 100_000
"""Most values of an axis, and most designs of a study."""

FORMS = "a list, numbers with a common unit such as '1, 2, 4 MiB', 'pow2(16..256)' or 'range(16..64, 16)'"

EXPONENTS: Mapping[str, Mapping[str, int]] = {
    BYTES.name: {"B": 1},
    BYTES_PER_SECOND.name: {"B": 1, "s": -1},
    SECONDS.name: {"s": 1},
    HERTZ.name: {"s": -1},
    JOULES.name: {"J": 1},
    JOULES_PER_BYTE.name: {"J": 1, "B": -1},
    WATTS.name: {"J": 1, "s": -1},
    SQUARE_METRES.name: {"m": 2},
}
"""The SI unit of each dimension, as powers."""

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_UNIT = r"[A-Za-zµ][A-Za-zµ/]*2?"
_LIST = re.compile(rf"\[?\s*({_NUMBER}(?:\s*,\s*{_NUMBER})*)\s*\]?\s*({_UNIT})?")
_POWERS = re.compile(rf"pow2\(\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*\)\s*({_UNIT})?")
_RANGE = re.compile(rf"range\(\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*(?:,\s*({_NUMBER})\s*)?\)\s*({_UNIT})?")


def axis_values(given: object, unique: bool = True) -> tuple[AxisValue, ...]:
    """The values that an axis takes, in order; ``unique``: each of them once.

    >>> axis_values("1, 2 MiB"), axis_values("[1, 2] MiB"), axis_values([8, 16]), axis_values("pow2(16..64)")
    (('1 MiB', '2 MiB'), ('1 MiB', '2 MiB'), (8, 16), (16, 32, 64))
    >>> axis_values("range(16..64, 16)"), axis_values("pow2(1..4) GB/s")
    ((16, 32, 48, 64), ('1 GB/s', '2 GB/s', '4 GB/s'))

    Raises BadInput (its faults are at no place): nothing of these forms, no value, one twice, or too many.
    """
    match given:
        case list():
            if strange := [item for item in given if not isinstance(item, int | float | str)]:
                raise _fault("numbers, quantities or words", shown(strange[0]))
            found: tuple[AxisValue, ...] = tuple(given)
        case str() if match_ := _POWERS.fullmatch(given.strip()):
            found = _with_unit(_powers(float(match_[1]), float(match_[2])), match_[3])
        case str() if match_ := _RANGE.fullmatch(given.strip()):
            found = _with_unit(_steps(float(match_[1]), float(match_[2]), float(match_[3] or 1)), match_[4])
        case str() if (match_ := _LIST.fullmatch(given.strip())) and given.count("[") == given.count("]"):
            found = _with_unit((float(word) for word in match_[1].split(",")), match_[2])
        case int() | float() if not isinstance(given, bool):
            found = (given,)
        case _:
            raise _fault(FORMS, shown(given))
    if not found:
        raise _fault("at least one value", "none")
    if len(found) > VALUES_LIMIT:
        raise _fault(f"at most {VALUES_LIMIT:,} values", f"{len(found):,}")
    seen = Counter(map(repr, found))
    if unique and len(seen) < len(found):
        raise _fault("each value once", f"{seen.most_common(1)[0][0]} twice")
    return found


def _powers(first: float, last: float) -> Iterator[float]:
    if first <= 0 or last < first or math.isinf(last):
        raise _fault("powers from a number above 0 to one that is no less", f"{first:g}..{last:g}")
    while first <= last:
        yield first
        first *= 2


def _steps(first: float, last: float, step: float) -> Iterator[float]:
    if last < first or step <= 0 or math.isinf(last):
        raise _fault("a range that ends no lower than it begins, and a step above 0", f"{first:g}..{last:g}, {step:g}")
    count = int((last - first) / step * (1 + 1e-12)) + 1
    if count > VALUES_LIMIT:
        got = f"{count:,}" if count < 1e12 else f"some {count:.3g}"
        least = f"{(last - first) / (VALUES_LIMIT - 1):.0e}"
        remedy = f"take steps of {float(least):.3g} or more, or powers: pow2({max(first, step):g}..{last:g})"
        raise BadInput(Fault("", f"at most {VALUES_LIMIT:,} values of an axis, also for --sample", got, remedy))
    return (first + place * step for place in range(count))


def _with_unit(numbers: Iterable[float], unit: str | None) -> tuple[AxisValue, ...]:
    found = tuple(numbers)
    if not all(map(math.isfinite, found)):
        raise _fault("finite numbers", "one beyond 1e308")
    whole = (int(number) if number == int(number) else number for number in found)
    return tuple(f"{number} {unit}" if unit else number for number in whole)


def in_si(value: AxisValue, clock: float) -> float | None:
    """A value as a number in SI units; None for a word. ``clock`` [Hz]: what units that count cycles refer to.

    >>> in_si("1 MiB", 1e9), in_si("32 B/cycle", 1e9), in_si(16, 1e9), in_si("ring", 1e9)
    (1048576.0, 32000000000.0, 16.0, None)
    """
    found = quantity(value, clock)
    return None if found is None else found.value


def quantity(value: AxisValue, clock: float) -> Quantity | None:
    """As `in_si`, with its unit.

    >>> quantity("2 GB/s", 1e9), quantity("8 pJ/bit", 1e9), quantity(3, 1e9)
    (Quantity(2000000000.0, B s^-1), Quantity(6.4e-11, B^-1 J), Quantity(3.0, 1))
    """
    if not isinstance(value, str):
        return Quantity(float(value))
    for dimension in DIMENSIONS:
        try:
            number = parse(value, dimension, clock=clock, zero=True)
        except UnitError:
            continue
        return Quantity.of(number, **EXPONENTS[dimension.name])
    return None


def common_unit(values: Iterable[AxisValue], clock: float) -> Quantity | None:
    """One of the unit that all values have; None where they have several, or are words."""
    found = [quantity(value, clock) for value in values]
    units = {each.exponents for each in found if each is not None}
    return Quantity(1.0, units.pop()) if len(units) == 1 and None not in found else None


SYMBOLS: Mapping[tuple[tuple[str, int], ...], str] = {
    Quantity.of(1.0, **EXPONENTS[name]).exponents: symbol
    for name, symbol in (
        (BYTES.name, "B"),
        (BYTES_PER_SECOND.name, "B/s"),
        (SECONDS.name, "s"),
        (HERTZ.name, "Hz"),
        (JOULES.name, "J"),
        (JOULES_PER_BYTE.name, "J/B"),
        (WATTS.name, "W"),
        (SQUARE_METRES.name, "m2"),
    )
}
"""The symbol of each SI unit."""


def unit_symbol(values: Iterable[AxisValue], clock: float) -> str:
    """The SI unit of an axis; "" for plain numbers, words, and values of several units.

    >>> unit_symbol(["1 MiB", "2 MiB"], 1e9), unit_symbol(["32 B/cycle"], 1e9), unit_symbol([8, 16], 1e9)
    ('B', 'B/s', '')
    """
    common = common_unit(values, clock)
    return "" if common is None else SYMBOLS.get(common.exponents, "")


def _fault(expected: str, got: str) -> BadInput:
    return BadInput(Fault("", expected, got))
