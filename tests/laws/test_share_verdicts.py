"""Two deciders, one verdict, on trees with collectives in and behind shares of axes; and one count of what legal ones move.

The trees are small and most are wrong: ops and collectives, each alone in a share, together in one, or in none.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.laws.test_verdicts import KINDS, chip, plain
from tests.unit.mappings import GEMM, PAIR

from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, CollectiveKind, Compute, Hold, Node, Parallel, Pipeline, Sequence, Spatial, Temporal
from halley.ir.text import to_text
from halley.ir.workload import Op, Workload
from halley.rewrite.legality import faults

SHARDING = (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER, CollectiveKind.ALL_TO_ALL)


class Sketch:
    """Draws a tree of a workload on clusters of some sizes along x and y."""

    def __init__(self, draw: Random, item: Workload, sizes: dict[str, int]) -> None:
        self.draw, self.item, self.sizes = draw, item, sizes

    def loop(self, node: Node) -> Node:
        dim = self.draw.choice(list(self.item.dims))
        return Temporal(dim, self.draw.randint(1, self.item.dims[dim]), node)

    def spread(self, node: Node) -> Node:
        dim, axis = self.draw.choice(list(self.item.dims)), self.draw.choice("xxy")
        tile = -(-self.item.dims[dim] // self.sizes[axis]) + self.draw.choice([0, 0, 0, 9])
        return Spatial(dim, tile, "cluster", axis, node)

    def wrapped(self, node: Node, *wraps: Callable[[Node], Node]) -> Node:
        """Inside up to one of each of the wraps."""
        for wrap in wraps:
            node = wrap(node) if self.draw.random() < 0.35 else node
        return node

    def shared(self, *nodes: Node) -> Node:
        """The nodes with members of their own along y, as far as there are enough."""
        if len(nodes) > self.sizes["y"]:
            return Sequence(nodes)
        cuts = sorted(self.draw.sample(range(1, self.sizes["y"] + 1), len(nodes)))
        shares = tuple(stop - start for start, stop in zip((0, *cuts), cuts, strict=False))
        if self.draw.random() < 0.8:
            return Parallel("cluster", "y", shares, nodes)
        dim = self.draw.choice("mn")
        return Pipeline(dim, self.draw.randint(1, self.item.dims[dim]), "cluster", "y", shares, nodes)

    def collective(self) -> Node:
        kind = self.draw.choice([*KINDS, *[CollectiveKind.ALL_REDUCE] * len(KINDS)])
        name = self.draw.choice(self.item.outputs if self.draw.random() < 0.9 else self.item.inputs)
        dim = self.draw.choice(self.item.tensors[name].dims) if kind in SHARDING else ""
        return Collective(kind, (name,), "cluster", self.draw.choice("xxy"), "direct", dim)

    def parts(self, op: Op) -> list[Node]:
        """An op and its collectives: together in a share, each in one or in none, or side by side."""
        own = Hold("ibuf", (op.outputs,), Compute(op.name)) if self.draw.random() < 0.1 else Compute(op.name)
        nodes = [self.wrapped(own, self.loop, self.spread, self.spread)]  # what runs on a partition has no loop outside
        nodes += [self.collective() for _ in range(self.draw.choice([0, 1, 1, 2]))]
        match self.draw.choice(["together", "alone", "beside"]):
            case "together":
                return [self.wrapped(nodes[0] if len(nodes) == 1 else Sequence(tuple(nodes)), self.shared)]
            case "alone":
                return [self.shared(node) if self.draw.random() < 0.6 else node for node in nodes]
            case _:
                return [self.shared(*nodes)]

    def tree(self) -> Node:
        parts = [part for op in self.item.ops for part in self.parts(op)]
        node = self.wrapped(parts[0] if len(parts) == 1 else Sequence(tuple(parts)), self.shared, self.loop)
        held = [name for name in self.item.tensors if name not in self.item.inputs or self.draw.random() < 0.5]
        node = Hold(self.draw.choice(["obuf", "ibuf"]), tuple((name,) for name in held), node)
        node = self.wrapped(node, self.spread, self.loop)
        return Hold("dram", tuple((name,) for name in (*self.item.inputs, *self.item.outputs)), node)


def check(tree: Node, item: Workload, on: Chip) -> bool:
    """Whether the tree is legal: both deciders agree, and then the formulas count what the interpreter does, rightly."""
    inputs, found, told, objection = random_inputs(item, seed=1), faults(tree, item, on), to_text(tree), ""
    try:
        done = run(item, on, tree, inputs)
    except BadInput as error:
        objection = str(error)
    assert bool(found) == bool(objection), f"{told}\nstatic: {[str(fault) for fault in found]}\ndynamic: {objection}"
    if found:
        return False
    estimate, counters = evaluate(item, on, tree), done.counters
    for name, value in run(item, on, plain(item), inputs).outputs.items():
        np.testing.assert_allclose(done.outputs[name], value, err_msg=told)
    for formula, counted in (
        (estimate.reads(), counters.reads),
        (estimate.writes(), counters.writes),
        (estimate.links(), counters.links),
        (estimate.footprint, counters.footprint),
    ):
        assert {key: got for key, got in formula.items() if got} == {key: got for key, got in counted.items() if got}, told
    return True


def judged(seed: int, item: Workload) -> bool:
    draw = Random(seed)
    sizes = {"x": draw.randint(1, 3), "y": draw.randint(2, 3), "z": 1}
    return check(Sketch(draw, item, sizes).tree(), item, chip(sizes, reduction=False))


@pytest.mark.parametrize("inside", [True, False])
def test_two_axes_do_not_shard_one_dim(inside: bool) -> None:
    """Neither rule book lets a second axis scatter the dim that the first one has scattered, in the splits or outside."""
    scatters = (
        Collective(CollectiveKind.REDUCE_SCATTER, ("C",), "cluster", "x", "direct", "m"),
        Collective(CollectiveKind.REDUCE_SCATTER, ("C",), "cluster", "y", "direct", "m"),
    )

    def split(*nodes: Node) -> Node:
        body = nodes[0] if len(nodes) == 1 else Sequence(nodes)
        return Spatial("k", 4, "cluster", "y", Spatial("k", 2, "cluster", "x", body))

    body = split(Compute("C"), *scatters) if inside else Sequence((split(Compute("C")), *scatters))
    tree = Hold("dram", (("A",), ("B",), ("C",)), Hold("obuf", (("A",), ("B",), ("C",)), body))
    assert not check(tree, GEMM, chip({"x": 2, "y": 2, "z": 1}, reduction=False))


@example(63875466, GEMM)  # a split among the first members of a larger axis, then an all-to-all over all of it
@given(st.integers(0, 2**32), st.sampled_from([GEMM, PAIR]))
@settings(max_examples=600, deadline=None)
def test_verdicts_and_counts_agree_on_collectives_and_shares(seed: int, item: Workload) -> None:
    judged(seed, item)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([GEMM, PAIR]))
@settings(max_examples=20000, deadline=None)
def test_many_verdicts_and_counts_agree_on_collectives_and_shares(seed: int, item: Workload) -> None:
    judged(seed, item)


def test_many_drawn_trees_are_legal() -> None:
    assert sum(judged(seed, GEMM) for seed in range(200)) > 20
