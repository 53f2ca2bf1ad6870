"""The least time of a contraction at the array is no longer than that of any of its mappings, drawn close to it or the best."""

from __future__ import annotations

from random import Random

import pytest
from tests.certificates.test_compulsory_bounds import drawn

from halley import Problem, load_chip, optimise
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip, Dataflow
from halley.ir.mapping import Hold
from halley.ir.workload import Workload
from halley.mapping.bounds.compulsory import CompulsoryBounds
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.rewrite.canonical import canonical
from halley.workloads import gemm

CHIPS = ("edge", "cloud", "tpu-v4i-like", "tpu-v5e", "simba-like", "eyeriss-like", "a100", "h200", "sn30")


DTYPES = {"simba-like": "int8"}


def least(work: Workload, chip: Chip) -> float:
    return CompulsoryBounds(work, chip, hierarchy(chip), work.ops, (*work.inputs, *work.outputs)).group()["time"]


def extent(draw: Random, largest: float) -> int:
    return int(2 ** draw.uniform(0, largest))


@pytest.mark.parametrize("name", CHIPS)
def test_no_drawn_mapping_is_faster(name: str) -> None:
    draw, chip = Random(name), load_chip(name)
    machine, judged = hierarchy(chip), 0
    for _ in range(4):
        work = gemm(*(extent(draw, 12) for _ in range(3)), b=draw.choice([1, 1, 3]), dtype=DTYPES.get(name, "bf16"))
        bound = least(work, chip)
        space = [frame for frame in frames(work, machine, work.ops) if all(stage.skeletons for stage in frame.stages)]
        for frame in draw.sample(space, min(10, len(space))):
            skeletons = tuple(draw.choice(stage.skeletons) for stage in frame.stages)
            mapping = GroupMapping(frame, skeletons, drawn(frame, skeletons, draw))
            tree = Hold(machine.outer, tuple((each,) for each in (*work.inputs, *work.outputs)), mapping.tree(), 1)
            found = evaluate(work, chip, canonical(tree, work.dims))
            if all(used <= chip.memory(memory).capacity for memory, used in found.footprint.items()):
                assert float(found.time) >= bound * (1 - 1e-12), (work.dims, frame.name)
                judged += 1
    assert judged


@pytest.mark.medium
@pytest.mark.parametrize("name", ["edge", "cloud", "tpu-v4i-like", "simba-like"])
def test_no_best_mapping_is_faster(name: str) -> None:
    """Skew counts on an array whose folds wait for each other: the bound is close there."""
    draw, chip, closest = Random(name), load_chip(name), 2.0
    sizes = [(2048, 4096, 4096), (256, 2048, 2048), *((extent(draw, 11), extent(draw, 11), extent(draw, 11)) for _ in range(2))]
    for rows, columns, depth in sizes:
        work = gemm(rows, columns, depth, dtype=DTYPES.get(name, "bf16"))
        value = optimise(Problem(work, chip, baselines=False)).best.certificate.value
        assert least(work, chip) <= value * (1 + 1e-12), work.dims
        closest = min(closest, value / least(work, chip))
    assert chip.matrix is not None
    assert closest < 1.1 or chip.matrix.dataflow is Dataflow.NONE
