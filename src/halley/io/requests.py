"""Traces of requests: a CSV file with the columns ``arrival`` [s], ``input`` and ``output`` [tokens], in order of arrival."""

from __future__ import annotations

import csv
import itertools
import math
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from halley.errors import BadInput, Fault
from halley.serving.simulate import BLOCK, Requests

COLUMNS = ("arrival", "input", "output")
TOKENS_LIMIT = 10_000_000
"""Most tokens of a prompt or an answer."""
FAULTS_SHOWN = 10
"""Faults of a file that are named at most."""
LINE_LIMIT = 10_000
"""Most characters of a line: a file without line breaks is never read whole."""


def read_requests(path: str | Path, prefix: int = 0) -> Iterator[Requests]:
    """The requests of a trace, in blocks. ``prefix``: tokens that every prompt has in the cache.

    Raises BadInput: no such file, missing columns, rows that are no requests (the first few of a block, with their lines),
    arrivals out of order, prompts of no more tokens than the prefix.
    """
    name, last = str(path), 0.0
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise BadInput(Fault(name, "a file", "a folder, a device or a pipe"))
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(_lines(file, name))
            places = _places(next(reader, []), name)
            number = 2
            while rows := list(itertools.islice(reader, BLOCK)):
                block, last = _block(rows, places, name, number, last, prefix)
                number += len(rows)
                yield block
    except OSError as error:
        raise BadInput(Fault(name, "a trace of requests", error.strerror or type(error).__name__, "check the path")) from None
    except (ValueError, csv.Error) as error:  # also text that is not UTF-8, and a path with a null byte
        raise BadInput(Fault(name, "a CSV file", str(error)[:200])) from None


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """The lines of the file. Raises BadInput: a line that is too long."""
    number = 0
    while line := file.readline(LINE_LIMIT):
        number += 1
        if len(line) == LINE_LIMIT:
            raise BadInput(Fault(f"{name}:{number}", f"a line of less than {LINE_LIMIT:,} characters", "a longer one"))
        yield line


def _places(head: list[str], name: str) -> tuple[int, ...]:
    names = [item.strip().lower() for item in head]
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        hints = [
            Fault(f"{name}:1", f"a column {column}", repr(", ".join(names)[:80]), f"the head is {','.join(COLUMNS)}")
            for column in missing
        ]
        raise BadInput(hints)
    return tuple(names.index(column) for column in COLUMNS)


def _block(
    rows: list[list[str]], places: tuple[int, ...], name: str, first: int, last: float, prefix: int
) -> tuple[Requests, float]:
    faults: list[Fault] = []
    table = np.zeros((len(rows), 3))
    for offset, row in enumerate(rows):
        where = f"{name}:{first + offset}"
        for column, place in enumerate(places):
            text = row[place].strip() if place < len(row) else ""
            value = _number(text)
            what = COLUMNS[column]
            least, most = (0.0, math.inf) if what == "arrival" else (1.0, float(TOKENS_LIMIT))
            whole = what == "arrival" or value == math.floor(value) if math.isfinite(value) else False
            if not (least <= value <= most and whole and math.isfinite(value)):
                expected = "a time from 0 s" if what == "arrival" else f"a whole number of tokens from 1 to {TOKENS_LIMIT:,}"
                faults.append(Fault(f"{where}, {what}", expected, repr(text[:40])))
            elif what == "arrival":
                if value < last:
                    faults.append(
                        Fault(f"{where}, arrival", f"at least {last:g} s, that of the row before", text[:40], "sort the trace")
                    )
                last = max(last, value)
            elif what == "input" and prefix and value <= prefix:
                faults.append(
                    Fault(f"{where}, input", f"more than the {prefix} cached tokens", text[:40], "use a smaller --prefix")
                )
            table[offset, column] = value
        if len(faults) >= FAULTS_SHOWN:
            break
    if faults:
        raise BadInput(faults)
    return Requests(table[:, 0], table[:, 1].astype(np.int64), table[:, 2].astype(np.int64)), last


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
