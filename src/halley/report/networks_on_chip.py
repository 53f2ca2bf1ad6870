"""Imported networks, and the best mappings of their layers on one chip, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halley.answer import Status, relative_gap
from halley.importers.network import ImportedNetwork, NetworkLayer
from halley.ir.hardware import Chip
from halley.mapping.problem import Objective
from halley.mapping.result import Result
from halley.report.table import Table, gap_text, percent
from halley.units import format_bytes, format_energy, format_time

NETWORK_SCHEMA = "halley.network/1"
ON_CHIP_SCHEMA = "halley.network-on-chip/1"


@dataclass(frozen=True, slots=True)
class LayerResult:
    """A layer with the result of its search, or why it has none."""

    layer: NetworkLayer
    result: Result | None
    reason: str = ""

    @property
    def time(self) -> float:
        """Time of one node [s]."""
        return float(self.result.best.estimate.time) if self.result else 0.0

    @property
    def energy(self) -> float:
        """Energy of one node [J]."""
        return float(self.result.best.estimate.energy) if self.result else 0.0

    @property
    def bound(self) -> float:
        """Lower bound of the objective of one node."""
        return self.result.best.certificate.bound if self.result else 0.0


def network_lines(network: ImportedNetwork) -> tuple[str, ...]:
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


def network_tables(network: ImportedNetwork) -> tuple[Table, ...]:
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


def network_document(network: ImportedNetwork) -> dict[str, Any]:
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


def on_chip_lines(network: ImportedNetwork, chip: Chip, objective: Objective, found: Sequence[LayerResult]) -> tuple[str, ...]:
    """Totals over all layers, one after the other."""
    time, energy = totals(found)
    done = [item for item in found if item.result]
    value, bound = (time if objective is Objective.TIME else energy), sum(item.layer.count * item.bound for item in done)
    proven = all(item.result.best.status is Status.OPTIMAL for item in done if item.result)
    gap = 0.0 if proven else relative_gap(value, bound)
    words = "proven optimal layer by layer" if proven else f"at most {gap_text(gap)} above the least {objective} of these layers"
    share = f"all {len(found)}" if len(done) == len(found) else f"{len(done)} of {len(found)}"
    head = f"{network.name} on {chip.name}: {format_time(time)}, {format_energy(energy)} for {share} distinct layers, {words}"
    without = [f"{item.layer.name} ({item.reason})" for item in found if not item.result]
    more = [f"not searched: {', '.join(without)}"] if without else []
    if network.left_out:
        most, energy_of_them = left_out_cost(network, chip)
        names = ", ".join(f"{item.operator} ({item.reason})" for item in network.left_out)
        said = f"{format_time(most)}, {format_energy(energy_of_them)} for their bytes in {chip.memories[0].name}"
        more.append(f"not imported, beside these totals: {said}, their operations are not known: {names}")
    joined = sum(layer.count * layer.operator.count("+") for layer in network.layers)
    kept = "each layer is searched by itself; its inputs and results are in the outermost memory"
    with_more = (
        [f"{joined:,} elementwise operators are part of the layer before them; --separate keeps each by itself"] if joined else []
    )
    return head, kept, *with_more, *more


def left_out_cost(network: ImportedNetwork, chip: Chip) -> tuple[float, float]:
    """Time [s] and energy [J] in which the outermost memory moves the bytes of operators without a layer."""
    memory, moved = chip.memories[0], sum(item.bytes for item in network.left_out)
    return moved / memory.read_bandwidth, moved * memory.read_energy


def totals(found: Sequence[LayerResult]) -> tuple[float, float]:
    """Time [s] and energy [J] of all nodes, one after the other."""
    return sum(item.layer.count * item.time for item in found), sum(item.layer.count * item.energy for item in found)


def on_chip_tables(found: Sequence[LayerResult]) -> tuple[Table, ...]:
    """One distinct layer a row."""
    time, energy = totals(found)
    rows = []
    for item in found:
        if item.result is None:
            continue
        all_time, all_energy = item.layer.count * item.time, item.layer.count * item.energy
        gap = gap_text(item.result.best.certificate.gap)
        each = item.layer.name, str(item.layer.count), format_time(item.time), format_time(all_time), percent(all_time, time)
        rows.append(
            (
                *each,
                format_energy(all_energy),
                percent(all_energy, energy),
                gap,
                _main_line(str(item.layer.workload.parameters["lines"])),
            )
        )
    head = ("layer", "nodes", "time of one", "of all", "share", "energy", "share", "gap", "computes")
    return (Table("Distinct layers, each searched once", head, tuple(rows), frozenset(range(1, 8)), spare=frozenset({8})),)


def on_chip_document(network: ImportedNetwork, chip: Chip, objective: Objective, found: Sequence[LayerResult]) -> dict[str, Any]:
    """The same as plain data."""
    time, energy = totals(found)
    layers = [
        _layer(item.layer)
        | (
            {
                "time_s": item.time,
                "energy_J": item.energy,
                "bound": item.bound,
                "status": item.result.best.status.value,
                "gap": item.result.best.certificate.gap,
            }
            if item.result
            else {"reason": item.reason}
        )
        for item in found
    ]
    bound = sum(item.layer.count * item.bound for item in found)
    made = {"schema": ON_CHIP_SCHEMA, "network": network_document(network), "chip": chip.name, "objective": str(objective)}
    left_out_time, left_out_energy = left_out_cost(network, chip)
    return made | {
        "left_out_time_s": left_out_time,
        "left_out_energy_J": left_out_energy,
        "time_s": time,
        "energy_J": energy,
        "bound_s" if objective is Objective.TIME else "bound_J": bound,
        "layers": layers,
    }
