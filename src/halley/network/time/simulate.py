"""The step simulator: runs a table on real arrays, message by message and link by link.

Written to be obviously right rather than fast; it is the oracle of `halley.network.time.evaluate` and of the closed forms, and
shares only the graph's paths with them. Elements count as one byte each. What a shared transfer delivers is what the links
brought: values are added on the way as switches would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import Fault, InternalError
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.tables import Kind, Pattern, Steps, Transfer
from halley.network.graph.graph import Graph
from halley.network.graph.routes import paths

Array: TypeAlias = NDArray[Any]
Combine: TypeAlias = Callable[[Array, Array], Array]
Held: TypeAlias = list[dict[int, Array]]
"""Per rank, its copy of each chunk that it has."""

_K = CollectiveKind


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """``held``: what every rank has in the end; ``time`` [s]; ``link_bytes`` by edge and ``step_times`` [s] by step, exact."""

    held: Held
    time: float
    link_bytes: tuple[Fraction, ...]
    busiest: Fraction
    """Bytes on the slowest link of each step, summed."""


def simulate(graph: Graph, table: Steps, held: Held, combine: Combine = np.add, startup: float = 0.0) -> SimulatedRun:
    """Run a table from what the ranks hold (`initial_chunks`). ``combine``: the monoid; ``startup`` [s]: comes before every step.

    >>> from halley.ir.hardware import Axis, Link, Topology
    >>> from halley.network.algorithms import ALGORITHMS, Setting
    >>> from halley.network.graph.topologies import build
    >>> ring = build(Axis("x", 3, Topology.RING, Link(2.0, 1.0)))
    >>> table = ALGORITHMS["ring"].make[_K.ALL_REDUCE](Setting(3, 3))
    >>> run = simulate(ring, table, initial_chunks(_K.ALL_REDUCE, [np.arange(6)] * 3, 3))
    >>> run.time, [run.held[0][chunk].tolist() for chunk in range(3)]   # 4 steps of 1 s and 2 B at 2 B/s
    (8.0, [[0, 3], [6, 9], [12, 15]])

    Raises InternalError: a transfer without a source, or without a copy to combine with.
    """
    now: Held = [dict(mine) for mine in held]
    crossed: dict[int, Fraction] = defaultdict(Fraction)
    time, busiest = 0.0, Fraction(0)
    for number, step in enumerate(table):
        loads: dict[int, Fraction] = defaultdict(Fraction)
        latency = 0.0
        arrivals: list[tuple[Transfer, Array]] = []
        for t in step:
            if t.chunk not in now[t.source]:
                raise InternalError(Fault(f"step {number}, {t}", "a source that holds the chunk", "none there"))
            ways = paths(graph, t.source, t.target)
            latency = max(latency, *(sum(graph.edges[edge].link.latency for edge in way) for way in ways))
            if not t.shared:
                message = now[t.source][t.chunk]
                for way in ways:
                    for edge in way:
                        loads[edge] += Fraction(len(message), len(ways))
                arrivals.append((t, message))
        arrivals += _through_switches(graph, [t for t in step if t.shared], now, loads, combine)
        now = _arrived(now, arrivals, combine)
        time += startup + _longest_posting(graph, step) + latency
        if loads:
            seconds, most = max((float(load) / graph.edges[edge].link.bandwidth, load) for edge, load in loads.items())
            time, busiest = time + seconds, busiest + most
        for edge, load in loads.items():
            crossed[edge] += load
    return SimulatedRun(now, time, tuple(crossed[edge] for edge in range(len(graph.edges))), busiest)


def _longest_posting(graph: Graph, step: Sequence[Transfer]) -> float:
    """How long the busiest rank posts messages, one after the other: one to each rank that it sends to, one of each sort
    through the switches."""
    posted: set[tuple[int, int | bool, bool]] = set()
    busy: dict[int, float] = defaultdict(float)
    for t in step:
        message = (t.source, t.combine if t.shared else t.target, t.shared)
        if t.source != t.target and message not in posted:
            posted.add(message)
            busy[t.source] += max(graph.edges[way[0]].link.overhead for way in paths(graph, t.source, t.target))
    return max(busy.values(), default=0.0)


def _arrived(now: Held, arrivals: Sequence[tuple[Transfer, Array]], combine: Combine) -> Held:
    """All messages have left before any arrives."""
    after: Held = [dict(mine) for mine in now]
    for t, message in arrivals:
        mine = after[t.target]
        if t.combine and t.chunk not in mine:
            raise InternalError(Fault(str(t), "a copy at the target to combine with", "none there"))
        mine[t.chunk] = combine(mine[t.chunk], message) if t.combine else message
    return after


def _through_switches(
    graph: Graph, transfers: Sequence[Transfer], now: Held, loads: dict[int, Fraction], combine: Combine
) -> list[tuple[Transfer, Array]]:
    """What shared transfers bring: on each link one packet, made of the packets of the links that feed it. A target gets what its
    last links carry, in the name of one of its transfers."""
    feeds: dict[tuple[int, int], set[int]] = defaultdict(set)  # (chunk, edge) -> edges before it, or -1 - rank at its start
    last: dict[tuple[int, int], set[int]] = defaultdict(set)
    bringing: dict[tuple[int, int], Transfer] = {}
    for t in transfers:
        (way,) = _round(graph, t, transfers) if t.source == t.target else paths(graph, t.source, t.target)
        for before, edge in zip((-1 - t.source, *way), way, strict=False):
            feeds[t.chunk, edge].add(before)
        last[t.chunk, t.target].add(way[-1])
        # where a rank's own copy is in what comes, that replaces it
        own = any(other.source == other.target == t.target for other in transfers if other.chunk == t.chunk)
        bringing[t.chunk, t.target] = t._replace(combine=t.combine and not own)

    packets: dict[tuple[int, int], Array] = {}

    def packet(chunk: int, edge: int) -> Array:
        if edge < 0:
            return now[-1 - edge][chunk]
        if (chunk, edge) not in packets:
            packets[chunk, edge] = _joined([packet(chunk, before) for before in sorted(feeds[chunk, edge])], combine)
        return packets[chunk, edge]

    for chunk, edge in feeds:
        loads[edge] += len(packet(chunk, edge))
    return [
        (bringing[chunk, target], _joined([packet(chunk, edge) for edge in sorted(edges)], combine))
        for (chunk, target), edges in last.items()
    ]


def _round(graph: Graph, own: Transfer, transfers: Sequence[Transfer]) -> tuple[tuple[int, int]]:
    """A rank's own copy: up the link on which what it sends to the others leaves it, or down that on which theirs comes."""
    for t in transfers:
        if t.chunk == own.chunk and t.source != t.target and own.source in (t.source, t.target):
            (way,) = paths(graph, t.source, t.target)
            up = t.source == own.source
            link = graph.edges[way[0] if up else way[-1]]
            switch = link.target if up else link.source
            return ((graph.between[own.source, switch], graph.between[switch, own.source]),)
    raise InternalError(Fault(str(own), "others that the rank shares the switch with", "none"))


