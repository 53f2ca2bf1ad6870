"""Collectives on one axis of a chip: the algorithms that fit it, the routes of their messages, the cost of one execution.

The step tables are in `halley.network.algorithms`. A `Profile` counts a table's transfers in chunks along the routes; its users
multiply by the sizes of the chunks. The axes are lines, rings or fully connected; a payload is cut into one chunk per member.
`halley.network.time.evaluate` does the same for tables on any graph."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.numbers import Number, maximum
from halley.ir import hardware
from halley.ir.hardware import Axis, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS, Able, Setting
from halley.network.algorithms.algorithm import BOTH
from halley.network.algorithms.tables import Steps, Transfer, chunk_count
from halley.network.graph.graph import Graph
from halley.network.graph.routes import paths
from halley.network.graph.topologies import build

Link: TypeAlias = tuple[int, int]
"""A directed link between two neighbours: (from, to)."""


PLAIN = Able(False, False)
"""A network that neither copies nor adds."""


def able(axis: Axis) -> Able:
    """What the network of an axis does by itself."""
    return Able(axis.multicast, axis.reduction)


def algorithms(kind: CollectiveKind, topology: Topology, size: int, network: Able = PLAIN) -> tuple[str, ...]:
    """Names of the algorithms that fit.

    >>> algorithms(CollectiveKind.ALL_GATHER, Topology.LINE, 6)
    ('ring', 'bidirectional', 'direct')
    >>> algorithms(CollectiveKind.ALL_GATHER, Topology.LINE, 6, Able(multicast=True, reduction=False))
    ('ring', 'bidirectional', 'direct', 'multicast')
    """
    _check_size(topology, size)
    return tuple(name for name, item in ALGORITHMS.items() if item.misfit(kind, topology, size, network) is None)


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
    known = algorithms(kind, topology, size, BOTH)
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


Row: TypeAlias = tuple[tuple[int, float], ...]
"""What crosses one link in one step: (chunk, how often), by chunk."""

Rows: TypeAlias = tuple[tuple[int, tuple[Row, ...]], ...]
"""(times, rows) of every distinct step."""


class StepLoad(NamedTuple):
    """One step: what crosses each of the ``links``, without those that others surely outdo; ``adding``: the network adds up what
    they carry."""

    links: tuple[Row, ...]
    adding: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """What one execution costs, in chunks.

    ``hops``: sum over steps of the longest route. ``load``: sum over steps of the most chunks that cross one directed link
    in that step. ``crossings[l][c]``: how often chunk c crosses ``links[l]`` (links that nothing crosses are left out).
    ``sends``, ``receives``, ``combines``, per chunk: how often a member reads it to send it, how often it arrives, and how
    many arrivals combine; ``adds``: how often it is added to another part, by a member or by the network.
    ``rows``: (times, what crosses each link) of every distinct step, without links that others surely outdo where no chunk is
    larger than the one before it. ``stages``: (times, what crosses links) of every distinct step; ``members``: what each
    reads and writes in all steps. ``additions``: adders whose latency is waited for: those
    that a sum passes in the network, summed over steps; one where members add.
    """

    hops: int
    load: int
    links: tuple[Link, ...]
    crossings: tuple[tuple[int, ...], ...]
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    combines: tuple[int, ...]
    rows: Rows
    adds: tuple[int, ...] = (0,)
    stages: tuple[tuple[int, StepLoad], ...] = ()
    members: tuple[tuple[Row, Row], ...] = ()
    additions: int = 0

    @property
    def steps(self) -> int:
        """Steps of the table."""
        return sum(times for times, _ in self.stages)

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
        return busiest(self.rows, chunk_bytes)


def busiest(rows: Rows, sizes: Callable[[int], Number]) -> Number:
    """Sum over steps of the most that a row of that step comes to, for chunks of some ``sizes``, by number."""
    result: Number = 0
    for times, step in rows:
        most: Number = 0
        for row in step:
            crossing: Number = 0
            for chunk, count in row:
                crossing = crossing + count * sizes(chunk)
            most = maximum(most, crossing)
        result = result + times * most
    return result


class Port(NamedTuple):
    """Seconds per byte that a memory takes to read and to write, ``shared``: on one bus."""

    read: float
    write: float
    shared: bool


class Rates(NamedTuple):
    """Seconds per element that a link takes, that it takes where the network adds, and that the members' memories take."""

    link: float
    added: float
    ports: tuple[Port, ...]


class Streams(NamedTuple):
    """Seconds per element of each chunk: on the ``links`` of every distinct step, of which the busiest counts; and at the
    memories of the ``members``, in all steps together, where these may take longer than the links."""

    links: Rows
    members: tuple[Row, ...]


