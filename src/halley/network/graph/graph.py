"""A network as a graph: ranks and switches joined by directed links, and the ways that messages take.

Ranks are the vertices 0 .. ranks - 1; switches follow. Links are directed: a full-duplex cable is two of them. Quantities are SI.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.ir.hardware import Link


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed link between two vertices. ``dimension``: the part of a product of topologies that it belongs to."""

    source: int
    target: int
    link: Link
    dimension: int = 0


@dataclass(frozen=True, slots=True)
class Switch:
    """A vertex that is no rank. ``multicast``: it can send one arrival on to several; ``reduction``: it can add what arrives;
    ``on_request``: it adds what a rank asks for, and gives the sum to that rank alone."""

    name: str
    multicast: bool = False
    reduction: bool = False
    on_request: bool = False


Path: TypeAlias = tuple[int, ...]
"""Indices of edges, in the order in which a message takes them."""

Router: TypeAlias = Callable[["Graph", int, int], tuple[Path, ...]]
"""(graph, source, target) -> paths that share a message evenly: one of them for a fixed route, several for multi-path."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Ranks, switches and the directed links between them; at most one edge from a vertex to another (parallel cables are
    one edge of their joint bandwidth). Raises BadInput where an edge leaves the graph, is a loop or comes twice.

    >>> graph = Graph("two", 2, (Edge(0, 1, Link(10.0)), Edge(1, 0, Link(10.0))))
    >>> graph.vertices, graph.between[1, 0]
    (2, 1)
    """

    name: str
    ranks: int
    edges: tuple[Edge, ...]
    switches: tuple[Switch, ...] = ()
    router: Router | None = field(default=None, repr=False)
    """How messages travel; None: `halley.network.graph.routes.shortest`."""

    def __post_init__(self) -> None:
        faults, seen = [], set()
        if self.ranks < 1:
            faults.append(Fault(f"network {self.name}", "at least 1 rank", str(self.ranks)))
        for number, edge in enumerate(self.edges):
            where, ends = f"network {self.name}, link {number}", (edge.source, edge.target)
            if not all(0 <= end < self.vertices for end in ends):
                faults.append(Fault(where, f"ends among the vertices 0 to {self.vertices - 1}", f"{ends[0]} -> {ends[1]}"))
            if edge.source == edge.target:
                faults.append(Fault(where, "two different ends", f"{ends[0]} -> {ends[1]}"))
            if ends in seen:
                faults.append(Fault(where, "one link from a vertex to another", f"{ends[0]} -> {ends[1]} twice"))
            if not edge.link.bandwidth > 0:
                faults.append(Fault(where, "a bandwidth above zero", f"{edge.link.bandwidth:g} B/s"))
            seen.add(ends)
        if faults:
            raise BadInput(faults)

    @property
    def vertices(self) -> int:
        return self.ranks + len(self.switches)

    @cached_property
    def between(self) -> dict[tuple[int, int], int]:
        """(source, target) -> index of the edge."""
        return {(edge.source, edge.target): index for index, edge in enumerate(self.edges)}

    @cached_property
    def outgoing(self) -> tuple[tuple[int, ...], ...]:
        """Per vertex, the indices of the edges that leave it."""
        found: list[list[int]] = [[] for _ in range(self.vertices)]
        for index, edge in enumerate(self.edges):
            found[edge.source].append(index)
        return tuple(tuple(edges) for edges in found)

    @cached_property
    def bandwidths(self) -> NDArray[np.float64]:
        """[edges] B/s."""
        return np.array([edge.link.bandwidth for edge in self.edges])

    @cached_property
    def latencies(self) -> NDArray[np.float64]:
        """[edges] s."""
        return np.array([edge.link.latency for edge in self.edges])

    @cached_property
    def energies(self) -> NDArray[np.float64]:
        """[edges] J/B."""
        return np.array([edge.link.energy for edge in self.edges])

    @cached_property
    def overheads(self) -> NDArray[np.float64]:
        """[edges] s of the sender for each message."""
        return np.array([edge.link.overhead for edge in self.edges])

    @cached_property
    def tails(self) -> NDArray[np.int64]:
        """[edges] the vertex that each leaves."""
        return np.array([edge.source for edge in self.edges], dtype=np.int64)

    def injection(self, vertex: int) -> float:
        """Bandwidth of all links that leave a vertex [B/s]."""
        return float(sum(self.edges[index].link.bandwidth for index in self.outgoing[vertex]))
