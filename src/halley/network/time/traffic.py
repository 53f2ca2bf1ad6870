"""Bytes on every link: of a schedule as a whole, and slot by slot of one that goes through several dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.hierarchical import Phase, Phased, Run
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.graph.cartesian import DimensionOrder
from halley.network.graph.graph import Graph
from halley.network.graph.groups import Group
from halley.network.graph.routes import routing_matrix
from halley.network.time.evaluate import layout
from halley.network.time.schedules import Schedule, is_line, laid_out, side_by_side

LARGE_TABLE = 200_000
"""Ranks times chunks from which on the messages of a table are counted by pair, not by step and chunk, to need less memory."""

Floats: TypeAlias = NDArray[np.float64]
Ranks: TypeAlias = tuple[int, ...]


def link_bytes(team: Group, kind: Kind, schedule: Schedule, size: float) -> Floats:
    """[edges] bytes on every link of the group's graph."""
    graph, found = team.graph, np.zeros(len(team.graph.edges))
    if isinstance(schedule.algorithm, Phased):
        ranks = (tuple(range(graph.ranks)),)
        for _, run, share in _runs(schedule.algorithm):
            found += phase_loads(graph, ranks, schedule.algorithm.shape, run, _closed(schedule.algorithm, run)) * (share * size)
        return found
    if (kind, schedule.algorithm) in _PER_PAIR:  # too many transfers for a table
        return _PER_PAIR[kind, schedule.algorithm] * (all_pairs_loads(graph) * (size / schedule.cut(kind, graph.ranks)))
    if kind is Pattern.BARRIER:
        return found
    if schedule.chunks(kind, graph.ranks) * graph.ranks > LARGE_TABLE:
        table = schedule.steps(kind, graph.ranks, is_line(team))
        messages = Counter((t.source, t.target) for step in table for t in step)
        if not any(t.shared for step in table for t in step):
            sizes = np.array(list(messages.values())) * (size / schedule.cut(kind, graph.ranks))
            return routing_matrix(graph, list(messages)).loads(sizes)
    laid = laid_out(team, kind, schedule)
    if len(laid.row_starts):
        np.add.at(found, laid.row_edges, np.add.reduceat(laid.counts, laid.row_starts) * (size / laid.cut))
    return found


_K = CollectiveKind
_PER_PAIR: dict[tuple[Kind, object], int] = {
    (_K.ALL_GATHER, "direct"): 1,
    (_K.REDUCE_SCATTER, "direct"): 1,
    (_K.ALL_TO_ALL, "direct"): 1,
    (_K.ALL_REDUCE, "direct"): 2,
    (_K.ALL_REDUCE, "one-shot"): 1,
}
"""Chunks that each rank sends to each other one, for the algorithms in which all pairs send equally much."""


@lru_cache(maxsize=64)
def all_pairs_loads(graph: Graph) -> Floats:
    """[edges] messages on every link if each rank sends one to each other one.

    In a product of graphs, a message crosses the fibre of each block from its source's coordinate to its target's. The fibre is
    given by the target's coordinates in the later blocks and the source's in the earlier ones. So each pair of coordinates
    occurs n / n_b times in each fibre, for n ranks of the product and n_b of the block.
    """
    if not isinstance(graph.router, DimensionOrder):
        apart = ~np.eye(graph.ranks, dtype=bool)
        return routing_matrix(graph, np.argwhere(apart)).loads(1.0)
    blocks = graph.router.blocks
    each = [(graph.ranks // block.ranks, all_pairs_loads(block)) for block in blocks]
    return np.concatenate([np.tile(times * loads, times) for times, loads in each])


def _runs(plan: Phased) -> Iterator[tuple[int, Run, float]]:
    """(phase, run, share of the payload that all pieces of a part bring to the links of its lines)."""
    for part in plan.parts:
        for place, run in enumerate(part.runs):
            yield place, run, float(part.share / run.phase.divisor(plan.shape))


def _closed(plan: Phased, run: Run) -> bool:
    return run.phase.dimension in plan.lines


def slot_loads(graph: Graph, groups: Sequence[Sequence[int]], plan: Phased, size: float) -> Iterator[Floats]:
    """By slot, [edges] bytes that all groups of ranks bring to the links."""
    members = tuple(tuple(group) for group in groups)
    phases = [np.zeros(len(graph.edges)) for _ in plan.parts[0].runs]
    for place, run, share in _runs(plan):
        phases[place] += phase_loads(graph, members, plan.shape, run, _closed(plan, run)) * (share * size / plan.pieces)
    for slot in plan.slots:
        yield sum((phases[phase] for _, phase in slot), np.zeros(len(graph.edges)))


@lru_cache(maxsize=1024)
def phase_loads(graph: Graph, groups: tuple[Ranks, ...], shape: tuple[int, ...], run: Run, line: bool) -> Floats:
    """[edges] bytes on every link per byte of a line's payload, on all lines of all groups."""
    of_lines = tuple(tuple(group[rank] for rank in own) for group in groups for own in lines_of(shape, run.phase))
    return _line_loads(graph, of_lines, run.phase.kind, Schedule(run.algorithm, run.pieces), line)


@lru_cache(maxsize=1024)
def _line_loads(graph: Graph, of_lines: tuple[Ranks, ...], kind: CollectiveKind, schedule: Schedule, line: bool) -> Floats:
    """[edges] bytes on every link per byte of a line's payload. In a product of graphs, the lines in one fibre are counted on its
    block, so that fibres with equal lines are counted once."""
    found = np.zeros(len(graph.edges))
    if isinstance(graph.router, DimensionOrder):
        inside = [graph.router.fibre(ranks) for ranks in of_lines]
        fibres: dict[tuple[Graph, int], list[Ranks]] = {}
        for block, first, coordinates in filter(None, inside):
            fibres.setdefault((block, first), []).append(coordinates)
        if None not in inside:
            for (block, first), own in fibres.items():
                found[first : first + len(block.edges)] = _line_loads(block, tuple(own), kind, schedule, line)
            return found
    extent = len(of_lines[0])
    if (kind, schedule.algorithm) in _PER_PAIR and of_lines == (tuple(range(graph.ranks)),):
        return _PER_PAIR[kind, schedule.algorithm] * all_pairs_loads(graph) / schedule.cut(kind, extent)
    chunks = schedule.chunks(kind, extent)
    laid = layout(graph, kind, side_by_side(schedule.steps(kind, extent, line), of_lines, chunks), chunks * len(of_lines))
    if len(laid.row_starts):
        np.add.at(found, laid.row_edges, np.add.reduceat(laid.counts, laid.row_starts) / schedule.cut(kind, extent))
    return found


def lines_of(shape: tuple[int, ...], phase: Phase) -> Iterator[Ranks]:
    """The ranks of every line that takes part in a phase."""
    stride = prod(shape[phase.dimension + 1 :])
    fixed = {phase.dimension, *phase.idle}
    for point in product(*(range(1 if d in fixed else size) for d, size in enumerate(shape))):
        first = sum(c * prod(shape[d + 1 :]) for d, c in enumerate(point))
        yield tuple(first + place * stride for place in range(shape[phase.dimension]))
