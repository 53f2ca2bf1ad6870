"""Where the vertices of a network are drawn: a place in the plane for each, by topology.

One axis has the picture that its topology is known by: a circle, a grid, tiers, groups. A product of axes is a grid whose
coordinates go right, down and slantwise, cyclically, the last axis first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from halley.ir.hardware import Axis, Topology
from halley.network.graph.fabric import Fabric
from halley.network.graph.graph import Graph
from halley.network.graph.topologies import build

Points = NDArray[np.float64]
"""[vertices, 2] x to the right and y down, in steps from one neighbour to the next."""

_T = Topology
GRIDS = (_T.LINE, _T.MESH, _T.TORUS, _T.HYPERCUBE)


def layout(fabric: Fabric) -> Points:
    """A place for every vertex of the network.

    >>> from halley.ir.hardware import Link
    >>> axis = Axis("x", 4, Topology.MESH, Link(1.0), (2, 2))
    >>> layout(Fabric("mesh", build(axis), (axis,))).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    if not fabric.axes:
        return _tiers(fabric.graph) if fabric.graph.switches else _circle(fabric.graph)
    if len(fabric.axes) == 1 and fabric.axes[0].topology not in GRIDS:
        return _SINGLE[fabric.axes[0].topology](fabric.graph, fabric.axes[0])
    return _grid(fabric.axes)


def _circle(graph: Graph, axis: Axis | None = None) -> Points:
    """Ranks on a circle, the first on top; switches in its centre."""
    radius = max(graph.ranks / (2 * math.pi), 1.0)
    angle = 2 * math.pi * np.arange(graph.ranks) / graph.ranks
    ranks = radius * np.stack([np.sin(angle), -np.cos(angle)], axis=1)
    return np.concatenate([ranks, np.zeros((len(graph.switches), 2))])


def _tiers(graph: Graph, axis: Axis | None = None) -> Points:
    """Ranks in a row, and above them in as many rows as it takes the switches, by their distance from the nearest rank."""
    tier = np.where(np.arange(graph.vertices) < graph.ranks, 0, -1)
    ends = [(edge.source, edge.target) for edge in graph.edges]
    level = 0
    while True:
        found = {target for source, target in ends if tier[source] == level and tier[target] < 0}
        if not found:
            break
        level += 1
        tier[list(found)] = level
    places = np.zeros((graph.vertices, 2))
    width = max(graph.ranks - 1, 1)
    rows = int(tier.max())
    for row in range(rows + 1):
        members = np.flatnonzero(tier == row)
        share = width / len(members)
        places[members, 0] = np.arange(len(members)) if row == 0 else share * (np.arange(len(members)) + 0.5)
        places[members, 1] = -row * max(width / 6, 2.0)
    return places


def _groups(graph: Graph, axis: Axis) -> Points:
    """A dragonfly: groups on a circle, the routers of a group on a small one, their ranks around them."""
    routers, hosts, outlets = axis.shape
    groups = routers * outlets + 1
    inner = max(routers * (hosts + 1) / (2 * math.pi), 1.0)
    outer = max(groups * (2 * inner + 2.5) / (2 * math.pi), inner + 2.5)
    places = np.zeros((graph.vertices, 2))
    for router in range(groups * routers):
        turn = 2 * math.pi * (router // routers) / groups
        centre = outer * np.array([math.sin(turn), -math.cos(turn)])
        angle = turn + 2 * math.pi * (router % routers) / routers
        places[graph.ranks + router] = centre + inner * 0.5 * np.array([math.sin(angle), -math.cos(angle)])
        for host in range(hosts):
            spread = angle + 2 * math.pi / routers * ((host + 0.5) / hosts - 0.5) * 0.8
            places[router * hosts + host] = centre + (inner + 0.5) * np.array([math.sin(spread), -math.cos(spread)])
    return places


def _quads(graph: Graph, axis: Axis) -> Points:
    """A DGX-1: two squares side by side, partners at the same corner."""
    corners = [(0.0, 0.0), (2.0, 0.0), (0.6, 2.0), (2.6, 2.0)]
    return np.array([*corners, *((x + 4.2, y + 0.5) for x, y in corners)])


_SINGLE: Mapping[Topology, Callable[[Graph, Axis], Points]] = {
    _T.RING: _circle,
    _T.FULL: _circle,
    _T.SWITCH: _circle,
    _T.FAT_TREE: _tiers,
    _T.DRAGONFLY: _groups,
    _T.DGX_1: _quads,
}


def _grid(axes: tuple[Axis, ...]) -> Points:
    """Ranks on a grid. A block's one switch stands before its first rank; several stand beside the ranks that they serve."""
    extents = [extent for axis in axes for extent in _extents(axis)]
    steps = _steps(extents)
    coordinates = np.stack(np.unravel_index(np.arange(math.prod(extents)), extents), axis=1)
    ranks = coordinates @ steps
    places = [ranks]
    for place, axis in enumerate(axes):
        block = build(axis)
        if not block.switches:
            continue
        way = steps[sum(len(_extents(other)) for other in axes[:place])]
        stride = math.prod(other.size for other in axes[place + 1 :])
        for fibre in range(len(ranks) // axis.size):
            first = fibre // stride * stride * axis.size + fibre % stride
            places.append(_beside(block, ranks[first], way))
    return np.concatenate(places)


def _beside(block: Graph, first: Points, way: Points) -> Points:
    """The switches of a block whose ranks go from ``first`` in steps of ``way``."""
    if len(block.switches) == 1:
        return np.array([first - way])
    local = _tiers(block)[block.ranks :]
    across = np.array([-way[1], way[0]]) / np.hypot(*way)
    return np.array([first + x * way + 0.3 * np.sign(y) * across for x, y in local])


def _extents(axis: Axis) -> tuple[int, ...]:
    if axis.topology in (_T.MESH, _T.TORUS):
        return axis.shape
    return (2,) * (axis.size.bit_length() - 1) if axis.topology is _T.HYPERCUBE and axis.size > 1 else (axis.size,)


def _steps(extents: list[int]) -> Points:
    """Per coordinate, the step from one value to the next: right, down, slantwise; then what is there so far is repeated."""
    steps = np.zeros((len(extents), 2))
    last = list(reversed(range(len(extents))))
    roomy = 2.0 if len(extents) > 2 else 1.0
    for place, way in zip(last, ((roomy, 0.0), (0.0, roomy)), strict=False):
        steps[place] = way
    if len(extents) == 2 and extents[0] > 2 * extents[1]:
        steps = steps[::-1].copy()  # lying, not standing
    if len(extents) > 2:
        steps[last[2]] = np.array([0.95, -0.8]) * roomy / max(extents[last[2]], 3)
    for place in last[3:]:
        across = int(place % 2 == 0)
        span = np.abs(steps) * (np.array(extents) - 1)[:, None]
        steps[place, across] = span.sum(axis=0)[across] + 1.5 * roomy
    return steps
