"""``halley calibrate``: parameters from measurements."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.errors import HalleyGroup
from halley.cli.files import refuse_existing
from halley.cli.networks import calibrate_chip
from halley.cli.options import ForceOption, JsonOption
from halley.cli.plans import calibrate_training
from halley.errors import BadInput, Fault
from halley.io.files.save import write_atomic
from halley.io.files.text import read_text_bounded
from halley.io.networks.fits import fit_document
from halley.io.networks.nccl_tests import LOG_LIMIT, collective, read_measurements
from halley.network.fit.calibrate import Measurement, calibrate, checked
from halley.network.fit.overlay import Overlay
from halley.report.browser import png_file
from halley.report.markup import svg_file
from halley.report.networks.calibration import calibration_plot, calibration_tables
from halley.report.terminal import show

app = typer.Typer(
    cls=HalleyGroup,
    no_args_is_help=True,
    help="Fit parameters of a communication library, of a chip's kernels or of a training framework to measurements.",
)
app.command()(calibrate_chip.chip)
app.command()(calibrate_training.training)


@app.command()
def network(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Logs of nccl-tests, or CSV tables of measurements.")],
    out: Annotated[str, typer.Option("-o", "--output", help="Where to write the fit.", metavar="FILE")] = "network.yaml",
    plot: Annotated[
        str | None, typer.Option("--plot", help="Also draw measured times, fit and residuals: .svg or .png.", metavar="FILE")
    ] = None,
    machine: Annotated[str, typer.Option("--machine", help="Name of the hardware, for the fit.", metavar="TEXT")] = "unnamed",
    software: Annotated[
        str, typer.Option("--software", help="Communication library and version, for the fit.", metavar="TEXT")
    ] = "unnamed",
    source: Annotated[
        str | None, typer.Option("--source", help="Where the rows come from; the files' names by default.", metavar="TEXT")
    ] = None,
    ranks: Annotated[str | None, typer.Option("--ranks", help="Ranks, for logs that do not list them.", metavar="NUMBER")] = None,
    kind: Annotated[
        str | None, typer.Option("--collective", help="Collective, for logs that do not name it.", metavar="WORD")
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Take the in-place times of logs.")] = False,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Fit the protocols of a communication library to measured collectives.

    Example: halley calibrate network nccl-tests.log -o network.yaml --plot residuals.svg
    """
    if plot is not None and Path(plot).suffix.lower() not in (".svg", ".png"):
        raise BadInput(Fault("--plot", "a name that ends in .svg or .png", repr(plot)))
    for target in filter(None, (out, plot)):
        refuse_existing(target, force)
    asked = None if kind is None else collective(kind, "--collective")
    number = None if ranks is None else options.whole_number("--ranks", ranks, least=2, example=8)
    rows: list[Measurement] = []
    for file in files:
        rows += read_measurements(read_text_bounded(file, LOG_LIMIT), file, number, asked, in_place)
    names = source or ", ".join(Path(file).name for file in files)
    overlay = calibrate(checked(rows), machine, software, names, datetime.date.today().isoformat())
    write_atomic(out, fit_document(overlay), force)
    if plot is not None:
        drawn = calibration_plot(overlay, rows)
        write_atomic(plot, png_file(drawn) if plot.lower().endswith(".png") else svg_file(drawn), force)
    if json:
        options.print_json(overlay)
    else:
        show(options.output(), calibration_tables(overlay))
    _print_result(overlay, [out, *([plot] if plot else [])])


def _print_result(overlay: Overlay, written: list[str]) -> None:
    unjudged = [f"{item.kind} on {item.ranks} ranks" for fit in overlay.fits for item in fit.series if item.held_out is None]
    if unjudged:
        options.remarks().print(Text(f"no held-out error, too few sizes: {', '.join(unjudged)}"))
    for target in written:
        options.remarks().print(Text(f"written to {target}"))
