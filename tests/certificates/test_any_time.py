"""An answer at any time: searches that are stopped, long ranges, and problems that cannot fit."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.limits import CASES, LONGEST, MOST_MEMORY
from benchmarks.measure import in_new_process

from halley.answer import Status
from halley.answers.load import as_answer, load
from halley.errors import Infeasible, SearchStopped
from halley.io.chips.load import load_chip
from halley.ir.workload import Workload
from halley.mapping.optimise import GAP_OF_FIRST_SEARCH, _Optimiser, optimise
from halley.mapping.problem import Problem
from halley.mapping.result import Result
from halley.mapping.space.tile_sizes import LONG_RANGE, few_parts, tile_sizes
from halley.report.mapping.facts import verdict
from halley.workloads import build

LAYER = {"tokens": 64, "model": 256, "heads": 4, "kv_heads": 2, "head_dim": 64, "hidden": 512}


class StopAfter:
    """Interrupts a search at a step of its progress."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, text: str, share: float) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def stopped(workload: Workload, chip: str, steps: int) -> Result:
    return optimise(Problem(workload, load_chip(chip), baselines=False), StopAfter(steps))


def test_a_search_that_is_stopped_before_its_first_mapping_is_not_infeasible() -> None:
    with pytest.raises(SearchStopped, match="expected a first mapping"):
        stopped(build("gemm", {"m": 64, "n": 64, "k": 64}), "edge", 1)


@pytest.mark.medium
def test_a_stopped_search_has_a_plan_and_a_bound_and_counts_nothing() -> None:
    found = stopped(build("transformer-layer", LAYER), "edge", 1_500)
    certificate = found.best.certificate
    assert found.best.status is Status.LIMIT
    assert 0 < certificate.bound < certificate.value
    assert certificate.size is None


def test_progress_says_the_gap_and_the_groups_that_are_left() -> None:
    said: list[str] = []
    work = build("gemm-softmax", {"m": 16, "n": 16, "k": 16})
    optimise(Problem(work, load_chip("edge"), baselines=False), lambda text, share: said.append(text))
    found = [match for text in said if (match := re.match(r"gap ([\d.e+-]+) %, (\d+) groups? left", text))]
    gaps, left = [float(match[1]) for match in found], [int(match[2]) for match in found]
    assert len(set(gaps)) > 1
    assert gaps == sorted(gaps, reverse=True)
    assert left == sorted(left, reverse=True)


@pytest.mark.medium
def test_kernels_are_searched_before_fused_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, chip = build("gated-mlp", {"tokens": 4, "model": 4, "hidden": 4}), load_chip("edge")
    (unfused,) = optimise(Problem(workload, chip, baselines=("unfused",))).baselines

    search, calls = _Optimiser._search_groups, []

    def first_only(optimiser: _Optimiser, *given: Any) -> None:
        calls.append(given)
        if len(calls) > 1:
            raise KeyboardInterrupt
        search(optimiser, *given)

    monkeypatch.setattr(_Optimiser, "_search_groups", first_only)
    early = optimise(Problem(workload, chip, baselines=False)).best
    assert len(calls) == 2
    value = unfused.certificate.value
    assert value * (1 - 1e-9) <= early.certificate.value <= value * (1 + GAP_OF_FIRST_SEARCH)


def test_inputs_that_exceed_the_outermost_memory_are_refused_before_any_search() -> None:
    with pytest.raises(Infeasible, match=r"gemm on cloud: expected at most .* in dram; got .* of inputs and results"):
        stopped(build("gemm", {"m": 10**12, "n": 10**12, "k": 10**12}), "cloud", 0)


@pytest.mark.parametrize("extent", [LONG_RANGE + 1, 10**6, 10**9, 10**12])
def test_a_long_range_has_few_sizes_in_every_octave(extent: int) -> None:
    sizes = tile_sizes(extent, (128,))
    assert {1, extent, -(-extent // 2), -(-extent // 3), -(-extent // 1024)} <= set(sizes)
    assert len(sizes) < 10 * math.log2(extent)
    assert max(after / before for before, after in zip(few_parts(extent), few_parts(extent)[1:], strict=False)) <= 2


def test_a_long_range_is_searched() -> None:
    found = stopped(build("gemm", {"m": 10**9, "n": 16, "k": 16}), "cloud", 2_000).best
    assert found.certificate.bound > 0
    assert found.status in (Status.OPTIMAL, Status.LIMIT)


def test_a_kernel_that_does_not_fit_by_itself() -> None:
    """A row of scores exceeds the scratch pads of all PEs: the softmax has no mapping alone, and the first search goes on."""
    work = build("attention", {"batch": 1, "heads": 1, "queries": 1, "keys": 4093, "head_dim": 1})
    with pytest.raises(SearchStopped, match="expected a first mapping before the limit"):
        stopped(work, "eyeriss-like", 150)


def test_a_search_to_a_gap_says_so(tmp_path: Path) -> None:
    """Nothing is said to be optimal that is only proven within a gap; without a gap, it is."""
    work, chip = build("gemm", {"m": 64, "n": 64, "k": 64}), load_chip("edge")
    within = optimise(Problem(work, chip, baselines=False, gap=0.05))
    certificate = within.best.certificate
    assert certificate.gap > 0.01
    assert within.status is within.best.status is Status.WITHIN
    assert verdict(certificate).startswith("within 5.00 % of the best: of ")
    assert "this one has" in verdict(certificate)
    answer = as_answer(within)
    answer.save(tmp_path / "a.json")
    assert all(finding.passed is not False for finding in load(tmp_path / "a.json").check(limit=20))
    assert optimise(Problem(work, chip, baselines=False)).best.status is Status.OPTIMAL


@pytest.mark.slow
@pytest.mark.parametrize(("word", "chip"), [(word, chip) for word, case in CASES.items() for chip in case.chips])
def test_a_time_limit_holds(word: str, chip: str) -> None:
    """Counted in CPU time, as other processes may run beside this one. The answer has a bound."""
    found = in_new_process("-m", "benchmarks.limits", word, chip)
    assert found["seconds"] <= LONGEST
    assert found["peak"] <= MOST_MEMORY * 2**20
    assert 0 <= found["gap"] < math.inf
