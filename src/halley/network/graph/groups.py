"""Sub-groups of a network: some of its ranks, the topology that these have among themselves, and their graph.

A part of a ring is a line, as it lacks the closing link; every k-th rank of a ring is a ring whose links are k hops long. If a
group has no topology of its own, its graph holds the links of its routes, which may pass through other ranks. Traffic of other
groups on the same links is not included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from halley.errors import BadInput, Fault
from halley.ir.hardware import Axis, Link, Topology
from halley.network.graph.graph import Graph, Path, Switch
from halley.network.graph.products import product
from halley.network.graph.routes import Integers, RoutingMatrix, paths, routing_matrix

_T = Topology


@dataclass(frozen=True, eq=False)
class Group:
    """Some ranks of a network, in the order in which they are numbered within the group.

    ``axes``: axes whose product the group is, None where it has no topology of its own; ``graph``: its graph either way.
    """

    ranks: tuple[int, ...]
    axes: tuple[Axis, ...] | None
    graph: Graph


def slice(axis: Axis, start: int, stop: int, step: int = 1) -> Group:
    """The ranks start, start + step, ... below stop of an axis.

    >>> from halley.ir.hardware import Link
    >>> ring = Axis("x", 8, Topology.RING, Link(25e9, 1e-6))
    >>> [(axis.topology.value, axis.size, axis.link.latency) for axis in slice(ring, 2, 6).axes or ()]
    [('line', 4, 1e-06)]
    >>> [(axis.topology.value, axis.size, axis.link.latency) for axis in slice(ring, 0, 8, 2).axes or ()]
    [('ring', 4, 2e-06)]

    Raises BadInput: a slice that is empty or leaves the axis.
    """
    if step < 1 or not 0 <= start < stop <= axis.size:
        where = f"slice of axis {axis.name}"
        expected = f"0 <= start < stop <= {axis.size} and a step of at least 1"
        raise BadInput(Fault(where, expected, f"start {start}, stop {stop}, step {step}"))
    return group((axis,), range(start, stop, step))


def group(axes: tuple[Axis, ...], ranks: Sequence[int]) -> Group:
    """The ranks of the network of these axes.

    Raises BadInput: no ranks, ranks that the network lacks, a rank twice.
    """
    network = product(axes)
    members = _checked(network, ranks)
    found = _axes(_flat(axes), members)
    return Group(members, found, product(found) if found else induced(network, members))


def _checked(network: Graph, ranks: Sequence[int]) -> tuple[int, ...]:
    members = tuple(int(rank) for rank in ranks)
    where, faults = f"group in network {network.name}", []
    strange = [rank for rank in members if not 0 <= rank < network.ranks]
    twice = sorted({rank for rank in members if members.count(rank) > 1})
    if not members:
        faults.append(Fault(where, "at least one rank", "none"))
    if strange:
        faults.append(Fault(where, f"a sub-group of the ranks 0 to {network.ranks - 1}", f"rank {_few(strange)}"))
    if twice:
        faults.append(Fault(where, "each rank once", f"rank {_few(twice)} again"))
    if faults:
        raise BadInput(faults)
    return members


def _few(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def _flat(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes, with lines and rings instead of meshes and tori: the same network with the same routes."""
    found: list[Axis] = []
    for axis in axes:
        if axis.topology in (_T.MESH, _T.TORUS) and not axis.multipath:
            inner = _T.LINE if axis.topology is _T.MESH else _T.RING
            found += [Axis(f"{axis.name}{place}", extent, inner, axis.link) for place, extent in enumerate(axis.shape)]
        else:
            found.append(axis)
    return tuple(found)


