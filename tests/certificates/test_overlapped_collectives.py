"""Vector stages whose collectives overlap their operations: found by the search, better than one after the other, executed and
simulated."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.certificates.exhaustive import draw_chip
from tests.reference.test_counts import Checker

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.mapping import Collective, Hold, Node, Overlap, children, walk
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.rewrite.legality import faults
from halley.simulate.simulation import simulate
from halley.workloads import build, gemm_layernorm, gemm_rmsnorm, gemm_softmax, variants


def collectives_beside_operations(tree: Node) -> list[Overlap]:
    """The overlaps with a child of collectives alone."""
    found = []
    for _, node in walk(tree):
        if isinstance(node, Overlap):
            leaves = [[leaf for _, leaf in walk(child) if not children(leaf)] for child in node.children]
            if any(all(isinstance(leaf, Collective) for leaf in own) for own in leaves):
                found.append(node)
    return found


def draw_rows(draw: random.Random) -> Workload:
    m, n, k = draw.randint(2, 6), draw.randint(3, 9), draw.randint(1, 2)
    return draw.choice([gemm_softmax, gemm_layernorm, gemm_rmsnorm])(m, n, k)


@pytest.mark.parametrize(
    ("workload", "chip"),
    [
        (gemm_layernorm(64, 128, 64), "edge"),
        (gemm_rmsnorm(64, 128, 64), "edge"),
        (gemm_softmax(64, 128, 64), "edge"),
        (gemm_softmax(64, 4096, 64), "cloud"),
    ],
    ids=["layernorm", "rmsnorm", "softmax", "long softmax"],
)
def test_winners_hide_collectives_behind_operations(workload: Workload, chip: str) -> None:
    machine = load_chip(chip)
    best = optimise(Problem(workload, machine, baselines=False)).best
    assert best.certificate.gap == 0.0
    assert collectives_beside_operations(best.plan)
    assert not faults(best.plan, workload, machine)
    assert simulate(workload, machine, best.plan).time == pytest.approx(best.estimate.time, rel=0.15)


@pytest.mark.medium
@pytest.mark.parametrize("seed", [11, 20])
def test_winners_execute_and_count_as_costed(seed: int) -> None:
    draw = random.Random(seed)
    chip, workload = draw_chip(draw), draw_rows(draw)
    best = optimise(Problem(workload, chip, baselines=False)).best
    assert collectives_beside_operations(best.plan)
    mapped = next(one for one in (workload, *variants(workload)) if one.variant == best.variant)
    assert Checker(mapped, chip, seed)(best.plan)


@pytest.mark.medium
def test_no_tile_size_of_the_shape_is_better_than_the_winner() -> None:
    """Every size of the two loops over rows of a mapping that the search finds, and the same without overlap."""
    workload, chip = gemm_layernorm(16, 32, 8), load_chip("edge")
    value = optimise(Problem(workload, chip, baselines=False)).best.certificate.value
    text = """
        hold dram: A B gain bias P
          spread n by 16 over cluster.x
            spread n by 8 over cluster.y
              hold obuf: S mu v|r
                sequence
                  hold wbuf x2: B
                    for m by {outer}
                      hold ibuf x2: A
                        compute gemm
                  hold obuf: gain bias
                    for m by {inner}
                      hold obuf x2: P
                        {together}
                          compute mean
                          sequence
                            all-reduce mu over cluster.x with {algorithm}
                            all-reduce mu over cluster.y with {algorithm}
                          compute variance
                          sequence
                            all-reduce v over cluster.x with {algorithm}
                            all-reduce v over cluster.y with {algorithm}
                          sequence
                            compute rstd
                            compute normalise
    """
    for outer in range(1, 17):
        for inner in range(1, 17):
            for together in ("overlap", "sequence"):
                tree = parse(text.format(outer=outer, inner=inner, together=together, algorithm="centre"))
                assert not faults(tree, workload, chip)
                assert float(evaluate(workload, chip, tree).time) >= value * (1 - 1e-9)


def test_as_many_rounds_are_in_flight_as_children() -> None:
    """The first of five children may be four rounds ahead of the last, also where no number of buffers limits it."""
    workload, chip = gemm_layernorm(64, 128, 64), load_chip("edge")
    tree = optimise(Problem(workload, chip, baselines=False)).best.plan
    (node,) = collectives_beside_operations(tree)
    count = len(node.children)
    starts: dict[str, list[float]] = {}
    stops: dict[str, list[float]] = {}
    for interval in simulate(workload, chip, tree).intervals:
        if interval.server.resource[0] == "engine":
            starts.setdefault(interval.name, []).append(interval.start)
            stops.setdefault(interval.name, []).append(interval.stop)
    first, last = starts["compute mean"], stops["compute normalise"]
    assert len(first) == len(last) > count
    assert all(start >= stop - 1e-15 for start, stop in zip(first[count:], last, strict=False))
    assert any(start < stop for start, stop in zip(first[count - 1 :], last, strict=False))


def test_statistics_that_leave_have_a_buffer_more() -> None:
    """What a scan's readers add up over members lacks the long dim and is drained, as well as handed over to the collective."""
    whole, chip = build("mamba", {"length": 16, "model": 8}), load_chip("cloud")
    ops = (whole.op("scan"), whole.op("read"))
    names = dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs))
    tensors = {name: whole.tensors[name] for name in names}
    dims = {dim: whole.dims[dim] for tensor in tensors.values() for dim in tensor.dims}
    workload = replace(whole, ops=ops, tensors=tensors, dims=dims, outputs=ops[1].outputs, kernels=())
    shapes = [
        (frame, skeleton)
        for frame in frames(workload, hierarchy(chip), ops)
        for stage in frame.stages
        for skeleton in stage.skeletons
        if "overlapped" in skeleton.name
    ]
    assert shapes
    for frame, skeleton in shapes:
        tiles = {slot.name: 1 for slot in (*frame.shared, *skeleton.slots)}
        held = tuple((name,) for name in names if workload.producer(name) is None or name in workload.outputs)
        tree = Hold("dram", held, frame.tree(tiles, [skeleton.build(tiles)]))
        assert not [str(fault) for fault in faults(tree, workload, chip) if "buffers" in str(fault)]
