"""``halley models``: the models that ship with Halley, and what is in one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.options import JsonOption
from halley.importers.model import ImportedModel
from halley.importers.source import find_model
from halley.library import MODELS
from halley.report.imports import import_document, import_lines, import_tables, model_list
from halley.report.terminal import show


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A model's name, or a path to a model file or a config.json.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the models that ship with Halley, or show the parameters and layers of one.

    Example: halley models llama3-8b
    """
    console = options.output()
    if name is not None:
        found = find_model(name)
        if json:
            options.print_json(import_document(found))
            return
        for line in import_lines(found):
            console.print(Text(line))
        show(console, import_tables(found))
        return
    listed = [find_model(item) for item in MODELS.names()]
    if json:
        options.print_json([_document(found) for found in listed])
    else:
        show(console, [model_list(listed)])


def _document(found: ImportedModel) -> dict[str, Any]:
    """The extents, with recurrent layers where there are some."""
    given = asdict(found.extents) if found.extents is not None else {}
    return given | ({} if found.hybrid is None else {"hybrid": asdict(found.hybrid)}) | {"parameters": found.parameters}
