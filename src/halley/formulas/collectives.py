"""Collectives: the time of a step table, textbook closed forms, and lower bounds that no algorithm beats.

Symbols throughout: n [1] members; S [B] payload: the whole vector of one member (all-reduce, reduce, broadcast), the whole
gathered or unreduced vector (all-gather, reduce-scatter), all that one member sends or keeps (all-to-all), the whole at the
root (gather, scatter); lambda [s] latency of one hop; b [B/s] bandwidth of one link and direction. The closed forms assume chunks
of S / n bytes, without rounding, and no time for additions; members send and receive at the same time.
"""

from __future__ import annotations

from halley.formulas.numbers import Number, maximum


def collective_time(hops: Number, latency: Number, load: Number, chunk_bytes: Number, bandwidth: Number) -> Number:
    """Time of a step table: latencies along the longest routes, then bytes over the busiest links.

    .. math:: t = h \\lambda + \\frac{q c}{b}

    Symbols: h [1] hops, summed over steps, of each step's longest route; lambda [s] latency per hop; q [1] load:
    chunks on the busiest link, summed over steps; c [B] bytes of a chunk; b [B/s] bandwidth of a link and direction.
    Holds for: cut-through routing, steps in lockstep. Does not model: chunks of unequal size (give the largest),
    start-up and barriers (`step_overhead`), traffic of others on the links. Source: docs/model.md; the step evaluator of
    ASTRA-sim's analytical network (Won et al., ISPASS 2023).

    >>> collective_time(6, 2, 5, 12, 4)
    27.0
    """
    return hops * latency + load * chunk_bytes / bandwidth


def step_overhead(steps: Number, startup: Number, barrier: Number, additions: Number, adder: Number) -> Number:
    """Time of a step table that depends neither on bytes nor on routes: each step has a start-up and ends with a barrier.

    .. math:: t = s (\\alpha + \\beta) + k a

    Symbols: s [1] steps; alpha [s] start-up of a step, beta [s] barrier after it; k [1] adders that a sum passes in sequence in
    the network, or 1 where members add; a [s] latency of an adder. Does not model: set-up of the next step during the current
    one, adders of members that drain between steps, barriers whose time grows with the number of members. Source: docs/model.md;
    collectives on a mesh of clusters in RTL (arXiv 2603.26438).

    >>> step_overhead(3, 30, 20, 2, 4)
    158
    """
    return steps * (startup + barrier) + additions * adder


def streamed_time(hops: Number, latency: Number, streams: Number, memory: Number) -> Number:
    """Time of a step table that is limited by links, adders or members' memories.

    .. math:: t = h \\lambda + \\max(L, M)

    Symbols: h [1] hops, summed over steps, of each step's longest route; lambda [s] latency per hop; L [s] streams: time of
    the busiest link of each step, or of the adders on it, summed over steps; M [s] memory: time that the busiest member's memory
    needs for all reads and writes of that member. Holds for: reading, transfer, addition and writing that stream concurrently;
    memories that may lag behind a step. Does not model: other traffic of the memories. Source: docs/model.md.

    >>> streamed_time(6, 2, 15.0, 20.0)
    32.0
    """
    return hops * latency + maximum(streams, memory)


def dimension_time(members: Number, before: Number, payload: Number, bandwidth: Number) -> Number:
    """Busy time of one dimension in a reduce-scatter, or all-gather, over several dimensions.

    .. math:: t = \\frac{n - 1}{n} \\frac{S}{N B}

    Symbols: n [1] members along the dimension, N [1] members along all dimensions before it together, S [B] payload, B [B/s]
    bandwidth with which a member sends into the dimension. Does not model: latency. Source: Cho et al. (BlueConnect), IBM
    J. Res. Dev. 63, 2019.

    >>> dimension_time(4, 3, 240, 2)
    30.0
    """
    return (members - 1) * payload / (members * before * bandwidth)


def gather_bound(members: Number, payload: Number, injection: Number) -> Number:
    """Lower bound of all-gather, reduce-scatter, all-to-all, gather and scatter: one member has to receive, or to send,
    all but its own share.

    .. math:: t \\ge \\frac{n - 1}{n} \\frac{S}{B}

    Symbols: n [1] members, S [B] payload, B [B/s] injection bandwidth, all links of the slowest member (of the root)
    in one direction. Does not model: links further in (`cut_bound`), latency. Source: Chan et al., Concurr. Comput.
    19, 2007, table of lower bounds.

    >>> gather_bound(4, 240, 2)
    90.0
    """
    return (members - 1) * payload / (members * injection)


def all_reduce_bound(members: Number, payload: Number, capacity: Number) -> Number:
    """Lower bound of an all-reduce whose members do the adding: every element is sent at least 2 (n - 1) times.

    .. math:: t \\ge \\frac{2 (n - 1) S}{C}

    Symbols: n [1] members, S [B] payload, C [B/s] bandwidth of all members (or of all links) together, one direction;
    with equal members C = n B, which gives 2 (n - 1) / n x S / B. Does not model: latency, combining inside the
    network. Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009, lemma on the least total traffic.

    >>> all_reduce_bound(4, 240, 8)
    180.0
    """
    return 2 * (members - 1) * payload / capacity


def cut_bound(crossing: Number, capacity: Number) -> Number:
    """Lower bound from a cut: bytes that must leave a set of members pass the links that leave the set.

    .. math:: t \\ge \\frac{X}{C}

    Symbols: X [B] bytes that have to leave a set of u members (all-gather u S / n, reduce-scatter (n - u) S / n,
    all-to-all u (n - u) S / n, all-reduce S); C [B/s] bandwidth of the links that leave the set. Does not model:
    latency. Source: Zhao and Krishnamurthy, arXiv 2305.18461.

    >>> cut_bound(240, 8)
    30.0
    """
    return crossing / capacity


def lower_bound(*bounds: Number) -> Number:
    """The strongest of several lower bounds.

    .. math:: t \\ge \\max_i t_i

    Symbols: t_i [s] bounds. Latency and bandwidth bounds must not be added, as latency and transfer can overlap. Source:
    definition.

    >>> lower_bound(15, 90, 30)
    90
    """
    strongest: Number = 0
    for bound in bounds:
        strongest = maximum(strongest, bound)
    return strongest
