"""``halley schema``: JSON Schemas of Halley's files, for editors and checkers."""

from __future__ import annotations

from typing import Annotated

import typer

from halley.cli import options
from halley.io.schema import SCHEMAS
from halley.io.schema import schema as file_schema


def schema(name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(SCHEMAS)}.")]) -> None:
    """Print the JSON Schema of chip, problem, network or system files, or of the files of a kind of answer.

    Example: halley schema chip > chip.schema.json
    """
    options.print_json(file_schema(name))
