"""DLRM with the inputs that DFModel publishes, on one chip of many: its graph, and the time of a microbatch.

Layers of equal width with their gradients, sharded by samples; rows of tables are looked up where they are held and sent, before
they are summed, to the chip of the sample, forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from halley.dfmodel.chip import LIMITING_RESOURCES, dfmodel_chip, unfused_costs
from halley.dfmodel.network import collective_time
from halley.formulas.timing import busy_time
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.spatial.chip import DFMODEL, Engine, Kernel, SpatialGraph, SpatialProblem, SpatialTensor, TiledDim
from halley.spatial.solve import best_plan

WIDTH, BOTTOM, TOP = 3375, 5, 15
"""Width of every layer, layers before and behind the tables."""
TABLES, ROWS, EMBEDDING, LOOKUPS = 600, 14_211_469, 93, 15
"""Tables, rows of each, elements of a row, rows looked up in each: 793e9 parameters."""
MICROBATCH, ELEMENT = 512, 2
"""Samples of a chip; bytes of an element. Source of all: DFModel's published code, DLRM/Sweep_DLRM/GPU/793B."""
TILES = (32, 128, 512)
"""Samples of a tile that are tried."""
LAYERS = BOTTOM + TOP


def looked_up() -> float:
    """Bytes of the rows for the samples of one chip."""
    return float(TABLES * LOOKUPS * EMBEDDING * MICROBATCH * ELEMENT)


def graph(exchange: float) -> SpatialGraph:
    """The layers, their input gradients from last to first, their weight gradients in the same order. ``exchange`` [s]: of the
    rows, beside the last layer before the tables.

    >>> made = graph(0.1)
    >>> len(made.kernels), made.work / MICROBATCH / (60 * 2 * WIDTH**2), made.kernels[4].network, made.kernels[35].name
    (60, 1.0, 0.1, 'input_5')
    """
    order = [*range(LAYERS), *reversed(range(LAYERS))]
    names = [f"layer_{layer + 1}" for layer in range(LAYERS)] + [f"input_{layer + 1}" for layer in reversed(range(LAYERS))]
    weights = float(WIDTH * WIDTH * ELEMENT)
    kernels = [
        Kernel(name, Engine.MATRIX, WIDTH, MICROBATCH, WIDTH, weights=weights, network=exchange if layer == BOTTOM - 1 else 0.0)
        for name, layer in zip(names, order, strict=True)
    ]
    kernels += [
        Kernel(f"weight_{layer + 1}", Engine.MATRIX, WIDTH, WIDTH, MICROBATCH, TiledDim.DEPTH) for layer in order[LAYERS:]
    ]
    return SpatialGraph(tuple(kernels), tuple(_tensors()), MICROBATCH)


def _tensors() -> Iterator[SpatialTensor]:
    """The result of a layer goes to the next one and to the gradient of that one's weights; the gradient of its input to the
    layer before and to the gradient of that one's weights."""
    size = float(WIDTH * MICROBATCH * ELEMENT)
    for place in range(LAYERS - 1):
        yield SpatialTensor(place, (place + 1, 3 * LAYERS - 2 - place), size)
    for place in range(LAYERS, 2 * LAYERS - 1):
        yield SpatialTensor(place, (place + 1, place + LAYERS + 1), size)


@dataclass(frozen=True, slots=True)
class Microbatch:
    """``time`` [s] of a microbatch on all chips, its ``parts`` [s], ``work`` and ``peak`` of all chips, partitions in words."""

    time: float
    bound: float
    parts: dict[str, float]
    work: float
    peak: float
    plan: str


def microbatch(system: System, fused: bool) -> Microbatch:
    """The time in DFModel's view, with the best partitions into consecutive layers on a chip that streams. Rows are loaded and
    stored beside nothing else."""
    chip = dfmodel_chip(system, fused)
    exchange = collective_time(CollectiveKind.ALL_TO_ALL, system.axes, looked_up())
    problem = SpatialProblem(graph(exchange), chip, DFMODEL, fused=fused, most=1)
    rows = 2 * float(busy_time(looked_up(), chip.bandwidth))
    if fused:
        made = best_plan(problem, TILES, most_downsets=0)
        steady = {name: sum(part.steady for part in made.partitions if part.bottleneck == name) for name in LIMITING_RESOURCES}
        once, bound, plan = made.layer - sum(steady.values()), made.bound, f"{len(made.partitions)} partitions"
    else:
        costs = unfused_costs(problem)
        each = np.stack([costs.compute, costs.memory, costs.network])
        longest = each.argmax(axis=0)
        steady = {name: float(each.max(axis=0)[longest == place].sum()) for place, name in enumerate(LIMITING_RESOURCES)}
        once, bound, plan = costs.setup, costs.steady + costs.setup, "one by one"
    time = sum(steady.values()) + once + rows
    parts = steady | {"memory": steady["memory"] + once + rows}
    return Microbatch(time, bound + rows, parts, problem.graph.work * system.chips, chip.peak * system.chips, plan)
