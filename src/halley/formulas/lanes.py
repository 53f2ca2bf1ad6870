"""Collectives of several groups that share the links of one axis, and collectives over several axes in pipelined pieces."""

from __future__ import annotations

from collections.abc import Sequence

from halley.formulas.numbers import Number, floor_div
from halley.formulas.timing import longest, total


def lane_bandwidth(bandwidth: Number, groups: Number) -> Number:
    """Bandwidth per group of a link that several groups use at the same time.

    .. math:: b = B / g

    Symbols: B [B/s] bandwidth of the link and direction; g [1] groups whose messages cross it. Holds for: groups of ranks with a
    stride on a line or ring; messages between neighbours of a group cross ``stride`` links, and g is the stride. Source: each of
    the g interleaved groups has one message on the link.

    >>> lane_bandwidth(120, 4)
    30.0
    """
    return bandwidth / groups


def lane_latency(latency: Number, links: Number) -> Number:
    """Latency of a hop from a rank of a group to the next of the group, over the links between them.

    .. math:: \\lambda = k \\lambda_1

    Symbols: lambda_1 [s] latency of one link; k [1] links. Holds for: cut-through routing. Source: definition.

    >>> lane_latency(3, 4)
    12
    """
    return links * latency


def around_ring_bytes(members: Number, payload: Number) -> Number:
    """A direct exchange on a ring, all messages at once: shortest paths, ties upwards, load every upward link equally.

    .. math:: q = \\frac{h (h + 1)}{2} \\frac{S}{n}, \\quad h = \\lfloor n / 2 \\rfloor

    Symbols: n [1] members; h [1] links of the longest path; S [B] payload of one member (all-to-all) or of all together
    (all-gather, reduce-scatter). Holds for: equal chunks, shortest paths. Source: n messages of each length d from 1 to h cross d
    of n links each.

    >>> around_ring_bytes(5, 240)
    144.0
    """
    half = floor_div(members, 2)
    return half * (half + 1) / 2 * (payload / members)


def phased_time(phases: Sequence[Sequence[Number]], pieces: int) -> Number:
    """A collective in sequential phases over the dimensions of a network, pipelined in equal pieces.

    .. math:: T = \\sum_{u = 0}^{m + k - 2} \\max_d \\sum_{0 \\le i < m,\\; 0 \\le u - i < k} t_{id}

    Symbols: t_id [s] time of phase i of m [1] on dimension d, for one piece; k [1] pieces; u [1] slots, in each of which every
    piece that has started runs its next phase. Holds for: dimensions that share no link; phases on one dimension are serialised.
    Does not model: pieces that run ahead of their slot; phases that use a dimension in opposite directions. Source: the
    pipelining of a hierarchical all-reduce in chunks, Cho et al. (BlueConnect), IBM J. Res. Dev. 63, 2019; a synchronous pipeline
    advances at the speed of its slowest dimension.

    >>> phased_time([[30, 0], [1, 50], [20, 2]], 4)   # 30, 50, 52, 52, 52, 20
    256
    """
    different = min(len(phases), pieces)
    slots = []
    for slot in range(len(phases) + different - 1):
        working = phases[max(0, slot - different + 1) : slot + 1]
        busiest = longest([total(times) for times in zip(*working, strict=True)])
        # with more pieces than phases, all phases are busy in several slots
        slots.append(busiest * (pieces - different + 1) if slot == different - 1 else busiest)
    return total(slots)
