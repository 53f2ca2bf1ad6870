"""The benchmarks measure what they say: real workloads, batches that cost what each of their mappings costs, whole tables."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from benchmarks import comparison, costing
from benchmarks.comparison import Figures, Row
from benchmarks.measure import Measurement
from benchmarks.proofs import CASES

from halley.cost.evaluate import evaluate
from halley.io.load import load_chip
from halley.ir.mapping import Hold, Node, Sequence, Spatial, Temporal
from halley.workloads import gemm_softmax


def picked(node: Node, index: tuple[int, ...]) -> Node:
    """One mapping of a batch: its tiles at that place."""
    match node:
        case Temporal() | Spatial():
            tile = node.tile
            if isinstance(tile, np.ndarray):
                tile = int(tile[tuple(0 if size == 1 else i for i, size in zip(index, tile.shape, strict=True))])
            return replace(node, tile=tile, body=picked(node.body, index))
        case Hold():
            return replace(node, body=picked(node.body, index))
        case Sequence():
            return replace(node, children=tuple(picked(child, index) for child in node.children))
        case _:
            return node


def test_a_batch_costs_what_its_mappings_cost() -> None:
    chip, work = load_chip("edge"), gemm_softmax(96, 80, 36)
    tree, count = costing.batch(work, chip)
    batch = evaluate(work, chip, tree)
    times, energies = np.asarray(batch.time), np.asarray(batch.energy)
    assert times.size == count > 100
    for index in itertools.islice(np.ndindex(times.shape), 0, None, max(1, count // 7)):
        one = evaluate(work, chip, picked(tree, index))
        assert (times[index], energies[index]) == (one.time, pytest.approx(one.energy, rel=1e-12))


def test_every_row_has_a_workload() -> None:
    models = {model for _, model, _ in comparison.wanted()}
    assert len(models) >= 6
    for operation, model, _ in comparison.wanted():
        assert comparison.workload(operation, model).macs() > 0
    assert all(make().macs() > 0 for _, make, _ in CASES.values())


def test_page() -> None:
    fast, slow = Figures(1e-6, 2e-6, 3e6), Figures(4e-6, 5e-6, 6e6)
    row = Row("attention", "gpt2-xl", "edge", "m 2", slow, None, fast, "gemm", 0.25, 1.0, "")
    page = comparison.page([row])
    tables = [list(lines) for is_table, lines in groupby(page.splitlines(), lambda line: line.startswith("|")) if is_table]
    assert len(tables) == 3
    for table in tables:
        assert len({line.count("|") for line in table}) == 1
    assert "| self-attention | 1.82 x | 4.00 x | 4.00 x |" in page
    assert "| none fits | 1 us | 4.00 x |" in page
    assert "25.00%" in page
    assert "in 0 of them" in page


def test_targets() -> None:
    assert Measurement("a", 2, "s", 1).met is False
    assert Measurement("a", 2, "1/s", 1, most=False).met
    assert str(Measurement("a", 2, "s", 1)).endswith("MISSED")
    assert Measurement("a", 2, "s").row()["target"] is None
