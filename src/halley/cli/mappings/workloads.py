"""``halley workloads``: the kinds of workloads and their parameters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from halley.cli import options
from halley.cli.options import JsonOption
from halley.cli.parameters import known_kind
from halley.report.table import Table
from halley.report.terminal import show
from halley.workloads import WORKLOADS, WorkloadKind
from halley.workloads.construction.parameters import Absent, Parameter, SameAs


def workloads(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A kind of workload.")] = None,
    json: JsonOption = False,
) -> None:
    """List the kinds of workloads, or show the parameters of one.

    Example: halley workloads gemm-softmax
    """
    kinds = [known_kind(name)] if name else list(WORKLOADS.values())
    if json:
        documents = [_document(kind) for kind in kinds]
        options.print_json(documents[0] if name else documents)
    elif name:
        show(options.output(), [_parameters(kinds[0])])
    else:
        rows = tuple((kind.name, kind.meaning, ", ".join(kind.variants)) for kind in kinds)
        show(options.output(), [Table("Workloads", ("kind", "meaning", "variants"), rows)])


def _parameters(kind: WorkloadKind) -> Table:
    rows = []
    for parameter in kind.parameters:
        option = f"--{parameter.name.replace('_', '-')}"
        default = "required" if parameter.required else "" if parameter.default is None else str(parameter.default).lower()
        rows.append((option, parameter.meaning, default, ", ".join(parameter.choices)))
    return Table(f"{kind.name}: {kind.meaning}", ("option", "meaning", "default", "words"), tuple(rows))


def _default(parameter: Parameter) -> int | bool | str | None:
    """The default as plain data."""
    value = parameter.default
    return str(value) if isinstance(value, SameAs | Absent) else value


def _document(kind: WorkloadKind) -> dict[str, Any]:
    parameters = [
        {
            "name": parameter.name,
            "type": parameter.type.value,
            "meaning": parameter.meaning,
            "required": parameter.required,
            **({} if parameter.required else {"default": _default(parameter)}),
            "choices": parameter.choices,
        }
        for parameter in kind.parameters
    ]
    return {"kind": kind.name, "meaning": kind.meaning, "parameters": parameters}
