"""Loops over the visible keys of a mask: results equal NumPy's masked attention, formulas equal what the interpreter counts, the
simulation's resources are busy as long as the formulas', and both rule books refuse the same trees."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.reference.test_counts import assert_equal
from tests.reference.trees import chip

from halley.cost.evaluate import evaluate
from halley.errors import IllegalMapping
from halley.execute.interpreter import Execution, random_inputs, run
from halley.ir.hardware import Chip, Dataflow
from halley.ir.mapping import Hold, Node, Sequence, Spatial, Temporal
from halley.ir.masks import masks
from halley.ir.text import parse, to_text
from halley.ir.workload import Workload
from halley.rewrite.legality import faults
from halley.simulate.simulation import first_iterations, simulate
from halley.verify.reduced import reduced
from halley.workloads import attention, graph

INSIDE = """
hold wbuf x2: K
  hold wbuf: V
    hold obuf: S|S2|E
      sequence
        for m by {a}
          for n by {b}
            for d by 2
              compute scores
        compute scale
        compute running_max
        compute exp
        compute running_sum
        for n by {c}
          compute values
"""
AROUND = """
hold obuf: O
  compute divide
"""


def masked(queries: int, keys: int, groups: int = 1, window: int | None = None, batch: int = 1) -> Workload:
    """Attention with running softmax, rows of ``groups`` heads stacked; with a window, each row sees so many keys."""
    return attention(batch, 2 * groups, 2, queries, keys, 4, value_dim=3, causal=True, variant="online", window=window)


def machine(draw: Random, **network: object) -> Chip:
    made = chip(multicast=draw.random() < 0.5, flow=draw.choice(list(Dataflow)), **network)  # type: ignore[arg-type]
    assert made.vector is not None
    return replace(made, vector=replace(made.vector, rate=dict.fromkeys(("add", "mul", "exp", "max", "div"), 1.0)))


def flash(outer: list[tuple[str, int, str]], rows: int, keys: int, inner: dict[str, int], visible: bool = True) -> Node:
    """Query tiles outside, spread as ``outer`` says (dim, tile, axis; none for a loop), keys walked inside."""
    loop = Temporal("n", keys, parse(INSIDE.format(**inner)), visible)
    node: Node = Hold("obuf", (("mx",), ("z",), ("U",)), Sequence((loop, parse(AROUND))), 1)
    node = Temporal("m", rows, Hold("glb", (("O",),), Hold("ibuf", (("Q",),), node, 1), 1))
    for dim, tile, axis in reversed(outer):
        node = Spatial(dim, tile, "cluster", axis, node) if axis else Temporal(dim, tile, node)
    node = Hold("glb", (("Q",), ("K",), ("V",)), Temporal("h", 1, node), 1)
    return Hold("dram", (("Q",), ("K",), ("V",), ("O",)), node, 1)


def by_numpy(work: Workload, arrays: dict[str, np.ndarray], queries: int, window: int | None) -> np.ndarray:
    """Softmax over the keys that each row sees, all at once."""
    rows, keys = np.arange(work.dims["m"])[:, None] % queries + work.dims["n"] - queries, np.arange(work.dims["n"])[None]
    hidden = (keys > rows) | (keys <= rows - (window or work.dims["n"]))
    scores = np.where(hidden, -np.inf, np.einsum("hmd,hnd->hmn", arrays["Q"], arrays["K"]) / 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ arrays["V"])


def assert_agrees(work: Workload, on: Chip, tree: Node, done: Execution, window: int | None) -> None:
    found, counted = evaluate(work, on, tree), done.counters
    assert_equal("reads", found.reads(), counted.reads)
    assert_equal("writes", found.writes(), counted.writes)
    assert_equal("ports", found.ports(), counted.ports)
    assert_equal("work", found.work(), counted.work)
    for name, room in counted.footprint.items():  # under a window no member may ever see a tile of keys that is full
        assert found.footprint[name] == room or (window and found.footprint[name] > room)


def outer_loops(draw: Random, m: int) -> list[tuple[str, int, str]]:
    half = -(-m // 2)
    rows = draw.randint(1, m)
    return draw.choice(
        [
            [],
            [("h", 1, "x")],
            [("m", half + draw.randint(0, 1), "x")],
            [("m", half, "x"), ("m", -(-half // 2), "y")],
            [("m", rows, ""), ("m", -(-rows // 2), "x")],
        ]
    )


def check(seed: int) -> None:
    draw = Random(seed)
    queries, groups = draw.randint(1, 9), draw.choice([1, 1, 2, 3])
    keys = queries + draw.choice([0, 0, draw.randint(0, 6)])
    window = draw.choice([None, None, draw.randint(1, keys)])
    work, on = masked(queries, keys, groups, window), machine(draw)
    m = work.dims["m"]
    inner = {"a": draw.randint(1, m), "b": draw.randint(1, keys), "c": draw.randint(1, keys)}
    tree = flash(outer_loops(draw, m), draw.randint(1, m), draw.randint(1, keys), inner)
    assert parse(to_text(tree)) == tree
    assert not faults(tree, work, on)
    arrays = random_inputs(work, seed)
    done = run(work, on, tree, arrays)
    np.testing.assert_allclose(done.outputs["O"], by_numpy(work, arrays, queries, window), rtol=1e-6)
    assert_agrees(work, on, tree, done, window)


@pytest.mark.parametrize("block", range(4))
def test_drawn_trees(block: int) -> None:
    for seed in range(8 * block, 8 * block + 8):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_drawn_trees(block: int) -> None:
    for seed in range(1000 + 100 * block, 1000 + 100 * block + 100):
        check(seed)


def test_whole_tiles_are_left_out_and_nothing_else() -> None:
    """Of 4 x 4 tiles, the 10 on and below the diagonal: work and traffic of keys are 10/16 of all, those of rows stay."""
    work, on, inner = masked(8, 8), machine(Random(0)), {"a": 2, "b": 2, "c": 2}
    every, seen = (evaluate(work, on, flash([], 2, 2, inner, visible)) for visible in (False, True))
    assert seen.work()["mac"] * 16 == every.work()["mac"] * 10
    assert seen.reads()["glb", "K", "fill"] * 16 == every.reads()["glb", "K", "fill"] * 10
    assert seen.reads()["glb", "Q", "fill"] == every.reads()["glb", "Q", "fill"]
    window = evaluate(masked(8, 8, window=3), on, flash([], 2, 2, inner))
    assert window.work()["mac"] * 16 == every.work()["mac"] * 7  # the diagonal, and the tile before it


def test_a_late_chunk_sees_all_earlier_keys() -> None:
    """The queries are the last positions: of 2 new tokens behind 6, one tile is hidden; of one token none."""
    on, inner = machine(Random(0)), {"a": 1, "b": 1, "c": 1}
    chunk = evaluate(masked(2, 8), on, flash([], 1, 1, inner)).work()["mac"]
    assert chunk * 16 == evaluate(masked(2, 8), on, flash([], 1, 1, inner, False)).work()["mac"] * 15
    for visible in (False, True):
        assert evaluate(masked(1, 8), on, flash([], 1, 1, inner, visible)).work()["mac"] == 4 * 2 * 8 * (4 + 3)  # 4 members


SPLITS: list[list[tuple[str, int, str]]] = [[], [("m", 4, "x")], [("m", 4, ""), ("m", 2, "x")], [("m", 4, "x"), ("m", 2, "y")]]


@pytest.mark.parametrize(("outer", "window"), [([], 3), *((outer, None) for outer in SPLITS)])
def test_resources_are_as_busy_in_the_simulation(outer: list[tuple[str, int, str]], window: int | None) -> None:
    work, on = masked(8, 8, window=window), machine(Random(1))
    assert on.matrix is not None
    assert on.vector is not None
    on = replace(on, matrix=replace(on.matrix, latency=5e-9), vector=replace(on.vector, latency=3e-9))
    tree = flash(outer, 2, 2, {"a": 2, "b": 2, "c": 2})
    found: dict[object, float] = {}
    for server, busy in simulate(work, on, tree).busy.items():
        found[server.resource] = found.get(server.resource, 0.0) + busy
    assert found == pytest.approx({name: float(busy) for name, busy in evaluate(work, on, tree).busy.items()}, rel=1e-9)


def test_the_critical_member_has_the_rows_that_see_most() -> None:
    """Contiguous shares of rows: the last one works on 7 of the 10 pairs of tiles. Distributed cyclically: on 6."""
    work, on, inner = masked(8, 8), machine(Random(2)), {"a": 2, "b": 2, "c": 2}
    alone, shares, turns = (
        evaluate(work, on, flash(outer, 2, 2, inner)) for outer in ([], [("m", 4, "x")], [("m", 4, ""), ("m", 2, "x")])
    )
    engine = ("engine", "mxu")
    assert float(shares.busy[engine]) * 10 == pytest.approx(float(alone.busy[engine]) * 7, rel=1e-12)
    assert float(turns.busy[engine]) * 10 == pytest.approx(float(alone.busy[engine]) * 6, rel=1e-12)


# ---- which ops have the mask -----------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["plain", "deferred", "online"])
def test_ops_between_scores_and_values_have_the_mask(variant: str) -> None:
    work = attention(1, 2, 2, 4, 6, 8, causal=True, variant=variant)
    have = masks(work)
    assert set(have) == {op.name for op in work.ops if {"m", "n"} <= set(op.dims)}
    assert {str(mask) for mask in have.values()} == {"causal, offset 2"}
    assert not masks(attention(1, 2, 2, 4, 6, 8, variant=variant))


def test_an_op_that_makes_something_of_what_is_hidden_has_no_mask() -> None:
    lines = [
        "S[m,n] = Q[m,d] * K[d,n]",
        "T[m,n] = scale_mask(S[m,n], scale=1, causal=1, queries=4, offset=0)",
        "E[m,n] = exp(T[m,n])",
        "G[m,n] = sigmoid(E[m,n])",
        "O[m,e] = E[m,n] * V[n,e]",
    ]
    dims = {"m": 4, "n": 4, "d": 2, "e": 2}
    assert set(masks(graph(lines, dims, outputs=["G", "O"]))) == {"S", "T", "E", "O"}
    assert set(masks(graph(lines, dims, outputs=["G", "O", "S"]))) == {"T", "E", "O"}  # S leaves, hidden or not


# ---- rules -----------------------------------------------------------------------------------------


def refused(work: Workload, tree: Node) -> None:
    """By both rule books."""
    on = machine(Random(0))
    assert any("visible" in fault.where for fault in faults(tree, work, on))
    with pytest.raises(IllegalMapping):
        run(work, on, tree, random_inputs(work, 0))


def test_both_rule_books_refuse_loops_that_cannot_leave_anything_out() -> None:
    inner, causal = {"a": 2, "b": 2, "c": 2}, masked(4, 4)
    good = flash([], 2, 2, inner)
    assert not faults(good, causal, machine(Random(0)))
    refused(attention(1, 2, 2, 4, 4, 4, value_dim=3, variant="online"), good)  # there is no mask
    refused(causal, flash([("n", 2, "")], 2, 2, inner))
    refused(causal, flash([("n", 2, "x")], 2, 2, inner))
    text = to_text(good)
    refused(causal, parse(text.replace("hold glb: Q K V", "hold glb: Q K V S")))
    refused(causal, parse(text.replace("for n by 2\n", "for n by 2 visible\n", 1)))


@pytest.mark.parametrize(("queries", "keys", "window"), [(64, 64, None), (20, 200, None), (100, 164, 30), (5, 301, 7)])
def test_a_smaller_problem_has_a_mask_that_fits(queries: int, keys: int, window: int | None) -> None:
    """A plan is checked at a reduced size: every row still sees a key there."""
    work, on = masked(queries, keys, 2, window), machine(Random(3))
    tree = flash([("m", queries, "x")], 16, 16, {"a": 8, "b": 8, "c": 16})
    small, mapped = reduced(work, tree)
    assert set(masks(small)) == set(masks(work))
    assert_agrees(small, on, mapped, run(small, on, mapped, random_inputs(small, 0)), window)
    first = first_iterations(work, tree, 1)
    assert set(masks(first)) == set(masks(work))
    assert simulate(first, on, tree).time > 0
