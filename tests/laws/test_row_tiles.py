"""The bounds of each number of tiles of rows hold for the mappings with that number."""

from __future__ import annotations

import math
from random import Random

import pytest
from tests.certificates.test_compulsory_bounds import drawn

from halley import load_chip
from halley.cost.evaluate import evaluate
from halley.ir.mapping import Hold
from halley.ir.workload import Workload
from halley.mapping.bounds.compulsory import CompulsoryBounds
from halley.mapping.bounds.row_tiles import RowTiles, least_work, row_tiles
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frames.group import frames, fusible
from halley.mapping.space.fused_group import FusedOps
from halley.mapping.space.hierarchy import hierarchy
from halley.rewrite.canonical import canonical
from halley.workloads import attention, gated_mlp, gemm_softmax, transformer_layer

WORKLOADS = (
    lambda draw: gemm_softmax(draw.choice([300, 2048]), 256, 128),
    lambda draw: gemm_softmax(512, 1024, 64, b=draw.choice([1, 3])),
    lambda draw: attention(1, 4, 2, 512, 512, 64),
    lambda draw: gated_mlp(draw.choice([512, 2048]), 256, 512),
)


@pytest.mark.parametrize("name", ["edge", "cloud"])
@pytest.mark.parametrize("made", range(len(WORKLOADS)))
def test_no_mapping_with_so_many_tiles_costs_less(name: str, made: int) -> None:
    draw, chip = Random(f"{name} {made}"), load_chip(name)
    work, machine = WORKLOADS[made](draw), hierarchy(chip)
    group = FusedOps(work, machine, work.ops)
    kept = (*work.inputs, *work.outputs)
    floors, every = CompulsoryBounds(work, chip, machine, work.ops, kept), list(row_tiles(group))
    shared = [frame for frame in frames(work, machine, work.ops) if frame.name.startswith("through") and not frame.partition]
    judged = 0
    for frame in draw.sample(shared, min(12, len(shared))):
        for _ in range(12):
            skeletons = tuple(draw.choice(stage.skeletons) for stage in frame.stages)
            tiles = drawn(frame, skeletons, draw)
            tree = Hold(machine.outer, tuple((each,) for each in kept), GroupMapping(frame, skeletons, tiles).tree(), 1)
            found = evaluate(work, chip, canonical(tree, work.dims))
            if any(used > chip.memory(memory).capacity for memory, used in found.footprint.items()):
                continue
            number = math.ceil(work.dims[group.row] / tiles["rows"])
            own = [each for each in every if each.fewest <= number][-1]  # at least this many fit
            bound = floors._on_tiles(group, own)
            assert float(found.time) >= bound["time"] * (1 - 1e-12), (frame.name, number)
            assert float(found.energy) >= bound["energy"] * (1 - 1e-12), (frame.name, number)
            judged += 1
    assert judged


def test_work_of_one_round_and_of_many() -> None:
    assert least_work(3.0, 2.0, RowTiles(1, 8.0, 1.0)) == 5.0
    assert least_work(3.0, 2.0, RowTiles(1, 8.0, 4.0)) == 3.5
    assert least_work(3.0, 2.0, RowTiles(1, 8.0, math.inf)) == 3.0


def test_weights_are_read_for_each_tile_of_rows() -> None:
    """A layer's weights do not stay: with what its kernels hand over the rows are cut, and the bound says so."""
    chip = load_chip("cloud")
    work = transformer_layer(tokens=2048, model=4096, heads=32, kv_heads=8, head_dim=128, hidden=14336)
    names = ("queries", "scores", "scale", "max", "exp", "sum", "divide", "values", "output")
    names += ("add_attention", "sum_squares3", "rrms3", "normalise3", "gate", "up")
    ops = tuple(work.op(name) for name in names)
    group = FusedOps(work, hierarchy(chip), ops)
    assert fusible(group)
    assert next(iter(row_tiles(group))).fewest > 4
    kept = tuple(dict.fromkeys(name for op in ops for name in op.inputs))
    whole = CompulsoryBounds(work, chip, hierarchy(chip), ops, kept)
    assert whole.group()["time"] > 1.1 * whole._group(None)["time"]


def test_most_online_groups_have_no_frame() -> None:
    """A running softmax lives in attention alone: with further kernels there is no frame."""
    work: Workload = transformer_layer(tokens=64, model=64, heads=4, kv_heads=2, head_dim=16, hidden=128, variant="online")
    machine = hierarchy(load_chip("cloud"))
    assert not fusible(FusedOps(work, machine, work.ops))
    assert not frames(work, machine, work.ops)
