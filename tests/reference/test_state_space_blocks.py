"""State-space blocks and convolutions: laws between them, counts of overlapping windows, and the rules that they brought."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.reference import sequences
from tests.reference.generate import numbers, random_trees
from tests.reference.graphs import evaluate as whole
from tests.reference.oracles import inputs, oracle
from tests.reference.problems import random_chip, random_workload
from tests.reference.test_counts import SEEDS, Checker, assert_agrees, many
from tests.reference.trees import chip, collect, hold, nest, op, traffic, workload

from halley.cost.evaluate import evaluate
from halley.errors import BadInput, IllegalMapping
from halley.execute.interpreter import run
from halley.ir.affine import AffineIndex
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Hold, Node, Sequence, Spatial, Temporal
from halley.ir.workload import OpKind, Workload
from halley.rewrite.legality import faults
from halley.verify.plain import plain
from halley.workloads import build, conv_chain, hyena, mamba, mamba_2, variants

SUM = (AffineIndex("h", (("p", 1), ("r", 1))),)


def small_chip(x: int = 2, y: int = 2, **more: object) -> Chip:
    found = chip(x, y, **more)  # type: ignore[arg-type]
    assert found.vector is not None
    return replace(found, vector=replace(found.vector, rate=dict.fromkeys(("add", "mul", "max", "exp", "div", "rsqrt"), 1.0)))


# ---------------------------------------------------------------- formulas equal execution


@given(SEEDS)
@many(25)
def test_convolutions_on_grown_trees(seed: int) -> None:
    random = Random(seed)
    item, machine = random_workload(random, ("conv-chain",)), random_chip(random)
    assert sum(1 for _ in random_trees(random, item, machine, Checker(item, machine, seed % 1000), 20))


@pytest.mark.slow
@pytest.mark.parametrize("kind", sequences.SIZES)
@given(SEEDS)
@many(200)
def test_many_grown_trees(kind: str, seed: int) -> None:
    random = Random(seed)
    item, machine = random_workload(random, (kind,)), random_chip(random)
    assert sum(1 for _ in random_trees(random, item, machine, Checker(item, machine, seed % 1000), 30))


def one_by_one(item: Workload, tile: int, spread: bool) -> Node:
    """Every op alone, out of the shared buffer: tiles of all dims that it does not need whole, one of them over the clusters."""
    nodes: list[Node] = []
    for step in item.ops:
        offsets = {dim for index in step.indices for dim in index.dims[1:]}
        cut = [dim for dim in step.dims if dim not in item.whole(step)]
        node: Node = hold("obuf", " ".join(dict.fromkeys((*step.inputs, *step.outputs))), Compute(step.name))
        for dim in cut:
            node = Temporal(dim, min(tile, item.dims[dim]), node)
        free = [dim for dim in cut if dim not in item.reduced(step) and dim not in offsets]
        if spread and free:
            node = Spatial(free[0], -(-item.dims[free[0]] // 2), "cluster", "x", node)
        nodes.append(node)
    every = " ".join(item.tensors)
    ends = " ".join(name for name in item.tensors if name in (*item.inputs, *item.outputs))
    return nest(("dram", ends), ("glb", every), Sequence(tuple(nodes)))


CASES: tuple[Workload, ...] = (
    *(work for work in variants(mamba_2(chunks=3, chunk=4, model=3, heads=3, head_dim=2, state=3, taps=3))),
    mamba(length=5, model=4, inner=5, state=3, rank=2, taps=3, batch=3),
    hyena(length=5, model=3, batch=3),
    conv_chain(height=7, width=6, channels=3, filters=4, images=2),
)


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("tile", [2, 3, 99])
@pytest.mark.parametrize("item", CASES, ids=lambda item: f"{item.name} {item.variant}".strip())
def test_ragged_tiles_and_splits(item: Workload, tile: int, spread: bool) -> None:
    machine, tree = small_chip(), one_by_one(item, tile, spread)
    assert faults(tree, item, machine) == []
    arrays = inputs(item, 3)
    done = run(item, machine, tree, arrays)
    for name, value in oracle(item, arrays).items():
        np.testing.assert_allclose(done.outputs[name], value, rtol=1e-7, atol=1e-9 * np.abs(value).max())
    assert_agrees(item, machine, tree, done)


# ---------------------------------------------------------------- what overlaps is counted, by hand

LINE = workload(
    {"h": 9, "p": 7, "r": 3, "c": 2, "f": 4},
    "X:hc U:prc W:rcf S:pf",
    (op("U", OpKind.MAP, "X", "U", "prc", indices=SUM), op("S", OpKind.CONTRACT, "U W", "S", "prcf")),
    "S",
)
ENDS, LOCAL = "X W S", nest(("ibuf", "X U"), ("wbuf", "W"), Sequence((Compute("U"), Compute("S"))))


@pytest.mark.parametrize(
    ("cuts", "rows", "most"),
    [
        ((), 9, 9),
        ((("p", 3),), 5 + 5 + 3, 5),  # tiles of 3, 3 and 1
        ((("p", 2),), 4 + 4 + 4 + 3, 4),
        ((("p", 4, "x"),), 6 + 5, 6),
        ((("p", 4, "x"), ("p", 3)), (5 + 3) + 5, 5),  # member 0: 3 and 1, member 1: 3
    ],
)
def test_a_window_brings_its_halo(cuts: tuple[tuple[object, ...], ...], rows: int, most: int) -> None:
    """Rows of two channels in two bytes; what neighbours share is brought to each."""
    tree = nest(("dram", ENDS), ("glb", ENDS), *cuts, ("obuf", "S"), LOCAL)
    machine = small_chip(2 if any(len(cut) == 3 for cut in cuts) else 1, 1)
    assert faults(tree, LINE, machine) == []
    arrays = {name: np.random.default_rng(1).normal(size=[LINE.dims[d] for d in LINE.tensors[name].dims]) for name in "XW"}
    done = run(LINE, machine, tree, arrays)
    expected = sum(arrays["X"][r : r + 7] @ arrays["W"][r] for r in range(3))
    np.testing.assert_allclose(done.outputs["S"], expected)
    assert traffic(done.counters.writes, "fill")["ibuf", "X"] == rows * 2 * 2
    assert traffic(done.counters.reads, "operand")["ibuf", "X"] == rows * 2 * 2
    tile = most - 2
    assert done.counters.footprint["ibuf"] == most * 2 * 2 + tile * 3 * 2 * 2
    assert traffic(done.counters.writes, "result")["ibuf", "U"] == 7 * 3 * 2 * 2
    assert_agrees(LINE, machine, tree, done)


def test_taps_in_time_read_shifted_rows() -> None:
    """One tap after the other: as often as there are taps, a box of as many rows as windows."""
    loops = nest(("p", 4), ("r", 1), ("ibuf", "X U"), Compute("U"))
    product = nest(("ibuf", "U"), ("wbuf", "W"), ("obuf", "S"), Compute("S"))
    tree = nest(("dram", ENDS), ("glb", ENDS + " U"), Sequence((loops, product)))
    arrays = {name: np.ones([LINE.dims[d] for d in LINE.tensors[name].dims]) for name in "XW"}
    done = run(LINE, small_chip(1, 1), tree, arrays)
    assert traffic(done.counters.writes, "fill")["ibuf", "X"] == 3 * 7 * 2 * 2
    assert_agrees(LINE, small_chip(1, 1), tree, done)


@pytest.mark.parametrize(("spread", "rows"), [(False, 5), (True, 5 + 5)])
def test_the_first_fill_is_a_halo_for_each_member(spread: bool, rows: int) -> None:
    """The ramp of a double-buffered hold: 5 rows of two channels in two bytes for each member, all read at 1 GB/s."""
    inner = Hold("ibuf", (("X",),), nest(("ibuf", "U"), Compute("U")), buffers=2)
    product = nest(("ibuf", "U"), ("wbuf", "W"), ("obuf", "S"), Compute("S"))
    walked: Node = nest(("p", 4, "x"), ("p", 3), inner) if spread else nest(("p", 3), inner)
    tree = nest(("dram", ENDS), ("glb", ENDS + " U"), Sequence((walked, product)))
    nodes = evaluate(LINE, small_chip(2 if spread else 1, 1), tree).nodes.values()
    assert max(node.ramp_up for node in nodes) == pytest.approx(rows * 2 * 2 / 1e9)


@pytest.mark.parametrize("spread", [False, True])
def test_many_tiles_at_once_cost_what_each_costs(spread: bool) -> None:
    """Tiles of p over the clusters, of p in time and of r in time, as arrays: every entry of the batch, bit for bit."""
    machine, choices = small_chip(4, 1), ([2, 4, 7], [1, 2, 3, 7], [1, 2, 3])

    def tree(outer: Any, inner: Any, taps: Any) -> Node:
        walked: Node = Temporal("p", inner, Temporal("r", taps, Hold("ibuf", (("X",),), nest(("ibuf", "U"), Compute("U")), 2)))
        walked = Spatial("p", outer, "cluster", "x", walked) if spread else Temporal("p", outer, walked)
        product = nest(("ibuf", "U"), ("wbuf", "W"), ("obuf", "S"), Compute("S"))
        return nest(("dram", ENDS), ("glb", ENDS + " U"), Sequence((walked, product)))

    shapes = ((-1, 1, 1), (1, -1, 1), (1, 1, -1))
    arrays = [np.array(sizes, dtype=float).reshape(shape) for sizes, shape in zip(choices, shapes, strict=True)]
    batch = numbers(evaluate(LINE, machine, tree(*arrays)))
    for place in np.ndindex(*map(len, choices)):
        alone = numbers(evaluate(LINE, machine, tree(*(sizes[i] for sizes, i in zip(choices, place, strict=True)))))
        for key, value in alone.items():
            assert np.broadcast_to(batch[key], tuple(map(len, choices)))[place] == value, key


# ---------------------------------------------------------------- rules


def broken(tree: Node, item: Workload) -> Iterator[str]:
    """What the static check and the interpreter say."""
    yield " ".join(map(str, faults(tree, item, small_chip())))
    with pytest.raises(IllegalMapping) as caught:
        run(item, small_chip(), tree, inputs(item))
    yield str(caught.value)


CHAIN = workload(
    {"h": 6, "p": 4, "r": 3, "c": 2},
    "X:hc Y:hc U:prc",
    (op("Y", OpKind.MAP, "X", "Y", "hc", function="relu"), op("U", OpKind.MAP, "Y", "U", "prc", indices=SUM)),
    "U",
)
BOTH = Sequence((Compute("Y"), Compute("U")))
BOTH_SPLIT = Sequence((Compute("Y"), nest(("r", 2, "x"), ("p", 2, "y"), Compute("U"))))
CAUSAL = workload({"t": 6, "r": 3, "c": 2}, "X:tc U:trc", (op("U", OpKind.WINDOW, "X", "U", "trc", along="t"),), "U")


@pytest.mark.parametrize(
    ("item", "tree", "told"),
    [
        (CHAIN, nest(("dram", "X U"), ("p", 2, "x"), ("obuf", "X Y U"), BOTH), "compute Y: expected no split of p or r"),
        (CHAIN, nest(("dram", "X U"), ("p", 2), ("obuf", "X Y U"), BOTH), "compute Y: expected loops in time over its own dims"),
        (CHAIN, nest(("dram", "X U"), ("obuf", "X Y U"), BOTH_SPLIT), "compute U: expected splits of one of the dims p, r"),
        (CHAIN, nest(("dram", "X U"), ("obuf", "X Y U"), ("h", 3, "x"), BOTH), "compute U: expected no split of h"),
        (
            CHAIN,
            nest(
                ("dram", "X U"),
                ("obuf", "X Y U"),
                Sequence((Compute("Y"), nest(("p", 2), Sequence((collect("shift", "Y", algorithm="neighbour"), Compute("U")))))),
            ),
            "a place outside loops and splits that cut h into overlapping parts",
        ),
        (CAUSAL, nest(("dram", "X U"), ("obuf", "X U"), ("t", 3), Compute("U")), "compute U: expected t whole"),
        (CAUSAL, nest(("dram", "X U"), ("obuf", "X U"), ("t", 3, "x"), Compute("U")), "compute U: expected t whole"),
    ],
)
def test_what_breaks_windows(item: Workload, tree: Node, told: str) -> None:
    for message in broken(tree, item):
        assert told in message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"indices": (AffineIndex("h", (("p", 1), ("r", 1)), 9),)}, "positions within h = 6"),
        ({"indices": (AffineIndex("h", (("p", 1), ("r", 0))),)}, "a sum of the op's dims (p, r, c) with coefficients"),
        ({"indices": (AffineIndex("h", (("p", 1), ("z", 1))),)}, "a sum of the op's dims (p, r, c) with coefficients"),
        ({"indices": (AffineIndex("h", (("p", 1), ("r", 1), ("p", 1))),)}, "each dim once in the sum"),
        ({"indices": (AffineIndex("p", (("r", 1),)),)}, "a dim of X that the op does not iterate"),
        ({"indices": ()}, "h in its dims, or read at p+r"),
        ({"indices": (AffineIndex("h", (("r", 1), ("p", 1))),)}, "one index over these dims everywhere"),
    ],
)
def test_windows_that_do_not_fit(change: dict[str, object], told: str) -> None:
    first = op("U", OpKind.MAP, "X", "U", "prc", indices=SUM)
    indices: object = change.get("indices", SUM)
    second = op("V", OpKind.MAP, "X", "V", "prc", indices=indices)
    with pytest.raises(BadInput, match="workload test") as caught:
        workload(CHAIN.dims, "X:hc U:prc V:prc", (first, second), "U V")  # type: ignore[arg-type]
    assert told in str(caught.value)


# ---------------------------------------------------------------- laws


def test_chunks_of_any_length_make_the_same_sequence() -> None:
    """The same 12 tokens in chunks of 1 to 12, by both algorithms."""
    sizes = {"model": 3, "heads": 2, "head_dim": 2, "state": 3, "taps": 5}
    arrays = inputs(mamba_2(12, 1, **sizes), 7)  # type: ignore[arg-type]
    tokens, results = arrays["X"].reshape(12, -1), []
    for chunk in (1, 3, 4, 12):
        for work in variants(mamba_2(12 // chunk, chunk, **sizes)):  # type: ignore[arg-type]
            made = whole(work, arrays | {"X": tokens.reshape(12 // chunk, chunk, -1)})["Y"]
            results.append(made.reshape(12, -1))
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("item", CASES[:4], ids=lambda item: f"{item.name} {item.variant}".strip())
def test_the_future_does_not_matter(item: Workload) -> None:
    arrays = inputs(item, 5)
    places = [dim for dim in item.tensors["X"].dims if dim in "tcl"]
    shape = [item.dims[dim] for dim in places]
    changed = arrays | {"X": arrays["X"].copy()}
    lead = item.tensors["X"].dims.index(places[0])
    assert lead == len(item.tensors["X"].dims) - 1 - len(places)
    late = int(np.prod(shape)) // 2
    flat = changed["X"].reshape(*changed["X"].shape[:lead], -1, item.dims["m"])
    flat[..., late, :] += 1.0
    before, after = (whole(item, each)["Y"].reshape(*flat.shape[:-1], -1) for each in (arrays, changed))
    difference = np.abs(after - before).max(axis=-1)
    assert difference[..., :late].max() < 1e-9 * np.abs(before).max()
    assert (difference[..., late] > 1e-6).all()


def test_multiply_accumulates_have_their_closed_forms() -> None:
    assert mamba(7, 4, inner=6, state=3, rank=2, batch=2).macs() == 2 * 7 * (2 * 4 * 6 + 6 * (2 + 3 + 3) + 2 * 6 + 6 * 4)
    assert hyena(7, 4, batch=2).macs() == 2 * 7 * 4 * 4 * 4
    tokens, inner = 3 * 5, 2 * 4
    scan, chunked = variants(mamba_2(3, 5, 7, 2, 4, state=6))
    assert scan.macs() == tokens * 7 * (3 * inner + 2 * 6 + 2)
    # scores, their product with x, states of chunks, and what earlier chunks add
    assert chunked.macs() - scan.macs() == tokens * (5 * 6 + 5 * inner + inner * 6 + inner * 6)
    assert conv_chain(9, 8, 2, 3, images=2).macs() == 2 * 9 * (7 * 6 * 2 * 3 + 5 * 4 * 3 * 3)


def test_a_scan_does_the_work_of_the_recurrence() -> None:
    """Two operations per state and token; a transform is counted over the padded row."""
    item = mamba(8, 2, inner=3, state=4)
    assert item.work(item.op("scan")) == {"mul": 1, "add": 1}
    assert item.op("scan").dims == ("t", "n", "e")
    padded = hyena(5, 2)
    assert padded.dims["u"] == 16
    assert padded.work(padded.op("back_1")) == {"mul": 8.0, "add": 12.0}


def test_extents_that_are_derived() -> None:
    assert {name: mamba(4, 40).dims[name] for name in "ek"} == {"e": 80, "k": 3}
    for kind, wrong, told in (
        ("conv-chain", {"height": 4, "width": 9, "channels": 1, "filters": 1}, "at least 5 for 2 layers"),
        ("conv-chain", {"height": 9, "width": 9, "channels": 1, "filters": 1, "layers": 4}, "1, 2 or 3"),
        ("conv-chain", {"height": 9, "width": 9, "channels": 1, "filters": 1, "kernel": 1}, "a single tap is a gemm"),
        ("mamba-2", {"chunks": 2**21, "chunk": 2**20, "model": 1, "heads": 1, "head_dim": 1}, "chunks x chunk"),
    ):
        with pytest.raises(BadInput, match=told):
            build(kind, wrong)


def test_ops_name_what_they_need_whole() -> None:
    def needs(item: Workload, name: str) -> tuple[str, ...]:
        return item.whole(item.op(name))

    chunked = variants(mamba_2(3, 5, 7, 2, 4))[1]
    assert needs(chunked, "window_x") == ("c", "l")
    assert needs(chunked, "source_b") == ("l", "s")
    assert needs(hyena(5, 2), "spectrum_v") == ("u", "t")
    assert needs(conv_chain(6, 6, 2, 2), "convolve_1") == ()
    assert conv_chain(6, 6, 2, 2).selectors("x0") == ("p0", "q0", "f0", "p1", "r1", "q1", "s1")


@pytest.mark.parametrize("item", CASES, ids=lambda item: f"{item.name} {item.variant}".strip())
def test_whole_arrays_give_the_same(item: Workload) -> None:
    """What `halley check` and `halley demo` compare a mapping with."""
    arrays = inputs(item, 2)
    found = plain(item, arrays)
    for name, value in oracle(item, arrays).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-9 * np.abs(value).max())
