"""``halley explain``: where one node's numbers come from."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.cli import options
from halley.cli.options import JsonOption, ResultArgument
from halley.io.results.result import load_result
from halley.report.mapping.explain import explanation
from halley.report.mapping.tree import find, lines
from halley.report.terminal import show


def explain(
    file: ResultArgument,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Line number of the printed tree, or a path such as 0.0.1 ('.' is the root).")
    ],
    json: JsonOption = False,
) -> None:
    """Explain a node of the best plan: formulas, the numbers put in, the sources of the hardware's.

    Example: halley explain result.json 3
    """
    result = load_result(file)
    best = result.best
    line = find(lines(best.plan, best.estimate), node, "NODE")
    tables = explanation(result.problem.chip, best.estimate, line)
    if json:
        options.print_json(
            {table.title.lower(): [dict(zip(_keys(table.head), row, strict=True)) for row in table.rows] for table in tables}
        )
    else:
        show(options.output(), tables)


def _keys(head: tuple[str, ...]) -> tuple[str, ...]:
    return head if any(head) else ("key", "text")
