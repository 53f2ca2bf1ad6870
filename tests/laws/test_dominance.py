"""Algorithms that a search leaves out, on an axis of a chip: one that is left in costs no more, whatever is moved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from halley.ir.hardware import CHIP_TOPOLOGIES, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.axis import algorithms, steps
from halley.network.dominance import worthwhile

KINDS = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER)
SIZES = (1, 2, 3, 4, 5, 8)


def way(topology: Topology, size: int, source: int, target: int) -> list[tuple[int, int]]:
    """Links from one member to another, step by step; on a ring the shorter way, up where both are as long."""
    if topology is Topology.FULL:
        return [(source, target)]
    step = 1 if target > source else -1
    if topology is Topology.RING:
        step = 1 if (target - source) % size <= (source - target) % size else -1
    found = []
    while source != target:
        found.append((source, (source + step) % size))
        source = (source + step) % size
    return found


def cost(kind: CollectiveKind, name: str, topology: Topology, size: int, chunks: Sequence[int]) -> tuple[int, ...]:
    """Hops, bytes on the busiest links, bytes over links, bytes sent, bytes combined: replayed message by message."""
    hops = busiest = moved = sent = combined = 0
    for step in steps(kind, name, topology, size):
        links: Counter[tuple[int, int]] = Counter()
        longest = 0
        for message in step:
            path = way(topology, size, message.source, message.target)
            longest = max(longest, len(path))
            links.update(dict.fromkeys(path, chunks[message.chunk]))
            moved += len(path) * chunks[message.chunk]
            sent += chunks[message.chunk]
            combined += chunks[message.chunk] * message.combine
        hops, busiest = hops + longest, busiest + max(links.values(), default=0)
    return hops, busiest, moved, sent, combined


def cheaper(mine: Sequence[tuple[int, ...]], theirs: Sequence[tuple[int, ...]]) -> bool:
    """Whether something of one is less for some payload."""
    return any(a < b for one, two in zip(mine, theirs, strict=True) for a, b in zip(one, two, strict=True))


def payloads(size: int) -> list[list[int]]:
    """Chunk sizes that do not rise: payloads cut into equal chunks, the last ones shorter or empty, and drawn ones."""
    draw = random.Random(size)
    cut = []
    for total in (1, 2, size, 3 * size + 1, 100):
        part = -(-total // size)
        cut.append([max(0, min(part, total - index * part)) for index in range(size)])
    return cut + [sorted((draw.randint(0, 9) for _ in range(size)), reverse=True) for _ in range(60)]


@pytest.mark.parametrize("topology", CHIP_TOPOLOGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_out_never_costs_less(kind: CollectiveKind, topology: Topology) -> None:
    """One and the same algorithm that is left in costs no more in any respect, for all payloads."""
    for size in SIZES:
        kept = worthwhile(kind, ((topology, size),))
        assert kept
        chunks = payloads(size)
        costs = {name: [cost(kind, name, topology, size, own) for own in chunks] for name in algorithms(kind, topology, size)}
        for name in set(costs) - set(kept):
            assert any(not cheaper(costs[name], costs[other]) for other in kept), (name, size)


@pytest.mark.parametrize("topology", CHIP_TOPOLOGIES)
def test_what_is_left_in_is_worth_it(topology: Topology) -> None:
    """No algorithm that is left in is outdone on every payload tried."""
    for kind in KINDS:
        for size in SIZES[1:]:
            kept = worthwhile(kind, ((topology, size),))
            chunks = payloads(size)
            costs = {name: [cost(kind, name, topology, size, own) for own in chunks] for name in kept}
            for name in kept:
                for other in set(kept) - {name}:
                    assert cheaper(costs[name], costs[other]), (kind, size, name, other)


def test_an_algorithm_is_left_out_only_where_it_is_outdone_on_every_axis() -> None:
    both = worthwhile(CollectiveKind.ALL_REDUCE, ((Topology.LINE, 4), (Topology.FULL, 4)))
    for axis in ((Topology.LINE, 4), (Topology.FULL, 4)):
        fitting = set(algorithms(CollectiveKind.ALL_REDUCE, *axis))
        assert set(both) <= fitting


@pytest.mark.parametrize("topology", CHIP_TOPOLOGIES)
@pytest.mark.parametrize("kind", [CollectiveKind.REDUCE, CollectiveKind.ALL_REDUCE])
def test_a_reduce_scatter_costs_no_more_than_other_reductions(kind: CollectiveKind, topology: Topology) -> None:
    """So that sums which leave the clusters need no other: shared out, they also leave through all ports at once."""
    for size in SIZES[1:]:
        chunks = payloads(size)
        shared = [
            [cost(CollectiveKind.REDUCE_SCATTER, name, topology, size, own) for own in chunks]
            for name in worthwhile(CollectiveKind.REDUCE_SCATTER, ((topology, size),))
        ]
        for name in algorithms(kind, topology, size):
            others = [cost(kind, name, topology, size, own) for own in chunks]
            assert any(not cheaper(others, own) for own in shared), (name, size)
