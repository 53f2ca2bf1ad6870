"""A table as a value: what the terminal and a notebook both show."""

from __future__ import annotations

from dataclasses import dataclass, field

Cell = str


@dataclass(frozen=True, slots=True)
class Table:
    """``rows`` of text under ``head``. Columns in ``right`` hold numbers; rows in ``strong`` stand out; columns in ``spare`` may
    be left out where the terminal is too narrow."""

    title: str
    head: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    right: frozenset[int] = field(default_factory=frozenset)
    strong: frozenset[int] = field(default_factory=frozenset)
    spare: frozenset[int] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"table {self.title}: {len(row)} cells under {len(self.head)} heads")


def percent(part: float, whole: float) -> str:
    """A share, in per cent.

    >>> percent(1, 8), percent(1, 100_000), percent(0, 5), percent(1, 0)
    ('12.5 %', '<0.1 %', '0 %', '-')
    """
    if whole <= 0:
        return "-"
    share = 100 * part / whole
    if share == 0:
        return "0 %"
    return "<0.1 %" if share < 0.1 else f"{share:.1f} %"


def ratio(value: float) -> str:
    """How many times.

    >>> ratio(1.2345), ratio(123.4)
    ('1.23 x', '123 x')
    """
    return f"{value:.2f} x" if value < 100 else f"{value:.0f} x"


ROUNDING = 1e-6
"""Relative gap below which none is shown."""


def gap_text(value: float) -> str:
    """A gap in per cent.

    >>> gap_text(0.0), gap_text(4.2e-4), gap_text(0.0123), gap_text(12.34), gap_text(float("inf"))
    ('0.0 %', '0.04 %', '1.2 %', '1,234 %', 'unknown')
    """
    if value == float("inf"):
        return "unknown"
    if ROUNDING <= value < 1e-3:
        return f"{100 * value:.1g} %"
    return f"{100 * value:.1f} %" if value < 1 else f"{100 * value:,.0f} %"
