"""Lower bounds: the laws that any must keep, and every cut by exhaustion on small random networks."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halley.errors import BadInput
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind as Kind
from halley.network.bounds.collectives import demand_bound, lower_bound
from halley.network.bounds.cuts import tightest_cut
from halley.network.graph.graph import Edge, Graph, Switch
from halley.network.graph.topologies import build

KINDS = (
    Kind.ALL_REDUCE,
    Kind.REDUCE_SCATTER,
    Kind.REDUCE,
    Kind.ALL_GATHER,
    Kind.GATHER,
    Kind.ALL_TO_ALL,
    Kind.BROADCAST,
    Kind.SCATTER,
    Kind.SHIFT,
)
BANDWIDTHS = (1.0, 2.0, 3.0, 0.1, 7.5)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Strongly connected: a cycle through all vertices, and some more links."""
    ranks, switches = draw(st.integers(2, 5)), draw(st.integers(0, 2))
    vertices = ranks + switches
    cycle = draw(st.permutations(range(vertices)))
    ends = set(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    pairs = [pair for pair in product(range(vertices), repeat=2) if pair[0] != pair[1]]
    ends |= set(draw(st.lists(st.sampled_from(pairs), max_size=10)))
    links = [Link(draw(st.sampled_from(BANDWIDTHS)), draw(st.sampled_from((0.0, 0.5)))) for _ in ends]
    edges = tuple(Edge(source, target, link) for (source, target), link in zip(sorted(ends), links, strict=True))
    return Graph("drawn", ranks, edges, tuple(Switch(f"s{index}") for index in range(switches)))


def subsets(graph: Graph) -> list[set[int]]:
    vertices = range(graph.vertices)
    return [set(some) for size in range(1, graph.vertices) for some in combinations(vertices, size)]


def leaving(graph: Graph, inside: set[int]) -> Fraction:
    return sum((Fraction(e.link.bandwidth) for e in graph.edges if e.source in inside and e.target not in inside), Fraction(0))


@given(graphs(), st.lists(st.integers(0, 4), min_size=5, max_size=5), st.sets(st.integers(0, 4), min_size=1))
@settings(max_examples=150, deadline=None)
def test_the_tightest_cut_is_the_tightest_of_all(graph: Graph, weights: list[int], wanting: set[int]) -> None:
    starts = {rank: weights[rank] for rank in range(graph.ranks) if weights[rank]}
    targets = {target for target in wanting if target < graph.ranks}
    if not any(starts.keys() - {target} for target in targets):
        return
    worst = max(
        Fraction(sum(weight for vertex, weight in starts.items() if vertex in inside)) / leaving(graph, inside)
        for inside in subsets(graph)
        if targets - inside
    )
    cut = tightest_cut(graph, starts, sorted(targets))
    assert cut.time == worst
    assert targets - cut.inside
    assert cut.capacity == leaving(graph, set(cut.inside))


@given(graphs(), st.sampled_from((Kind.ALL_GATHER, Kind.REDUCE_SCATTER)))
@settings(max_examples=60, deadline=None)
def test_gathering_and_scattering_are_each_others_mirror(graph: Graph, kind: Kind) -> None:
    other = Kind.REDUCE_SCATTER if kind is Kind.ALL_GATHER else Kind.ALL_GATHER
    turned = replace(graph, edges=tuple(replace(e, source=e.target, target=e.source) for e in graph.edges))
    assert lower_bound(kind, graph, 60 * graph.ranks).value == lower_bound(other, turned, 60 * graph.ranks).value


@given(graphs(), st.sampled_from(KINDS), st.data())
@settings(max_examples=150, deadline=None)
def test_a_faster_or_another_link_never_raises_a_bound(graph: Graph, kind: Kind, data: st.DataObject) -> None:
    """Of those bounds that are the best of their kind; cuts of an exchange are a choice of cuts, parts of an all-reduce a choice
    of parts."""
    changed = data.draw(st.integers(0, len(graph.edges) - 1))
    edges = list(graph.edges)
    edges[changed] = replace(edges[changed], link=replace(edges[changed].link, bandwidth=8.0))
    free = [p for p in product(range(graph.vertices), repeat=2) if p[0] != p[1] and p not in graph.between]
    more = [Edge(*data.draw(st.sampled_from(free)), Link(1.0, 9.0))] if free else []
    before, after = (
        {part.name: part.value for part in sorted(lower_bound(kind, g, 60 * g.ranks).parts, key=lambda part: part.value)}
        for g in (graph, replace(graph, edges=(*edges, *more)))
    )
    steady = kind not in (Kind.ALL_TO_ALL, Kind.SHIFT)
    for name in {"node", "latency"} | ({"cut"} if steady else set()):
        assert after[name] <= before[name] * (1 + 1e-12)


@given(graphs(), st.sampled_from(KINDS), st.sampled_from((2.0, 0.25)))
@settings(max_examples=80, deadline=None)
def test_bandwidth_scales_bounds(graph: Graph, kind: Kind, factor: float) -> None:
    def plain(scale: float) -> Graph:
        return replace(graph, edges=tuple(replace(e, link=Link(e.link.bandwidth * scale)) for e in graph.edges))

    slow, fast = lower_bound(kind, plain(1.0), 840), lower_bound(kind, plain(factor), 840)
    assert fast.value == pytest.approx(slow.value / factor, rel=1e-12)
    assert lower_bound(kind, plain(1.0), 1680).value == pytest.approx(2 * slow.value, rel=1e-12)


@given(graphs())
@settings(max_examples=80, deadline=None)
def test_an_all_reduce_takes_no_longer_than_its_two_halves(graph: Graph) -> None:
    """Reduce-scatter and all-gather in their optimal times make one, so its bound must not be above theirs."""
    size = 60 * graph.ranks
    graph = replace(graph, switches=(), edges=tuple(e for e in graph.edges if max(e.source, e.target) < graph.ranks))
    ring = {(i, (i + 1) % graph.ranks) for i in range(graph.ranks)} - set(graph.between)
    prompt = [replace(e, link=Link(e.link.bandwidth)) for e in graph.edges]
    graph = replace(graph, edges=(*prompt, *(Edge(*ends, Link(1.0)) for ends in ring)))
    halves = [lower_bound(kind, graph, size).value for kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER)]
    assert lower_bound(Kind.ALL_REDUCE, graph, size).value <= sum(halves) * (1 + 1e-12)


