"""Bytes on every link: of a schedule as a whole, and slot by slot of one that goes through several dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.network.algorithms import ALGORITHMS, Setting
from halley.network.algorithms.hierarchical import Phase, Phased, Run
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.graph.graph import Graph
from halley.network.graph.groups import Group
from halley.network.time.evaluate import layout
from halley.network.time.schedules import Schedule, laid_out, side_by_side

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
    laid = laid_out(team, kind, schedule)
    if kind is not Pattern.BARRIER and len(laid.row_starts):
        np.add.at(found, laid.row_edges, np.add.reduceat(laid.counts, laid.row_starts) * (size / laid.cut))
    return found


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
    extent = shape[run.phase.dimension]
    item, kind = ALGORITHMS[run.algorithm], run.phase.kind
    chunks = item.chunks(kind, extent, run.pieces)
    of_lines = tuple(tuple(group[rank] for rank in own) for group in groups for own in lines_of(shape, run.phase))
    table = side_by_side(item.make[kind](Setting(extent, chunks, line)), of_lines, chunks)
    laid = layout(graph, kind, table, chunks * len(of_lines))
    found = np.zeros(len(graph.edges))
    if len(laid.row_starts):
        cut = item.cut_into(kind, extent, run.pieces)
        np.add.at(found, laid.row_edges, np.add.reduceat(laid.counts, laid.row_starts) / cut)
    return found


def lines_of(shape: tuple[int, ...], phase: Phase) -> Iterator[Ranks]:
    """The ranks of every line that takes part in a phase."""
    stride = prod(shape[phase.dimension + 1 :])
    fixed = {phase.dimension, *phase.idle}
    for point in product(*(range(1 if d in fixed else size) for d, size in enumerate(shape))):
        first = sum(c * prod(shape[d + 1 :]) for d, c in enumerate(point))
        yield tuple(first + place * stride for place in range(shape[phase.dimension]))
