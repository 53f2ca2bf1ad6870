"""Dims of a contraction that a mapping lays on the array: counted as executed, timed as tiles one by one, refused where they
cannot lie there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import given
from tests.reference.generate import random_trees
from tests.reference.test_counts import SEEDS, assert_agrees, many
from tests.reference.trees import chip, nest, op, workload

from halley.cost.evaluate import evaluate
from halley.errors import BadInput, IllegalMapping
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Chip, Dataflow, VectorEngine
from halley.ir.mapping import Compute, Hold, Node, Spatial, Temporal, walk
from halley.ir.text import parse, to_text
from halley.ir.workload import OpKind, Workload
from halley.rewrite.legality import faults
from halley.simulate.simulation import simulate
from halley.simulate.tasks import Server

ALL = "X W S"
FLOWS = (Dataflow.WEIGHT, Dataflow.INPUT, Dataflow.OUTPUT)
SIDES = {Dataflow.WEIGHT: ("crs", "fg"), Dataflow.INPUT: ("crs", "pq"), Dataflow.OUTPUT: ("pq", "fg")}
"""The dims that may lie on the rows and on the columns."""


def convolution(p: int = 3, q: int = 2, f: int = 4, g: int = 2, c: int = 3, r: int = 2, s: int = 3) -> Workload:
    """Rows p and q, columns f and g, sums over c, r and s."""
    dims = {"p": p, "q": q, "f": f, "g": g, "c": c, "r": r, "s": s}
    return workload(dims, "X:pqcrs W:fgcrs S:pqfg", (op("S", OpKind.CONTRACT, "X W", "S", "pqfgcrs"),), "S")


def inside(*parts: object, array: tuple[tuple[str, ...], ...] = ()) -> Node:
    return nest(("dram", ALL), ("glb", ALL), *parts, ("ibuf", "X"), ("wbuf", "W"), ("obuf", "S"), Compute("S", array))


def draw(seed: int) -> tuple[Workload, Chip, Node]:
    """A contraction, a chip, loops and splits around it, and dims on the array, some of which may be cut where they must not."""
    random = Random(seed)
    item = convolution(**{dim: random.randint(1, 4) for dim in "pqfgcrs"})
    flow = random.choice(FLOWS)
    on = chip(2, 2, rows=random.randint(1, 5), cols=random.randint(1, 5), flow=flow)
    array = tuple(tuple(random.sample(dims, random.randint(1, len(dims)))) for dims in SIDES[flow])
    free = [dim for dim in "pqfgcrs" if random.random() < 0.5 or not any(dim in side[1:] for side in array)]
    parts: list[object] = []
    for axis in "xy":
        if free and random.random() < 0.4:
            dim = random.choice([dim for dim in free if dim not in "crs"] or ["p"])
            if not any(part[0] == dim for part in parts):  # type: ignore[index]
                parts.append((dim, -(-item.dims[dim] // 2), axis))
    parts += [(dim, random.randint(1, item.dims[dim])) for dim in random.choices(free, k=random.randint(0, 4)) if free]
    return item, on, inside(*parts, array=array)


@given(SEEDS)
@many(150)
def test_counts_and_verdicts_of_drawn_arrays(seed: int) -> None:
    item, on, tree = draw(seed)
    assert executes(item, on, tree) == (faults(tree, item, on) == [])


def executes(item: Workload, on: Chip, tree: Node) -> bool:
    """Whether the interpreter takes a tree. If so, its results and its counts are right."""
    arrays = random_inputs(item, 0)
    assert parse(to_text(tree)) == tree
    try:
        done = run(item, on, tree, arrays)
    except BadInput:
        return False
    expected = np.einsum("pqcrs,fgcrs->pqfg", arrays["X"], arrays["W"])
    np.testing.assert_allclose(done.outputs["S"], expected, rtol=1e-9, atol=1e-9)
    assert_agrees(item, on, tree, done)
    return True


@given(SEEDS)
@many(60)
def test_counts_of_grown_trees(seed: int) -> None:
    random = Random(seed)
    item = convolution(**{dim: random.randint(1, 3) for dim in "pqfgcrs"})
    on = chip(2, 2, rows=random.randint(1, 4), cols=random.randint(1, 4), flow=random.choice(FLOWS))
    for _ in random_trees(random, item, on, partial(executes, item, on), 10):
        pass


def tiles(tree: Node, sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    """The tile sizes of each dim at the Compute of member 0, tile by tile."""
    match tree:
        case Hold():
            yield from tiles(tree.body, sizes)
        case Spatial():
            yield from tiles(tree.body, {**sizes, tree.dim: min(tree.tile, sizes[tree.dim])})
        case Temporal():
            for start in range(0, sizes[tree.dim], tree.tile):
                yield from tiles(tree.body, {**sizes, tree.dim: min(tree.tile, sizes[tree.dim] - start)})
        case _:
            yield sizes


@given(SEEDS)
@many(150)
def test_cycles_are_those_of_the_tiles_one_by_one(seed: int) -> None:
    item, on, tree = draw(seed)
    if faults(tree, item, on):
        return
    engine = on.matrix
    assert engine is not None
    (array,) = (node.array for _, node in walk(tree) if isinstance(node, Compute))
    cycles = 0
    for sizes in tiles(tree, dict(item.dims)):
        folds = 1
        for dims, laid, width in zip(SIDES[engine.dataflow], array, (engine.rows, engine.cols), strict=True):
            folds *= math.prod(sizes[dim] for dim in dims if dim not in laid)
            folds *= math.ceil(math.prod(sizes[dim] for dim in laid) / width)
        stream = math.prod(sizes[dim] for dim in sizes if dim not in "".join(SIDES[engine.dataflow]))
        cycles += folds * (stream + engine.rows + engine.cols - 2)
    assert evaluate(item, on, tree).busy["engine", "mxu"] == pytest.approx(cycles / 1e9, rel=1e-12)
    simulated = simulate(item, on, tree)
    assert simulated.busy[Server(("engine", "mxu"))] == pytest.approx(cycles / 1e9, rel=1e-12)


def test_by_hand() -> None:
    """27 taps of a first layer with 3 channels, on 16 rows: 9 folds of 3 channels, or 2 folds of 27."""
    item, on = convolution(p=5, q=1, f=8, g=1, c=3, r=3, s=3), chip(1, 1, rows=16, cols=8)
    cycles = {
        array: float(evaluate(item, on, inside(array=array)).busy["engine", "mxu"]) * 1e9
        for array in ((), (("c",), ("f",)), (("s",), ("f",)), (("c", "r", "s"), ("f",)))
    }
    fold = 5 + 16 + 8 - 2
    # without f on the columns, its 8 points are walked one by one: g has but one
    expected = {(): 8 * 9 * fold, (("c",), ("f",)): 9 * fold, (("s",), ("f",)): 9 * fold, (("c", "r", "s"), ("f",)): 2 * fold}
    assert cycles == pytest.approx(expected)


def test_the_usual_dims_may_be_named() -> None:
    item = convolution()
    for flow in FLOWS:
        on = chip(2, 2, rows=3, cols=2, flow=flow)
        named = inside(("c", 2), ("f", 3), array=tuple((dims[-1],) for dims in SIDES[flow]))
        one, other = (evaluate(item, on, tree) for tree in (inside(("c", 2), ("f", 3)), named))
        assert (one.time, one.energy, Counter(one.reads())) == (other.time, other.energy, Counter(other.reads()))


A_DIM = "expected a dim that weight-stationary puts there (c|r|s)"
MESSAGES = [
    ("array t x f", f"compute S, array rows: {A_DIM}; got 't'; use one of: c, r, s"),
    ("array c|p x f", f"array rows: {A_DIM}; got 'p'"),
    ("array c x c", "array columns: expected a dim that weight-stationary puts there (f|g); got 'c'"),
    ("array c|c x f", "array rows: expected each dim once; got c 2 times"),
    ("array - x f", f"array rows: {A_DIM}; got none; name one of: c, r, s"),
    ("array r|c x f", "expected c whole in the tile, as it lies on the array together with r; got tiles of 2 of 3; do not"),
]


@pytest.mark.parametrize(("array", "message"), MESSAGES)
def test_what_cannot_lie_there_is_refused(array: str, message: str) -> None:
    item, on = convolution(), chip()
    tree = parse(to_text(inside(("c", 2))).replace("compute S", f"compute S {array}"))
    assert any(message in str(fault) for fault in faults(tree, item, on)), faults(tree, item, on)
    with pytest.raises(IllegalMapping):
        run(item, on, tree, random_inputs(item, 0))


def test_an_array_is_a_matrix_engines() -> None:
    item = convolution()
    (fault,) = faults(inside(array=(("c",), ("f",))), item, chip(flow=Dataflow.NONE))
    assert "expected a matrix engine of test that is an array; got mxu, whose dataflow is none; leave 'array'" in str(fault)
    pair = workload({"m": 2}, "A:m B:m", (op("B", OpKind.MAP, "A", "B", "m", function="relu"),), "B")
    tree = nest(("dram", "A B"), ("obuf", "A B"), Compute("B", (("m",), ("m",))))
    machine = chip()
    assert isinstance(machine.vector, VectorEngine)
    (fault,) = faults(tree, pair, machine)
    assert "compute B: expected dims on an array for a contraction only; got a map; leave 'array'" in str(fault)


def test_sides_without_dims() -> None:
    """A matrix times a vector has no columns."""
    item = workload({"m": 5, "k": 3}, "A:mk B:k C:m", (op("C", OpKind.CONTRACT, "A B", "C", "mk"),), "C")
    tree = nest(("dram", "A B C"), ("obuf", "A B C"), Compute("C", (("k",), ())))
    assert to_text(tree).endswith("compute C array k x -")
    assert parse(to_text(tree)) == tree
    on = chip(rows=2)
    assert faults(tree, item, on) == []
    assert_agrees(item, on, tree, run(item, on, tree, random_inputs(item, 0)))
