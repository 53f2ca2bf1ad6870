"""How a command gives its answer: files first, then the terminal or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from rich.text import Text

from halley.cli import options
from halley.cli.files import write_answers
from halley.errors import BadInput
from halley.io.files.save import dumps
from halley.report.table import Table
from halley.report.terminal import show


def give(
    lines: Sequence[str],
    tables: Iterable[Table],
    document: Mapping[str, Any],
    json: bool,
    out: str | None,
    force: bool,
    pages: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """``lines`` above the ``tables``, the first of them bold, or the ``document``; ``out``: where the document is written;
    ``pages``: by name, what other files get. Raises BadInput as `saved_first`.
    """
    files = ({out: dumps(document)} if out else {}) | dict(pages)
    with saved_first(lambda: write_answers(files, force)):
        if json:
            options.print_json(document)
            return
        console = options.output()
        for place, line in enumerate(lines):
            console.print(Text(line, style="" if place else "bold"))
        show(console, tables)


@contextmanager
def saved_first(save: Callable[[], str]) -> Iterator[None]:
    """Saves an answer before it is shown, so that a reader who leaves early (`| head`) does not lose it; it is shown even if it
    cannot be saved. ``save`` gives what to say of it, if anything. Raises BadInput once it was shown: it could not be saved.
    """
    words, unsaved = "", None
    try:
        words = save()
    except BadInput as error:
        unsaved = error
    yield
    if unsaved is not None:
        raise unsaved
    if words:
        options.remarks().print(Text(words))
