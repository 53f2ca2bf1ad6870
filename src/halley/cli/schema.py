"""``halley schema``: JSON Schemas of Halley's files, for editors and checkers."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.cli import options
from halley.io.schema import schema as file_schema


def schema(name: Annotated[str, typer.Argument(metavar="NAME", help="chip, problem, result, network, system.")]) -> None:
    """Print the JSON Schema of chip, problem, result, network or system files.

    Example: halley schema chip > chip.schema.json
    """
    options.print_json(file_schema(name))
