"""Rings: blocks go round, one way or both ways at once."""

from __future__ import annotations

from collections.abc import Iterator

from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.algorithm import Algorithm, Setting, gathering, table_of
from halley.network.algorithms.tables import Steps, Transfer

ALONG = (Topology.LINE, Topology.RING)


def ring_all_gather(at: Setting) -> Steps:
    n = at.ranks
    return table_of((Transfer(i, (i + 1) % n, (i - step) % n, False) for i in range(n)) for step in range(n - 1))


def bidirectional_all_gather(at: Setting) -> Steps:
    n, ring = at.ranks, not at.line
    up, down = (n // 2, (n - 1) // 2) if ring else (n - 1, n - 1)  # how far a block travels each way

    def step(t: int) -> Iterator[Transfer]:
        for i in range(n):
            if t < up and (ring or (i + 1 < n and i - t >= 0)):
                yield Transfer(i, (i + 1) % n, (i - t) % n, False)
            if t < down and (ring or (i > 0 and i + t < n)):
                yield Transfer(i, (i - 1) % n, (i + t) % n, False)

    return table_of(step(t) for t in range(up))


def halved_all_gather(at: Setting) -> Steps:
    """As `bidirectional_all_gather`, for an even number of ranks. Chunks 2 i and 2 i + 1 are the halves of the block of rank i;
    of the block that comes from the opposite rank, each half comes from another side."""
    n = at.ranks
    far = n // 2 - 1  # steps in which whole blocks travel

    def step(t: int) -> Iterator[Transfer]:
        for i in range(n):
            for half in (0, 1) if t < far else (0,):
                yield Transfer(i, (i + 1) % n, 2 * ((i - t) % n) + half, False)
            for half in (0, 1) if t < far else (1,):
                yield Transfer(i, (i - 1) % n, 2 * ((i + t) % n) + half, False)

    return table_of(step(t) for t in range(far + 1))


def round_all_to_all(at: Setting) -> Steps:
    """Every rank passes on all that is not for it; after t steps it has the rest of what the rank t before it sent."""
    n = at.ranks
    return table_of(
        (
            Transfer(i, (i + 1) % n, (i - t) % n * n + (i + ahead) % n, False)
            for i in range(n)
            for ahead in range(1, n - t)  # the ranks that the sender's blocks have not reached yet
        )
        for t in range(n - 1)
    )


RINGS = (
    Algorithm(
        "ring",
        gathering(ring_all_gather),
        "Each member passes one block to the next per step; on a line the closing message travels back over all links "
        "(Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009).",
        ALONG,
    ),
    Algorithm(
        "bidirectional",
        gathering(bidirectional_all_gather),
        "Blocks travel up and down at once, so both directions of a link work (bidirectional ring; Chan, Heimlich, "
        "Purkayastha and van de Geijn, Concurr. Comput. 19, 2007).",
        ALONG,
    ),
    Algorithm(
        "bidirectional-halved",
        gathering(halved_all_gather),
        "As bidirectional on a ring; of the block of the opposite member one half arrives from each side, so that both "
        "directions carry the same (meets the node bound of Chan et al., Concurr. Comput. 19, 2007).",
        admits=lambda size: size >= 4 and size % 2 == 0,
        sizes="an even number of members, at least 4",
        parts=2,
    ),
    Algorithm(
        "store-and-forward",
        {CollectiveKind.ALL_TO_ALL: round_all_to_all},
        "Blocks for everyone go round the ring, each rank taking out its own, so that only neighbours talk "
        "(ring all-to-all of ASTRA-sim; Rashidi et al., ISPASS 2020).",
        admits=lambda size: size <= 64,
        sizes="at most 64 members (n^3 / 2 transfers)",
    ),
)
