"""Collectives by name: what they report, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halley.errors import BadInput, InternalError
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.tables import KINDS, Pattern
from halley.network.bounds.collectives import Bound
from halley.network.bounds.reasons import BoundPart
from halley.network.graph.graph import Edge, Graph
from halley.network.graph.groups import group
from halley.network.time import collective
from halley.network.time.collective import CONVENTIONS, ScheduledCollective, best, candidates, exchange, team_of
from halley.network.time.schedules import Schedule

K, T = CollectiveKind, Topology
RING = (Axis("x", 4, T.RING, Link(2.0, 5.0, 3.0)),)
SWITCH = (Axis("x", 8, T.SWITCH, Link(450e9, 1e-7, 1e-11), multicast=True, reduction=True),)


def test_a_cost_says_all_there_is_to_say() -> None:
    cost = ScheduledCollective(K.ALL_REDUCE, "ring", RING, 240, 1.0).cost()
    assert cost.time == 6 * (1 + 5 + 60 / 2)
    assert cost.steps == 6
    assert cost.link_bytes.tolist() == [180] * 8  # down to reduce, up to gather
    assert cost.byte_hops == 1440
    assert cost.energy == 1440 * 3
    assert cost.limiting == (0, 1)
    assert cost.waiting == 6 * (1 + 5)
    assert cost.algbw == 240 / cost.time
    assert cost.busbw == pytest.approx(1.5 * cost.algbw)
    assert cost.convention == "the vector of one rank"
    assert cost.gap == cost.time / cost.bound.value - 1 > 0
    assert (cost.algorithm, cost.ranks, cost.size) == ("ring", 4, 240)
    assert "Patarasuk" in cost.schedule.source


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """All-reduce 2 (n - 1) / n, all-gather, reduce-scatter, all-to-all (n - 1) / n, the rest 1, times size over time."""
    for kind, factor in ((K.ALL_REDUCE, 14 / 8), (K.ALL_GATHER, 7 / 8), (K.REDUCE_SCATTER, 7 / 8), (K.ALL_TO_ALL, 7 / 8)):
        cost = ScheduledCollective(kind, "direct", SWITCH, 8000).cost()
        assert cost.busbw == pytest.approx(factor * cost.algbw)
    for kind in (K.BROADCAST, K.REDUCE):
        cost = ScheduledCollective(kind, "binomial", SWITCH, 8000).cost()
        assert cost.busbw == cost.algbw


def test_a_switch_that_adds_beats_one_that_does_not() -> None:
    plain = (Axis("x", 8, T.SWITCH, SWITCH[0].link),)
    with_it, without = (best(K.ALL_REDUCE, where, 10**9) for where in (SWITCH, plain))
    fetched = best(K.ALL_REDUCE, (replace(SWITCH[0], on_request=True),), 10**9)
    assert (with_it.algorithm, str(fetched.schedule.algorithm)) == ("in-network", "pulled")
    assert with_it.busbw > fetched.busbw > 450e9
    assert with_it.busbw > 450e9 > without.busbw > 449e9
    assert not any(ALGORITHMS[str(cost.schedule.algorithm)].network for cost in candidates(K.ALL_REDUCE, plain, 1000))


def test_one_rank_has_nothing_to_do() -> None:
    for kind in KINDS:
        for cost in candidates(kind, (Axis("x", 1, T.LINE, Link(1.0)),), 0 if kind is Pattern.BARRIER else 7):
            assert (cost.time, cost.steps, cost.byte_hops, cost.limiting, cost.gap) == (0, 0, 0, None, 0)


def test_a_group_of_a_network() -> None:
    """Half of a ring is a line; four of a mesh in no box talk over the links of others."""
    half = group((Axis("x", 8, T.RING, Link(2.0)),), range(4))
    assert ScheduledCollective(K.ALL_GATHER, "bidirectional", half, 80).cost().time == 3 * 20 / 2
    scattered = group((Axis("x", 9, T.MESH, Link(2.0), shape=(3, 3)),), (0, 2, 4, 8))
    assert best(K.ALL_TO_ALL, scattered, 400).gap >= 0


def test_any_graph_will_do() -> None:
    star = Graph("star", 4, tuple(Edge(a, b, Link(10.0, 1.0)) for i in range(1, 4) for a, b in ((0, i), (i, 0))))
    cost = ScheduledCollective(K.BROADCAST, "direct", star, 30).cost()
    assert cost.time == 1 + 3
    assert cost.gap == 0


def test_every_kind_has_its_convention() -> None:
    assert set(CONVENTIONS) == set(KINDS)


def test_every_algorithm_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "collectives.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for name in ALGORITHMS:
        assert any(f"`{name}`" in row for row in rows), name
    for kind in KINDS:
        assert any(f"`{kind}`" in row for row in rows), kind


def test_experts_that_get_unequal_shares() -> None:
    counts = np.array([[0, 8, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2], [2, 0, 0, 0]])
    cost = exchange(counts, "direct", RING)
    assert cost.time == 2 * 5 + 8 / 2  # empty messages take two hops
    assert cost.limiting == (0, 1)
    assert cost.size == 8


def test_a_time_below_its_bound_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "lower_bound", lambda *_, **__: Bound((BoundPart("wrong", 1e9, "someone erred"),)))
    with pytest.raises(InternalError, match=r"at least 1e\+09 s \(someone erred\)"):
        ScheduledCollective(K.ALL_REDUCE, "ring", RING, 240).cost()


APART = Graph("apart", 3, (Edge(0, 1, Link(1.0)), Edge(1, 0, Link(1.0))))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ScheduledCollective(K.ALL_REDUCE, "rng", RING, 8).cost(), "a known algorithm; got 'rng'; did you mean 'ring'"),
        (lambda: ScheduledCollective(K.ALL_REDUCE, "two-shot", RING, 8).cost(), "got all-reduce; use one of: ring"),
        (
            lambda: ScheduledCollective(K.ALL_GATHER, "doubling", (Axis("x", 6, T.RING, Link(1.0)),), 8).cost(),
            "a power of two; got 6",
        ),
        (lambda: ScheduledCollective(K.ALL_REDUCE, "in-network", RING, 8).cost(), "a switch that adds"),
        (lambda: ScheduledCollective(K.ALL_REDUCE, "ring", RING, 0).cost(), "at least 1 byte; got 0"),
        (lambda: ScheduledCollective(K.ALL_REDUCE, "ring", RING, 2.5).cost(), "a whole number of bytes; got 2.5"),  # type: ignore[arg-type]
        (
            lambda: ScheduledCollective(Pattern.BARRIER, "dissemination", RING, 8).cost(),
            "0 bytes; got 8; a barrier carries nothing",
        ),
        (
            lambda: ScheduledCollective(K.ALL_REDUCE, "ring", (Axis("x", 4, T.RING, Link(0.0)),), 8).cost(),
            "a bandwidth above zero; got 0",
        ),
        (lambda: ScheduledCollective(K.ALL_REDUCE, "ring", (), 8).cost(), "at least one axis; got none"),
        (lambda: ScheduledCollective(K.ALL_REDUCE, "ring", APART, 8).cost(), "rank"),
        (
            lambda: ScheduledCollective(K.ALL_GATHER, "ring", group(RING, (0, 7)), 8).cost(),
            "a sub-group of the ranks 0 to 3; got rank 7",
        ),
        (lambda: exchange([[0, 1], [1, 0]], "direct", RING), "whole numbers for 4 x 4 ranks; got int64 of shape"),
        (lambda: exchange(np.full((4, 4), -1), "direct", RING), "at least 0; got -1"),
        (lambda: exchange(np.full((4, 4), 0.5), "direct", RING), "whole numbers"),
        (lambda: exchange(np.eye(4, dtype=int), "direct", RING), "at least one amount above zero"),
        (
            lambda: ScheduledCollective(K.ALL_REDUCE, Schedule("ring", order=(0, 1)), RING, 8).cost(),
            "each of the ranks 0 to 3 once",
        ),
        (lambda: ScheduledCollective(K.BROADCAST, Schedule("pipelined", 0), RING, 8).cost(), "at least 1 piece; got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        call()


def test_equal_axes_are_one_group() -> None:
    assert team_of(RING) is team_of((Axis("x", 4, T.RING, Link(2.0, 5.0, 3.0)),))
    assert team_of(team_of(RING)) is team_of(RING)
