"""Laws of routes: they lead from source to target, a table says the same as its paths, a group travels as its network does."""

from __future__ import annotations

import itertools
import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halley.errors import BadInput
from halley.ir.hardware import NETWORK_TOPOLOGIES, Axis, Link, Topology
from halley.network.graph import groups
from halley.network.graph.graph import Edge, Graph
from halley.network.graph.measures import bisection, diameter
from halley.network.graph.products import product
from halley.network.graph.routes import EveryShortest, paths, routing_matrix
from halley.network.graph.topologies import build, edge_count

T = Topology
links = st.builds(Link, st.sampled_from([1.0, 4.0, 25e9]), st.sampled_from([0.0, 1e-6, 3e-6]), st.sampled_from([0.0, 1e-12]))
small = st.integers(1, 4)


@st.composite
def axes(draw: st.DrawFn, name: str = "x") -> Axis:
    topology = draw(st.sampled_from(NETWORK_TOPOLOGIES))
    link, more = draw(links), {"multipath": draw(st.booleans()) and topology is not T.DRAGONFLY}
    match topology:
        case T.MESH | T.TORUS:
            shape = tuple(draw(st.lists(small, min_size=1, max_size=3)))
            size = math.prod(shape)
        case T.HYPERCUBE:
            size, shape = 2 ** draw(small), ()
        case T.DRAGONFLY:
            shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)))
            size = shape[0] * shape[1] * (shape[0] * shape[2] + 1)
        case T.FAT_TREE if draw(st.booleans()):
            shape = (draw(small), draw(small))
            size = shape[0] * draw(small)
        case T.FAT_TREE:
            shape = (draw(st.integers(1, 3)), draw(st.integers(1, 3)), spines := draw(st.integers(1, 3)), spines * draw(small))
            size = shape[0] * shape[1] * draw(st.integers(1, 3))
        case T.DGX_1:
            size, shape = 8, ()
        case _:
            size, shape = draw(st.integers(1, 9)), ()
            more["one_way"] = topology is T.RING and draw(st.booleans())
    higher = {place: draw(links) for place in ("upper", "top") if topology in (T.FAT_TREE, T.DRAGONFLY)}
    return Axis(name, size, topology, link, shape, **higher, **more)


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    chosen = tuple(draw(axes(name)) for name in draw(st.sampled_from(["x", "xy"])))
    return product(chosen) if math.prod(axis.size for axis in chosen) <= 128 else build(chosen[0])


def distances(graph: Graph, source: int) -> dict[int, int]:
    """Hops to every vertex, breadth first."""
    found, queue = {source: 0}, deque([source])
    while queue:
        vertex = queue.popleft()
        for edge in graph.edges:
            if edge.source == vertex and edge.target not in found:
                found[edge.target] = found[vertex] + 1
                queue.append(edge.target)
    return found


def check_path(graph: Graph, way: tuple[int, ...], source: int, target: int) -> None:
    here, seen = source, {source}
    for index in way:
        assert graph.edges[index].source == here
        here = graph.edges[index].target
        assert here not in seen, "a path that meets itself"
        seen.add(here)
    assert here == target


@settings(max_examples=150, deadline=None)
@given(networks(), st.data())
def test_paths_lead_from_source_to_target(graph: Graph, data: st.DataObject) -> None:
    ranks = st.integers(0, graph.ranks - 1)
    source, target = data.draw(ranks), data.draw(ranks)
    ways = paths(graph, source, target)
    assert ways
    for way in ways:
        check_path(graph, way, source, target)
        assert len(way) >= distances(graph, source)[target]
    if isinstance(graph.router, EveryShortest):
        assert len(set(ways)) == len(ways)
        assert {len(way) for way in ways} == {distances(graph, source)[target]}


