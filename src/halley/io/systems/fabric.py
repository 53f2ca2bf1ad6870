"""The network that a command is given: a shipped network, the network of a system, or a file of either."""

from __future__ import annotations

from pathlib import Path

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.files.shelf import is_path
from halley.io.files.text import read_text_bounded, read_yaml
from halley.io.networks.models import links_table
from halley.io.networks.network import RANK_LIMIT, load_network, parse_network
from halley.io.systems.system import load_system, parse_system
from halley.ir.system import System
from halley.library import GRIDS, NETWORKS, SYSTEMS
from halley.network.graph.fabric import Fabric
from halley.network.graph.products import product


def load_fabric(reference: str | Path) -> Fabric:
    """A network by the name of one that ships with Halley, by the path of a network file or system file, or that of a system, in
    any form that `halley.io.systems.system.load_system` reads.

    >>> load_fabric("dgx-h100").graph.ranks, load_fabric("64 x h100, nvlink 8, ib").graph.ranks
    (8, 64)

    Raises BadInput: none of these; a system of one chip; every fault of the file.
    """
    text = str(reference)
    if text in NETWORKS.names():
        return load_network(text)
    if is_path(reference) and " x " not in text.lower():
        content = read_text_bounded(reference)
        data = read_yaml(content, text).data
        if isinstance(data, dict) and "chip" in data:
            return fabric_of(parse_system(content, text, folder=Path(reference).parent))
        return parse_network(content, text)
    grid, colon, _ = text.partition(":")
    if "," in text or " x " in text.lower() or text in SYSTEMS.names() or (colon and grid in GRIDS.names()):
        return fabric_of(load_system(reference))
    alike = did_you_mean(text, (*NETWORKS.names(), *SYSTEMS.names()))
    remedy = alike if alike.startswith("did you mean") else f"a path ends in .yaml; {SYSTEMS.hint}"
    expected = f"the name of a shipped network ({', '.join(NETWORKS.names())}), of a system, or a path to a file of either"
    raise BadInput(Fault("network", expected, repr(text), remedy))


def fabric_of(system: System) -> Fabric:
    """The network between the chips of a system. Raises BadInput: a system without axes, or too large for a graph."""
    if not system.axes:
        raise BadInput(Fault(f"system {system.name}", "at least 2 chips", "1, which has no network", "name more chips"))
    if system.chips > RANK_LIMIT:
        got, remedy = f"{system.chips:,}", "name fewer chips: every rank and link is a part of the graph"
        raise BadInput(Fault(f"system {system.name}", f"at most {RANK_LIMIT:,} chips for the graph of a network", got, remedy))
    sources = {key: text for key, text in system.sources.items() if key.startswith("axes.")}
    graph, currency = product(system.axes), links_table().currency
    return Fabric(system.name, graph, system.axes, currency, system.description, sources, system.libraries)
