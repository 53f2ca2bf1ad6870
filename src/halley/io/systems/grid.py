"""Grids of systems: every combination of a file's chips, topologies, memories and links."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from halley.errors import BadInput, did_you_mean
from halley.formulas.price import bandwidth_price, busy_power, interconnect_price, silicon_power
from halley.io.chips.chip import clock_of, origins_of
from halley.io.chips.load import load_chip
from halley.io.files.check import check
from halley.io.files.shelf import is_path
from halley.io.files.text import Document, DocumentFault, KeyPath, read_text_bounded, read_yaml
from halley.io.networks.network import GBPS, RANK_LIMIT
from halley.io.systems.models import GridAxis, GridChip, GridFile, GridLink, GridMemory
from halley.ir.hardware import Axis, Chip, Link, Topology
from halley.ir.system import Cost, System, with_memory
from halley.kernels.machine import machine
from halley.library import CHIPS, GRIDS
from halley.network.graph.topologies import edge_count


def load_grid(path_or_name: str | Path) -> dict[str, System]:
    """The systems of the shipped grid of that name, or else of the file, by ``chip/topology/memory/link``.

    >>> systems = load_grid("dfmodel")
    >>> len(systems), systems["h100/dgx-1/hbm3/nvlink-4"].chips
    (80, 1024)

    Raises BadInput: neither a shipped grid nor a file that can be read; every fault of the file.
    """
    if str(path_or_name) in GRIDS.names() or not is_path(path_or_name):
        return parse_grid(GRIDS.text(str(path_or_name)), f"{path_or_name}.yaml", sourced=True)
    return parse_grid(read_text_bounded(path_or_name), str(path_or_name))


def parse_grid(text: str, name: str = "grid", sourced: bool = False) -> dict[str, System]:
    """The systems of the grid that the text of a file describes; ``name`` is the file's name for messages.

    Raises BadInput: every fault of the text.
    """
    document = read_yaml(text, name)
    file, findings = check(GridFile, document.data, clock=clock_of(document.data))
    if file is None:
        raise BadInput(document.faults(findings))
    findings = list(_misfits(file))
    origins = dict(origins_of(file, (), ""))
    if sourced:
        for keys in (keys for keys, text in origins.items() if not text):
            findings.append(DocumentFault(keys, "a source, or assumed: and why", "neither", "add one here or around it"))
    if findings:
        raise BadInput(document.faults(findings))
    chips = {name: load_chip(item.chip) for name, item in file.chips.items()}
    made = (_system(file, document, origins, chips, keys) for keys in _combinations(file))
    return {system.name.partition(":")[2]: system for system in made}


def _misfits(file: GridFile) -> Iterator[DocumentFault]:
    for name, item in file.chips.items():
        if item.chip not in CHIPS.names():
            remedy = did_you_mean(item.chip, CHIPS.names())
            yield DocumentFault(("chips", name, "chip"), "the name of a shipped chip", repr(item.chip), remedy)
    for name, axes in file.topologies.items():
        names = [axis.name for axis in axes]
        if len(set(names)) < len(names):
            yield DocumentFault(("topologies", name), "axes with names of their own", ", ".join(names))
        chips = math.prod(axis.size.value for axis in axes)
        if chips > RANK_LIMIT:
            yield DocumentFault(("topologies", name), f"at most {RANK_LIMIT} chips", str(chips))


def _combinations(file: GridFile) -> Iterator[tuple[str, str, str, str]]:
    for chip in file.chips:
        for topology in file.topologies:
            for memory in file.memories:
                yield from ((chip, topology, memory, link) for link in file.links)


def _system(
    file: GridFile,
    document: Document,
    origins: dict[KeyPath, str],
    chips: Mapping[str, Chip],
    keys: tuple[str, str, str, str],
) -> System:
    chip_name, topology, memory_name, link_name = keys
    memory, link = file.memories[memory_name], file.links[link_name]
    chip = with_memory(chips[chip_name], memory.capacity.value, memory.bandwidth.value, memory.energy.value)
    used = set(zip(("chips", "topologies", "memories", "links"), keys, strict=True))
    fitted: dict[KeyPath, str] = {}
    if file.chips[chip_name].power is None:
        fitted["chips", chip_name, "power"] = "fitted to the chip's peak in bf16: halley.formulas.price.silicon_power"
    return System(
        f"{file.name}:{'/'.join(keys)}",
        chip,
        tuple(_axis(axis, link) for axis in file.topologies[topology]),
        (chip.levels[0].memories[0].name,),
        chip_cost=_chip_cost(file.chips[chip_name], chip),
        memory_cost=_memory_cost(memory),
        node_cost=Cost(0.0, 0.0),
        description=f"{chip_name}, {topology}, {memory_name}, {link_name}",
        sources={".".join(document.words(path)): text for path, text in (origins | fitted).items() if path[:2] in used},
    )


def _chip_cost(item: GridChip, chip: Chip) -> Cost:
    if item.power is not None:
        return Cost(item.price.value, item.power.value)
    peak = 2 * machine(chip).mac_rate("bf16")  # a multiply-accumulate is two operations
    return Cost(item.price.value, 1e3 * float(silicon_power(peak / 1e12)))


def _memory_cost(item: GridMemory) -> Cost:
    price = bandwidth_price(item.bandwidth.value / GBPS, item.price.value)
    return Cost(float(price), float(busy_power(item.bandwidth.value, item.energy.value)))


def _axis(item: GridAxis, link: GridLink) -> Axis:
    """The axis, its links with their share of the ports: a switch has a port for each chip, and a ring is closed over two of them
    (the optical switches at the faces of a torus); each direction between two fully joined chips is a link."""
    size, topology = item.size.value, Topology(item.topology.value)
    links, ports = {
        Topology.RING: (size, 2),
        Topology.SWITCH: (size, size),
        Topology.FULL: (size * (size - 1), 0),
        Topology.LINE: (size - 1, 0),
    }[topology]
    edges = max(edge_count(Axis(item.name, size, topology, Link(link.bandwidth.value))), 1)
    price = interconnect_price(links, ports, link.bandwidth.value / GBPS, link.price.value, link.port_price.value)
    energy = (links * link.energy.value + ports * link.port_energy.value) / edges
    joined = Link(link.bandwidth.value, link.latency.value, energy, float(price) * 2 / edges)
    return Axis(item.name, size, topology, joined)
