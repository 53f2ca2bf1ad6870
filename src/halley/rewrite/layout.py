"""Who has which indices of a dim: the loops and splits that cut it, and whether one cutting serves another.

A `Chain` lists the cuts of one dim, outermost first. What a member has of the dim is the union, over all iterations of the
loops in time, of the ranges that the chain leaves it.
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
"""By axis: the members [first, stop) that take part; axes that are not named have all."""

Shifts: TypeAlias = Mapping[AxisKey, Interval]
"""By axis along which a shift went: the members [first, stop) of it. Each but the first has what the one before it had, too."""

RANGE_LIMIT = 20_000
"""Most ranges that `covers` looks at; beyond it, two cuttings that are not alike count as different."""


@dataclass(frozen=True, slots=True)
class DimCut:
    """One loop (``axis`` None) or split. Tile i of a split goes to member ``first + i``. A ``tile`` of 0 means ``parts`` even
    tiles, as a scattering collective leaves them."""

    tile: int
    axis: AxisKey | None = None
    first: int = 0
    parts: int = 0

    def size(self, extent: int) -> int:
        return self.tile or max(-(-extent // self.parts), 1)


Chain: TypeAlias = tuple[DimCut, ...]


def extents_after(extents: frozenset[int], cut: DimCut) -> frozenset[int]:
    """The sizes (none of them 0) that a range can have inside a cut.

    >>> sorted(extents_after(frozenset({10, 3}), DimCut(4)))
    [2, 3, 4]
    """
    tiles = ((extent, cut.size(extent)) for extent in extents)
    return frozenset(size for extent, tile in tiles for size in (min(extent, tile), extent % tile) if size)


def restrict(chain: Chain, axes: Iterable[AxisKey]) -> Chain:
    """The chain as a memory sees it that lies outside all axes but these: what the members of the others bring comes
    together there, as if their splits had been loops.

    >>> restrict((DimCut(8, ("core", "x")), DimCut(4, ("cluster", "x"))), [("cluster", "x")])
    (DimCut(tile=8, axis=None, first=0, parts=0), DimCut(tile=4, axis=('cluster', 'x'), first=0, parts=0))
    """
    kept = set(axes)
    return tuple(cut if cut.axis in kept else replace(cut, axis=None, first=0) for cut in chain)


def _trimmed(chain: Chain) -> Chain:
    """Without the loops behind the last split: together they walk the range that they find."""
    length = len(chain)
    while length and chain[length - 1].axis is None:
        length -= 1
    return chain[:length]


def beyond(chain: Chain, prefix: Chain) -> Chain:
    """What a chain cuts further than another, as far as members notice it."""
    chain, common = _trimmed(chain), 0
    while common < min(len(chain), len(prefix)) and chain[common] == prefix[common]:
        common += 1
    return chain[common:]


def distributing_cuts(chain: Chain, prefix: Chain, extent: int) -> list[DimCut]:
    """Of what a chain cuts further than a prefix, the splits, and the loops that ever find more than a single tile.

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
    """The most parts that the last cut of a chain makes of what it finds.

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
    """The fewest parts that the last cut of a chain makes where members of the axis ``joined`` count as one: the first of them
    has the most.

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
    """Whether members that walk a chain in lockstep all have something in every iteration.

    >>> all_at_work((DimCut(4, ("cluster", "x")), DimCut(2)), 8, {("cluster", "x"): 2})
    True
    >>> all_at_work((DimCut(4, ("cluster", "x")), DimCut(2)), 6, {("cluster", "x"): 2})   # 2 and 2 | 2 and none
    False
    """
    found = {frozenset({extent})}  # what the members find at once
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
    """Whether another than the first of an axis' ``members`` has something behind a chain, in an iteration after the first of
    the loops that follow its ``outside`` first cuts.

    >>> x = ("cluster", "x")
    >>> comes_again((DimCut(4, x), DimCut(2)), 0, x, 8, 2)
    True
    >>> comes_again((DimCut(4), DimCut(2, x)), 0, x, 5, 2)   # 2 and 2 | 1 and none
    False
    """
    found = {(extent, False)}  # what one of them finds, and whether a loop has come round to it
    for index, cut in enumerate(chain):
        inside = set[tuple[int, bool]]()
        for size, again in found:
            tile = cut.size(size)
            parts = -(-size // tile)
            mine = range(1 if cut.axis == axis else 0, min(parts, members) if cut.axis == axis else parts)
            looped = cut.axis is None and index >= outside
            # of parts of a full tile, the first two tell all
            for part in {*mine[:2], *mine[-1:]}:
                inside.add((_tile(size, tile, part), again or (looped and part > 0)))
        found = inside
    return any(again for _, again in found)


def _tile(size: int, tile: int, index: int) -> int:
    return max(min(size - index * tile, tile), 0)


def ranges(chain: Chain, range_: Interval, member: Mapping[AxisKey, int]) -> Iterator[Interval]:
    """The ranges, in order of time, that a chain leaves one member.

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
    """Whether every active member has, of a dim that one chain cuts, what the ranges of another chain select.

    ``sizes``: the members of each axis. ``shifted``: axes on which each member has what the one before it had, too.

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
    """The member itself, and those whose ranges a shift has brought to it."""
    yield member
    for axis, (first, stop) in shifted.items():
        if axis in member and first < member[axis] < stop:
            yield {**member, axis: member[axis] - 1}


def _takes_part(member: Mapping[AxisKey, int], active: Active) -> bool:
    return all(axis not in member or first <= member[axis] < stop for axis, (first, stop) in active.items())


def _joined(pieces: Iterable[Interval]) -> Iterator[Interval]:
    """Neighbouring ranges as one."""
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
