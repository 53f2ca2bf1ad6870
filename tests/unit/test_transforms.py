"""Rewrites: the printed trees before and after, the same results, and a reason where they do not apply."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.mappings import (
    ABC,
    ABP,
    GEMM,
    ONLINE,
    PIECES,
    QKVO,
    REST,
    RING,
    SOFT,
    SOFTMAX,
    SPLIT_K,
    X,
    chip,
    each,
    nest,
    node,
    seq,
)

from halley.errors import IllegalMapping
from halley.execute.interpreter import random_inputs, run
from halley.ir.mapping import Node, children, walk
from halley.ir.text import parse, to_text
from halley.ir.workload import Workload
from halley.rewrite.legality import faults
from halley.rewrite.transforms import (
    bypass,
    double_buffer,
    fuse_loops,
    hold_at,
    insert_collectives,
    interchange,
    node_at,
    prefetch,
    replace_at,
    split,
    spread,
)

GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = chip()

REWRITES: dict[str, tuple[Workload, Callable[[Node], Node]]] = {
    "split": (GEMM, lambda tree: split(tree, (0,), 6)),
    "interchange-loops": (GEMM, lambda tree: interchange(tree, (0,), GEMM, SMALL)),
    "interchange-hold": (GEMM, lambda tree: interchange(tree, (0,), GEMM, SMALL)),
    "hold-at": (GEMM, lambda tree: hold_at(tree, (0, 0), "glb", (("A",), ("B",)), GEMM, SMALL, buffers=2)),
    "bypass": (GEMM, lambda tree: bypass(tree, (0,), "A", GEMM, SMALL)),
    "bypass-last": (GEMM, lambda tree: bypass(tree, (0,), "A", GEMM, SMALL)),
    "double-buffer": (GEMM, lambda tree: double_buffer(tree, (0, 0))),
    "prefetch": (SOFTMAX, lambda tree: prefetch(tree, (0, 0, 0), SOFTMAX, SMALL)),
    "spread": (GEMM, lambda tree: spread(tree, (0,), "n", 3, "cluster", "x", GEMM, SMALL)),
    "fuse-loops": (SOFTMAX, lambda tree: fuse_loops(tree, (0, 0), SOFTMAX, SMALL)),
    "insert-softmax": (SOFTMAX, lambda tree: insert_collectives(tree, SOFTMAX, SMALL)),
    "insert-split-k": (GEMM, lambda tree: insert_collectives(tree, GEMM, SMALL, algorithm="direct")),
    "insert-columns-to-rows": (SOFTMAX, lambda tree: insert_collectives(tree, SOFTMAX, SMALL)),
    "insert-online": (ONLINE, lambda tree: insert_collectives(tree, ONLINE, SMALL)),
    "insert-two-axes": (SOFTMAX, lambda tree: insert_collectives(tree, SOFTMAX, SMALL)),
}


def golden(name: str) -> tuple[str, str]:
    """(before, after) of a file that has one section of each."""
    before, _, after = (GOLDEN / f"{name}.txt").read_text().partition("# after\n")
    return before.removeprefix("# before\n").rstrip("\n"), after.rstrip("\n")


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_prints_as_recorded(name: str) -> None:
    before, after = golden(name)
    assert to_text(parse(before)) == before
    assert to_text(REWRITES[name][1](parse(before))) == after


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewrite_keeps_the_result(name: str) -> None:
    item, rewrite = REWRITES[name]
    before = parse(golden(name)[0])
    after = rewrite(before)
    assert after != before
    assert faults(after, item, SMALL) == []
    inputs = random_inputs(item, seed=5)
    expected = run(item, SMALL, plain(item), inputs).outputs
    assert (faults(before, item, SMALL) == []) != name.startswith("insert")
    for name_, value in run(item, SMALL, after, inputs).outputs.items():
        np.testing.assert_allclose(value, expected[name_])


def plain(item: Workload) -> Node:
    """Everything once, in order, in the outermost memory."""
    return parse(nest(f"hold dram: {' '.join(item.tensors)}", seq(*(f"compute {op.name}" for op in item.ops))))


def test_a_rewrite_of_one_place_leaves_the_others() -> None:
    tree = parse(nest(ABP, "for m by 2", SOFT, seq("compute S", *REST)))
    for path, item in walk(tree):
        assert node_at(tree, path) == item
        assert replace_at(tree, path, lambda found: found) == tree
    changed = replace_at(tree, (0, 0, 0, 1), lambda _: parse("compute T"))
    here = dict(walk(changed))
    assert {path for path, item in walk(tree) if children(item) == () and here[path] != item} == {(0, 0, 0, 1)}


def test_splitting_by_a_divisor_or_a_multiple_is_the_same() -> None:
    coarse, fine = (parse(nest(ABC, f"for m by {tile}", "compute C")) for tile in (4, 2))
    assert split(coarse, (0,), 2) == split(fine, (0,), 4)


def test_interchanging_twice_is_the_identity() -> None:
    tree = parse(nest(ABC, "for m by 2", f"spread n by 3 {X}", "compute C"))
    assert interchange(interchange(tree, (0,), GEMM, SMALL), (0,), GEMM, SMALL) == tree


UNFUSED = seq(*(nest("for n by 3", compute) for compute in each("S mx E z P")))
REFUSED: dict[str, tuple[Callable[[], Node], str]] = {
    "no such path": (lambda: split(parse("compute C"), (0,), 2), "path (0,): expected a child 0"),
    "split what is no loop": (lambda: split(parse("compute C"), (), 2), "split: expected a loop in time; got 'compute C'"),
    "split raggedly": (
        lambda: split(parse(nest("for m by 4", "compute C")), (), 6),
        "split for m by 4: expected a tile that is another multiple or divisor of 4; got 6",
    ),
    "split by the same": (
        lambda: split(parse(nest("for m by 4", "compute C")), (), 4),
        "another multiple or divisor of 4; got 4",
    ),
    "interchange one dim": (
        lambda: interchange(parse(nest(ABC, "for m by 4", "for m by 2", "compute C")), (0,), GEMM, SMALL),
        "interchange: expected cuts of two dims (the outer cuts m); got 'for m by 2'",
    ),
    "interchange with a compute": (
        lambda: interchange(parse(nest(ABC, "for m by 4", "compute C")), (0,), GEMM, SMALL),
        "interchange: expected a loop, split or hold right inside; got 'compute C'",
    ),
    "interchange holds of one tensor": (
        lambda: interchange(parse(nest(ABC, "hold glb: A", "hold obuf: A", "compute C")), (0,), GEMM, SMALL),
        "hold glb: A: expected a memory as deep as the hold around it or deeper; got obuf",
    ),
    "interchange so that an output is cut off": (
        lambda: interchange(parse(nest(ABC, "for k by 4", "compute C")), (), GEMM, SMALL),
        "output C: expected every element reduced over all k",
    ),
    "hold nearer than what is inside": (
        lambda: hold_at(parse(nest(ABC, "hold glb: A", "compute C")), (0,), "obuf", (("A",),), GEMM, SMALL),
        "hold glb: A: expected a memory as deep as the hold around it or deeper",
    ),
    "bypass what is not held": (
        lambda: bypass(parse(nest(ABC, "hold glb: A", "compute C")), (0,), "B", GEMM, SMALL),
        "bypass: expected a hold of B; got 'hold glb: A'",
    ),
    "bypass the outermost": (
        lambda: bypass(parse(nest(ABC, "hold glb: A", "compute C")), (), "A", GEMM, SMALL),
        "hold glb: A: expected an outermost hold of A in a memory of dram",
    ),
    "buffer twice": (
        lambda: double_buffer(parse(nest("hold glb x2: A", "compute C")), ()),
        "double_buffer: expected a hold with one buffer; got 'hold glb x2: A'",
    ),
    "prefetch where nothing runs on": (
        lambda: prefetch(parse(nest(ABP, "hold obuf: A B S E P mx z", seq("compute S", *REST))), (0, 0), SOFTMAX, SMALL),
        "sequence prefetch: expected a child that holds, in several buffers, what no other child changes or needs",
    ),
    "prefetch what is no sequence": (
        lambda: prefetch(parse(nest(ABC, "compute C")), (), GEMM, SMALL),
        "prefetch: expected a sequence whose phases end before the next begins; got 'hold dram: A B C'",
    ),
    "spread too finely": (
        lambda: spread(parse(nest(ABC, "compute C")), (0,), "m", 1, "cluster", "x", GEMM, SMALL),
        "expected at most 2 parts; got 4",
    ),
    "spread a reduction": (
        lambda: spread(parse(nest(ABC, "hold obuf: C", "compute C")), (0,), "k", 4, "cluster", "x", GEMM, SMALL),
        "insert 'all-reduce C over cluster.x with ring' before the hold ends",
    ),
    "fuse what is no sequence": (
        lambda: fuse_loops(parse(nest(ABC, "compute C")), (), GEMM, SMALL),
        "fuse_loops: expected a sequence; got 'hold dram: A B C'",
    ),
    "fuse other loops": (
        lambda: fuse_loops(parse(seq(nest("for m by 2", "compute S"), nest("for m by 4", "compute mx"))), (), SOFTMAX, SMALL),
        "fuse_loops: expected 'for m by 2' as each child; got 'for m by 4'",
    ),
    "fuse over a reduction": (
        lambda: fuse_loops(parse(nest(ABP, SOFT, UNFUSED)), (0, 0), SOFTMAX, SMALL),
        "compute E: expected mx reduced over all n; got both inside that loop",
    ),
    "insert an algorithm that does not serve": (
        lambda: insert_collectives(parse(nest(*SPLIT_K, "compute C")), GEMM, SMALL, algorithm="one-shot"),
        "expected a topology among full; got line",
    ),
    "insert where no collective helps": (
        lambda: insert_collectives(parse(nest(ABP, SOFT, seq("compute S", "compute E", *REST[:1], *REST[2:]))), SOFTMAX, SMALL),
        "compute E: expected mx in obuf; got elements that are not there",
    ),
    "insert between stages": (
        lambda: insert_collectives(
            parse(nest(ABP, SOFT, node(f"pipeline m by 2 {X} shares 1 1", "compute S", seq(*REST)))), SOFTMAX, SMALL
        ),
        "compute mx: expected S Replicate over cluster.x; got members 0 to 0 only",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_rewrite_that_does_not_apply_says_why(name: str) -> None:
    rewrite, message = REFUSED[name]
    with pytest.raises(IllegalMapping) as caught:
        rewrite()
    assert any(message in str(fault) for fault in caught.value.faults), str(caught.value)


def test_inserting_into_a_legal_tree_changes_nothing() -> None:
    tree = parse(nest(*SPLIT_K, seq("compute C", f"all-reduce C {RING}")))
    assert insert_collectives(tree, GEMM, SMALL) == tree
    bare = parse(nest(QKVO, f"spread n by 4 {X}", "hold obuf: S E mx z U", seq(PIECES, "compute O")))
    online = insert_collectives(bare, ONLINE, SMALL)
    assert insert_collectives(online, ONLINE, SMALL) == online
