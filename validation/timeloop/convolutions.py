"""Layers of ResNet-50 as Timeloop problems, with mappings to the two architectures of the cases.

``python -m validation.timeloop.convolutions`` prints the table of docs/validation.md; with a FOLDER, it writes the input files of
each, for those who have Timeloop at hand. Timeloop was not run on these. Their counts follow from its rules
(`validation.timeloop.convention.sliding`), and a test compares them with an oracle that walks the loops by the same rules
(`tests/validation/windows.py`).

Timeloop has no padding: the image of a layer is as large as what its taps read.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from validation.timeloop.convention import Counts, counts, energies, sliding
from validation.timeloop.convert import HERE, from_timeloop, machine, workload
from validation.timeloop.files import Case, read_case, read_mapping, read_problem

from halley.cost.evaluate import evaluate

SHAPE: dict[str, Any] = {
    "name": "CNN-Layer",
    "dimensions": ["C", "M", "R", "S", "P", "Q"],
    "coefficients": [{"name": "Hstride", "default": 1}, {"name": "Wstride", "default": 1}],
    "data_spaces": [
        {"name": "Weights", "projection": [[["M"]], [["C"]], [["R"]], [["S"]]]},
        {"name": "Inputs", "projection": [[["C"]], [["P", "Hstride"], ["R"]], [["Q", "Wstride"], ["S"]]]},
        {"name": "Outputs", "projection": [[["M"]], [["P"]], [["Q"]]], "read_write": True},
    ],
}
"""A convolution, its dims named as in Timeloop: channels C, filters M, taps R x S, rows P and columns Q of the result."""

LAYERS: dict[str, tuple[int, int, int, int, int]] = {
    # He et al., arXiv 1512.03385, table 1, 50 layers: channels, filters, taps along a side, rows of the result, stride
    "conv1": (3, 64, 7, 112, 2),
    "conv2 1x1": (64, 64, 1, 56, 1),
    "conv2 3x3": (64, 64, 3, 56, 1),
    "conv2 out": (64, 256, 1, 56, 1),
    "conv3 3x3": (128, 128, 3, 28, 1),
    "conv3 first 3x3": (128, 128, 3, 28, 2),
    "conv3 shortcut": (256, 512, 1, 28, 2),
    "conv4 3x3": (256, 256, 3, 14, 1),
    "conv5 3x3": (512, 512, 3, 7, 1),
}

EYERISS, TPU = "eyeriss-like", "tpu-like"
ARCHITECTURES = {EYERISS: "e01_os_1024", TPU: "t01_ws_1024"}
"""The case that has the architecture and its energies."""


@dataclass(frozen=True)
class Mapped:
    """A layer with a mapping: per storage level, outermost first, its temporal loops (outermost first), and those along x and
    along y to the siblings of the level inside it, as in ``C4 P7``; the tensors that each level keeps."""

    layer: str
    machine: str
    idea: str
    temporal: tuple[str, ...]
    along_x: tuple[str, ...]
    along_y: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.layer}, {self.machine}, {self.idea}"


def _eyeriss(layer: str, idea: str, dram: str, buffer: str, registers: str, x: str, y: str) -> Mapped:
    return Mapped(layer, EYERISS, idea, (dram, buffer, registers), ("", x, ""), ("", y, ""))


def _tpu(layer: str, idea: str, dram: str, buffer: str, accumulator: str, columns: str, rows: str) -> Mapped:
    return Mapped(layer, TPU, idea, (dram, buffer, accumulator, ""), ("", columns, "", ""), ("", "", rows, ""))


MAPPED: tuple[Mapped, ...] = (
    # rows of the result over the array: each PE slides along a row, its taps in the register file
    _eyeriss("conv1", "rows", "M8 P8", "C3 Q112", "R7 S7", "M8", "P14"),
    _eyeriss("conv2 3x3", "rows", "M4 P4", "C64 Q56", "R3 S3", "M16", "P14"),
    _eyeriss("conv3 3x3", "rows", "M16 P2", "C32 Q28", "C4 R3 S3", "M8", "P14"),
    _eyeriss("conv3 first 3x3", "rows", "M16 P4", "C128 Q28", "R3 S3", "M8", "P7"),
    _eyeriss("conv4 3x3", "rows", "M16 C2", "C32 Q14", "C4 R3 S3", "M16", "P14"),
    _eyeriss("conv5 3x3", "rows", "M32 C8", "C16 Q7", "C4 R3 S3", "M16", "P7"),
    # channels and filters over the array: rows and columns come by outside
    _eyeriss("conv2 1x1", "channels", "P14", "P4 Q56", "M4 C4", "M16", "C16"),
    _eyeriss("conv2 out", "channels", "M4 P14", "P4 Q56", "M4 C4", "M16", "C16"),
    _eyeriss("conv2 3x3", "channels", "P28", "R3 S3 P2 Q56", "M4 C4", "M16", "C16"),
    _eyeriss("conv3 3x3", "channels", "M4 P7", "C4 R3 S3 P4 Q28", "M2 C2", "M16", "C16"),
    _eyeriss("conv3 shortcut", "channels", "M8 C4 P7", "P4 Q28", "M4 C4", "M16", "C16"),
    _eyeriss("conv4 3x3", "channels, tiles of columns", "M8 C4 P14", "Q2 R3 S3", "M2 C4 Q7", "M16", "C16"),
    _eyeriss("conv5 3x3", "channels", "M16 C16 P7", "R3 S3 Q7", "M2 C2", "M16", "C16"),
    # weights in the array, a plane of the result in the accumulators
    _tpu("conv1", "weights", "P14", "R7 S7", "P8 Q112", "M64", "C3"),
    _tpu("conv2 3x3", "weights", "P2", "R3 S3", "P28 Q56", "M64", "C64"),
    _tpu("conv2 out", "weights", "M2", "", "P56 Q56", "M128", "C64"),
    _tpu("conv3 3x3", "weights", "", "R3 S3", "P28 Q28", "M128", "C128"),
    _tpu("conv3 first 3x3", "weights", "P4", "R3 S3", "P7 Q28", "M128", "C128"),
    _tpu("conv3 shortcut", "weights", "", "M4 C2", "P28 Q28", "M128", "C128"),
    _tpu("conv4 3x3", "weights", "M2", "C2 R3 S3", "P14 Q14", "M128", "C128"),
    _tpu("conv5 3x3", "weights", "M4 C2", "C2 R3 S3", "P7 Q7", "M128", "C128"),
)


def problem_file(layer: str) -> dict[str, Any]:
    """`prob.yaml` of the layer."""
    channels, filters, taps, rows, stride = LAYERS[layer]
    extents = {"C": channels, "M": filters, "R": taps, "S": taps, "P": rows, "Q": rows}
    return {"problem": {"version": 0.3, "shape": SHAPE, "instance": extents | {"Hstride": stride, "Wstride": stride}}}


def mapping_file(mapped: Mapped) -> dict[str, Any]:
    """`map.yaml` of the mapping. The levels keep what those of the architecture's case keep."""
    known = _known(mapped.machine)
    names = {"A": "Inputs", "W": "Weights", "Z": "Outputs"}
    entries: list[dict[str, Any]] = []
    last = len(known.blocks) - 1
    for index, (storage, block) in enumerate(zip(known.architecture.storages, known.blocks, strict=True)):
        entries.append({"target": storage.name, "type": "temporal"} | _loops(mapped.temporal[index]))
        x, y = mapped.along_x[index], mapped.along_y[index]
        if 0 < index < last:
            order = _loops(f"{y} {x}")  # a permutation is innermost first: those along x, then those along y
            entries.append({"target": storage.name, "type": "spatial"} | order | {"split": len(x.split())})
        if index:
            kept = [names[tensor] for tensor in sorted(block.keeps)]
            bypassed = sorted(set(names.values()) - set(kept))
            entries.append({"target": storage.name, "type": "bypass", "keep": kept, "bypass": bypassed})
    return {"mapping": entries}


