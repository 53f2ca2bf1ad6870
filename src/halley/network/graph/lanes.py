"""Lanes: the network of one group of ranks on an axis, when all groups of the same shape use the axis at the same time.

An axis of n ranks is divided into groups of ``size`` ranks with a ``stride``. On a switch, or with a link between every two
ranks, groups share no link. On a line or ring with stride t, the hop from a rank to the next one of its group is t links long,
and t groups share each link. So the lane has t times the latency of a link and 1 / t of its bandwidth. This is exact if all
groups run the same step table at the same time: t groups together load a link of the axis as one group loads the busiest link of
its lane. (All t hops cross the link before the next rank of the group, and no link has more than t.)

A group that spans the whole ring is a ring, otherwise a line. The groups of a hypercube are hypercubes; those of a mesh or torus
are products of lanes of its sides. All other groups (of fat-trees, dragonflies, one-way rings and so on) are `Crossed`: the
messages of all groups are counted on the graph of the whole axis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TypeAlias

from halley.formulas.lanes import lane_bandwidth, lane_latency
from halley.ir.hardware import Axis, Link, Topology

_T = Topology


@dataclass(frozen=True, slots=True)
class Crossed:
    """Groups of an axis whose network is no topology of its own."""

    axis: Axis
    size: int
    stride: int

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of every group."""
        span = self.size * self.stride
        starts = [block + offset for block in range(0, self.axis.size, span) for offset in range(self.stride)]
        return tuple(tuple(range(start, start + span, self.stride)) for start in starts)


Lane: TypeAlias = Axis | Crossed

SIMPLE = (_T.LINE, _T.RING, _T.FULL, _T.SWITCH)
"""Topologies of lanes that collectives have closed forms for."""


@lru_cache(maxsize=1 << 14)
def lanes(axis: Axis, size: int, stride: int) -> tuple[Lane, ...]:
    """The lanes whose product is the network of a group of ``size`` ranks with a ``stride``; () for one rank. Groups divide the
    axis.

    >>> ring = Axis("x", 16, Topology.RING, Link(8e9, 1e-6))
    >>> [(lane.topology.value, lane.size, lane.link.bandwidth, lane.link.latency) for lane in lanes(ring, 4, 4)]
    [('ring', 4, 2000000000.0, 4e-06)]
    >>> [(lane.topology.value, lane.size, lane.link.bandwidth, lane.link.latency) for lane in lanes(ring, 4, 1)]
    [('line', 4, 8000000000.0, 1e-06)]
    """
    if size == 1:
        return ()
    whole = size == axis.size
    match axis.topology:
        case _T.SWITCH | _T.FULL:
            return (replace(axis, size=size),)
        case _T.LINE:
            return (replace(_along(axis, size, stride), multipath=False),)
        case _T.RING if whole:
            return (axis,)
        case _T.RING:
            return (_of_ring(axis, size, stride),)
        case _T.HYPERCUBE if not axis.multipath:
            # each dimension of the hypercube is a pair of ranks; dimensions share no links
            count = size.bit_length() - 1
            return tuple(Axis(f"{axis.name}{bit}", 2, _T.LINE, axis.link) for bit in range(count))
        case _T.MESH | _T.TORUS if not axis.multipath:
            return _of_grid(axis, size, stride)
        case _T.FAT_TREE if stride == 1 and axis.shape[0] % size == 0:
            return (replace(axis, size=size, topology=_T.SWITCH, shape=(), upper=None, top=None),)  # under one leaf
        case _:
            return (Crossed(axis, size, stride),)


def _along(axis: Axis, size: int, stride: int) -> Axis:
    return replace(axis, size=size, link=_shared(axis.link, stride, stride))


def _shared(link: Link, links: int, groups: float) -> Link:
    """A link of a lane: a hop over several links that several groups share."""
    bandwidth, latency = lane_bandwidth(link.bandwidth, groups), lane_latency(link.latency, links)
    return replace(link, bandwidth=float(bandwidth), latency=float(latency), energy=links * link.energy)


def _of_ring(axis: Axis, size: int, stride: int) -> Lane:
    closes = size * stride == axis.size
    if closes and axis.multipath and size == 2:
        # both directions round the ring are equally long, and each message uses both; a ring of two ranks has one
        return replace(axis, size=2, multipath=False, link=_shared(axis.link, stride, stride / 2))
    if closes:
        return _along(axis, size, stride)
    if axis.one_way:
        return Crossed(axis, size, stride)  # a message to the rank before goes round the whole ring
    # at most half of the ring: the other direction is never shorter
    return replace(_along(axis, size, stride), topology=_T.LINE, multipath=False)


def _of_grid(axis: Axis, size: int, stride: int) -> tuple[Lane, ...]:
    """The lane on each side of the grid, in row-major order; a side may have none."""
    inner = _T.LINE if axis.topology is _T.MESH else _T.RING
    found: list[Lane] = []
    for place, extent in enumerate(axis.shape):
        below = prod(axis.shape[place + 1 :])
        low, high = max(stride, below), min(stride * size, below * extent)
        if high <= low:
            continue
        if low % below or high % low or (below * extent) % high:
            return (Crossed(axis, size, stride),)  # the group divides a side unevenly
        side = Axis(f"{axis.name}{place}", extent, inner, axis.link)
        found += lanes(side, high // low, low // below)
    return tuple(found)
