"""Routings of demands: each is followed link by link, each bound is computed anew, optima against another linear program."""

from __future__ import annotations

import heapq
import importlib
import random
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from halley.answer import Status
from halley.errors import BadInput, InternalError
from halley.ir.hardware import Axis, Link, Topology
from halley.network.bounds.concurrent import Progress
from halley.network.bounds.demands import all_to_all
from halley.network.bounds.flow import Flow, concurrent_flow
from halley.network.bounds.symmetry import find_symmetry
from halley.network.graph.graph import Edge, Graph, Switch
from halley.network.graph.topologies import build

ONE = Link(1.0)
RING = build(Axis("ring", 6, Topology.RING, ONE))


def drawn(seed: int, ranks: int = 0) -> tuple[Graph, NDArray[np.float64]]:
    """A strongly connected network and demands, many of them zero."""
    draw = random.Random(seed)
    ranks, switches = ranks or draw.randint(3, 6), draw.randint(0, 2)
    vertices = list(range(ranks + switches))
    draw.shuffle(vertices)
    ends = set(zip(vertices, [*vertices[1:], vertices[0]], strict=True))
    ends |= {tuple(draw.sample(vertices, 2)) for _ in range(2 * len(vertices))}
    edges = tuple(Edge(a, b, Link(float(draw.randint(1, 5)))) for a, b in sorted(ends))
    demands = np.array([[draw.choice((0, 1, 4)) * (a != b) for b in range(ranks)] for a in range(ranks)], dtype=float)
    demands[0, 1] = 2.0
    return Graph("drawn", ranks, edges, tuple(Switch(f"s{index}") for index in range(switches))), demands


def follow(flow: Flow) -> None:
    """What arrives, what leaves, what the busiest link takes, what the lengths prove: in plain loops."""
    graph = flow.graph
    carried = [0.0] * len(graph.edges)
    for source in range(graph.ranks):
        got = [0.0] * graph.vertices
        for index, edge in enumerate(graph.edges):
            amount = float(flow.flows[source, index])
            assert amount >= 0
            got[edge.target] += amount
            got[edge.source] -= amount
            carried[index] += amount
        sent = float(flow.demands[source].sum())
        for vertex in range(graph.vertices):
            wanted = -sent if vertex == source else float(flow.demands[source, vertex]) if vertex < graph.ranks else 0.0
            assert got[vertex] == pytest.approx(wanted, abs=1e-7 * max(sent, 1))
    assert flow.time == pytest.approx(max(b / e.link.bandwidth for b, e in zip(carried, graph.edges, strict=True)))
    room = sum(float(length) * edge.link.bandwidth for length, edge in zip(flow.lengths, graph.edges, strict=True))
    ways = sum(float(flow.demands[s] @ distances(graph, flow.lengths, s)[: graph.ranks]) for s in range(graph.ranks))
    assert flow.bound <= ways / room * (1 + 1e-9)
    assert flow.bound <= flow.time


def distances(graph: Graph, lengths: NDArray[np.float64], source: int) -> NDArray[np.float64]:
    """Dijkstra's."""
    found = np.full(graph.vertices, np.inf)
    open_ = [(0.0, source)]
    while open_:
        distance, vertex = heapq.heappop(open_)
        if distance < found[vertex]:
            found[vertex] = distance
            for index in graph.outgoing[vertex]:
                heapq.heappush(open_, (distance + float(lengths[index]), graph.edges[index].target))
    return found


def pairwise_optimum(graph: Graph, demands: NDArray[np.float64]) -> float:
    """The least time by a linear program with a commodity for each pair, without symmetry or scaling."""
    optimize = pytest.importorskip("scipy.optimize")
    pairs = np.argwhere(demands > 0)
    links, many = len(graph.edges), len(pairs)
    balance = np.zeros((graph.vertices, links))
    for index, edge in enumerate(graph.edges):
        balance[edge.target, index], balance[edge.source, index] = 1, -1
    conserved = np.hstack([np.kron(np.eye(many), balance), np.zeros((many * graph.vertices, 1))])
    wanted = np.zeros((many, graph.vertices))
    for row, (source, target) in enumerate(pairs):
        wanted[row, target], wanted[row, source] = demands[source, target], -demands[source, target]
    capacity = np.hstack([np.tile(np.eye(links), many), -graph.bandwidths[:, None]])
    cost = np.append(np.zeros(many * links), 1.0)
    return float(optimize.linprog(cost, capacity, np.zeros(links), conserved, wanted.ravel()).fun)


@pytest.mark.parametrize("seed", range(12))
def test_exact_and_approximate_routings_meet_another_program(seed: int) -> None:
    graph, demands = drawn(seed)
    best = pairwise_optimum(graph, demands)
    exact = concurrent_flow(graph, demands, method="exact")
    near = concurrent_flow(graph, demands, method="approximate", tolerance=0.02)
    for flow in (exact, near):
        flow.check()
        follow(flow)
    assert exact.time == pytest.approx(best, rel=1e-7)
    assert exact.status is Status.OPTIMAL
    assert near.bound * (1 - 1e-9) <= best <= near.time * (1 + 1e-9)
    assert near.gap <= 0.02


