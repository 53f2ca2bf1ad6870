"""``halley import``: a model of others, counted, and as a model file of Halley."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from halley.cli import options
from halley.cli.files import refuse_existing
from halley.cli.options import ForceOption, JsonOption
from halley.cli.output import saved_first
from halley.errors import BadInput, Fault
from halley.importers.files import is_network
from halley.importers.model import ImportedModel
from halley.importers.source import description, find_model, plan_remarks
from halley.io.files.save import write_atomic
from halley.io.transformers import model_text
from halley.report.imports import import_document, import_lines, import_tables
from halley.report.terminal import show


def import_(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A config.json of Hugging Face, its folder, its text in quotes; or a network (.onnx, .pt2)."
        ),
    ],
    out: Annotated[str | None, typer.Option("-o", "--output", help="Write a model file.", metavar="FILE.yaml")] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Import a model: its parameters by kind, its layers as workloads, and what a plan leaves out with its share.

    Example: halley import ./config.json -o model.yaml

    A network: halley import net.onnx --dim batch=1 lists its distinct layers, and what is not imported. A program of
    torch.export: halley import net.pt2 does the same.
    """
    if out:
        refuse_existing(out, force)
    if is_network(source):
        _network(context, source, out, json)
        return
    if context.args:
        raise BadInput(Fault(f"model {source[:60]}", "no more words", repr(context.args[0]), "see 'halley import --help'"))
    found = find_model(source)
    text = _text(found) if out else ""
    takes = f"halley plan {out}" if found.shape is not None else f"halley serve {out}"
    with saved_first(lambda: _write(out, text, force, takes)):
        if json:
            options.print_json(import_document(found))
        else:
            console = options.output()
            for line in import_lines(found):
                console.print(Text(line))
            show(console, import_tables(found))


def _text(found: ImportedModel) -> str:
    """The model file. Raises BadInput: the model is neither trained nor served."""
    remarks = plan_remarks(replace(found, windowed=0))  # windows are a key of their own
    return model_text(description(found), "; ".join(remarks))


def _network(context: typer.Context, source: str, out: str | None, json: bool) -> None:
    """A network, which model files cannot hold."""
    from halley.cli.mappings.network import network_of  # here, and below: only networks need them
    from halley.report.mapping.networks_on_chip import network_document, network_lines, network_tables

    if out:
        raise BadInput(Fault("-o", "no model file of a network", out, "a model file has a transformer; --json prints the layers"))
    found = network_of(source, context.args)
    if json:
        options.print_json(network_document(found))
        return
    console = options.output()
    for line in network_lines(found):
        console.print(Text(line))
    show(console, network_tables(found))


def _write(out: str | None, text: str, force: bool, takes: str) -> str:
    if not out:
        return ""
    write_atomic(out, text, force)
    return f"written to {out}; see '{takes}'"
