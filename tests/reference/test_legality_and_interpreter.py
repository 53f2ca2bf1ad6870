"""The static check and the cost formulas on one side, the interpreter on the other: on trees grown at random over all workloads,
windows included, both accept the same ones and count the same there."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from textwrap import dedent

import numpy as np
import pytest
from tests.reference.agreement import described, run_if_legal
from tests.reference.generate import Editor, plain_tree, random_chip, random_workload
from tests.reference.oracles import inputs, oracle
from tests.reference.problems import LONG, SIZES
from tests.reference.test_state_space_blocks import small_chip

from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.workloads import build

PARTS, TREES = 40, 10_000
"""The long run: legal trees, and the parts that it is cut into."""
SHORT = tuple(kind for kind in SIZES if kind not in LONG)
WINDOWS_CUT = (20, 35, 44)
"""Seeds whose trees, refused ones included, cut dims that windows are read from and what adds up to them."""


def verdict(workload: Workload, chip: Chip, tree: Node, seed: int = 0) -> bool:
    """Whether a tree is legal; where it is, it computes what the reference does."""
    arrays = inputs(workload, seed)
    done = run_if_legal(workload, chip, tree, arrays)
    if done is None:
        return False
    for name, value in oracle(workload, arrays).items():
        np.testing.assert_allclose(done.outputs[name], value, rtol=1e-6, atol=1e-9, err_msg=described(workload, tree))
    return True


def legal_trees(seed: int, kind: str, edits: int) -> Iterator[Node]:
    """Legal trees of a random problem, each an edit of the one before; what is tried and refused is compared as well."""
    random = Random(seed)
    workload, chip = random_workload(random, (kind,)), random_chip(random)
    editor, tree = Editor(random, workload, chip, strays=True), plain_tree(workload, chip)
    for _ in range(edits):
        edited = editor.edit(tree)
        if edited is not None and edited != tree and verdict(workload, chip, edited, seed % 1000):
            tree = edited
            yield tree


@pytest.mark.parametrize("kind", SHORT)
def test_one_verdict_and_equal_counts(kind: str) -> None:
    """A few trees of each workload of few ops; of windows more, as their boxes overlap."""
    seeds = WINDOWS_CUT if kind == "conv-chain" else (0,)
    assert all(sum(1 for _ in legal_trees(seed, kind, 16)) for seed in seeds)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_ten_thousand_trees(part: int) -> None:
    """Parts run alone: part 7 is ``pytest -m slow -k "ten_thousand and 7"``. Every third problem has windows."""
    kinds, found, seed = tuple(SIZES), 0, part
    while found < TREES // PARTS:
        kind = "conv-chain" if (seed // PARTS) % 3 == 0 else kinds[(seed // PARTS + part) % len(kinds)]
        found += sum(1 for _ in legal_trees(seed, kind, 30))
        seed += PARTS


# ---- single trees ----------------------------------------------------------------------------------

CASES: dict[str, tuple[str, dict[str, object], tuple[int, int], bool, str]] = {
    "image dim and base dim split": ("conv-chain",
        {"height": 6, "width": 5, "channels": 2, "filters": 3, "kernel": 2, "layers": 1}, (4, 4), False, """
        hold dram: x0 W1 S1
          hold obuf: x0 W1 S1
            spread p0 by 3 over cluster.x
              spread p1 by 3 over cluster.y
                compute convolve_1"""),
    "image dim and base dim cut, in time and by a split": ("conv-chain",
        {"height": 6, "width": 5, "channels": 2, "filters": 3, "kernel": 2, "layers": 1}, (4, 4), False, """
        hold dram: x0 W1 S1
          hold obuf: x0 W1 S1
            for r1 by 1
              spread p0 by 3 over cluster.x
                compute convolve_1"""),
    "image dim split alone": ("conv-chain", {"height": 6, "width": 5, "channels": 2, "filters": 3, "kernel": 2, "layers": 1},
        (4, 4), False, """
        hold dram: x0 W1 S1
          hold obuf: x0 W1 S1
            spread p0 by 3 over cluster.x
              compute convolve_1"""),
    "base dim split alone": ("conv-chain", {"height": 6, "width": 5, "channels": 2, "filters": 3, "kernel": 2, "layers": 1},
        (4, 4), True, """
        hold dram: x0 W1 S1
          spread p1 by 2 over cluster.x
            hold obuf: x0 W1 S1
              for r1 by 1
                compute convolve_1"""),
    "base dim and taps split": ("conv-chain", {"height": 6, "width": 5, "channels": 2, "filters": 3, "kernel": 2, "layers": 1},
        (4, 4), False, """
        hold dram: x0 W1 S1
          spread p1 by 2 over cluster.x
            spread r1 by 1 over cluster.y
              hold obuf: x0 W1 S1
                sequence
                  compute convolve_1
                  all-reduce S1 over cluster.y with direct"""),
    "a shift of what all have, again and again": ("gemm", {"m": 4, "n": 4, "k": 4}, (2, 2), True, """
        hold dram: A B C
          hold obuf: A B C
            for k by 1
              sequence
                compute gemm
                shift B over cluster.y with neighbour"""),
    "a shift of shards, twice": ("gemm-rmsnorm", {"m": 4, "n": 4, "k": 2}, (3, 1), False, """
        hold dram: A B gain P
          hold obuf: A B gain P q r S
            sequence
              compute gemm
              spread m by 2 over cluster.x
                compute sum_squares
              shift q over cluster.x with neighbour
              shift q over cluster.x with neighbour
              spread m by 2 over cluster.x
                sequence
                  compute rrms
                  compute normalise"""),
    "one shard of two members, shifted to the other": ("gemm-rmsnorm", {"m": 4, "n": 4, "k": 2}, (1, 2), True, """
        hold dram: A B gain P
          hold obuf: A B gain P q r S
            sequence
              compute gemm
              spread m by 4 over cluster.y
                compute sum_squares
              shift q over cluster.y with neighbour
              compute rrms
              compute normalise"""),
    "two shards shifted around a ring of two": ("gemm-rmsnorm", {"m": 4, "n": 4, "k": 2}, (1, 2), False, """
        hold dram: A B gain P
          hold obuf: A B gain P q r S
            sequence
              compute gemm
              spread m by 2 over cluster.y
                compute sum_squares
              shift q over cluster.y with neighbour
              compute rrms
              compute normalise"""),
    "a shift in a split with idle members": ("gemm", {"m": 4, "n": 4, "k": 7}, (3, 2), False, """
        hold dram: A B C
          hold wbuf: B A C
            spread m by 2 over cluster.x
              sequence
                for m by 2
                  compute gemm
                shift B over cluster.x with neighbour"""),
    "a shift where a loop leaves members idle": ("gemm", {"m": 5, "n": 4, "k": 3}, (2, 1), False, """
        hold dram: A B C
          spread m by 3 over cluster.x
            for m by 1
              hold obuf: A B C
                sequence
                  compute gemm
                  shift B over cluster.x with neighbour"""),
    "one part in every tile of a loop": ("merge-heads", {"tokens": 5, "heads": 3, "head_dim": 1}, (3, 2), True, """
        hold dram: X Y
          hold obuf: X Y
            sequence
              for h by 1
                spread h by 3 over cluster.x
                  compute permute
              gather Y over cluster.x to h with direct"""),
    "two parts in every tile of a loop": ("merge-heads", {"tokens": 5, "heads": 4, "head_dim": 1}, (3, 2), False, """
        hold dram: X Y
          hold obuf: X Y
            sequence
              for h by 2
                spread h by 1 over cluster.x
                  compute permute
              gather Y over cluster.x to h with direct"""),
    "only the first member comes back": ("scatter-add", {"tokens": 5, "slots": 2, "width": 3}, (1, 2), True, """
        hold dram: X index Y
          hold ibuf: X index Y
            sequence
              for m by 4
                spread m by 2 over cluster.y
                  hold obuf: Y
                    compute scatter
              all-reduce Y over cluster.y with direct"""),
    "shards of sums, of which only the first member gets its own back": ("gemm", {"m": 3, "n": 4, "k": 3}, (1, 2), False, """
        hold dram: A B C
          hold ibuf: A B
            for k by 1
              spread k by 2 over cluster.y
                hold obuf: C
                  hold obuf: C
                    sequence
                      compute gemm
                      reduce-scatter C over cluster.y to n with ring"""),
    "shards of sums that go back to all": ("gemm", {"m": 3, "n": 4, "k": 3}, (1, 2), True, """
        hold dram: A B C
          hold ibuf: A B
            for k by 1
              spread k by 2 over cluster.y
                hold obuf: C
                  sequence
                    compute gemm
                    reduce-scatter C over cluster.y to n with ring"""),
    "others come back as well": ("scatter-add", {"tokens": 7, "slots": 2, "width": 3}, (1, 2), False, """
        hold dram: X index Y
          hold ibuf: X index Y
            sequence
              for m by 4
                spread m by 2 over cluster.y
                  hold obuf: Y
                    compute scatter
              all-reduce Y over cluster.y with direct"""),
    "a result in the place of what idle members have still": ("gemm-rmsnorm", {"m": 6, "n": 6, "k": 2}, (3, 2), False, """
        hold dram: A B gain P
          hold obuf: A B gain P S r
            hold obuf: q|r
              sequence
                compute gemm
                compute sum_squares
                spread n by 4 over cluster.x
                  compute rrms
                compute normalise"""),
    "a result in the place of a larger part, whole along one axis of two": ("gemm-softmax", {"m": 4, "n": 7, "k": 4}, (2, 3),
        False, """
        hold dram: A B P
          hold obuf: A B mx z S E|P
            sequence
              compute gemm
              compute max
              compute exp
              compute sum
              spread n by 4 over cluster.y
                sequence
                  spread n by 4 over cluster.x
                    compute divide
                  all-gather P over cluster.x to m with bidirectional"""),
    "parts along one axis, joined before those along the other": ("gemm-gelu-gemm",
        {"tokens": 3, "model": 4, "hidden": 5}, (3, 2), True, """
        hold dram: X W1 W2 Y
          spread k by 3 over cluster.x
            hold wbuf: X W1 F
              sequence
                spread k by 2 over cluster.y
                  sequence
                    compute expand
                    reduce F over cluster.x with direct
                    broadcast F over cluster.x with chain
                reduce-scatter F over cluster.y to m with direct
                all-gather F over cluster.y with doubling
                hold wbuf: H W2 Y
                  sequence
                    compute activate
                    compute contract"""),
}  # fmt: skip
"""By what they are about: workload, its sizes, clusters along x (a line) and y (a ring), whether it is legal, the tree."""


@pytest.mark.parametrize("about", CASES)
def test_single_trees(about: str) -> None:
    kind, sizes, (x, y), legal, text = CASES[about]
    assert verdict(build(kind, sizes), small_chip(x, y), parse(dedent(text))) == legal
