"""Collectives on a network: which algorithm fits, the way that its messages take, what one execution costs.

The step tables are in `halley.ir.algorithms`. A `Profile` counts a table's transfers in chunks along the routes; whoever
uses it multiplies by the chunks' sizes. ``start`` and ``promise`` state what each kind has to do; `verify` replays a table
against them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeAlias, assert_never

from halley.errors import BadInput, Fault, InternalError, did_you_mean
from halley.formulas.numbers import Number, ceil_div, maximum, minimum
from halley.ir.algorithms import ALGORITHMS, Algorithm, Steps, Transfer
from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Held",
    "Link",
    "Profile",
    "Row",
    "Steps",
    "Transfer",
    "algorithms",
    "chunk_count",
    "chunk_sizes",
    "profile",
    "promise",
    "route",
    "share",
    "start",
    "steps",
    "verify",
]

_K = CollectiveKind

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
    return ALGORITHMS[algorithm].make[kind](topology, size) if size > 1 else ()


def chunk_sizes(elements: Number, size: int) -> list[Number]:
    """Sizes of the ``size`` chunks of a flat payload: ``ceil(elements / size)`` each, the last ones shorter or empty.

    >>> chunk_sizes(10, 4), chunk_sizes(2, 4)
    ([3, 3, 3, 1], [1, 1, 0, 0])
    """
    chunk = ceil_div(elements, size)
    return [share(elements, chunk, index) for index in range(size)]


def share(extent: Number, tile: Number, index: int) -> Number:
    """What one member has of an extent cut into tiles.

    >>> [share(13, 5, index) for index in range(4)]
    [5, 5, 3, 0]
    """
    return maximum(minimum(extent - index * tile, tile), 0) if index else minimum(extent, tile)


def chunk_count(kind: CollectiveKind, size: int) -> int:
    """Chunks that a collective among ``size`` members names."""
    return size * size if kind is CollectiveKind.ALL_TO_ALL else size


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
    if source == target:
        return ()
    match topology:
        case Topology.FULL:
            return ((source, target),)
        case Topology.LINE:
            distance, way = abs(target - source), 1 if target > source else -1
        case Topology.RING:
            up = (target - source) % size
            distance, way = (up, 1) if 2 * up <= size else (size - up, -1)
        case _:
            assert_never(topology)
    path = [(source + way * hop) % size for hop in range(distance + 1)]
    return tuple(pairwise(path))


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
    chunks = chunk_count(kind, size)
    crossings: dict[Link, list[int]] = {}
    sends, combines = [0] * chunks, [0] * chunks
    hops = load = 0
    alike: Counter[tuple[Row, ...]] = Counter()
    for step in steps(kind, algorithm, topology, size):
        longest, at_once = 0, defaultdict[Link, Counter[int]](Counter)
        for transfer in step:
            path = route(topology, size, transfer.source, transfer.target)
            longest = max(longest, len(path))
            sends[transfer.chunk] += 1
            combines[transfer.chunk] += transfer.combine
            for link in path:
                at_once[link][transfer.chunk] += 1
        for link, counts in at_once.items():
            total = crossings.setdefault(link, [0] * chunks)
            for chunk, count in counts.items():
                total[chunk] += count
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


Held: TypeAlias = dict[tuple[int, int], Counter[int]]
"""By (member, chunk): how often each member's contribution is in that member's copy of the chunk."""


def start(kind: CollectiveKind, size: int) -> Held:
    """Who holds what before the collective. A contribution is named after the member that it comes from."""
    members = range(size)
    match kind:
        case _K.ALL_REDUCE | _K.REDUCE_SCATTER | _K.REDUCE:
            return {(i, c): Counter([i]) for i in members for c in members}
        case _K.ALL_GATHER | _K.GATHER | _K.SHIFT:
            return {(i, i): Counter([i]) for i in members}
        case _K.BROADCAST | _K.SCATTER:
            return {(0, c): Counter([0]) for c in members}
        case _K.ALL_TO_ALL:
            return {(i, i * size + j): Counter([i]) for i in members for j in members}
        case _:
            assert_never(kind)


def promise(kind: CollectiveKind, size: int) -> Held:
    """Who must hold what after it; copies that are not named may hold anything."""
    members = range(size)
    every = Counter(members)
    match kind:
        case _K.ALL_REDUCE:
            return {(i, c): every for i in members for c in members}
        case _K.REDUCE_SCATTER:
            return {(i, i): every for i in members}
        case _K.REDUCE:
            return {(0, c): every for c in members}
        case _K.ALL_GATHER:
            return {(i, c): Counter([c]) for i in members for c in members}
        case _K.GATHER:
            return {(0, c): Counter([c]) for c in members}
        case _K.BROADCAST:
            return {(i, c): Counter([0]) for i in members for c in members}
        case _K.SCATTER:
            return {(i, i): Counter([0]) for i in members}
        case _K.ALL_TO_ALL:
            return {(j, i * size + j): Counter([i]) for i in members for j in members}
        case _K.SHIFT:
            return {(i + 1, i): Counter([i]) for i in range(size - 1)}
        case _:
            assert_never(kind)


def verify(kind: CollectiveKind, table: Steps, size: int) -> None:
    """Replay a table on symbols: InternalError unless every member ends with what the collective promises, each
    contribution exactly once."""
    held = start(kind, size)
    for number, step in enumerate(table):
        before = dict(held)
        replaced: set[tuple[int, int]] = set()
        for transfer in step:
            source, target = (transfer.source, transfer.chunk), (transfer.target, transfer.chunk)
            where = f"{kind} among {size}, step {number}, {transfer}"
            if not (0 <= transfer.target < size and transfer.source != transfer.target):
                raise InternalError(Fault(where, "another member of the axis as target", str(transfer.target)))
            if source not in before:
                raise InternalError(Fault(where, "a source that holds the chunk", "none there"))
            if target in replaced or (not transfer.combine and held.get(target) != before.get(target)):
                raise InternalError(Fault(where, "one arrival where a copy is replaced", "several in one step"))
            if transfer.combine and target not in before:
                raise InternalError(Fault(where, "a copy at the target to combine with", "none there"))
            held[target] = held[target] + before[source] if transfer.combine else before[source]
            if not transfer.combine:
                replaced.add(target)
    for (member, chunk), wanted in promise(kind, size).items():
        found = held.get((member, chunk))
        if found != wanted:
            where = f"{kind} among {size}, chunk {chunk} on member {member}"
            raise InternalError(Fault(where, f"contributions {dict(wanted)}", str(dict(found)) if found else "nothing"))
