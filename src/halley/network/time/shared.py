"""Shared transfers: multicast and reduction by the switches of a network, and whether a switch is able to.

The shared transfers of one chunk in one step travel together. A link carries one copy of the chunk, as all receivers get it from
the same ranks. Chunks that reach a vertex over several links, or over a link and from its own rank, are added there; a chunk
that leaves it over several links is copied. Only a switch with `reduction` adds, and only one with `multicast` copies; one that
adds on request does not copy a sum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.network.algorithms.tables import Transfer
from halley.network.graph.graph import Graph, Path
from halley.network.graph.routes import paths


def shared_crossings(graph: Graph, transfers: Sequence[tuple[int, Transfer]]) -> NDArray[np.int64]:
    """[crossings, 3] (step, edge, chunk) of shared transfers, given as (step, transfer).

    Raises BadInput: several ways between two ranks, a vertex that cannot add or part what meets there, or a link that would have
    to carry several sums.
    """
    groups: dict[tuple[int, int], list[Transfer]] = defaultdict(list)
    for step, transfer in transfers:
        groups[step, transfer.chunk].append(transfer)
    known: dict[tuple[tuple[int, int, bool], ...], NDArray[np.int64]] = {}
    found = [np.zeros((0, 3), dtype=np.int64)]
    for (step, chunk), group in groups.items():
        flows = tuple([(t.source, t.target, t.combine) for t in group])
        if flows not in known:
            known[flows] = np.array(_tree(graph, group), dtype=np.int64)
        edges = known[flows]
        found.append(np.stack([np.full_like(edges, step), edges, np.full_like(edges, chunk)], axis=1))
    return np.concatenate(found)


def _tree(graph: Graph, group: Sequence[Transfer]) -> tuple[int, ...]:
    """Edges that one group of shared transfers crosses, once each."""
    where = f"network {graph.name}, collective in the network"
    flows: dict[int, set[tuple[int, int]]] = defaultdict(set)
    into: dict[int, set[int | None]] = defaultdict(set)  # by edge, the edges that feed it; None: the rank that it leaves
    out_of: dict[int, set[int | None]] = defaultdict(set)
    for t in group:
        path = _only(graph, t) if t.source != t.target else _loop(graph, t.source, group)
        for before, edge in zip((None, *path), path, strict=False):
            flows[edge].add((t.source, t.target))
            into[edge].add(before)
            if before is not None:
                out_of[before].add(edge)
        out_of[path[-1]].add(None)
    adding = all(t.combine for t in group)
    faults = []
    for edge, pairs in flows.items():
        sources, targets = {s for s, _ in pairs}, {t for _, t in pairs}
        if len(pairs) != len(sources) * len(targets) or (len(sources) > 1 and not adding):
            faults.append(Fault(where, f"one sum on link {edge}", "several that differ", "use an algorithm without switches"))
        if len(into[edge]) > 1 and not _can(graph, graph.edges[edge].source, "reduction"):
            faults.append(_cannot(graph, where, graph.edges[edge].source, "reduction", "adds what arrives"))
        if len(out_of[edge]) > 1 and not _can(graph, graph.edges[edge].target, "multicast"):
            faults.append(_cannot(graph, where, graph.edges[edge].target, "multicast", "sends one arrival on to several"))
        elif len(out_of[edge]) > 1 and adding and _can(graph, graph.edges[edge].target, "on_request"):
            name = _name(graph, graph.edges[edge].target)
            remedy = "use an algorithm that fetches sums, such as pulled, or one without switches"
            faults.append(Fault(where, "a switch that gives a sum to several", f"{name}, which adds on request", remedy))
    if faults:
        raise BadInput(list(dict.fromkeys(faults)))
    return tuple(flows)


def _only(graph: Graph, transfer: Transfer) -> Path:
    ways = paths(graph, transfer.source, transfer.target)
    if len(ways) > 1:
        where = f"network {graph.name}, from {transfer.source} to {transfer.target}"
        raise BadInput(Fault(where, "one way for what switches share", f"{len(ways)}", "route it without multi-path"))
    return ways[0]


def _loop(graph: Graph, rank: int, group: Sequence[Transfer]) -> Path:
    """The way of a rank's own copy: to the switch where the others' way to the rank, or from it, ends or starts, and back."""
    others = (end for t in group for end in (t.source, t.target) if rank in (t.source, t.target) and end != rank)
    first = paths(graph, rank, next(others))[0][0]
    return first, graph.between[graph.edges[first].target, rank]


def _can(graph: Graph, vertex: int, ability: str) -> bool:
    return vertex >= graph.ranks and bool(getattr(graph.switches[vertex - graph.ranks], ability))


def _cannot(graph: Graph, where: str, vertex: int, ability: str, words: str) -> Fault:
    expected = f"a switch that {words} ({ability})"
    return Fault(where, expected, _name(graph, vertex), f"give the switches {ability}, or use another algorithm")


def _name(graph: Graph, vertex: int) -> str:
    if vertex < graph.ranks:
        return f"rank {vertex}"
    name = graph.switches[vertex - graph.ranks].name
    return name if "switch" in name else f"switch {name}"
