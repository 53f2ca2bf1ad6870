"""Which collective algorithms on an axis are worth a look: those that no other one is at least as good as, whatever is moved.

What a collective costs on an axis of a chip (`halley.cost.collective`) grows with its hops, its steps and the adders passed, with
the time that the busiest link of each step or the busiest memory takes, and with the bytes that it sends, combines and moves over
links. All of these are numbers, sums of chunk sizes, or greatest ones of such sums, and no chunk is larger than the one before
it. So the sizes are sums of *prefixes*: the first i chunks of one byte, the others of none. What is no more for each prefix is no
more for all sizes, as far as it adds up; of the busiest links and memories it is enough that what the one comes to for each
prefix is no more than what some links or memories of the other do, the same for all.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate, product
from math import prod
from typing import NamedTuple, TypeAlias

from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS, Able
from halley.network.time.axis import PLAIN, Profile, Rates, Row, Rows, algorithms, busiest, profile, streams

SELECTIONS = 1 << 10
"""Ways to pick a link in every step that are tried; a comparison that would need more is left undecided."""


LINKS = Rates(1.0, 1.0, ())
"""Where links alone take time."""

Place: TypeAlias = tuple[Topology, int] | tuple[Topology, int, Able, Rates, bool]
"""An axis: topology, members, what its network does, how fast it and the memories are, whether a step costs something whatever
its bytes; or one where links alone count."""


@cache
def worthwhile(kind: CollectiveKind, axes: tuple[Place, ...]) -> tuple[str, ...]:
    """Names of the algorithms that fit every one of some axes but for those that another one outdoes on all of them; of those
    that cost the same, the first.

    >>> worthwhile(CollectiveKind.REDUCE_SCATTER, ((Topology.LINE, 4),))
    ('bidirectional',)
    >>> worthwhile(CollectiveKind.ALL_REDUCE, ((Topology.LINE, 4),))   # fewer bytes on a link, or fewer steps
    ('bidirectional', 'centre')
    """
    assert kind is not CollectiveKind.ALL_TO_ALL, "its chunks may have any sizes"
    places = [axis if len(axis) == 5 else (*axis, PLAIN, LINKS, False) for axis in axes]
    fitting = sorted(set.intersection(*(set(algorithms(kind, *place[:3])) for place in places)))
    shapes = {name: [_Shape.of(kind, name, *place) for place in places] for name in fitting}

    def outdoes(name: str, other: str) -> bool:
        return all(_no_worse(one, two) for one, two in zip(shapes[name], shapes[other], strict=True))

    kept: list[str] = []
    for name in fitting:
        if not any(outdoes(other, name) for other in kept):
            kept = [*(other for other in kept if not outdoes(name, other)), name]
    return tuple(kept)


class _Shape(NamedTuple):
    """What an algorithm costs on an axis: the rows of its steps (seconds for each chunk on each link), those of the members'
    memories that may take longer, and how many steps there are, where they cost something."""

    counts: Profile
    network: bool
    rows: Rows
    members: tuple[Row, ...]
    steps: int

    @classmethod
    def of(
        cls, kind: CollectiveKind, name: str, topology: Topology, size: int, able: Able, rates: Rates, stepped: bool
    ) -> _Shape:
        counts = profile(kind, name, topology, size)
        found = streams(kind, name, topology, size, rates)
        rows = (
            found.links
            if found
            else tuple(
                (times, tuple(tuple((chunk, count * rates.link) for chunk, count in row) for row in step))
                for times, step in counts.rows
            )
        )
        return cls(counts, ALGORITHMS[name].network, rows, found.members if found else (), counts.steps if stepped else 0)


def _no_worse(first: _Shape, second: _Shape) -> bool:
    """Whether a collective surely costs no more than another, whatever a hop, a step and an adder take, and for any payload."""
    one, two = first.counts, second.counts
    if one.hops > two.hops or first.steps > second.steps:
        return False
    if one.additions and (first.network is not second.network or one.additions > two.additions):
        return False
    pairs = ((one.sends, two.sends), (one.receives, two.receives), (one.combines, two.combines), (one.adds, two.adds))
    return all(map(_covered, *zip(*pairs, (one.moves, two.moves), strict=True))) and _less_busy(first, second)


def _covered(counts: tuple[float, ...], others: tuple[float, ...]) -> bool:
    """Whether every prefix of counts comes to no more."""
    return all(a <= b for a, b in zip(accumulate(counts), accumulate(others), strict=True))


def _less_busy(one: _Shape, two: _Shape) -> bool:
    """Whether the busiest links of all steps, and the busiest memory, surely take no more. For any chunk sizes, the busiest take
    no less than any picked ones; and no more than the sum of what they take for the prefixes that the sizes are made of."""
    chunks = len(one.counts.sends)
    if prod(len(step) for _, step in two.rows) > SELECTIONS:
        return False
    prefixes = [tuple(int(chunk <= last) for chunk in range(chunks)) for last in range(chunks)]
    mine = [float(busiest(one.rows, prefix.__getitem__)) for prefix in prefixes]
    carried = [_carried(two, rows, chunks) for rows in product(*(step for _, step in two.rows))]
    others = [*carried, *(_summed(row, chunks) for row in two.members)]

    def covered(sums: list[float], others: list[list[float]]) -> bool:
        return any(all(a <= b for a, b in zip(sums, other, strict=True)) for other in others)

    return covered(mine, carried) and all(covered(_summed(row, chunks), others) for row in one.members)


def _summed(row: Row, chunks: int) -> list[float]:
    """What a row takes, for each prefix."""
    taken = [0.0] * chunks
    for chunk, count in row:
        taken[chunk] += count
    return list(accumulate(taken))


def _carried(shape: _Shape, rows: tuple[Row, ...], chunks: int) -> list[float]:
    """What picked rows of each step take, for each prefix."""
    carried = [0.0] * chunks
    for (times, _), row in zip(shape.rows, rows, strict=True):
        for chunk, count in row:
            carried[chunk] += times * count
    return list(accumulate(carried))
