"""Collective algorithms as step tables, and what one execution of a table costs on a topology.

A collective runs in steps; a step is a set of `Transfer`s that happen at once, each reading what its source held before the
step. Payloads travel in chunks (``n`` members):

    all-reduce, reduce, broadcast   chunk c = the c-th of n pieces of the flat payload (`chunk_sizes`)
    reduce-scatter, scatter         chunk c = the shard of member c
    all-gather, gather, shift       chunk c = the block of member c
    all-to-all                      chunk i n + j = what member i holds for member j

Results of reduce and gather lie on member 0; broadcast and scatter start there. Tables know nothing of bytes: a `Profile`
counts chunks, and whoever uses it multiplies by the chunks' sizes. ``start`` and ``promise`` state what each kind has to
do, `verify` replays a table against them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias, assert_never

from halley.errors import BadInput, Fault, InternalError, did_you_mean
from halley.formulas.numbers import Number, ceil_div, maximum, minimum
from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind

Link: TypeAlias = tuple[int, int]
"""A directed link between two neighbours: (from, to)."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One chunk goes from ``source`` to ``target``. ``combine``: the target adds it (by the monoid) to its own copy, which
    it must have; otherwise the chunk replaces or creates the target's copy."""

    source: int
    target: int
    chunk: int
    combine: bool


Steps: TypeAlias = tuple[tuple[Transfer, ...], ...]
"""A step table. The transfers of one step happen at once."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How members carry out a collective: a table of steps for every size that it admits.

    ``make`` has one function per kind served, (topology, members) -> steps. ``sizes`` says in words what ``admits`` tests.
    """

    name: str
    make: Mapping[CollectiveKind, Callable[[Topology, int], Steps]]
    topologies: tuple[Topology, ...]
    description: str
    admits: Callable[[int], bool] = lambda size: True
    sizes: str = "any number of members"

    @property
    def kinds(self) -> tuple[CollectiveKind, ...]:
        return tuple(self.make)

    def misfit(self, kind: CollectiveKind, topology: Topology, size: int) -> tuple[str, str] | None:
        """(expected, got) where the algorithm does not serve this, None where it does."""
        if kind not in self.make:
            return f"one of {', '.join(self.kinds)}", str(kind)
        if topology not in self.topologies:
            return f"a topology among {', '.join(self.topologies)}", str(topology)
        if not self.admits(size):
            return self.sizes, str(size)
        return None


# --- step tables ---------------------------------------------------------------------------------------------------------


def _steps(steps: Iterable[Iterable[Transfer]]) -> Steps:
    """A table without empty steps."""
    return tuple(step for step in map(tuple, steps) if step)


def _mirror(steps: Steps, combine: bool) -> Steps:
    """The table backwards in time and direction: what spread a chunk out now collects it.

    all-gather -> reduce-scatter, broadcast -> reduce (``combine``); scatter -> gather.
    """
    return tuple(tuple(Transfer(t.target, t.source, t.chunk, combine) for t in step) for step in reversed(steps))


def _ring_all_gather(_: Topology, n: int) -> Steps:
    return _steps((Transfer(i, (i + 1) % n, (i - step) % n, False) for i in range(n)) for step in range(n - 1))


def _direct_all_gather(_: Topology, n: int) -> Steps:
    return _steps([(Transfer(i, j, i, False) for i in range(n) for j in range(n) if i != j)])


def _direct_all_to_all(_: Topology, n: int) -> Steps:
    return _steps([(Transfer(i, j, i * n + j, False) for i in range(n) for j in range(n) if i != j)])


def _direct_scatter(_: Topology, n: int) -> Steps:
    return _steps([(Transfer(0, j, j, False) for j in range(1, n))])


def _direct_broadcast(_: Topology, n: int) -> Steps:
    return _steps([(Transfer(0, j, chunk, False) for j in range(1, n) for chunk in range(n))])


def _one_shot_all_reduce(_: Topology, n: int) -> Steps:
    return _steps([(Transfer(i, j, chunk, True) for i in range(n) for j in range(n) if i != j for chunk in range(n))])


def _two_shot_broadcast(topology: Topology, n: int) -> Steps:
    return _direct_scatter(topology, n) + _direct_all_gather(topology, n)


def _two_shot_reduce(topology: Topology, n: int) -> Steps:
    return _mirror(_direct_all_gather(topology, n), True) + _mirror(_direct_scatter(topology, n), False)


def _doubling_all_reduce(_: Topology, n: int) -> Steps:
    distances = [1 << bit for bit in range(n.bit_length() - 1)]
    return _steps((Transfer(i, i ^ d, chunk, True) for i in range(n) for chunk in range(n)) for d in distances)


