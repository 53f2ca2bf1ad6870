"""Collective algorithms as step tables.

A collective runs in steps; a step is a set of `Transfer`s that happen at once, each reading what its source held before the
step. Payloads travel in chunks (``n`` members):

    all-reduce, reduce, broadcast   chunk c = the c-th of n pieces of the flat payload
    reduce-scatter, scatter         chunk c = the shard of member c
    all-gather, gather, shift       chunk c = the block of member c
    all-to-all                      chunk i n + j = what member i holds for member j

Results of reduce and gather lie on member 0; broadcast and scatter start there. Tables know neither bytes nor routes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind


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


def _two_shot_broadcast(_: Topology, n: int) -> Steps:
    # the root needs nothing back
    again = [Transfer(i, j, i, False) for i in range(n) for j in range(1, n) if i != j]
    return _steps([(Transfer(0, j, j, False) for j in range(1, n)), again])


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
            {_K.BROADCAST: _two_shot_broadcast, _K.REDUCE: _backwards(_two_shot_broadcast)},
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
