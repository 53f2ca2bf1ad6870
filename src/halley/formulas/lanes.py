"""Collectives of several groups that share the links of one axis, and collectives over several axes in pipelined pieces."""

from __future__ import annotations

from collections.abc import Sequence

from halley.formulas.numbers import Number, floor_div, maximum
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


def slot_time(
    postings: Sequence[Number],
    pairs: Sequence[Sequence[Number]],
    latencies: Sequence[Sequence[Number]],
    ups: Sequence[Sequence[Number]],
    downs: Sequence[Sequence[Number]],
) -> Number:
    """Phases side by side on the dimensions of a network.

    .. math:: T = \\sum_i o_i + \\sum_d \\max_i p_{id}
        + \\max_d \\left(\\max_i \\lambda_{id} + \\max\\left(\\sum_i u_{id}, \\sum_i d_{id}\\right)\\right)

    Symbols: o_i [s] what the busiest rank takes to post the messages of phase i; p_id [s] the same for messages on dimension d
    that go to the same ranks in all phases, so that they are posted together; lambda_id [s] latencies of all steps of phase i on
    dimension d, 0 where it does not use it; u_id, d_id [s] its transfers on the busiest links from the ranks and to them, summed
    over its steps, which differ only for phases of one step. Holds for: dimensions that share no link; max-min fair sharing of
    the links; a rank that posts one message at a time. Source: the phase that ends last takes its own latency and transfer alone.
    While it runs at a rate r < 1, a link is full of which the other phases use at least 1 - r; so it is delayed by no more than
    their transfers take.

    >>> slot_time([1, 2], [[3], [4]], [[5], [6]], [[70], [80]], [[9], [10]])
    163
    """
    by_dimension = (zip(*matrix, strict=True) for matrix in (latencies, ups, downs))
    sides: list[Number] = [longest(late) + maximum(total(up), total(down)) for late, up, down in zip(*by_dimension, strict=True)]
    posted: list[Number] = [longest(side) for side in zip(*pairs, strict=True)]
    return total(postings) + total(posted) + longest(sides)


def phased_time(
    postings: Sequence[Number],
    pairs: Sequence[Sequence[Number]],
    latencies: Sequence[Sequence[Number]],
    ups: Sequence[Sequence[Number]],
    downs: Sequence[Sequence[Number]],
    pieces: int,
) -> Number:
    """Phases one after the other on several dimensions of a network, of equal pieces that follow each other.

    .. math:: T = \\sum_{u = 0}^{m + k - 2} T_u, \\quad 0 \\le i < m,\\; 0 \\le u - i < k

    Symbols: m [1] phases, with o_i, p_id, lambda_id, u_id, d_id [s] of one piece as in `slot_time`; k [1] pieces; u [1] slots, in
    each of which every piece that has set out goes through its next phase, and T_u [s] the time of these phases i side by side.
    Does not model: pieces that run ahead of their slot. Source: the pipelining of a hierarchical all-reduce in chunks, Cho et al.
    (BlueConnect), IBM J. Res. Dev. 63, 2019; a synchronous pipeline advances at its slowest dimension.

    >>> phased_time([1, 2], [[3], [4]], [[5], [6]], [[70], [80]], [[9], [10]], 11)   # 79, 10 times 163, 92
    1801
    """
    different = min(len(postings), pieces)
    slots = []
    for slot in range(len(postings) + different - 1):
        working = slice(max(0, slot - different + 1), slot + 1)
        found = slot_time(postings[working], pairs[working], latencies[working], ups[working], downs[working])
        # with more pieces than phases, all phases are at work in several slots
        slots.append(found * (pieces - different + 1) if slot == different - 1 else found)
    return total(slots)
