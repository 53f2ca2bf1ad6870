"""The event simulation of serving against a plain one that loops over all sequences."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.serving_cases import deployment, small_memory
from tests.reference.serving_events import plain_simulation

from halley.errors import BadInput, Infeasible
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.simulate import Requests, TimeHistogram, engine_pages, generated, simulate, swapping
from halley.serving.speculation import Acceptance, Speculation, proposing_head
from halley.serving.step import StepBatch

lengths = st.lists(st.tuples(st.floats(0, 0.4), st.integers(1, 900), st.integers(1, 60)), min_size=1, max_size=14)


def requests(rows: list[tuple[float, int, int]]) -> Requests:
    """Requests with these gaps between arrivals."""
    table = np.array(rows)
    return Requests(np.cumsum(table[:, 0]), table[:, 1].astype(np.int64), table[:, 2].astype(np.int64))


@pytest.mark.medium
@settings(max_examples=40, deadline=None)
@given(lengths, st.sampled_from([64, 75, 130, 4000]))
def test_times_are_those_of_the_plain_simulation(rows: list[tuple[float, int, int]], pages: int) -> None:
    """Chunked prompts, batches, pages, preemption: first and last token of every request."""
    made, block = deployment(), requests(rows)
    found = simulate(made.step, small_memory(made, pages), [block], keep=True).rows
    plain = plain_simulation(made.step, pages, *(values.tolist() for values in (block.arrivals, block.inputs, block.outputs)))
    assert found is not None
    assert found[:, 5].tolist() == list(range(len(rows)))
    np.testing.assert_allclose(found[:, 1], [item.first for item in plain], rtol=2e-5)
    np.testing.assert_allclose(found[:, 2], [item.last for item in plain], rtol=2e-5)


@pytest.mark.medium
@settings(max_examples=30, deadline=None)
@given(lengths, st.sampled_from([1, 2, 7, 30]), st.sampled_from([(0, 0.9), (4, 0.5), (20, 0.9)]), st.sampled_from([130, 4000]))
def test_requests_that_are_received_late_or_wait_for_others(
    rows: list[tuple[float, int, int]], receive: int, wait: tuple[int, float], pages: int
) -> None:
    """Servers that receive requests every so many steps, or collect prompts: as the plain simulation."""
    made, block = deployment(), requests(rows)
    made = replace(made, software=replace(made.software, receive=receive, wait_steps=wait[0], wait_share=wait[1]))
    found = simulate(made.step, small_memory(made, pages), [block], keep=True).rows
    plain = plain_simulation(made.step, pages, *(values.tolist() for values in (block.arrivals, block.inputs, block.outputs)))
    assert found is not None
    np.testing.assert_allclose(found[:, 1], [item.first for item in plain], rtol=2e-5)
    np.testing.assert_allclose(found[:, 2], [item.last for item in plain], rtol=2e-5)


HYBRIDS = {"nemotron-h-8b": 14, "qwen3-next-80b-a3b": 10, "mamba": 0}
"""Pages of 16 tokens beside the states of four sequences; a model of recurrent layers alone has none."""


@cache
def hybrid(name: str) -> Deployment:
    """A deployment of a hybrid; mamba: all layers of Nemotron-H are recurrent."""
    if name == "mamba":
        made = hybrid("nemotron-h-8b")
        assert made.model.hybrid is not None
        return replace(made, model=replace(made.model, hybrid=replace(made.model.hybrid, layers=28)))
    system, layout = ("4 x h200, nvlink 4", ReplicaLayout(4)) if name.startswith("qwen") else ("1 x h100", ReplicaLayout())
    return deployment(name, system, layout)


@pytest.mark.medium
@settings(max_examples=40, deadline=None)
@given(lengths, st.sampled_from(sorted(HYBRIDS)), st.sampled_from([1, 3, 40]), st.sampled_from([0, 2, 10**3]))
def test_hybrids_are_those_of_the_plain_simulation(
    rows: list[tuple[float, int, int]], name: str, states: int, in_host: int
) -> None:
    """A sequence holds the pages of its state from its first token to its last, preempted ones move them or free them."""
    made, block = hybrid(name), requests(rows)
    made = replace(made, software=replace(made.software, preempt="swap" if in_host else "recompute"))
    memory = made.engine_memory
    pages = states * memory.state_pages + max(64 * memory.grows, HYBRIDS[name])
    host = in_host * memory.state_pages
    assert made.system.host is not None
    bandwidth = min(made.system.host.link.bandwidth, made.system.host.bandwidth)
    swap = (host, memory.page / bandwidth, made.system.host.link.latency) if in_host else (0, 0.0, 0.0)
    made = replace(made, system=replace(made.system, host=replace(made.system.host, capacity=(host + 0.5) * memory.page)))
    found = simulate(made.step, small_memory(made, pages), [block], keep=True).rows
    listed = block.arrivals.tolist(), block.inputs.tolist(), block.outputs.tolist()
    plain = plain_simulation(made.step, pages, *listed, swap=swap, state=memory.state_pages, grows=memory.grows)
    assert found is not None
    np.testing.assert_allclose(found[:, 1], [item.first for item in plain], rtol=2e-5)
    np.testing.assert_allclose(found[:, 2], [item.last for item in plain], rtol=2e-5)


def test_states_are_preempted_and_come_back() -> None:
    """Pages for two and a half states: a third sequence waits, and nobody is preempted for want of pages of a state alone."""
    made = hybrid("mamba")
    block = Requests(np.zeros(3), np.full(3, 100), np.full(3, 50))
    found = simulate(made.step, small_memory(made, 2), [block], keep=True)
    assert (found.requests, found.peak, found.preempted) == (3, 2, 0)
    made = hybrid("nemotron-h-8b")
    room = small_memory(made, 2 * made.engine_memory.state_pages + 20)  # two states, and pages for 320 tokens
    block = Requests(np.zeros(2), np.full(2, 100), np.full(2, 100))
    assert simulate(made.step, room, [block], keep=True).preempted == 1


def test_preemption_happens_and_ends() -> None:
    """Sequences that outgrow the cache make way for each other, and all end."""
    made = deployment()
    block = Requests(np.zeros(8), np.full(8, 100), np.full(8, 300))
    found = simulate(made.step, small_memory(made, 70), [block], keep=True)
    plain = plain_simulation(made.step, 70, [0.0] * 8, [100] * 8, [300] * 8)
    assert found.preempted > 0
    assert found.requests == 8
    assert found.rows is not None
    np.testing.assert_allclose(found.rows[:, 2], [item.last for item in plain], rtol=1e-4)


PAGE_TIME = 16 * 32 * 2 * 8 * 128 * 2 / 63.015e9
"""Of a page of Llama-3-8B (16 tokens of 32 layers, keys and values of 8 heads of 128 elements of 2 bytes) over the link of an
H100 to its host [s]."""
LINK_LATENCY = 5e-7
"""Of that link [s]."""


def swapped(capacity: float = 256e9) -> Deployment:
    """A deployment that swaps to a host with so many bytes for a chip."""
    made = deployment()
    assert made.system.host is not None
    host = replace(made.system.host, capacity=capacity)
    return replace(made, system=replace(made.system, host=host), software=replace(made.software, preempt="swap"))


def test_two_sequences_that_swap() -> None:
    """In four pages two sequences decode together until each has two; then the second waits in the host until the first ends."""
    made = swapped()
    block = Requests(np.zeros(2), np.full(2, 15), np.full(2, 40))
    found = simulate(made.step, small_memory(made, 4), [block], keep=True)
    both = sum(float(made.step.time(StepBatch(2, context))) for context in range(16, 33))
    alone = sum(float(made.step.time(StepBatch(1, context))) for context in range(33, 55))
    moved = LINK_LATENCY + 2 * PAGE_TIME
    first = float(made.step.time(StepBatch(0, 0, 30, 15, 2))) + both + moved + alone
    assert (found.preempted, found.swapped) == (1, 1)
    assert found.rows is not None
    assert found.rows[:, 2].tolist() == pytest.approx([first, first + moved + alone], rel=2e-5)


@pytest.mark.medium
@settings(max_examples=30, deadline=None)
@given(lengths, st.sampled_from([64, 75, 130]), st.sampled_from([0, 5, 40, 10**5]))
def test_swapping_is_that_of_the_plain_simulation(rows: list[tuple[float, int, int]], pages: int, host: int) -> None:
    """With a host that has capacity for all, for some (the others are recomputed), or for none."""
    made, block = swapped(host * 2**21), requests(rows)
    found = simulate(made.step, small_memory(made, pages), [block], keep=True)
    listed = block.arrivals.tolist(), block.inputs.tolist(), block.outputs.tolist()
    plain = plain_simulation(made.step, pages, *listed, swap=(host, PAGE_TIME, LINK_LATENCY))
    assert found.rows is not None
    np.testing.assert_allclose(found.rows[:, 1], [item.first for item in plain], rtol=2e-5)
    np.testing.assert_allclose(found.rows[:, 2], [item.last for item in plain], rtol=2e-5)
    assert found.swapped <= found.preempted


def test_swapping_needs_a_host() -> None:
    made = replace(deployment(), system=replace(deployment().system, host=None))
    simulate(made.step, made.engine_memory, generated(3, 1.0, (50, 60), (5, 6)))
    made = replace(made, software=replace(made.software, preempt="swap"))
    with pytest.raises(BadInput, match="a host with memory and a link to it; got none; give 'host' in a system file"):
        swapping(made.step, made.engine_memory)


def proposing(window: int, first: float, preempt: str = "recompute") -> Deployment:
    """With a head of the model as the draft."""
    made = deployment()
    own = Speculation(proposing_head(made.model), Acceptance(first), window)
    return replace(made, software=replace(made.software, preempt=preempt), speculation=own)


@pytest.mark.medium
@settings(max_examples=30, deadline=None)
@given(lengths, st.sampled_from([70, 130, 4000]), st.sampled_from([1, 3]), st.sampled_from(["recompute", "swap"]))
def test_rounds_of_speculation_are_those_of_the_plain_simulation(
    rows: list[tuple[float, int, int]], pages: int, window: int, preempt: str
) -> None:
    """All proposed tokens are accepted: times of both models, pages of both caches, preemption."""
    made, block = proposing(window, 1.0, preempt), requests(rows)
    memory = small_memory(made, pages)
    found = simulate(made.step, memory, [block], keep=True, acceptance=Acceptance(1.0)).rows
    listed = block.arrivals.tolist(), block.inputs.tolist(), block.outputs.tolist()
    page = PAGE_TIME * 33 / 32  # the draft has one layer more
    swap = (10**5, page, LINK_LATENCY) if preempt == "swap" else (0, 0.0, 0.0)
    plain = plain_simulation(made.step, engine_pages(memory), *listed, swap=swap)
    assert found is not None
    np.testing.assert_allclose(found[:, 1], [item.first for item in plain], rtol=2e-5)
    np.testing.assert_allclose(found[:, 2], [item.last for item in plain], rtol=2e-5)


def test_rounds_of_one_request() -> None:
    """Of 22 tokens the first comes with the prompt, 4 with each of five rounds, and one with the last."""
    made = proposing(3, 1.0)
    found = simulate(made.step, made.engine_memory, [requests([(0.0, 100, 22)])], keep=True, acceptance=Acceptance(1.0)).rows
    rounds = sum(float(made.step.time(StepBatch(1, 101 + 4 * number))) for number in range(6))
    assert found is not None
    assert found[0, 2] == pytest.approx(float(made.step.time(StepBatch(0, 0, 100, 100))) + rounds, rel=1e-6)


@pytest.mark.medium
@pytest.mark.parametrize(("window", "first"), [(1, 0.5), (3, 0.8), (8, 0.9), (4, 0.0)])
def test_drawn_tokens_of_a_round(window: int, first: float) -> None:
    """On average as many as expected; a draft is slower than none where nothing is accepted."""
    made = proposing(window, first)
    blocks = list(generated(40, 0.0, (20, 40), (900, 1000)))
    found = simulate(made.step, made.engine_memory, blocks, concurrency=1, acceptance=Acceptance(first))
    assert (found.tokens - 40) / (found.steps - 40) == pytest.approx(made.tokens_of_step, rel=0.02)
    again = simulate(made.step, made.engine_memory, blocks, concurrency=1, acceptance=Acceptance(first))
    assert again.time == found.time


def test_a_draft_and_its_acceptance() -> None:
    made = proposing(2, 0.5)
    with pytest.raises(BadInput, match="a draft and the acceptance of its tokens, or neither; got a draft alone"):
        simulate(made.step, made.engine_memory, [requests([(0.0, 10, 10)])])
    with pytest.raises(BadInput, match="got an acceptance alone"):
        simulate(deployment().step, made.engine_memory, [requests([(0.0, 10, 10)])], acceptance=Acceptance(0.5))


def test_a_closed_loop_keeps_its_users() -> None:
    made = deployment()
    blocks = list(generated(60, 0.0, (200, 300), (20, 40), seed=3))
    found = simulate(made.step, made.engine_memory, blocks, concurrency=5, keep=True)
    assert found.rows is not None
    starts, ends = found.rows[:, 0], found.rows[:, 2]
    most = max(int(((starts <= moment) & (ends > moment)).sum()) for moment in starts)
    assert most == 5
    assert found.peak <= 5


def test_engines_get_requests_in_turn_from_any_blocks() -> None:
    """As each engine alone with every third request."""
    made, (block,) = deployment(), list(generated(90, 40.0, (50, 400), (2, 50)))
    both = simulate(made.step, made.engine_memory, _cut([block], 7), engines=3, keep=True)
    alone = [
        simulate(
            made.step, made.engine_memory, [Requests(block.arrivals[k::3], block.inputs[k::3], block.outputs[k::3])], keep=True
        )
        for k in range(3)
    ]
    assert both.rows is not None
    ends = sorted(float(end) for each in alone if each.rows is not None for end in each.rows[:, 2])
    np.testing.assert_allclose(sorted(both.rows[:, 2]), ends)


def test_blocks_do_not_change_the_answer() -> None:
    made = deployment()
    whole = simulate(made.step, made.engine_memory, generated(200, 30.0, (50, 400), (2, 50)), keep=True)
    cut = simulate(made.step, made.engine_memory, _cut(generated(200, 30.0, (50, 400), (2, 50)), 17), keep=True)
    assert whole.rows is not None
    assert cut.rows is not None
    np.testing.assert_allclose(whole.rows, cut.rows)


def _cut(blocks: object, size: int) -> list[Requests]:
    found = []
    for block in blocks:  # type: ignore[attr-defined]
        for first in range(0, len(block), size):
            part = slice(first, first + size)
            found.append(Requests(block.arrivals[part], block.inputs[part], block.outputs[part]))
    return found


def test_a_request_beyond_the_cache_is_refused() -> None:
    made = deployment()
    with pytest.raises(Infeasible, match="tokens of the cache"):
        simulate(made.step, small_memory(made, 10), [Requests(np.zeros(1), np.array([500]), np.array([5]))])


@pytest.mark.parametrize(
    ("arrivals", "inputs", "message"), [([1.0, 0.5], [5, 5], "in order of arrival"), ([0.0, 1.0], [5, -1], "at least 1 token")]
)
def test_bad_requests(arrivals: list[float], inputs: list[int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Requests(np.array(arrivals), np.array(inputs), np.array([3, 3]))


@given(st.lists(st.floats(1e-5, 1e3), min_size=1, max_size=50), st.floats(0.01, 1))
def test_percentiles_of_histograms(times: list[float], share: float) -> None:
    """To a bin of what sorting gives."""
    made = TimeHistogram()
    made.add(np.array(times))
    exact = sorted(times)[max(int(np.ceil(share * len(times) - 1e-9)) - 1, 0)]
    assert exact / 1.03 <= made.percentile(share) <= exact * 1.03
