"""What every search says of its answer: how it ended, and how far the answer may be from the optimum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any


class Status(StrEnum):
    """How a search ended; the value is a sentence for the user."""

    OPTIMAL = "optimal: nothing in the declared space is better"
    WITHIN = "within the gap that was asked for: nothing in the declared space is better than the bound"
    ENUMERATED = "best of the candidates, all of which were costed; the bound holds for every other one too"
    LIMIT = "stopped early: the best so far, with a true bound"
    INTERRUPTED = "interrupted: the best so far, with a true bound"


ROUNDING_GAP = 2e-9
"""Relative gap that is put down to rounding: value and bound are sums of the same terms in another order."""


def relative_gap(value: float, bound: float) -> float:
    """How far a value may be from the least possible one, relative to a lower bound of it: value / bound - 1.

    Infinite without a bound; 0 where both are equal, also if both are 0 or infinite.

    >>> relative_gap(110.0, 100.0), relative_gap(0.0, 0.0), relative_gap(1.0, 0.0)
    (0.10000000000000009, 0.0, inf)
    """
    if value == bound:
        return 0.0
    return value / bound - 1.0 if bound > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Certificate:
    """Proof that goes with an answer.

    ``value``: objective of the answer, in ``unit``. ``bound``: nothing in the declared space has a smaller objective. ``space``:
    how many options each choice has; ``size``: candidates of the space, counted exactly; None: not
    counted. ``left_out``: what the space lacks.
    ``effort``: how many candidates were bounded, costed and so on. ``seconds`` [s]: wall time of the search; ``closed``: how
    the proof ended.

    >>> Certificate(110.0, 100.0, Status.LIMIT).gap
    0.10000000000000009
    """

    value: float
    bound: float
    status: Status
    unit: str = "s"
    space: Mapping[str, int] = field(default_factory=dict)
    size: int | None = 0
    left_out: tuple[str, ...] = ()
    effort: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    closed: str = ""

    @property
    def gap(self) -> float:
        """How far the answer may be from the optimum: value / bound - 1 (`relative_gap`), 0 within rounding."""
        gap = relative_gap(self.value, self.bound)
        return gap if gap > ROUNDING_GAP else 0.0


class Answerable:
    """What products return: a value that does what its answer (`halley.answers.base.Answer`) does.

    It prints as its headline; all else is loaded when it is used.
    """

    __slots__ = ()

    def answer(self) -> Any:
        """The value's `halley.Answer`."""
        return import_module("halley.answers.load").as_answer(self)  # answers stand on all that returns values

    def show(self, details: bool = False) -> None:
        """Print what was asked, what is proven, and all tables; ``details``: every op, every candidate."""
        self.answer().show(details)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the file that `halley.load` reads. Raises BadInput: the file exists and ``force`` is not set, or cannot be
        written."""
        self.answer().save(path, force)

    def report(self, path: str | Path, force: bool = False) -> None:
        """Write the report as one HTML file. Raises BadInput: as `save`."""
        self.answer().report(path, force)

    def compare(self, other: Any, names: tuple[str, str] = ("this one", "the other")) -> Any:
        """What differs between two answers, and why one is slower. Raises BadInput: answers of unlike kinds."""
        return self.answer().compare(import_module("halley.answers.load").as_answer(other), names)

    def explain(self, part: str = "") -> Any:
        """Tables of where the time goes, or of the ``part`` of that name. Raises BadInput: there is no such part."""
        return self.answer().explain(part)

    def check(self, limit: float = 60.0, search: bool = True) -> Any:
        """Findings of a verification; ``limit`` [s] of a search, ``search``: whether to search again."""
        return self.answer().check(limit, search)

    def figure(self, path: str | Path, name: str = "", force: bool = False) -> None:
        """Write a figure, the first unless it is named: .svg or .png.

        Raises BadInput: there is none of that name, or as `save`."""
        self.answer().figure(path, name, force)

    def table(self, name: str) -> str:
        """Bare numbers as CSV, in SI units. Raises BadInput: there is no table of that name."""
        text: str = self.answer().table(name)
        return text

    def to_dict(self) -> dict[str, Any]:
        """The content of a file as plain data in SI units."""
        content: dict[str, Any] = self.answer().to_dict()
        return content

    def to_frame(self, name: str = "") -> Any:
        """Bare numbers, the first table unless it is named, as a data frame of pandas or polars.

        Raises BadInput: there is no table of that name; neither package is installed."""
        return self.answer().to_frame(name)

    def plot(self, name: str = "") -> Any:
        """A figure, the first unless it is named, which notebooks show. Raises BadInput: there is none of that name."""
        return self.answer().plot(name)

    def __repr__(self) -> str:
        first, *more = self.answer().lines()
        return "\n".join((f"{type(self).__name__}: {first}", *more[:2]))

    def _repr_html_(self) -> str:
        shown: str = self.answer()._repr_html_()
        return shown
