"""Laws of serving: what closed forms, simulation, bounds and speculation have to agree on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.serving_cases import SOFTWARE, deployment, small_memory
from validation.serving.predict import static_batch

from halley.errors import BadInput, Infeasible
from halley.serving.bounds import prompt_bound, throughput_bounds
from halley.serving.deployment import Deployment, Load
from halley.serving.layout import ReplicaLayout
from halley.serving.memory import serving_memory
from halley.serving.served import served
from halley.serving.simulate import generated, simulate
from halley.serving.software import ServingSoftware
from halley.serving.speculation import Acceptance, sequence_tokens, speculation_round, tree_tokens, verification_time
from halley.serving.steady import Lengths, arrivals, closed_loop, poisson
from halley.serving.step import PARTS, StepBatch, busiest_share, distinct_experts
from halley.serving.step_bounds import schedule_bounds
from halley.serving.tables import PiecewiseLinear, Surface, grid

BUDGETS_USERS = ((512, 64), (512, 512), (2048, 512))
"""Tokens and sequences of a step at most: with few tokens a step prompts wait for each other."""


def drawn_loads(count: int) -> list[tuple[Deployment, int, int, int, float]]:
    """Deployments, users, most tokens in and out, and a share of the capacity, drawn once for all."""
    random = np.random.default_rng(7)
    made = [deployment(software=replace(SOFTWARE, budget=budget, users=users)) for budget, users in BUDGETS_USERS]
    made.append(deployment(software=replace(SOFTWARE, users=512, graphs=512, layer=5e-4)))  # a full step is still a graph
    return [
        (
            made[int(random.integers(len(made)))],
            int(2 ** random.uniform(0, 9)),
            int(2 ** random.uniform(6, 11)),
            int(2 ** random.uniform(4, 8)),
            float(random.uniform(0.1, 0.9)),
        )
        for _ in range(count)
    ]


def closed_loop_errors(count: int) -> tuple[list[float], list[float]]:
    """Errors of throughput and TPOT of drawn closed loops, in order of size."""
    rates, times = [], []
    for made, users, long, answer, _ in drawn_loads(count):
        state = closed_loop(made.step, made.engine_memory, users, Lengths(0.9 * long, 0.9 * answer))
        blocks = generated(60 * users + 1000, 0.0, (0.8 * long, long), (0.8 * answer, answer))
        found = simulate(made.step, made.engine_memory, blocks, concurrency=users)
        rates.append(abs(found.requests / found.time / state.rate - 1))
        times.append(abs(found.tpot.mean / state.tpot - 1))
    return sorted(rates), sorted(times)


def arrival_errors(count: int, engines: int = 1) -> tuple[list[float], list[float]]:
    """Errors of TPOT and TTFT at 10 to 90 % of the capacity, in order of size. Arrivals are random, and
    distributed round robin to the engines."""
    times, firsts = [], []
    for made, _, long, answer, share in drawn_loads(count):
        lengths = Lengths(0.9 * long, 0.9 * answer)
        rate = share * closed_loop(made.step, made.engine_memory, made.capacity_users(lengths), lengths).rate
        state = arrivals(made.step, made.engine_memory, rate, lengths, engines)
        assert state is not None
        blocks = generated(10_000, rate * engines, (0.8 * long, long), (0.8 * answer, answer))
        found = simulate(made.step, made.engine_memory, blocks, engines)
        times.append(abs(found.tpot.mean / state.tpot - 1))
        firsts.append(abs(found.ttft.mean / state.ttft - 1))
    return sorted(times), sorted(firsts)


def check_errors(errors: list[float], mean: float, nearly_all: float, worst: float) -> None:
    """The mean, what 19 of 20 do not exceed, and the largest."""
    assert np.mean(errors) < mean
    assert errors[int(0.95 * (len(errors) - 1))] < nearly_all
    assert errors[-1] < worst


def test_closed_forms_are_near_the_simulation() -> None:
    """A few of the cases of the next test."""
    rates, times = closed_loop_errors(8)
    check_errors(rates, 0.02, 0.05, 0.05)
    check_errors(times, 0.02, 0.05, 0.10)


def test_requests_that_are_distributed_round_robin() -> None:
    """With random arrivals at each of 8 engines instead, TTFT would be a fifth too long on average."""
    times, firsts = arrival_errors(20, 8)
    check_errors(times, 0.03, 0.08, 0.20)
    check_errors(firsts, 0.08, 0.20, 0.30)


LATE = ({"receive": 10}, {"receive": 30}, {"wait_steps": 20, "wait_share": 0.9}, {"wait_steps": 8, "wait_share": 0.6})
"""Servers that receive requests every so many steps, or let prompts wait for others."""


@pytest.mark.parametrize("settings", LATE)
@pytest.mark.parametrize(("users", "long", "answer"), [(1, 300, 100), (4, 200, 400), (16, 300, 100), (48, 200, 400)])
def test_prompts_that_are_admitted_late(settings: dict[str, float], users: int, long: int, answer: int) -> None:
    """Throughput within 6 % of the simulation, times to first token within 25 %, which are three to eighteen times as long as
    with prompts that are admitted at once; a user alone does not wait."""
    made = deployment(software=replace(SOFTWARE, budget=2048, **settings))  # type: ignore[arg-type]
    state = closed_loop(made.step, made.engine_memory, users, Lengths(0.9 * long, 0.9 * answer))
    blocks = generated(60 * users + 600, 0.0, (0.8 * long, long), (0.8 * answer, answer), seed=1)
    found = simulate(made.step, made.engine_memory, blocks, concurrency=users)
    assert state.rate == pytest.approx(found.requests / found.time, rel=0.06)
    assert state.ttft == pytest.approx(found.ttft.mean, rel=0.25)
    soon = deployment(software=replace(SOFTWARE, budget=2048))
    alone = closed_loop(soon.step, soon.engine_memory, users, Lengths(0.9 * long, 0.9 * answer)).ttft
    assert (state.ttft > 2 * alone) == (users > 1)


@pytest.mark.medium
def test_closed_forms_are_near_the_simulation_in_200_cases() -> None:
    """Throughput and TPOT of closed loops, of one to 512 users, also where the tokens of a step are the limit; TPOT and TTFT of
    Poisson arrivals. Of closed loops the means and nearly all single cases are within 3 %."""
    rates, times = closed_loop_errors(100)
    check_errors(rates, 0.01, 0.03, 0.06)
    check_errors(times, 0.01, 0.03, 0.10)
    times, firsts = arrival_errors(100)
    check_errors(times, 0.02, 0.07, 0.22)
    check_errors(firsts, 0.10, 0.40, 1.0)


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 64), st.integers(20, 1500), st.integers(2, 100), st.integers(0, 3), st.sampled_from(["recompute", "swap"]))
def test_no_simulation_exceeds_the_bounds(users: int, long: int, answer: int, seed: int, preempt: str) -> None:
    made = deployment(software=replace(SOFTWARE, preempt=preempt))
    blocks = generated(users + 20, 0.0, (long, long), (answer, answer), seed)
    found = simulate(made.step, made.engine_memory, blocks, concurrency=users)
    least = throughput_bounds(made, Lengths(long, answer), users)[0]
    assert found.requests / found.time <= least.rate * (1 + 1e-9)
    first = prompt_bound(made, Lengths(long, answer))
    assert found.ttft.percentile(0.0) * 1.03 >= first


@pytest.mark.medium
@settings(max_examples=12, deadline=None)
@given(st.integers(20, 120), st.integers(40, 300), st.integers(60, 200), st.sampled_from(["recompute", "swap"]))
def test_no_preemption_exceeds_the_bounds(pages: int, long: int, answer: int, preempt: str) -> None:
    """In a small cache, of single resources and of steps; what is preempted ends as well."""
    small = small_memory(deployment(), max(pages, (long + answer) // 16 + 2))
    made = deployment(software=replace(SOFTWARE, preempt=preempt, share=small.usable / small.capacity))
    found = simulate(made.step, made.engine_memory, generated(40, 0.0, (long, long), (answer, answer)))
    assert made.engine_memory.capacity_pages == small.capacity_pages
    assert found.requests == 40
    assert found.requests / found.time <= schedule_bounds(made, Lengths(long, answer))[0].rate * (1 + 1e-9)


@settings(max_examples=15, deadline=None)
@given(st.floats(1, 64), st.floats(16, 4000), st.floats(2, 500), st.floats(1e-3, 0.1))
def test_closed_form_keeps_the_bounds(users: float, long: float, answer: float, tpot: float) -> None:
    """Also the bound under a limit of TPOT, wherever the closed form keeps that limit."""
    made, lengths = deployment(), Lengths(long, answer)
    state = closed_loop(made.step, made.engine_memory, users, lengths)
    assert state.rate <= throughput_bounds(made, lengths, users)[0].rate * (1 + 1e-9)
    if state.tpot <= tpot:
        assert state.rate <= throughput_bounds(made, lengths, tpot=tpot)[0].rate * (1 + 1e-9)


def test_a_deployment_is_held_to_its_bounds() -> None:
    """Prompts of many chunks and few output tokens, whose closed form exceeds the bound of steps: requests wait longer, and
    arrivals beyond the bound are refused."""
    made, lengths, users = deployment(), Lengths(2600, 3), 2.0
    state, least = closed_loop(made.step, made.engine_memory, users, lengths), schedule_bounds(made, lengths, users)[0].rate
    assert state.rate > 1.01 * least
    found = served(made, Load(lengths, concurrency=users))
    assert found.requests == least
    assert found.end_to_end == pytest.approx(users / least)  # Little's law
    made, lengths = deployment(software=replace(SOFTWARE, users=8)), Lengths(1622, 7)
    least = schedule_bounds(made, lengths)[0].rate
    assert arrivals(made.step, made.engine_memory, 1.001 * least, lengths) is not None
    assert served(made, Load(lengths, rate=0.8 * least)).requests == 0.8 * least
    with pytest.raises(Infeasible, match=f"at most {least:.3g} requests/s"):
        served(made, Load(lengths, rate=1.001 * least))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(BUDGETS_USERS), st.integers(1, 64), st.floats(5, 12.5), st.floats(0, 6))
def test_no_deployment_exceeds_its_bounds(most: tuple[int, int], users: int, long: float, answer: float) -> None:
    made = deployment(software=replace(SOFTWARE, budget=most[0], users=most[1]))
    found = served(made, Load(Lengths(int(2**long), int(2**answer)), concurrency=users))
    assert found.requests <= found.bounds[0].rate


@pytest.mark.parametrize("users", [1, 2, 3, 7])
def test_prompts_alone_take_their_chunks(users: int) -> None:
    """Two chunks a prompt and one output token: as the simulation, which is static then, has it."""
    made, lengths = deployment(software=replace(SOFTWARE, budget=2048, users=512)), Lengths(3937, 1)
    state = closed_loop(made.step, made.engine_memory, users, lengths)
    found = simulate(made.step, made.engine_memory, generated(200, 0.0, (3937, 3937), (1, 1)), concurrency=users)
    assert state.rate == pytest.approx(found.requests / found.time, rel=0.05)


def test_bound_of_experts_is_below_every_batch() -> None:
    """The chord of a concave function: never above it."""
    made = deployment("mixtral-8x7b", "8 x h100, nvlink 8", ReplicaLayout(8, 1, 8))
    lengths = Lengths(500, 100)
    for tpot in (0.004, 0.01, math.inf):
        least = throughput_bounds(made, lengths, tpot=tpot)[0].rate
        for users in (1, 4, 16, 64):
            state = closed_loop(made.step, made.engine_memory, users, lengths)
            assert state.tpot > tpot or state.rate <= least


def test_parts_add_up_and_have_names() -> None:
    for model, layout in (("llama3-8b", ReplicaLayout(2, 2)), ("deepseek-v3", ReplicaLayout(2, 1, 4, 2))):
        made = deployment(model, "4 x h200, nvlink 4", layout)
        batch = StepBatch(np.array([0, 3, 30]), np.array([0, 400, 900]), np.array([300, 0, 200]), np.array([700, 0, 200]))
        parts = made.step.parts(batch)
        assert set(parts) <= set(PARTS)
        np.testing.assert_allclose(sum(parts.values()), made.step.time(batch))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60), st.integers(1, 4000), st.integers(0, 400))
def test_a_larger_step_takes_no_less(users: int, context: int, prompt: int) -> None:
    """Up to interpolation between grid points, at which libraries choose other tiles."""
    step = deployment().step
    time = float(step.time(StepBatch(users, context, prompt, max(prompt, 1))))
    assert time <= float(step.time(StepBatch(users, 2 * context, prompt, max(prompt, 1)))) * 1.001
    assert time <= float(step.time(StepBatch(2 * users, context, 2 * prompt, max(prompt, 1)))) * 1.001


def test_weights_of_all_chips_are_those_of_the_model() -> None:
    whole = deployment().memory.weights
    split = deployment("llama3-8b", "8 x h100, nvlink 8", ReplicaLayout(8)).memory.weights
    assert split * 8 == pytest.approx(whole)
    assert whole == pytest.approx(deployment().model.weight_bytes)


def test_static_batch_is_the_sum_of_its_steps() -> None:
    step = deployment().step
    first, whole = static_batch(step, 4, Lengths(100, 30))
    times = [float(step.time(StepBatch(4, 100 + made))) for made in range(1, 30)]
    assert first == pytest.approx(float(step.time(StepBatch(0, 0, 400, 100, 4))))
    assert whole == pytest.approx(first + sum(times), rel=1e-3)


@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 8))
def test_distinct_experts_by_inclusion(tokens: int, more: int, chosen: int) -> None:
    """Each expert is missed by all tokens with chance (1 - k/N)^T."""
    experts = chosen + more
    missed = math.exp(tokens * math.log1p(-chosen / experts)) if chosen < experts else 0.0
    assert float(distinct_experts(tokens, experts, chosen)) == pytest.approx(experts * (1 - missed))


def test_busiest_group_of_experts_by_drawing() -> None:
    """The estimate of the busiest of eight groups is at most a fifth off what drawing finds."""
    random = np.random.default_rng(0)
    for mean in (16, 64, 256):
        loads = random.poisson(mean, (4000, 8)).max(axis=1).mean() / mean
        assert float(busiest_share(float(mean), 8)) == pytest.approx(loads, rel=0.2)


@given(st.floats(0, 30), st.integers(1, 60))
def test_poisson_numbers(mean: float, most: int) -> None:
    counts, chances = poisson(mean, most)
    assert chances.sum() == pytest.approx(1)
    assert (chances >= -1e-12).all()
    if mean < most:
        assert float((counts * chances).sum()) == pytest.approx(mean, rel=1e-6, abs=1e-9)


@given(st.floats(0.01, 0.99), st.integers(1, 12))
def test_leviathan(acceptance: float, window: int) -> None:
    """Equation 1 of Leviathan et al., ICML 2023, and a tree of one candidate is a sequence."""
    expected = (1 - acceptance ** (window + 1)) / (1 - acceptance)
    assert sequence_tokens(Acceptance(acceptance), window) == pytest.approx(expected)
    assert tree_tokens(Acceptance(acceptance), window, 1) == pytest.approx(expected)
    assert tree_tokens(Acceptance(acceptance), window, 2) >= expected - 1e-12


def test_acceptance_by_drawing() -> None:
    random, made = np.random.default_rng(1), Acceptance(0.8, 0.9)
    hits = random.random((200_000, 5)) < np.array([made.at(place) for place in range(1, 6)])
    tokens = 1 + np.cumprod(hits, axis=1).sum(axis=1).mean()
    assert sequence_tokens(made, 5) == pytest.approx(tokens, rel=0.01)


def test_speculation_pays_at_small_batches_only() -> None:
    """DFModel's observations: a small draft pays, one as large as the target does not; a large batch leaves nothing to gain."""
    target, draft = deployment("llama2-7b"), deployment("llama-68m")
    rounds = {users: speculation_round(target.step, draft.step, Acceptance(0.6), 3, users, 300) for users in (1, 64)}
    assert rounds[1].speedup > 1.3
    assert rounds[64].speedup < rounds[1].speedup
    assert speculation_round(target.step, target.step, Acceptance(0.9), 3, 1, 300).speedup < 1.1
    plain = float(target.step.time(StepBatch(1, 300)))
    assert float(verification_time(target.step, 1, 300, 3)) < 1.1 * plain


