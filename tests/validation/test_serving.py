"""Measured serving: rules of the comparison, and its tolerances where the tables are present."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
from validation.outcome import covered
from validation.serving.compare import (
    SKIPPED,
    closed_loop_of,
    closed_predictor,
    closed_rows,
    closed_throughput,
    compare,
    in_closed_form,
    medians,
    rank_and_regret,
    sn40l,
    static_predictor,
    static_rows,
    static_throughput,
)
from validation.serving.predict import efficiency
from validation.serving.rows import END_TO_END, Measured, halves, measured
from validation.serving.speculation import curve_cases, rounds
from validation.serving.traces import median, percentiles, traces

from halley.io.software import load_software
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.speculation import Acceptance, speculation_round
from halley.serving.step import StepBatch
from halley.training.uncertainty.plans import interval_reach

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("HALLEY_DATA", ROOT.parent / "shared" / "data"))
present = pytest.mark.skipif(not (DATA / END_TO_END).is_file(), reason="no data")


def test_without_data_nothing_is_said() -> None:
    assert compare(None).skipped == SKIPPED


def test_errors_and_ranks() -> None:
    assert medians([(1.1, 1.0), (1.0, 2.0), (3.0, 3.0)]) == (pytest.approx(0.1), pytest.approx(0.2), 3)
    assert np.isnan(rank_and_regret([], [], [])[0])


@pytest.mark.medium
def test_observations_of_dfmodel_on_sn40l() -> None:
    """Figure 20 of DFModel (arXiv 2412.16432, VIII-A), over all pairs of TP and PP on 16 SN40L: more TP is faster for a user and
    serves fewer; prefill is compute and network transfers, decode is memory and network latency."""
    software, system, model = load_software("ideal"), load_system("sn40l-torus"), ServedModel(load_model("llama3-8b"))
    times, rates, firsts, prompts = [], [], [], []
    for tp in (1, 2, 4, 8, 16):
        made = Deployment(model, system, ReplicaLayout(tp, 16 // tp), software, efficiency())
        decode, prefill = StepBatch(1, 1024), StepBatch(0, 0, 2048, 2048)
        times.append(float(made.step.time(decode)))
        firsts.append(float(made.step.time(prefill)))
        rates.append(made.engines / times[-1])
        prompts.append(made.engines * 2048 / firsts[-1])
        if tp > 1:
            parts = {name: float(value) for name, value in made.step.parts(prefill).items()}
            assert parts["matrices"] + parts["attention"] + parts["collectives"] > 0.95 * sum(parts.values())
            # decode: weights come from memory, and sums of one token wait for the latency of the links, not for their bandwidth
            parts = {name: float(value) for name, value in made.step.parts(decode).items()}
            assert parts["matrices"] + parts["collectives"] > 0.8 * times[-1]
            read = model.weight_bytes / tp / made.rates.memory
            assert read < 1.05 * (parts["matrices"] + parts["head"]) < 1.5 * read
            assert parts["collectives"] > 5 * 2 * model.shape.layers * 2 * model.shape.model / made.port
    for first, second in itertools.pairwise(zip(times, rates, firsts, prompts, strict=True)):
        assert first[0] > second[0]
        assert first[1] > second[1]
        assert first[2] > second[2]
        assert first[3] > second[3]
    assert sn40l().error < 0.1


@pytest.mark.medium
def test_observations_of_dfmodel_on_speculation() -> None:
    """Figure 21 of DFModel, Llama 405B on 16 SN40L with drafts of 68M, 8B and 70B, acceptance 0.5 to 0.95, windows 1 to 8:
    trees need the smallest draft and a short window; sequences want the small or the medium draft, the large one is too slow;
    sequences gain with window and acceptance."""
    software, system = load_software("ideal"), load_system("sn40l-torus")
    target, *drafts = (
        Deployment(ServedModel(load_model(name)), system, ReplicaLayout(tp), software, efficiency()).step
        for name, tp in (("llama3-405b", 16), ("llama-68m", 4), ("llama3-8b", 16), ("llama3-70b", 16))
    )

    def gains(draft: int, acceptance: float, width: int) -> list[float]:
        chances = Acceptance(acceptance)
        rounds_ = [speculation_round(target, drafts[draft], chances, window, 1, 1024, width) for window in range(1, 9)]
        return [item.speedup for item in rounds_]

    for acceptance in (0.5, 0.65, 0.8, 0.95):
        for width in (1, 2):
            best = [max(gains(draft, acceptance, width)) for draft in range(3)]
            assert best[0] > best[1] > best[2]
            assert best[1] - best[2] > best[0] - best[1]  # 68M and 8B are close, 70B is not
        tree = gains(0, acceptance, 2)
        assert tree.index(max(tree)) < 6
        assert tree[-1] < 0.6 * max(tree)
    for draft in (0, 1):
        assert all(a < b for a, b in itertools.pairwise(gains(draft, 0.95, 1)))
        for low, high in itertools.pairwise((0.5, 0.65, 0.8, 0.95)):
            assert all(a < b for a, b in zip(gains(draft, low, 1), gains(draft, high, 1), strict=True))


@present
@pytest.mark.medium
def test_halves_share_no_pair() -> None:
    """Every pair of GPU and model is in one half alone, by a rule that looks at names only."""
    rows = list(measured(DATA, ("static",)))
    fitted, judged = halves(rows)
    assert len(fitted) + len(judged) == len(rows) > 900
    pairs = [{row.pair for row in half} for half in (fitted, judged)]
    assert not pairs[0] & pairs[1]
    assert sorted(pairs[0] | pairs[1])[::2] == sorted(pairs[0])
    assert all(isinstance(row, Measured) for row in rows)


@present
@pytest.mark.medium
def test_speculation_against_measurements() -> None:
    cases = list(curve_cases(DATA))
    assert len(cases) > 150
    assert np.mean([abs(case.error) for case in cases]) < 0.02
    signs = [(found.speedup > 1) == (given > 1) for _, found, given in rounds(DATA)]
    assert len(signs) >= 8
    assert np.mean(signs) >= 0.9


@present
@pytest.mark.slow
def test_targets_are_met() -> None:
    """Medians of static batches, TPOT and requests; the rank of configurations, and what the one predicted best serves less."""
    made, (_, static) = static_predictor(), static_rows(DATA)
    for framework in ("vllm", "trtllm"):
        rows = [row for row in static if row.framework == framework]
        assert medians((made.static(row), row.latency or 0.0) for row in rows)[0] <= 0.10
    _, closed = closed_rows(DATA)
    predictor = closed_predictor()
    loops = [closed_loop_of(row, predictor, events=False) for row in closed]
    for experts, most in ((False, 0.12), (True, 0.18)):
        assert medians((loop.tpot, loop.row.tpot or 0.0) for loop in loops if loop.row.experts == experts)[0] <= most
    for framework in ("vllm", "trtllm"):
        software = load_software(framework)
        for cases, shipped in zip(in_closed_form(loops, framework), (software.tpot_reach, software.ttft_reach), strict=True):
            assert interval_reach([math.log(case.figure / case.halley) for case in cases]) == pytest.approx(shipped, rel=0.02)
            assert 0.7 <= covered(cases) <= 0.9
    times = [made.static(row) for row in static]
    batches = [static_throughput(row, time) for row, time in zip(static, times, strict=True)]
    users = [closed_throughput(loop.row, loop.tpot) for loop in loops]
    for rows, found, given in (
        (static, batches, [static_throughput(row, row.latency or 1) for row in static]),
        (closed, users, [closed_throughput(row, row.tpot or 1) for row in closed]),
    ):
        rank, regret, _, groups = rank_and_regret(rows, found, given)
        assert groups > 5
        assert rank >= 0.85
        assert regret <= 0.05
    for trace in traces(DATA):
        for pairs, most in ((trace.latency, 0.10), (trace.tpot, 0.08), (trace.ttft, 0.20)):
            assert median(pairs) <= most
            assert all(abs(one / other - 1) <= 0.15 for one, other in percentiles(pairs))


@present
@pytest.mark.slow
def test_tolerances_hold() -> None:
    outcome = compare(DATA)
    assert outcome.holds, [line.quantity for line in outcome.lines if not line.holds]
