"""Barriers: messages without bytes, after which every rank knows that all have come."""

from __future__ import annotations

from halley.network.algorithms.algorithm import Algorithm, Setting, table_of, there_and_back
from halley.network.algorithms.tables import Pattern, Steps, Transfer
from halley.network.algorithms.trees import binomial_broadcast

_B = Pattern.BARRIER


def _dissemination(at: Setting) -> Steps:
    n = at.ranks
    distances = [1 << bit for bit in range((n - 1).bit_length())]
    return table_of((Transfer(i, (i + d) % n, 0, True) for i in range(n)) for d in distances)


def _round(at: Setting) -> Steps:
    n = at.ranks
    return table_of([Transfer(i % n, (i + 1) % n, 0, True)] for i in range(2 * n - 2))


def _notify_all(at: Setting) -> Steps:
    n = at.ranks
    return table_of([(Transfer(i, j, 0, True) for i in range(n) for j in range(n) if i != j)])


BARRIERS = (
    Algorithm(
        "all-tell-all",
        {_B: _notify_all},
        "Every rank tells every other at once, which takes one step and n (n - 1) messages (one-shot barrier).",
    ),
    Algorithm(
        "dissemination",
        {_B: _dissemination},
        "In step k every rank tells the rank 2^k further on what it has heard (dissemination barrier; Hensgen, Finkel and "
        "Manber, Int. J. Parallel Program. 17, 1988).",
    ),
    Algorithm(
        "tree-barrier",
        {_B: there_and_back(binomial_broadcast)},
        "A binomial tree gathers the news at rank 0 and spreads it again (combining tree barrier; Mellor-Crummey and Scott, ACM "
        "Trans. Comput. Syst. 9, 1991).",
    ),
    Algorithm(
        "ring-barrier",
        {_B: _round},
        "A token goes round the ring twice, the second time to tell that all have come (token ring; Mellor-Crummey and Scott "
        "1991).",
    ),
)