@settings(max_examples=150, deadline=None)
@given(networks(), st.data())
def test_a_table_says_what_its_paths_say(graph: Graph, data: st.DataObject) -> None:
    ranks = st.integers(0, graph.ranks - 1)
    pairs = data.draw(st.lists(st.tuples(ranks, ranks), max_size=12))
    sizes = data.draw(st.lists(st.integers(0, 1000), min_size=len(pairs), max_size=len(pairs)))
    matrix = routing_matrix(graph, pairs)
    loads, hops, latency = np.zeros(len(graph.edges)), [], []
    for (source, target), size in zip(pairs, sizes, strict=True):
        ways = paths(graph, source, target)
        for way in ways:
            for edge in way:
                loads[edge] += size / len(ways)
        hops.append(max(map(len, ways)))
        latency.append(max(sum(graph.edges[edge].link.latency for edge in way) for way in ways))
    np.testing.assert_allclose(matrix.loads(sizes), loads, rtol=1e-12)
    assert matrix.hops.tolist() == hops
    np.testing.assert_allclose(matrix.latency, latency, rtol=1e-12)


@settings(max_examples=80, deadline=None)
@given(axes())
def test_all_routes_but_those_of_dragonflies_are_shortest(axis: Axis) -> None:
    graph = build(axis)
    for source in range(graph.ranks):
        far = distances(graph, source)
        for target in range(graph.ranks):
            lengths = {len(way) for way in paths(graph, source, target)} if source != target else {0}
            if axis.topology is T.DRAGONFLY:
                assert max(lengths) <= 5
            else:
                assert lengths == {far[target]}


@settings(max_examples=60, deadline=None)
@given(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)))
def test_a_dragonfly_takes_one_global_link_at_most(shape: tuple[int, int, int]) -> None:
    a, p, h = shape
    graph = build(Axis("x", a * p * (a * h + 1), T.DRAGONFLY, Link(1.0), shape, upper=Link(2.0), top=Link(3.0)))
    group = [rank // (a * p) for rank in range(graph.ranks)]
    for source in range(graph.ranks):
        for target in range(graph.ranks):
            kinds = [graph.edges[edge].link.bandwidth for edge in paths(graph, source, target)[0]]
            assert kinds.count(3.0) == (group[source] != group[target])
            assert kinds.count(2.0) <= 1 + (group[source] != group[target])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(2, 4))
def test_a_fat_tree_deals_the_targets_of_a_leaf_evenly(leaf: int, share: int, leaves: int) -> None:
    """Where the spines are a multiple of each leaf's ranks or the other way round, uplinks carry alike in an all-to-all."""
    spines = leaf * share
    for below, above in ((leaf, spines), (spines, leaf)):
        graph = build(Axis("x", below * leaves, T.FAT_TREE, Link(1.0), (below, above)))
        pairs = [(i, j) for i in range(graph.ranks) for j in range(graph.ranks) if i != j]
        loads = routing_matrix(graph, pairs).loads(1.0)
        uplinks = [load for load, edge in zip(loads, graph.edges, strict=True) if min(edge.source, edge.target) >= graph.ranks]
        assert max(uplinks) <= below * math.ceil(below / above) * (leaves - 1)


@settings(max_examples=60, deadline=None)
@given(axes("x"), axes("y"), st.data())
def test_a_product_puts_the_last_coordinate_right_first(x: Axis, y: Axis, data: st.DataObject) -> None:
    graph = product((x, y))
    ranks = st.integers(0, graph.ranks - 1)
    source, target = data.draw(ranks), data.draw(ranks)
    corner = source // y.size * y.size + target % y.size
    for way in paths(graph, source, target):
        dimensions = [graph.edges[edge].dimension for edge in way]
        assert dimensions == sorted(dimensions, reverse=True)
        turn = dimensions.count(1)
        check_path(graph, way[:turn], source, corner)
        check_path(graph, way[turn:], corner, target)
        inside = [graph.edges[edge].link for edge in way[:turn]]
        ways = paths(build(y), source % y.size, target % y.size)
        assert inside in [[build(y).edges[edge].link for edge in other] for other in ways]


