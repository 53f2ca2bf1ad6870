"""The search for the best deployment against the enumeration of every candidate and batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.serving_cases import SOFTWARE

from halley.answers.load import load
from halley.errors import BadInput, Infeasible
from halley.importers.serving import served_model
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.kernels.machine import PEAK
from halley.serving.deployment import Deployment, Load, transfer_time
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.plans.candidates import PER_OCTAVE, deployments
from halley.serving.plans.pools import best_pools
from halley.serving.plans.problem import BUDGETS, Drafts, Limits, ServingObjective, ServingProblem
from halley.serving.plans.prompt_queue import BUSY_SHARE_MOST, PROMPTS_AT_ONCE, prompt_steps
from halley.serving.plans.search import search
from halley.serving.served import served
from halley.serving.speculation import Acceptance, Speculation, proposing_head
from halley.serving.steady import Lengths, closed_loop, prompt_time
from halley.serving.step import StepBatch
from halley.serving.step_bounds import schedule_bounds
from halley.workloads.transformer import Transformer

DENSE = load_model("llama3-8b")

SYSTEMS = {
    "llama3-8b": ("1 x h100", "2 x h100, nvlink 2", "4 x a100, nvlink 4"),
    "mixtral-8x7b": ("2 x h200, nvlink 2",),
}


def problem(
    system: str,
    lengths: Lengths,
    limits: Limits,
    precisions: tuple[str, ...] = ("bf16", "fp8"),
    shape: Transformer = DENSE,
    kept: str = "bf16",
) -> ServingProblem:
    models = tuple(ServedModel(shape, precision, kept) for precision in precisions)
    return ServingProblem(models, load_system(system), SOFTWARE, PEAK, lengths, limits, pools=False, budgets=(512, 2048))


@cache
def everything(
    system: str, models: tuple[ServedModel, ...], budgets: tuple[int, ...], drafts: Drafts | None = None
) -> tuple[Deployment, ...]:
    """Every layout whose chips divide those of the system, with every precision, budget and window of speculation."""
    found, made_system, shape = [], load_system(system), models[0].shape
    chips = made_system.chips
    degrees = range(1, chips + 1)
    for tp, pp, dp, ep in itertools.product(degrees, degrees, degrees, degrees):
        experts = shape.experts.experts if shape.experts else 0
        if chips % (tp * pp * dp) or shape.heads % tp or (max(dp, ep) > 1 and not experts):
            continue
        if (tp * dp) % ep or ep > max(experts, 1):
            continue
        for place, model in enumerate(models):
            windows = range(1, 9) if drafts is not None else ()
            speculations = [Speculation(drafts.models[place], drafts.acceptance, window) for window in windows if drafts]
            for budget, speculation in itertools.product(budgets, [None, *speculations]):
                asked = model, made_system, ReplicaLayout(tp, pp, ep, dp), replace(SOFTWARE, budget=budget), PEAK
                found.append(Deployment(*asked, speculation=speculation))
    return tuple(found)


def candidates(asked: ServingProblem) -> Iterator[Deployment]:
    """Those that fit."""
    for made in everything(asked.system.name, asked.models, asked.budgets, asked.drafts):
        memory = made.engine_memory
        if memory.capacity_pages >= memory.pages(asked.lengths.input + asked.lengths.output):
            yield made


def batches(made: Deployment, lengths: Lengths) -> Iterator[int]:
    most = made.capacity_users(lengths)
    yield from (users for users in sorted({round(2 ** (step / PER_OCTAVE)) for step in range(200)}) if users <= most)


def enumerated(asked: ServingProblem) -> dict[Deployment, float]:
    """The most requests per second of every candidate over all batches that keep the limits, where there are some: four to an
    octave, and all between the largest of these that keeps them and the next. Batches are held to the bounds of their users,
    those that serve most first."""
    found: dict[Deployment, float] = {}
    for made in candidates(asked):
        kept: list[tuple[float, int]] = []

        def keeps(users: int, made: Deployment = made, kept: list[tuple[float, int]] = kept) -> bool:
            state = closed_loop(made.step, made.engine_memory, users, asked.lengths)
            if state.ttft > asked.limits.ttft or state.tpot > asked.limits.tpot:
                return False
            kept.append((state.rate * made.engines, users))
            return True

        tried = list(batches(made, asked.lengths))
        verdicts = [keeps(users) for users in tried]
        if any(verdicts) and not verdicts[-1]:
            last = max(place for place, verdict in enumerate(verdicts) if verdict)
            for users in range(tried[last] + 1, tried[last + 1]):
                if not keeps(users):
                    break
        for rate, users in sorted(kept, reverse=True):
            if rate <= found.get(made, 0.0):
                break
            value = served(made, Load(asked.lengths, concurrency=users * made.engines))
            if value.state.ttft <= asked.limits.ttft:
                found[made] = max(found.get(made, 0.0), value.requests)
    return found


def fewest_chips(asked: ServingProblem, found: dict[Deployment, float]) -> float:
    """Chips of whole replicas of one candidate that serve the rate; infinite if all chips do not."""
    counts = [
        replicas * made.layout.chips
        for made, rate in found.items()
        for replicas in range(1, made.replicas + 1)
        if replicas * rate / made.replicas >= asked.rate * (1 - 1e-9)
    ]
    return min(counts, default=math.inf)


@cache
def waiting_in_batches(load: float, times: tuple[float, ...]) -> float:
    """Mean time in a queue whose server takes all that wait, of up to len(times) at once; ``load``: share of the rate of full
    batches. The numbers at the ends of steps after 2^14 steps, from an empty queue."""
    most, rate = len(times), load * len(times) / times[-1]
    count = most + 120
    arrivals = [[math.exp(-rate * t + k * math.log(rate * t) - math.lgamma(k + 1)) for k in range(count)] for t in times]
    chances = np.zeros((count, count))
    for number in range(count):
        served = min(max(number, 1), most)
        left = max(number, 1) - served
        chances[number, left:] = arrivals[served - 1][: count - left]
        chances[number, -1] += 1 - chances[number].sum()
    for _ in range(14):
        chances = chances @ chances
    held = length = 0.0
    for number, chance in enumerate(chances[0]):
        there = max(number, 1)
        time = times[min(there, most) - 1]
        held += chance * (there * time + rate * time * time / 2)
        length += chance * (time + (0 if number else 1 / rate))
    return held / length / rate


def pools_enumerated(asked: ServingProblem) -> tuple[float, float]:
    """(most requests per second of pools, fewest chips of pools that serve the rate asked for), over all pairs of layouts, all
    budgets for prompts, all batches that decode, all numbers of replicas of both, and a fine grid of rates."""
    lengths, limits, total = asked.lengths, asked.limits, asked.system.chips
    made = [each for each in candidates(asked) if each.layout.chips < total]
    most, fewest = 0.0, math.inf
    for first, second in itertools.product(made, made):
        if (first.model, first.speculation) != (second.model, second.speculation) or second.software.budget < max(asked.budgets):
            continue
        one = second.decode_steps(lengths) / (lengths.output - 1)  # steps of an output token
        most_users = int(second.capacity_users(lengths))
        times = one * second.step.time(StepBatch(np.arange(1.0, most_users + 1), lengths.mean_context))
        steps = [(n, float(time)) for n, time in enumerate(times, 1) if time <= limits.tpot]
        if not steps:
            continue
        each, tpot = max((second.layout.dp * second.layout.pp * n / time / (lengths.output - 1), time) for n, time in steps)
        single, budget = prompt_time(first.step, 1, lengths), first.software.budget
        full = max(min(int(budget // lengths.new), first.software.users, PROMPTS_AT_ONCE), 1)  # prompts of a full step
        several = [float(first.step.time(StepBatch(0, 0, n * lengths.new, lengths.input, n))) for n in range(1, full + 1)]
        batches_of = tuple(several) if full > 1 else (single,)
        moved = transfer_time(first, lengths.input, asked.system.axes[0].link, first.layout.tp)
        best, kept = 0.0, 0
        # every tenth of a thousand shares, and those up to the next tenth behind the last one that keeps the limit
        for share in itertools.chain(range(10, 1001, 10), (10 * tenth + more for tenth in range(100) for more in range(1, 10))):
            if share % 10 and share // 10 * 10 != kept:
                continue
            busy = BUSY_SHARE_MOST * share / 1000
            own = busy * full / batches_of[-1]  # of an engine
            rate = own * first.layout.dp * first.layout.pp
            streams = first.software.request_user * rate
            if full > 1:
                inside = waiting_in_batches(busy, batches_of)
            else:
                inside = single * (1 + busy / 2 / (1 - busy))
            ttft = first.software.request + inside + moved
            ttft = math.inf if streams >= 1 else (ttft + streams * (lengths.output - 1) * tpot) / (1 - streams)
            if ttft <= limits.ttft:
                best = max(best, rate)
                kept = share if share % 10 == 0 else kept
        for prompts, decoding in itertools.product(range(1, total + 1), repeat=2):
            chips = prompts * first.layout.chips + decoding * second.layout.chips
            if chips <= total:
                rate = min(prompts * best, decoding * each)
                most = max(most, rate)
                if asked.rate and rate >= asked.rate:
                    fewest = min(fewest, chips)
    return most, fewest


drawn = (
    st.sampled_from(sorted(SYSTEMS)).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(SYSTEMS[name]))),
    st.integers(50, 3000),
    st.integers(2, 300),
    st.sampled_from([0.05, 0.3, math.inf]),
    st.sampled_from([0.006, 0.015, math.inf]),
    st.sampled_from(["bf16", "fp8"]),
)


def drawn_problem(where: tuple[str, str], long: int, answer: int, ttft: float, tpot: float, kept: str) -> ServingProblem:
    system, shape = where[1], load_model(where[0])
    precisions = ("bf16", "int8") if "a100" in system else ("bf16", "fp8")
    return problem(system, Lengths(long, answer), Limits(ttft, tpot), precisions, shape, "bf16" if "a100" in system else kept)


@pytest.mark.medium
@settings(max_examples=30, deadline=None)
@given(*drawn)
def test_search_finds_what_enumeration_finds(
    where: tuple[str, str], long: int, answer: int, ttft: float, tpot: float, kept: str
) -> None:
    """Layouts with expert and attention-data parallelism, precisions and budgets."""
    asked = drawn_problem(where, long, answer, ttft, tpot, kept)
    best = max(enumerated(asked).values(), default=0.0)
    if best == 0:
        with pytest.raises(Infeasible):
            search(asked)
        return
    found = search(asked)
    assert found.best.rate == pytest.approx(best, rel=0.03)
    assert found.best.rate <= best * (1 + 1e-9)  # less where the closed form is beyond any schedule that keeps the limits
    assert found.certificate.bound <= found.certificate.value
    assert found.best.rate <= found.bound
    assert found.best.rate == found.served.requests <= found.served.bounds[0].rate


@pytest.mark.medium
@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([("nemotron-h-8b", "2 x h100, nvlink 2"), ("qwen3-next-80b-a3b", "4 x h200, nvlink 4")]),
    st.integers(50, 3000),
    st.integers(2, 300),
    st.sampled_from([0.006, 0.015, math.inf]),
    st.sampled_from(["bf16", "fp32"]),
    st.booleans(),
)
def test_hybrids_are_those_of_enumeration(
    where: tuple[str, str], long: int, answer: int, tpot: float, state: str, apart: bool
) -> None:
    """Together and in pools, between which keys, values and states move."""
    models = tuple(served_model(where[0], precision, state=state) for precision in ("bf16", "fp8"))
    asked = problem(where[1], Lengths(long, answer), Limits(0.3, tpot))
    asked = replace(asked, models=models, pools=apart)
    best = max(enumerated(asked).values(), default=0.0)
    both = max(best, pools_enumerated(asked)[0] if apart else 0.0)
    if both == 0:
        with pytest.raises(Infeasible):
            search(asked)
        return
    found = search(asked)
    rate = found.pools.rate if found.pools is not None else found.best.rate
    assert rate == pytest.approx(both, rel=0.03)
    assert rate <= found.bound
    assert found.certificate.bound <= found.certificate.value


def test_the_best_batch_and_the_front_are_held_to_the_bounds_of_their_users() -> None:
    """Prompts of many chunks and few output tokens: the closed form of every batch exceeds the bound of its steps."""
    asked = replace(problem("1 x h100", Lengths(2600, 3), Limits(), ("bf16",)), budgets=(512,))
    found = search(asked)
    assert found.certificate.closed == "1 deployment costed: all that fit"
    made = found.served.deployment
    assert closed_loop(made.step, made.engine_memory, found.best.users, asked.lengths).rate > found.best.rate
    assert found.best.rate == found.served.requests <= found.served.bounds[0].rate
    for point, deployment in found.front:
        assert point.rate <= schedule_bounds(deployment, asked.lengths, point.users * deployment.engines)[0].rate


@pytest.mark.medium
@settings(max_examples=30, deadline=None)
@given(*drawn, st.floats(0.02, 1.2))
def test_fewest_chips_are_those_of_enumeration(
    where: tuple[str, str], long: int, answer: int, ttft: float, tpot: float, kept: str, share: float
) -> None:
    """Also where more is asked for than all chips serve."""
    asked = drawn_problem(where, long, answer, ttft, tpot, kept)
    most = enumerated(asked)
    if not most:
        return
    asked = replace(asked, objective=ServingObjective.CHIPS, rate=share * max(most.values()))
    fewest = fewest_chips(asked, most)
    if math.isinf(fewest):
        with pytest.raises(Infeasible, match=r"rate: expected at most .* requests/s, which .* serve with"):
            search(asked)
        return
    found = search(asked)
    assert found.chips == fewest
    assert found.served.deployment.chips == fewest
    assert found.served.requests >= asked.rate * (1 - 1e-9)
    assert found.certificate.bound <= found.certificate.value == fewest


@pytest.mark.medium
@settings(max_examples=8, deadline=None)
@given(*drawn, st.floats(0.1, 1.0))
def test_pools_are_those_of_enumeration(
    where: tuple[str, str], long: int, answer: int, ttft: float, tpot: float, kept: str, share: float
) -> None:
    asked = drawn_problem(where, long, answer, ttft, tpot, kept)
    together = max(enumerated(asked).values(), default=0.0)
    if asked.system.chips == 1 or not together:
        return
    most, _ = pools_enumerated(asked)
    found = search(replace(asked, pools=True))
    reached = found.pools.rate if found.pools else found.best.rate
    assert reached == pytest.approx(max(most, found.best.rate), rel=5e-3)
    assert found.certificate.bound <= found.certificate.value
    asked = replace(asked, objective=ServingObjective.CHIPS, rate=share * max(most, found.best.rate) * 0.99)
    fewest = min(pools_enumerated(asked)[1], fewest_chips(asked, enumerated(asked)))
    least = search(replace(asked, pools=True))
    assert least.chips == fewest
    assert least.certificate.bound <= fewest
    if least.pools is not None:
        assert least.pools.ttft <= asked.limits.ttft * (1 + 1e-9)


def with_drafts(asked: ServingProblem, name: str, acceptance: Acceptance) -> ServingProblem:
    drafts = (
        proposing_head(model) if name == "head" else ServedModel(load_model(name), model.weights, model.cache)
        for model in asked.models
    )
    return replace(asked, drafts=Drafts(tuple(drafts), acceptance))


speculating = st.sampled_from(["head", "llama-68m"]), st.sampled_from([0.0, 0.2, 0.6, 0.9]), st.sampled_from([0.8, 1.0])


@pytest.mark.medium
@settings(max_examples=10, deadline=None)
@given(*drawn, *speculating, st.floats(0.1, 1.0))
def test_windows_of_speculation_are_those_of_enumeration(
    where: tuple[str, str],
    long: int,
    answer: int,
    ttft: float,
    tpot: float,
    kept: str,
    draft: str,
    first: float,
    decay: float,
    share: float,
) -> None:
    """Most throughput, and fewest chips, where each candidate may also speculate with one to eight proposed tokens."""
    asked = with_drafts(drawn_problem(where, long, answer, ttft, tpot, kept), draft, Acceptance(first, decay))
    most = enumerated(asked)
    best = max(most.values(), default=0.0)
    if best == 0:
        with pytest.raises(Infeasible):
            search(asked)
        return
    found = search(asked)
    assert found.best.rate == pytest.approx(best, rel=0.03)
    assert found.best.rate <= best * (1 + 1e-9)
    assert found.certificate.bound <= found.certificate.value
    assert found.certificate.space["windows"] == (9 if first else 1)
    assert found.best.rate == found.served.requests <= found.served.bounds[0].rate
    asked = replace(asked, objective=ServingObjective.CHIPS, rate=share * best * 0.97)
    few = search(asked)
    assert few.chips == fewest_chips(asked, most)
    assert few.certificate.bound <= few.certificate.value


@pytest.mark.medium
@settings(max_examples=5, deadline=None)
@given(*drawn, *speculating)
def test_pools_that_speculate_are_those_of_enumeration(
    where: tuple[str, str], long: int, answer: int, ttft: float, tpot: float, kept: str, draft: str, first: float, decay: float
) -> None:
    asked = with_drafts(drawn_problem(where, long, answer, ttft, tpot, kept), draft, Acceptance(first, decay))
    most = pools_enumerated(asked)[0] if asked.system.chips > 1 else 0.0
    pools = best_pools(asked, deployments(asked), 0.0)
    assert (pools.rate if pools else 0.0) == pytest.approx(most, rel=5e-3)
    if pools is not None:
        assert pools.rate <= search(replace(asked, pools=True)).bound


@pytest.mark.medium
def test_bounds_leave_candidates_out_and_change_nothing() -> None:
    asked = problem("4 x h100, nvlink 4", Lengths(1000, 200), Limits(1.0, 0.02))
    short, whole = search(asked), search(replace(asked, front=True))
    assert short.best.rate == whole.best.rate
    assert short.certificate.effort["costed"] <= whole.certificate.effort["costed"] == whole.candidates
    for (a, _), (b, _) in itertools.pairwise(whole.front):
        assert a.user >= b.user
        assert a.chip < b.chip


@pytest.mark.medium
def test_least_chips_for_a_rate() -> None:
    asked = problem("8 x h100, nvlink 8", Lengths(1000, 200), Limits(1.0, 0.02))
    asked = replace(asked, objective=ServingObjective.CHIPS, rate=search(asked).best.rate / 3)
    assert search(asked).chips == 3


@pytest.mark.medium
def test_fewer_chips_than_the_layout_with_the_highest_throughput_needs() -> None:
    """Little traffic under a limit of TPOT that two chips keep: not four, as the layout that serves most has."""
    asked = problem("8 x h100, nvlink 8", Lengths(1024, 256), Limits(tpot=0.004), ("bf16",))
    asked = replace(asked, objective=ServingObjective.CHIPS, rate=0.01)
    found = search(asked)
    assert found.chips == 2
    assert found.certificate.bound == 2
    with pytest.raises(Infeasible, match="use about"):
        search(replace(asked, rate=1e5))


@pytest.mark.medium
def test_pools_serve_no_more_than_the_bound() -> None:
    asked = replace(problem("8 x h100, nvlink 8", Lengths(3000, 300), Limits(1.0, 0.01)), pools=True)
    found = search(asked)
    assert found.pools is None or found.best.rate < found.pools.rate <= found.bound
    assert found.certificate.bound <= found.certificate.value


def test_pools_queue_below_full_load_and_have_a_front_end() -> None:
    """Without a limit of TTFT chips for prompts work 90 % of the time at most; a front end adds its time, and more of it for each
    request in flight."""
    asked = replace(problem("4 x h100, nvlink 4", Lengths(2000, 100), Limits(), ("bf16",)), pools=True)
    slow = replace(asked, software=replace(SOFTWARE, request=0.05, request_user=1e-3))
    quick, front = (best_pools(each, deployments(each), 0.0) for each in (asked, slow))
    assert quick is not None
    assert front is not None
    first = Deployment(quick.model, asked.system, quick.prompts, replace(SOFTWARE, budget=quick.prompt_budget), PEAK)
    steps, rate = prompt_steps(first.step, asked.lengths), quick.rate / quick.prompt_replicas / quick.prompts.pp
    assert rate <= BUSY_SHARE_MOST * steps.most * (1 + 1e-9)
    assert quick.ttft == pytest.approx(steps.latency(rate) + quick.transfer)
    users = front.rate * (front.ttft + 99 * front.tpot) / front.prompt_replicas
    alike = front.prompts == quick.prompts and front.prompt_replicas == quick.prompt_replicas and front.rate == quick.rate
    assert alike
    assert front.ttft == pytest.approx(quick.ttft + 0.05 + 1e-3 * users)


def test_limits_that_only_pools_keep(tmp_path: Path) -> None:
    """Collectives take so long that tokens are faster on one chip, and long prompts on two: no layout keeps both limits."""
    asked = replace(
        problem("4 x h800, nvlink 4", Lengths(4000, 100), Limits(0.07, 0.006), ("bf16",)),
        software=replace(SOFTWARE, collective=1e-4),
        budgets=(8192,),
    )
    with pytest.raises(Infeasible, match="at the nearest"):
        search(asked)
    asked = replace(asked, pools=True)
    found = search(asked)
    assert found.pools is not None
    assert not found.together
    assert not found.front
    assert (found.pools.prompts.tp, found.pools.decoding.tp) == (2, 1)
    assert found.pools.ttft <= 0.07 * (1 + 1e-9)
    assert found.pools.tpot <= 0.006
    assert found.pools.rate <= found.bound
    assert found.certificate.bound <= found.certificate.value
    few = search(replace(asked, objective=ServingObjective.CHIPS, rate=found.pools.rate / 2))
    assert few.pools is not None
    assert few.chips == few.pools.chips == 3
    with pytest.raises(Infeasible, match="which 4 chips serve with pools of TP 2 and TP 1"):
        search(replace(asked, objective=ServingObjective.CHIPS, rate=found.pools.rate * 1.01))
    for number, plan in enumerate((found, few)):
        assert any("together (below) they exceed the limits" in table.title for table in plan.answer().tables())
        plan.report(tmp_path / f"{number}.html")
        plan.save(tmp_path / f"{number}.json")
        assert [finding for finding in load(tmp_path / f"{number}.json").check() if not finding.passed] == []
        assert "<svg" in plan.plot()._repr_svg_()


def test_limits_that_nothing_keeps() -> None:
    with pytest.raises(Infeasible, match=r"TPOT at most 0.0001 s.*at the nearest"):
        search(problem("2 x h100, nvlink 2", Lengths(100, 20), Limits(10.0, 1e-4)))
    with pytest.raises(Infeasible, match="on a chip with the layout that needs least"):
        search(replace(problem("1 x h100", Lengths(100, 20), Limits()), models=(ServedModel(load_model("llama3-405b")),)))
    with pytest.raises(BadInput, match="times above 0"):
        Limits(0.0, 1.0)
    assert BUDGETS


def test_limits_that_pools_do_not_keep_either() -> None:
    """No prompt is processed within the limit of TTFT: pools that serve nothing are no answer."""
    asked = replace(problem("2 x h100, nvlink 2", Lengths(30000, 2), Limits(0.2, 0.05)), pools=True)
    assert best_pools(asked, deployments(asked), math.inf) is None
    with pytest.raises(Infeasible, match=r"TTFT at most 0.2 s; got TTFT"):
        search(asked)
