"""``python -m validation.kernels FOLDER``: errors of each family on each GPU, held out; and of one GPU by the fit of another.

``--carried`` prints the second table and the spread among kin that `halley.io.chips.kernel_fits` holds, from the fits that ship.
FOLDER holds ``kernels/*.csv``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from validation.kernels.compare import DEVICES, KIN, TABLES, Score, carried, judged, score
from validation.table import markdown, told

from halley.io.chips.kernel_fits import load_kernel_fits


def report(folder: Path) -> str:
    """Errors of rows held out, by family and GPU."""
    rows = []
    for table in TABLES:
        everything = []
        for chip in DEVICES.values():
            if found := judged(folder, table, chip):
                rows.append((table, chip, *_cells(score(found))))
                everything += found
        rows.append((table, "all", *_cells(score(everything))))
    head = ("kernels", "chip", "rows", "mean", "median", "roofline, fitted", "in the interval", "Kendall")
    return markdown(head, tuple(rows))


def _cells(found: Score) -> tuple[str, ...]:
    shares = (found.mean, found.median, found.baseline)
    return str(found.rows), *(f"{100 * share:.1f} %" for share in shares), f"{100 * found.covered:.0f} %", f"{found.kendall:.3f}"


def left_out(folder: Path) -> str:
    """Errors of each GPU by the fit of another, and the spread."""
    rows, spread = [], []
    for table in TABLES:
        biases, means, inside = [], [], []
        for chip, kin in KIN.items():
            found = carried(folder, table, chip, load_kernel_fits(kin, chip))
            biases += [float(np.median(item.errors)) for item in found if len(item.errors) >= 5]
            errors = [np.abs(np.exp(item.errors) - 1) for item in found]
            if errors:
                joined = np.concatenate(errors)
                means.append(f"{chip} from {kin} {100 * joined.mean():.0f} (median {100 * np.median(joined):.0f}) %")
                inside += [item.inside for item in found]
        covered = 100 * float(np.concatenate(inside).mean()) if inside else 0.0
        rows.append((table, ", ".join(means), f"{covered:.0f} %"))
        if biases:
            # of a normal distribution with this deviation, four of five biases are as small
            spread.append(f'    "{table}": {float(np.quantile(np.abs(biases), 0.8)) / 1.2816:.2f},')
    return markdown(("kernels", "mean error", "in the interval"), tuple(rows)) + "\n\nSPREAD = {\n" + "\n".join(spread) + "\n}"


def main(arguments: list[str]) -> int:
    made: dict[tuple[str, ...], Callable[[Path], str]] = {(): report, ("--carried",): left_out}
    chosen = made.get(tuple(arguments[1:]))
    if not arguments or chosen is None:
        print("usage: python -m validation.kernels FOLDER [--carried]", file=sys.stderr)
        return 1
    return told(lambda: chosen(Path(arguments[0])).rstrip("\n"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
