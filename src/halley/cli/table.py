"""``halley table``: the numbers of a result as CSV."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.options import ForceOption, ResultArgument
from halley.io.files.save import write_atomic
from halley.io.results.result import load_result
from halley.report.mapping.sheets import SHEETS, sheet


def table(
    file: ResultArgument,
    name: Annotated[str, typer.Argument(metavar="TABLE", help=f"One of {', '.join(SHEETS)}.")],
    out: Annotated[
        str | None, typer.Option("-o", "--output", help="Where to write it; stdout by default.", metavar="FILE")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write numbers of a result as CSV, in SI units and with all their digits.

    Example: halley table result.json traffic -o traffic.csv
    """
    text = sheet(load_result(file), name)
    if out is None:
        sys.stdout.write(text)
        return
    write_atomic(out, text, force)
    options.remarks().print(Text(f"written to {out}"))
