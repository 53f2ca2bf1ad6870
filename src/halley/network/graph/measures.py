"""Figures of merit of a network: diameter, bisection, injection bandwidth, price, power."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from halley.network.graph.cartesian import DimensionOrder
from halley.network.graph.graph import Graph
from halley.network.graph.routes import routing_matrix

MAX_EXHAUSTIVE_RANKS = 12
"""Most ranks whose halves are all tried."""
BATCH = 2**16
"""Routes that are looked at together."""


def diameter(graph: Graph) -> tuple[int, float]:
    """Links on the longest route between two ranks, and the greatest latency of a route [s].

    Raises BadInput: two ranks without a way between them.
    """
    if isinstance(graph.router, DimensionOrder):  # coordinates are free of each other: their longest ways add up
        parts = [diameter(block) for block in graph.router.blocks]
        return sum(hops for hops, _ in parts), sum(latency for _, latency in parts)
    ranks, hops, latency = np.arange(graph.ranks), 0, 0.0
    batch = max(BATCH // graph.ranks, 1)
    for first in range(0, graph.ranks, batch):
        sources = ranks[first : first + batch]
        matrix = routing_matrix(graph, np.stack([np.repeat(sources, graph.ranks), np.tile(ranks, len(sources))], axis=1))
        hops, latency = max(hops, int(matrix.hops.max())), max(latency, float(matrix.latency.max()))
    return hops, latency


def injection(graph: Graph) -> float:
    """Bandwidth of all links that leave a rank [B/s]; the least over all ranks."""
    return min(graph.injection(rank) for rank in range(graph.ranks))


def bisection(graph: Graph) -> float:
    """Bandwidth from one half of the ranks to the other, the least that is found [B/s]; of an odd number, one half has one less.

    All halves are tried up to `MAX_EXHAUSTIVE_RANKS` ranks. Beyond, those on either side of a plane through the coordinates of a
    product, mesh, torus or hypercube, and the two halves in rank order: that is the bisection where extents are even and the
    links of an axis alike, and at least the bisection elsewhere. Which side a switch is on is found by local search, so that in
    networks of many switches it is an upper bound too.

    >>> from halley.ir.hardware import Axis, Link, Topology
    >>> from halley.network.graph.topologies import build
    >>> bisection(build(Axis("x", 64, Topology.TORUS, Link(1.0), (8, 8))))
    16.0
    """
    if graph.ranks < 2:
        return 0.0
    ends = np.array([(edge.source, edge.target) for edge in graph.edges], dtype=np.int64).reshape(-1, 2)
    return min(_crossing(graph, ends, half) for half in _halves(graph))


def _halves(graph: Graph) -> Iterator[NDArray[np.bool_]]:
    """Sets of half of the ranks, as marks [ranks]."""
    half = graph.ranks // 2
    if graph.ranks <= MAX_EXHAUSTIVE_RANKS:
        for chosen in combinations(range(graph.ranks), half):
            yield np.isin(np.arange(graph.ranks), chosen)
        return
    ranks = np.arange(graph.ranks)
    orders = [ranks]
    if isinstance(graph.router, DimensionOrder):
        orders += [np.lexsort((ranks, ranks // stride % extent)) for stride, extent in grid(graph.router)]
    for order in orders:
        yield np.isin(ranks, order[:half])


def grid(router: DimensionOrder) -> Iterator[tuple[int, int]]:
    """(stride, extent) of every coordinate of a product's ranks, those of meshes and tori among its blocks included."""
    for block, stride in zip(router.blocks, router.strides, strict=True):
        if isinstance(block.router, DimensionOrder):
            yield from ((stride * inner, extent) for inner, extent in grid(block.router))
        else:
            yield stride, block.ranks


def _crossing(graph: Graph, ends: NDArray[np.int64], half: NDArray[np.bool_]) -> float:
    """Bandwidth from the half to the rest or back, whichever is less. Switches start undecided, all inside, or all outside; each
    is moved to the side that it has more bandwidth to as long as that makes the cut smaller."""
    tails, heads = ends[:, 0], ends[:, 1]
    found = []
    for start in (0.0, 1.0, -1.0) if graph.switches else (0.0,):
        side = np.concatenate([np.where(half, 1.0, -1.0), np.full(len(graph.switches), start)])
        before = None
        while before is None or (side != before).any():
            before = side.copy()
            for vertex in range(graph.ranks, graph.vertices):
                here = (tails == vertex) | (heads == vertex)
                other = np.where(tails[here] == vertex, heads[here], tails[here])
                side[vertex] = np.sign(graph.bandwidths[here] @ side[other]) or side[vertex]
        inside = side > 0
        out, back = inside[tails] & ~inside[heads], ~inside[tails] & inside[heads]
        found += [graph.bandwidths[out].sum(), graph.bandwidths[back].sum()]
    return float(min(found))


def price(graph: Graph) -> float | None:
    """Price of all links, those of both directions counted once; None where a link has none [the file's currency]."""
    if any(edge.link.price <= 0 for edge in graph.edges):
        return None
    return sum(edge.link.price / (2 if (edge.target, edge.source) in graph.between else 1) for edge in graph.edges)


def power(graph: Graph) -> float:
    """Power of all links when every direction of each is busy [W]: the sum of bandwidth x energy per byte."""
    return float(graph.bandwidths @ graph.energies)
