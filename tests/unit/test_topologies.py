"""The topologies as graphs: who is joined to whom by definition, distances, all-to-all loads and bisections by arithmetic."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from halley.errors import BadInput
from halley.ir.hardware import NO_LINK, Axis, Link, Topology
from halley.network.graph.graph import Graph
from halley.network.graph.products import product
from halley.network.graph.routes import PATH_LIMIT, paths, routing_matrix
from halley.network.graph.topologies import BUILDERS, build, edge_count

T = Topology
LINK = Link(1.0, 1e-6, 2e-12)


def axis(topology: Topology, size: int, *shape: int, **more: object) -> Axis:
    return Axis("x", size, topology, LINK, shape, **more)  # type: ignore[arg-type]


def joined(graph: Graph) -> set[tuple[int, int]]:
    return {(edge.source, edge.target) for edge in graph.edges}


def near(graph: Graph) -> list[list[int]]:
    """Hops between all vertices, by Floyd and Warshall."""
    n = graph.vertices
    hops = [[0 if i == j else n for j in range(n)] for i in range(n)]
    for edge in graph.edges:
        hops[edge.source][edge.target] = 1
    for k, i, j in itertools.product(range(n), repeat=3):
        hops[i][j] = min(hops[i][j], hops[i][k] + hops[k][j])
    return hops


def all_to_all(graph: Graph) -> float:
    """The longest time of a link that each rank sends one byte to each other rank over; paths counted one by one."""
    crossed: Counter[int] = Counter()
    for pair in itertools.permutations(range(graph.ranks), 2):
        ways = paths(graph, *pair)
        for way in ways:
            for edge in way:
                crossed[edge] += 1 / len(ways)
    return max(count / graph.edges[edge].link.bandwidth for edge, count in crossed.items())


def every_pair(graph: Graph) -> np.ndarray:
    return np.array(list(itertools.permutations(range(graph.ranks), 2)))


def test_every_topology_has_a_builder() -> None:
    assert set(BUILDERS) == set(Topology)


def test_an_axis_without_links_joins_nobody() -> None:
    assert joined(build(Axis("x", 4, T.NONE, NO_LINK))) == set()
    assert edge_count(Axis("x", 4, T.NONE, NO_LINK)) == 0


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_who_is_joined(n: int) -> None:
    ranks = range(n)
    line = {(i, j) for i in ranks for j in ranks if abs(i - j) == 1}
    assert joined(build(axis(T.LINE, n))) == line
    assert joined(build(axis(T.RING, n))) == {(i, j) for i in ranks for j in ranks if i != j and (i - j) % n in (1, n - 1)}
    assert joined(build(axis(T.RING, n, one_way=True))) == {(i, (i + 1) % n) for i in ranks if n > 1}
    assert joined(build(axis(T.FULL, n))) == set(itertools.permutations(ranks, 2))
    star = build(axis(T.SWITCH, n, multicast=True))
    assert joined(star) == {(i, n) for i in ranks} | {(n, i) for i in ranks}
    assert [(item.multicast, item.reduction) for item in star.switches] == [(True, False)]


@pytest.mark.parametrize("extents", [(3, 4), (2, 2), (1, 5), (2, 3, 4), (3,), (5, 5)])
def test_meshes_and_tori_join_the_ranks_that_differ_by_one_in_one_coordinate(extents: tuple[int, ...]) -> None:
    n = math.prod(extents)
    points = list(itertools.product(*map(range, extents)))
    mesh, torus = (build(axis(topology, n, *extents)) for topology in (T.MESH, T.TORUS))
    apart = {
        (i, j): [(abs(a - b), extent) for a, b, extent in zip(points[i], points[j], extents, strict=True) if a != b]
        for i in range(n)
        for j in range(n)
    }
    assert joined(mesh) == {pair for pair, steps in apart.items() if len(steps) == 1 and steps[0][0] == 1}
    assert joined(torus) == {pair for pair, steps in apart.items() if len(steps) == 1 and steps[0][0] in (1, steps[0][1] - 1)}
    assert {edge.dimension for edge in mesh.edges} == {0}


def test_a_hypercube_joins_the_ranks_that_differ_in_one_bit() -> None:
    cube = build(axis(T.HYPERCUBE, 16))
    assert joined(cube) == {(i, j) for i in range(16) for j in range(16) if (i ^ j).bit_count() == 1}
    assert build(axis(T.HYPERCUBE, 1)).edges == ()


def test_a_dgx_1_has_six_links_at_each_gpu_and_six_between_its_quads() -> None:
    """NVIDIA's hybrid cube mesh: each quad is fully joined, each GPU has one partner in the other quad."""
    graph = build(axis(T.DGX_1, 8))
    assert [graph.injection(rank) for rank in range(8)] == [6.0] * 8
    assert sum(edge.link.bandwidth for edge in graph.edges if edge.source < 4 <= edge.target) == 6
    partners = {(edge.source, edge.target) for edge in graph.edges if edge.source < 4 <= edge.target}
    assert partners == {(0, 4), (1, 5), (2, 6), (3, 7)}
    assert {pair for pair in joined(graph) if max(pair) < 4} == set(itertools.permutations(range(4), 2))
    assert max(map(max, near(graph))) == 2


