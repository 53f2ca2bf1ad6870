"""Timeloop's input files and reported figures, as values.

A case is a folder with `arch.yaml`, `prob.yaml`, `map.yaml` and `ert.yaml`, and `figures.json` (or an entry of the same name in
`cases.json` next to the folder): per level and tensor what Timeloop reported for one instance. Only what the cases use is
read: a chain of storage levels over one MAC, loops with whole factors, bypasses. Anything else is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from halley.errors import BadInput, Fault, did_you_mean

UNLIMITED = math.inf
"""Bandwidth of a storage level that states none."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage level. ``level`` is the subtree that it is local to; ``mesh`` its (x, y) instances over the whole chip;
    ``block`` words per access; ``bandwidth`` (read, write) [words/cycle] and ``capacity`` [words, 0 if not stated] of one."""

    name: str
    level: str
    mesh: tuple[int, int]
    block: int
    word_bits: int
    bandwidth: tuple[float, float]
    capacity: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """Storage levels, outermost first, and the MAC at the leaf (its name)."""

    storages: tuple[Storage, ...]
    arithmetic: str

    def index(self, target: str, where: str) -> int:
        names = [storage.name for storage in self.storages]
        if target not in names:
            raise BadInput(Fault(where, "the name of a storage level", repr(target), did_you_mean(target, names)))
        return names.index(target)

    def fanout(self, index: int) -> tuple[int, int]:
        """(x, y) siblings of storage ``index`` under one instance of the storage around it."""
        if index == 0:
            return self.storages[0].mesh
        outer, inner = self.storages[index - 1].mesh, self.storages[index].mesh
        return inner[0] // outer[0], inner[1] // outer[1]


Coordinate: TypeAlias = tuple[tuple[str, int], ...]
"""A sum of (dim, coefficient)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Dims with extents, tensors with the dims that index them; ``output`` is the tensor that is accumulated.

    ``windows``: tensors with a coordinate that is a sum of dims with coefficients, and all coordinates of theirs; of the others
    each dim is a coordinate.
    """

    extents: Mapping[str, int]
    tensors: Mapping[str, tuple[str, ...]]
    output: str
    windows: Mapping[str, tuple[Coordinate, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """The loops of one storage level: temporal ones outermost first, spatial ones (to the siblings of the level inside it)
    by mesh direction, and the tensors that the level keeps. Loops with factor 1 are left out."""

    temporal: tuple[tuple[str, int], ...] = ()
    along_x: tuple[tuple[str, int], ...] = ()
    along_y: tuple[tuple[str, int], ...] = ()
    keeps: frozenset[str] = frozenset()

    @property
    def spatial(self) -> tuple[tuple[str, int], ...]:
        return (*self.along_x, *self.along_y)


@dataclass(frozen=True, slots=True)
class Case:
    """One mapping with all that it needs. ``energy`` [pJ per access of a block] by storage name and action;
    ``mac_energy`` [pJ]; ``figures`` is what Timeloop reported."""

    name: str
    architecture: Architecture
    problem: Problem
    blocks: tuple[Block, ...]
    energy: Mapping[str, Mapping[str, float]]
    mac_energy: float
    figures: Mapping[str, Any]


def read_case(folder: Path) -> Case:
    """The case in the folder.

    Raises BadInput: a file is missing or says something that these cases do not use.
    """
    architecture = read_architecture(_load(folder / "arch.yaml"))
    problem = read_problem(_load(folder / "prob.yaml"))
    blocks = read_mapping(_load(folder / "map.yaml"), architecture, problem)
    energy = _energies(_load(folder / "ert.yaml"))
    figures = _figures(folder)
    storage_energy = {storage.name: energy[storage.name] for storage in architecture.storages}
    return Case(folder.name, architecture, problem, blocks, storage_energy, energy[architecture.arithmetic]["compute"], figures)


def read_architecture(data: Mapping[str, Any]) -> Architecture:
    """Storage levels of a chain of subtrees, outermost first. ``PE[0..15]`` is 16 siblings, ``meshX`` of them in a row."""
    storages: list[Storage] = []
    arithmetic = ""
    nodes, siblings = data["architecture"]["subtree"], 1
    while nodes:
        if len(nodes) != 1:
            raise BadInput(Fault("arch", "a chain of subtrees", f"{len(nodes)} side by side"))
        node = nodes[0]
        name, count = _counted(node["name"])
        siblings *= count
        for item in node.get("local", []):
            if item["class"] == "intmac":
                arithmetic = item["name"]
            else:
                storages.append(_storage(item["name"], name, siblings, item["attributes"]))
        nodes = node.get("subtree", [])
    return Architecture(tuple(storages), arithmetic)


def _counted(name: str) -> tuple[str, int]:
    """
    >>> _counted("PE[0..15]"), _counted("Chip")
    (('PE', 16), ('Chip', 1))
    """
    found = re.fullmatch(r"(\w+)\[(\d+)\.\.(\d+)\]", name)
    return (found[1], int(found[3]) - int(found[2]) + 1) if found else (name, 1)


def _storage(name: str, level: str, siblings: int, attributes: Mapping[str, Any]) -> Storage:
    row = int(attributes.get("meshX", siblings))
    if siblings % row:
        raise BadInput(Fault(f"arch, {name}", f"a meshX that divides its {siblings} instances", str(row)))
    block = int(attributes.get("block_size", 1))
    read, write = (float(attributes.get(f"{way}_bandwidth", UNLIMITED)) for way in ("read", "write"))
    capacity = int(attributes.get("depth", 0)) * block
    return Storage(name, level, (row, siblings // row), block, int(attributes["word_bits"]), (read, write), capacity)


def read_problem(data: Mapping[str, Any]) -> Problem:
    """Dims, and the coordinates of each tensor: sums of terms, each a dim, or a dim and the name of its coefficient."""
    shape, instance = data["problem"]["shape"], data["problem"]["instance"]
    named = {entry["name"]: int(instance.get(entry["name"], entry["default"])) for entry in shape.get("coefficients", [])}
    tensors: dict[str, tuple[str, ...]] = {}
    windows: dict[str, tuple[Coordinate, ...]] = {}
    outputs: list[str] = []
    for space in shape["data_spaces"]:
        where = f"prob, {space['name']}"
        coordinates = tuple(tuple(_term(term, named, where) for term in sum_) for sum_ in space["projection"])
        dims = tuple(dim for coordinate in coordinates for dim, _ in coordinate)
        if len(set(dims)) < len(dims):
            raise BadInput(Fault(where, "each dim once", str(space["projection"])))
        tensors[space["name"]] = dims
        if any(len(coordinate) > 1 or coordinate[0][1] != 1 for coordinate in coordinates):
            windows[space["name"]] = coordinates
        if space.get("read_write"):
            outputs.append(space["name"])
    if len(outputs) != 1 or outputs[0] in windows:
        raise BadInput(Fault("prob", "one tensor with read_write, without sums of dims", ", ".join(outputs) or "none"))
    return Problem({dim: int(instance[dim]) for dim in shape["dimensions"]}, tensors, outputs[0], windows)


def _term(term: list[str], named: Mapping[str, int], where: str) -> tuple[str, int]:
    if len(term) not in (1, 2) or not set(term[1:]) <= set(named):
        raise BadInput(Fault(where, "terms of a dim, or of a dim and the name of a coefficient", str(term)))
    return term[0], named[term[1]] if term[1:] else 1


def read_mapping(data: Mapping[str, Any], architecture: Architecture, problem: Problem) -> tuple[Block, ...]:
    """One block per storage level. Permutations are innermost first; of a spatial one the first ``split`` dims lie along x."""
    temporal: dict[int, tuple[tuple[str, int], ...]] = {}
    spatial: dict[int, tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]] = {}
    indices = range(len(architecture.storages))
    keeps = {index: set(problem.tensors) for index in indices}
    for entry in data["mapping"]:
        where = f"map, {entry['target']} {entry['type']}"
        index = architecture.index(entry["target"], where)
        match entry["type"]:
            case "temporal":
                temporal[index] = tuple(reversed(_loops(entry, problem, where)))
            case "spatial":
                order, split = _order(entry, problem, where), int(entry.get("split", len(problem.extents)))
                loops = _loops(entry, problem, where)
                x, y = (tuple(loop for loop in loops if loop[0] in part) for part in (order[:split], order[split:]))
                spatial[index] = (tuple(reversed(x)), tuple(reversed(y)))
            case "bypass" | "dataspace" | "datatype":
                keeps[index] -= set(entry.get("bypass", []))
            case other:
                raise BadInput(Fault(where, "temporal, spatial or bypass", repr(other)))
    blocks = tuple(Block(temporal.get(i, ()), *spatial.get(i, ((), ())), keeps=frozenset(keeps[i])) for i in indices)
    _check(blocks, architecture, problem)
    return blocks


def _check(blocks: tuple[Block, ...], architecture: Architecture, problem: Problem) -> None:
    faults = []
    for dim, extent in problem.extents.items():
        product = math.prod(count for block in blocks for name, count in (*block.temporal, *block.spatial) if name == dim)
        if product != extent:
            faults.append(Fault(f"map, {dim}", f"factors with the product {extent}", str(product)))
    for index, block in enumerate(blocks):
        last = index + 1 == len(blocks)
        fanout = (1, 1) if last else architecture.fanout(index + 1)
        where = f"map, {architecture.storages[index].name} spatial"
        for way, loops, size in zip("xy", (block.along_x, block.along_y), fanout, strict=True):
            if (used := math.prod(count for _, count in loops)) > size:
                faults.append(Fault(where, f"at most {size} along {way}", str(used)))
    if blocks[0].keeps != frozenset(problem.tensors):
        faults.append(Fault(f"map, {architecture.storages[0].name}", "every tensor kept in the outermost level", "a bypass"))
    if faults:
        raise BadInput(faults)


def _order(entry: Mapping[str, Any], problem: Problem, where: str) -> tuple[str, ...]:
    """The dims of a permutation, innermost first; those that it does not name follow."""
    named = re.findall(r"\w", str(entry.get("permutation", "")))
    for dim in named:
        if dim not in problem.extents:
            raise BadInput(Fault(where, "known dims", repr(dim), did_you_mean(dim, problem.extents)))
    return tuple(dict.fromkeys((*named, *problem.extents)))


def _loops(entry: Mapping[str, Any], problem: Problem, where: str) -> tuple[tuple[str, int], ...]:
    """(dim, factor) innermost first, without factors of 1."""
    factors: dict[str, int] = {}
    for word in re.split(r"[\s,]+", str(entry.get("factors", "")).strip()):
        found = re.fullmatch(r"([A-Za-z]+)=?([0-9]+)", word)
        if word and (not found or found[1] not in problem.extents or int(found[2]) < 1):
            raise BadInput(Fault(where, "factors such as M=4, whole and at least 1", repr(word)))
        if found:
            factors[found[1]] = int(found[2])
    return tuple((dim, factors[dim]) for dim in _order(entry, problem, where) if factors.get(dim, 1) > 1)


def _energies(data: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Energy [pJ] by component (the last part of its path) and action."""
    return {
        table["name"].split(".")[-1]: {action["name"]: float(action["energy"]) for action in table["actions"]}
        for table in data["ERT"]["tables"]
    }


def _figures(folder: Path) -> Mapping[str, Any]:
    own, common = folder / "figures.json", folder.parent / "cases.json"
    cases: dict[str, Mapping[str, Any]] = {}
    if own.exists():
        cases[folder.name] = json.loads(own.read_text())
    elif common.exists():
        cases = json.loads(common.read_text())
    if folder.name not in cases:
        raise BadInput(Fault(str(folder), "figures.json, or its entry in cases.json next to it", "neither"))
    return cases[folder.name]


def _load(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        raise BadInput(Fault(str(path), "a file", "no such file"))
    data: Mapping[str, Any] = yaml.safe_load(path.read_text())
    return data


def case_folders(root: Path) -> Iterator[Path]:
    """Folders of cases under the root, by name."""
    return iter(sorted(path.parent for path in root.glob("*/map.yaml")))
