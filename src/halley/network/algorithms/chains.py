"""Chains: a payload goes from neighbour to neighbour, whole or in chunks that follow each other."""

from __future__ import annotations

from halley.ir.hardware import Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.algorithm import Algorithm, ChunkRule, Setting, every, mirror, spreading, table_of, there_and_back
from halley.network.algorithms.rings import ALONG
from halley.network.algorithms.tables import Steps, Transfer

_K = CollectiveKind


def _chain_broadcast(at: Setting) -> Steps:
    return table_of((Transfer(i, i + 1, chunk, False) for chunk in range(at.chunks)) for i in range(at.ranks - 1))


def _pipelined_broadcast(at: Setting) -> Steps:
    # chunk c leaves member i in step i + c
    n, chunks = at.ranks, at.chunks
    steps = range(n + chunks - 2)
    return table_of((Transfer(i, i + 1, step - i, False) for i in range(n - 1) if 0 <= step - i < chunks) for step in steps)


def _centre_all_reduce(at: Setting) -> Steps:
    n, chunks = at.ranks, range(at.chunks)
    pairs = [((t, t + 1), (n - 1 - t, n - 2 - t)) for t in range((n - 1) // 2)]
    inward = table_of((Transfer(i, j, chunk, True) for i, j in pair for chunk in chunks) for pair in pairs)
    low, high = (n - 1) // 2, n // 2
    middle = table_of([(Transfer(i, j, chunk, True) for i, j in ((low, high), (high, low)) if i != j for chunk in chunks)])
    return inward + middle + mirror(inward, False)


CHAINS = (
    Algorithm(
        "chain",
        spreading(_chain_broadcast) | {_K.ALL_REDUCE: there_and_back(_chain_broadcast)},
        "The whole payload goes from neighbour to neighbour along the line: towards member 0 to reduce, away from it to "
        "broadcast (linear array; Chan et al. 2007).",
        ALONG,
        cuts=every(ChunkRule.UNCUT),
    ),
    Algorithm(
        "pipelined",
        spreading(_pipelined_broadcast),
        "A chain whose chunks follow each other, so that all links work at once (pipelined linear array; Chan et al. 2007).",
        ALONG,
        cuts=every(ChunkRule.PIECES),
    ),
    Algorithm(
        "centre",
        {_K.ALL_REDUCE: _centre_all_reduce},
        "Chains from both ends meet in the centre and return: as many hops as the line is long, the fewest possible "
        "(reduce and broadcast rooted at the centre of a linear array).",
        (Topology.LINE,),
        cuts=every(ChunkRule.UNCUT),
    ),
)
