"""In the network: switches send one arrival on to several and add what arrives, so that links carry each chunk once.

Transfers are ``shared``: what one rank sends to many is one copy until switches part it, and what many send to one is added where
their ways meet. A table is good on a graph only if its switches can do what the ways ask of them, which the evaluator checks.
"""

from __future__ import annotations

from collections import defaultdict

from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.algorithm import Algorithm, ChunkRule, Setting, backwards, every, spreading, table_of
from halley.network.algorithms.tables import Steps, Transfer

_K = CollectiveKind


def _multicast(at: Setting) -> Steps:
    return table_of([(Transfer(0, j, chunk, False, True) for j in range(1, at.ranks) for chunk in range(at.chunks))])


def _multicast_all(at: Setting) -> Steps:
    n = at.ranks
    return table_of([(Transfer(i, j, i, False, True) for i in range(n) for j in range(n) if i != j)])


def _in_network_all_reduce(at: Setting) -> Steps:
    n = at.ranks
    return table_of([(Transfer(i, j, c, True, True) for i in range(n) for j in range(n) if i != j for c in range(at.chunks))])


def _load_reduce_all_reduce(at: Setting) -> Steps:
    """Rank i has the i-th share of every piece added on its way here, and sends the sum to all while it fetches the next.

    Both go by addresses that stand for all ranks, so that its own copy passes the switch too.
    """
    n = at.ranks
    pieces = at.chunks // n
    steps: dict[int, list[Transfer]] = defaultdict(list)
    for i in range(n):
        for piece in range(pieces):
            fetch = [Transfer(j, i, piece * n + i, True, True) for j in range(n)]
            steps[piece] += fetch
            steps[piece + 1] += (t._replace(source=i, target=t.source, combine=False) for t in fetch)
    return table_of(steps[number] for number in sorted(steps))


IN_NETWORK = (
    Algorithm(
        "multicast",
        {
            **spreading(_multicast),
            _K.ALL_GATHER: _multicast_all,
            _K.REDUCE_SCATTER: backwards(_multicast_all),
        },
        "Every rank sends once and switches copy; backwards, switches add and every rank receives once (multicast and "
        "reduction of a switch; Klenk, Jiang, Thorson and Dennison, ISCA 2020).",
        (Topology.LINE,),
        cuts=every(ChunkRule.UNCUT),
        network=True,
    ),
    Algorithm(
        "in-network",
        {_K.ALL_REDUCE: _in_network_all_reduce},
        "Every rank sends its vector once; switches add on the way up and, of themselves, copy on the way down "
        "(aggregation tree; Graham et al., SHARP, COM-HPC 2016).",
        (Topology.LINE,),
        cuts=every(ChunkRule.UNCUT),
        network=True,
    ),
    Algorithm(
        "pulled",
        {_K.ALL_REDUCE: _load_reduce_all_reduce},
        "Every rank fetches the sum of its share through the switch and multicasts it, its own copy going the same way; the next "
        "piece is fetched meanwhile (NVLink SHARP: loads and stores at addresses that stand for all ranks; Klenk et al., ISCA "
        "2020).",
        cuts=every(ChunkRule.SHARED_PIECES),
        network=True,
    ),
)
