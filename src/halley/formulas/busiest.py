"""Bytes on the busiest link of each step of a collective, summed over the steps: exact for every payload.

`halley.formulas.collectives.collective_time` turns them and the hops into a time. Symbols throughout: n [1] members; S [B]
payload (see `halley.formulas.collectives`), a whole number; c [B] bytes of the first and largest of n chunks, ceil(S / n). Chunks
are filled one after the other, so the last ones may be shorter or empty. All bandwidths are equal.
"""

from __future__ import annotations

import numpy as np

from halley.formulas.numbers import Number, anywhere, ceil_div, floor_div, maximum, minimum, positive


def chunk_bytes(members: Number, payload: Number) -> Number:
    """One chunk on every link: a direct exchange among fully connected members.

    .. math:: q = c = \\lceil S / n \\rceil

    Symbols: n [1] members, S [B] payload. Source: definition of a chunk.

    >>> chunk_bytes(4, 242)
    61
    """
    return ceil_div(payload, members)


def ring_bytes(members: Number, payload: Number) -> Number:
    """A chunk in each of n - 1 steps: ring and pairwise all-gather and reduce-scatter, pairwise all-to-all. Also direct ones on a
    switch, where all n - 1 chunks pass a member's only link in one step.

    .. math:: q = (n - 1) c

    Symbols: n [1] members, S [B] payload, c = ceil(S / n). Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput.
    Appl. 19, 2005; here for chunks of whole bytes.

    >>> ring_bytes(4, 242)
    183
    """
    return (members - 1) * ceil_div(payload, members)


def both_ways_bytes(members: Number, payload: Number) -> Number:
    """Bidirectional all-gather and reduce-scatter on a ring.

    .. math:: q = \\lceil (n - 1) / 2 \\rceil c

    Symbols: n [1] members, S [B] payload, c = ceil(S / n). Source: Chan, Heimlich, Purkayastha and van de Geijn, Concurr. Comput.
    19, 2007.

    >>> both_ways_bytes(4, 242)
    122
    """
    return ceil_div(members - 1, 2) * ceil_div(payload, members)


def halved_bytes(members: Number, payload: Number) -> Number:
    """All-gather and reduce-scatter on a ring of an even number of members, where half of the opposite member's block arrives
    from each side.

    .. math:: q = (n / 2 - 1) \\min(S, 2 h) + h

    Symbols: n [1] members, even; S [B] payload, h = ceil(S / (2 n)) half of a chunk. With equal chunks it is (n - 1) S / (2 n),
    the node bound. Source: Chan, Heimlich, Purkayastha and van de Geijn, Concurr. Comput. 19, 2007, for the bound that it meets.

    >>> halved_bytes(4, 240), both_ways_bytes(4, 240)
    (90, 120)
    """
    half = ceil_div(payload, 2 * members)
    return (floor_div(members, 2) - 1) * minimum(payload, 2 * half) + half


def across_line_bytes(members: Number, payload: Number) -> Number:
    """Direct all-gather, reduce-scatter and all-to-all on a line: chunks of m members cross to the n - m others.

    .. math:: q = \\max_m (n - m) \\min(S, m c), \\quad m \\in \\{\\lfloor x \\rfloor, \\lceil y \\rceil\\}

    Symbols: n [1] members, S [B] payload, c = ceil(S / n), x = min(n / 2, S / c), y = min(floor(n / 2), S / c): the product rises
    up to x and falls after it. Source: bisection argument, Dally and Towles, Principles and Practices of Interconnection
    Networks, 2004, chapter 3; here for unequal chunks.

    >>> across_line_bytes(4, 242)
    244
    """
    chunk = ceil_div(payload, members)
    half = floor_div(members, 2)
    low, high = minimum(half, floor_div(payload, chunk)), minimum(half, ceil_div(payload, chunk))
    return maximum((members - low) * minimum(payload, low * chunk), (members - high) * minimum(payload, high * chunk))


