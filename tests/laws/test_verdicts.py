"""Two deciders, one verdict: the static check and the interpreter agree on random trees, most of them wrong.

They share no code: one looks at cuttings, the other at elements. What both let pass computes the right result.
"""

from __future__ import annotations

import contextlib
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.mending import insert_collectives
from tests.unit.mappings import GEMM, LINK, ONLINE, SOFTMAX, memory

from halley.errors import BadInput, IllegalMapping
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Axis, Chip, Level, MatrixEngine, Network, Topology, VectorEngine
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    walk,
)
from halley.ir.text import to_text
from halley.ir.workload import OpKind, Workload
from halley.rewrite.legality import faults

# a shift is left out: it gives members more than the static check keeps track of
KINDS = [kind for kind in CollectiveKind if kind is not CollectiveKind.SHIFT]
LEVEL = {"x": "cluster", "y": "cluster", "z": "pe"}


def chip(sizes: dict[str, int], reduction: bool) -> Chip:
    """Clusters on a line and a ring, in each a ring of PEs."""
    axes = (Axis("x", sizes["x"], Topology.LINE, LINK), Axis("y", sizes["y"], Topology.RING, LINK))
    inner = Network((Axis("z", sizes["z"], Topology.RING, LINK),), LINK, reduction=reduction)
    levels = (
        Level("dram", (memory("dram"),)),
        Level("glb", (memory("glb"),)),
        Level("cluster", (memory("ibuf"), memory("obuf")), Network(axes, LINK)),
        Level("pe", (memory("rf"),), inner),
    )
    return Chip("deep", levels, MatrixEngine("mxu", 4, 4, 1e9), VectorEngine("simd", 4, 1e9, {"add": 1.0}))


class Sketch:
    """Draws a tree of a workload: sensible in outline, careless in detail."""

    def __init__(self, draw: Random, item: Workload, sizes: dict[str, int]) -> None:
        self.draw, self.item, self.sizes = draw, item, sizes
        self.favourites = [self.split() for _ in range(draw.randint(0, 2))]

    def split(self) -> tuple[str, int, str]:
        dim, axis = self.draw.choice(list(self.item.dims)), self.draw.choice("xxyz")
        return dim, -(-self.item.dims[dim] // self.sizes[axis]) + self.draw.choice([0, 0, 0, 1]), axis

    def spread(self, node: Node) -> Node:
        dim, tile, axis = self.draw.choice([*self.favourites, self.split()])
        return Spatial(dim, tile, LEVEL[axis], axis, node)

    def wrap(self, node: Node) -> Node:
        ops = [self.item.op(found.op) for _, found in walk(node) if isinstance(found, Compute)]
        match self.draw.choice(["loop", "loop", "spread", "hold"]):
            case "loop":
                dims = [dim for dim in self.item.dims if all(dim in op.dims for op in ops)] or list(self.item.dims)
                dim = self.draw.choice(dims)
                return Temporal(dim, self.draw.randint(1, self.item.dims[dim]), node)
            case "spread":
                return self.spread(node)
            case _:
                names = list(dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs)))
                chosen = self.draw.sample(names, self.draw.randint(1, min(3, len(names))))
                return Hold(self.draw.choice(["glb", "obuf", "ibuf", "rf"]), self.groups(chosen), node)

    def wrapped(self, node: Node) -> Node:
        while self.draw.random() < 0.3:
            node = self.wrap(node)
        return node

    def groups(self, names: list[str]) -> tuple[tuple[str, ...], ...]:
        """Some tensors overwritten by a map of them, the others apart."""
        tensors, pairs = self.item.tensors, []
        for op in self.item.ops:
            same = [name for name in op.inputs if tensors[name].dims == tensors[op.outputs[0]].dims]
            pairs += [(name, op.outputs[0]) for name in same if op.kind is OpKind.MAP and {name, op.outputs[0]} <= set(names)]
        in_place = self.draw.choice(pairs) if pairs and self.draw.random() < 0.5 else ()
        return tuple(([in_place] if in_place else []) + [(name,) for name in names if name not in in_place])

    def collective(self) -> Collective:
        kind = self.draw.choice([*KINDS, *[CollectiveKind.ALL_REDUCE] * len(KINDS)])
        op, axis = self.draw.choice(self.item.ops), self.draw.choice("xxyz")
        to = kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER, CollectiveKind.ALL_TO_ALL)
        dim = self.draw.choice(self.item.tensors[op.outputs[0]].dims) if to else ""
        return Collective(kind, op.outputs, LEVEL[axis], axis, "direct", dim)

    def body(self, nodes: list[Node]) -> Node:
        if len(nodes) == 1:
            return self.wrapped(nodes[0])
        cut = self.draw.randint(1, len(nodes) - 1)
        parts = [self.body(nodes[:cut]), self.body(nodes[cut:])] if self.draw.random() < 0.5 else [self.wrapped(n) for n in nodes]
        ones = tuple(1 for _ in parts)
        match self.draw.choice(["sequence"] * 12 + ["pipeline", "parallel", "overlap"]):
            case "pipeline":
                dim = self.draw.choice(list(self.item.dims))
                found: Node = Pipeline(dim, self.draw.randint(1, 4), "cluster", "x", ones, tuple(parts))
            case "parallel":
                found = Parallel("cluster", "y", ones, tuple(parts))
            case "overlap":
                found = Overlap(tuple(parts))
            case _:
                while self.draw.random() < 0.3:
                    parts.insert(self.draw.randint(0, len(parts)), self.collective())
                found = Sequence(tuple(parts))
        return self.wrapped(found)

    def tree(self) -> Node:
        ends = [*self.item.inputs, *self.item.outputs]
        node = self.body([Compute(op.name) for op in self.item.ops])
        for _ in self.favourites:
            node = self.spread(node) if self.draw.random() < 0.4 else node
        node = Hold(self.draw.choice(["obuf", "obuf", "glb"]), self.groups(list(self.item.tensors)), node)
        for _ in self.favourites:
            node = self.spread(node) if self.draw.random() < 0.4 else node
        node = self.wrapped(node)
        node = Hold("glb", tuple((name,) for name in ends), node) if self.draw.random() < 0.7 else node
        return Hold("dram", tuple((name,) for name in ends), node)


