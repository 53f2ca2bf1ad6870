"""How a command gives its answer: files first, then the terminal or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from halley.cli import options
from halley.errors import BadInput
from halley.io.save import write_atomic
from halley.report.table import Table
from halley.report.terminal import show


def give(
    lines: Sequence[str], tables: Iterable[Table], document: Mapping[str, Any], json: bool, files: Mapping[str, str], force: bool
) -> None:
    """``lines`` above the ``tables``, the first of them bold, or the ``document``; ``files``: by name, what is written to them.

    Files come first, so that a reader who leaves early (`| head`) does not lose the answer; and it is shown even if it cannot be
    saved. Raises BadInput then.
    """
    unsaved = None
    try:
        for target, text in files.items():
            write_atomic(target, text, force)
    except BadInput as error:
        unsaved = error
    if json:
        options.print_json(document)
    else:
        console = options.output()
        for place, line in enumerate(lines):
            console.print(Text(line, style="" if place else "bold"))
        show(console, tables)
    if unsaved is not None:
        raise unsaved
    for target in files:
        options.remarks().print(Text(f"written to {target}"))