@given(graphs(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_bounds_of_demands_are_cuts_or_distances(graph: Graph, seed: int) -> None:
    """None is above the slowest of all cuts, except by way of lengths; that one is below the least over all, tested elsewhere."""
    demands = np.random.default_rng(seed).integers(0, 9, (graph.ranks, graph.ranks)).astype(float)
    np.fill_diagonal(demands, 0.0)
    demands[0, 1] = 5.0
    worst = 0.0
    for inside in subsets(graph):
        ranks = [rank in inside for rank in range(graph.ranks)]
        crossing = demands[np.ix_(ranks, np.logical_not(ranks))].sum()
        worst = max(worst, float(crossing) / float(leaving(graph, inside)))
    parts = {part.name: part.value for part in demand_bound(graph, demands).parts}
    assert max(parts["node"], parts["cut"]) <= worst * (1 + 1e-12)


def test_lockstep_adds_latency_and_starts() -> None:
    ring = build(Axis("ring", 6, Topology.RING, Link(10.0, 2.0)))
    free = lower_bound(Kind.ALL_GATHER, ring, 60, start_up=5.0)
    bound = lower_bound(Kind.ALL_GATHER, ring, 60, start_up=5.0, lockstep=True)
    assert free.value == 5.0 + 3 * 2.0
    assert bound.value == 5.0 + 3 * 2.0 + 50 / 20
    assert bound.parts[0].name == "steps"


@pytest.mark.parametrize(("members", "ports", "steps"), [(8, 1, 3), (9, 1, 4), (9, 2, 2), (10, 2, 3)])
def test_ports_limit_how_fast_news_spreads(members: int, ports: int, steps: int) -> None:
    full = build(Axis("full", members, Topology.FULL, Link(1e9)))
    assert lower_bound(Kind.BROADCAST, full, 1, start_up=1.0, ports=ports).value == steps


def test_adding_and_copying_switches_halve_an_all_reduce() -> None:
    """Through a switch each rank has to take in 2 (n - 1) / n S, but S if the switch adds and copies; if it only copies, none the
    less 2 (n - 1) / n S."""
    axis = Axis("switch", 8, Topology.SWITCH, Link(10.0))
    assert lower_bound(Kind.ALL_REDUCE, build(axis), 80).value == pytest.approx(14.0)
    assert lower_bound(Kind.ALL_REDUCE, build(replace(axis, multicast=True)), 80).value == pytest.approx(14.0)
    assert lower_bound(Kind.ALL_REDUCE, build(replace(axis, multicast=True, reduction=True)), 80).value == pytest.approx(8.0)


def test_slow_links_between_fast_parts_bound_an_all_reduce() -> None:
    """Four fast pairs on a slow ring: 2 (4 - 1) S enter the pairs over 8 links."""
    pairs = [Edge(2 * i + a, 2 * i + 1 - a, Link(100.0)) for i in range(4) for a in (0, 1)]
    ring = [Edge(2 * i, (2 * i + d) % 8, Link(1.0)) for i in range(4) for d in (2, -2)]
    part = next(p for p in lower_bound(Kind.ALL_REDUCE, Graph("pairs", 8, (*pairs, *ring)), 80).parts if p.name == "partition")
    assert part.value == 2 * 3 * 80 / 8


def test_uneven_shares_move_the_bound() -> None:
    line = build(Axis("line", 3, Topology.LINE, Link(1.0)))
    assert lower_bound(Kind.GATHER, line, 12, shares=(0, 2, 10)).value == 12
    assert lower_bound(Kind.GATHER, line, 12, shares=(10, 2, 0)).value == 2
    assert lower_bound(Kind.SCATTER, line, 12, root=2, shares=(10, 2, 0)).value == 12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", [1, 2, 5])
def test_a_single_byte_has_a_bound(kind: Kind, members: int) -> None:
    """Its other chunks are empty: to gather or scatter what is the root's own takes no time."""
    line = build(Axis("line", members, Topology.LINE, Link(1.0, 1.0)))
    bound = lower_bound(kind, line, 1, start_up=1.0, lockstep=True)
    still = members == 1 or kind in (Kind.GATHER, Kind.SCATTER)
    assert (bound.value == 0) == still
    assert (bound.why == "nothing has to move") == still


def test_a_group_uses_the_links_of_others() -> None:
    ring = build(Axis("ring", 8, Topology.RING, Link(1.0)))
    assert lower_bound(Kind.ALL_GATHER, ring, 40, group=(0, 4)).value == 10
    assert lower_bound(Kind.ALL_REDUCE, ring, 40, group=(3,)).value == 0


def test_reasons_name_the_rank_or_the_cut() -> None:
    fat = build(Axis("tree", 8, Topology.FAT_TREE, Link(10.0), shape=(4, 1), upper=Link(5.0)))
    bound = lower_bound(Kind.ALL_TO_ALL, fat, 80)
    assert (bound.parts[0].name, bound.value) == ("cut", 4 * 4 * 10 / 5)
    assert "160 B have to leave ranks" in bound.why
    assert "1 link of 5 B/s" in bound.why


def test_faults_are_reported_together() -> None:
    ring = build(Axis("ring", 4, Topology.RING, Link(1.0)))
    with pytest.raises(BadInput) as error:
        lower_bound(Kind.BROADCAST, ring, 0, group=(0, 1, 9), root=3)
    assert len(error.value.faults) == 3
    with pytest.raises(BadInput, match="4 shares"):
        lower_bound(Kind.GATHER, ring, 8, shares=(1, 2))
    with pytest.raises(BadInput, match="at least one port"):
        lower_bound(Kind.GATHER, ring, 8, ports=0)


@pytest.mark.parametrize("kind", [Kind.ALL_GATHER, Kind.ALL_TO_ALL, Kind.ALL_REDUCE, Kind.BROADCAST])
def test_ranks_that_cannot_reach_each_other_are_named(kind: Kind) -> None:
    pieces = Graph("pieces", 4, tuple(Edge(a, b, Link(1.0)) for a, b in ((0, 1), (1, 0), (2, 3), (3, 2))))
    with pytest.raises(BadInput, match="rank 0: expected a way to rank 2-3"):
        lower_bound(kind, pieces, 40)
