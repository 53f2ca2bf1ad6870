"""Files that commands write: checked before the work, and never lost after it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from halley.cli import options
from halley.errors import BadInput, Fault
from halley.io.files.save import check_target, dumps, write_atomic, write_numbered
from halley.mapping.result import Result


def refuse_existing(target: str, force: bool) -> None:
    """Before the work, not after it. Raises BadInput: the file exists and ``force`` is not set; no file can be written there."""
    check_target(target)
    if Path(target).exists() and not force:
        raise BadInput(Fault(target, "a new file", "a file that exists", "choose another name, or give --force to replace it"))


def write_answers(files: Mapping[str, str | bytes], force: bool) -> str:
    """Write files by name, each of them in any case; what to say of them. Raises BadInput: some could not be written under their
    names; the faults say where they are instead."""
    faults: list[Fault] = []
    for target, content in files.items():
        try:
            write_atomic(target, content, force)
        except BadInput as error:
            other = _written_elsewhere(Path(target), content)
            faults += [replace(fault, remedy=f"it is in {other} instead") if other else fault for fault in error.faults]
    if faults:
        raise BadInput(faults)
    return "\n".join(f"written to {target}" for target in files)


def _written_elsewhere(target: Path, content: str | bytes) -> Path | None:
    """The numbered name under which the content was written: in the folder of the target, in the working folder, or in that of
    temporary files; None: nowhere."""
    for folder in (target.parent, Path(), Path(tempfile.gettempdir())):
        try:
            return write_numbered(folder / target.name, content)
        except BadInput:
            continue
    return None


def save_trace(result: Result, target: str, force: bool) -> None:
    """Write the trace of a result and say so."""
    from halley.report.mapping.trace import trace  # here: it loads the simulation, which few who optimise ask for

    write_atomic(target, dumps(trace(result)), force)
    options.remarks().print(Text(f"written to {target}; open it at ui.perfetto.dev or in chrome://tracing"))
