"""``halley schema``: JSON Schemas of Halley's files, for editors and checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from halley.cli import options
from halley.errors import BadInput, Fault, did_you_mean
from halley.io.result_models import result_schema
from halley.io.schema import schema as file_schema

SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "chip": lambda: file_schema("chip"),
    "problem": lambda: file_schema("problem"),
    "result": result_schema,
}
"""JSON Schemas by the name of the file that they describe."""


def schema(name: Annotated[str, typer.Argument(metavar="NAME", help="chip, problem or result.")]) -> None:
    """Print the JSON Schema of chip, problem or result files.

    Example: halley schema chip > chip.schema.json
    """
    if name not in SCHEMAS:
        raise BadInput(Fault("schema", "chip, problem or result", repr(name), did_you_mean(name, SCHEMAS)))
    options.print_json(SCHEMAS[name]())
