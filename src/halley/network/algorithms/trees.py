"""Trees: binomial ones in logarithmic steps, binary ones that are pipelined, and two of these at once.

A pipelined tree is given by its edges. In step t an edge carries chunk p where t = start + 2 p: every other step, so that a rank
with two children alternates between them, and one with a single port is never asked for two messages at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.algorithm import (
    Algorithm,
    ChunkRule,
    Setting,
    backwards,
    every,
    mirror,
    overlapped,
    spreading,
    table_of,
    there_and_back,
)
from halley.network.algorithms.doubling import bruck_all_gather
from halley.network.algorithms.rings import ring_all_gather
from halley.network.algorithms.tables import Steps, Transfer

_K = CollectiveKind

Edge: TypeAlias = tuple[int, int]
"""(parent, child)."""


def _distances(n: int) -> list[int]:
    """n/2, ..., 2, 1, the first rounded up to a power of two."""
    return [1 << bit for bit in reversed(range((n - 1).bit_length()))]


def binomial_broadcast(at: Setting) -> Steps:
    n, chunks = at.ranks, range(at.chunks)
    return table_of((Transfer(i, i + d, chunk, False) for i in range(0, n - d, 2 * d) for chunk in chunks) for d in _distances(n))


def _binomial_scatter(at: Setting) -> Steps:
    """Every rank sends the farther half of the shards that it has to the first rank of that half."""
    n = at.ranks
    return table_of(
        (Transfer(i, i + d, shard, False) for i in range(0, n - d, 2 * d) for shard in range(i + d, min(i + 2 * d, n)))
        for d in _distances(n)
    )


def _scattered_ring_broadcast(at: Setting) -> Steps:
    return _lean(_binomial_scatter(at) + ring_all_gather(at))


def _scattered_bruck_broadcast(at: Setting) -> Steps:
    return _lean(_binomial_scatter(at) + bruck_all_gather(at))


def _lean(broadcast: Steps) -> Steps:
    """A broadcast from rank 0 without what goes to a rank that has it: those inside a scatter keep what they pass on."""
    has: set[tuple[int, int]] = set()
    found = []
    for step in broadcast:
        new = [t for t in step if t.target != 0 and (t.target, t.chunk) not in has]
        has.update((t.target, t.chunk) for t in new)
        found.append(new)
    return table_of(found)


def _binary_tree(n: int) -> list[Edge]:
    """A heap: rank v has the children 2 v + 1 and 2 v + 2."""
    return [((child - 1) // 2, child) for child in range(1, n)]


def _twin_trees(n: int) -> tuple[list[Edge], list[Edge]]:
    """Two binary trees over all ranks, such that who passes on in one is a leaf of the other.

    In the first, odd ranks are leaves and rank 0 the root, whose one child has the largest power of two below n; the second is
    the first read from the other end, or moved on by one where n is odd.
    """
    first = []
    for x in range(1, n):
        low = x & -x
        parent = (x ^ low) | low << 1  # the neighbour among multiples of the next power of two: up where that bit is free
        while parent >= n:
            low = parent & -parent
            parent ^= low  # beyond the end: down instead, to a multiple of a larger power
        first.append((parent, x))
    twin = [(n - 1 - a, n - 1 - b) if n % 2 == 0 else ((a + 1) % n, (b + 1) % n) for a, b in first]
    return first, twin


def _parities(trees: Sequence[Sequence[Edge]]) -> list[dict[Edge, int]]:
    """For each tree the parity of the steps in which an edge is used: no rank sends, or receives, twice in a step.

    Sending ends and receiving ends are the two sides of a graph, edges join them. No end has more than two edges, so they form
    paths and circles of even length: parities alternate along each.
    """
    edges = [(number, edge) for number, tree in enumerate(trees) for edge in tree]
    ends: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, (_, (parent, child)) in enumerate(edges):
        ends["sends", parent].append(index)
        ends["receives", child].append(index)
    parity: dict[int, int] = {}
    for begin in range(len(edges)):
        waiting = [(begin, 0)]
        while waiting:
            index, colour = waiting.pop()
            if index in parity:
                continue
            parity[index] = colour
            parent, child = edges[index][1]
            waiting += [(other, 1 - colour) for other in ends["sends", parent] + ends["receives", child] if other != index]
    found: list[dict[Edge, int]] = [{} for _ in trees]
    for index, (number, edge) in enumerate(edges):
        found[number][edge] = parity[index]
    return found


def _starts(parity: Mapping[Edge, int]) -> dict[Edge, int]:
    """The first step of each edge: when its parent has the first chunk, in a step of its parity."""
    children: dict[int, list[int]] = defaultdict(list)
    for parent, child in parity:
        children[parent].append(child)
    (root,) = set(children) - {child for _, child in parity}
    start: dict[Edge, int] = {}
    reached = [(root, 0)]
    while reached:
        rank, ready = reached.pop()
        for child in children[rank]:
            begin = ready + (ready + parity[rank, child]) % 2
            start[rank, child] = begin
            reached.append((child, begin + 1))
    return start


def _pipelined(starts: Mapping[Edge, int], chunks: Sequence[int]) -> Steps:
    """A broadcast of these chunks, one after the other, down a tree."""
    steps: dict[int, list[Transfer]] = defaultdict(list)
    for (parent, child), begin in starts.items():
        for place, chunk in enumerate(chunks):
            steps[begin + 2 * place].append(Transfer(parent, child, chunk, False))
    return tuple(tuple(steps[number]) for number in range(max(steps, default=-1) + 1))


def _at_once(tables: Iterable[Steps]) -> Steps:
    found: dict[int, list[Transfer]] = defaultdict(list)
    for table in tables:
        for number, step in enumerate(table):
            found[number] += step
    return table_of(found[number] for number in sorted(found))


def _tree_broadcast(at: Setting) -> Steps:
    if at.ranks == 1:
        return ()
    (parity,) = _parities([_binary_tree(at.ranks)])
    return table_of(_pipelined(_starts(parity), range(at.chunks)))


def _tree_all_reduce(at: Setting) -> Steps:
    """Chunks go up one after the other, and each comes down again as soon as the root has all of it."""
    if at.ranks == 1:
        return ()
    (parity,) = _parities([_binary_tree(at.ranks)])
    starts, chunks = _starts(parity), range(at.chunks)
    collect = mirror(_pipelined(starts, chunks[::-1]), True)  # the first chunk comes up first
    return overlapped(collect, _pipelined(starts, chunks))


def _double_tree_all_reduce(at: Setting) -> Steps:
    """Even chunks take one tree and odd ones the other."""
    if at.ranks == 1:
        return ()
    halves = [(_starts(parity), range(which, at.chunks, 2)) for which, parity in enumerate(_parities(_twin_trees(at.ranks)))]
    spread = _at_once(_pipelined(starts, chunks) for starts, chunks in halves)
    # both trees are turned round together, which keeps their ranks' turns apart; the first chunks come up first
    collect = mirror(_at_once(_pipelined(starts, chunks[::-1]) for starts, chunks in halves), True)
    return overlapped(collect, spread)


TREES = (
    Algorithm(
        "binomial",
        {
            **spreading(binomial_broadcast),
            _K.ALL_REDUCE: there_and_back(binomial_broadcast),
            _K.SCATTER: _binomial_scatter,
            _K.GATHER: backwards(_binomial_scatter, combine=False),
        },
        "Whoever has the payload serves the rank half of the remaining distance away, so that their number doubles each step "
        "(minimum spanning tree; Chan et al. 2007).",
        cuts=every(ChunkRule.UNCUT),
    ),
    Algorithm(
        "scatter-ring",
        spreading(_scattered_ring_broadcast),
        "A binomial scatter, then a ring all-gather; a reduce is a ring reduce-scatter, then a binomial gather (van de Geijn's "
        "long-vector broadcast; Chan et al. 2007).",
    ),
    Algorithm(
        "scatter-bruck",
        spreading(_scattered_bruck_broadcast),
        "A binomial scatter, then an all-gather in doubling steps; backwards to reduce (Thakur, Rabenseifner and Gropp, Int. J. "
        "High Perform. Comput. Appl. 19, 2005).",
    ),
    Algorithm(
        "tree",
        spreading(_tree_broadcast) | {_K.ALL_REDUCE: _tree_all_reduce},
        "Chunks follow each other down a binary tree; an all-reduce sends each up first, while others come down (pipelined "
        "binary tree; Sanders, Speck and Traeff, Parallel Comput. 35, 2009).",
        cuts=every(ChunkRule.PIECES),
    ),
    Algorithm(
        "double-tree",
        {_K.ALL_REDUCE: _double_tree_all_reduce},
        "Half of the chunks take each of two binary trees, whose inner ranks are the leaves of the other, so that all ranks send "
        "all the time (two-tree; Sanders, Speck and Traeff, Parallel Comput. 35, 2009).",
        cuts=every(ChunkRule.PIECES),
    ),
)