def test_tables_are_linear_between_points() -> None:
    at = grid(100, 1)
    made = PiecewiseLinear(at, 3 * at + 1)
    assert float(made(37.5)) == pytest.approx(113.5)
    assert float(made(0)) == 0
    table = Surface(at, at, at[:, None] * 2 + at[None, :])
    assert float(table(11, 50)) == pytest.approx(72)


def test_faults_of_a_deployment() -> None:
    with pytest.raises(BadInput, match="divisor of 32 heads"):
        deployment("llama3-8b", "3 x h100, nvlink 3", ReplicaLayout(3)).step  # noqa: B018
    with pytest.raises(BadInput, match="a layout whose chips divide 8"):
        deployment("llama3-8b", "8 x h100, nvlink 8", ReplicaLayout(16))
    with pytest.raises(Infeasible, match="weights"):
        served(deployment("llama3-70b"), Load(Lengths(100, 10), concurrency=1))
    with pytest.raises(Infeasible, match="limited by"):
        served(deployment(), Load(Lengths(1000, 100), rate=1e4))
    with pytest.raises(BadInput, match="a share above 0"):
        ServingSoftware(memory=1.5)


def test_longer_pages_hold_fewer_sequences() -> None:
    made = deployment()
    coarse = serving_memory(made.model, made.layout, made.system, replace(SOFTWARE, page=256))
    assert coarse.users(300) <= made.memory.users(300)
