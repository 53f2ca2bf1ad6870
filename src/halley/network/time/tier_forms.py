"""Closed forms of direct exchanges on fat-trees and dragonflies.

Their routes depend on the target alone, or on groups. So the ways that cross a link are all those from some ranks to some others:
a product of two sets, or a few of them. The link carries a chunk as often as the other set has members.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.ir.hardware import Axis, Link, Topology
from halley.network.graph.tiers import Minimal

Floats: TypeAlias = NDArray[np.float64]
Members: TypeAlias = NDArray[np.bool_]
"""[ranks] who is in a set."""
Crossing: TypeAlias = tuple[Link, tuple[tuple[Members, Members], ...]]
"""A link, and the pairs of (sources, targets) whose ways cross it."""


def direct_loads(axis: Axis, gathering: bool) -> Floats:
    """[links, ranks] how often each chunk crosses the links of a direct exchange, more on links slower than those of ranks.
    Chunks belong to the sources if it gathers, else to the targets.

    >>> tree = Axis("x", 4, Topology.FAT_TREE, Link(2.0), (2, 1), upper=Link(1.0))
    >>> direct_loads(tree, True).tolist()[:3]   # of rank 0, then from the first leaf up to the spine and down to it
    [[3.0, 0.0, 0.0, 0.0], [4.0, 4.0, 0.0, 0.0], [0.0, 0.0, 4.0, 4.0]]
    """
    n = axis.size
    rows = [(n - 1) * (np.arange(n) == 0).astype(np.float64)]  # of the rank with the largest chunk
    for link, pairs in _crossings(axis):
        load = sum(int(b.sum()) * a if gathering else int(a.sum()) * b for a, b in pairs)
        rows.append(np.asarray(load) * (axis.link.bandwidth / link.bandwidth))
    return np.stack(rows)


def direct_latency(axis: Axis) -> float:
    """Latency of the longest way, besides the first and last link [s]."""
    upper = axis.upper or axis.link
    top = axis.top or upper
    if axis.topology is Topology.DRAGONFLY:
        return top.latency + (2 * upper.latency if axis.shape[0] > 1 else 0.0)
    leaf, leaves, _, cores = _tree(axis)
    across_pods = 2 * top.latency if cores and axis.size > leaf * leaves else 0.0
    return (2 * upper.latency if axis.size > leaf else 0.0) + across_pods


def _crossings(axis: Axis) -> Iterator[Crossing]:
    """Every link between switches."""
    return _of_dragonfly(axis) if axis.topology is Topology.DRAGONFLY else _of_fat_tree(axis)


def _tree(axis: Axis) -> tuple[int, int, int, int]:
    """Ranks per leaf, leaves per pod, spines per pod, cores; 0 in two levels."""
    if len(axis.shape) == 4:
        leaf, leaves, spines, cores = axis.shape
        return leaf, leaves, spines, cores
    return axis.shape[0], axis.size // axis.shape[0], axis.shape[1], 0


def _of_fat_tree(axis: Axis) -> Iterator[Crossing]:
    """Between a leaf, or a pod, and the spine, or core, that the target's number selects: who is in it, and who is not."""
    leaf, leaves, spines, cores = _tree(axis)
    rank, upper = np.arange(axis.size), axis.upper or axis.link
    share = max(cores // spines, 1)
    tiers = [(upper, rank // leaf, rank % spines)]
    if cores:
        tiers.append((axis.top or upper, rank // (leaf * leaves), rank % spines * share + rank // spines % share))
    for link, part, way in tiers:
        for inside in (part == number for number in range(int(part[-1]) + 1)):
            for taken in (way == number for number in np.unique(way)):
                yield link, ((inside, ~inside & taken),)
                yield link, ((~inside, inside & taken),)


def _of_dragonfly(axis: Axis) -> Iterator[Crossing]:
    """Between routers of a group: from those at the first, and from groups that come in there, to those at the second; from
    those at the first to groups that the second leads to. Between groups: from one to the other."""
    minimal, rank, upper = Minimal(*axis.shape), np.arange(axis.size), axis.upper or axis.link
    router, number = rank // minimal.hosts, minimal.routers
    group = router // number
    for here in range(minimal.groups):
        beyond = group != here
        gateway = np.where(beyond, minimal.gateway(np.full_like(group, here), group), -1)
        for a in range(here * number, (here + 1) * number):
            for b in range(here * number, (here + 1) * number):
                if a != b:
                    yield upper, ((router == a, (router == b) | (gateway == b)), (gateway == a, router == b))
        for there in range(minimal.groups):
            if here != there:
                yield axis.top or upper, ((group == here, group == there),)
