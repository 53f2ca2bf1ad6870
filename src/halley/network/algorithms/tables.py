"""Step tables: what a collective has to do, who sends which chunk when, and the check that a table keeps its promise.

A collective runs in steps; a step is a set of `Transfer`s that happen at once, each reading what its source held before the
step. Payloads travel in chunks (``n`` ranks):

    all-reduce, reduce, broadcast, point-to-point   chunk c = the c-th of m pieces of the flat payload; m = n unless said
    reduce-scatter, scatter                         chunk c = the shard of rank c
    all-gather, gather, shift                       chunk c = the block of rank c
    all-to-all                                      chunk i n + j = what rank i holds for rank j
    barrier                                         one chunk, without bytes

Where a table cuts shards or blocks further, into k pieces each, chunk c is piece c mod k of the share c div k. Results of reduce
and gather lie on rank 0; broadcast, scatter and point-to-point start there; the latter ends on rank n - 1. Tables know neither
bytes nor routes.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import NamedTuple, TypeAlias, assert_never

from halley.errors import Fault, InternalError
from halley.formulas.numbers import Number, ceil_div, maximum, minimum
from halley.ir.mapping import CollectiveKind


class Pattern(StrEnum):
    """What ranks of a network do together and the mapping language of a chip has no word for."""

    POINT_TO_POINT = "point-to-point"
    BARRIER = "barrier"


Kind: TypeAlias = CollectiveKind | Pattern

KINDS: tuple[Kind, ...] = (*CollectiveKind, *Pattern)

_K, _P = CollectiveKind, Pattern

WHOLE: tuple[Kind, ...] = (_K.ALL_REDUCE, _K.REDUCE, _K.BROADCAST, _P.POINT_TO_POINT)
"""Kinds whose payload is one flat vector, cut into as many chunks as an algorithm likes."""


class Transfer(NamedTuple):
    """One chunk goes from ``source`` to ``target``. ``combine``: the target adds it (by the monoid) to its own copy, which
    it must have; otherwise the chunk replaces or creates the target's copy. ``shared``: switches carry it together with the
    step's other shared transfers of that chunk: one copy on a link, sent on to several, and what several send added up; one
    from a rank to itself is its own copy, which goes to the switch and comes back among the others."""

    source: int
    target: int
    chunk: int
    combine: bool
    shared: bool = False


Steps: TypeAlias = tuple[tuple[Transfer, ...], ...]
"""A step table. The transfers of one step happen at once."""


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


def chunk_count(kind: Kind, size: int) -> int:
    """Chunks that a collective among ``size`` members names, where shares are not cut further.

    >>> chunk_count(CollectiveKind.ALL_TO_ALL, 3), chunk_count(Pattern.BARRIER, 3)
    (9, 1)
    """
    if kind is Pattern.BARRIER:
        return 1
    return size * size if kind is CollectiveKind.ALL_TO_ALL else size


Held: TypeAlias = dict[tuple[int, int], Counter[int]]
"""By (member, chunk): how often each member's contribution is in that member's copy of the chunk."""


def start(kind: Kind, size: int, chunks: int | None = None) -> Held:
    """Who holds what before the collective. A contribution is named after the member that it comes from."""
    count = chunk_count(kind, size) if chunks is None else chunks
    members, every = range(size), range(count)
    match kind:
        case _K.ALL_REDUCE | _K.REDUCE_SCATTER | _K.REDUCE | _P.BARRIER:
            return {(i, c): Counter([i]) for i in members for c in every}
        case _K.ALL_GATHER | _K.GATHER | _K.SHIFT:
            return {(owner, c): Counter([owner]) for c, owner in _owned(size, count)}
        case _K.BROADCAST | _K.SCATTER | _P.POINT_TO_POINT:
            return {(0, c): Counter([0]) for c in every}
        case _K.ALL_TO_ALL:
            return {(pair // size, c): Counter([pair // size]) for c, pair in _owned(size * size, count)}
        case _:
            assert_never(kind)


def promise(kind: Kind, size: int, chunks: int | None = None) -> Held:
    """Who must hold what after it; copies that are not named may hold anything."""
    count = chunk_count(kind, size) if chunks is None else chunks
    members, every = range(size), range(count)
    full = Counter(members)
    match kind:
        case _K.ALL_REDUCE | _P.BARRIER:
            return {(i, c): full for i in members for c in every}
        case _K.REDUCE_SCATTER:
            return {(owner, c): full for c, owner in _owned(size, count)}
        case _K.REDUCE:
            return {(0, c): full for c in every}
        case _K.ALL_GATHER:
            return {(i, c): Counter([owner]) for i in members for c, owner in _owned(size, count)}
        case _K.GATHER:
            return {(0, c): Counter([owner]) for c, owner in _owned(size, count)}
        case _K.BROADCAST:
            return {(i, c): Counter([0]) for i in members for c in every}
        case _P.POINT_TO_POINT:
            return {(size - 1, c): Counter([0]) for c in every}
        case _K.SCATTER:
            return {(owner, c): Counter([0]) for c, owner in _owned(size, count)}
        case _K.ALL_TO_ALL:
            return {(pair % size, c): Counter([pair // size]) for c, pair in _owned(size * size, count)}
        case _K.SHIFT:
            return {(owner + 1, c): Counter([owner]) for c, owner in _owned(size, count) if owner < size - 1}
        case _:
            assert_never(kind)


def _owned(shares: int, chunks: int) -> list[tuple[int, int]]:
    """(chunk, share that it is a piece of)."""
    return [(chunk, chunk * shares // chunks) for chunk in range(chunks)]


def verify(kind: Kind, table: Steps, size: int, chunks: int | None = None) -> None:
    """Replay a table on symbols: InternalError unless every member ends with what the collective promises, each
    contribution exactly once (in a barrier at least once)."""
    held = start(kind, size, chunks)
    for number, step in enumerate(table):
        before = dict(held)
        replaced: set[tuple[int, int]] = set()
        for transfer in step:
            source, target = (transfer.source, transfer.chunk), (transfer.target, transfer.chunk)
            where = f"{kind} among {size}, step {number}, {transfer}"
            if transfer.shared and transfer.source == transfer.target:
                continue  # what comes back has what was there already
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
    for (member, chunk), wanted in promise(kind, size, chunks).items():
        found = held.get((member, chunk))
        kept = found is not None and (set(found) == set(wanted) if kind is Pattern.BARRIER else found == wanted)
        if not kept:
            where = f"{kind} among {size}, chunk {chunk} on member {member}"
            raise InternalError(Fault(where, f"contributions {dict(wanted)}", str(dict(found)) if found else "nothing"))
