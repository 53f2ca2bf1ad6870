"""Laws of speculative decoding in the search of deployments: rounds as steps, their bound, and what acceptance does."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.serving_cases import SOFTWARE, deployment

from halley import serve
from halley.errors import BadInput
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.kernels.machine import PEAK
from halley.serving.bounds import throughput_bounds
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.plans.problem import Drafts, Limits, ServingProblem
from halley.serving.plans.search import ServingPlan, search
from halley.serving.simulate import generated, simulate
from halley.serving.speculation import Acceptance, Speculation, proposing_head, sequence_tokens, speculation_round
from halley.serving.steady import Lengths, closed_loop, prompt_time
from halley.serving.step import PARTS, StepBatch
from halley.serving.step_bounds import engine_bound, most_sequences, request_rows, schedule_bounds

KINDS = {
    "dense": ("llama3-8b", "1 x h100", ReplicaLayout()),
    "experts": ("mixtral-8x7b", "8 x h100, nvlink 8", ReplicaLayout(8, 1, 8)),
    "pipeline": ("llama3-8b", "4 x h100, nvlink 4", ReplicaLayout(2, 2)),
    "latent": ("deepseek-v3", "16 x h200, nvlink 8, ib", ReplicaLayout(2, 1, 8, 8)),
}

windows, chance = st.sampled_from([1, 3, 8]), st.sampled_from([0.0, 0.5, 0.9])


@cache
def speculating(kind: str, window: int, acceptance: Acceptance) -> Deployment:
    """With a head of the model as the draft."""
    made = deployment(*KINDS[kind])
    return replace(made, speculation=Speculation(proposing_head(made.model), acceptance, window))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(KINDS)), windows, chance, st.integers(1, 64), st.integers(10, 4000))
def test_a_step_is_a_round(kind: str, window: int, first: float, users: int, context: int) -> None:
    """As `speculation_round` has it, and the sum of its parts; with prompts it takes longer."""
    made, chances = speculating(kind, window, Acceptance(first)), Acceptance(first)
    assert made.drafting is not None
    plain = made.step.with_width(1)
    found = speculation_round(plain, made.drafting.step, chances, window, users, context)
    batch = StepBatch(users, context)
    assert float(made.step.time(batch)) == pytest.approx(found.drafting + found.verifying, rel=1e-9)
    assert made.step.each == found.tokens
    parts = made.step.parts(batch)
    assert set(parts) <= set(PARTS)
    assert sum(parts.values()) == pytest.approx(float(made.step.time(batch)))
    mixed = StepBatch(users, context, 100, 100)
    assert made.step.time(mixed) > max(made.step.time(batch), plain.time(mixed))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(KINDS)),
    windows,
    chance,
    st.integers(20, 1500),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
)
def test_no_schedule_of_rounds_exceeds_the_bound(kind: str, window: int, first: float, long: int, rounds: int, seed: int) -> None:
    """Batches of any size one after the other: their prompts in chunks of any size, alone or in rounds of the batch before."""
    made, random = speculating(kind, window, Acceptance(first)), np.random.default_rng(seed)
    step, each = made.step, made.step.each
    lengths = Lengths(long, 1 + rounds * each)
    most = most_sequences(made, lengths)
    users = int(random.integers(1, most + 1))
    time, tpot, left, done = 0.0, 0.0, float(users * long), 0.0
    for number in range(rounds):
        context = long + 1 + number * each
        prompt = 0.0 if random.random() < 0.5 else min(left, float(random.integers(1, SOFTWARE.budget)))
        whole = max(prompt // long, 1.0)
        taken = float(step.time(StepBatch(users, context, prompt, min(long, max(prompt, done % long + prompt)), whole)))
        time, tpot, left, done = time + taken, tpot + taken / (rounds * each), left - prompt, done + prompt
    time += prompt_time(step, left / long, lengths) if left else 0.0
    rate = users / time
    bounds = [engine_bound(step, most, lengths, request_rows(lengths, limit, each=each)) for limit in (math.inf, tpot)]
    bounds += [item.rate / made.engines for item in throughput_bounds(made, lengths, tpot=tpot)]
    assert rate <= min(bounds) * (1 + 1e-9)


@pytest.mark.medium
@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(KINDS)), windows, st.sampled_from([0.0, 0.7, 1.0]), st.integers(8, 64), st.integers(20, 1500))
def test_no_simulation_of_rounds_exceeds_the_bound(kind: str, window: int, first: float, users: int, long: int) -> None:
    """Tokens of a round are drawn, but for chances of 0 and 1: on average no more than expected."""
    made, lengths = speculating(kind, window, Acceptance(first)), Lengths(long, 60)
    blocks = generated(4 * users, 0.0, (long, long), (60, 60))
    found = simulate(made.step, made.engine_memory, blocks, concurrency=users, acceptance=Acceptance(first))
    rate, slack = found.requests / found.time, 0.0 if first in (0.0, 1.0) else 0.02
    assert found.requests == 4 * users
    assert rate * made.engines <= schedule_bounds(made, lengths, users * made.engines)[0].rate * (1 + slack + 1e-9)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(KINDS)), windows, chance, st.floats(8, 64), st.floats(16, 4000), st.floats(16, 500))
def test_closed_forms_keep_the_bound(kind: str, window: int, first: float, users: float, long: float, answer: float) -> None:
    """Up to 3 % faster than any schedule, as without speculation."""
    made, lengths = speculating(kind, window, Acceptance(first)), Lengths(long, answer)
    state, most = closed_loop(made.step, made.engine_memory, users, lengths), most_sequences(made, lengths)
    for tpot in (math.inf, state.tpot):
        rows = request_rows(lengths, tpot, each=made.step.each)
        assert state.rate <= 1.03 * engine_bound(made.step, most, lengths, rows)
    assert state.decoding * (window + 1) <= made.software.budget


def planned(system: str, lengths: Lengths, limits: Limits, acceptance: Acceptance | None) -> ServingPlan:
    model = ServedModel(load_model("llama3-8b"))
    drafts = None if acceptance is None else Drafts((proposing_head(model),), acceptance)
    made = ServingProblem((model,), load_system(system), SOFTWARE, PEAK, lengths, limits, budgets=(512, 2048), drafts=drafts)
    return search(made)


def reached(plan: ServingPlan) -> float:
    return plan.pools.rate if plan.pools is not None else plan.best.rate


@pytest.mark.medium
@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(["1 x h100", "2 x h100, nvlink 2"]),
    st.integers(50, 3000),
    st.integers(2, 300),
    st.sampled_from([0.008, 0.02, math.inf]),
    st.lists(st.floats(0, 1), min_size=2, max_size=3),
)
def test_more_acceptance_is_never_worse(system: str, long: int, answer: int, tpot: float, chances: list[float]) -> None:
    lengths, limits = Lengths(long, answer), Limits(tpot=tpot)
    plain = planned(system, lengths, limits, None)
    rates = [reached(planned(system, lengths, limits, Acceptance(first))) for first in sorted(chances)]
    for less, more in zip([reached(plain), *rates], rates, strict=False):
        assert more >= less * (1 - 1e-9)


def test_without_acceptance_nothing_is_proposed() -> None:
    """The plan is that without a draft; an answer of two tokens gains nothing from rounds either."""
    for lengths, chance in ((Lengths(500, 100), 0.0), (Lengths(500, 2), 0.9)):
        plain, found = (planned("1 x h100", lengths, Limits(), each) for each in (None, Acceptance(chance)))
        assert found.served.deployment.speculation is None
        assert (found.best.rate, found.best.users) == (plain.best.rate, plain.best.users)
    assert found.candidates == 9 * plain.candidates


def test_load_decides_the_window() -> None:
    """Few users under a short limit of TPOT gain much, full batches little: the window is shorter there."""
    lengths, chances = Lengths(200, 200), Acceptance(0.8)
    fast, full = (planned("1 x h100", lengths, limits, chances) for limits in (Limits(tpot=0.003), Limits()))
    first, second = (plan.served.deployment.speculation for plan in (fast, full))
    assert first is not None
    assert first.window > (second.window if second else 0)
    assert fast.best.tpot <= 0.003


def test_what_does_not_speculate() -> None:
    made = deployment()
    with pytest.raises(BadInput, match="1 to 64 tokens"):
        Speculation(made.model, Acceptance(0.5), 0)
    made = speculating("dense", 2, Acceptance(0.5))
    with pytest.raises(BadInput, match="a draft and the acceptance of its tokens"):
        simulate(made.step, made.engine_memory, generated(3, 0.0, (10, 10), (5, 5)))


def test_a_deployment_by_its_names_speculates() -> None:
    """As the command does; a draft, its acceptance and a window belong together."""
    asked: dict[str, Any] = {"model": "llama3-8b", "system": "1 x h100", "input": 500, "output": 200, "concurrency": 4}
    plain, quick = serve(**asked), serve(**asked, draft="head", acceptance="0.9", window=3)
    assert quick.deployment.tokens_of_step == sequence_tokens(Acceptance(0.9), 3)
    assert quick.state.tpot < 0.6 * plain.state.tpot
    with pytest.raises(BadInput, match="--draft: expected --window beside it; got none"):
        serve(**asked, draft="head", acceptance="0.9")
    with pytest.raises(BadInput, match="1 to 64 tokens"):
        serve(**asked, draft="head", acceptance="0.9", window=0)


def test_drafts_of_a_pipeline() -> None:
    """Each of two stages holds a draft and the draft's cache of one of two batches: a round takes that of its batch alone."""
    made = speculating("pipeline", 3, Acceptance(0.8))
    draft, engine = made.memory.draft, made.engine_memory
    assert draft is not None
    assert made.engines == 2
    pages = 100 // SOFTWARE.page + 1
    stage = 2 * made.memory.page + draft.page  # of a page of each batch, and of one batch
    assert engine.pages(100) * engine.page == pytest.approx(pages * stage)
    assert made.drafting is not None
    alone = StepBatch(4, 300)
    verified, drafted = float(made.step.with_width(4).time(alone)), 3 * float(made.drafting.step.time(alone))
    assert float(made.step.time(alone)) == pytest.approx(verified + drafted)


def test_the_draft_needs_memory() -> None:
    plain, made = deployment(), speculating("dense", 4, Acceptance(0.5))
    draft = made.memory.draft
    assert draft is not None
    less = plain.memory.cache - made.memory.cache
    assert less >= draft.weights > 0.1 * plain.memory.weights  # with the logits of the proposed tokens
    assert made.engine_memory.pages(1000) == pytest.approx(plain.engine_memory.pages(1000) * 33 / 32)  # a layer more
    assert made.capacity_users(Lengths(4000, 100)) <= plain.capacity_users(Lengths(4000, 100))
