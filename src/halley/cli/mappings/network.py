"""A whole network on one chip: every distinct layer is searched once."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from halley.cli import options
from halley.cli.errors import Cancelled, LimitReached
from halley.cli.solve import solve_noted
from halley.errors import BadInput, Fault, SearchStopped, did_you_mean
from halley.importers.fusing import fused
from halley.importers.network import ImportedNetwork
from halley.ir.hardware import Chip
from halley.ir.neural_network import NetworkLayer
from halley.mapping.network import TIME_LIMIT, NetworkResult, optimise_layers
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Result
from halley.products.network import load_network

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
    return load_network(reference, dims, dtype)


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
    network: ImportedNetwork, chip: Chip, objective: Objective, gap: float, limit: float | None
) -> NetworkResult:
    """Search every distinct layer, with progress. Raises Cancelled: Ctrl-C before the first mapping."""
    remarks = options.remarks()
    if limit is None:
        words = f"{network.name}: all searches together end after {TIME_LIMIT:.0f} s; --time-limit sets another time"
        remarks.print(Text(words))

    def search(problem: Problem, label: str) -> tuple[Result, bool]:
        try:
            return solve_noted(problem, remarks, label)
        except LimitReached as error:
            raise SearchStopped(error.faults) from None
        except Cancelled:
            raise KeyboardInterrupt from None

    return optimise_layers(network, chip, objective, gap, limit, search)