def all_but_first_bytes(members: Number, payload: Number) -> Number:
    """Bytes that leave the root of a scatter, or reach the root of a gather: all chunks but its own, which is the largest.

    .. math:: q = S - \\min(S, c)

    Symbols: n [1] members, S [B] payload, c = ceil(S / n). Source: Chan et al., Concurr. Comput. 19, 2007.

    >>> all_but_first_bytes(4, 242)
    181
    """
    return payload - minimum(payload, ceil_div(payload, members))


def second_chunk_bytes(members: Number, payload: Number) -> Number:
    """The largest chunk that leaves the root of a scatter with a link to each member.

    .. math:: q = \\max(0, \\min(c, S - c))

    Symbols: n [1] members, at least 2; S [B] payload, c = ceil(S / n). Source: definition of a chunk.

    >>> second_chunk_bytes(3, 4), second_chunk_bytes(5, 7)
    (2, 2)
    """
    chunk = ceil_div(payload, members)
    return maximum(minimum(chunk, payload - chunk), 0 * chunk)


def most_of_others_bytes(members: Number, payload: Number) -> Number:
    """Multicast all-gather on a switch: the other members' chunks that the member with the smallest chunk receives.

    .. math:: q = \\min(S, (n - 1) c)

    Symbols: n [1] members, S [B] payload, c = ceil(S / n). Source: node bound of Chan et al., Concurr. Comput. 19, 2007, met.

    >>> most_of_others_bytes(4, 242)
    183
    """
    return minimum(payload, (members - 1) * ceil_div(payload, members))


def doubled_bytes(members: Number, payload: Number) -> Number:
    """All-gather in which the number of blocks doubles each step, and the last step sends the rest: recursive doubling, Bruck; in
    reverse, recursive halving.

    .. math:: q = \\sum_{d = 1, 2, 4, \\ldots < n} \\min(S, \\min(d, n - d) c)

    Symbols: n [1] members, S [B] payload, c = ceil(S / n). Source: Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8, 1997.

    >>> doubled_bytes(6, 250), doubled_bytes(4, 242)
    (210, 183)
    """
    chunk, total, distance = ceil_div(payload, members), 0 * payload, 1
    while anywhere(positive(members - distance)):
        sent = minimum(payload, minimum(distance, members - distance) * chunk)
        total, distance = total + positive(members - distance) * sent, 2 * distance
    return total


def folded_bytes(members: Number, payload: Number) -> Number:
    """All-reduce by halving and doubling among the largest power of two p of members. The remaining members send their payload to
    partners first and receive the result at the end.

    .. math:: q = 2 S [n > p] + 2 \\sum_{d = 1, 2, 4, \\ldots < p} \\min(S, d \\lceil S / p \\rceil)

    Symbols: n [1] members, p [1] the largest power of two that is no more than n, S [B] payload. Source: Thakur, Rabenseifner and
    Gropp, Int. J. High Perform. Comput. Appl. 19, 2005.

    >>> folded_bytes(6, 250), folded_bytes(4, 242)
    (878, 366)
    """
    power = _power_below(members)
    return 2 * payload * positive(members - power) + 2 * doubled_bytes(power, payload)


def folded_scatter_bytes(members: Number, payload: Number) -> Number:
    """Reduce-scatter by halving among the largest power of two p of members, each of the first n - p on behalf of two.

    .. math:: q = (S + c) [n > p] + \\sum_{d = 1, 2, 4, \\ldots < p} \\min(S, (d + \\min(d, n - p)) c)

    Symbols: n [1] members, p [1] the largest power of two that is no more than n, S [B] payload, c = ceil(S / n). Source: Thakur,
    Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005.

    >>> folded_scatter_bytes(6, 250), folded_scatter_bytes(4, 242)
    (544, 183)
    """
    power, chunk = _power_below(members), ceil_div(payload, members)
    spare = members - power
    total, distance = positive(spare) * (payload + chunk), 1
    while anywhere(positive(power - distance)):
        sent = minimum(payload, (distance + minimum(distance, spare)) * chunk)
        total, distance = total + positive(power - distance) * sent, 2 * distance
    return total


