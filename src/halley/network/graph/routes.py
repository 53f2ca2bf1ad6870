"""Routes of messages through a graph: one path or several per pair of ranks, cached, and matrices of many pairs.

`paths` asks the graph's router and caches the answer. `routing_matrix` gives the share of each pair's bytes on every link.
Routers here suit any graph; `halley.network.graph.products` and `halley.network.graph.topologies` have those of their topologies.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halley.errors import BadInput, Fault
from halley.network.graph.graph import Graph, Path

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

PATH_LIMIT = 4096
"""Most paths between two vertices that are listed one by one."""


@dataclass(frozen=True, eq=False)
class RoutingMatrix:
    """The share of each pair's bytes on each link: a sparse [pairs, edges] matrix.

    Pair i crosses the links ``edges[starts[i] : starts[i + 1]]``, with ``shares`` at the same places. ``hops`` [pairs]: links on
    its longest path; ``latency`` [pairs]: the greatest sum of link latencies on one of its paths [s].
    """

    starts: Integers
    edges: Integers
    shares: Floats
    hops: Integers
    latency: Floats
    edge_count: int

    @cached_property
    def rows(self) -> Integers:
        """[entries] the pair that each entry belongs to."""
        return np.repeat(np.arange(len(self.hops)), np.diff(self.starts))

    def loads(self, sizes: ArrayLike) -> Floats:
        """[edges] bytes on every link where pair i sends ``sizes[i]`` bytes (one number: each pair as many).

        >>> from halley.ir.hardware import Axis, Link, Topology
        >>> from halley.network.graph.topologies import build
        >>> line = build(Axis("x", 3, Topology.LINE, Link(1.0)))
        >>> routing_matrix(line, [(0, 2), (1, 2)]).loads([10.0, 5.0]).tolist()  # 0 -> 1, 1 -> 2, 1 -> 0, 2 -> 1
        [10.0, 15.0, 0.0, 0.0]
        """
        each = np.broadcast_to(np.asarray(sizes, dtype=np.float64), self.hops.shape)
        weights = self.shares * each[self.rows]
        return np.bincount(self.edges, weights=weights, minlength=self.edge_count).astype(np.float64)

    def taken(self, rows: Integers, offsets: Integers, edge_count: int) -> RoutingMatrix:
        """The given rows, in a larger graph of ``edge_count`` links: those of row ``rows[i]`` are moved by ``offsets[i]``."""
        lengths = np.diff(self.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], lengths)
        edges = self.edges[entries] + np.repeat(offsets, lengths)
        return RoutingMatrix(starts, edges, self.shares[entries], self.hops[rows], self.latency[rows], edge_count)


@runtime_checkable
class TableRouter(Protocol):
    """A router that also knows the matrix of many pairs at once."""

    def __call__(self, graph: Graph, source: int, target: int) -> tuple[Path, ...]: ...

    def table(self, graph: Graph, sources: Integers, targets: Integers) -> RoutingMatrix: ...


@dataclass(slots=True)
class _Memory:
    """Cached results for one graph: paths by their ends, and shortest-path trees by vertex."""

    paths: dict[tuple[int, int], tuple[Path, ...]] = field(default_factory=dict)
    trees: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    counts: dict[tuple[int, bool], _Counts] = field(default_factory=dict)


_MEMORY: WeakKeyDictionary[Graph, _Memory] = WeakKeyDictionary()


def _memory(graph: Graph) -> _Memory:
    found = _MEMORY.get(graph)
    if found is None:
        found = _MEMORY[graph] = _Memory()
    return found


def paths(graph: Graph, source: int, target: int) -> tuple[Path, ...]:
    """The paths that share a message evenly, by the graph's router; to or from a switch, the shortest. ``((),)`` to itself.

    >>> from halley.ir.hardware import Axis, Link, Topology
    >>> from halley.network.graph.topologies import build
    >>> ring = build(Axis("x", 4, Topology.RING, Link(1.0)))
    >>> paths(ring, 3, 1), paths(ring, 0, 3)   # two hops up (ties go up), one hop down
    (((3, 0),), ((4,),))

    Raises BadInput: no such vertex, or no way between them.
    """
    known = _memory(graph).paths
    found = known.get((source, target))
    if found is None:
        for vertex in (source, target):
            if not 0 <= vertex < graph.vertices:
                raise BadInput(Fault(f"network {graph.name}", f"a vertex from 0 to {graph.vertices - 1}", str(vertex)))
        between_ranks = source < graph.ranks and target < graph.ranks
        router = graph.router if graph.router is not None and between_ranks else shortest
        found = known[source, target] = router(graph, source, target) if source != target else ((),)
    return found


def shortest(graph: Graph, source: int, target: int) -> tuple[Path, ...]:
    """One path of fewest links; among equals, at every vertex the link that the graph lists first.

    Raises BadInput: no way between them.
    """
    hops, last = tree(graph, source)
    if hops[target] < 0:
        raise BadInput(_apart(graph, source, target))
    found, vertex = [], target
    while vertex != source:
        found.append(last[vertex])
        vertex = graph.edges[last[vertex]].source
    return (tuple(reversed(found)),)


def tree(graph: Graph, source: int) -> tuple[list[int], list[int]]:
    """Per vertex: the number of links from the source (-1: unreachable), and the last link of its first shortest path."""
    trees = _memory(graph).trees
    if source not in trees:
        hops, last = [-1] * graph.vertices, [-1] * graph.vertices
        hops[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for index in graph.outgoing[vertex]:
                target = graph.edges[index].target
                if hops[target] < 0:
                    hops[target], last[target] = hops[vertex] + 1, index
                    queue.append(target)
        trees[source] = hops, last
    return trees[source]


def _apart(graph: Graph, source: int, target: int) -> Fault:
    return Fault(f"network {graph.name}", f"a way from vertex {source} to vertex {target}", "none", "add links that join them")


def routing_matrix(graph: Graph, pairs: Iterable[tuple[int, int]] | NDArray[np.integer]) -> RoutingMatrix:
    """The matrix of the pairs (source, target) of ranks, by the graph's router.

    Raises BadInput: a pair that names no ranks, or has no way between them.
    """
    ends = np.array(pairs if isinstance(pairs, np.ndarray) else list(pairs), dtype=np.int64).reshape(-1, 2)
    if ends.size and not (ends.min() >= 0 and ends.max() < graph.ranks):
        strange = ends[(ends < 0) | (ends >= graph.ranks)][0]
        raise BadInput(Fault(f"network {graph.name}", f"ranks from 0 to {graph.ranks - 1}", str(strange)))
    if isinstance(graph.router, TableRouter):
        return graph.router.table(graph, ends[:, 0], ends[:, 1])
    router = graph.router or shortest
    return _listed(graph, [router(graph, s, t) if s != t else ((),) for s, t in ends.tolist()])


def _listed(graph: Graph, routes: list[tuple[Path, ...]]) -> RoutingMatrix:
    """The matrix of the paths of each pair."""
    edges: list[int] = []
    shares: list[float] = []
    starts, hops, latency = [0], [], []
    known = graph.latencies.tolist()
    for ways in routes:
        if len(ways) == 1:
            edges += ways[0]
            shares += [1.0] * len(ways[0])
        else:
            counts = Counter(edge for way in ways for edge in way)
            edges += counts
            shares += [count / len(ways) for count in counts.values()]
        starts.append(len(edges))
        hops.append(max(map(len, ways)))
        latency.append(max(sum(known[edge] for edge in way) for way in ways))
    return RoutingMatrix(
        np.array(starts, dtype=np.int64),
        np.array(edges, dtype=np.int64),
        np.array(shares, dtype=np.float64),
        np.array(hops, dtype=np.int64),
        np.array(latency, dtype=np.float64),
        len(graph.edges),
    )


def joined(parts: Sequence[RoutingMatrix]) -> RoutingMatrix:
    """The matrix of pairs that cross the links of all parts one after the other; the parts have the same rows."""
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows, kind="stable")
    return RoutingMatrix(
        sum((part.starts for part in parts[1:]), parts[0].starts),
        np.concatenate([part.edges for part in parts])[order],
        np.concatenate([part.shares for part in parts])[order],
        sum((part.hops for part in parts[1:]), parts[0].hops),
        sum((part.latency for part in parts[1:]), parts[0].latency),
        parts[0].edge_count,
    )


@dataclass(frozen=True)
class EveryShortest:
    """A router over all paths of fewest links, an even share on each (equal-cost multi-path with paths drawn alike).

    The table counts paths instead of listing them, so that it serves graphs with any number of them.
    """

    def __call__(self, graph: Graph, source: int, target: int) -> tuple[Path, ...]:
        """Raises BadInput: no way, or more than `PATH_LIMIT` of them."""
        counts = _Counts.of(graph, source)
        if counts.hops[target] < 0:
            raise BadInput(_apart(graph, source, target))
        if counts.paths[target] > PATH_LIMIT:
            where, got = f"network {graph.name}, from {source} to {target}", f"{counts.paths[target]:.0f}"
            raise BadInput(Fault(where, f"at most {PATH_LIMIT} shortest paths to list", got, "use the routing matrix"))
        found: list[Path] = [()]
        heads = [source]
        into = _Counts.of(graph, target, backwards=True)
        for left in range(int(counts.hops[target]) - 1, -1, -1):
            grown = [
                ((*way, edge), graph.edges[edge].target)
                for way, head in zip(found, heads, strict=True)
                for edge in graph.outgoing[head]
                if into.hops[graph.edges[edge].target] == left
            ]
            found, heads = [way for way, _ in grown], [head for _, head in grown]
        return tuple(found)

    def table(self, graph: Graph, sources: Integers, targets: Integers) -> RoutingMatrix:
        """Share of a link = (paths to its start) x (paths from its end) / (all paths)."""
        ends = np.array([(edge.source, edge.target) for edge in graph.edges], dtype=np.int64).reshape(-1, 2)
        tails, heads = ends[:, 0], ends[:, 1]
        forth = {int(vertex): _Counts.of(graph, int(vertex)) for vertex in np.unique(sources)}
        back = {int(vertex): _Counts.of(graph, int(vertex), backwards=True) for vertex in np.unique(targets)}
        edges, shares, hops, latency = [], [], [], []
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            here, there = forth[source], back[target]
            if here.hops[target] < 0:
                raise BadInput(_apart(graph, source, target))
            length = here.hops[target]
            reached = (here.hops[tails] >= 0) & (there.hops[heads] >= 0)
            crossed = np.flatnonzero(reached & (here.hops[tails] + 1 + there.hops[heads] == length))
            edges.append(crossed)
            shares.append(here.paths[tails[crossed]] * there.paths[heads[crossed]] / here.paths[target])
            hops.append(length)
            latency.append(here.latency[target])
        lengths = np.array([len(found) for found in edges], dtype=np.int64)
        return RoutingMatrix(
            np.concatenate([[0], np.cumsum(lengths)]),
            np.concatenate([*edges, np.empty(0, dtype=np.int64)]),
            np.concatenate([*shares, np.empty(0)]),
            np.array(hops, dtype=np.int64),
            np.array(latency, dtype=np.float64),
            len(graph.edges),
        )


@dataclass(frozen=True, eq=False)
class _Counts:
    """Shortest paths between one vertex and every other: links, number of paths, and the greatest latency of one of them."""

    hops: Integers
    paths: Floats
    latency: Floats

    @classmethod
    def of(cls, graph: Graph, vertex: int, backwards: bool = False) -> _Counts:
        """From the vertex to all, or ``backwards`` from all to the vertex; hops are -1 where there is no way."""
        known = _memory(graph).counts
        if (vertex, backwards) not in known:
            known[vertex, backwards] = cls._counted(graph, vertex, backwards)
        return known[vertex, backwards]

    @classmethod
    def _counted(cls, graph: Graph, vertex: int, backwards: bool) -> _Counts:
        ends = np.array([(edge.source, edge.target) for edge in graph.edges], dtype=np.int64).reshape(-1, 2)
        tails, heads = (ends[:, 1], ends[:, 0]) if backwards else (ends[:, 0], ends[:, 1])
        hops = np.full(graph.vertices, -1, dtype=np.int64)
        number, latency = np.zeros(graph.vertices), np.zeros(graph.vertices)
        hops[vertex], number[vertex], reached = 0, 1.0, 0
        while True:
            crossed = np.flatnonzero((hops[tails] == reached) & (hops[heads] < 0))
            if not crossed.size:
                return cls(hops, number, latency)
            np.add.at(number, heads[crossed], number[tails[crossed]])
            np.maximum.at(latency, heads[crossed], latency[tails[crossed]] + graph.latencies[crossed])
            reached += 1
            hops[heads[crossed]] = reached