def _loops(text: str) -> dict[str, str]:
    words = text.split()
    factors = {word[0]: int(word[1:]) for word in words}
    order = [word[0] for word in reversed(words)]
    others = [dim for dim in SHAPE["dimensions"] if dim not in factors]
    shown = " ".join(f"{dim}={factors.get(dim, 1)}" for dim in SHAPE["dimensions"])
    return {"factors": shown, "permutation": "".join((*order, *others))}


def _known(machine_name: str) -> Case:
    return read_case(HERE / "cases" / ARCHITECTURES[machine_name])


def case(mapped: Mapped) -> Case:
    """The mapping as Timeloop would read it."""
    known = _known(mapped.machine)
    problem = read_problem(problem_file(mapped.layer))
    blocks = read_mapping(mapping_file(mapped), known.architecture, problem)
    return replace(known, name=mapped.name, problem=problem, blocks=blocks, figures={})


def both(read: Case) -> tuple[dict[tuple[str, str], Counts], dict[tuple[str, str], Counts]]:
    """Halley's counts by (memory, tensor): as it moves whole tiles; with Timeloop's rule for sliding windows."""
    chip = machine(read.architecture, read.blocks)
    tree = from_timeloop(read.blocks, read.architecture, read.problem)
    whole = counts(evaluate(workload(read.problem), chip, tree), read.problem.output)
    return whole, sliding(whole, read.architecture, read.blocks, read.problem)


def write(folder: Path) -> Iterator[Path]:
    """The four input files of every mapping."""
    for mapped in MAPPED:
        place = folder / mapped.name.replace(", ", "_").replace(" ", "-")
        place.mkdir(parents=True, exist_ok=True)
        files: Mapping[str, Any] = {"prob.yaml": problem_file(mapped.layer), "map.yaml": mapping_file(mapped)}
        for name, data in files.items():
            (place / name).write_text(yaml.safe_dump(data, sort_keys=False))
        for name in ("arch.yaml", "ert.yaml"):
            shutil.copyfile(HERE / "cases" / ARCHITECTURES[mapped.machine] / name, place / name)
        yield place


HEADER = (
    "| layer | machine, mapping | image words from DRAM | by Timeloop's rule | from the buffer | by Timeloop's rule | energy |\n"
    "|---|---|---|---|---|---|---|"
)


def row(mapped: Mapped) -> str:
    """A line of the table: words of the image that leave each of the two outer levels, and Halley's energy over the other."""
    read = case(mapped)
    whole, slid = both(read)
    dram, buffer = (storage.name for storage in read.architecture.storages[:2])
    words = [f"{found[level, 'Inputs'].reads:,}" for level in (dram, buffer) for found in (whole, slid)]
    macs = math.prod(read.problem.extents.values()) * read.mac_energy
    own, theirs = (macs + sum(energies(found, read).values()) for found in (whole, slid))
    return f"| {mapped.layer} | {mapped.machine}, {mapped.idea} | {' | '.join(words)} | {100 * (own / theirs - 1):+.1f} % |"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        for written in write(Path(sys.argv[1])):
            print(written)
    else:
        print(HEADER, *map(row, MAPPED), sep="\n")
