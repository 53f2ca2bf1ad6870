"""Bounds of an engine from its steps: no simulated schedule exceeds them, and they are optima of their linear programme."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.serving_cases import deployment

from halley.serving.layout import ReplicaLayout
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


def bound(kind: str, lengths: Lengths, tpot: float = math.inf) -> float:
    made = deployment(*KINDS[kind])
    return engine_bound(made.step, most_sequences(made, lengths), lengths, request_rows(lengths, tpot))


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(1, 64), st.integers(20, 1500), st.integers(2, 100), st.floats(0.7, 1.5))
def test_no_simulation_exceeds_them(kind: str, users: int, long: int, answer: int, near: float) -> None:
    """Also under a limit of TPOT that the simulation keeps."""
    made, lengths = deployment(*KINDS[kind]), Lengths(long, answer)
    found = simulate(made.step, made.engine_memory, generated(users + 20, 0.0, (long, long), (answer, answer)), concurrency=users)
    rate = found.requests / found.time
    assert rate <= bound(kind, lengths)
    tpot = near * found.tpot.mean
    if found.tpot.mean <= tpot:
        assert rate <= bound(kind, lengths, tpot)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.floats(8, 64), st.floats(16, 4000), st.floats(16, 500))
def test_closed_forms_keep_them(kind: str, users: float, long: float, answer: float) -> None:
    """Closed forms are no schedules: they time steps of a mean number of sequences. Up to 3 % faster than any is allowed."""
    made, lengths = deployment(*KINDS[kind]), Lengths(long, answer)
    state = closed_loop(made.step, made.engine_memory, users, lengths)
    assert state.rate <= 1.03 * bound(kind, lengths)
    assert state.rate <= 1.03 * bound(kind, lengths, state.tpot)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tpot", [math.inf, 0.02])
def test_the_bound_is_the_optimum_of_the_programme(kind: str, tpot: float) -> None:
    """Against a solver; and no other prices give a lower bound."""
    optimize = pytest.importorskip("scipy.optimize")
    made, lengths = deployment(*KINDS[kind]), Lengths(300, 60)
    kinds = step_kinds(made.step, most_sequences(made, lengths), lengths, False)
    rows = request_rows(lengths, tpot)
    programme = StepProgramme(kinds, rows)
    optimum = solved(optimize, kinds, (rows.output, rows.prompt, rows.context, rows.patience))
    assert programme.bound(programme.multipliers()) == pytest.approx(optimum, rel=1e-4)
    random = np.random.default_rng(0)
    for _ in range(50):
        assert programme.bound(random.random(4) * (1, 1, 1e-3, 20)) >= optimum * (1 - 1e-9)


def solved(optimize: object, kinds: StepKinds, request: tuple[float, ...]) -> float:
    """The optimum by a general solver."""
    count = len(kinds.time)
    table = np.zeros((5, count + 1))
    table[:4, :count] = kinds.time, -kinds.users, -kinds.prompt, -kinds.users * kinds.context
    table[:4, count] = kinds.apart, *request[:3]
    if math.isfinite(request[3]):
        table[4, :count], table[4, count] = kinds.least * kinds.time, -request[3]
    costs = np.zeros(count + 1)
    costs[-1] = -1
    found = optimize.linprog(costs, table, [1, 0, 0, 0, 0])  # type: ignore[attr-defined]
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
