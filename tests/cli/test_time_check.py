"""`halley check`: the simulated time beside the formula's."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.simulate.simulation import Simulation, simulate
from halley.verify import mapping
from halley.verify.findings import Finding
from halley.workloads import build

PLAN = """hold dram: A B C
  for m by 2
    hold glb: A B C
      hold obuf: C
        hold ibuf: A
          hold wbuf: B
            compute gemm
"""


def judged(monkeypatch: pytest.MonkeyPatch, slower: float, m: int = 8) -> Finding:
    """The check where the simulation takes so many times its time."""

    def longer(workload: Workload, chip: Chip, tree: Node, limit: int) -> Simulation:
        found = simulate(workload, chip, tree, limit)
        return replace(found, time=found.time * slower)

    monkeypatch.setattr(mapping, "simulate", longer)
    return mapping.time_finding("best", build("gemm", {"m": m, "n": 8, "k": 8}), load_chip("edge"), parse(PLAN, "plan"))


@pytest.mark.parametrize(("slower", "passed"), [(1.0, True), (1.14, True), (1.16, False), (1 / 1.14, True), (1 / 1.16, False)])
def test_a_time_that_differs_by_more_fails(monkeypatch: pytest.MonkeyPatch, slower: float, passed: bool) -> None:
    found = judged(monkeypatch, slower)
    assert found.passed is passed
    assert "simulated" in found.detail
    assert "by formula" in found.detail
    ratio = re.search(r"ratio ([\d.]+), at most 1.15", found.detail)
    assert ratio is not None
    exact = float(ratio[1]) / max(slower, 1 / slower)  # the formulas and the simulation agree on this mapping
    assert exact == pytest.approx(1.0, abs=0.01)


def test_a_long_plan_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "TASKS", 100)
    found = judged(monkeypatch, 1.0, m=1000)
    assert found.passed
    assert "both of the first 16 iterations" in found.detail


def test_too_many_members_cannot_be_told() -> None:
    workload, tree = build("gemm", {"m": 8, "n": 8, "k": 8}), parse("hold memoryx: A B C\n  compute gemm\n", "plan")
    found = mapping.time_finding("best", workload, load_chip("wse-2"), tree)
    assert found.passed is None
    assert "at most 4096 members" in found.detail
