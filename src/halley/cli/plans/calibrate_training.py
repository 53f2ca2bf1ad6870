"""``halley calibrate training``: the host and a derating of the kernels, from measured iterations of training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.files import refuse_existing, write_answers
from halley.cli.options import ForceOption, JsonOption
from halley.cli.plans.systems import EfficiencyOption
from halley.cli.solve import searching
from halley.io.chips.software import software_document
from halley.products.calibration import START, calibrate_training
from halley.report.plans.calibration import training_calibration_document, training_calibration_tables
from halley.report.terminal import show

REMARK = "Written by 'halley calibrate training'; docs/how-to/calibrate-training.md."


def training(
    log: Annotated[str, typer.Argument(metavar="LOG", help="CSV of measured iterations: model, system, parallelism, time.")],
    out: Annotated[
        str | None, typer.Option("-o", "--output", help="Write the software, for 'halley plan --software'.", metavar="FILE")
    ] = None,
    software: Annotated[
        str, typer.Option("--software", help="Software from which the fit starts, by name or path.", metavar="NAME")
    ] = START,
    source: Annotated[
        str | None, typer.Option("--source", help="Where the rows come from; the file's name by default.", metavar="TEXT")
    ] = None,
    efficiency: EfficiencyOption = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit the time of the host and one derating of all kernels to measured iterations of training.

    Example: halley calibrate training runs.csv -o mine.yaml
    """
    if out is not None:
        refuse_existing(out, force)
    remarks = options.remarks()
    name = Path(out).stem if out else "calibrated"
    with searching(remarks, Path(log).name, "calibration") as bar:
        found = calibrate_training(log, software, name, source, efficiency, bar)
    if out is not None:
        write_answers({out: software_document(found.software, REMARK)}, force)
    if json:
        options.print_json(training_calibration_document(found))
    else:
        show(options.output(), training_calibration_tables(found))
    for remark in found.remarks:
        options.remark_to_stderr(remark)
    if out is not None:
        remarks.print(Text(f"written to {out}"))
