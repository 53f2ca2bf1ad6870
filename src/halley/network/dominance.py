"""Which collective algorithms on an axis are worth a look: those that no other one is at least as good as, whatever is moved.

What a collective costs on an axis of a chip (`halley.cost.exchange`) grows with its hops, with the bytes on the busiest link of
each step, and with the bytes that it sends, combines and moves over links. All of these are sums of chunk sizes, or greatest
ones of such sums, and no chunk is larger than the one before it. So the sizes are sums of *prefixes*: the first i chunks of one
byte, the others of none. What is no more for each prefix is no more for all sizes, as far as it adds up; of the busiest links
it is enough that what the one comes to for each prefix is no more than what some links of the other do, the same for all.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate, product
from math import prod

from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.network.axis import Profile, Row, algorithms, profile

SELECTIONS = 1 << 10
"""Ways to pick a link in every step that are tried; a comparison that would need more is left undecided."""


@cache
def worthwhile(kind: CollectiveKind, axes: tuple[tuple[Topology, int], ...]) -> tuple[str, ...]:
    """Names of the algorithms that fit every one of some axes, (topology, members) each, but for those that another one outdoes
    on all of them; of those that cost the same, the first.

    >>> worthwhile(CollectiveKind.REDUCE_SCATTER, ((Topology.LINE, 4),))
    ('bidirectional',)
    >>> worthwhile(CollectiveKind.ALL_REDUCE, ((Topology.LINE, 4),))   # fewer bytes on a link, or fewer steps
    ('bidirectional', 'centre')
    """
    assert kind is not CollectiveKind.ALL_TO_ALL, "its chunks may have any sizes"
    fitting = sorted(set.intersection(*(set(algorithms(kind, *axis)) for axis in axes)))
    shapes = {name: [profile(kind, name, *axis) for axis in axes] for name in fitting}

    def outdoes(name: str, other: str) -> bool:
        return all(_no_worse(one, two) for one, two in zip(shapes[name], shapes[other], strict=True))

    kept: list[str] = []
    for name in fitting:
        if not any(outdoes(other, name) for other in kept):
            kept = [*(other for other in kept if not outdoes(name, other)), name]
    return tuple(kept)


def _no_worse(one: Profile, two: Profile) -> bool:
    """Whether a collective surely costs no more than another, on any links and for any payload."""
    pairs = ((one.sends, two.sends), (one.combines, two.combines), (one.moves, two.moves))
    return one.hops <= two.hops and all(map(_covered, *zip(*pairs, strict=True))) and _less_busy(one, two)


def _covered(counts: tuple[float, ...], others: tuple[float, ...]) -> bool:
    """Whether every prefix of counts comes to no more."""
    return all(a <= b for a, b in zip(accumulate(counts), accumulate(others), strict=True))


def _less_busy(one: Profile, two: Profile) -> bool:
    """Whether the busiest links of all steps surely have no more to carry. For any chunk sizes, the busiest have no less than
    any picked ones; and no more than the sum of what they have for the prefixes that the sizes are made of."""
    chunks = len(one.sends)
    if prod(len(step) for _, step in two.rows) > SELECTIONS:
        return False
    mine = [one.busiest_bytes(tuple(int(chunk <= last) for chunk in range(chunks)).__getitem__) for last in range(chunks)]
    picked = product(*(step for _, step in two.rows))
    return any(all(a <= b for a, b in zip(mine, _carried(two, rows, chunks), strict=True)) for rows in picked)


def _carried(shape: Profile, rows: tuple[Row, ...], chunks: int) -> list[int]:
    """What picked links of each step carry, for each prefix."""
    carried = [0] * chunks
    for (times, _), row in zip(shape.rows, rows, strict=True):
        for chunk, count in row:
            carried[chunk] += times * count
    return list(accumulate(carried))
