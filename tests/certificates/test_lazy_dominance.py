"""Lazy refinement of dominance resources of overlapped stages: the answers are those with all resources from the start."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.certificates.exhaustive import draw_chip, draw_hidden, draw_workload
from tests.certificates.test_loops_inside_rows import draw_far
from tests.certificates.test_overlapped_attention import draw_attention

from halley.errors import Infeasible
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.solve.fixed_shared_tiles import FixedTileSearch
from halley.mapping.solve.overlap import Rounds
from halley.workloads import gemm_gelu_gemm

KINDS = (draw_workload, draw_attention, draw_hidden)


def drawn(seed: int) -> tuple[Workload, Chip]:
    draw = random.Random(seed)
    workload = KINDS[seed % len(KINDS)](draw)
    return workload, (draw_far if seed % 2 else draw_chip)(draw)


def answer(problem: Problem) -> Sequence[Sequence[float]]:
    """Values of the best plan and of the front."""
    try:
        result = optimise(problem)
    except Infeasible:
        return []
    best = result.best.estimate
    assert result.best.certificate.gap == 0.0
    value = {"time": best.time, "energy": best.energy, "edp": best.time * best.energy}[problem.objective.value]
    return [(float(value),), *((float(point.time), float(point.energy)) for point in result.front)]


def same(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> int:
    """Holds the answer against that with all limits from the start; returns how often limits were found to be missing."""
    missing = 0

    def counted(search: FixedTileSearch, run: Callable[[FixedTileSearch], set[Hashable]] = FixedTileSearch.run) -> set[Hashable]:
        nonlocal missing
        limits = run(search)
        missing += bool(limits)
        return limits

    with monkeypatch.context() as patch:
        patch.setattr(FixedTileSearch, "run", counted)
        few = answer(problem)
    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "_hidden", lambda rounds, resources: {})
        every = answer(problem)
    assert len(few) == len(every)
    for point, expected in zip(few, every, strict=True):
        assert point == pytest.approx(expected, rel=1e-9, abs=0)
    return missing


@pytest.mark.parametrize(("bound", "missing"), [(5.5, {"a", "b"}), (8.0, {"a", "b"}), (9.5, {"a", "b"}), (7.5, {"a"})])
def test_limits_that_only_together_make_a_plan_dearer_are_found(bound: float, missing: set[str]) -> None:
    """A child waits at several resources, one wait after the other. Energy, and what is used of three hidden limits."""
    used = np.array([[5.0], [3.0], [2.0 if bound == 7.5 else 3.0], [0.0]])
    rounds: Any = SimpleNamespace(
        together=lambda states: used,
        objectives=lambda states, at: states.sum(axis=0)[:, None],
        group=SimpleNamespace(found=SimpleNamespace(pruned=lambda costs: np.array([True]))),
    )
    search = FixedTileSearch(rounds, np.array([0]), False, {"a": [1], "b": [2], "c": [3]})
    assert search._reach({}, np.array([bound])) == missing


@pytest.mark.slow
def test_omitted_limits_are_found_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = gemm_gelu_gemm(32, 128, 256)
    assert same(Problem(workload, load_chip("edge"), baselines=False), monkeypatch)


LONGER = (pytest.param(*case, marks=pytest.mark.slow) for case in ((16, Objective.TIME), (19, "front")))


@pytest.mark.parametrize(("seed", "asked"), [(54, Objective.EDP), *LONGER])
def test_drawn_answers_are_those_of_all_limits(seed: int, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = Objective.TIME if asked == "front" else Objective(asked)
    assert same(Problem(*drawn(seed), objective, baselines=False, front=asked == "front"), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(6))
def test_drawn_answers_are_those_of_all_limits_on_many(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100 + 15 * block, 115 + 15 * block):
        for objective in (Objective.TIME, Objective.EDP):
            same(Problem(*drawn(seed), objective, baselines=False, front=objective is Objective.TIME), monkeypatch)
