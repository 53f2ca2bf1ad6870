"""What the commands of validation print: tables of Markdown, and complaints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence

from halley.errors import HalleyError


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table.

    >>> print(markdown(("a", "b"), [("1", "2")]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def told(made: Callable[[], str]) -> int:
    """Print what is made, or what is wrong; the exit code."""
    try:
        print(made())
    except HalleyError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0
