"""The search for the best deployment against the enumeration of every candidate and batch."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.serving_cases import SOFTWARE

from halley.errors import BadInput, Infeasible
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.kernels.machine import PEAK
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.search import BUDGETS, PER_OCTAVE, Limits, ServingObjective, ServingProblem, search
from halley.serving.steady import Lengths, closed_loop

MODEL = load_model("llama3-8b")


def problem(system: str, lengths: Lengths, limits: Limits, precisions: tuple[str, ...] = ("bf16", "fp8")) -> ServingProblem:
    models = tuple(ServedModel(MODEL, precision) for precision in precisions)
    return ServingProblem(models, load_system(system), SOFTWARE, PEAK, lengths, limits, pools=False, budgets=(512, 2048))


def enumerated(asked: ServingProblem) -> float:
    """Most requests per second over every layout, precision, budget and batch that keeps the limits; 0: there is none."""
    best, chips = 0.0, asked.system.chips
    for tp, pp in itertools.product(range(1, chips + 1), repeat=2):
        if chips % (tp * pp) or MODEL.heads % tp or chips % tp:
            continue
        for model, budget in itertools.product(asked.models, asked.budgets):
            software = replace(asked.software, budget=budget)
            made = Deployment(model, asked.system, ReplicaLayout(tp, pp), software, PEAK)
            memory = made.engine_memory
            if memory.capacity_pages < memory.pages(asked.lengths.input + asked.lengths.output):
                continue
            most = made.capacity_users(asked.lengths)
            for users in {round(2 ** (step / PER_OCTAVE)) for step in range(200)}:
                if users <= most:
                    state = closed_loop(made.step, memory, users, asked.lengths)
                    if state.ttft <= asked.limits.ttft and state.tpot <= asked.limits.tpot:
                        best = max(best, state.rate * made.engines)
    return best


@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from(["1 x h100", "2 x h100, nvlink 2", "4 x a100, nvlink 4"]),
    st.integers(50, 3000),
    st.integers(2, 300),
    st.sampled_from([0.05, 0.3, math.inf]),
    st.sampled_from([0.006, 0.015, math.inf]),
)
def test_search_finds_what_enumeration_finds(system: str, long: int, answer: int, ttft: float, tpot: float) -> None:
    precisions = ("bf16", "int8") if "a100" in system else ("bf16", "fp8")
    asked = problem(system, Lengths(long, answer), Limits(ttft, tpot), precisions)
    best = enumerated(asked)
    if best == 0:
        with pytest.raises(Infeasible):
            search(asked)
        return
    found = search(asked)
    assert found.best.rate == pytest.approx(best)
    assert found.certificate.bound <= found.certificate.value
    assert found.best.rate <= found.bound


def test_bounds_leave_candidates_out_and_change_nothing() -> None:
    asked = problem("4 x h100, nvlink 4", Lengths(1000, 200), Limits(1.0, 0.02))
    short, whole = search(asked), search(replace(asked, front=True))
    assert short.best.rate == whole.best.rate
    assert short.certificate.effort["costed"] <= whole.certificate.effort["costed"] == whole.candidates
    for (a, _), (b, _) in itertools.pairwise(whole.front):
        assert a.user >= b.user
        assert a.chip < b.chip


def test_least_chips_for_a_rate() -> None:
    asked = problem("8 x h100, nvlink 8", Lengths(1000, 200), Limits(1.0, 0.02))
    asked = replace(asked, objective=ServingObjective.CHIPS, rate=search(asked).best.rate / 3)
    assert search(asked).chips == 3


def test_pools_serve_no_more_than_the_bound() -> None:
    asked = replace(problem("8 x h100, nvlink 8", Lengths(3000, 300), Limits(1.0, 0.01)), pools=True)
    found = search(asked)
    assert found.pools is None or found.best.rate < found.pools.rate <= found.bound
    assert found.certificate.bound <= found.certificate.value


def test_limits_that_nothing_keeps() -> None:
    with pytest.raises(Infeasible, match=r"TPOT at most 0.0001 s.*at the nearest"):
        search(problem("2 x h100, nvlink 2", Lengths(100, 20), Limits(10.0, 1e-4)))
    with pytest.raises(Infeasible, match="on a chip with the layout that needs least"):
        search(replace(problem("1 x h100", Lengths(100, 20), Limits()), models=(ServedModel(load_model("llama3-405b")),)))
    with pytest.raises(BadInput, match="times above 0"):
        Limits(0.0, 1.0)
    assert BUDGETS
