"""Files that commands write: refused before the work if they exist."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from halley.cli import options
from halley.errors import BadInput, Fault
from halley.io.files.save import dumps, write_atomic
from halley.mapping.result import Result


def refuse_existing(target: str, force: bool) -> None:
    """Before the work, not after it. Raises BadInput: the file exists and ``force`` is not set."""
    if Path(target).exists() and not force:
        raise BadInput(Fault(target, "a new file", "a file that exists", "choose another name, or give --force to replace it"))


def save_trace(result: Result, target: str, force: bool) -> None:
    """Write the trace of a result and say so."""
    from halley.report.mapping.trace import trace  # here: it loads the simulation, which few who optimise ask for

    write_atomic(target, dumps(trace(result)), force)
    options.remarks().print(Text(f"written to {target}; open it at ui.perfetto.dev or in chrome://tracing"))
