"""``halley explain``: where the time of an answer goes, or where the numbers of one part come from."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.answers.load import load
from halley.cli import options
from halley.cli.options import AnswerArgument, JsonOption
from halley.report.terminal import show


def explain(
    file: AnswerArgument,
    part: Annotated[
        str | None,
        typer.Argument(
            metavar="[PART]",
            help="Of a mapping: line number of the printed tree, or a path such as 0.0.1 ('.' is the root). Of a plan: a part of "
            "the model. Of a collective: a candidate.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Explain an answer: where the time goes, what limits it, why alternatives are slower; or one part of it.

    For a node of a mapping: its formulas with their numbers, and the sources of the hardware's numbers.

    Example: halley explain result.json 3
    """
    answer = load(file)
    options.remark_to_stderr(answer.remark)
    if part is not None and not part.strip():
        part = "?"  # an empty name is no part
    tables = answer.explain(part or "")
    if json:
        options.print_json(
            {table.title.lower(): [dict(zip(_keys(table.head), row, strict=True)) for row in table.rows] for table in tables}
        )
    else:
        show(options.output(), tables)


def _keys(head: tuple[str, ...]) -> tuple[str, ...]:
    """The heads as names; columns without a head are numbered."""
    if not any(head):
        return ("key", "text") if len(head) == 2 else tuple(f"column {place}" for place in range(1, len(head) + 1))
    return tuple(name or f"column {place}" for place, name in enumerate(head, 1))
