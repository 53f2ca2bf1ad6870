"""Every rule of docs/model.md that a tree breaks raises, and says what to do."""

from __future__ import annotations

import numpy as np
import pytest
from tests.reference.trees import (
    E_OP,
    MX_OP,
    P_OP,
    S_OP,
    Z_OP,
    chip,
    collect,
    each,
    execute,
    gemm,
    gemm_softmax,
    nest,
    op,
    split_k,
    workload,
)

from halley.errors import BadInput, IllegalMapping
from halley.execute.interpreter import run
from halley.ir.mapping import (
    Compute,
    Node,
    Overlap,
    Sequence,
    Temporal,
)
from halley.ir.workload import OpKind

# ---- rules that are broken at run time -------------------------------------------------------------


def softmax_tree(body: Node, groups: str = "S mx E z P") -> Node:
    return nest(("dram", "A B P"), ("glb", "A B P"), ("obuf", groups), body)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (softmax_tree(nest(("n", 3), Sequence(each("S", "mx", "E", "z", "P")))), r"compute E: expected mx reduced over all n"),
        (softmax_tree(Sequence(each("S", "E", "mx", "z", "P"))), r"compute E: expected mx.*not there"),
        (softmax_tree(Sequence(each("S", "mx", "E", "z", "P")), "S|E z P"), r"compute mx: expected a hold around it with mx"),
        (softmax_tree(Sequence((Temporal("k", 1, Compute("S")), Temporal("k", 1, Compute("mx"))))), r"compute mx: .*loop over k"),
        (softmax_tree(Sequence(each("S", "mx", "S"))), r"compute S: expected one compute per op"),
        (softmax_tree(Sequence(each("S", "mx", "E", "z"))), r"compute P: expected every point once"),
        (softmax_tree(Sequence(each("S", "mx", "E", "z", "P")), "S|mx E z P"), r"S\|mx: expected mx to be a map of S"),
        (softmax_tree(nest(("m", 1, "x"), Sequence(each("S", "mx", "E", "z", "P")))), r"spread m by 1.*at most 2 parts; got 4"),
        (softmax_tree(nest(("m", 2, "x"), ("n", 3, "x"), Compute("S"))), r"axis that is not split yet"),
        (nest(("dram", "A B"), ("glb", "P"), Compute("S")), r"outermost hold of P in a memory of dram"),
        (nest(("dram", "A B P"), ("obuf", "A"), ("glb", "A"), Compute("S")), r"hold glb: A: expected a memory as deep"),
        (softmax_tree(Sequence((*each("S", "mx"), collect("all-reduce", "mx"), *each("E", "z", "P")))), r"expected mx Partial"),
        (softmax_tree(Overlap((Sequence(each("mx", "E", "z", "P")), Compute("S")))), r"overlap: expected children that follow"),
    ],
)
def test_broken_rules_raise(tree: Node, message: str) -> None:
    with pytest.raises(IllegalMapping, match=message):
        execute(gemm_softmax(4, 6, 3), tree, chip(2, 1))


def test_stale_read_in_a_group() -> None:
    # E overwrites S; a second reader of S comes too late
    late = op("T", OpKind.MAP, "S P", "T", "mn", function="add")
    tensors = "A:mk B:kn S:mn mx:m E:mn z:m P:mn T:mn"
    item = workload({"m": 4, "n": 6, "k": 3}, tensors, (S_OP, MX_OP, E_OP, Z_OP, P_OP, late), "T")
    body = Sequence(each("S", "mx", "E", "z", "P", "T"))
    tree = nest(("dram", "A B T"), ("obuf", "A B T S|E|P mx z"), body)
    with pytest.raises(IllegalMapping, match=r"compute T: expected S in obuf; got P, which overwrote it in place"):
        execute(item, tree)
    execute(item, nest(("dram", "A B T"), ("obuf", "A B T S E|P mx z"), body))


def test_arrays_are_checked() -> None:
    with pytest.raises(BadInput, match=r"input A: expected an array of shape \(4, 5\)"):
        run(gemm(4, 6, 5), chip(), split_k(None), {"B": np.zeros((5, 6))})