@pytest.mark.parametrize(
    ("axis", "best"),
    [
        (Axis("torus", 256, Topology.TORUS, ONE, shape=(16, 16)), 512),
        (Axis("tree", 256, Topology.FAT_TREE, ONE, shape=(16, 8)), 480),
        (Axis("dragonfly", 342, Topology.DRAGONFLY, ONE, shape=(6, 3, 3)), 341),
        (Axis("few routers", 272, Topology.DRAGONFLY, ONE, shape=(4, 4, 4)), None),  # no closed value
    ],
    ids=lambda value: value.name if isinstance(value, Axis) else "",
)
def test_large_networks_are_within_three_percent(axis: Axis, best: float | None) -> None:
    graph = build(axis)
    flow = concurrent_flow(graph, all_to_all(graph, graph.ranks), method="approximate", time_limit=30)
    flow.check()
    assert flow.gap <= 0.03
    exact = best or concurrent_flow(graph, flow.demands, method="exact").time
    assert flow.bound * (1 - 1e-7) <= exact <= flow.time * (1 + 1e-7)


def test_networks_without_symmetry_are_certified_too() -> None:
    graph, _ = drawn(3, ranks=24)
    flow = concurrent_flow(graph, all_to_all(graph, 24), method="approximate", tolerance=0.03, time_limit=20)
    follow(flow)
    assert flow.gap <= 0.03


@pytest.mark.parametrize(
    ("axis", "orbits"),
    [
        (Axis("torus", 16, Topology.TORUS, ONE, shape=(4, 4)), 1),
        (Axis("mesh", 16, Topology.MESH, ONE, shape=(4, 4)), 3),  # corners, borders, middle
        (Axis("line", 5, Topology.LINE, ONE), 3),
        (Axis("tree", 12, Topology.FAT_TREE, ONE, shape=(4, 2)), 1),
        (Axis("cube", 16, Topology.HYPERCUBE, ONE), 1),
    ],
    ids=lambda value: value.name if isinstance(value, Axis) else "",
)
def test_symmetries_are_permutations_that_change_nothing(axis: Axis, orbits: int) -> None:
    graph = build(axis)
    symmetry = find_symmetry(graph, all_to_all(graph, graph.ranks))
    links = {(edge.source, edge.target): edge.link.bandwidth for edge in graph.edges}
    for permutation in (*symmetry.generators, *symmetry.carriers):
        assert sorted(permutation) == list(range(graph.vertices))
        assert {(permutation[a], permutation[b]): width for (a, b), width in links.items()} == links
    for rank, carrier in enumerate(symmetry.carriers):
        assert carrier[symmetry.representatives[symmetry.orbits[rank]]] == rank
    assert len(symmetry.representatives) == orbits


def test_a_demand_or_a_slow_link_breaks_symmetry() -> None:
    demands = all_to_all(RING, 6)
    slow = replace(RING, edges=(replace(RING.edges[0], link=Link(0.5)), *RING.edges[1:]))
    assert len(find_symmetry(RING, demands).representatives) == 1
    assert len(find_symmetry(slow, demands).representatives) == 6
    demands[0, 3] = 7.0
    assert len(find_symmetry(RING, demands).representatives) > 1


@pytest.mark.parametrize("what", ["flows", "time", "bound"])
def test_a_wrong_answer_is_found(what: str) -> None:
    flow = concurrent_flow(RING, all_to_all(RING, 6), method="approximate")
    wrong = getattr(flow, what) * 0.9 if what != "bound" else flow.bound * 1.1
    with pytest.raises(InternalError, match="expected"):
        replace(flow, **{what: wrong}).check()


def test_an_interrupt_returns_the_best_so_far() -> None:
    graph, demands = drawn(5)
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 3:
            raise KeyboardInterrupt

    flow = concurrent_flow(graph, demands, method="approximate", tolerance=1e-9, progress=stop)
    follow(flow)
    assert flow.status is Status.INTERRUPTED
    assert flow.time <= seen[0].time * (1 + 1e-12)
    assert flow.bound >= seen[0].bound * (1 - 1e-9)


def test_the_time_limit_ends_a_search() -> None:
    graph, demands = drawn(5)
    flow = concurrent_flow(graph, demands, method="approximate", tolerance=1e-12, time_limit=0.05)
    follow(flow)
    assert flow.status is Status.LIMIT


def test_without_scipy_the_exact_method_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    demands = all_to_all(RING, 6)
    with pytest.raises(BadInput, match=r"pip install 'halley\[solve\]'"):
        concurrent_flow(RING, demands, method="exact")
    assert concurrent_flow(RING, demands).gap <= 0.03


def test_bad_demands_are_refused() -> None:
    demands = all_to_all(RING, 6)
    for bad, words in (
        (-demands, "not below zero"),
        (demands + np.eye(6), "from a rank to itself"),
        (demands * 0, "at least one amount"),
        (demands[:3], "6 x 6"),
        (np.where(demands > 0, np.inf, 0.0), "finite"),
    ):
        with pytest.raises(BadInput, match=words):
            concurrent_flow(RING, bad)
    with pytest.raises(BadInput, match="did you mean 'exact'"):
        concurrent_flow(RING, demands, method="exakt", tolerance=0)
    with pytest.raises(BadInput, match="rank 0: expected a way to rank 2"):
        concurrent_flow(Graph("pieces", 3, (Edge(0, 1, ONE), Edge(1, 0, ONE), Edge(2, 0, ONE))), np.ones((3, 3)) - np.eye(3))
