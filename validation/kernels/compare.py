"""Kernels of serving libraries on four GPUs: fitted to every second row of a stratum, judged on the rows between.

The tables are public, but not part of this repository: ``kernels/*.csv`` of the folder of data. A stratum is a kernel of a
framework with its number formats; its rows are sorted by size, and every second one is fitted. Fits, intervals and the roofline
of three numbers beside them see the fitted rows alone. The fits that ship are of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from validation.outcome import Case, Line, Outcome

from halley.io.chips.kernel_tables import read_kernel_table
from halley.io.chips.load import load_chip
from halley.kernels.library.families import FAMILIES
from halley.kernels.library.fit import Judged, judge, relative_error
from halley.kernels.library.rows import MeasuredKernel, columns, strata, times
from halley.kernels.library.times import KernelFits, kernel_time
from halley.kernels.machine import machine

TABLES = ("gemm", "attention_prefill", "attention_decode", "attention_encoder", "mla_prefill", "mla_decode", "moe", "mamba2")
ATTENTION = ("attention_prefill", "attention_decode")
"""Tables that are judged together: single queries of the first run kernels of the second."""
DEVICES = {"A100 SXM": "a100", "H100 SXM": "h100", "B200 SXM": "b200", "L40S": "l40s"}
"""GPUs of the tables, and their chips."""
KIN = {"a100": "h100", "h100": "a100", "b200": "h100", "l40s": "a100"}
"""The chip whose fit stands in for a GPU that is left out."""

MEANS = {
    "gemm": 0.1,
    "attention_prefill": 0.09,
    "attention_decode": 0.125,
    "attention_encoder": 0.085,
    "mla_prefill": 0.08,
    "mla_decode": 0.105,
    "moe": 0.16,
    "mamba2": 0.1,
}
"""Allowed mean error of a family, rows held out of all four GPUs."""
WORST = math.inf
"""Allowed of a single row: libraries take slow kernels for a few shapes, and tables have rows that others contradict."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Score:
    """One family on some GPUs: rows held out, mean and median error, that of the roofline, the share of rows in the interval, and
    Kendall's rank correlation of predicted with measured times."""

    rows: int
    mean: float
    median: float
    baseline: float
    covered: float
    kendall: float


def rows_of(folder: Path, table: str) -> dict[str, tuple[MeasuredKernel, ...]]:
    """The rows of one table, by chip. Raises BadInput: it cannot be read."""
    path = folder / "kernels" / f"{table}.csv"
    found = read_kernel_table(path.read_text(encoding="utf-8"), str(path))
    return {DEVICES[gpu]: rows for gpu, rows in found.items() if gpu in DEVICES}


def judged(folder: Path, table: str, chip: str) -> tuple[Judged, ...]:
    """Rows held out of one family on one chip."""
    together = ATTENTION if table in ATTENTION else (table,)
    return tuple(item for item in _judged(folder, together, chip) if item.stratum.family == table)


@lru_cache(maxsize=64)
def _judged(folder: Path, tables: tuple[str, ...], chip: str) -> tuple[Judged, ...]:
    rows = tuple(row for table in tables for row in rows_of(folder, table).get(chip, ()))
    return judge(rows, machine(load_chip(chip))) if rows else ()


def score(found: Iterable[Judged]) -> Score:
    """All held-out rows together."""
    items = list(found)
    measured, predicted, baseline, low, high = (
        np.concatenate([getattr(item, name) for item in items]) for name in ("measured", "predicted", "baseline", "low", "high")
    )
    errors = np.abs(predicted / measured - 1)
    covered = float(np.mean((low <= measured) & (measured <= high)))
    kendall = rank_correlation(predicted, measured)
    simple = relative_error(baseline, measured)
    return Score(len(measured), float(errors.mean()), float(np.median(errors)), simple, covered, kendall)


def rank_correlation(first: Array, second: Array) -> float:
    """Kendall's tau: pairs in the same order less pairs in opposite order, over all pairs without ties in both.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])).__round__(4)
    0.3333
    """
    agreement = total_first = total_second = 0.0
    for index in range(len(first) - 1):
        one, other = np.sign(first[index + 1 :] - first[index]), np.sign(second[index + 1 :] - second[index])
        agreement += float((one * other).sum())
        total_first, total_second = total_first + float((one != 0).sum()), total_second + float((other != 0).sum())
    return agreement / float(np.sqrt(max(total_first * total_second, 1.0)))


@dataclass(frozen=True, slots=True)
class Carried:
    """Rows of one stratum of a GPU by the fit of another: logarithms of predicted over measured time, and whether each row lies
    in the interval."""

    chip: str
    family: str
    framework: str
    errors: Array
    inside: Array


def carried(folder: Path, table: str, chip: str, fits: KernelFits) -> tuple[Carried, ...]:
    """All rows of a family on a chip by ``fits`` of another chip on this chip's data sheet, as a user without measurements would
    call it: by framework and format, without the kernel's name. Strata whose format the fits lack are left out."""
    found = []
    for stratum, rows in strata(rows_of(folder, table).get(chip, ())).items():
        have = [item.stratum for item in fits.fits if item.stratum.family == stratum.family]
        formats = (stratum.framework, stratum.dtype, stratum.cache)
        if not any((other.framework, other.dtype, other.cache) == formats for other in have):
            continue
        sizes = columns(rows, FAMILIES[stratum.family])
        timed = kernel_time(fits, stratum.family, sizes, stratum.dtype, stratum.cache or None, stratum.framework)
        measured = times(rows)
        inside = (timed.low <= measured) & (measured <= timed.high)
        found.append(Carried(chip, stratum.family, stratum.framework, np.log(timed.time / measured), inside))
    return tuple(found)


def compare(data: Path | None) -> Outcome:
    """Every family on all GPUs, with what is allowed."""
    if data is None or not all((data / "kernels" / f"{table}.csv").is_file() for table in TABLES):
        return Outcome("kernels", skipped="no data: kernels/*.csv")
    lines, notes = [], []
    for table in TABLES:
        found = [item for chip in DEVICES.values() for item in judged(data, table, chip)]
        cases = tuple(
            Case(f"{item.stratum}, {measured * 1e6:.4g} us", float(predicted), float(measured))
            for item in found
            for predicted, measured in zip(item.predicted, item.measured, strict=True)
        )
        lines.append(Line(f"{table}, held out", cases, MEANS[table], WORST))
        result = score(found)
        notes.append(
            f"{table}: median {100 * result.median:.1f} %; roofline of three fitted numbers {100 * result.baseline:.1f} %; "
            f"{100 * result.covered:.0f} % of rows in the interval of 80 %; Kendall {result.kendall:.3f}"
        )
    return Outcome("kernels", tuple(lines), tuple(notes))
