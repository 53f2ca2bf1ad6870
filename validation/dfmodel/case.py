"""The published case as values: GPT3-175B's layer on eight SN10, for any tensor-parallel degree, bandwidth and assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from halley.formulas.collectives import all_reduce_bound
from halley.formulas.numbers import ceil_div
from halley.formulas.timing import busy_time
from halley.mapping.space.partitions import Kernels
from halley.spatial.chip import (
    DFMODEL,
    Assumptions,
    Engine,
    Kernel,
    SpatialChip,
    SpatialGraph,
    SpatialProblem,
    SpatialTensor,
    TiledDim,
)

HERE = Path(__file__).parent
NS, GB = 1e-9, 1e9


@cache
def published() -> dict[str, Any]:
    """The file of figures."""
    found: dict[str, Any] = yaml.safe_load((HERE / "sn10.yaml").read_text(encoding="utf-8"))
    return found


def chip(bandwidth: float | None = None) -> SpatialChip:
    """An SN10; ``bandwidth`` [B/s] of its DRAM, if not the published input file's."""
    each = published()["chip"]
    rate = each["dram_GBs"] * GB if bandwidth is None else bandwidth
    return SpatialChip(each["cores"], each["width"], each["height"], each["GHz"] * GB, each["sram_B"], each["dram_B"], rate)


def graph(tensor: int, name: str = "forward", hop: float = 0.0, joined: bool = False) -> SpatialGraph:
    """A chip's part of the layer on ``tensor`` chips in a ring that works both ways; ``hop`` [s] latency of a link. ``joined``:
    the backward pass starts from the result of the forward pass, as if the layer were the whole model."""
    data = published()
    rows = data[name]["kernels"]
    word, link = data["word"], data["link_GBs"] * GB
    kernels = tuple(_kernel(kernel, row, tensor, word, link, hop) for kernel, row in rows.items())
    place = {kernel.name: number for number, kernel in enumerate(kernels)}
    tensors = tuple(
        SpatialTensor(place[writer], tuple(sorted(place[reader] for reader in readers)), _result(kernels[place[writer]], word))
        for writer, readers in data[name]["readers"].items()
    )
    if joined:
        tensors += (SpatialTensor(place["Add2"], (place["Loss_b"],), _result(kernels[place["Add2"]], word)),)
    # what a model that counts the graph's boundary sees: the layer's input, and results that no kernel of the layer reads
    read = {reader for each in tensors for reader in each.readers}
    enters = (SpatialTensor(None, (number,), _result(each, word)) for number, each in enumerate(kernels) if number not in read)
    leaves = (
        SpatialTensor(number, (), _result(each, word), leaves=True)
        for number, each in enumerate(kernels)
        if not any(tensor.writer == number for tensor in tensors)
    )
    return SpatialGraph(kernels, (*tensors, *enters, *leaves), data["sequence"])


def _result(kernel: Kernel, word: int) -> float:
    return float(kernel.rows * kernel.columns * word)


def _kernel(name: str, row: list[Any], tensor: int, word: int, link: float, hop: float) -> Kernel:
    engine, rows, columns, depth, split, walked, weights = row
    rows = ceil_div(rows, tensor) if split == "rows" else rows
    depth = ceil_div(depth, tensor) if split == "depth" else depth
    reduced = split == "depth" and tensor > 1
    return Kernel(
        name,
        Engine(engine),
        rows,
        columns,
        depth,
        TiledDim(walked),
        weights=float(rows * depth * word) if weights else 0.0,
        # a ring of two ways: each chip sends on two links
        network=all_reduce_bound(tensor, rows * columns * word, tensor * 2 * link) if reduced else 0.0,
        latency=2 * (tensor - 1) * hop if reduced else 0.0,
    )


def problem(
    tensor: int,
    stages: int,
    assumptions: Assumptions = DFMODEL,
    bandwidth: float | None = None,
    fused: bool = True,
    name: str = "forward",
    joined: bool = False,
) -> SpatialProblem:
    """A layer on one of ``tensor`` x ``stages`` chips."""
    data = published()
    sent = data["hidden"] * data["sequence"] * data["word"]
    transfer = busy_time(sent, data["link_GBs"] * GB) if stages > 1 else 0.0
    return SpatialProblem(
        graph(tensor, name, joined=joined), chip(bandwidth), assumptions, data["layers"], stages, transfer, fused
    )


@dataclass(frozen=True)
class Mapping:
    """A published mapping; ``groups`` in the order of its partitions, ``figures`` as published."""

    name: str
    topology: str
    tensor: int
    stages: int
    tile: int
    samples: int
    groups: tuple[Kernels, ...]
    figures: dict[str, Any]


def mapping(name: str) -> Mapping:
    """``vendor`` or ``optimised``."""
    row = published()["mappings"][name]
    place = {kernel: number for number, kernel in enumerate(published()["forward"]["kernels"])}
    groups = tuple(sum(1 << place[kernel] for kernel in part) for part in row["partitions"])
    return Mapping(name, row["topology"], row["tensor"], row["stages"], row["tile"], row["samples"], groups, row["figures"])
