"""Layouts of one dim over members: the loops and splits that cut it, and whether one layout contains another.

A `Chain` lists the cuts of one dim, outermost first. A member has the union, over all iterations of the loops in time, of the
ranges that the chain selects for it.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

AxisKey: TypeAlias = tuple[str, str]
"""(level, axis)."""
Interval: TypeAlias = tuple[int, int]
Active: TypeAlias = Mapping[AxisKey, Interval]
"""By axis: the members [first, stop) that are active; on other axes all are."""

Shifts: TypeAlias = Mapping[AxisKey, Interval]
"""By axis with a shift: its members [first, stop). Each but the first also has the data of the member before it."""

RANGE_LIMIT = 20_000
"""Largest number of ranges that `covers` enumerates; beyond it, chains that are not equal count as incompatible."""


@dataclass(frozen=True, slots=True)
class DimCut:
    """One loop (``axis`` None) or split. Tile i of a split goes to member ``first + i``. A ``tile`` of 0 means ``parts`` even
    tiles, the result of a scatter, reduce-scatter or all-to-all."""

    tile: int
    axis: AxisKey | None = None
    first: int = 0
    parts: int = 0

    def size(self, extent: int) -> int:
        return self.tile or max(-(-extent // self.parts), 1)


Chain: TypeAlias = tuple[DimCut, ...]


def extents_after(extents: frozenset[int], cut: DimCut) -> frozenset[int]:
    """The non-zero sizes that a range can have inside a cut.

    >>> sorted(extents_after(frozenset({10, 3}), DimCut(4)))
    [2, 3, 4]
    """
    tiles = ((extent, cut.size(extent)) for extent in extents)
    return frozenset(size for extent, tile in tiles for size in (min(extent, tile), extent % tile) if size)


def restrict(chain: Chain, axes: Iterable[AxisKey]) -> Chain:
    """The chain in a memory that is private to members of these axes only: splits over other axes become loops, as the data of
    their members is in the same instance.

    >>> restrict((DimCut(8, ("core", "x")), DimCut(4, ("cluster", "x"))), [("cluster", "x")])
    (DimCut(tile=8, axis=None, first=0, parts=0), DimCut(tile=4, axis=('cluster', 'x'), first=0, parts=0))
    """
    kept = set(axes)
    return tuple(cut if cut.axis in kept else replace(cut, axis=None, first=0) for cut in chain)


def _trimmed(chain: Chain) -> Chain:
    """The chain without the loops inside the last split, which together cover their whole range."""
    length = len(chain)
    while length and chain[length - 1].axis is None:
        length -= 1
    return chain[:length]


def beyond(chain: Chain, prefix: Chain) -> Chain:
    """The cuts of a chain after the common prefix with another one, without loops inside the last split."""
    chain, common = _trimmed(chain), 0
    while common < min(len(chain), len(prefix)) and chain[common] == prefix[common]:
        common += 1
    return chain[common:]


def distributing_cuts(chain: Chain, prefix: Chain, extent: int) -> list[DimCut]:
    """The cuts of a chain beyond a prefix that distribute data: its splits, and its loops that have more than one iteration.

    >>> x = ("cluster", "x")
    >>> [cut.tile for cut in distributing_cuts((DimCut(2), DimCut(3, x)), (), 8)]
    [2, 3]
    >>> [cut.tile for cut in distributing_cuts((DimCut(8), DimCut(3, x)), (), 8)]
    [3]
    """
    further, extents, found = len(beyond(chain, prefix)), frozenset({extent}), []
    chain = _trimmed(chain)
    for index, cut in enumerate(chain):
        if index >= len(chain) - further and (cut.axis or _parts(cut, extents) > 1):
            found.append(cut)
        extents = extents_after(extents, cut)
    return found


def most_parts(chain: Chain, extent: int) -> int:
    """The largest number of parts that the last cut of a chain makes.

    >>> most_parts((DimCut(2), DimCut(3, ("cluster", "x"))), 8)
    1
    """
    extents = frozenset({extent})
    for cut in chain[:-1]:
        extents = extents_after(extents, cut)
    return _parts(chain[-1], extents)


def _parts(cut: DimCut, extents: frozenset[int]) -> int:
    return max(-(-size // cut.size(size)) for size in extents)


def least_parts(chain: Chain, joined: AxisKey, extent: int) -> int:
    """The smallest number of parts that the last cut of a chain makes if members of the axis ``joined`` count as one, the first
    of which has the largest range.

    >>> x, y = ("cluster", "x"), ("cluster", "y")
    >>> least_parts((DimCut(3, x), DimCut(2, y)), x, 4), least_parts((DimCut(3, x), DimCut(2, y)), y, 4)
    (2, 1)
    """
    extents = frozenset({extent})
    for cut in chain[:-1]:
        first = frozenset(min(size, cut.size(size)) for size in extents)
        extents = first if cut.axis == joined else extents_after(extents, cut)
    return min(-(-size // chain[-1].size(size)) for size in extents)


def all_at_work(chain: Chain, extent: int, sizes: Mapping[AxisKey, int]) -> bool:
    """Whether all members, in lockstep, have a non-empty range in every iteration of a chain.

    >>> all_at_work((DimCut(4, ("cluster", "x")), DimCut(2)), 8, {("cluster", "x"): 2})
    True
    >>> all_at_work((DimCut(4, ("cluster", "x")), DimCut(2)), 6, {("cluster", "x"): 2})   # 2 and 2 | 2 and none
    False
    """
    found = {frozenset({extent})}  # sets of sizes that members have in the same iteration
    for cut in chain:
        inside = set[frozenset[int]]()
        for at_once in found:
            tiles = [(size, cut.size(size)) for size in at_once]
            if cut.axis is not None:
                inside.add(frozenset(_tile(size, tile, i) for size, tile in tiles for i in range(sizes[cut.axis])))
                continue
            steps = max(-(-size // tile) for size, tile in tiles)
            inside.update(frozenset(_tile(size, tile, i) for size, tile in tiles) for i in range(steps))
        if any(0 in at_once for at_once in inside):
            return False
        found = inside
    return True


def comes_again(chain: Chain, outside: int, axis: AxisKey, extent: int, members: int) -> bool:
    """Whether a member of an axis other than the first has a non-empty range, in an iteration after the first, of the loops of a
    chain that follow its first ``outside`` cuts.

    >>> x = ("cluster", "x")
    >>> comes_again((DimCut(4, x), DimCut(2)), 0, x, 8, 2)
    True
    >>> comes_again((DimCut(4), DimCut(2, x)), 0, x, 5, 2)   # 2 and 2 | 1 and none
    False
    """
    found = {(extent, False)}  # (size of the range, whether it is in an iteration after the first)
    for index, cut in enumerate(chain):
        inside = set[tuple[int, bool]]()
        for size, again in found:
            tile = cut.size(size)
            parts = -(-size // tile)
            mine = range(1 if cut.axis == axis else 0, min(parts, members) if cut.axis == axis else parts)
            looped = cut.axis is None and index >= outside
            # the first two parts and the last one represent all
            for part in {*mine[:2], *mine[-1:]}:
                inside.add((_tile(size, tile, part), again or (looped and part > 0)))
        found = inside
    return any(again for _, again in found)


def _tile(size: int, tile: int, index: int) -> int:
    return max(min(size - index * tile, tile), 0)


def ranges(chain: Chain, range_: Interval, member: Mapping[AxisKey, int]) -> Iterator[Interval]:
    """The ranges, in order of time, that a chain selects for one member.

    >>> list(ranges((DimCut(4), DimCut(2, ("a", "x"))), (0, 7), {("a", "x"): 1}))
    [(2, 4), (6, 7)]
    """
    start, stop = range_
    if start >= stop:
        return
    if not chain:
        yield range_
        return
    cut, rest = chain[0], chain[1:]
    tile = cut.size(stop - start)
    if cut.axis is None:
        for begin in range(start, stop, tile):
            yield from ranges(rest, (begin, min(begin + tile, stop)), member)
    else:
        begin = start + (member[cut.axis] - cut.first) * tile
        if begin >= start:
            yield from ranges(rest, (begin, min(begin + tile, stop)), member)


def covers(
    have: Chain, read: Chain, active: Active, extent: int, sizes: Mapping[AxisKey, int], shifted: Shifts | None = None
) -> bool:
    """Whether every active member has, by the layout ``have`` of a dim, all indices that the ranges of ``read`` select.

    ``sizes``: the number of members of each axis. ``shifted``: axes on which each member also has the data of the one before.

    >>> x = ("cluster", "x")
    >>> covers((DimCut(4, x),), (DimCut(4, x),), {}, 8, {x: 2})
    True
    >>> covers((DimCut(4, x),), (), {}, 8, {x: 2})   # member 1 lacks the first half
    False
    >>> covers((DimCut(4, x),), (), {x: (0, 1)}, 4, {x: 2})   # only member 0 works, and it has all
    True
    """
    read = _trimmed(read)
    common = len(_trimmed(have)) - len(beyond(have, read))
    extents = frozenset({extent})
    for cut in have[:common]:
        extents = extents_after(extents, cut)
    have, read = beyond(have, read), read[common:]
    if all(cut.axis is None for cut in have):
        return True
    axes = sorted({cut.axis for chain in (have, read) for cut in chain if cut.axis})
    budget = RANGE_LIMIT
    for range_extent in extents:
        for indices in itertools.product(*(range(sizes[axis]) for axis in axes)):
            member = dict(zip(axes, indices, strict=True))
            if not _takes_part(member, active):
                continue
            pieces = (ranges(have, (0, range_extent), owner) for owner in _owners(member, shifted or {}))
            owned = list(itertools.islice(_joined(heapq.merge(*pieces)), budget))
            wanted = list(itertools.islice(ranges(read, (0, range_extent), member), budget))
            budget -= len(owned) + len(wanted)
            if budget <= 0 or not all(_inside(owned, each) for each in wanted):
                return False
    return True


def _owners(member: Mapping[AxisKey, int], shifted: Shifts) -> Iterator[Mapping[AxisKey, int]]:
    """The member itself, and the members whose data shifts have copied to it."""
    yield member
    for axis, (first, stop) in shifted.items():
        if axis in member and first < member[axis] < stop:
            yield {**member, axis: member[axis] - 1}


def _takes_part(member: Mapping[AxisKey, int], active: Active) -> bool:
    return all(axis not in member or first <= member[axis] < stop for axis, (first, stop) in active.items())


def _joined(pieces: Iterable[Interval]) -> Iterator[Interval]:
    """The ranges with adjacent ones merged."""
    current: Interval | None = None
    for start, stop in pieces:
        if current and current[1] == start:
            current = (current[0], stop)
            continue
        if current:
            yield current
        current = (start, stop)
    if current:
        yield current


def _inside(owned: Sequence[Interval], wanted: Interval) -> bool:
    position = bisect_right(owned, wanted[0], key=lambda piece: piece[0]) - 1
    return position >= 0 and wanted[1] <= owned[position][1]
