"""The command line. One file per command; this one puts them together."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.cli import (
    calibrate,
    check,
    chips,
    collective,
    compare,
    demo,
    estimate,
    explain,
    figure,
    optimise,
    report,
    schema,
    show,
    simulate,
    system,
    table,
    topology,
    validate,
    workloads,
)
from halley.cli.errors import HalleyGroup
from halley.cli.options import FREE_FORM
from halley.io.result import halley_version

app = typer.Typer(
    name="halley",
    cls=HalleyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(context_settings=FREE_FORM)(optimise.optimise)
app.command()(show.show)
app.command()(simulate.simulate)
app.command()(check.check)
app.command()(explain.explain)
app.command()(report.report)
app.command("figure")(figure.draw)
app.command()(table.table)
app.command(context_settings=FREE_FORM)(estimate.estimate)
app.command(context_settings=FREE_FORM)(compare.compare)
app.command()(chips.chips)
app.command()(workloads.workloads)
app.command()(schema.schema)
app.command()(validate.validate)
app.add_typer(calibrate.app, name="calibrate")
app.add_typer(topology.app, name="topology")
app.add_typer(system.app, name="system")
app.command()(collective.collective)
app.command()(demo.demo)


def _version(asked: bool) -> None:
    if asked:
        print(f"halley {halley_version()}")
        raise typer.Exit


@app.callback()
def halley(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Predict, and provably optimise, how workloads run on accelerators.

    Start with: halley optimise gemm-softmax --m 512 --n 1024 --k 64 --chip edge
    """
