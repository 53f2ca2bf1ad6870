"""Demands: who sends how much to whom, and the bounds that follow from the matrix alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.collectives import cut_bound
from halley.formulas.numbers import ceil_div
from halley.network.bounds.cuts import check_reach
from halley.network.bounds.reasons import BoundPart, crossing_words
from halley.network.bounds.shortest import Floats, all_distances
from halley.network.graph.graph import Graph
from halley.units import format_bytes

Demands: TypeAlias = NDArray[np.float64]
"""[ranks, ranks] bytes from the row's rank to the column's."""

SPECTRUM = 4
"""Orders of the vertices, from the graph's slowest modes, whose beginnings are tried as cuts."""

LARGEST_SPECTRUM = 1024
"""Vertices up to which modes are computed (cubic time)."""


def cut_up(size: float, members: int) -> tuple[float, ...]:
    """Shares of the members as chunks are cut: whole bytes, the last ones less or nothing. What is no whole number: evenly.

    >>> cut_up(10, 4)
    (3.0, 3.0, 3.0, 1.0)
    """
    if size != int(size):
        return (size / members,) * members
    chunk = ceil_div(int(size), members)
    return tuple(float(max(min(chunk, size - index * chunk), 0)) for index in range(members))


def all_to_all(graph: Graph, size: float, group: Sequence[int] | None = None) -> Demands:
    """The demands of an all-to-all in which each member of the group (all ranks unless given) sends ``size`` bytes, its own
    block included."""
    members = tuple(range(graph.ranks)) if group is None else tuple(group)
    return exchange(graph, members, cut_up(size, len(members)))


def exchange(graph: Graph, group: Sequence[int], shares: Sequence[float]) -> Demands:
    """All-to-all among a group: each member sends ``shares[i]`` bytes to member i.

    >>> exchange(Graph("four", 4, ()), (0, 2), (3.0, 5.0)).tolist()[0]
    [0.0, 0.0, 5.0, 0.0]
    """
    demands = np.zeros((graph.ranks, graph.ranks))
    demands[np.ix_(group, group)] = shares
    np.fill_diagonal(demands, 0.0)
    return demands


def check_demands(graph: Graph, demands: Demands) -> None:
    """BadInput for a matrix of the wrong shape, amounts that are negative or endless, demands of a rank to itself, no demand at
    all, and demands between ranks that no way joins."""
    where = f"demands on network {graph.name}"
    if demands.shape != (graph.ranks, graph.ranks):
        raise BadInput(Fault(where, f"a matrix of {graph.ranks} x {graph.ranks} ranks", " x ".join(map(str, demands.shape))))
    faults = []
    for bad, expected in ((~np.isfinite(demands), "finite amounts"), (demands < 0, "amounts not below zero")):
        if bad.any():
            source, target = np.argwhere(bad)[0]
            faults.append(Fault(f"{where}, rank {source} to rank {target}", expected, f"{demands[source, target]:g} B"))
    own = np.flatnonzero(np.diagonal(demands))
    if len(own):
        got = format_bytes(float(demands[own[0], own[0]]))
        faults.append(Fault(f"{where}, rank {own[0]}", "nothing from a rank to itself", got, "set the diagonal to zero"))
    if not faults and not demands.any():
        faults.append(Fault(where, "at least one amount above zero", "none"))
    if faults:
        raise BadInput(faults)
    check_reach(graph, {int(source): np.flatnonzero(row).tolist() for source, row in enumerate(demands) if row.any()})


def length_bound(graph: Graph, demands: Demands, lengths: Floats) -> float:
    """Lower bound from lengths of the links: bytes times the least length that each has to go, over what the links can carry.

    .. math:: t \\ge \\frac{\\sum_{ij} D_{ij} d_l(i, j)}{\\sum_e l_e c_e}

    Symbols: D [B] demands, d_l shortest distances under the lengths l (not negative, of any unit), c [B/s] bandwidths. With all
    lengths 1: byte-hops. The best lengths give the exact least time (duality of the maximum concurrent flow; Shahrokhi and
    Matula, J. ACM 37, 1990).
    """
    sources = np.flatnonzero(demands.any(axis=1))
    distance = all_distances(graph, lengths, sources)[:, : graph.ranks]
    wanted = demands[sources]
    carried = float(np.sum(wanted * np.where(wanted > 0, distance, 0.0)))
    return float(cut_bound(carried, float(lengths @ graph.bandwidths)))


