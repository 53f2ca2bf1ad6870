"""Fits of a chip's kernels to all of its rows, with the error of fits to halves and intervals from them: what a file stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from halley.kernels.library.fit import Judged, crossed, fit_strata, intervals, judge
from halley.kernels.library.rows import MeasuredKernel, strata
from halley.kernels.library.times import KernelFit, KernelFits
from halley.kernels.machine import Machine


def calibrate(rows: Sequence[MeasuredKernel], chip: Machine, source: str, dated: str) -> tuple[KernelFits, tuple[Judged, ...]]:
    """Fits to all rows of one chip; and the rows held out of fits to every second row, which give the errors.

    The errors are thus those of fits to half of the rows. Intervals come from both halves, each judged by a fit to the other.

    Raises BadInput: no kernel has enough rows; a format that the chip lacks.
    """
    judged = judge(rows, chip)
    groups = strata(rows)
    factors, by_stratum = intervals(crossed(groups, chip)), {item.stratum: item for item in judged}
    found = []
    for stratum, made in fit_strata(groups, chip).items():
        mine, held = groups[stratum], by_stratum.get(stratum)
        low, high = factors[stratum]
        found.append(
            KernelFit(
                stratum,
                made.parameters,
                made.options,
                len(mine),
                held.error if held else None,
                held.baseline_error if held else None,
                low,
                high,
                made.on_bound,
                Counter(row.sizes["head_dim"] for row in mine) if "head_dim" in mine[0].sizes else {},
                made.correction,
            )
        )
    found.sort(key=lambda item: item.stratum)
    return KernelFits(chip, chip.name, source, dated, tuple(found)), judged
