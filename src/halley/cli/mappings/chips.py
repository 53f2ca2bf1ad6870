"""``halley chips``: the chips that ship with Halley, and what is in them."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.cli import options
from halley.cli.options import JsonOption
from halley.io.chips.load import load_chip
from halley.io.chips.save import chip_document
from halley.library import CHIPS
from halley.report.hardware import area_table, chip_list, chip_tables
from halley.report.terminal import show


def chips(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A chip's name, or a path to a chip file.")] = None,
    json: JsonOption = False,
) -> None:
    """List the chips, or show one with the source of each number.

    Example: halley chips edge
    """
    shown = [load_chip(item) for item in ((name,) if name else CHIPS.names())]
    if json:
        documents = [chip_document(chip) for chip in shown]
        options.print_json(documents[0] if name else documents)
    elif name:
        console = options.output()
        console.print(f"{shown[0].name}: {shown[0].description}", markup=False)
        area = area_table(shown[0])
        show(console, [*chip_tables(shown[0]), *([area] if area else [])])
    else:
        show(options.output(), [chip_list(shown)])
