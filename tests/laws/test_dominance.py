"""Algorithms that a search leaves out, on an axis of a chip: one that is left in costs no more, whatever is moved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from halley.ir.hardware import CHIP_TOPOLOGIES, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import Able
from halley.network.time.axis import PLAIN, Port, Rates, algorithms, steps
from halley.network.time.dominance import LINKS, worthwhile

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


def cost(
    kind: CollectiveKind, name: str, topology: Topology, size: int, chunks: Sequence[int], port: float = 0.0
) -> tuple[float, ...]:
    """Hops, steps, whether members add, time of the busiest links or memory (1 and ``port`` a byte), bytes over links, bytes
    sent, bytes combined: replayed message by message."""
    hops = moved = sent = combined = 0
    adding, busiest = False, 0.0
    table = steps(kind, name, topology, size)
    read: Counter[int] = Counter()
    written: Counter[int] = Counter()
    for step in table:
        links: Counter[tuple[int, int]] = Counter()
        longest = 0
        for message in step:
            path, amount = way(topology, size, message.source, message.target), chunks[message.chunk]
            longest = max(longest, len(path))
            links.update(dict.fromkeys(path, amount))
            read[message.source] += amount
            read[message.target] += amount * message.combine
            written[message.target] += amount
            moved += len(path) * amount
            sent += amount
            combined += amount * message.combine
        hops, adding = hops + longest, adding or any(message.combine for message in step)
        busiest += max(links.values(), default=0)
    busiest = max(busiest, port * max((*read.values(), *written.values()), default=0))
    return hops, len(table), adding, busiest, moved, sent, combined


def stepless(kind: CollectiveKind, name: str, topology: Topology, size: int, chunks: Sequence[int]) -> tuple[float, ...]:
    hops, _, *rest = cost(kind, name, topology, size, chunks)
    return hops, *rest


def cheaper(mine: Sequence[tuple[float, ...]], theirs: Sequence[tuple[float, ...]]) -> bool:
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
    """One and the same algorithm that is left in costs no more in any respect, for all payloads; steps aside, which cost nothing
    there."""
    for size in SIZES:
        kept = worthwhile(kind, ((topology, size),))
        assert kept
        chunks = payloads(size)
        fitting = algorithms(kind, topology, size)
        costs = {name: [stepless(kind, name, topology, size, own) for own in chunks] for name in fitting}
        for name in set(costs) - set(kept):
            assert any(not cheaper(costs[name], costs[other]) for other in kept), (name, size)


@pytest.mark.parametrize("port", [0.4, 0.5, 1.0])
@pytest.mark.parametrize("topology", CHIP_TOPOLOGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_out_never_costs_less_with_slow_memories(kind: CollectiveKind, topology: Topology, port: float) -> None:
    rates = Rates(1.0, 1.0, (Port(port, port, False),))
    for size in SIZES:
        kept = worthwhile(kind, ((topology, size, PLAIN, rates, True),))
        chunks = payloads(size)
        fitting = algorithms(kind, topology, size)
        costs = {name: [cost(kind, name, topology, size, own, port) for own in chunks] for name in fitting}
        for name in set(costs) - set(kept):
            assert any(not cheaper(costs[name], costs[other]) for other in kept), (name, size)


def test_a_network_that_adds_is_worth_it() -> None:
    """One step instead of several; which is not always less, as all members' parts cross the network."""
    able = Able(multicast=True, reduction=True)
    for stepped in (True, False):
        assert "in-network" in worthwhile(CollectiveKind.ALL_REDUCE, ((Topology.LINE, 4, able, LINKS, stepped),))
        assert "multicast" in worthwhile(CollectiveKind.REDUCE_SCATTER, ((Topology.LINE, 4, able, LINKS, stepped),))
    plain = ((Topology.LINE, 4, PLAIN, LINKS, False),)
    assert worthwhile(CollectiveKind.ALL_REDUCE, plain) == ("bidirectional", "centre")


@pytest.mark.parametrize("topology", CHIP_TOPOLOGIES)
def test_what_is_left_in_is_worth_it(topology: Topology) -> None:
    """No algorithm that is left in is outdone on every payload tried."""
    for kind in KINDS:
        for size in SIZES[1:]:
            kept = worthwhile(kind, ((topology, size),))
            chunks = payloads(size)
            costs = {name: [stepless(kind, name, topology, size, own) for own in chunks] for name in kept}
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
    """So that sums which leave the clusters need no other: scattered, they also leave through all ports at once."""
    for size in SIZES[1:]:
        chunks = payloads(size)
        shared = [
            [cost(CollectiveKind.REDUCE_SCATTER, name, topology, size, own) for own in chunks]
            for name in worthwhile(CollectiveKind.REDUCE_SCATTER, ((topology, size, PLAIN, LINKS, True),))
        ]
        for name in algorithms(kind, topology, size):
            others = [cost(kind, name, topology, size, own) for own in chunks]
            assert any(not cheaper(others, own) for own in shared), (name, size)
