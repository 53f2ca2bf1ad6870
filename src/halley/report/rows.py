"""Bare numbers as CSV, the first row of them the heads."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from halley.errors import BadInput, Fault

Cell = str | float | int
Row = tuple[Cell, ...]


def csv_text(rows: Iterable[Row]) -> str:
    """The rows as CSV (RFC 4180, but with plain line ends). Numbers have all their digits.

    >>> csv_text([("name", "time_s"), ("=a", 0.1)])
    "name,time_s\\n'=a,0.1\\n"
    """
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(tuple(map(_cell, row)) for row in rows)
    return stream.getvalue()


def frame(text: str) -> Any:
    """Such text as a data frame of pandas, or of polars where there is no pandas. Raises BadInput: neither is installed."""
    for package in ("pandas", "polars"):
        try:
            return import_module(package).read_csv(io.StringIO(text))
        except ImportError:
            continue
    raise BadInput(Fault("to_frame", "the package pandas or polars", "neither", "run: pip install pandas"))


def _cell(value: Cell) -> Cell:
    """A name that a spreadsheet would take for a formula gets an apostrophe in front, which makes it text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
