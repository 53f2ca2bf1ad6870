"""Bounds of an engine from its steps: no simulated schedule exceeds them, and they are optima of their linear programme."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.serving_cases import deployment

from halley.serving.layout import ReplicaLayout
from halley.serving.plans.prompt_queue import prompt_steps
from halley.serving.simulate import generated, simulate
from halley.serving.steady import Lengths, closed_loop
from halley.serving.step import StepBatch
from halley.serving.step_bounds import StepKinds, StepProgramme, cells, engine_bound, most_sequences, request_rows, step_kinds

KINDS = {
    "dense": ("llama3-8b", "1 x h100", ReplicaLayout()),
    "experts": ("mixtral-8x7b", "8 x h100, nvlink 8", ReplicaLayout(8, 1, 8)),
    "hybrid": ("nemotron-h-8b", "1 x h100", ReplicaLayout()),
    "linear": ("qwen3-next-80b-a3b", "4 x h200, nvlink 4", ReplicaLayout(4, 1, 4)),
    "latent": ("deepseek-v3", "16 x h200, nvlink 8, ib", ReplicaLayout(2, 1, 8, 8)),
}


def bound(kind: str, lengths: Lengths, tpot: float = math.inf, ttft: float = math.inf) -> float:
    made = deployment(*KINDS[kind])
    return engine_bound(made.step, most_sequences(made, lengths), lengths, request_rows(lengths, tpot, ttft))


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 64), st.integers(20, 1500), st.integers(2, 100), st.floats(0.7, 1.5))
def test_no_simulation_exceeds_them(kind: str, users: int, long: int, answer: int, near: float) -> None:
    """Also under limits of TPOT and TTFT that the simulation keeps."""
    made, lengths = deployment(*KINDS[kind]), Lengths(long, answer)
    found = simulate(made.step, made.engine_memory, generated(users + 20, 0.0, (long, long), (answer, answer)), concurrency=users)
    rate = found.requests / found.time
    assert rate <= bound(kind, lengths)
    if near >= 1:
        tpot, ttft = near * found.tpot.mean, near * found.ttft.mean
        assert rate <= min(bound(kind, lengths, tpot), bound(kind, lengths, ttft=ttft), bound(kind, lengths, tpot, ttft))


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_of_ttft_bounds_large_steps(kind: str) -> None:
    """Prompts alone, one for each output token: the tightest limit allows one of them in a step, or none."""
    made, lengths = deployment(*KINDS[kind]), Lengths(512, 1)
    alone = float(made.step.time(StepBatch(0, 0, lengths.new, lengths.input, 1)))
    limits = [bound(kind, lengths, ttft=limit * alone) for limit in (0.5, 1.02, 2.0, math.inf)]
    assert limits[0] == 0 or limits[0] < limits[1]
    for lower, higher in pairwise((1 / alone, *limits[1:])):
        assert lower <= higher * (1 + 1e-12)


@pytest.mark.parametrize("engines", [1, 4, 32])
@pytest.mark.parametrize("long", [100, 256, 500, 1500])
@pytest.mark.parametrize("kind", ["dense", "experts", "latent"])
def test_pools_wait_as_in_the_simulation(kind: str, long: int, engines: int) -> None:
    """Prompts that arrive by themselves, at one engine after the other, in steps of all that wait: the closed form of pools
    against events."""
    made, lengths = deployment(*KINDS[kind]), Lengths(long, 1)
    steps = prompt_steps(made.step, lengths)
    for load in (0.2, 0.5, 0.8):
        rate = load * steps.most
        requests = generated(20_000, engines * rate, (long, long), (1, 1))
        found = simulate(made.step, made.engine_memory, requests, engines)
        assert steps.latency(rate, engines) == pytest.approx(found.ttft.mean, rel=0.08)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.floats(8, 64), st.floats(16, 4000), st.floats(16, 500))
def test_closed_forms_keep_them(kind: str, users: float, long: float, answer: float) -> None:
    """Closed forms are no schedules: they time steps of a mean number of sequences. Up to 4 % faster than any is allowed; with
    prompts of many chunks and few output tokens they can be 6 % faster (docs/serving.md)."""
    made, lengths = deployment(*KINDS[kind]), Lengths(long, answer)
    state = closed_loop(made.step, made.engine_memory, users, lengths)
    assert state.rate <= 1.04 * bound(kind, lengths)
    assert state.rate <= 1.04 * bound(kind, lengths, state.tpot)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tpot", [math.inf, 0.02])
@pytest.mark.parametrize("ttft", [math.inf, 0.15])
def test_the_bound_is_the_optimum_of_the_programme(kind: str, tpot: float, ttft: float) -> None:
    """Against a solver; and no other prices give a lower bound."""
    optimize = pytest.importorskip("scipy.optimize")
    made, lengths = deployment(*KINDS[kind]), Lengths(300, 60)
    kinds = step_kinds(made.step, most_sequences(made, lengths), lengths, False)
    rows = request_rows(lengths, tpot, ttft)
    programme = StepProgramme(kinds, rows)
    optimum = solved(optimize, kinds, (rows.output, rows.prompt, rows.context, rows.patience), rows.first)
    assert programme.bound(programme.multipliers()) == pytest.approx(optimum, rel=1e-4)
    random = np.random.default_rng(0)
    for _ in range(50):
        assert programme.bound(random.random(5) * (1, 1, 1e-3, 20, 20)) >= optimum * (1 - 1e-9)


def solved(optimize: object, kinds: StepKinds, request: tuple[float, ...], first: float) -> float:
    """The optimum by a general solver."""
    count = len(kinds.time)
    table = np.zeros((6, count + 1))
    table[:4, :count] = kinds.time, -kinds.users, -kinds.prompt, -kinds.users * kinds.context
    table[:4, count] = kinds.apart, *request[:3]
    if math.isfinite(request[3]):
        table[4, :count], table[4, count] = kinds.least * kinds.time, -request[3]
    if math.isfinite(first):
        table[5, :count], table[5, count] = kinds.least_prompt * kinds.time, -request[1] * (first - kinds.apart)
    costs = np.zeros(count + 1)
    costs[-1] = -1
    found = optimize.linprog(costs, table, [1, 0, 0, 0, 0, 0])  # type: ignore[attr-defined]
    return -float(found.fun)


def test_an_engine_that_decodes_alone_and_one_that_does_not() -> None:
    """The best batch; and the prompt's cheapest tokens. Close to what the tables have, and never below."""
    made, lengths = deployment(), Lengths(200, 100)
    most = most_sequences(made, lengths)
    users = np.arange(1.0, most + 1)
    decoding = engine_bound(made.step, most, lengths, request_rows(lengths, prompts=False))
    reached = (users / made.step.time(StepBatch(users, lengths.mean_context))).max() / (lengths.output - 1)
    assert reached <= decoding <= 1.05 * reached
    prompts = engine_bound(made.step, most, lengths, request_rows(lengths, decoding=False))
    counts = np.arange(1.0, made.software.budget // lengths.new + 1)
    reached = (counts / made.step.time(StepBatch(0, 0, counts * lengths.new, lengths.input, counts))).max()
    assert reached <= prompts <= 1.35 * reached  # a budget holds two prompts and a part


@given(st.integers(1, 5000), st.integers(1, 40))
def test_cells_have_every_number_once(most: int, per_octave: int) -> None:
    first, last = cells(most, per_octave)
    assert first[0] == 0
    assert last[-1] == most
    assert (first[1:] == last[:-1] + 1).all()
    assert (first <= last).all()
