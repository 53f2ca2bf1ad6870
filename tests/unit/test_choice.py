"""Which schedule runs, and where the time of one that loses goes."""

from __future__ import annotations

import pytest

from halley.errors import BadInput
from halley.io.networks.network import load_network
from halley.ir.mapping import CollectiveKind
from halley.network.graph.groups import Group
from halley.network.time.choice import bytes_sent, chosen, loss
from halley.network.time.collective import candidates, not_tried, team_of
from halley.network.time.sweep import sweep


@pytest.fixture(params=["dgx-h100", "dgx-1", "sn10-torus"])
def team(request: pytest.FixtureRequest) -> Group:
    return team_of(load_network(request.param).axes)


@pytest.mark.parametrize("kind", [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL])
def test_losses_add_up(team: Group, kind: CollectiveKind) -> None:
    fastest, *others = candidates(kind, team, 2**20, 1e-6)
    for cost in others:
        parts = loss(cost, fastest, team)
        assert parts.waiting + parts.bytes + parts.idling == pytest.approx(cost.time - fastest.time, rel=1e-9, abs=1e-15)
        assert parts.waiting == pytest.approx(cost.waiting - fastest.waiting)


def test_a_ring_on_a_ring_idles_nowhere_and_sends_what_theory_says() -> None:
    team = team_of(load_network("sn10-ring").axes)
    cost = chosen(CollectiveKind.ALL_GATHER, team, 8 * 2**20, "ring")
    assert bytes_sent(cost, team) == 7 * 2**20
    assert cost.waiting == pytest.approx(7 * team.graph.edges[0].link.latency)
    itself = loss(cost, cost, team)
    assert (itself.waiting, itself.bytes, itself.idling) == (0, 0, 0)


def test_the_root_of_a_scatter_sends_most() -> None:
    team = team_of(load_network("dgx-h100").axes)
    assert bytes_sent(chosen(CollectiveKind.SCATTER, team, 8 * 2**20, "direct"), team) == 7 * 2**20


def test_every_candidate_is_found_by_its_name(team: Group) -> None:
    for cost in candidates(CollectiveKind.ALL_REDUCE, team, 2**16):
        name = cost.schedule.algorithm if cost.schedule.pieces > 1 else cost.algorithm
        named = chosen(CollectiveKind.ALL_REDUCE, team, 2**16, str(name))
        assert named.time <= cost.time


def test_a_name_of_no_candidate(team: Group) -> None:
    with pytest.raises(BadInput, match="expected a known algorithm; got 'rign'"):
        chosen(CollectiveKind.ALL_REDUCE, team, 2**16, "rign")


def test_a_sweep_has_the_fastest_of_each_family(team: Group) -> None:
    sizes = (1000, 10**6)
    swept = sweep(CollectiveKind.ALL_REDUCE, team, sizes)
    for place, size in enumerate(sizes):
        costs = candidates(CollectiveKind.ALL_REDUCE, team, size)
        times = [times[place] for times in swept.times.values() if times[place] is not None]
        assert min(times) == swept.best[place].time == costs[0].time
        assert swept.bounds[place] == costs[0].bound.value
        assert set(times) <= {cost.time for cost in costs}


def test_what_is_no_candidate_has_a_reason() -> None:
    pod = team_of(load_network("hgx-pod").axes)
    found = not_tried(CollectiveKind.ALL_REDUCE, pod)
    assert {"one-shot": "at most 64 members (n^3 transfers)"}.items() <= found.items()
    one = "one switch or tree of them, as ranks pass messages from dimension to dimension"
    assert found["pulled"] == found["in-network"] == one
    assert found["ring"] == "at most 16 ranks on several axes, 64 on one (tables); --algorithm asks for it"
    ring = {"bidirectional-halved": "a ring, as bidirectional or direct is never slower here"}
    assert not_tried(CollectiveKind.ALL_GATHER, team_of(load_network("dgx-h100").axes)) == ring
