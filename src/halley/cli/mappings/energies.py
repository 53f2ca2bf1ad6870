"""``halley energies``: the table of energies that chip files cite."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.cli import options
from halley.cli.options import JsonOption
from halley.errors import BadInput, Fault
from halley.io.files.entries import energy_table
from halley.report.table import Table
from halley.report.terminal import show


def energies(
    word: Annotated[
        str | None, typer.Argument(metavar="[WORD]", help="Only rows with this word in their name or source.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the rows of the energy table, which a chip file cites as {row: NAME}.

    Example: halley energies sram
    """
    table = energy_table()
    rows = {name: row for name, row in table.rows.items() if word is None or word.lower() in f"{name} {row.source}".lower()}
    if not rows:
        raise BadInput(Fault("halley energies", "a word of a row", repr(str(word)[:60]), "'halley energies' lists all rows"))
    if json:
        options.print_json({name: {"value": row.value, "source": row.source} for name, row in rows.items()})
    else:
        cells = tuple((name, row.value, row.source) for name, row in rows.items())
        show(options.output(), [Table(f"Energies ({table.dated})", ("row", "value", "source"), cells, frozenset({1}))])
