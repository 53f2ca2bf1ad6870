"""Networks with tiers or groups of switches: fat-trees and dragonflies, with their routing.

Ranks come first, then the switches: of a fat-tree leaves, spines, cores; of a dragonfly its routers, group after group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from halley.ir.hardware import Axis, Link
from halley.network.graph.graph import Edge, Graph, Path, Switch
from halley.network.graph.routes import Integers, RoutingMatrix


class ByStops(ABC):
    """A router with one path for each pair, given by the vertices on it."""

    @abstractmethod
    def stops(self, ranks: int, sources: Integers, targets: Integers) -> list[Integers]:
        """The vertices that each pair's message visits, one array [pairs] after the other; one that stays repeats its vertex."""

    def table(self, graph: Graph, sources: Integers, targets: Integers) -> RoutingMatrix:
        """The matrix of many pairs."""
        stops = np.stack(self.stops(graph.ranks, sources, targets), axis=1)
        keys = np.array([edge.source * graph.vertices + edge.target for edge in graph.edges], dtype=np.int64)
        order = np.argsort(keys)
        wanted = stops[:, :-1] * graph.vertices + stops[:, 1:]
        moves = stops[:, :-1] != stops[:, 1:]
        edges = order[np.searchsorted(keys[order], wanted[moves])]
        hops = moves.sum(axis=1)
        rows = np.repeat(np.arange(len(hops)), hops)
        latency = np.bincount(rows, weights=graph.latencies[edges], minlength=len(hops)).astype(np.float64)
        starts = np.concatenate([[0], np.cumsum(hops)])
        return RoutingMatrix(starts, edges, np.ones(len(edges)), hops, latency, len(graph.edges))

    def __call__(self, graph: Graph, source: int, target: int) -> tuple[Path, ...]:
        return (tuple(self.table(graph, np.array([source]), np.array([target])).edges.tolist()),)


@dataclass(frozen=True)
class UpDown(ByStops):
    """Up to the lowest common tier and down again, by the spine and the core that the target's number selects (d-mod-k).

    With t the target, a message takes spine t mod S of its tree or pod and, above it, core (t div S) mod (C / S): so the targets
    of a leaf are distributed evenly over the links that leave it. ``leaf``: ranks per leaf; ``leaves``: leaves per pod;
    ``spines``: S, per pod; ``cores``: C, 0 in a tree of two levels.
    """

    leaf: int
    leaves: int
    spines: int
    cores: int

    def stops(self, ranks: int, sources: Integers, targets: Integers) -> list[Integers]:
        first, last = sources // self.leaf, targets // self.leaf
        pods = first // self.leaves, last // self.leaves
        spine, share = targets % self.spines, max(self.cores // self.spines, 1)
        up, down = (np.where(first == last, ranks + first, self.spine(ranks, pod, spine)) for pod in pods)
        core = np.where(pods[0] == pods[1], up, self.core(ranks, spine * share + targets // self.spines % share))
        here = sources == targets
        return [sources, *(np.where(here, sources, stop) for stop in (ranks + first, up, core, down, ranks + last)), targets]

    def spine(self, ranks: int, pod: Integers, number: Integers) -> Integers:
        """The vertices of spines."""
        return ranks + ranks // self.leaf + pod * self.spines + number

    def core(self, ranks: int, number: Integers) -> Integers:
        """The vertices of cores."""
        return ranks + ranks // self.leaf + ranks // (self.leaf * self.leaves) * self.spines + number


def fat_tree(axis: Axis) -> Graph:
    """A folded Clos network: every leaf has a link to every spine of its tree, or of its pod.

    In three levels core c joins the spines number c div (C / S) of all pods, one link each. (The k-ary fat-tree of Al-Fares et
    al., SIGCOMM 2008, has k/2 ranks per leaf, k/2 leaves and k/2 spines per pod, and k^2/4 cores.)
    """
    n = axis.size
    leaf, leaves, spines, cores = axis.shape if len(axis.shape) == 4 else (axis.shape[0], n // axis.shape[0], axis.shape[1], 0)
    pods, count = n // (leaf * leaves), n // leaf
    names = [f"leaf {i}" for i in range(count)]
    names += [f"spine {i}" if pods == 1 else f"spine {i} of pod {pod}" for pod in range(pods) for i in range(spines)]
    names += [f"core {i}" for i in range(cores)]
    first_spine, first_core = n + count, n + count + pods * spines
    upper = axis.upper or axis.link
    edges = both_ways([(rank, n + rank // leaf) for rank in range(n)], axis.link)
    edges += both_ways([(n + i, first_spine + i // leaves * spines + j) for i in range(count) for j in range(spines)], upper)
    tops = [(first_spine + pod * spines + c * spines // cores, first_core + c) for pod in range(pods) for c in range(cores)]
    edges += both_ways(tops, axis.top or upper)
    return Graph(axis.name, n, tuple(edges), _switches(axis, names), UpDown(leaf, leaves, spines, cores))


@dataclass(frozen=True)
class Minimal(ByStops):
    """Minimal routing in a dragonfly: at most one local link, the one global link to the target's group, one local link.

    ``routers``: per group; ``hosts``: ranks per router; ``outlets``: global links per router.
    """

    routers: int
    hosts: int
    outlets: int

    @property
    def groups(self) -> int:
        return self.routers * self.outlets + 1

    def gateway(self, group: Integers, other: Integers) -> Integers:
        """The router in a group whose global link leads to the other group (palm-tree arrangement)."""
        return group * self.routers + ((group - other) % self.groups - 1) // self.outlets

    def stops(self, ranks: int, sources: Integers, targets: Integers) -> list[Integers]:
        first, last = sources // self.hosts, targets // self.hosts
        here, there = first // self.routers, last // self.routers
        out = np.where(here == there, first, self.gateway(here, there))
        into = np.where(here == there, last, self.gateway(there, here))
        stay = sources == targets
        return [sources, *(np.where(stay, sources, ranks + router) for router in (first, out, into, last)), targets]


def dragonfly(axis: Axis) -> Graph:
    """Groups of fully joined routers, and one global link between any two groups (Kim et al., ISCA 2008).

    Global link k (from 0) of group G leads to group G - k - 1 (mod the groups): the palm-tree arrangement, which looks the same
    from every group. Router i of a group has the global links i h to i h + h - 1.
    """
    router = Minimal(*axis.shape)
    n, a, groups = axis.size, router.routers, np.arange(router.groups)
    names = [f"router {i} of group {group}" for group in groups for i in range(a)]
    upper = axis.upper or axis.link
    edges = both_ways([(rank, n + rank // router.hosts) for rank in range(n)], axis.link)
    inside = list(combinations(range(a), 2))
    edges += both_ways([(n + int(group) * a + i, n + int(group) * a + j) for group in groups for i, j in inside], upper)
    outlets = n + router.gateway(groups[:, None], groups[None, :])
    edges += both_ways([(int(outlets[i, j]), int(outlets[j, i])) for i, j in combinations(groups, 2)], axis.top or upper)
    return Graph(axis.name, n, tuple(edges), _switches(axis, names), router)


def both_ways(pairs: list[tuple[int, int]], link: Link) -> list[Edge]:
    """The links of the pairs in both directions: all that go up, then all that go down."""
    return [Edge(a, b, link) for a, b in pairs] + [Edge(b, a, link) for a, b in pairs]


def _switches(axis: Axis, names: list[str]) -> tuple[Switch, ...]:
    return tuple(Switch(name, axis.multicast, axis.reduction, axis.on_request) for name in names)
