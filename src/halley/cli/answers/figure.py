"""``halley figure``: one figure of an answer as SVG or PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.answers.load import load
from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.options import AnswerArgument, ForceOption
from halley.errors import BadInput, Fault


def figure(
    file: AnswerArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="[FIGURE]", help="Its name; by default the first. An unknown name lists all.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--output", help="Where to write it: .svg or .png; FIGURE.svg by default.", metavar="FILE")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write one figure of an answer as SVG or PNG; PNG needs an installed Chromium.

    Example: halley figure result.json roofline -o roofline.svg
    """
    if out is not None and Path(out).suffix.lower() not in (".svg", ".png"):
        raise BadInput(Fault("--output", "a name that ends in .svg or .png", repr(out)))
    answer = load(file)
    options.remark_to_stderr(answer.remark)
    target = out or f"{name or next(iter(answer.pictures()))}.svg"
    refuse_existing(target, force)
    answer.figure(target, name or "", force)
    options.remarks().print(Text(f"written to {target}"))