@pytest.mark.parametrize("shape", [(4, 2, 2), (2, 1, 1), (3, 2, 1), (1, 2, 3)])
def test_a_dragonfly_joins_any_two_groups_once(shape: tuple[int, int, int]) -> None:
    a, p, h = shape
    groups = a * h + 1
    n = a * p * groups
    graph = build(axis(T.DRAGONFLY, n, a, p, h))
    between: Counter[tuple[int, int]] = Counter()
    outlets: Counter[int] = Counter()
    for edge in graph.edges:
        ends = [(vertex - n) // a for vertex in (edge.source, edge.target)]
        if min(edge.source, edge.target) >= n and ends[0] != ends[1]:
            between[ends[0], ends[1]] += 1
            outlets[edge.source] += 1
    assert between == dict.fromkeys(itertools.permutations(range(groups), 2), 1)
    assert set(outlets.values()) == {h}
    assert len(outlets) == len(graph.switches) == a * groups


def test_a_fat_tree_of_three_levels_is_that_of_al_fares() -> None:
    """k = 4: 16 ranks, 20 switches of 4 ports each, ranks in different pods joined by 4 shortest ways of 6 links."""
    graph = build(axis(T.FAT_TREE, 16, 2, 2, 2, 4, multipath=True))
    assert len(graph.switches) == 20
    assert {len(graph.outgoing[16 + switch]) for switch in range(20)} == {4}
    assert len(paths(graph, 0, 15)) == 4
    assert {len(way) for way in paths(graph, 0, 15)} == {6}


DIAMETERS = [
    (axis(T.RING, 9), 4),
    (axis(T.RING, 8, one_way=True), 7),
    (axis(T.LINE, 6), 5),
    (axis(T.FULL, 5), 1),
    (axis(T.SWITCH, 5), 2),
    (axis(T.MESH, 16, 4, 4), 6),
    (axis(T.TORUS, 64, 4, 4, 4), 6),
    (axis(T.HYPERCUBE, 32), 5),
    (axis(T.FAT_TREE, 16, 4, 2), 4),
    (axis(T.FAT_TREE, 16, 2, 2, 2, 4), 6),
    (axis(T.DRAGONFLY, 72, 4, 2, 2), 5),  # three hops between routers, and the links of the ranks
    (axis(T.DGX_1, 8), 2),
]


@pytest.mark.parametrize(("block", "diameter"), DIAMETERS, ids=lambda item: getattr(item, "topology", ""))
def test_diameters(block: Axis, diameter: int) -> None:
    graph = build(block)
    assert routing_matrix(graph, every_pair(graph)).hops.max() == diameter
    if graph.vertices <= 32:
        assert max(max(row[: graph.ranks]) for row in near(graph)[: graph.ranks]) == diameter


LOADS = [
    # one byte for each pair; a torus and a ring share the ties of half a turn where they are multipath
    (axis(T.RING, 8, multipath=True), 8 * 8 / 8),
    (axis(T.RING, 12, multipath=True), 12 * 12 / 8),
    (axis(T.RING, 9), 9 * 9 / 8 - 1 / 8),
    (axis(T.RING, 8), (8 * 8 / 8) * 1.25),
    (axis(T.RING, 6, one_way=True), 15),
    (axis(T.LINE, 7), 12),
    (axis(T.FULL, 7), 1),
    (axis(T.SWITCH, 7), 6),
    (axis(T.MESH, 64, 8, 8), 8**3 / 4),
    (axis(T.TORUS, 64, 8, 8, multipath=True), 64 * 8 / 8),
    (axis(T.TORUS, 64, 4, 4, 4, multipath=True), 64 * 4 / 8),
    (axis(T.TORUS, 25, 5, 5), 25 * 24 / 40),
    (axis(T.HYPERCUBE, 32), 16),
    (axis(T.FAT_TREE, 32, 8, 8), 31),
    (axis(T.FAT_TREE, 32, 8, 2), 4 * 24),
    (axis(T.DRAGONFLY, 72, 4, 2, 2), 71),
]


@pytest.mark.parametrize(("block", "load"), LOADS, ids=lambda item: getattr(item, "topology", ""))
def test_all_to_all_loads(block: Axis, load: float) -> None:
    """The table of networks: bytes on the busiest link where each rank sends a byte to each other."""
    graph = build(block)
    assert routing_matrix(graph, every_pair(graph)).loads(1.0).max() == pytest.approx(load, rel=1e-12)
    assert all_to_all(graph) == pytest.approx(load, rel=1e-12)


def test_every_tier_of_a_full_fat_tree_carries_alike() -> None:
    """k = 8, 128 ranks: each of 4 links up from a leaf carries 4 x 124 / 4 of an all-to-all, of 16 from a pod 16 x 112 / 16."""
    graph = build(Axis("x", 128, T.FAT_TREE, Link(1.0), (4, 4, 4, 16), upper=Link(2.0), top=Link(3.0)))
    loads = routing_matrix(graph, every_pair(graph)).loads(1.0)
    tiers = np.array([edge.link.bandwidth for edge in graph.edges])
    assert [set(loads[tiers == tier]) for tier in (1, 2, 3)] == [{127}, {124}, {112}]


def test_global_links_of_a_dragonfly_carry_what_two_groups_exchange() -> None:
    graph = build(Axis("x", 72, T.DRAGONFLY, Link(1.0), (4, 2, 2), upper=Link(2.0), top=Link(3.0)))
    loads = routing_matrix(graph, every_pair(graph)).loads(1.0)
    assert {load for load, edge in zip(loads, graph.edges, strict=True) if edge.link.bandwidth == 3} == {(4 * 2) ** 2}
    assert {load for load, edge in zip(loads, graph.edges, strict=True) if edge.link.bandwidth == 1} == {71}


@pytest.mark.parametrize(("side", "load"), [(8, 171.1), (16, 1439.2)])
def test_all_shortest_paths_of_a_mesh_load_its_centre_most(side: int, load: float) -> None:
    """XY routing needs k^3 / 4."""
    graph = build(axis(T.MESH, side * side, side, side, multipath=True))
    assert routing_matrix(graph, every_pair(graph)).loads(1.0).max() == pytest.approx(load, abs=0.05)


def test_a_product_of_lines_is_a_mesh_with_dimensions() -> None:
    mesh = build(axis(T.MESH, 12, 3, 4))
    grid = product((Axis("row", 3, T.LINE, LINK), Axis("column", 4, T.LINE, LINK)))
    assert joined(grid) == joined(mesh)
    assert {edge.dimension for edge in grid.edges if abs(edge.source - edge.target) == 1} == {1}
    assert {edge.dimension for edge in grid.edges if abs(edge.source - edge.target) == 4} == {0}


def test_a_pod_goes_to_the_rail_inside_its_node_first() -> None:
    """Rank = 8 x node + GPU: from GPU 1 of node 0 to GPU 5 of node 2 over GPU 5 of node 0 and the switch of rail 5."""
    pod = product((Axis("node", 4, T.SWITCH, Link(50e9)), Axis("gpu", 8, T.SWITCH, Link(450e9))))
    (way,) = paths(pod, 1, 21)
    assert [pod.edges[edge].target for edge in way][1::2] == [5, 21]
    rail, node = (pod.switches[pod.edges[way[place]].source - pod.ranks].name for place in (3, 1))
    assert (rail, node) == ("switch of node 5", "switch of gpu 0")
    assert [pod.edges[edge].dimension for edge in way] == [1, 1, 0, 0]


def test_equal_axes_share_a_graph() -> None:
    assert build(axis(T.RING, 5)) is build(axis(T.RING, 5))


WRONG = [
    (axis(T.RING, 0), "at least 1; got 0"),
    (Axis("x", 4, T.RING, Link(0.0)), "axis x, topology ring, link: expected a bandwidth above zero; got 0 B/s"),
    (axis(T.MESH, 12, 3, 3), "expected extents whose product is the size 12; got (3, 3), product 9"),
    (axis(T.MESH, 12), "expected the extents, such as (4, 4); got none"),
    (axis(T.TORUS, 12, 3, 0), "expected whole numbers, at least 1; got (3, 0)"),
    (axis(T.HYPERCUBE, 12), "expected a power of two of ranks; got 12"),
    (axis(T.DGX_1, 4), "expected 8 ranks; got 4"),
    (axis(T.RING, 12, 12), "shape: expected this only for mesh, torus, fat-tree, dragonfly; got one for ring; leave it out"),
    (axis(T.LINE, 12, one_way=True), "one_way: expected this only for ring; got one for line; leave it out"),
    (axis(T.RING, 12, reduction=True), "reduction: expected this only for switch, fat-tree, dragonfly; got one for ring"),
    (axis(T.FAT_TREE, 10, 4, 2), "expected a leaf size that divides the 10 ranks; got 4"),
    (axis(T.FAT_TREE, 16, 2, 2, 2, 3), "expected as many cores for each spine of a pod; got 3 cores for 2 spines"),
    (axis(T.FAT_TREE, 20, 2, 4, 2, 4), "expected pods of a size that divides the 20 ranks; got 2 x 4"),
    (axis(T.FAT_TREE, 16, 2), "(leaf size, leaves per pod, spines per pod, cores); got (2,)"),
    (axis(T.DRAGONFLY, 70, 4, 2, 2), "expected routers x ranks per router x groups = 70 ranks; got 4 x 2 x 9 = 72"),
    (axis(T.DRAGONFLY, 72, 4, 2), "expected (routers per group, ranks per router, global links per router); got (4, 2)"),
]


@pytest.mark.parametrize(("block", "message"), WRONG, ids=lambda item: getattr(item, "topology", ""))
def test_faults(block: Axis, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        build(block)
    assert message in str(caught.value)


def test_all_faults_of_a_product_come_at_once() -> None:
    with pytest.raises(BadInput) as caught:
        product((axis(T.RING, 0), axis(T.HYPERCUBE, 3)))
    assert len(caught.value.faults) == 3
    with pytest.raises(BadInput, match="at least one axis"):
        product(())


def test_too_many_paths_are_counted_not_listed() -> None:
    graph = build(axis(T.MESH, 256, 16, 16, multipath=True))
    with pytest.raises(BadInput, match=f"at most {PATH_LIMIT} shortest paths to list; got 155117520; use the routing matrix"):
        paths(graph, 0, 255)
    assert routing_matrix(graph, [(0, 255)]).hops.tolist() == [30]


def test_no_way_is_an_error_that_names_the_ends() -> None:
    graph = Graph("pieces", 3, ())
    for ask in (lambda: paths(graph, 0, 2), lambda: routing_matrix(graph, [(0, 2)])):
        with pytest.raises(BadInput, match="network pieces: expected a way from vertex 0 to vertex 2; got none; add links"):
            ask()
    with pytest.raises(BadInput, match="expected ranks from 0 to 2; got 3"):
        routing_matrix(graph, [(0, 3)])
    with pytest.raises(BadInput, match="expected a vertex from 0 to 2; got -1"):
        paths(graph, 0, -1)