def _axes(axes: tuple[Axis, ...], members: tuple[int, ...]) -> tuple[Axis, ...] | None:
    """The axes of the group, if its ranks are the points of a box in row-major order and every side of the box has a topology."""
    sizes = [axis.size for axis in axes]
    points = np.stack(np.unravel_index(np.array(members), sizes), axis=1)
    sides = [np.unique(points[:, place]) for place in range(len(axes))]
    if math.prod(map(len, sides)) != len(members):
        return None
    box = np.ravel_multi_index(np.ix_(*sides), sizes)
    if box.ravel().tolist() != list(members):
        return None
    found = [_side(axis, tuple(side.tolist())) for axis, side in zip(axes, sides, strict=True) if len(side) > 1]
    kept = tuple(axis for axis in found if axis is not None)
    return None if len(kept) < len(found) else kept or (Axis(axes[0].name, 1, _T.LINE, axes[0].link),)


def _side(axis: Axis, side: tuple[int, ...]) -> Axis | None:
    """The topology of at least two ascending coordinates on an axis; None if it is none of the known ones."""
    count, start, step = len(side), side[0], side[1] - side[0]
    if count == axis.size:
        return axis
    if axis.topology in (_T.FULL, _T.SWITCH):
        return replace(axis, size=count)
    if axis.topology is _T.FAT_TREE and side[0] // axis.shape[0] == side[-1] // axis.shape[0]:
        return replace(axis, size=count, topology=_T.SWITCH, shape=(), upper=None, top=None)  # all on one leaf
    if side != tuple(range(start, start + count * step, step)):
        return None
    far = replace(axis, size=count, link=_hops(axis.link, step))
    match axis.topology:
        case _T.LINE:
            return far
        case _T.RING if count * step == axis.size:
            return far
        case _T.RING if not axis.one_way and 2 * step <= axis.size:
            return replace(far, topology=_T.LINE, multipath=False)
        case _T.HYPERCUBE if not (step & (step - 1) or count & (count - 1) or start & (step * (count - 1))):
            return replace(axis, size=count)  # the bits of the step to the count are free, all others alike
        case _:
            return None


def _hops(link: Link, count: int) -> Link:
    """``count`` links in series, as one link."""
    return replace(link, latency=count * link.latency, energy=count * link.energy, price=count * link.price)


@dataclass(frozen=True, eq=False)
class Through:
    """The routes of a larger graph between some of its ranks."""

    parent: Graph
    ranks: tuple[int, ...]
    kept: tuple[int, ...]
    """Per own edge, the edge of the parent."""

    @cached_property
    def own(self) -> Integers:
        """Per edge of the parent, the own edge."""
        found = np.full(len(self.parent.edges), -1, dtype=np.int64)
        found[list(self.kept)] = np.arange(len(self.kept))
        return found

    def __call__(self, graph: Graph, source: int, target: int) -> tuple[Path, ...]:
        ways = paths(self.parent, self.ranks[source], self.ranks[target])
        return tuple(tuple(self.own[list(way)].tolist()) for way in ways)

    def table(self, graph: Graph, sources: Integers, targets: Integers) -> RoutingMatrix:
        numbers = np.array(self.ranks)
        matrix = routing_matrix(self.parent, np.stack([numbers[sources], numbers[targets]], axis=1))
        return replace(matrix, edges=self.own[matrix.edges], edge_count=len(graph.edges))


def induced(network: Graph, ranks: Sequence[int]) -> Graph:
    """The ranks with the links of the routes between them; other ranks on these routes become switches.

    Raises BadInput: no ranks, ranks that the network lacks, a rank twice, ranks without a way between them.
    """
    members = _checked(network, ranks)
    pairs = np.array([(a, b) for a in members for b in members if a != b], dtype=np.int64).reshape(-1, 2)
    kept = np.unique(routing_matrix(network, pairs).edges).tolist()
    ends = {end for index in kept for end in (network.edges[index].source, network.edges[index].target)}
    others = sorted(ends - set(members))
    vertices = {vertex: number for number, vertex in enumerate((*members, *others))}
    edges = tuple(
        replace(edge, source=vertices[edge.source], target=vertices[edge.target]) for edge in (network.edges[i] for i in kept)
    )
    first = network.ranks
    switches = tuple(network.switches[other - first] if other >= first else Switch(f"rank {other}") for other in others)
    return Graph(f"{len(members)} of {network.name}", len(members), edges, switches, Through(network, members, tuple(kept)))