def demand_parts(graph: Graph, demands: Demands) -> Iterator[BoundPart]:
    """Bounds of the transfer time: the slowest rank, the way that the bytes have to go, the slowest of some cuts."""
    yield _slowest_rank(graph, demands)
    value = max(length_bound(graph, demands, np.ones(len(graph.edges))), length_bound(graph, demands, 1 / graph.bandwidths))
    yield BoundPart("volume", value, "the bytes of all pairs, each along its shortest way, fill all links together")
    yield _slowest_cut(graph, demands)


def _slowest_rank(graph: Graph, demands: Demands) -> BoundPart:
    source, target, bandwidth = _ends(graph)
    leaving = np.bincount(source, bandwidth, graph.vertices)[: graph.ranks]
    entering = np.bincount(target, bandwidth, graph.vertices)[: graph.ranks]
    out, into = demands.sum(axis=1), demands.sum(axis=0)
    sends = np.asarray(cut_bound(out, np.where(out > 0, leaving, 1.0)))
    receives = np.asarray(cut_bound(into, np.where(into > 0, entering, 1.0)))
    sending = bool(sends.max() >= receives.max())
    rank = int(np.argmax(sends if sending else receives))
    value, amount = (sends[rank], out[rank]) if sending else (receives[rank], into[rank])
    return BoundPart("node", float(value), crossing_words(graph, {rank}, float(amount), into=not sending))


def _slowest_cut(graph: Graph, demands: Demands) -> BoundPart:
    """The slowest of the cuts between the beginning and the rest of some orders of the vertices. (The slowest of all cuts is hard
    to find; these are bounds all the same.)"""
    found = []
    for order in _orders(graph):
        place = np.empty(graph.vertices, dtype=np.intp)
        place[order] = np.arange(graph.vertices)
        for up in (True, False):
            amounts, capacities = _prefixes(graph, demands, place, up)
            first = int(np.argmax(np.divide(amounts, capacities, out=np.zeros_like(amounts), where=capacities > 0)))
            found.append(_cut(graph, demands, (place <= first) == up))
    return max(found, key=lambda part: part.value)


def _cut(graph: Graph, demands: Demands, inside: NDArray[np.bool_]) -> BoundPart:
    """Summed anew, since the running sums that chose it are rounded."""
    source, target, bandwidth = _ends(graph)
    ranks = inside[: graph.ranks]
    crossing = float(demands[np.ix_(ranks, ~ranks)].sum())
    capacity = float(bandwidth[inside[source] & ~inside[target]].sum())
    value = float(cut_bound(crossing, capacity)) if crossing else 0.0
    return BoundPart("cut", value, crossing_words(graph, set(np.flatnonzero(inside).tolist()), crossing))


def _prefixes(graph: Graph, demands: Demands, place: NDArray[np.intp], up: bool) -> tuple[Floats, Floats]:
    """[vertices - 1]: bytes and bandwidth from the first 1, 2, ... vertices to the others; back, unless ``up``."""
    source, target, bandwidth = _ends(graph)
    of_rank = place[: graph.ranks]
    capacities = _across(place[source], place[target], bandwidth, len(place), up)
    pairs = np.broadcast_arrays(of_rank[:, None], of_rank[None, :])
    return _across(pairs[0].ravel(), pairs[1].ravel(), demands.ravel(), len(place), up), capacities


def _across(source: NDArray[np.intp], target: NDArray[np.intp], weight: Floats, places: int, up: bool) -> Floats:
    """What passes each gap between neighbouring places, upwards or downwards."""
    low, high = (source, target) if up else (target, source)
    passing = low < high
    amounts = np.where(passing, weight, 0.0)
    change = np.bincount(low, amounts, places) - np.bincount(high, amounts, places)
    return np.cumsum(change)[:-1]


def _orders(graph: Graph) -> Iterator[NDArray[np.intp]]:
    """By number, as products of topologies are laid out, and along the slowest modes of the graph (Fiedler, Czech. Math. J. 25,
    1975)."""
    yield np.arange(graph.vertices)
    if graph.vertices <= LARGEST_SPECTRUM:
        source, target, bandwidth = _ends(graph)
        joined = np.zeros((graph.vertices, graph.vertices))
        np.add.at(joined, (source, target), bandwidth)
        joined += joined.T
        _, modes = np.linalg.eigh(np.diag(joined.sum(axis=1)) - joined)
        yield from (np.argsort(mode, kind="stable") for mode in modes.T[1 : SPECTRUM + 1])


def _ends(graph: Graph) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    source = np.array([edge.source for edge in graph.edges], dtype=np.intp)
    target = np.array([edge.target for edge in graph.edges], dtype=np.intp)
    return source, target, graph.bandwidths
