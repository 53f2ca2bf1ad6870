"""Tables to the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from halley.errors import visible
from halley.report.table import Table

NAME = 40
"""Characters of the longest name in a first column that is not broken."""


def show(console: Console, tables: Iterable[Table]) -> None:
    """Print the tables, each under its title. Text is never read as markup."""
    for table in tables:
        console.print()
        console.print(Text(table.title, style="bold"))
        every = range(len(table.head))
        made = rich_table(table, every)
        unbounded = console.options.update(width=10_000)
        if table.spare and console.measure(made, options=unbounded).maximum > console.width:
            made = rich_table(table, [column for column in every if column not in table.spare])
        # wider than the window rather than with numbers cut off
        least = console.measure(made, options=unbounded).minimum
        console.print(made, width=max(least, console.width), crop=False, soft_wrap=least > console.width)


def show_drawn(console: Console, name: str, description: str, picture: str, tables: Iterable[Table]) -> None:
    """Print what something is, its picture in characters, if there is one, and its tables."""
    console.print(Text(f"{name}: {description}" if description else name))
    if picture:
        console.print()
        console.print(Text(picture), soft_wrap=True)
    show(console, tables)


def rich_table(table: Table, columns: Iterable[int]) -> RichTable:
    """The table for rich: numbers are never wrapped, words are."""
    shown = tuple(columns)
    headed = any(table.head)
    style, gap = (box.SIMPLE_HEAD, 1) if headed else (None, 2)
    made = RichTable(box=style, show_header=headed, padding=(0, gap, 0, 0), show_edge=False)
    for column in shown:
        right = column in table.right
        named = headed and column == shown[0] and all(len(row[column]) <= NAME and " " not in row[column] for row in table.rows)
        head = Text(visible(table.head[column]), style="dim", no_wrap=False)  # of several lines, if need be
        whole = right or named
        longest = max((Text(visible(row[column])).cell_len for row in table.rows), default=0) if whole else None
        made.add_column(head, justify="right" if right else "left", no_wrap=whole, min_width=longest, overflow="fold")
    for index, row in enumerate(table.rows):
        made.add_row(*(Text(visible(row[column])) for column in shown), style="bold" if index in table.strong else None)
    return made
