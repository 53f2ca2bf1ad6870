"""What a step table costs on a graph: time, bytes on every link, byte-hops, energy, and the link that limits it.

A `Layout` counts, once, which chunks cross which link in which step. Its costs are then sums over chunk sizes: `evaluate` for any
sizes (the uneven ones of an all-to-all of experts, say), `halley.network.time.lines.line_of` for equal chunks of any payload.

A step takes a start-up, the time that the busiest rank needs to post its messages one after the other, the longest of the
messages' latencies, and the time of its busiest link; steps are in lockstep. All that a rank sends to another in one step is one
message; what switches send on to several is one for all of them. An empty chunk is still a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halley.errors import BadInput, Fault
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.tables import Kind, Pattern, Steps, Transfer, chunk_sizes
from halley.network.graph.graph import Graph
from halley.network.graph.routes import RoutingMatrix, routing_matrix
from halley.network.time.shared import shared_crossings

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Cost of one execution.

    ``time`` [s]; ``step_times`` [s] per step, start-up and latency among them; ``busiest`` [B]: bytes on the slowest link of
    each step, summed; ``link_bytes`` [edges]; ``byte_hops`` [B]; ``energy`` [J] on the links; ``limiting``: index of the edge
    that works longest, None where nothing moves.
    """

    time: float
    step_times: Floats
    busiest: float
    link_bytes: Floats | Integers
    byte_hops: float
    energy: float
    limiting: int | None


