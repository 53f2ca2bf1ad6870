"""Collectives on one axis of a chip: which algorithm fits, the way that its messages take, what one execution costs.

The step tables are in `halley.network.algorithms`. A `Profile` counts a table's transfers in chunks along the routes; whoever
uses it multiplies by the chunks' sizes. The axes are lines, rings or fully connected; a payload is cut into one chunk per member.
`halley.network.evaluate` does the same for tables on any graph.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.numbers import Number, maximum
from halley.ir import hardware
from halley.ir.hardware import Axis, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS, Setting
from halley.network.graph import Graph
from halley.network.routes import paths
from halley.network.tables import Steps, chunk_count
from halley.network.topologies import build

Link: TypeAlias = tuple[int, int]
"""A directed link between two neighbours: (from, to)."""


def algorithms(kind: CollectiveKind, topology: Topology, size: int) -> tuple[str, ...]:
    """Names of the algorithms that fit.

    >>> algorithms(CollectiveKind.ALL_GATHER, Topology.LINE, 6)
    ('ring', 'bidirectional', 'direct')
    """
    _check_size(topology, size)
    return tuple(name for name, item in ALGORITHMS.items() if item.misfit(kind, topology, size) is None)


@cache
def steps(kind: CollectiveKind, algorithm: str, topology: Topology, size: int) -> Steps:
    """The step table; empty for one member. Raises BadInput where the algorithm is unknown or does not fit.

    >>> for step in steps(CollectiveKind.ALL_GATHER, "ring", Topology.RING, 3):
    ...     print(*(f"{t.source}->{t.target}:{t.chunk}" for t in step))
    0->1:0 1->2:1 2->0:2
    0->1:2 1->2:0 2->0:1
    """
    _check_size(topology, size)
    where = f"{kind} with {algorithm} on a {topology} of {size}"
    known = algorithms(kind, topology, size)
    if algorithm not in ALGORITHMS:
        raise BadInput(Fault(where, "a known algorithm", repr(algorithm), did_you_mean(algorithm, known or ALGORITHMS)))
    misfit = ALGORITHMS[algorithm].misfit(kind, topology, size)
    if misfit is not None:
        remedy = f"use one of: {', '.join(known)}" if known else "no algorithm serves this"
        raise BadInput(Fault(where, misfit[0], misfit[1], remedy))
    if size == 1:
        return ()
    return ALGORITHMS[algorithm].make[kind](Setting(size, size, topology is Topology.LINE))


@cache
def route(topology: Topology, size: int, source: int, target: int) -> tuple[Link, ...]:
    """Directed links of the shortest path. On a ring the shorter way, with ties going up (as a router with one fixed rule would).

    >>> route(Topology.RING, 6, 5, 2), route(Topology.RING, 6, 1, 5)
    (((5, 0), (0, 1), (1, 2)), ((1, 0), (0, 5)))
    """
    _check_size(topology, size)
    for member in (source, target):
        if not 0 <= member < size:
            raise BadInput(Fault(f"route on a {topology} of {size}", f"members 0 to {size - 1}", str(member)))
    return way(_graph(topology, size), source, target)


@cache
def _graph(topology: Topology, size: int) -> Graph:
    """The axis as a graph; no count depends on what its links can do."""
    return build(Axis("axis", size, topology, hardware.Link(1.0)))


def way(graph: Graph, source: int, target: int) -> tuple[Link, ...]:
    """The links between two ranks of a graph with one route each."""
    path, *others = paths(graph, source, target)
    if others:
        raise BadInput(Fault(f"network {graph.name}", "one route between two ranks", f"{len(others) + 1}", "use evaluate"))
    return tuple((graph.edges[edge].source, graph.edges[edge].target) for edge in path)


Row: TypeAlias = tuple[tuple[int, int], ...]
"""What crosses one link in one step: (chunk, how often), by chunk."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What one execution costs, in chunks.

    ``hops``: sum over steps of the longest route. ``load``: sum over steps of the most chunks that cross one directed link
    in that step. ``crossings[l][c]``: how often chunk c crosses ``links[l]`` (links that nothing crosses are left out).
    ``sends``, ``receives``, ``combines``, per chunk: its transfers, its arrivals, and those arrivals that combine.
    ``rows``: (times, what crosses each link) of every distinct step, without links that others surely outdo where no chunk is
    larger than the one before it.
    """

    hops: int
    load: int
    links: tuple[Link, ...]
    crossings: tuple[tuple[int, ...], ...]
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    combines: tuple[int, ...]
    rows: tuple[tuple[int, tuple[Row, ...]], ...]

    @property
    def moves(self) -> tuple[int, ...]:
        """How often each chunk crosses a link."""
        return tuple(sum(counts) for counts in zip(*self.crossings, strict=True)) or (0,) * len(self.sends)

    def busiest_bytes(self, chunk_bytes: Callable[[int], Number]) -> Number:
        """Sum over steps of the bytes on that step's busiest link, for chunks of sizes (by number) that do not rise with it
        (any sizes for an all-to-all) [B]: numbers, arrays or terms.

        At most ``load`` times the largest chunk; equal to it where all chunks are equal.

        >>> profile(CollectiveKind.ALL_REDUCE, "chain", Topology.LINE, 4).busiest_bytes(lambda chunk: [2, 2, 2, 1][chunk])
        42
        """
        result: Number = 0
        for times, step in self.rows:
            busiest: Number = 0
            for row in step:
                crossing: Number = 0
                for chunk, count in row:
                    crossing = crossing + count * chunk_bytes(chunk)
                busiest = maximum(busiest, crossing)
            result = result + times * busiest
        return result


@cache
def profile(kind: CollectiveKind, algorithm: str, topology: Topology, size: int) -> Profile:
    """Count one execution of the algorithm.

    >>> shape = profile(CollectiveKind.ALL_REDUCE, "ring", Topology.LINE, 3)
    >>> shape.hops, shape.load, shape.sends   # the closing message of each of 4 steps takes 2 hops
    (8, 4, (4, 4, 4))
    """
    return count(kind, steps(kind, algorithm, topology, size), _graph(topology, size))


def count(kind: CollectiveKind, table: Steps, graph: Graph) -> Profile:
    """Count one execution of a table, cut into one chunk per rank, on any graph with one route between two ranks."""
    chunks = chunk_count(kind, graph.ranks)
    crossings: dict[Link, list[int]] = {}
    sends, combines = [0] * chunks, [0] * chunks
    hops = load = 0
    alike: Counter[tuple[Row, ...]] = Counter()
    for step in table:
        longest, at_once = 0, defaultdict[Link, Counter[int]](Counter)
        for transfer in step:
            path = way(graph, transfer.source, transfer.target)
            longest = max(longest, len(path))
            sends[transfer.chunk] += 1
            combines[transfer.chunk] += transfer.combine
            for link in path:
                at_once[link][transfer.chunk] += 1
        for link, counts in at_once.items():
            total = crossings.setdefault(link, [0] * chunks)
            for chunk, times in counts.items():
                total[chunk] += times
        hops += longest
        load += max(counts.total() for counts in at_once.values())
        alike[_outstanding({tuple(sorted(counts.items())) for counts in at_once.values()}, kind)] += 1
    links = tuple(sorted(crossings))
    return Profile(
        hops=hops,
        load=load,
        links=links,
        crossings=tuple(tuple(crossings[link]) for link in links),
        sends=tuple(sends),
        receives=tuple(sends),  # every transfer that leaves arrives
        combines=tuple(combines),
        rows=tuple((times, rows) for rows, times in alike.items()),
    )


def _outstanding(rows: set[Row], kind: CollectiveKind) -> tuple[Row, ...]:
    """The rows that no other outdoes. Chunks are cut off one after the other, so that none is larger than the one before
    it: a row outdoes another if up to every chunk it has as many. Chunks of an all-to-all may have any sizes."""
    if kind is CollectiveKind.ALL_TO_ALL:
        groups: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            groups.setdefault(tuple(chunk for chunk, _ in row), []).append(row)
        found = (row for group in groups.values() for row in group if not any(_outdone(row, o) for o in group))
    else:
        found = (row for row in rows if not any(_outdone(row, other) for other in rows))
    return tuple(sorted(found))


def _outdone(row: Row, other: Row) -> bool:
    """Whether the other row has, up to every chunk, at least as many."""
    if row == other:
        return False
    mine = theirs = at = 0
    for chunk, count in row:
        mine += count
        while at < len(other) and other[at][0] <= chunk:
            theirs += other[at][1]
            at += 1
        if theirs < mine:
            return False
    return True


def _check_size(topology: Topology, size: int) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise BadInput(Fault(f"an axis of topology {topology}", "a whole number of members, at least 1", repr(size)))


