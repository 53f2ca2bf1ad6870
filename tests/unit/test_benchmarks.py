"""The benchmarks measure what they say: real workloads, programs that give what each mapping costs."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import costing
from benchmarks.measure import ROOT, Measurement, environment
from benchmarks.proofs import CASES

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.workloads import gemm_softmax


def test_what_is_counted_is_costed() -> None:
    """The mappings of the costing benchmark: their programs give what each costs alone, time, energy and every footprint."""
    chip, work = load_chip("edge"), gemm_softmax(96, 80, 36)
    group = costing.families(work, chip)
    assert len(group) >= 3
    for item in group:
        source = np.random.default_rng(1)
        drawn = {dim: source.choice(nodes, 3) for dim, nodes in item.chains.items()}
        found = item.program(item.tables, drawn, 3)
        for row in range(3):
            tiles = {name: size for dim, nodes in drawn.items() for name, size in item.trees[dim].sizes(int(nodes[row])).items()}
            one = evaluate(work, chip, item.build(tiles))
            used = [one.footprint.get(memory, 0) for memory in item.memories]
            assert found[:, row] == pytest.approx([one.time, one.energy, *used], rel=1e-12)
        grid = item.program.grid(item.tables, item.some(4))
        assert grid.size >= 16
        costs = grid.costs()
        fits = (costs[2:] <= np.array(item.capacities)[:, None]).all(axis=0)
        assert [least.value for least in grid.least(item.capacities)] == [costs[row][fits].min(initial=np.inf) for row in (0, 1)]


def test_every_proof_has_a_workload() -> None:
    assert all(case.work().macs() > 0 for case in CASES.values())


def test_targets() -> None:
    assert Measurement("a", 2, "s", 1).met is False
    assert Measurement("a", 2, "1/s", 1, most=False).met
    assert str(Measurement("a", 2, "s", 1)).endswith("MISSED")
    assert Measurement("a", 2, "s").row()["target"] is None


def test_imports_are_timed_with_compiled_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    found = environment(ROOT / "src")
    assert "PYTHONDONTWRITEBYTECODE" not in found
    assert found["PYTHONPATH"] == str(ROOT / "src")
    assert found["OMP_NUM_THREADS"] == "1"
