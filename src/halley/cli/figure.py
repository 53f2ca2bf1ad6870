"""``halley figure``: one figure of a result as SVG or PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.options import ForceOption, ResultArgument
from halley.cli.report import refuse_existing
from halley.errors import BadInput, Fault
from halley.io.files.save import write_atomic
from halley.io.results.result import load_result
from halley.report.browser import png_file
from halley.report.mapping import figures
from halley.report.markup import svg_file


def figure(
    file: ResultArgument,
    name: Annotated[str, typer.Argument(metavar="FIGURE", help=f"One of {', '.join(figures.FIGURES)}.")],
    out: Annotated[
        str | None, typer.Option("-o", "--output", help="Where to write it: .svg or .png; FIGURE.svg by default.", metavar="FILE")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write one figure of a result. SVG needs nothing; PNG needs an installed Chromium.

    Example: halley figure result.json roofline -o roofline.svg
    """
    target = out or f"{name}.svg"
    kind = Path(target).suffix.lower()
    if kind not in (".svg", ".png"):
        raise BadInput(Fault("--output", "a name that ends in .svg or .png", repr(target)))
    drawn = figures.figure(load_result(file), name)
    refuse_existing(target, force)
    write_atomic(target, svg_file(drawn) if kind == ".svg" else png_file(drawn), force)
    options.remarks().print(Text(f"written to {target}"))
