"""Every measured row predicted by a fit to others: cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from halley.kernels.calibrate import TYPICAL_EFFICIENCY, KernelMeasurement, Prediction, fit, predictions, row_order
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.times import call_time


def folds(
    rows: Sequence[KernelMeasurement], count: int
) -> tuple[tuple[tuple[KernelMeasurement, ...], tuple[KernelMeasurement, ...]], ...]:
    """(fitted, judged) rows such that every row is judged once: each fold judges every ``count``-th row by shape."""
    ordered = sorted(rows, key=lambda row: (row.operator, row_order(row)))
    parts = [ordered[start::count] for start in range(count)]
    return tuple((tuple(row for other in parts if other is not part for row in other), tuple(part)) for part in parts if part)


def cross_validated(
    rows: Sequence[KernelMeasurement], chip: Machine, count: int = 5, start: Efficiency = TYPICAL_EFFICIENCY
) -> tuple[Prediction, ...]:
    """Every row predicted by a fit to the other folds."""
    found: list[Prediction] = []
    for kept, held in folds(rows, count):
        known = {row.operator for row in kept}
        efficiency = fit(kept, chip, start)
        found += predictions([row for row in held if row.operator in known], partial(call_time, chip=chip, efficiency=efficiency))
    return tuple(found)
