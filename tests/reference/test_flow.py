"""Bounds and flows against closed values of known topologies, and cuts against a linear program of their own.

Closed values: T of an all-gather, an all-to-all, an all-reduce of S bytes in units of S / b, from the theory of each topology
(bisections, links of a rank); DGX-1 from Cai et al., Synthesizing Optimal Collective Algorithms, PPoPP 2021, whose all-gather
of 7 chunks takes 6 links.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from halley.answer import Status
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind as Kind
from halley.network.bounds.collectives import lower_bound
from halley.network.bounds.cuts import tightest_cut
from halley.network.bounds.demands import all_to_all
from halley.network.bounds.flow import concurrent_flow
from halley.network.graph.graph import Edge, Graph, Switch
from halley.network.graph.topologies import build

T = Topology
ONE = Link(1.0)


@dataclass(frozen=True)
class Known:
    """Times of S = 1 byte over links of 1 B/s."""

    axis: Axis
    gather: Fraction
    exchange: Fraction


def _known(topology: T, size: int, gather: tuple[int, int], exchange: tuple[int, int], shape: tuple[int, ...] = ()) -> Known:
    return Known(Axis(topology.value, size, topology, ONE, shape=shape), Fraction(*gather), Fraction(*exchange))


KNOWN = (
    # topology, n, all-gather, all-to-all
    _known(T.RING, 8, (7, 16), (1, 1)),  # (n-1)/n / 2, n/8
    _known(T.RING, 7, (6, 14), (6, 7)),  # (n^2-1)/8 / n
    _known(T.LINE, 6, (5, 6), (9, 6)),  # (n-1)/n, floor(n^2/4)/n
    _known(T.FULL, 5, (1, 5), (1, 5)),
    _known(T.SWITCH, 6, (5, 6), (5, 6)),
    _known(T.MESH, 16, (15, 32), (1, 1), (4, 4)),  # corner; k/4
    _known(T.MESH, 36, (35, 72), (6, 4), (6, 6)),
    _known(T.TORUS, 16, (15, 64), (1, 2), (4, 4)),  # (n-1)/n / (2D), k/8
    _known(T.TORUS, 25, (24, 100), (3, 5), (5, 5)),  # (k^2-1)/(8k)
    _known(T.TORUS, 64, (63, 384), (1, 2), (4, 4, 4)),
    _known(T.HYPERCUBE, 16, (15, 64), (1, 2)),
    _known(T.DGX_1, 8, (7, 48), (8, 24)),  # 2.667 blocks of S/8
    _known(T.FAT_TREE, 16, (15, 16), (15, 16), (4, 4)),  # 1:1: a rank's own link holds it up
    _known(T.FAT_TREE, 16, (15, 16), (24, 16), (4, 2)),  # 2:1: o (n - p)/n
    _known(T.DRAGONFLY, 72, (71, 72), (71, 72), (4, 2, 2)),
)


def names() -> list[str]:
    return [f"{known.axis.topology}-{known.axis.size}" for known in KNOWN]


@pytest.mark.parametrize("known", KNOWN, ids=names())
@pytest.mark.parametrize("kind", [Kind.ALL_GATHER, Kind.REDUCE_SCATTER])
def test_all_gather_and_reduce_scatter_have_their_closed_optimum(known: Known, kind: Kind) -> None:
    graph = build(known.axis)
    cut = next(part for part in lower_bound(kind, graph, graph.ranks).parts if part.name == "cut")
    assert cut.value == pytest.approx(float(known.gather * graph.ranks), rel=1e-15)


@pytest.mark.parametrize("known", KNOWN, ids=names())
def test_all_to_all_has_its_closed_optimum(known: Known) -> None:
    pytest.importorskip("scipy")
    graph = build(known.axis)
    flow = concurrent_flow(graph, all_to_all(graph, graph.ranks), method="exact")
    flow.check()
    assert flow.status is Status.OPTIMAL
    assert flow.time == pytest.approx(float(known.exchange * graph.ranks), rel=1e-7)
    assert lower_bound(Kind.ALL_TO_ALL, graph, graph.ranks).value <= flow.time * (1 + 1e-12)


@pytest.mark.parametrize(
    ("axis", "value"),
    [
        (Axis("ring", 8, T.RING, ONE), 2 * 7 / 16),
        (Axis("torus", 16, T.TORUS, ONE, shape=(4, 4)), 2 * 15 / 64),
        (Axis("dgx", 8, T.DGX_1, ONE), 2 * 7 / 48),
        (Axis("switch", 8, T.SWITCH, ONE), 2 * 7 / 8),
        (Axis("mesh", 16, T.MESH, ONE, shape=(4, 4)), 2 * 15 / 48),  # below twice an all-gather, 2 x 15/32, which corners hold up
    ],
    ids=lambda value: value.name if isinstance(value, Axis) else "",
)
def test_all_reduce_has_its_closed_bound(axis: Axis, value: float) -> None:
    assert lower_bound(Kind.ALL_REDUCE, build(axis), 960).value == pytest.approx(960 * value, rel=1e-12)


def _drawn(seed: int) -> tuple[Graph, dict[int, int]]:
    draw = random.Random(seed)
    ranks, switches = draw.randint(3, 9), draw.randint(0, 3)
    vertices = list(range(ranks + switches))
    draw.shuffle(vertices)
    ends = set(zip(vertices, [*vertices[1:], vertices[0]], strict=True))
    ends |= {tuple(draw.sample(vertices, 2)) for _ in range(3 * len(vertices))}
    edges = tuple(Edge(a, b, Link(float(draw.randint(1, 9)))) for a, b in sorted(ends))
    graph = Graph("drawn", ranks, edges, tuple(Switch(f"s{index}") for index in range(switches)))
    return graph, {rank: draw.randint(0, 5) for rank in range(1, ranks)} | {0: 3}


@pytest.mark.parametrize("seed", range(25))
def test_the_tightest_cut_equals_a_linear_program(seed: int) -> None:
    """Least t such that, for each target on its own, a flow of at most t c on each link brings it everything."""
    optimize = pytest.importorskip("scipy.optimize")
    graph, weights = _drawn(seed)
    links, total, longest = len(graph.edges), sum(weights.values()), 0.0
    for target in range(graph.ranks):
        balance = np.zeros((graph.vertices, links + 1))
        for index, edge in enumerate(graph.edges):
            balance[edge.target, index] += 1
            balance[edge.source, index] -= 1
        wanted = np.array([-weights.get(vertex, 0) for vertex in range(graph.vertices)], dtype=float)
        wanted[target] += total
        capacity = np.hstack([np.eye(links), -graph.bandwidths[:, None]])
        result = optimize.linprog([0] * links + [1], capacity, np.zeros(links), balance, wanted)
        longest = max(longest, result.fun)
    assert float(tightest_cut(graph, weights, range(graph.ranks)).time) == pytest.approx(longest, rel=1e-9)


@pytest.mark.parametrize(
    "axis",
    [
        Axis("torus", 256, T.TORUS, ONE, shape=(16, 16)),
        Axis("tree", 256, T.FAT_TREE, ONE, shape=(16, 8)),
        Axis("dragonfly", 272, T.DRAGONFLY, ONE, shape=(4, 4, 4)),
    ],
    ids=lambda axis: str(axis.name),
)
def test_large_networks_are_held_up_by_a_rank(axis: Axis) -> None:
    graph = build(axis)
    degree = 4 if axis.topology is T.TORUS else 1
    cut = tightest_cut(graph, dict.fromkeys(range(graph.ranks), 1), range(graph.ranks))
    assert cut.time == Fraction(graph.ranks - 1, degree)
