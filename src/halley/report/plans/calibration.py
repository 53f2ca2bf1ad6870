"""Software fitted to measured iterations: its numbers, the rows before and after, and what remains unexplained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halley.report.table import Table
from halley.training.fit.calibrate import PARTS, FittedNumber, RowFit, TrainingCalibration
from halley.units import format_time

LARGEST_FACTOR = 10.0
"""Above it, a factor of a part explains nothing."""
EXPLAINED_ERROR = 0.01
"""Relative error below which nothing is left to explain."""


def training_calibration_tables(found: TrainingCalibration) -> list[Table]:
    """Numbers; rows; and by which factor each part of a row's time alone would have to change for the row to be met."""
    return [_numbers(found), *_alternatives(found), _rows(found), _unexplained(found.rows)]


def _numbers(found: TrainingCalibration) -> Table:
    rows = [
        (each.name, _shown(each.name, each.start), _shown(each.name, each.value), _spread(each), each.bound or "-")
        for each in found.numbers
    ]
    head = ("number", found.start.name, "fitted", "without single rows", "on bound")
    return Table(f"{found.software.name}: fitted numbers", head, tuple(rows), frozenset({1, 2, 3}))


def _spread(number: FittedNumber) -> str:
    if number.least == number.most:
        return "-"
    return f"{_shown(number.name, number.least)} to {_shown(number.name, number.most)}"


def _shown(name: str, value: float) -> str:
    return f"{100 * value:.1f} %" if name == "kernels" else format_time(value)


def _alternatives(found: TrainingCalibration) -> list[Table]:
    """What either number alone would be, where one was fitted."""
    if len(found.numbers) > 1:
        return []
    rows = [(name, _shown(name, value), f"{100 * error:.1f} %") for name, (value, error) in found.alternatives.items()]
    return [Table("either number alone", ("number", "fitted", "root mean square error"), tuple(rows), frozenset({1, 2}))]


def _rows(found: TrainingCalibration) -> Table:
    head = ("row", "run", "measured", "before", "error before", "after", "error after", "held out")
    rows = [
        (
            str(place),
            row.name,
            format_time(row.measured),
            format_time(row.before),
            _error(row.before, row.measured),
            format_time(row.after),
            _error(row.after, row.measured),
            "-" if row.held_out is None else _error(row.held_out, row.measured),
        )
        for place, row in enumerate(found.rows, start=1)
    ]
    held = "-" if found.held_out is None else f"{100 * found.held_out:.1f} %"
    rows.append(("", "mean error", "", "", f"{100 * found.before:.1f} %", "", f"{100 * found.after:.1f} %", held))
    return Table("iterations", head, tuple(rows), frozenset(range(2, 8)), frozenset({len(rows) - 1}), frozenset({3, 5}))


def _error(predicted: float, measured: float) -> str:
    return f"{100 * (predicted / measured - 1):+.1f} %"


def _unexplained(rows: Sequence[RowFit]) -> Table:
    head = ("row", "rest", *PARTS)
    body = [
        (str(place), f"{100 * -row.error:+.1f} %", *(_part(row, part) for part in PARTS))
        for place, row in enumerate(rows, start=1)
    ]
    title = "not explained; share of each part, and its factor if it alone were the cause"
    return Table(title, head, tuple(body), frozenset(range(1, len(head))))


def _part(row: RowFit, part: str) -> str:
    share = f"{100 * max(row.parts[part], 0.0) / row.after:.0f} %"  # a bubble may be negative by rounding
    factor = row.needed(part)
    explains = factor is not None and factor <= LARGEST_FACTOR and abs(row.error) > EXPLAINED_ERROR
    return f"{share} x {factor:.2f}" if explains else share


def training_calibration_document(found: TrainingCalibration) -> dict[str, Any]:
    """All of it, for JSON."""
    return {
        "software": found.software,
        "start": found.start.name,
        "numbers": found.numbers,
        "alternatives": {name: {"value": value, "error": error} for name, (value, error) in found.alternatives.items()},
        "errors": {"before": found.before, "after": found.after, "held_out": found.held_out},
        "rows": [_document(row) for row in found.rows],
        "remarks": found.remarks,
    }


def _document(row: RowFit) -> dict[str, Any]:
    times = {"measured": row.measured, "before": row.before, "after": row.after, "held_out": row.held_out}
    needed = {part: row.needed(part) for part in PARTS}
    return {"name": row.name, "where": row.where, **times, "error": row.error, "parts": row.parts, "needed": needed}
