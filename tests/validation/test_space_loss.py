"""The loss of the space: random edits of mappings, and the climb that uses them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from validation.space_loss import page
from validation.space_loss.climb import climb, value
from validation.space_loss.edits import MOVES, Edits
from validation.space_loss.problems import PROBLEMS

from halley import build, load_chip
from halley.ir.mapping import Node, walk
from halley.ir.text import parse
from halley.rewrite import legality
from halley.rewrite.canonical import canonical

EVEN = """
hold dram: A B C
  spread n by 64 over cluster.x
    spread n by 32 over cluster.y
      hold wbuf: B
        for m by 32
          hold obuf x2: C
            hold ibuf x2: A
              compute gemm
"""
FUSED = """
hold dram: A B P
  hold glb: S
    sequence
      spread m by 8 over cluster.x
        hold obuf: S
          for n by 16
            hold wbuf x2: B
              hold ibuf: A
                compute gemm
      spread n by 16 over cluster.x
        for m by 1
          hold obuf: S|E|P
            hold obuf: mx z
              sequence
                compute max
                all-reduce mx over cluster.x with direct
                compute exp
                compute sum
                all-reduce z over cluster.x with direct
                compute divide
"""
GEMM = build("gemm", {"m": 128, "n": 128, "k": 128})
SOFTMAX = build("gemm-softmax", {"m": 16, "n": 32, "k": 8})


@pytest.mark.parametrize("move", dict.fromkeys(MOVES), ids=lambda move: move.__name__)
def test_each_edit_changes_a_mapping_and_keeps_its_ops(move: object) -> None:
    """Every kind of edit finds a place in a fused mapping."""
    draw, chip, tree = random.Random(1), load_chip("edge"), parse(FUSED)
    assert not legality.faults(tree, SOFTMAX, chip)
    edits, made = Edits(SOFTMAX, chip, draw), set[Node]()
    for _ in range(200):
        changed = move(edits, tree)  # type: ignore[operator]
        if changed is not None and changed != tree:
            made.add(changed)
    assert made
    assert all(_ops(changed) == _ops(tree) for changed in made)


def _ops(tree: Node) -> set[str]:
    return {node.op for _, node in walk(tree) if hasattr(node, "op")}


def test_a_climb_finds_a_better_mapping() -> None:
    """Of a mapping that leaves most clusters idle. It is legal and costs what the climb says; the same seed finds it again."""
    chip = load_chip("cloud")
    tree = parse(EVEN.replace("hold wbuf: B", "hold wbuf x2: B"))
    start = value(GEMM, chip, canonical(tree, GEMM.dims), "time")
    assert start is not None
    found = climb(GEMM, chip, tree, "time", seed=1, proposals=1500)
    assert found.value < start
    assert found.value == value(GEMM, chip, found.tree, "time")
    assert not legality.faults(found.tree, GEMM, chip)
    assert (found.proposed, found.legal > 100) == (1500, True)
    assert climb(GEMM, chip, tree, "time", seed=1, proposals=1500) == found


def test_illegal_mappings_and_those_that_do_not_fit_have_no_value() -> None:
    chip = load_chip("edge")
    assert value(GEMM, chip, parse(EVEN), "energy") is not None
    assert value(GEMM, chip, parse(EVEN.replace("hold wbuf: B\n", "hold glb: B\n")), "time") is None
    large = build("gemm", {"m": 128, "n": 128, "k": 4096})
    assert value(large, chip, parse(EVEN), "time") is None


def test_the_list() -> None:
    assert len({(problem.chip, problem.name, problem.objective) for problem in PROBLEMS}) == 40
    for problem in PROBLEMS:
        problem.workload()


def test_what_is_not_proven_does_not_count_as_loss_of_the_space(tmp_path: Path) -> None:
    row = page.Row("edge", "gemm", "time", 1.02e-6, 0.0, 1e-6, 1000, 100, 0.5)
    page.write([row, replace(row, chip="cloud", gap=0.5, climbed=0.5e-6)], tmp_path / "page.md")
    text = " ".join((tmp_path / "page.md").read_text(encoding="utf-8").split())
    assert "Of the 1 whose winner is proven optimal in its space, 0 lose at most 1 %; the mean is 2.00%." in text


def test_rows_are_kept(tmp_path: Path) -> None:
    rows = [
        page.Row("edge", "gemm", "time", 1.02e-6, 0.0, 1e-6, 1000, 100, 0.5),
        page.Row("edge", "fft", "time", reason="no, why"),
    ]
    page.save(rows, tmp_path / "rows.csv")
    assert page.load(tmp_path / "rows.csv") == rows
    assert rows[0].loss == pytest.approx(0.02)
    page.write(rows, tmp_path / "page.md")
    assert "| edge | gemm | time | 1.02e-06 s | 0% | 2.00% |" in (tmp_path / "page.md").read_text(encoding="utf-8")
