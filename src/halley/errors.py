"""What can go wrong, drawn as a tree.

    HalleyError
    ├── BadInput            the user's file, flag or text is wrong           exit code 1
    │   ├── UnitError       a quantity without, or with the wrong, unit
    │   └── IllegalMapping  a tree that breaks a rule of the mapping language
    ├── Infeasible          no mapping fits; names the resource              exit code 2
    ├── SearchStopped       the limit, or an interrupt, came before an answer exit code 3
    └── InternalError       Halley disagrees with itself; please report      exit code 70

Every message reads ``where: expected X; got Y; do Z``. Faults of one file are gathered and
raised together, so that one run shows all of them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


First = TypeVar("First")
Second = TypeVar("Second")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where it is, what was expected, what was found, what to do."""

    where: str
    expected: str
    got: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.where}: expected {self.expected}; got {self.got}{remedy}"


class HalleyError(Exception):
    """Anything Halley raises on purpose. ``faults`` holds each single cause."""

    exit_code = 1

    def __init__(self, faults: Fault | Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = (faults,) if isinstance(faults, Fault) else tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[object, ...]:
        """Between processes: made again of its faults, not of their text."""
        return type(self), (self.faults,)


class BadInput(HalleyError):
    """The input is wrong; nothing was computed."""


class UnitError(BadInput):
    """A quantity lacks its unit or carries one of another dimension."""


class IllegalMapping(BadInput):
    """The mapping breaks a rule: a missing collective, an incomplete read, a tile over capacity."""


class Infeasible(HalleyError):
    """No mapping of the space fits; the fault names the resource, the demand and the capacity."""

    exit_code = 2


class SearchStopped(HalleyError):
    """The time limit, or an interrupt, ended a search before it found any answer. There may be one."""

    exit_code = 3


class InternalError(HalleyError):
    """Two of Halley's own answers disagree. Never the user's fault."""

    exit_code = 70


def both(first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
    """What two readers of input return. Raises BadInput: every fault of both.

    >>> both(lambda: 1, lambda: 2)
    (1, 2)
    """
    try:
        made = first()
    except BadInput as fault:
        try:
            second()
        except BadInput as other:
            raise BadInput([*fault.faults, *other.faults]) from None
        raise
    return made, second()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy sentence that names the nearest known word, or lists all.

    >>> did_you_mean("capcity", ["capacity", "latency"])
    "did you mean 'capacity'?"
    >>> did_you_mean("x", ["m", "n"])
    'use one of: m, n'
    """
    options = sorted(set(known))
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "use one of: " + ", ".join(options)


def visible(text: str) -> str:
    r"""The text with control characters escaped, so that a name in a file cannot steer the terminal; line breaks and tabs stay.

    >>> visible("a\x1b[31mb"), visible("two\nlines")
    ('a\\x1b[31mb', 'two\nlines')
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
