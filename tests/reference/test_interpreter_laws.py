"""The interpreter on random trees and on the shipped workloads: results against the textbook, bytes against laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.oracles import inputs, oracle
from tests.reference.trees import (
    attention_tree,
    chip,
    collect,
    each,
    execute,
    gemm,
    nest,
    online_attention,
    plain_attention,
)

from halley.execute.interpreter import run
from halley.ir.mapping import (
    Compute,
    Node,
    Sequence,
)
from halley.ir.workload import OpKind
from halley.workloads import build, variants

# ---- laws over random trees ------------------------------------------------------------------------


def parts(extent: int, tile: int) -> list[int]:
    return [min(tile, extent - start) for start in range(0, extent, tile)]


@st.composite
def gemm_trees(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, int], dict[str, tuple[str, int]], dict[str, int], Node]:
    """Extents, tiles of the loops outside glb, splits by axis, tiles of the loops inside the clusters, and the tree."""
    number = st.integers(1, 9)
    dims = {dim: draw(number) for dim in "mnk"}
    order = draw(st.permutations("mnk"))
    outer = {dim: draw(st.integers(1, dims[dim])) for dim in order[: draw(st.integers(0, 2))]}
    rest = [dim for dim in order if dim not in outer]
    chosen = dict(zip("xy", draw(st.permutations([*rest, ""])), strict=False))
    splits = {}
    for axis, dim in chosen.items():
        if dim:
            least = -(-dims[dim] // (3 if axis == "x" else 2))
            splits[axis] = (dim, draw(st.integers(least, dims[dim])))
    inner = {dim: draw(number) for dim in draw(st.permutations("mnk"))[: draw(st.integers(0, 3))]}
    leaf = nest(*inner.items(), ("ibuf", "A"), ("wbuf", "B"), Compute("C"))
    adds = [axis for axis, (dim, _) in splits.items() if dim == "k"]
    kind, algorithm = draw(st.sampled_from([("all-reduce", "ring"), ("reduce", "direct"), ("all-reduce", "direct")]))
    body = Sequence((leaf, *(collect(kind, "C", axis, algorithm) for axis in adds))) if adds else leaf
    spreads = [(dim, tile, axis) for axis, (dim, tile) in splits.items()]
    return dims, outer, splits, inner, nest(("dram", "A B C"), *outer.items(), ("glb", "A B C"), *spreads, ("obuf", "C"), body)


@given(gemm_trees())
@settings(max_examples=60, deadline=None)
def test_random_gemm_trees(case: tuple[dict[str, int], dict[str, int], dict[str, tuple[str, int]], dict[str, int], Node]) -> None:
    dims, outer, splits, inner, tree = case
    done, arrays = execute(gemm(dims["m"], dims["n"], dims["k"]), tree, chip(3, 2))
    np.testing.assert_allclose(done.outputs["C"], arrays["A"] @ arrays["B"])
    counters = done.counters
    sizes = {"x": 3, "y": 2}
    split = dict(splits.values())
    repeated = np.prod([size for axis, size in sizes.items() if axis not in splits])

    def trips(dim: str) -> int:
        return len(parts(dims[dim], outer.get(dim, dims[dim])))

    def visits(dim: str) -> list[int]:
        """Iterations of the inner loop over a dim, per member of the split (or per tile of the outer loop)."""
        pieces = parts(dims[dim], split.get(dim, outer.get(dim, dims[dim])))
        return [len(parts(piece, inner.get(dim, piece))) for piece in pieces]

    for tensor, own, other, local in (("A", "mk", "n", "ibuf"), ("B", "kn", "m", "wbuf")):
        whole = 2 * dims[own[0]] * dims[own[1]]
        # refetched for every tile of the dim that the operand lacks
        assert counters.reads["dram", tensor, "fill"] == whole * trips(other)
        each_member = sum(visits(other))
        assert counters.writes[local, tensor, "fill"] == whole * each_member * repeated
        # one read serves all clusters that want the same; the first member has the most iterations
        assert counters.reads["glb", tensor, "fill"] == whole * (visits(other)[0] if other in split else each_member)
    result = 2 * dims["m"] * dims["n"]
    assert counters.writes["dram", "C", "drain"] == result * trips("k")
    assert counters.reads.get(("dram", "C", "fill"), 0) == result * (trips("k") - 1)
    assert counters.reads["obuf", "C", "drain"] == result * trips("k")
    assert counters.work["mac"] == dims["m"] * dims["n"] * dims["k"] * repeated


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 9), st.booleans(), st.sampled_from(["ring", "direct", "chain"]))
@settings(max_examples=40, deadline=None)
def test_random_online_attention(m: int, n: int, tile: int, split: bool, algorithm: str) -> None:
    combine = (
        (collect("all-reduce", "mx z", algorithm=algorithm), collect("all-reduce", "U", algorithm=algorithm)) if split else ()
    )
    done, arrays = execute(
        online_attention(m, n, 3, 2), attention_tree(tile, -(-n // 3) if split else None, *combine), chip(3, 1)
    )
    np.testing.assert_allclose(done.outputs["O"], plain_attention(arrays))


# ---- the shipped workloads -------------------------------------------------------------------------

SHIPPED: dict[str, dict[str, object]] = {
    "gemm": {"m": 3, "n": 5, "k": 7, "b": 2},
    "gemm-softmax": {"m": 3, "n": 5, "k": 7},
    "gemm-layernorm": {"m": 3, "n": 5, "k": 7},
    "gemm-rmsnorm": {"m": 3, "n": 5, "k": 7},
    "attention": {"batch": 1, "heads": 6, "kv_heads": 2, "queries": 3, "keys": 5, "head_dim": 4, "value_dim": 7, "causal": True},
    "gated-mlp": {"tokens": 3, "model": 5, "hidden": 7},
    "gated-scan": {"length": 6, "channels": 3},
    "power-spectrum": {"m": 3, "n": 8},
    "embedding": {"tokens": 9, "vocabulary": 4, "width": 3},
    "scatter-add": {"tokens": 9, "slots": 4, "width": 3},
    "merge-heads": {"tokens": 3, "heads": 4, "head_dim": 5},
}


@pytest.mark.parametrize("kind", SHIPPED)
def test_shipped_workloads_compute_what_the_textbook_says(kind: str) -> None:
    for item in variants(build(kind, SHIPPED[kind])):
        ends = " ".join((*item.inputs, *item.outputs))
        tree = nest(("dram", ends), ("obuf", " ".join(item.tensors)), Sequence(each(*(op.name for op in item.ops))))
        arrays = inputs(item, seed=5)
        done = run(item, chip(2, 1), tree, arrays)
        for name, expected in oracle(item, arrays).items():
            np.testing.assert_allclose(done.outputs[name], expected, rtol=1e-9, atol=1e-9)


def test_causal_attention_by_tiles() -> None:
    # the mask sees the position of the tile, and a row that has seen only masked keys has seen nothing
    parameters = {"batch": 1, "heads": 4, "kv_heads": 2, "queries": 5, "keys": 6, "head_dim": 3, "causal": True}
    item = next(each for each in variants(build("attention", parameters)) if each.variant == "online")
    ends, state = " ".join((*item.inputs, *item.outputs)), next(op for op in item.ops if op.kind is OpKind.REDUCE).outputs
    last = item.ops[-1]
    kept = " ".join((*state, *last.inputs, *last.outputs))
    body = Sequence((nest(("n", 2), Sequence(each(*(op.name for op in item.ops[:-1])))), Compute(last.name)))
    rest = " ".join(name for name in item.tensors if name not in kept.split())
    loops = [(dim, 3) for dim in item.ops[-1].dims if dim in ("h", "m")]
    tree = nest(("dram", ends), *loops, ("obuf", " ".join(dict.fromkeys(kept.split()))), ("ibuf", rest), body)
    arrays = inputs(item, seed=5)
    done = run(item, chip(1, 1), tree, arrays)
    for name, expected in oracle(item, arrays).items():
        np.testing.assert_allclose(done.outputs[name], expected, rtol=1e-9, atol=1e-9)