def chain_bytes(members: Number, chunks: Number, payload: Number) -> Number:
    """Pipelined broadcast, or reduce, along a chain in k chunks: the first chunk travels to the end, then the rest arrives.

    .. math:: q = (n - 2) \\lceil S / k \\rceil + S

    Symbols: n [1] members, at least 2; k [1] chunks, S [B] payload. Source: Chan et al., Concurr. Comput. 19, 2007; here for
    chunks of whole bytes.

    >>> chain_bytes(4, 6, 245)
    327
    """
    return (members - 2) * ceil_div(payload, chunks) + payload


def switch_all_reduce_bytes(members: Number, chunks: Number, payload: Number) -> Number:
    r"""All-reduce by a switch that adds and multicasts, in k pieces of n chunks. Every member reads the sum of its chunk of a
    piece (its own copy included) from the switch and multicasts it to all members (itself included), while it reads the sum of
    its chunk of the next piece.

    .. math:: q = S + \min(S, n c) + \sum_{p = 1}^{k - 1} \min(c, \max(S - p n c, 0)) \le S + n c + (k - 1) c

    Tends to S (1 + 1 / n) for many pieces. Symbols: n [1] members, n k [1] chunks, S [B] payload, c = ceil(S / (n k)). Source:
    routes of the sum and of the copies through NVSwitch (PTX ISA: multimem.ld_reduce, multimem.st), each link counted in each
    step.

    >>> switch_all_reduce_bytes(2, 6, 58), switch_all_reduce_bytes(4, 16, 1600)
    (98, 2300)
    """
    chunk = ceil_div(payload, chunks)
    piece = members * chunk
    full = minimum(floor_div(chunks, members) - 1, floor_div(payload - chunk, piece))
    return payload + minimum(payload, piece) + full * chunk + maximum(payload - (full + 1) * piece, 0)


def forwarded_bytes(members: Number, payload: Number) -> Number:
    """All-to-all on a one-way ring: in step t a link carries all blocks of one member that have not arrived yet.

    .. math:: q = \\sum_{m = 1}^{n - 1} \\min(S, m c) = \\frac{j (j + 1)}{2} c + (n - 1 - j) S

    Symbols: n [1] members, S [B] payload of one member, c = ceil(S / n), j = min(n - 1, floor(S / c)). Source: the ring
    all-to-all of ASTRA-sim (Rashidi et al., ISPASS 2020).

    >>> forwarded_bytes(4, 242)
    366
    """
    chunk = ceil_div(payload, members)
    whole = minimum(members - 1, floor_div(payload, chunk))
    return floor_div(whole * (whole + 1), 2) * chunk + (members - 1 - whole) * payload


def doublings(members: Number) -> Number:
    """Steps of an algorithm in which the number of members with the payload doubles each step.

    .. math:: s = \\lceil \\log_2 n \\rceil

    Symbols: n [1] members. Source: definition.

    >>> doublings(6), doublings(8), doublings(9)
    (3, 3, 4)
    """
    return np.ceil(np.log2(members)) if isinstance(members, np.ndarray) else (int(members) - 1).bit_length()


def squared_chunk_count(depth: Number, rate: Number, payload: Number, startup: Number, bandwidth: Number) -> Number:
    """Square of the number of chunks that minimises the time of a pipeline of ``depth`` + ``rate`` x chunks steps.

    .. math:: k^2 = \\frac{p S}{q \\alpha b}

    Symbols: p [1] steps that the first chunk takes beyond its own; q [1] steps per chunk, alpha [s] start-up and latency of a
    step, S [B] payload, b [B/s] bandwidth. At this k the two terms of (p + q k)(alpha + S / (k b)) that depend on k are equal.
    Does not model: whole chunks. Source: derivative of that time; for a chain (p = n - 2, q = 1) Sanders, Speck and Traeff,
    Parallel Comput. 35, 2009.

    >>> squared_chunk_count(6, 2, 240, 5, 0.25)
    576.0
    """
    return depth / rate * (payload / bandwidth / startup)


def _power_below(members: Number) -> Number:
    """The largest power of two that is no more than the members."""
    return 2 ** (doublings(members + 1) - 1)