def plain(item: Workload) -> Node:
    return Hold("dram", tuple((name,) for name in item.tensors), Sequence(tuple(Compute(op.name) for op in item.ops)))


def verdict(seed: int, item: Workload, reduction: bool, mend: bool) -> bool:
    """Whether the drawn tree is legal: the static check and the interpreter must agree, and what runs must be right."""
    draw = Random(seed)
    sizes = {"x": draw.randint(1, 3), "y": draw.randint(1, 2), "z": draw.randint(1, 2)}
    on, tree = chip(sizes, reduction), Sketch(draw, item, sizes).tree()
    if mend:
        with contextlib.suppress(IllegalMapping):
            tree = insert_collectives(tree, item, on)
    told = f"seed {seed}, {sizes}\n{to_text(tree)}\n"
    inputs = random_inputs(item, seed=1)
    found, objection, outputs = faults(tree, item, on), "", {}
    try:
        outputs = run(item, on, tree, inputs).outputs
    except BadInput as error:
        objection = str(error)
    assert bool(found) == bool(objection), f"{told}static: {[str(fault) for fault in found]}\ndynamic: {objection}"
    for name, value in outputs.items():
        np.testing.assert_allclose(value, run(item, on, plain(item), inputs).outputs[name], err_msg=told)
    return not found


def test_a_gathered_maximum_is_new_only_where_it_was_gathered() -> None:
    """Of two tiles of rows, each is gathered in its own iteration; what was made relative to the first stays so."""
    verdict(21488, ONLINE, True, True)


def test_a_hold_further_out_keeps_the_maximum_as_it_was() -> None:
    """The maximum is combined in an inner Hold; what is relative to it is read outside, beside the parts of before."""
    assert not verdict(24439, ONLINE, False, True)


@given(st.integers(0, 2**32), st.sampled_from([GEMM, SOFTMAX, ONLINE]), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_static_and_dynamic_verdicts_agree(seed: int, item: Workload, reduction: bool, mend: bool) -> None:
    verdict(seed, item, reduction, mend)