def _doubling_all_gather(_: Topology, n: int) -> Steps:
    # before the step of distance d, member i has the d blocks of its aligned group
    distances = [1 << bit for bit in range(n.bit_length() - 1)]
    return _steps((Transfer(i, i ^ d, i // d * d + k, False) for i in range(n) for k in range(d)) for d in distances)


def _chain_broadcast(_: Topology, n: int) -> Steps:
    return _steps((Transfer(i, i + 1, chunk, False) for chunk in range(n)) for i in range(n - 1))


def _pipelined_broadcast(_: Topology, n: int) -> Steps:
    # chunk c leaves member i in step i + c
    return _steps((Transfer(i, i + 1, step - i, False) for i in range(n - 1) if 0 <= step - i < n) for step in range(2 * n - 2))


def _bidirectional_all_gather(topology: Topology, n: int) -> Steps:
    ring = topology is Topology.RING
    up, down = (n // 2, (n - 1) // 2) if ring else (n - 1, n - 1)  # how far a block travels each way

    def step(t: int) -> Iterator[Transfer]:
        for i in range(n):
            if t < up and (ring or (i + 1 < n and i - t >= 0)):
                yield Transfer(i, (i + 1) % n, (i - t) % n, False)
            if t < down and (ring or (i > 0 and i + t < n)):
                yield Transfer(i, (i - 1) % n, (i + t) % n, False)

    return _steps(step(t) for t in range(up))


def _centre_all_reduce(_: Topology, n: int) -> Steps:
    chunks = range(n)
    pairs = [((t, t + 1), (n - 1 - t, n - 2 - t)) for t in range((n - 1) // 2)]
    inward = _steps((Transfer(i, j, chunk, True) for i, j in pair for chunk in chunks) for pair in pairs)
    low, high = (n - 1) // 2, n // 2
    middle = _steps([(Transfer(i, j, chunk, True) for i, j in ((low, high), (high, low)) if i != j for chunk in chunks)])
    return inward + middle + _mirror(inward, False)


def _neighbour_shift(_: Topology, n: int) -> Steps:
    return _steps([(Transfer(i, i + 1, i, False) for i in range(n - 1))])


Maker: TypeAlias = Callable[[Topology, int], Steps]


def _backwards(make: Maker, combine: bool = True) -> Maker:
    return lambda topology, size: _mirror(make(topology, size), combine)


def _there_and_back(make: Maker) -> Maker:
    """All-reduce: collect backwards with combining, then spread."""
    return lambda topology, size: _mirror(make(topology, size), True) + make(topology, size)


def _power_of_two(size: int) -> bool:
    return size & (size - 1) == 0


_K = CollectiveKind
_ANYWHERE = (Topology.LINE, Topology.RING, Topology.FULL)
_ALONG = (Topology.LINE, Topology.RING)
_POWERS = "a power of two"


def _gathering(make: Maker) -> dict[CollectiveKind, Maker]:
    """The three kinds that an all-gather gives: itself, backwards, both."""
    return {_K.ALL_GATHER: make, _K.REDUCE_SCATTER: _backwards(make), _K.ALL_REDUCE: _there_and_back(make)}


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "ring",
            _gathering(_ring_all_gather),
            _ALONG,
            "Each member passes one block to the next per step; on a line the closing message travels back over all links "
            "(Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009).",
        ),
        Algorithm(
            "bidirectional",
            _gathering(_bidirectional_all_gather),
            _ALONG,
            "Blocks travel up and down at once, so both directions of a link work (bidirectional ring; Chan, Heimlich, "
            "Purkayastha and van de Geijn, Concurr. Comput. 19, 2007).",
        ),
        Algorithm(
            "direct",
            _gathering(_direct_all_gather)
            | {
                _K.ALL_TO_ALL: _direct_all_to_all,
                _K.SCATTER: _direct_scatter,
                _K.GATHER: _backwards(_direct_scatter, combine=False),
                _K.BROADCAST: _direct_broadcast,
                _K.REDUCE: _backwards(_direct_broadcast),
            },
            _ANYWHERE,
            "Every member sends straight to those who need it, in one step; an all-reduce takes two, reduce-scatter and "
            "all-gather (flat algorithms; Chan et al. 2007).",
        ),
        Algorithm(
            "one-shot",
            {_K.ALL_REDUCE: _one_shot_all_reduce},
            (Topology.FULL,),
            "Every member sends all it has to all others and adds up for itself: one hop, n times the traffic "
            "(one-shot all-reduce of multi-GPU inference).",
            lambda size: size <= 64,
            "at most 64 members (n^3 transfers)",
        ),
        Algorithm(
            "two-shot",
            {_K.BROADCAST: _two_shot_broadcast, _K.REDUCE: _two_shot_reduce},
            (Topology.FULL,),
            "Broadcast as scatter and all-gather, reduce as reduce-scatter and gather, each in one hop (van de Geijn's "
            "long-vector broadcast; Chan et al. 2007).",
        ),
        Algorithm(
            "doubling",
            {_K.ALL_REDUCE: _doubling_all_reduce, _K.ALL_GATHER: _doubling_all_gather},
            _ANYWHERE,
            "Partners at distance 1, 2, 4, ... exchange all they have (recursive doubling; Thakur, Rabenseifner and Gropp, "
            "Int. J. High Perform. Comput. Appl. 19, 2005).",
            _power_of_two,
            _POWERS,
        ),
        Algorithm(
            "halving",
            {_K.REDUCE_SCATTER: _backwards(_doubling_all_gather), _K.ALL_REDUCE: _there_and_back(_doubling_all_gather)},
            _ANYWHERE,
            "Partners at distance n/2, n/4, ... exchange the halves that they are not to keep; an all-reduce then doubles "
            "back (recursive halving, Rabenseifner's algorithm; Thakur et al. 2005).",
            _power_of_two,
            _POWERS,
        ),
        Algorithm(
            "chain",
            {
                _K.BROADCAST: _chain_broadcast,
                _K.REDUCE: _backwards(_chain_broadcast),
                _K.ALL_REDUCE: _there_and_back(_chain_broadcast),
            },
            _ALONG,
            "The whole payload goes from neighbour to neighbour along the line: towards member 0 to reduce, away from it to "
            "broadcast (linear array; Chan et al. 2007).",
        ),
        Algorithm(
            "pipelined",
            {_K.BROADCAST: _pipelined_broadcast, _K.REDUCE: _backwards(_pipelined_broadcast)},
            _ALONG,
            "A chain whose chunks follow each other, so that all links work at once (pipelined linear array; Chan et al. 2007).",
        ),
        Algorithm(
            "centre",
            {_K.ALL_REDUCE: _centre_all_reduce},
            (Topology.LINE,),
            "Chains from both ends meet in the centre and return: as many hops as the line is long, the fewest possible "
            "(reduce and broadcast rooted at the centre of a linear array).",
        ),
        Algorithm(
            "neighbour",
            {_K.SHIFT: _neighbour_shift},
            _ANYWHERE,
            "Member i sends its own block to member i + 1, in one step (point to point).",
        ),
    )
}
"""Every algorithm by name. Whatever is added here is checked by `verify` for all sizes in tests/laws/test_network.py."""


# --- using the tables ----------------------------------------------------------------------------------------------------


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
    return [maximum(minimum(elements - index * chunk, chunk), 0) for index in range(size)]


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
    return tuple(zip(path, path[1:], strict=False))


@dataclass(frozen=True, slots=True)
class Profile:
    """What one execution costs, in chunks.

    ``hops``: sum over steps of the longest route. ``load``: sum over steps of the most chunks that cross one directed link
    in that step. ``crossings[l][c]``: how often chunk c crosses ``links[l]`` (links that nothing crosses are left out).
    ``sends``, ``receives``, ``combines``, per chunk: its transfers, its arrivals, and those arrivals that combine.
    """

    hops: int
    load: int
    links: tuple[Link, ...]
    crossings: tuple[tuple[int, ...], ...]
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    combines: tuple[int, ...]


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
    for step in steps(kind, algorithm, topology, size):
        longest, at_once = 0, Counter[Link]()
        for transfer in step:
            path = route(topology, size, transfer.source, transfer.target)
            longest = max(longest, len(path))
            sends[transfer.chunk] += 1
            combines[transfer.chunk] += transfer.combine
            for link in path:
                at_once[link] += 1
                crossings.setdefault(link, [0] * chunks)[transfer.chunk] += 1
        hops += longest
        load += max(at_once.values())
    links = tuple(sorted(crossings))
    # every transfer that leaves arrives
    return Profile(hops, load, links, tuple(tuple(crossings[k]) for k in links), tuple(sends), tuple(sends), tuple(combines))


def _check_size(topology: Topology, size: int) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise BadInput(Fault(f"an axis of topology {topology}", "a whole number of members, at least 1", repr(size)))


# --- checking the tables -------------------------------------------------------------------------------------------------

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