@cache
def streams(kind: CollectiveKind, algorithm: str, topology: Topology, size: int, rates: Rates) -> Streams | None:
    """How long the bytes of a collective take at least on links and in memories; None where links alone say it, as `Profile.rows`
    have it."""
    shape = profile(kind, algorithm, topology, size)
    links = tuple(
        (times, tuple(_weighted_sum((row, rates.added if stage.adding else rates.link)) for row in stage.links))
        for times, stage in shape.stages
    )
    found: set[Row] = set()
    for reads, writes in shape.members:
        for port in rates.ports:
            parts = (reads, port.read), (writes, port.write)
            found |= {_weighted_sum(*parts)} if port.shared else {_weighted_sum(part) for part in parts}
    sums = {_joined(links, last) for last in range(len(shape.sends))}
    members = tuple(row for row in _outstanding(found - {()}, kind) if not any(at_most(row, other, kind) for other in sums))
    slower = rates.added != rates.link and any(stage.adding for _, stage in shape.stages)
    return Streams(links, members) if members or slower else None


def _joined(steps: Rows, last: int) -> Row:
    """A row of each step, together: those that come to most where chunks up to the last have one element, the others none."""
    picked = ((times, max(rows, key=lambda row: sum(n for chunk, n in row if chunk <= last))) for times, rows in steps)
    return _weighted_sum(*((row, times) for times, row in picked))


def at_most(row: Row, other: Row, kind: CollectiveKind) -> bool:
    """Whether a row surely comes to no more than another, for chunks none of which is larger than the one before it; for any, in
    an all-to-all."""
    if kind is CollectiveKind.ALL_TO_ALL:
        counts = dict(other)
        return all(n <= counts.get(chunk, 0) for chunk, n in row)
    return row == other or _outdone(row, other)


def _weighted_sum(*parts: tuple[Row, float]) -> Row:
    """Rows as one, each chunk's count times the row's weight."""
    total: dict[int, float] = {}
    for row, weight in parts:
        for chunk, count in row:
            total[chunk] = total.get(chunk, 0.0) + count * weight
    return tuple(sorted(total.items()))


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
    sends, receives, combines, adds = ([0] * chunks for _ in range(4))
    hops = load = additions = 0
    alike: Counter[StepLoad] = Counter()
    reads, writes = defaultdict[int, Counter[int]](Counter), defaultdict[int, Counter[int]](Counter)
    for step in table:
        longest, passed, at_once = 0, 0, defaultdict[Link, Counter[int]](Counter)
        for transfer in step:
            path = way(graph, transfer.source, transfer.target)
            longest = max(longest, len(path))
            for link in path:  # the network carries a chunk once, however many it comes from or is for
                at_once[link][transfer.chunk] = 1 if transfer.shared else at_once[link][transfer.chunk] + 1
            adds[transfer.chunk] += transfer.combine
            passed = max(passed, len(path) if transfer.shared and transfer.combine else 0)
        for member, chunk in _once(step, "source"):
            sends[chunk] += 1
            reads[member][chunk] += 1
        for member, chunk in _once(step, "target"):
            receives[chunk] += 1
            writes[member][chunk] += 1
        for member, chunk in _once([t for t in step if t.combine], "target"):
            combines[chunk] += 1
            reads[member][chunk] += 1
        for link, counts in at_once.items():
            total = crossings.setdefault(link, [0] * chunks)
            for chunk, times in counts.items():
                total[chunk] += times
        hops += longest
        additions += passed
        load += max(counts.total() for counts in at_once.values())
        outstanding = _outstanding({_row(counts) for counts in at_once.values()}, kind)
        alike[StepLoad(outstanding, any(t.shared and t.combine for t in step))] += 1
    links = tuple(sorted(crossings))
    rows: Counter[tuple[Row, ...]] = Counter()
    for stage, times in alike.items():
        rows[stage.links] += times
    return Profile(
        hops=hops,
        load=load,
        links=links,
        crossings=tuple(tuple(crossings[link]) for link in links),
        sends=tuple(sends),
        receives=tuple(receives),
        combines=tuple(combines),
        rows=tuple((times, own) for own, times in rows.items()),
        adds=tuple(adds),
        stages=tuple((times, stage) for stage, times in alike.items()),
        members=tuple(sorted({(_row(reads[member]), _row(writes[member])) for member in {*reads, *writes}})),
        additions=additions or int(any(adds)),
    )


def _row(counts: Mapping[int, int]) -> Row:
    return tuple(sorted(counts.items()))


def _once(step: Iterable[Transfer], end: str) -> list[tuple[int, int]]:
    """(member, chunk) at one end of each transfer; of those that the network carries together, once."""
    places = [(getattr(transfer, end), transfer.chunk) for transfer in step if not transfer.shared]
    return places + sorted({(getattr(transfer, end), transfer.chunk) for transfer in step if transfer.shared})


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
    mine = theirs = 0.0
    at = 0
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
