"""System files: text in, a `System` out, every fault of the file at once with its line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.chip import clock_of, origins_of, read_chip
from halley.io.chips.load import load_chip
from halley.io.files.check import about_others, check_with_rest
from halley.io.files.entries import shown
from halley.io.files.shelf import found, is_path
from halley.io.files.text import Document, DocumentFault, read_yaml
from halley.io.networks.models import libraries_of
from halley.io.networks.network import EDGE_LIMIT, RANK_LIMIT, read_axes
from halley.io.systems.grid import load_grid
from halley.io.systems.models import SystemFile
from halley.io.systems.parts import read_parts
from halley.io.systems.words import parse_words
from halley.ir.hardware import Chip
from halley.ir.system import System, resized, with_memory
from halley.library import GRIDS, NETWORKS, SYSTEMS
from halley.network.graph.topologies import edge_count

_COUNTED = re.compile(r"\s*([0-9]{1,9})\s*[xX]\s+([^,\s]+)\s*")
"""So many chips of a system: `256 x dgx-h100-pod`."""


def load_system(reference: str | Path) -> System:
    """A system by the name of one that ships with Halley, by the path of its file, or in the short form.

    ``COUNT x`` before a name or a path makes the outermost axis as long as it takes: ``256 x dgx-h100-pod``. The short form is
    that of `halley.io.systems.words.parse_words`. A system of a grid is ``dfmodel:h100/torus-2d/hbm3/nvlink-4``.

    >>> load_system("sn10-torus").chips, load_system("1024 x dgx-h100-pod").axes[0].size
    (8, 128)
    >>> [axis.size for axis in load_system("1024 x h100, nvlink 8, ib").axes]
    [128, 8]

    Raises BadInput: none of these; every fault of the file.
    """
    text = str(reference)
    counted = _COUNTED.fullmatch(text)
    if counted and (counted[2] in SYSTEMS.names() or is_path(counted[2])):
        return _bounded(resized(load_system(counted[2]), int(counted[1])))
    grid, colon, name = text.partition(":")
    if colon and grid in GRIDS.names():
        systems = load_grid(grid)
        if name not in systems:
            hint = did_you_mean(name, systems)
            remedy = hint if hint.startswith("did") else f"'halley system list {grid}' names them"
            raise BadInput(Fault(f"grid {grid}", "one of its systems", repr(name), remedy))
        return systems[name]
    if "," in text or re.match(r"\s*\S+\s+[xX]\b", text):
        return parse_words(text)
    if text in NETWORKS.names() and text not in SYSTEMS.names():
        chips = "write chips and links, for example '8 x h100, nvlink 8'; 'halley system list' names systems"
        raise BadInput(Fault("system", "a system of chips", f"the network {text}, which has none", chips))
    return parse_system(*found(SYSTEMS, reference), folder=Path(reference).parent)


def _bounded(system: System) -> System:
    """Raises BadInput: more chips or links than a network in a file may have."""
    links = sum(system.chips // axis.size * edge_count(axis) for axis in system.axes)
    if system.chips > RANK_LIMIT or links > EDGE_LIMIT:
        got = f"{system.chips} chips and {links} links"
        raise BadInput(Fault(f"system {system.name}", f"at most {RANK_LIMIT} chips and {EDGE_LIMIT} links", got))
    return system


def parse_system(text: str, name: str = "system", sourced: bool = False, folder: Path = Path()) -> System:
    """The system that the text of a file describes; ``name`` is the file's name for messages, a path to a chip starts at
    ``folder``.

    ``sourced``: every number must have a source or an assumption, as in shipped systems.

    Raises BadInput: every fault of the text and of the chip file that it names.
    """
    document = read_yaml(text, name)
    system, findings, elsewhere = read_system(document, folder, sourced)
    if system is None:
        raise BadInput([*document.faults(findings), *elsewhere])
    return system


def read_system(
    document: Document, folder: Path, sourced: bool = False
) -> tuple[System | None, list[DocumentFault], list[Fault]]:
    """The system that a document describes, or None; what is wrong with it, and with the chip file that it names. The arguments
    are those of `parse_system`."""
    file, findings = check_with_rest(SystemFile, document.data, clock=clock_of(document.data))
    known = list(findings)
    chip, inside, elsewhere = _chip(document, folder)
    findings += inside
    if file is None:
        return None, findings, elsewhere
    axes, wrong, brought = read_axes(file.axes)
    parts = read_parts(chip.name if chip else "", file.costs, file.host, file.dram)
    findings += about_others([*wrong, *parts.findings], known)
    origins = dict(origins_of(file, (), "")) | brought
    if sourced:
        for keys in (keys for keys, text in origins.items() if not text):
            findings.append(DocumentFault(keys, "a source, or assumed: and why", "neither", "add one here or around it"))
    if chip is not None:
        names = [memory.name for memory in chip.memories]
        for place, memory in enumerate(file.memories or ()):
            if memory not in names:
                findings.append(
                    DocumentFault(("memories", place), f"a memory of chip {chip.name}: {', '.join(names)}", repr(memory))
                )
    if chip is None or findings or elsewhere:
        return None, findings, elsewhere
    if file.dram is not None:
        chip = with_memory(chip, file.dram.capacity.value, file.dram.bandwidth.value, file.dram.energy.value)
    texts = {".".join(document.words(path)): text for path, text in (origins | parts.sources).items() if text}
    system = System(
        file.name,
        chip,
        axes,
        tuple(file.memories or ()),
        parts.host,
        parts.chip,
        parts.memory,
        parts.node,
        file.description.strip(),
        texts,
        libraries_of(file.axes),
    )
    return system, [], []


def _chip(document: Document, folder: Path) -> tuple[Chip | None, list[DocumentFault], list[Fault]]:
    """The chip, what is wrong with it in this document, and what is wrong with the file that it names."""
    path = ("chip",)
    match document.at(path):
        case str() as reference if reference.strip():
            try:
                return load_chip(folder / reference if is_path(reference) else reference), [], []
            except BadInput as error:
                where = document.where(path)
                named = (where if item.where == "chip" else f"{where}: {item.where}" for item in error.faults)
                return None, [], [replace(item, where=name) for item, name in zip(error.faults, named, strict=True)]
        case dict():
            chip, findings = read_chip(document, path)
            return chip, findings, []
        case value if isinstance(document.data, dict) and "chip" in document.data:
            return None, [DocumentFault(path, "the name of a chip, a path to its file, or a map", shown(value))], []
        case _:
            return None, [], []  # the check reports that the key is missing
