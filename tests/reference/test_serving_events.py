"""The event simulation of serving against a plain one that loops over all sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.serving_cases import deployment, small_memory
from tests.reference.serving_events import plain_simulation

from halley.errors import BadInput, Infeasible
from halley.serving.simulate import Requests, TimeHistogram, generated, simulate

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
