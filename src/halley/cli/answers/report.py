"""``halley report``: an answer as one HTML file, and the timeline of a mapping as a trace."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from halley.answers.load import load
from halley.cli import options
from halley.cli.files import refuse_existing, save_trace
from halley.cli.options import AnswerArgument, ForceOption, TraceOption
from halley.errors import BadInput, Fault
from halley.mapping.result import Result

DEFAULT_FILE = "report.html"


def report(
    file: AnswerArgument,
    out: Annotated[str, typer.Option("-o", "--output", help="Where to write the page.", metavar="FILE")] = DEFAULT_FILE,
    trace_file: TraceOption = None,
    force: ForceOption = False,
) -> None:
    """Write an answer as one self-contained HTML file.

    Example: halley report result.json -o report.html
    """
    for target in filter(None, (out, trace_file)):
        refuse_existing(target, force)
    answer = load(file)
    options.remark_to_stderr(answer.remark)
    if trace_file is not None and not isinstance(answer.value, Result):
        raise BadInput(Fault("--trace", "the answer to a mapping problem", f"a {answer.kind}", "leave it out"))
    answer.report(out, force)
    options.remarks().print(Text(f"written to {out}; open it in a browser"))
    if trace_file is not None and isinstance(answer.value, Result):
        save_trace(answer.value, trace_file, force)
