"""Numbers of buffers: what is costed with open ones against plain trees, one by one; and what choosing them is worth."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.certificates.exhaustive import draw_chip, draw_workload, group_search

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.cost.events import Path
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node, Spatial, Temporal, walk
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.mapping.solve.group import fits
from halley.mapping.solve.more_buffers import add_buffers
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import Frame, GroupSpace
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.stages import BUFFERS
from halley.simulate.simulation import simulate
from halley.workloads import gemm


def drawn(seed: int) -> tuple[Workload, Chip, GroupMapping, Frame]:
    """A mapping of a whole small workload in some frame."""
    draw = random.Random(seed)
    while True:
        workload, chip = draw_workload(draw), draw_chip(draw)
        space = list(frames(workload, hierarchy(chip), workload.ops))
        if space:
            frame = draw.choice(space)
            skeletons = tuple(draw.choice(stage.skeletons) for stage in frame.stages)
            tiles: dict[str, int] = {}
            for slot in (*frame.shared, *(slot for skeleton in skeletons for slot in skeleton.slots)):
                tiles[slot.name] = draw.choice(slot.sizes(int(slot.limit(tiles))))
            return workload, chip, GroupMapping(frame, skeletons, tiles), frame


def put(workload: Workload, node: Node) -> Node:
    """A tree under the outermost Hold, of all that the workload reads or gives."""
    made = {name for op in workload.ops for name in op.outputs}
    return Hold("dram", tuple((name,) for name in workload.tensors if name not in made or name in workload.outputs), node, 1)


@pytest.mark.parametrize("seed", range(40))
def test_open_numbers_of_buffers_cost_what_plain_trees_do(seed: int) -> None:
    """Every combination at once, 0 among them, against the tree that is built with each: Holds of none are not in it."""
    workload, chip, choice, frame = drawn(seed)
    slots = [s for s in (*frame.shared, *(s for k in choice.skeletons for s in k.slots)) if s.dim == BUFFERS]
    draw = random.Random(seed)
    rows = [{slot.name: draw.choice(slot.sizes(int(slot.limit({})))) for slot in slots} for _ in range(12)]
    columns = {slot.name: np.array([float(row[slot.name]) for row in rows]) for slot in slots}
    together = evaluate(workload, chip, put(workload, replace(choice, tiles={**choice.tiles, **columns}).tree()))
    for index, row in enumerate(rows):
        tree = put(workload, replace(choice, tiles={**choice.tiles, **row}).tree())
        assert all(node.buffers > 0 for _, node in walk(tree) if isinstance(node, Hold))
        alone = evaluate(workload, chip, tree)
        assert of(together, index) == pytest.approx(of(alone, 0), rel=1e-12, abs=1e-30)


def of(estimate: Estimate, index: int) -> list[float]:
    """Time, energy and footprints of one row."""
    values = (estimate.time, estimate.energy, *(estimate.footprint.get(name, 0) for name in ("glb", "ibuf", "wbuf", "obuf")))
    return [float(np.broadcast_to(value, max(index + 1, np.size(value)))[index]) for value in values]


@pytest.mark.parametrize("seed", range(10))
def test_second_buffers_make_a_plan_no_slower_and_change_no_energy(seed: int) -> None:
    workload, chip, choice, frame = drawn(seed)
    slots = [s for s in (*frame.shared, *(s for k in choice.skeletons for s in k.slots)) if s.dim == BUFFERS]
    single = replace(choice, tiles={**choice.tiles, **{s.name: min(1, choice.tiles[s.name]) for s in slots}})
    chip = replace(chip, static_power=0.0)
    before = evaluate(workload, chip, put(workload, single.tree()))
    if fits(chip, before):
        search = group_search(workload, chip, GroupSpace((frame,)), lambda node: put(workload, node), ("energy",))
        after = evaluate(workload, chip, put(workload, add_buffers(search.costs, single).tree()))
        assert fits(chip, after)
        assert after.energy == pytest.approx(before.energy, rel=1e-12)
        assert after.time <= before.time * (1 + 1e-12)


SUMS_RETURN = """hold dram: A B C
  spread n by 256 over mxu.x
    for k by 512
      hold cmem x2: C
        for n by 128
          hold local x2: C
            for k by 128
              hold local x2: B
                hold local x2: A
                  compute gemm
"""
"""Partial sums return from DRAM or from a second buffer, by the number of buffers of the Hold between."""


def test_a_hold_of_no_buffers_changes_nothing_where_partial_sums_return() -> None:
    """The first iteration of the loop over k takes as long as it does without that Hold (decision 0149)."""
    workload, chip = gemm(2048, 2048, 2048), load_chip("tpu-v4")
    every = parse(SUMS_RETURN)
    (place,) = (path for path, node in walk(every) if isinstance(node, Hold) and node.memory == "cmem")

    def with_buffers(node: Node, left: Path) -> Node:
        assert isinstance(node, Hold | Temporal | Spatial)
        if left:
            return replace(node, body=with_buffers(node.body, left[1:]))
        return replace(node, buffers=np.array([0.0, 1.0, 2.0]))

    together = evaluate(workload, chip, with_buffers(every, place))
    own = [f"      hold cmem{count}: C\n" for count in ("", " x2")]
    texts = [SUMS_RETURN.replace(own[1], ""), SUMS_RETURN.replace(own[1], own[0]), SUMS_RETURN]
    for index, text in enumerate(texts):
        alone = evaluate(workload, chip, parse(text))
        assert np.broadcast_to(together.time, 3)[index] == pytest.approx(float(alone.time), rel=1e-12)
    assert float(evaluate(workload, chip, parse(texts[0])).time) == pytest.approx(76.08454095e-6, rel=1e-9)
    assert simulate(workload, chip, parse(texts[0])).time == pytest.approx(79.36134095e-6, rel=1e-9)
