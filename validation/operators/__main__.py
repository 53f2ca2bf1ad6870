"""``python -m validation.operators FOLDER``: errors of every operator beside simpler models, and of other splits of the rows.

``--figure`` draws predicted over measured times instead, as docs/images/validation-operators.svg has them; ``--fit NAME`` fits
``a100`` or ``h20`` anew and prints the file that ships. FOLDER holds ``measured_ops.csv``.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from validation.operators.compare import TABLE, carried, fit_rows
from validation.operators.folds import cross_validated
from validation.table import markdown, told

from halley.io.chips.fits import chip_fit_document
from halley.io.chips.load import load_chip
from halley.kernels.calibrate import (
    TYPICAL_EFFICIENCY,
    KernelMeasurement,
    chip_fit,
    errors,
    fit,
    fitted_rooflines,
    halves,
    judge,
    predictions,
    roofline_predictions,
)
from halley.kernels.machine import machine
from halley.kernels.times import call_time
from halley.report.markup import svg_file
from halley.report.networks.operators import error_table, operators_plot
from halley.report.table import Table

DEVICES = {
    "a100": ("A100", "LLMCompass (github.com/PrincetonUniversity/LLMCompass, 2e015fd, ae/figure5): A100 SXM4, timed by the host"),
    "h20": ("H20", "InferSim (github.com/alibaba/InferSim, f2293da, bench_data), H20: DeepGEMM, FlashInfer, FA3, FlashMLA"),
}


def table(found: Table) -> str:
    """A table of Markdown."""
    return markdown(found.head, found.rows)


def other_splits(path: Path) -> str:
    """The A100's rows split in other ways: the halves exchanged, five folds, the smaller half to the larger."""
    rows, chip = fit_rows(path, "A100"), machine(load_chip("a100"))
    kept, held = halves(rows)
    splits = {"halves exchanged": (held, kept), "fitted on the smaller half": by_size(rows)}
    found = {"five folds": errors(cross_validated(rows, chip))}
    for name, (fitted, judged) in splits.items():
        efficiency = fit(fitted, chip)
        found[name] = errors(predictions(judged, partial(call_time, chip=chip, efficiency=efficiency)))
    operators = tuple(dict.fromkeys(row.operator for row in rows))
    lines = [(name, *(f"{100 * error[operator]:.1f} %" for operator in operators)) for name, error in found.items()]
    return table(Table("", ("split of the A100's rows", *operators), tuple(lines)))


def by_size(rows: tuple[KernelMeasurement, ...]) -> tuple[tuple[KernelMeasurement, ...], tuple[KernelMeasurement, ...]]:
    """The smaller half of each operator, and the larger."""
    small, large = [], []
    for operator in dict.fromkeys(row.operator for row in rows):
        ordered = sorted((row for row in rows if row.operator == operator), key=lambda row: row.size)
        small += ordered[: len(ordered) // 2]
        large += ordered[len(ordered) // 2 :]
    return tuple(small), tuple(large)


def report(path: Path) -> str:
    """All tables."""
    parts = []
    for name, (device, _) in DEVICES.items():
        parts.append(f"{device}:\n\n{table(error_table('', judge(fit_rows(path, device), machine(load_chip(name)))))}")
    mean = ", ".join(f"{operator} {100 * error:.1f} %" for operator, error in errors(carried(path)).items())
    roof = f"H20 from the A100's fitted roofline: gemm {100 * carried_roofline(path):.1f} %"
    return "\n\n".join([*parts, f"H20 from the A100's fit: {mean}", roof, other_splits(path)])


def carried_roofline(path: Path) -> float:
    """Error on the H20's GEMMs of the roofline that was fitted to the A100's, with a launch instead of the A100's host."""
    shares = fitted_rooflines(halves(fit_rows(path, "A100"))[0], machine(load_chip("a100")))["gemm"]
    predict = roofline_predictions({"gemm": replace(shares, call=TYPICAL_EFFICIENCY.launch)}, machine(load_chip("h20")))
    return errors(predictions([row for row in fit_rows(path, "H20") if row.operator == "gemm"], predict))["gemm"]


def figure(path: Path) -> str:
    """The A100's rows, as SVG."""
    judged = judge(fit_rows(path, "A100"), machine(load_chip("a100")))
    return svg_file(operators_plot("A100 SXM4 80 GB, timed by the host", judged.fitted, judged.held))


def fitted(path: Path, name: str) -> str:
    """The fit that ships, fitted again."""
    device, source = DEVICES[name]
    chip = machine(load_chip(name))
    judged = judge(fit_rows(path, device), chip)
    return chip_fit_document(chip_fit(judged, chip, source, datetime.date.today().isoformat()))


def main(arguments: list[str]) -> int:
    made: dict[tuple[str, ...], Callable[[Path], str]] = {(): report, ("--figure",): figure}
    made |= {("--fit", name): partial(fitted, name=name) for name in DEVICES}
    chosen = made.get(tuple(arguments[1:]))
    if not arguments or chosen is None:
        print("usage: python -m validation.operators FOLDER [--figure | --fit a100 | --fit h20]", file=sys.stderr)
        return 1
    return told(lambda: chosen(Path(arguments[0]) / TABLE).rstrip("\n"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