@dataclass(frozen=True, eq=False)
class Layout:
    """A table laid out on a graph. Rows are pairs (step, link) that something crosses, by step, then link; entries are what
    crosses: ``counts[e]`` times chunk ``chunk[e]``, for the entries from ``row_starts[row]`` on. Per step, ``latencies`` [s]: the
    longest of the messages; ``postings`` [s]: what the rank with most messages takes to post them; ``hops``: those of the longest
    way."""

    graph: Graph
    kind: Kind
    chunks: int
    latencies: Floats
    postings: Floats
    hops: Integers
    row_starts: Integers
    row_edges: Integers
    row_steps: Integers
    chunk: Integers
    counts: Integers | Floats

    @property
    def steps(self) -> int:
        return len(self.latencies)

    @property
    def delays(self) -> Floats:
        """[steps] posting, then latency [s]."""
        return self.latencies + self.postings

    @cached_property
    def step_starts(self) -> Integers:
        """[steps] the first row of each step."""
        return np.searchsorted(self.row_steps, np.arange(self.steps))

    @cached_property
    def row_bandwidths(self) -> Floats:
        return self.graph.bandwidths[self.row_edges]

    @cached_property
    def cut(self) -> int:
        """Chunks that one payload is cut into: of an all-to-all, what one rank sends."""
        return self.chunks // self.graph.ranks if self.kind is CollectiveKind.ALL_TO_ALL else self.chunks

    def sizes(self, size: int) -> Integers:
        """[chunks] bytes of every chunk of a payload: ceil(size / cut) each, the last ones shorter or empty."""
        if self.kind is Pattern.BARRIER:
            return np.zeros(1, dtype=np.int64)
        return np.tile(np.array(chunk_sizes(size, self.cut), dtype=np.int64), self.chunks // self.cut)


def layout(graph: Graph, kind: Kind, table: Steps, chunks: int) -> Layout:
    """Count what crosses every link in every step.

    >>> from halley.ir.hardware import Axis, Link, Topology
    >>> from halley.network.algorithms import ALGORITHMS, Setting
    >>> from halley.network.graph.topologies import build
    >>> kind, ring = CollectiveKind.ALL_GATHER, build(Axis("x", 4, Topology.RING, Link(10.0, 1.0)))
    >>> laid = layout(ring, kind, ALGORITHMS["ring"].make[kind](Setting(4, 4)), 4)
    >>> evaluate(laid, laid.sizes(40)).time, evaluate(laid, laid.sizes(38)).link_bytes.tolist()[:4]
    (6.0, [28, 28, 30, 28])

    Raises BadInput: no way between ranks that talk, or a switch that cannot do what shared transfers ask of it.
    """
    lengths = [len(transfers) for transfers in table]
    count, width = sum(lengths), len(Transfer._fields)
    values = chain.from_iterable(chain.from_iterable(table))
    source, target, chunk, combine, shares = np.fromiter(values, dtype=np.int64, count=count * width).reshape(-1, width).T
    step, shared = np.repeat(np.arange(len(table)), lengths), shares == 1
    keys, which = np.unique(source * graph.ranks + target, return_inverse=True)
    matrix = routing_matrix(graph, np.stack([keys // graph.ranks, keys % graph.ranks], axis=1))
    latencies, postings, hops = np.zeros(len(table)), np.zeros(len(table)), np.zeros(len(table), dtype=np.int64)
    np.maximum.at(latencies, step, matrix.latency[which])
    if graph.overheads.any():
        receiver = np.where(shared, graph.ranks + combine, target)  # one message for all that share a switch
        postings = _posting(graph, matrix, keys, np.stack([step, source, receiver, which]), len(table))
    np.maximum.at(hops, step, matrix.hops[which])
    steps, edges, chunks_of, counts = _crossings(matrix, which[~shared], step[~shared], chunk[~shared])
    if shared.any():
        found = shared_crossings(graph, [(number, t) for number, transfers in enumerate(table) for t in transfers if t.shared])
        steps = np.concatenate([steps, found[:, 0]])
        edges = np.concatenate([edges, found[:, 1]])
        chunks_of = np.concatenate([chunks_of, found[:, 2]])
        counts = np.concatenate([counts, np.ones(len(found), dtype=np.int64)])
    return _laid(graph, kind, chunks, (latencies, postings, hops), (steps, edges, chunks_of, counts))


def _posting(graph: Graph, matrix: RoutingMatrix, keys: Integers, messages: Integers, steps: int) -> Floats:
    """[steps] how long the rank that has most to post is busy with its messages [s], given as columns (step, source, receiver,
    row of the matrix); the overhead is that of the link on which a message leaves."""
    sources = keys // graph.ranks
    leaving = graph.tails[matrix.edges] == sources[matrix.rows]
    each = np.zeros(len(keys))
    np.maximum.at(each, matrix.rows[leaving], graph.overheads[matrix.edges[leaving]])
    _, first = np.unique(messages[:3], axis=1, return_index=True)
    step, source, _, row = messages[:, first]
    busy = np.zeros((steps, graph.ranks))
    np.add.at(busy, (step, source), each[row])
    longest: Floats = busy.max(axis=1, initial=0.0)
    return longest


def _crossings(
    matrix: RoutingMatrix, pair: Integers, step: Integers, chunk: Integers
) -> tuple[Integers, Integers, Integers, Integers | Floats]:
    """(step, edge, chunk, share) of every link that every message crosses."""
    lengths = np.diff(matrix.starts)[pair]
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(pair) else np.zeros(0, dtype=np.int64)
    entries = np.arange(lengths.sum()) + np.repeat(matrix.starts[pair] - offsets, lengths)
    shares: Integers | Floats = matrix.shares[entries]
    if (shares == 1).all():
        shares = np.ones(len(entries), dtype=np.int64)  # bytes stay whole numbers
    return np.repeat(step, lengths), matrix.edges[entries], np.repeat(chunk, lengths), shares


def _laid(
    graph: Graph,
    kind: Kind,
    chunks: int,
    of_steps: tuple[Floats, Floats, Integers],
    crossings: tuple[Integers, Integers, Integers, Integers | Floats],
) -> Layout:
    """Sort the crossings into rows, and what is alike in a row into entries."""
    steps, edges, chunk, counts = crossings
    order = np.lexsort((chunk, edges, steps))
    steps, edges, chunk, counts = steps[order], edges[order], chunk[order], counts[order]
    row_change = _changes(steps) | _changes(edges)
    entry_starts = np.flatnonzero(row_change | _changes(chunk))
    if len(entry_starts):
        counts = np.add.reduceat(counts, entry_starts)
    rows = np.flatnonzero(row_change[entry_starts])
    first = entry_starts[rows]
    return Layout(graph, kind, chunks, *of_steps, rows, edges[first], steps[first], chunk[entry_starts], counts)


def _changes(values: Integers) -> NDArray[np.bool_]:
    """Where a value differs from the one before it; the first does."""
    return np.concatenate([[True], values[1:] != values[:-1]]) if len(values) else np.zeros(0, dtype=bool)


def evaluate(laid: Layout, sizes: ArrayLike, startup: float = 0.0) -> Evaluation:
    """Cost for chunks of any sizes [chunks] [B]; ``startup`` [s] of every step. Raises BadInput: another number of sizes."""
    each = np.asarray(sizes)
    if each.shape != (laid.chunks,) or (each < 0).any():
        expected, got = f"{laid.chunks} sizes of chunks, none below 0", f"shape {each.shape}, least {each.min(initial=0)}"
        raise BadInput(Fault(f"{laid.kind} on {laid.graph.name}", expected, got))
    overhead = startup + laid.delays
    graph = laid.graph
    if not len(laid.row_starts):
        nothing = np.zeros(len(graph.edges), dtype=np.int64)
        return Evaluation(float(overhead.sum()), overhead, 0, nothing, 0, 0.0, None)
    rows = np.add.reduceat(laid.counts * each[laid.chunk], laid.row_starts)
    seconds = rows / laid.row_bandwidths
    longest = np.maximum.reduceat(seconds, laid.step_starts)
    slowest = np.where(seconds == longest[laid.row_steps], rows, 0)
    busiest = np.maximum.reduceat(slowest, laid.step_starts).sum()
    link_bytes = np.zeros(len(graph.edges), dtype=rows.dtype)
    np.add.at(link_bytes, laid.row_edges, rows)
    step_times = overhead + longest
    busy = link_bytes / graph.bandwidths
    limiting = int(np.argmax(busy)) if busy.any() else None
    energy = float(link_bytes @ graph.energies)
    return Evaluation(float(step_times.sum()), step_times, busiest.item(), link_bytes, link_bytes.sum().item(), energy, limiting)
