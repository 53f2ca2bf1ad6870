"""``halley report``: a result as one HTML file, and its timeline as a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.options import ForceOption, ResultArgument, TraceOption
from halley.errors import BadInput, Fault
from halley.io.files.save import dumps, write_atomic
from halley.io.results.result import load_result, read_record
from halley.mapping.result import Result

DEFAULT_FILE = "report.html"


def report(
    file: ResultArgument,
    out: Annotated[str, typer.Option("-o", "--output", help="Where to write the page.", metavar="FILE")] = DEFAULT_FILE,
    trace_file: TraceOption = None,
    force: ForceOption = False,
) -> None:
    """Write a result as one HTML file that needs nothing beside itself.

    Example: halley report result.json -o report.html
    """
    from halley.report.mapping.page import page  # here: other commands take `save_trace`, and load no pages

    for target in filter(None, (out, trace_file)):
        refuse_existing(target, force)
    result = load_result(file)
    provenance = read_record(file).content.provenance.model_dump()
    write_atomic(out, page(result, provenance), force)
    options.remarks().print(Text(f"written to {out}; open it in a browser, online or not"))
    if trace_file is not None:
        save_trace(result, trace_file, force)


def refuse_existing(target: str, force: bool) -> None:
    """Before the work, not after it. Raises BadInput: the file exists and ``force`` is not set."""
    if Path(target).exists() and not force:
        raise BadInput(Fault(target, "a new file", "a file that exists", "choose another name, or give --force to replace it"))


def save_trace(result: Result, target: str, force: bool) -> None:
    """Write the trace and say so."""
    from halley.report.mapping.trace import trace  # here: it loads the simulation, which few who optimise ask for

    write_atomic(target, dumps(trace(result)), force)
    options.remarks().print(Text(f"written to {target}; open it at ui.perfetto.dev or in chrome://tracing"))
