"""Executions beside each other: what sharing links may and may not do, and a time-step simulation that shares no code with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halley.errors import BadInput
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.graph.graph import Edge, Graph, Switch
from halley.network.graph.topologies import build
from halley.network.time.collective import ScheduledCollective, team_of
from halley.network.time.contention import ConcurrentRun, Contention, Stage, collective_execution, concurrent, fair_rates, message
from halley.network.time.schedules import Schedule

NETWORKS = (
    Axis("x", 6, Topology.RING, Link(10.0, 0.25)),
    Axis("x", 5, Topology.LINE, Link(3.0, 0.0)),
    Axis("x", 6, Topology.SWITCH, Link(8.0, 0.5)),
    Axis("x", 6, Topology.MESH, Link(4.0, 0.125), (2, 3)),
)
KINDS = ((CollectiveKind.ALL_REDUCE, "ring"), (CollectiveKind.ALL_TO_ALL, "direct"), (CollectiveKind.BROADCAST, "binomial"))


@st.composite
def traffic(draw: st.DrawFn) -> tuple[Graph, list[ConcurrentRun]]:
    graph = build(draw(st.sampled_from(NETWORKS)))
    made = []
    for place in range(draw(st.integers(1, 4))):
        name, start = f"{place}", draw(st.sampled_from((0.0, 0.0, 1.5)))
        size = draw(st.integers(1, 400))
        if draw(st.booleans()):
            first, second = draw(st.permutations(range(graph.ranks)))[:2]
            made.append(message(name, graph, first, second, size, start=start))
        else:
            members = draw(st.permutations(range(graph.ranks)))[: draw(st.integers(2, graph.ranks))]
            kind, algorithm = draw(st.sampled_from(KINDS))
            made.append(collective_execution(name, graph, kind, [members], Schedule(algorithm), size, start=start))
    return graph, made


def advanced(found: Contention, index: int) -> float:
    """How many of its own seconds an execution has gone through."""
    return sum((span.stop - span.start) * span.rates[index] for span in found.intervals if index in span.rates)


@settings(deadline=None)
@given(traffic())
def test_nobody_is_faster_than_alone_and_every_byte_arrives(case: tuple[Graph, list[ConcurrentRun]]) -> None:
    graph, executions = case
    found = concurrent(executions, graph)
    for index, item in enumerate(found.outcomes):
        assert item.time >= item.alone * (1 - 1e-9)
        assert advanced(found, index) == pytest.approx(item.alone, rel=1e-9)
        assert (item.time > item.alone * (1 + 1e-8)) <= bool(item.waited)
        assert sum(item.waited.values()) == pytest.approx(item.time - item.alone, abs=1e-8 * item.time)
        assert set(item.waited) <= set(item.shared)
    assert found.end >= found.bound * (1 - 1e-9)
    assert found.end <= sum(item.start + item.alone for item in found.outcomes) * (1 + 1e-9)


@settings(deadline=None)
@given(traffic())
def test_those_that_share_no_link_do_not_notice(case: tuple[Graph, list[ConcurrentRun]]) -> None:
    graph, executions = case
    for item in concurrent(executions, graph).outcomes:
        if not item.shared:
            assert item.time == pytest.approx(item.alone, rel=1e-12)


demands = st.lists(st.lists(st.sampled_from((0.0, 0.0, 0.1, 0.5, 1.0)), min_size=4, max_size=4), min_size=1, max_size=5)


@given(demands, st.lists(st.sampled_from((0.25, 0.5, 1.0)), min_size=4, max_size=4))
def test_rates_are_max_min_fair(wanted: list[list[float]], left: list[float]) -> None:
    """Whoever is held up is held up by a full link on which nobody has a higher rate (Bertsekas and Gallager, Data Networks)."""
    asked, room = np.array(wanted), np.array(left)
    rates, limits = fair_rates(asked, room)
    load = rates @ asked
    assert (load <= room * (1 + 1e-9)).all()
    for index, (rate, limit) in enumerate(zip(rates, limits, strict=True)):
        assert (rate < 1) == (limit >= 0) or rate == pytest.approx(1)
        if limit >= 0:
            assert asked[index, limit] > 0
            assert load[limit] == pytest.approx(room[limit])
            assert rates[asked[:, limit] > 0].max() <= rate * (1 + 1e-9)


def stepped(executions: Sequence[ConcurrentRun], graph: Graph, count: int) -> list[float]:
    """When each ends, by small steps in time; in each, rates are raised bit by bit as long as no link overflows."""
    alone = [item.start + sum(stage.delay + stage.alone(graph) for stage in item.stages) for item in executions]
    tick = sum(alone) / count
    todo = [[part for stage in item.stages for part in ((stage.delay, None), (stage.alone(graph), stage))] for item in executions]
    for item, parts in zip(executions, todo, strict=True):
        parts.insert(0, (item.start, None))
    ends, now, known = [0.0] * len(executions), 0.0, {}
    while any(todo):
        moving: list[tuple[int, Stage]] = [(i, p[0][1]) for i, p in enumerate(todo) if p and p[0][1] is not None and p[0][0] > 0]
        rates = {i: 1.0 for i, parts in enumerate(todo) if parts}
        key = tuple((index, id(stage)) for index, stage in moving)
        if key not in known:
            known[key] = raised(moving, graph)
        rates |= known[key]
        for index, rate in rates.items():
            budget = tick * rate
            while todo[index] and todo[index][0][0] <= budget:
                budget -= todo[index].pop(0)[0]
                if todo[index] and todo[index][0][1] is not None and todo[index][0][0] > 0:
                    budget = 0.0  # a new transfer starts with the next step, at its own rate
            if todo[index]:
                todo[index][0] = (todo[index][0][0] - budget, todo[index][0][1])
            elif not ends[index]:
                ends[index] = now + tick
        now += tick
    return ends


def raised(moving: Sequence[tuple[int, Stage]], graph: Graph, grain: int = 100) -> dict[int, float]:
    rates = dict.fromkeys((index for index, _ in moving), 0.0)
    stuck: set[int] = set()
    while len(stuck) < len(moving):
        for index, stage in moving:
            if index in stuck:
                continue
            trial = rates | {index: rates[index] + 1 / grain}
            used: dict[int, float] = {}
            for other, its in moving:
                for edge, load in zip(its.edges.tolist(), its.loads.tolist(), strict=True):
                    used[edge] = used.get(edge, 0.0) + trial[other] * load / its.alone(graph)
            mine = stage.edges[stage.loads > 0].tolist()
            full = any(used[edge] > graph.edges[edge].link.bandwidth * (1 + 1e-9) for edge in mine)
            if full or trial[index] > 1 + 1e-9:
                stuck.add(index)
            else:
                rates = trial
    return rates


@settings(max_examples=25, deadline=None)
@given(traffic())
def test_small_steps_in_time_agree(case: tuple[Graph, list[ConcurrentRun]]) -> None:
    graph, executions = case
    executions = executions[:2]
    found = concurrent(executions, graph)
    whole = sum(item.start + item.alone for item in found.outcomes)
    parts = sum(len(item.stages) for item in executions) + 2
    for item, end in zip(found.outcomes, stepped(executions, graph, 600), strict=True):
        assert item.start + item.time == pytest.approx(end, rel=0.02, abs=whole / 600 * (parts + 2))


def test_two_on_the_same_links_take_twice() -> None:
    ring = build(NETWORKS[0])
    args = ring, CollectiveKind.ALL_REDUCE, [range(6)], Schedule("ring"), 600
    found = concurrent([collective_execution(name, *args) for name in "ab"], ring)
    latency = 10 * 0.25
    for item in found.outcomes:
        assert item.alone == ScheduledCollective(CollectiveKind.ALL_REDUCE, "ring", ring, 600).cost().time
        assert item.time == pytest.approx(latency + 2 * (item.alone - latency), rel=1e-12)
        assert len(item.shared) == 12  # up to add, down to spread


def test_rings_in_opposite_directions_do_not_meet() -> None:
    ring = build(NETWORKS[0])
    ways = {"up": list(range(6)), "down": list(range(5, -1, -1))}
    args = CollectiveKind.ALL_GATHER, Schedule("ring"), 600
    found = concurrent([collective_execution(n, ring, args[0], [way], args[1], args[2]) for n, way in ways.items()], ring)
    assert [item.slowdown for item in found.outcomes] == [1.0, 1.0]
    assert found.end == found.bound == found.outcomes[0].alone


def test_groups_run_in_step_and_share_what_they_share() -> None:
    """Two halves of a switch do not meet; their all-to-all takes what one half takes."""
    switch = build(NETWORKS[2])
    args = CollectiveKind.ALL_TO_ALL, Schedule("direct"), 300
    halves = collective_execution("halves", switch, args[0], [(0, 1, 2), (3, 4, 5)], args[1], args[2])
    half = collective_execution("half", switch, args[0], [(0, 1, 2)], args[1], args[2])
    assert halves.alone(switch) == half.alone(switch)
    assert halves.loads(switch).sum() == 2 * half.loads(switch).sum()


def test_background_takes_its_share_throughout() -> None:
    line = build(Axis("x", 2, Topology.LINE, Link(10.0)))
    alone = message("m", line, 0, 1, 100)
    assert concurrent([alone], line).end == 10.0
    loaded = concurrent([alone], line, np.array([0.75, 0.0]))
    assert (loaded.end, loaded.bound, loaded.outcomes[0].slowdown) == (40.0, 40.0, 4.0)


def test_a_message_gives_way_and_catches_up() -> None:
    """100 B at 10 B/s; another 20 B from 2 s on: both have half until that is through at 6 s, and the first ends at 12 s."""
    line = build(Axis("x", 2, Topology.LINE, Link(10.0)))
    found = concurrent([message("long", line, 0, 1, 100), message("short", line, 0, 1, 20, start=2.0)], line)
    assert [(item.start + item.time) for item in found.outcomes] == pytest.approx([12.0, 6.0])
    assert [span.stop for span in found.intervals] == pytest.approx([2.0, 6.0, 12.0])
    assert found.outcomes[0].waited == pytest.approx({0: 2.0})


def test_a_switch_that_adds_is_shared_too() -> None:
    team = team_of((Axis("x", 4, Topology.SWITCH, Link(10.0), multicast=True, reduction=True),))
    args = team.graph, CollectiveKind.ALL_REDUCE, [range(4)], Schedule("in-network"), 100
    found = concurrent([collective_execution(name, *args) for name in "ab"], team.graph)
    assert [item.slowdown for item in found.outcomes] == [2.0, 2.0]
    assert found.outcomes[0].alone == ScheduledCollective(args[1], "in-network", team, 100).cost().time


def test_groups_in_a_switch_that_adds_stay_apart() -> None:
    team = team_of((Axis("x", 4, Topology.SWITCH, Link(10.0), multicast=True, reduction=True),))
    args = CollectiveKind.ALL_REDUCE, Schedule("in-network"), 100
    both = collective_execution("both", team.graph, args[0], [(0, 1), (2, 3)], args[1], args[2])
    one = collective_execution("one", team.graph, args[0], [(0, 1)], args[1], args[2])
    assert both.loads(team.graph).tolist() == [100.0] * 8
    assert one.loads(team.graph).sum() == 400.0
    assert both.alone(team.graph) == one.alone(team.graph) == 10.0


def test_sums_of_two_groups_are_two_on_a_link_between_switches() -> None:
    adding, link = {"multicast": True, "reduction": True}, Link(10.0)
    ends = [(0, 4), (1, 4), (2, 5), (3, 5), (4, 5)]
    edges = tuple(Edge(*pair, link) for first, second in ends for pair in ((first, second), (second, first)))
    graph = Graph("tiers", 4, edges, (Switch("left", **adding), Switch("right", **adding)))
    made = collective_execution("both", graph, CollectiveKind.ALL_REDUCE, [(0, 2), (1, 3)], Schedule("in-network"), 100)
    assert made.loads(graph).tolist() == [100.0] * 8 + [200.0] * 2


def test_what_cannot_run_is_said() -> None:
    line = build(Axis("x", 2, Topology.LINE, Link(10.0)))
    one = message("m", line, 0, 1, 100)
    for run, words in (
        (lambda: concurrent([], line), "expected at least one; got none"),
        (lambda: concurrent([one, one], line), "a name of its own for each; got 'm' twice"),
        (lambda: concurrent([message("m", line, 0, 1, 1, 0.0, -1.0)], line), "m, start: expected a time of at least 0; got -1 s"),
        (lambda: concurrent([one], line, np.array([1.0, 0.0])), "shares from 0 to below 1"),
        (lambda: concurrent([one], line, np.zeros(3)), "a share for each of 2 links"),
        (lambda: message("m", line, 0, 2, 1), "two different ranks from 0 to 1; got 0 and 2"),
        (lambda: message("m", line, 1, 1, 1), "two different ranks"),
        (
            lambda: collective_execution("c", line, CollectiveKind.SHIFT, [(0, 1), (0,)], Schedule("neighbour"), 1),
            "groups of one size; got 1, 2",
        ),
    ):
        with pytest.raises(BadInput, match=words.replace("(", r"\(")):
            run()
