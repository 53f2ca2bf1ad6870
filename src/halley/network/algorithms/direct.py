"""Direct algorithms: every rank sends directly to those that need it, all at once or one partner after the other."""

from __future__ import annotations

from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.algorithm import Algorithm, ChunkRule, Setting, backwards, every, gathering, spreading, table_of
from halley.network.algorithms.tables import Pattern, Steps, Transfer

_K = CollectiveKind
ANYWHERE = (Topology.LINE, Topology.RING, Topology.FULL)


def _all_gather(at: Setting) -> Steps:
    n = at.ranks
    return table_of([(Transfer(i, j, i, False) for i in range(n) for j in range(n) if i != j)])


def _all_to_all(at: Setting) -> Steps:
    n = at.ranks
    return table_of([(Transfer(i, j, i * n + j, False) for i in range(n) for j in range(n) if i != j)])


def direct_scatter(at: Setting) -> Steps:
    return table_of([(Transfer(0, j, j, False) for j in range(1, at.ranks))])


def _broadcast(at: Setting) -> Steps:
    return table_of([(Transfer(0, j, chunk, False) for j in range(1, at.ranks) for chunk in range(at.chunks))])


def _one_shot_all_reduce(at: Setting) -> Steps:
    n = at.ranks
    return table_of([(Transfer(i, j, c, True) for i in range(n) for j in range(n) if i != j for c in range(at.chunks))])


def _two_shot_broadcast(at: Setting) -> Steps:
    # the root needs nothing back
    n = at.ranks
    again = [Transfer(i, j, i, False) for i in range(n) for j in range(1, n) if i != j]
    return table_of([(Transfer(0, j, j, False) for j in range(1, n)), again])


def _neighbour_shift(at: Setting) -> Steps:
    return table_of([(Transfer(i, i + 1, i, False) for i in range(at.ranks - 1))])


def _send(at: Setting) -> Steps:
    return table_of([(Transfer(0, at.ranks - 1, chunk, False) for chunk in range(at.chunks) if at.ranks > 1)])


def _pairwise_all_gather(at: Setting) -> Steps:
    n = at.ranks
    return table_of((Transfer(i, (i + d) % n, i, False) for i in range(n)) for d in range(1, n))


def _pairwise_all_to_all(at: Setting) -> Steps:
    n = at.ranks
    return table_of((Transfer(i, (i + d) % n, i * n + (i + d) % n, False) for i in range(n)) for d in range(1, n))


def _linear_scatter(at: Setting) -> Steps:
    return table_of([Transfer(0, j, j, False)] for j in range(1, at.ranks))


def _linear_broadcast(at: Setting) -> Steps:
    return table_of((Transfer(0, j, chunk, False) for chunk in range(at.chunks)) for j in range(1, at.ranks))


DIRECT = (
    Algorithm(
        "direct",
        gathering(_all_gather)
        | {
            _K.ALL_TO_ALL: _all_to_all,
            _K.SCATTER: direct_scatter,
            _K.GATHER: backwards(direct_scatter, combine=False),
            _K.BROADCAST: _broadcast,
            _K.REDUCE: backwards(_broadcast),
            Pattern.POINT_TO_POINT: _send,
        },
        "Every member sends straight to those who need it, in one step; an all-reduce takes two, reduce-scatter and "
        "all-gather (flat algorithms; Chan et al. 2007).",
        ANYWHERE,
        cuts=dict.fromkeys((_K.BROADCAST, _K.REDUCE, Pattern.POINT_TO_POINT), ChunkRule.UNCUT),
    ),
    Algorithm(
        "one-shot",
        {_K.ALL_REDUCE: _one_shot_all_reduce},
        "Every member sends all it has to all others and adds up for itself: one hop, n times the traffic "
        "(one-shot all-reduce of multi-GPU inference).",
        (Topology.FULL,),
        lambda size: size <= 64,
        "at most 64 members (n^3 transfers)",
        every(ChunkRule.UNCUT),
    ),
    Algorithm(
        "two-shot",
        spreading(_two_shot_broadcast),
        "Broadcast as scatter and all-gather, reduce as reduce-scatter and gather, each in one hop (van de Geijn's "
        "long-vector broadcast; Chan et al. 2007).",
        (Topology.FULL,),
    ),
    Algorithm(
        "neighbour",
        {_K.SHIFT: _neighbour_shift},
        "Member i sends its own block to member i + 1, in one step (point to point).",
        ANYWHERE,
    ),
    Algorithm(
        "pairwise",
        gathering(_pairwise_all_gather) | {_K.ALL_TO_ALL: _pairwise_all_to_all},
        "In step d every rank sends to the rank d further on, so that each sends and receives one message at a time "
        "(pairwise exchange; Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005).",
    ),
    Algorithm(
        "linear",
        spreading(_linear_broadcast) | {_K.SCATTER: _linear_scatter, _K.GATHER: backwards(_linear_scatter, combine=False)},
        "The root serves one rank after the other (linear scatter and gather, flat tree; Chan et al. 2007).",
        cuts=every(ChunkRule.UNCUT),
    ),
)
