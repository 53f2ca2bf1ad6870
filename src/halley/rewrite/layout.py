"""Who has which indices of a dim: the loops and splits that cut it, and whether one cutting serves another.

A `Chain` lists the cuts of one dim, outermost first. What a member has of the dim is the union, over all iterations of the
loops in time, of the ranges that the chain leaves it.
"""

from __future__ import annotations

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

ENUMERATION_LIMIT = 20_000
"""Most ranges that `covers` looks at; beyond it, two cuttings that are not alike count as different."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One loop (``axis`` None) or split. Tile i of a split goes to member ``first + i``. A ``tile`` of 0 means ``parts`` even
    tiles, as a scattering collective leaves them."""

    tile: int
    axis: AxisKey | None = None
    first: int = 0
    parts: int = 0

    def size(self, extent: int) -> int:
        return self.tile or max(-(-extent // self.parts), 1)


Chain: TypeAlias = tuple[Cut, ...]


def extents_after(extents: frozenset[int], cut: Cut) -> frozenset[int]:
    """The sizes (none of them 0) that a range can have inside a cut.

    >>> sorted(extents_after(frozenset({10, 3}), Cut(4)))
    [2, 3, 4]
    """
    tiles = ((extent, cut.size(extent)) for extent in extents)
    return frozenset(size for extent, tile in tiles for size in (min(extent, tile), extent % tile) if size)


def restrict(chain: Chain, axes: Iterable[AxisKey]) -> Chain:
    """The chain as a memory sees it that lies outside all axes but these: what the members of the others bring comes
    together there, as if their splits had been loops.

    >>> restrict((Cut(8, ("core", "x")), Cut(4, ("cluster", "x"))), [("cluster", "x")])
    (Cut(tile=8, axis=None, first=0, parts=0), Cut(tile=4, axis=('cluster', 'x'), first=0, parts=0))
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


def ranges(chain: Chain, range_: Interval, member: Mapping[AxisKey, int]) -> Iterator[Interval]:
    """The ranges, in order of time, that a chain leaves one member.

    >>> list(ranges((Cut(4), Cut(2, ("a", "x"))), (0, 7), {("a", "x"): 1}))
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


def covers(have: Chain, read: Chain, active: Active, extent: int, sizes: Mapping[AxisKey, int]) -> bool:
    """Whether every active member has, of a dim that one chain cuts, what the ranges of another chain select.

    ``sizes``: the members of each axis.

    >>> x = ("cluster", "x")
    >>> covers((Cut(4, x),), (Cut(4, x),), {}, 8, {x: 2})
    True
    >>> covers((Cut(4, x),), (), {}, 8, {x: 2})   # member 1 lacks the first half
    False
    >>> covers((Cut(4, x),), (), {x: (0, 1)}, 4, {x: 2})   # only member 0 works, and it has all
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
    budget = ENUMERATION_LIMIT
    for range_extent in extents:
        for indices in itertools.product(*(range(sizes[axis]) for axis in axes)):
            member = dict(zip(axes, indices, strict=True))
            if not _takes_part(member, active):
                continue
            owned = list(itertools.islice(_joined(ranges(have, (0, range_extent), member)), budget))
            wanted = list(itertools.islice(ranges(read, (0, range_extent), member), budget))
            budget -= len(owned) + len(wanted)
            if budget <= 0 or not all(_inside(owned, each) for each in wanted):
                return False
    return True


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
