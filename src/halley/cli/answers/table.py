"""``halley table``: the numbers of an answer as CSV."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from halley.answers.load import load
from halley.cli import options
from halley.cli.options import AnswerArgument, ForceOption
from halley.io.files.save import write_atomic


def table(
    file: AnswerArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="Its name; by default the first. An unknown name lists all.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--output", help="Where to write it; stdout by default.", metavar="FILE")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write numbers of an answer as CSV, in SI units with full precision.

    Example: halley table result.json traffic -o traffic.csv
    """
    answer = load(file)
    options.remark_to_stderr(answer.remark)
    text = answer.table(name or next(iter(answer.sheets())))
    if out is None:
        sys.stdout.write(text)
        return
    write_atomic(out, text, force)
    options.remarks().print(Text(f"written to {out}"))
