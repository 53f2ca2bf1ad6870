"""Imported models and lists of models as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from halley.importers.model import ImportedModel, LayerWorkload
from halley.importers.source import plan_remarks
from halley.report.rows import Row
from halley.report.table import Table, percent
from halley.workloads.transformer import Transformer

IMPORT_SCHEMA = "halley.import/1"


def import_lines(model: ImportedModel) -> tuple[str, ...]:
    """What the model is, and what a plan makes of it."""
    head = f"{model.name} ({model.architecture}): {model.parameters:,} parameters"
    if model.shape is None:
        said = f"'halley plan' does not train it: {model.missing}"
        said += "" if model.served is None else "; 'halley serve' and 'halley plan --serve' take it"
    elif model.left_out:
        said = f"'halley plan' trains {model.planned_parameters:,} of them"
    else:
        said = "'halley plan' trains all of them"
    remarks = plan_remarks(model)
    return head, said, *(f"remark: {remark}" for remark in remarks)


def import_tables(model: ImportedModel) -> tuple[Table, ...]:
    """The parameters by kind with their shares, and the layers."""
    total, work = model.parameters, model.work
    rows = []
    for group in model.groups:
        if not group.parameters and not group.work:
            continue
        planned = "yes" if group.planned else "no"
        shares = percent(group.parameters, total), percent(group.work, work)
        rows.append((group.what, f"{group.parameters:,}", *shares, planned, f"{group.count:,}"))
    rows.append(("all", f"{total:,}", percent(total, total), percent(work, work), "", ""))
    head = ("kind", "parameters", "share", "of the work", "in a plan", "groups")
    title = "Parameters by kind, and their share of the work: a token's operations in products with them"
    table = Table(title, head, tuple(rows), frozenset({1, 2, 3, 5}), frozenset({len(rows) - 1}), frozenset({5}))
    return table, layer_table(model.layers)


def layer_table(layers: Mapping[str, LayerWorkload]) -> Table:
    """The layers, which commands that take a workload name by --layer."""
    rows = tuple((name, layer.meaning, layer.kind, _given(layer)) for name, layer in layers.items())
    return Table(
        "Layers: --layer NAME --tokens NUMBER", ("layer", "meaning", "workload", "parameters"), rows, spare=frozenset({3})
    )


def _given(layer: LayerWorkload) -> str:
    words = (f"{name} {str(value).lower()}" for name, value in layer.parameters.items())
    return ", ".join(words)


def import_document(model: ImportedModel) -> dict[str, Any]:
    """The same as plain data."""
    groups = [
        {
            "what": group.what,
            "count": group.count,
            "parameters": group.parameters,
            "work_per_token_op": group.work,
            "planned": group.planned,
        }
        for group in model.groups
    ]
    layers = {
        name: {"kind": layer.kind, "parameters": dict(layer.parameters), "tokens": layer.tokens, "keys": layer.keys}
        for name, layer in model.layers.items()
    }
    return {
        "schema": IMPORT_SCHEMA,
        "name": model.name,
        "architecture": model.architecture,
        "source": model.source,
        "parameters": model.parameters,
        "planned_parameters": model.planned_parameters if model.shape is not None else 0,
        "missing": model.missing,
        "remarks": plan_remarks(model),
        "groups": groups,
        "layers": layers,
    }


def model_rows(models: Iterable[ImportedModel]) -> Iterator[Row]:
    """The same as bare numbers."""
    head = "name", "parameters", "layers", "recurrent_layers", "model", "heads", "kv_heads"
    yield (*head, "experts", "experts_of_a_token", "sequence", "source")
    for model in models:
        shape = _extents(model)
        experts = (shape.experts.experts, shape.experts.top_k) if shape.experts else (0, 0)
        extents = model.parameters, shape.layers, _recurrent(model), shape.model, shape.heads, shape.kv_heads
        yield (shape.name, *extents, *experts, shape.sequence, shape.source)


def model_list(models: Sequence[ImportedModel]) -> Table:
    """Models with their parameters, one a row."""
    rows = []
    for model in models:
        shape, recurrent = _extents(model), _recurrent(model)
        experts = f"{shape.experts.experts}, {shape.experts.top_k} for a token" if shape.experts else ""
        heads = f"{shape.heads} ({shape.kv_heads})" if shape.latent is None else f"{shape.heads}, latent"
        layers = f"{shape.layers}, {recurrent} recurrent" if recurrent else str(shape.layers)
        heads = heads if shape.state_space is None else f"{shape.heads}, state space"
        numbers = f"{model.parameters:,}", layers, str(shape.model), heads, experts, str(shape.sequence)
        rows.append((shape.name, *numbers, shape.source))
    head = ("name", "parameters", "layers", "model dim", "heads (KV)", "experts", "sequence", "source")
    return Table("Models", head, tuple(rows), frozenset({1, 2, 3, 6}), spare=frozenset({7}))


def _extents(model: ImportedModel) -> Transformer:
    assert model.extents is not None  # of all that ship
    return model.extents


def _recurrent(model: ImportedModel) -> int:
    return 0 if model.hybrid is None else model.hybrid.layers
