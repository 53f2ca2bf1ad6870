"""What a comparison says: errors of one quantity over many cases, against what is allowed."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from halley.errors import BadInput, Fault
from halley.training.uncertainty.plans import interval_reach

ROW_LIMIT = 100_000
"""Most rows that a table of figures may have."""


@dataclass(frozen=True, slots=True)
class Case:
    """One figure: what Halley says of it, and what the source says, in the same unit."""

    name: str
    halley: float
    figure: float

    @property
    def error(self) -> float:
        """Signed, relative to the source's figure; of a figure of 0, infinite unless Halley agrees."""
        if self.halley == self.figure:
            return 0.0
        return (self.halley - self.figure) / self.figure if self.figure else float("inf")


@dataclass(frozen=True, slots=True)
class Line:
    """The errors of one quantity. ``mean`` and ``worst`` are the largest mean and single absolute error that are allowed."""

    quantity: str
    cases: tuple[Case, ...]
    mean: float = 0.0
    worst: float = 0.0

    def __post_init__(self) -> None:
        if not self.cases:
            raise ValueError(f"{self.quantity}: no cases")

    @property
    def mean_error(self) -> float:
        return sum(abs(case.error) for case in self.cases) / len(self.cases)

    @property
    def bias(self) -> float:
        """Mean signed error: above 0 where Halley says more than the source."""
        return sum(case.error for case in self.cases) / len(self.cases)

    @property
    def worst_case(self) -> Case:
        return max(self.cases, key=lambda case: abs(case.error))

    @property
    def holds(self) -> bool:
        return self.mean_error <= self.mean and abs(self.worst_case.error) <= self.worst


@dataclass(frozen=True, slots=True)
class Outcome:
    """All lines of one source, and ``notes`` for the reader; ``skipped`` says why there is none."""

    source: str
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def holds(self) -> bool:
        return all(line.holds for line in self.lines)


def read_figures(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    """The rows of a table of figures that has these columns at least.

    Raises BadInput: no such file, a missing column, an empty cell in one of them, no row or too many.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = (line for line in file if not line.startswith("#"))
            rows = [row for row, _ in zip(csv.DictReader(lines), range(ROW_LIMIT + 1), strict=False)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(Fault(str(path), "a table of figures", type(error).__name__)) from error
    if not 0 < len(rows) <= ROW_LIMIT:
        raise BadInput(Fault(str(path), f"1 to {ROW_LIMIT} rows", "more" if rows else "none"))
    for number, row in enumerate(rows, start=1):
        for column in columns:
            if not row.get(column):
                raise BadInput(Fault(f"{path}, row {number}", f"a value for {column}", "nothing"))
    return rows


def whole(row: Mapping[str, str], column: str, where: str) -> int:
    """A whole number of at least 0 in a cell. Raises BadInput."""
    text = row[column]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadInput(Fault(f"{where}, {column}", "a whole number", repr(text)))
    return int(text)


def positive(row: Mapping[str, str], column: str, where: str) -> float:
    """A number above 0 in a cell. Raises BadInput."""
    try:
        value = float(row[column])
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise BadInput(Fault(f"{where}, {column}", "a number above 0", repr(row[column])))
    return value


__all__ = ["Case", "Line", "Outcome", "positive", "read_figures", "whole"]


def covered(cases: Sequence[Case]) -> float:
    """Share of the cases in the interval that answers state: of every second case by the errors of those between, and the other
    way round."""
    inside = 0
    for mine, others in ((cases[::2], cases[1::2]), (cases[1::2], cases[::2])):
        reach = interval_reach([math.log(case.figure / case.halley) for case in others])
        inside += sum(abs(math.log(case.figure / case.halley)) <= reach for case in mine)
    return inside / len(cases)