def cost(graph: Graph, source: int, target: int) -> tuple[float, float, float]:
    """Of one byte: latency [s], energy [J], narrowest link [B/s]; the mean over the paths."""
    ways = [[graph.edges[edge].link for edge in way] for way in paths(graph, source, target)]
    latency = max(sum(link.latency for link in way) for way in ways)
    energy = sum(link.energy for way in ways for link in way) / len(ways)
    return latency, energy, min((link.bandwidth for way in ways for link in way), default=0.0)


@settings(max_examples=200, deadline=None)
@given(st.tuples(axes("x"), axes("y")), st.data())
def test_a_group_travels_as_in_its_network(pair: tuple[Axis, Axis], data: st.DataObject) -> None:
    """Exactly where the group has no topology of its own; along a line instead of the short way round a ring otherwise."""
    network = product(pair)
    members = data.draw(st.lists(st.integers(0, network.ranks - 1), min_size=1, max_size=8, unique=True))
    found = groups.group(pair, members)
    assert found.graph.ranks == len(members)
    opened = found.axes is not None and any(axis.topology is T.LINE for axis in found.axes)
    for source, first in enumerate(members):
        for target, second in enumerate(members):
            if not opened and source != target:
                assert cost(found.graph, source, target) == pytest.approx(cost(network, first, second), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(networks(), st.data())
def test_an_induced_graph_holds_what_its_routes_take_and_no_more(graph: Graph, data: st.DataObject) -> None:
    members = data.draw(st.lists(st.integers(0, graph.ranks - 1), min_size=1, max_size=6, unique=True))
    own = groups.induced(graph, members)
    pairs = [(i, j) for i in range(len(members)) for j in range(len(members)) if i != j]
    inside = routing_matrix(own, pairs)
    outside = routing_matrix(graph, [(members[i], members[j]) for i, j in pairs])
    assert sorted(inside.loads(1.0)) == pytest.approx(sorted(load for load in outside.loads(1.0) if load))
    assert (inside.loads(1.0) > 0).all()
    for i, j in pairs:
        for way in paths(own, i, j):
            check_path(own, way, i, j)


@settings(max_examples=60, deadline=None)
@given(st.one_of(axes().map(lambda axis: (axis,)), st.tuples(axes("x"), axes("y"))))
def test_bisections_of_small_networks_are_the_least_cuts(chosen: tuple[Axis, ...]) -> None:
    """Against every half of the ranks with every side for each switch."""
    sizes = math.prod(axis.size for axis in chosen)
    graph = product(chosen) if 2 <= sizes <= 8 else build(Axis("x", 6, T.SWITCH, Link(1.0)))
    if len(graph.switches) > 8:
        return
    tails, heads = np.array([(edge.source, edge.target) for edge in graph.edges]).T
    cuts = []
    for chosen_half in itertools.combinations(range(graph.ranks), graph.ranks // 2):
        sides = np.zeros((2 ** len(graph.switches), graph.vertices), dtype=bool)
        sides[:, list(chosen_half)] = True
        sides[:, graph.ranks :] = list(itertools.product([False, True], repeat=len(graph.switches)))
        for first, second in ((tails, heads), (heads, tails)):
            cuts.append(((sides[:, first] & ~sides[:, second]) @ graph.bandwidths).min())
    assert bisection(graph) == pytest.approx(min(cuts), rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(axes())
def test_links_are_counted_before_they_are_built(axis: Axis) -> None:
    assert edge_count(axis) == len(build(axis).edges)


@settings(max_examples=40, deadline=None)
@given(st.tuples(axes("x"), axes("y")))
def test_diameters_of_products_are_the_longest_routes(pair: tuple[Axis, Axis]) -> None:
    if pair[0].size * pair[1].size > 256:
        return
    graph = product(pair)
    matrix = routing_matrix(graph, [(i, j) for i in range(graph.ranks) for j in range(graph.ranks)])
    hops, latency = diameter(graph)
    assert hops == matrix.hops.max()
    assert latency == pytest.approx(matrix.latency.max(), rel=1e-12)


def topologies(group: groups.Group) -> list[tuple[str, int]] | None:
    return None if group.axes is None else [(axis.topology.value, axis.size) for axis in group.axes]


@pytest.mark.parametrize(
    ("topology", "size", "shape", "cut", "found"),
    [
        (T.RING, 8, (), (0, 8, 1), [("ring", 8)]),
        (T.RING, 8, (), (1, 5, 1), [("line", 4)]),
        (T.RING, 8, (), (1, 8, 2), [("ring", 4)]),
        (T.RING, 8, (), (0, 7, 3), [("line", 3)]),
        (T.RING, 8, (), (0, 8, 4), [("ring", 2)]),
        (T.RING, 8, (), (0, 7, 6), None),  # two ranks that are nearer the other way round
        (T.LINE, 8, (), (0, 8, 3), [("line", 3)]),
        (T.FULL, 8, (), (1, 8, 3), [("full", 3)]),
        (T.SWITCH, 8, (), (1, 4, 1), [("switch", 3)]),
        (T.MESH, 16, (4, 4), (4, 12, 1), [("line", 2), ("line", 4)]),
        (T.TORUS, 16, (4, 4), (0, 16, 4), [("ring", 4)]),
        (T.TORUS, 16, (4, 4), (0, 8, 1), [("line", 2), ("ring", 4)]),
        (T.TORUS, 16, (4, 4), (0, 7, 1), None),
        (T.HYPERCUBE, 16, (), (0, 16, 2), [("hypercube", 8)]),
        (T.HYPERCUBE, 16, (), (4, 8, 1), [("hypercube", 4)]),
        (T.HYPERCUBE, 16, (), (2, 6, 1), None),
        (T.FAT_TREE, 16, (4, 2), (4, 7, 1), [("switch", 3)]),
        (T.FAT_TREE, 16, (4, 2), (2, 6, 1), None),
        (T.DGX_1, 8, (), (0, 4, 1), None),
        (T.LINE, 8, (), (3, 4, 1), [("line", 1)]),
    ],
)
def test_slices(
    topology: Topology, size: int, shape: tuple[int, ...], cut: tuple[int, int, int], found: list[tuple[str, int]] | None
) -> None:
    axis = Axis("x", size, topology, Link(1.0, 1.0), shape)
    group = groups.slice(axis, *cut)
    assert topologies(group) == found
    assert group.ranks == tuple(range(*cut))


def test_a_link_of_several_hops_costs_as_much_as_they_do() -> None:
    ring = Axis("x", 8, T.RING, Link(5.0, 1e-6, 2e-12, 7.0))
    every_second = groups.slice(ring, 0, 8, 2).axes
    assert every_second is not None
    assert every_second[0].link == Link(5.0, 2e-6, 4e-12, 14.0)


def test_a_group_in_another_order_keeps_its_order() -> None:
    ring = Axis("x", 4, T.RING, Link(1.0, 1.0))
    group = groups.group((ring,), [2, 0, 1])
    assert group.axes is None
    assert [len(paths(group.graph, 0, other)[0]) for other in (1, 2)] == [2, 1]


def test_groups_that_are_none() -> None:
    ring = Axis("x", 4, T.RING, Link(1.0))
    with pytest.raises(BadInput) as caught:
        groups.group((ring,), [0, 5, 1, 1])
    assert [str(fault) for fault in caught.value.faults] == [
        "group in network x: expected a sub-group of the ranks 0 to 3; got rank 5",
        "group in network x: expected each rank once; got rank 1 again",
    ]
    with pytest.raises(BadInput, match="expected at least one rank; got none"):
        groups.group((ring,), [])
    with pytest.raises(BadInput, match="slice of axis x: expected 0 <= start < stop <= 4"):
        groups.slice(ring, 2, 2)


def test_a_way_through_other_ranks_crosses_their_links() -> None:
    line = Graph("line", 3, tuple(Edge(i, j, Link(1.0)) for i, j in ((0, 1), (1, 2), (2, 1), (1, 0))))
    ends = groups.induced(line, [0, 2])
    assert [switch.name for switch in ends.switches] == ["rank 1"]
    assert [len(way) for way in paths(ends, 0, 1)] == [2]