def _joined(arrays: Sequence[Array], combine: Combine) -> Array:
    result = arrays[0]
    for array in arrays[1:]:
        result = combine(result, array)
    return result


def initial_chunks(kind: Kind, vectors: Sequence[Array], chunks: int) -> Held:
    """What ranks hold at first, from one vector each: all of it (all-reduce, reduce-scatter, reduce), its own share of it
    (all-gather, gather, shift), a block for every rank (all-to-all), or, on rank 0 alone, all of it (broadcast, scatter,
    point-to-point)."""
    ranks = len(vectors)
    match kind:
        case _K.ALL_REDUCE | _K.REDUCE_SCATTER | _K.REDUCE:
            return [dict(enumerate(_cut(vector, chunks))) for vector in vectors]
        case _K.ALL_GATHER | _K.GATHER | _K.SHIFT:
            own = chunks // ranks
            return [{c: part for c, part in enumerate(_cut(vector, chunks)) if c // own == i} for i, vector in enumerate(vectors)]
        case _K.ALL_TO_ALL:
            each = chunks // ranks
            return [{i * each + c: part for c, part in enumerate(_cut(vector, each))} for i, vector in enumerate(vectors)]
        case Pattern.BARRIER:
            return [{0: vector[:0]} for vector in vectors]
        case _:
            return [dict(enumerate(_cut(vectors[0], chunks))), *({} for _ in vectors[1:])]


def _cut(vector: Array, chunks: int) -> list[Array]:
    """Consecutive chunks of the same size, until nothing is left."""
    width = -(-len(vector) // chunks)
    return [vector[place * width : (place + 1) * width] for place in range(chunks)]
