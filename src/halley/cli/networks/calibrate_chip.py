"""``halley calibrate chip``: how near kernels come to a chip's data sheet, from measured operators."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption
from halley.errors import BadInput, Fault
from halley.io.chips.fits import chip_fit_document
from halley.io.chips.load import load_chip
from halley.io.chips.operators import TEXT_LIMIT, read_operators
from halley.io.files.save import write_atomic
from halley.io.files.text import read_text_bounded
from halley.kernels.calibrate import TYPICAL_EFFICIENCY, chip_fit, judge
from halley.kernels.machine import machine
from halley.report.browser import png_file
from halley.report.markup import svg_file
from halley.report.networks.operators import operators_plot, operators_tables
from halley.report.terminal import show

FEWEST = 4
"""Rows that a fit of half of them needs."""


def chip(
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV of measured operators.")],
    sheet: Annotated[str, typer.Option("--chip", help="Chip that was measured: a shipped name or a file.", metavar="CHIP")],
    out: Annotated[str, typer.Option("-o", "--output", help="Where to write the fit.", metavar="FILE")] = "chip-fit.yaml",
    plot: Annotated[
        str | None, typer.Option("--plot", help="Also draw predicted over measured times: .svg or .png.", metavar="FILE")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Where the rows come from; the file's name by default.", metavar="TEXT")
    ] = None,
    launch: Annotated[
        str, typer.Option("--launch", help="Launch of a kernel behind another [us]; not fitted.", metavar="US")
    ] = f"{TYPICAL_EFFICIENCY.launch * 1e6:g}",
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit the efficiency of a chip to every second row of measured operators; the other rows give its error.

    Example: halley calibrate chip operators.csv --chip a100 -o mine.yaml --plot mine.svg
    """
    if plot is not None and Path(plot).suffix.lower() not in (".svg", ".png"):
        raise BadInput(Fault("--plot", "a name that ends in .svg or .png", repr(plot)))
    behind = options.number("--launch", launch, 1000) / 1e6
    for target in filter(None, (out, plot)):
        refuse_existing(target, force)
    measured = machine(load_chip(sheet))
    rows = read_operators(read_text_bounded(file, TEXT_LIMIT), file)
    if len(rows) < FEWEST:
        raise BadInput(Fault(file, f"at least {FEWEST} rows", str(len(rows)), "measure more shapes"))
    judged = judge(rows, measured, replace(TYPICAL_EFFICIENCY, launch=behind))
    fit = chip_fit(judged, measured, source or Path(file).name, datetime.date.today().isoformat())
    write_atomic(out, chip_fit_document(fit), force)
    if plot is not None:
        drawn = operators_plot(f"{fit.chip}, {fit.source}", judged.fitted, judged.held)
        write_atomic(plot, png_file(drawn) if plot.lower().endswith(".png") else svg_file(drawn), force)
    if json:
        options.print_json(fit)
    else:
        show(options.output(), operators_tables(fit, judged))
    for target in (out, *([plot] if plot else [])):
        options.remarks().print(Text(f"written to {target}"))
