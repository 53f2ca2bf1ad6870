"""A whole network on one chip: every distinct layer is searched once."""

from __future__ import annotations

import time
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.text import Text

from halley.answer import Status
from halley.cli import options
from halley.cli.errors import LIMIT_EXIT_CODE, Cancelled, LimitReached
from halley.cli.output import give
from halley.cli.solve import solve_noted
from halley.errors import BadInput, Fault, Infeasible, did_you_mean
from halley.importers.fusing import fused
from halley.importers.network import ImportedNetwork, NetworkLayer
from halley.importers.onnx.load import import_onnx
from halley.importers.torch.export import import_pt2
from halley.ir.hardware import Chip
from halley.mapping.problem import Objective, Problem
from halley.report.networks_on_chip import LayerResult, on_chip_document, on_chip_lines, on_chip_tables

TIME_LIMIT = 300.0
"""Time of all searches of a network, unless the user names one [s]."""
SECOND_TIME_LIMIT = 20.0
"""Most time of a second search where the first one found no mapping [s]."""
LATE = "not reached within the time limit"

SEPARATE = "--separate"
"""The option that keeps every node a layer of its own."""


def network_of(reference: str, words: Sequence[str]) -> ImportedNetwork:
    """The network in a file, with the options ``--dim NAME=NUMBER`` (of ONNX alone) and ``--dtype WORD``. Raises BadInput: other
    words."""
    dims: dict[str, int] = {}
    dtype = None
    faults: list[Fault] = []
    rest = [part for word in words for part in (word.split("=", 1) if word.startswith(("--dim=", "--dtype=")) else [word])]
    while rest:
        word = rest.pop(0)
        if word not in ("--dim", "--dtype") or not rest:
            remedy = f"a network takes --layer NAME or {SEPARATE}, --dim NAME=NUMBER and --dtype WORD"
            faults.append(Fault(f"network {reference}", "known options with a value", repr(word), remedy))
            continue
        value = rest.pop(0)
        if word == "--dtype":
            dtype = value
            continue
        name, _, number = value.rpartition("=")
        dims[name] = options.whole_number(f"--dim {name}", number)
    if faults:
        raise BadInput(faults)
    if not reference.lower().endswith(".pt2"):
        return import_onnx(reference, dims, dtype)
    if dims:
        raise BadInput(
            Fault("--dim", "none for a program of torch.export, whose example sets all dims", "one", "export it again")
        )
    return import_pt2(reference, dtype)


def network_to_map(reference: str, words: Sequence[str]) -> ImportedNetwork:
    """The network whose layers are searched: with elementwise operators as part of the layer before them, unless the words say
    otherwise. Raises BadInput: other words."""
    network = network_of(reference, [word for word in words if word != SEPARATE])
    return network if SEPARATE in words else fused(network)


def layer_of_network(reference: str, name: str, words: Sequence[str]) -> NetworkLayer:
    """A distinct layer of a network, alone or with elementwise operators. Raises BadInput: there is none of that name."""
    network = network_of(reference, words)
    layers = {layer.name: layer for layer in (*fused(network).layers, *network.layers)}
    found = layers.get(name)
    if found is None:
        known = list(layers)
        raise BadInput(
            Fault(f"network {network.name}, option --layer", "the name of a layer", repr(name), did_you_mean(name, known))
        )
    return found


def optimise_network(
    network: ImportedNetwork,
    chip: Chip,
    objective: Objective,
    gap: float,
    limit: float | None,
    out: str | None,
    force: bool,
    json: bool,
) -> None:
    """Search every distinct layer, and print totals over all nodes."""
    if objective is Objective.EDP:
        raise BadInput(Fault("--objective", "time or energy for a whole network", "edp", "products of layers do not add up"))
    known = sorted(chip.matrix.energy) if chip.matrix else []
    if network.macs and known and network.dtype not in known:
        remedy = f"add --dtype {known[0]}"
        raise BadInput(Fault(f"chip {chip.name}", f"an engine for products in {network.dtype}", f"{', '.join(known)}", remedy))
    remarks = options.remarks()
    extra = SECOND_TIME_LIMIT if limit is None else 0.0
    if limit is None:
        limit = TIME_LIMIT
        remarks.print(Text(f"{network.name}: all searches together end after {limit:.0f} s; --time-limit sets another time"))
    found, interrupted = _searched(network, chip, objective, gap, limit, extra, remarks)
    lines = on_chip_lines(network, chip, objective, found)
    give(lines, on_chip_tables(found), on_chip_document(network, chip, objective, found), json, out, force)
    enough = all(
        item.result and (item.result.best.status is Status.OPTIMAL or item.result.best.certificate.gap <= gap) for item in found
    )
    if interrupted or not enough:
        raise typer.Exit(LIMIT_EXIT_CODE)


def _searched(
    network: ImportedNetwork, chip: Chip, objective: Objective, gap: float, limit: float, extra: float, remarks: Console
) -> tuple[list[LayerResult], bool]:
    """The layers with their results, and whether the user ended the searches. Layers with least work first: each has an equal
    part of the time that is left, so what short searches leave is used by the long ones. What is left in the end, or ``extra``
    time [s] for each, is for layers whose search found no mapping."""
    order = sorted(network.layers, key=lambda layer: layer.count * layer.workload.macs())
    results: dict[str, LayerResult] = {}
    end = time.monotonic() + limit

    def search(layer: NetworkLayer, share: float, words: str) -> bool:
        problem = Problem(layer.workload, chip, objective, gap=gap, time_limit=share, baselines=False)
        try:
            result, interrupted = solve_noted(problem, remarks, f"{layer.name} ({words})")
            results[layer.name] = LayerResult(layer, result)
        except LimitReached:
            results[layer.name] = LayerResult(layer, None, LATE)
            return False
        except (BadInput, Infeasible) as error:
            results[layer.name] = LayerResult(layer, None, _reason(error.faults))
            return False
        return interrupted

    try:
        for place, layer in enumerate(order):
            left = end - time.monotonic()
            if left <= 0 or search(layer, left / (len(order) - place), f"{place + 1} of {len(order)}"):
                break
        else:
            for layer in [item.layer for item in results.values() if item.reason == LATE]:
                left = max(min(SECOND_TIME_LIMIT, end - time.monotonic()), extra)
                if left <= 0 or search(layer, left, "again"):
                    break
    except (Cancelled, KeyboardInterrupt):
        if not any(item.result for item in results.values()):
            raise
        return [results.get(layer.name, LayerResult(layer, None, "interrupted")) for layer in network.layers], True
    reason = LATE if time.monotonic() >= end else "interrupted"
    complete = all(layer.name in results for layer in network.layers)
    return [results.get(layer.name, LayerResult(layer, None, reason)) for layer in network.layers], not complete


def _reason(faults: Sequence[Fault]) -> str:
    return f"expected {faults[0].expected}; got {faults[0].got}"[:120] if faults else "none"
