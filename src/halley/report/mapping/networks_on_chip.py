"""Imported networks as tables and as JSON, and the best mappings of their layers on one chip as tables and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element

from halley.answer import Status
from halley.ir.neural_network import NetworkLayer, NeuralNetwork
from halley.mapping.network import NetworkResult
from halley.report.answers.page import account_bars
from halley.report.mapping.causes import causes
from halley.report.mapping.plots import roofline_plot
from halley.report.mapping.roofline import joined_roofline, roofline
from halley.report.rows import Row
from halley.report.table import Table, gap_text, percent
from halley.units import format_bytes, format_energy, format_time

NETWORK_SCHEMA = "halley.network/1"


def network_lines(network: NeuralNetwork) -> tuple[str, ...]:
    """What the network is."""
    nodes = sum(layer.count for layer in network.layers)
    head = f"{network.name}: {nodes:,} layers, {len(network.layers):,} of them distinct; {_macs(network.macs)}"
    operators = f"operators of ONNX, version {network.opset}" if network.opset else "operators of PyTorch"
    said = f"{network.constants:,} constants, statistics of norms included; {network.dtype}, {operators}"
    views = ", ".join(f"{count} {operator}" for operator, count in network.views.items())
    more = [f"at no cost, as they only select or reorder elements: {views}"] if views else []
    return head, said, *more, *(f"remark: {remark}" for remark in network.remarks)


def _macs(count: int) -> str:
    """
    >>> _macs(4_089_184_256), _macs(972), _macs(1)
    ('4.089 GMAC', '972 MAC', '1 MAC')
    """
    for power, prefix in ((12, "T"), (9, "G"), (6, "M")):
        if count >= 10**power:
            return f"{count / 10**power:.4g} {prefix}MAC"
    return f"{count:,} MAC"


def network_tables(network: NeuralNetwork) -> tuple[Table, ...]:
    """The distinct layers, and what has none."""
    rows = []
    for layer in network.layers:
        lines = layer.workload.parameters["lines"]
        shares = percent(layer.macs, network.macs), percent(layer.bytes, network.bytes)
        rows.append((layer.name, str(layer.count), f"{layer.macs:,}", *shares, format_bytes(layer.bytes), _main_line(str(lines))))
    head = ("layer", "nodes", "multiply-accumulates", "share", "of bytes", "bytes", "computes")
    tables = [Table("Distinct layers: --layer NAME", head, tuple(rows), frozenset({1, 2, 3, 4, 5}), spare=frozenset({5}))]
    if network.left_out:
        left = tuple(
            (item.operator, str(item.count), format_bytes(item.bytes), percent(item.bytes, network.bytes), item.reason)
            for item in network.left_out
        )
        names = ("operator", "nodes", "bytes", "of all bytes", "reason")
        title = "Not imported: counted by their bytes; how many operations they have is not known"
        tables.append(Table(title, names, left, frozenset({1, 2, 3})))
    return tuple(tables)


def _main_line(lines: str) -> str:
    """The line of a layer that computes something, the first of them."""
    made = [line for line in lines.splitlines() if "=" in line]
    return made[0] + (f", and {len(made) - 1} more" if len(made) > 1 else "")


def network_document(network: NeuralNetwork) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "schema": NETWORK_SCHEMA,
        "name": network.name,
        "source": network.source,
        "opset": network.opset,
        "dtype": network.dtype,
        "constants": network.constants,
        "macs": network.macs,
        "layers": [_layer(layer) for layer in network.layers],
        "views": dict(network.views),
        "left_out": [
            {"operator": item.operator, "count": item.count, "bytes_B": item.bytes, "reason": item.reason}
            for item in network.left_out
        ],
        "remarks": list(network.remarks),
    }


def _layer(layer: NetworkLayer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "operator": layer.operator,
        "count": layer.count,
        "macs": layer.macs,
        "bytes_B": layer.bytes,
        "workload": {"kind": layer.workload.name, "parameters": dict(layer.workload.parameters)},
    }


def on_chip_lines(result: NetworkResult) -> tuple[str, ...]:
    """Totals over all layers, one after the other, and what is proven; then what is not among them."""
    network, chip, found = result.network, result.chip, result.layers
    done = [item for item in found if item.result]
    share = f"all {len(found)}" if len(done) == len(found) else f"{len(done)} of {len(found)}"
    totals = f"{format_time(result.time)}, {format_energy(result.energy)} for {share} distinct layers"
    certificate = result.certificate
    proven = bool(done) and all(item.result.best.status is Status.OPTIMAL for item in done if item.result)
    gap = f"at most {gap_text(certificate.gap)} above the least {result.objective} of these layers"
    head = f"{network.name} on {chip.name}: {totals}"
    verdict = "proven optimal layer by layer" if proven else gap
    without = [f"{item.layer.name} ({item.reason})" for item in found if not item.result]
    more = [f"not searched: {', '.join(without)}"] if without else []
    if network.left_out:
        most, energy = result.left_out
        names = ", ".join(f"{item.operator} ({item.reason})" for item in network.left_out)
        said = f"{format_time(most)}, {format_energy(energy)} for their bytes in {chip.memories[0].name}"
        more.append(f"not imported, beside these totals: {said}, their operations are not known: {names}")
    joined = sum(layer.count * layer.operator.count("+") for layer in network.layers)
    kept = "each layer is searched by itself; its inputs and results are in the outermost memory"
    words = f"{joined:,} elementwise operators are part of the layer before them; --separate keeps each by itself"
    return head, verdict, kept, *([words] if joined else []), *more


def on_chip_tables(result: NetworkResult) -> tuple[Table, ...]:
    """One distinct layer a row."""
    rows = []
    for item in result.layers:
        if item.result is None:
            continue
        all_time, all_energy = item.layer.count * item.time, item.layer.count * item.energy
        shares = percent(all_time, result.time), percent(all_energy, result.energy)
        gap, computes = gap_text(item.result.best.certificate.gap), _main_line(str(item.layer.workload.parameters["lines"]))
        each = item.layer.name, str(item.layer.count), format_time(item.time), format_time(all_time), shares[0]
        rows.append((*each, format_energy(all_energy), shares[1], gap, computes))
    head = ("layer", "nodes", "time of one", "of all", "share", "energy", "share", "gap", "computes")
    return (Table("Distinct layers, each searched once", head, tuple(rows), frozenset(range(1, 8)), spare=frozenset({8})),)


def layer_rows(result: NetworkResult) -> Iterator[Row]:
    """The layers that have a mapping as bare numbers; ``bound`` of the objective of one node."""
    yield ("layer", "nodes", "macs", "time_s", "energy_J", "bound", "gap")
    for item in result.layers:
        if item.result is not None:
            certificate = item.result.best.certificate
            figures = item.time, item.energy, certificate.bound, certificate.gap
            yield (item.layer.name, item.layer.count, item.layer.workload.macs(), *figures)


DRAWN_LAYERS = 24
"""Most layers of the picture, those with most time."""


def layers_figure(result: NetworkResult) -> Element:
    """The time of the layers with most of it, all their nodes, by cause."""
    done = sorted((item for item in result.layers if item.result), key=lambda item: -item.layer.count * item.time)
    bars: dict[str, dict[str, float]] = {}
    for place, item in enumerate(done):
        assert item.result is not None
        name = item.layer.name if place < DRAWN_LAYERS else f"{len(done) - DRAWN_LAYERS} other layers"
        parts = bars.setdefault(name, {})
        for cause, time in causes(item.result.best.plan, item.result.best.estimate).items():
            parts[cause] = parts.get(cause, 0.0) + item.layer.count * time
    return account_bars("Time of the layers by cause", bars, {})


def network_roofline(result: NetworkResult) -> Element:
    """All layers with a mapping under the limits of the chip."""
    done = [(item, item.result.best.estimate) for item in result.layers if item.result]
    return roofline_plot(joined_roofline([(roofline(result.chip, cost), item.layer.count, item.time) for item, cost in done]))
