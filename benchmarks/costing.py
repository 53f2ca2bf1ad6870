"""Mappings costed per second: one by one, as a batch, and by the search as a whole; on one core."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Measurement, per_second
from halley.cost.evaluate import evaluate
from halley.formulas.numbers import Number
from halley.io.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node
from halley.ir.workload import Workload
from halley.search.frames import frames
from halley.search.optimise import optimise
from halley.search.problem import Problem
from halley.search.solve import BATCH
from halley.search.template import template
from halley.workloads import gemm_softmax

BATCH_TARGET = 1e6


def batch(workload: Workload, chip: Chip) -> tuple[Node, int]:
    """A fused GEMM-Softmax whose GEMM tiles are arrays, each on an axis of its own, and how many mappings that makes."""
    machine = template(chip)
    frame = max(frames(workload, machine, workload.ops), key=lambda item: len(item.stages[0].skeletons[0].slots))
    tiles: dict[str, Number] = {slot.name: slot.sizes[len(slot.sizes) // 2] for slot in frame.shared}
    for stage in frame.stages:
        tiles |= {slot.name: slot.sizes[len(slot.sizes) // 2] for slot in stage.skeletons[0].slots}
    slots = frame.stages[0].skeletons[0].slots
    shape = [1] * len(slots)
    for index, slot in enumerate(slots):
        room = BATCH // math.prod(shape)
        sizes = np.array(slot.sizes[:room], dtype=np.float64)
        shape[index] = len(sizes)
        tiles[slot.name] = sizes.reshape([-1 if position == index else 1 for position in range(len(slots))])
    tree = frame.wrap(tiles, [stage.skeletons[0].build(tiles) for stage in frame.stages])
    outer = tuple((name,) for name in (*workload.inputs, *workload.outputs))
    return Hold(machine.outer, outer, tree), math.prod(shape)


def measurements() -> Iterator[Measurement]:
    chip = load_chip("edge")
    small = gemm_softmax(512, 512, 64)
    plan = optimise(Problem(small, chip, baselines=False, fixed_variant=True)).best.plan
    rate = per_second(lambda: evaluate(small, chip, plan), 1)
    yield Measurement("costing: GEMM-Softmax mappings one by one", rate, "mappings/s")

    large = gemm_softmax(4096, 4096, 4096)
    tree, count = batch(large, chip)
    rate = per_second(lambda: evaluate(large, chip, tree), count)
    yield Measurement(f"costing: GEMM-Softmax mappings in batches of {count}", rate, "mappings/s", BATCH_TARGET, most=False)

    certificate = optimise(Problem(large, chip, baselines=False)).best.certificate
    rate = (certificate.costed + certificate.bounds) / certificate.seconds
    yield Measurement("costing: whole search of GEMM-Softmax 4096^3, edge", rate, "mappings and bounds/s")
