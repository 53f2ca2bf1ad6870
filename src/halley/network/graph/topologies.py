"""Topologies as graphs: one builder for each, from an `Axis`.

Links are full duplex, two edges each, unless a ring is one-way. The edges to higher ranks come first: of the two directions round
a ring, if equally long, messages take the ascending one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from halley.errors import BadInput, Fault
from halley.ir.hardware import Axis, Topology
from halley.network.graph.cartesian import cartesian
from halley.network.graph.graph import Edge, Graph, Switch
from halley.network.graph.routes import EveryShortest
from halley.network.graph.tiers import both_ways, dragonfly, fat_tree

_T = Topology


@lru_cache(maxsize=1024)
def build(axis: Axis) -> Graph:
    """The graph of one axis; equal axes share one graph, and so its remembered routes.

    >>> from halley.ir.hardware import Link
    >>> ring = build(Axis("x", 4, Topology.RING, Link(25e9)))
    >>> ring.ranks, [(edge.source, edge.target) for edge in ring.edges]
    (4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 3), (1, 0), (2, 1), (3, 2)])

    Raises BadInput: every fault of the axis.
    """
    faults = axis_faults(axis)
    if faults:
        raise BadInput(faults)
    graph = BUILDERS[axis.topology](axis)
    return replace(graph, router=EveryShortest()) if axis.multipath else graph


class Misfit(NamedTuple):
    """A fault of an axis: in one of its fields, or in several together ("")."""

    field: str
    expected: str
    got: str
    remedy: str = ""


def axis_faults(axis: Axis) -> list[Fault]:
    """All that is wrong with an axis, as faults that name it."""
    where = f"axis {axis.name}, topology {axis.topology}"
    return [Fault(f"{where}, {item.field}" if item.field else where, *item[1:]) for item in misfits(axis)]


_SWITCHED = (_T.SWITCH, _T.FAT_TREE, _T.DRAGONFLY)
_SHAPED = (_T.MESH, _T.TORUS, _T.FAT_TREE, _T.DRAGONFLY)
_FIELDS: Mapping[str, tuple[Topology, ...]] = {
    "shape": _SHAPED,
    "upper": (_T.FAT_TREE, _T.DRAGONFLY),
    "top": (_T.FAT_TREE, _T.DRAGONFLY),
    "multicast": _SWITCHED,
    "reduction": _SWITCHED,
    "on_request": _SWITCHED,
    "one_way": (_T.RING,),
    "multipath": tuple(topology for topology in _T if topology is not _T.DRAGONFLY),
}
"""Topologies that a field of an axis says something about."""


def coordinates(axis: Axis) -> int:
    """Number of coordinates of a rank on the axis.

    >>> from halley.ir.hardware import Link
    >>> coordinates(Axis("x", 64, Topology.TORUS, Link(1.0), (4, 4, 4))), coordinates(Axis("x", 64, Topology.RING, Link(1.0)))
    (3, 1)
    """
    if axis.topology is _T.HYPERCUBE:
        return axis.size.bit_length()
    return len(axis.shape) if axis.topology in (_T.MESH, _T.TORUS) else 1


def edge_count(axis: Axis) -> int:
    """Directed links of an axis without faults, before any of them is built.

    >>> from halley.ir.hardware import Link
    >>> axis = Axis("x", 72, Topology.DRAGONFLY, Link(1.0), (4, 2, 2))
    >>> edge_count(axis) == len(build(axis).edges)
    True
    """
    n, shape = axis.size, axis.shape
    match axis.topology, shape:
        case _T.FULL, _:
            return n * (n - 1)
        case _T.FAT_TREE, (leaf, spines):
            return 2 * (n + n // leaf * spines)
        case _T.FAT_TREE, (leaf, leaves, spines, cores):
            return 2 * (n + n // leaf * spines + n // (leaf * leaves) * cores)
        case _T.DRAGONFLY, (routers, _, outlets):
            groups = routers * outlets + 1
            return 2 * n + groups * routers * (routers - 1) + groups * (groups - 1)
        case ((_T.MESH | _T.TORUS), _):
            return sum(n // extent * edge_count(Axis("", extent, _INNER[axis.topology], axis.link)) for extent in shape)
        case _T.HYPERCUBE, _:
            return n * (n.bit_length() - 1)
        case _T.DGX_1, _:
            return sum(bool(count) for row in _DGX_1 for count in row)
        case _T.RING, _:
            return 0 if n == 1 else n if axis.one_way or n == 2 else 2 * n
        case _T.LINE, _:
            return 2 * (n - 1)
        case _T.NONE, _:
            return 0
        case _:
            return 2 * n


_INNER = {_T.MESH: _T.LINE, _T.TORUS: _T.RING}
"""What a grid is the product of."""


def misfits(axis: Axis) -> Iterator[Misfit]:
    """All that is wrong with an axis."""
    n, shape = axis.size, axis.shape
    if not _whole(n):
        yield Misfit("size", "a whole number of ranks, at least 1", repr(n))
        return
    for name, link in (("link", axis.link), ("upper", axis.upper), ("top", axis.top)):
        if axis.topology is not _T.NONE and link is not None and not link.bandwidth > 0:
            yield Misfit(name, "a bandwidth above zero", f"{link.bandwidth:g} B/s")
    for name, having in _FIELDS.items():
        if getattr(axis, name) and axis.topology not in having:
            yield Misfit(name, f"this only for {', '.join(having)}", f"one for {axis.topology}", "leave it out")
    if axis.on_request and not axis.reduction:
        yield Misfit("on_request", "switches that add (reduction)", "none", "add reduction, or leave it out")
    if not all(map(_whole, shape)):
        yield Misfit("shape", "whole numbers, at least 1", repr(shape))
    elif axis.topology in _SHAPED:
        yield from _shape_misfits(axis)
    elif axis.topology is _T.HYPERCUBE and n & (n - 1):
        yield Misfit("size", "a power of two of ranks", str(n))
    elif axis.topology is _T.DGX_1 and n != len(_DGX_1):
        yield Misfit("size", f"{len(_DGX_1)} ranks", str(n))


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _shape_misfits(axis: Axis) -> Iterator[Misfit]:
    n, shape = axis.size, axis.shape
    match axis.topology, shape:
        case ((_T.MESH | _T.TORUS), (_, *_)):
            if math.prod(shape) != n:
                yield Misfit("shape", f"extents whose product is the size {n}", f"{shape}, product {math.prod(shape)}")
        case ((_T.MESH | _T.TORUS), _):
            yield Misfit("shape", "the extents, such as (4, 4)", "none")
        case _T.FAT_TREE, (leaf, _):
            if n % leaf:
                yield Misfit("shape", f"a leaf size that divides the {n} ranks", str(leaf))
        case _T.FAT_TREE, (leaf, leaves, spines, cores):
            if n % (leaf * leaves):
                yield Misfit("shape", f"pods of a size that divides the {n} ranks", f"{leaf} x {leaves}")
            if cores % spines:
                yield Misfit("shape", "as many cores for each spine of a pod", f"{cores} cores for {spines} spines")
        case _T.FAT_TREE, _:
            yield Misfit("shape", "(leaf size, spines) or (leaf size, leaves per pod, spines per pod, cores)", repr(shape))
        case _, (routers, hosts, outlets):
            groups = routers * outlets + 1
            if routers * hosts * groups != n:
                got = f"{routers} x {hosts} x {groups} = {routers * hosts * groups}"
                yield Misfit("shape", f"routers x ranks per router x groups = {n} ranks", got)
        case _:
            yield Misfit("shape", "(routers per group, ranks per router, global links per router)", repr(shape))


def _apart(axis: Axis) -> Graph:
    return Graph(axis.name, axis.size, ())


def _line(axis: Axis) -> Graph:
    return Graph(axis.name, axis.size, tuple(both_ways([(i, i + 1) for i in range(axis.size - 1)], axis.link)))


def _ring(axis: Axis) -> Graph:
    n = axis.size
    up = [Edge(i, (i + 1) % n, axis.link) for i in range(n)] if n > 1 else []
    down = [Edge(i, (i - 1) % n, axis.link) for i in range(n)] if n > 2 and not axis.one_way else []
    return Graph(axis.name, n, (*up, *down))


def _full(axis: Axis) -> Graph:
    n = axis.size
    return Graph(axis.name, n, tuple(Edge(i, j, axis.link) for i in range(n) for j in range(n) if i != j))


def _switch(axis: Axis) -> Graph:
    n = axis.size
    switch = Switch("switch", axis.multicast, axis.reduction, axis.on_request)
    return Graph(axis.name, n, tuple(both_ways([(i, n) for i in range(n)], axis.link)), (switch,))


def _grid(axis: Axis) -> Graph:
    """A mesh or torus: the product of its lines or rings, as one block of one dimension."""
    inner = _INNER[axis.topology]
    blocks = tuple(build(Axis(f"{axis.name}{place}", extent, inner, axis.link)) for place, extent in enumerate(axis.shape))
    return _one_block(axis.name, blocks)


def _hypercube(axis: Axis) -> Graph:
    """Routed in the lowest dimension first."""
    pair = build(Axis(axis.name, 2, _T.LINE, axis.link))
    return _one_block(axis.name, (pair,) * (axis.size.bit_length() - 1) or (_line(axis),))


def _one_block(name: str, blocks: tuple[Graph, ...]) -> Graph:
    graph = cartesian(name, blocks)
    return replace(graph, edges=tuple(replace(edge, dimension=0) for edge in graph.edges))


_DGX_1 = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)
"""Links between the GPUs of a DGX-1 with 8 V100, six for each, as its NVLink connection matrix lists them."""

DGX_1_CIRCUITS = ((0, 3, 2, 1, 5, 6, 7, 4), (0, 3, 2, 1, 5, 6, 7, 4), (0, 1, 3, 7, 5, 4, 6, 2))
"""Three circuits through all GPUs of a DGX-1 that take up all of its links: two over the double ones, one over the others."""


def _dgx_1(axis: Axis) -> Graph:
    """Two fully joined groups of four, with one link or two per pair; other pairs share all paths of two links."""
    edges = [
        Edge(i, j, replace(axis.link, bandwidth=count * axis.link.bandwidth, price=count * axis.link.price))
        for i, row in enumerate(_DGX_1)
        for j, count in enumerate(row)
        if count
    ]
    return Graph(axis.name, axis.size, tuple(edges), router=EveryShortest())


BUILDERS: Mapping[Topology, Callable[[Axis], Graph]] = {
    _T.LINE: _line,
    _T.RING: _ring,
    _T.FULL: _full,
    _T.SWITCH: _switch,
    _T.MESH: _grid,
    _T.TORUS: _grid,
    _T.HYPERCUBE: _hypercube,
    _T.DRAGONFLY: dragonfly,
    _T.FAT_TREE: fat_tree,
    _T.DGX_1: _dgx_1,
    _T.NONE: _apart,
}
"""The builder of each topology, from an axis without faults."""
