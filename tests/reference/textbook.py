"""Times and sizes as papers and textbooks state them, for cases that have a closed form: what the engines are compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from halley.formulas.numbers import Number, ceil_div, floor_div, maximum, positive
from halley.formulas.pipeline import flow_shop_time
from halley.formulas.timing import longest, total


def _log2(number: Number) -> Number:
    return np.log2(number) if isinstance(number, np.ndarray) else math.log2(number)


# ---- pipeline --------------------------------------------------------------------------------------------


def bubble_share(stages: Number, chunks: Number, microbatches: Number) -> Number:
    """Idle time of a pipeline of equal stages, relative to its work.

    .. math:: \\beta = \\frac{S - 1}{v m}

    Symbols: S, v, m [1]. Holds for: `even_pipeline_time`. Source: Narayanan et al., SC 2021, section 2.2.2.

    >>> bubble_share(5, 2, 8)
    0.25
    """
    return (stages - 1) / (chunks * microbatches)


def even_transfer_time(stages: Number, microbatches: Number, transfer: Number) -> Number:
    """What overlapped transfers add to 1F1B with equal stages.

    .. math:: \\Delta T = 2 p (m + S - 2 - \\lceil (m - 1) / S \\rceil)

    Symbols: S, m [1]; p [s], at most f and at most b, so that no link queues. With S microbatches in flight a round trip takes S
    (f + b) + 2 (S - 1) p and comes back to the first stage for the microbatch that is S later: 1F1B runs ahead just far enough
    to hide the passes, not the transfers. The usual 2 (S - 1) p counts the first round trip only. Source: longest path of the
    schedule's event graph; equal to the simulation.

    >>> even_transfer_time(4, 9, 3)
    54
    """
    return 2 * transfer * (microbatches + stages - 2 - ceil_div(microbatches - 1, stages))


def gpipe_time(
    forward: Sequence[Number], backward: Sequence[Number], onward: Sequence[Number], back: Sequence[Number], microbatches: Number
) -> Number:
    """GPipe with uneven stages: two flow shops of equal jobs, one after the other; links are machines too.

    .. math:: T = \\sum_s f_s + \\sum_s p_s + (m - 1) \\max(f_s, p_s) + \\sum_s b_s + \\sum_s q_s + (m - 1) \\max(b_s, q_s)

    Symbols: f_s, b_s [s] passes of stage s; p_s, q_s [s] transfers from stage s to s + 1, and back; m [1] microbatches. Exact.
    Source: Huang et al. (GPipe), NeurIPS 2019, section 2.3; permutation flow shop of identical jobs.

    >>> gpipe_time([2, 7], [3, 11], [1], [4], 5)
    100
    """
    shops = ((*forward, *onward), (*backward, *back))
    return total([flow_shop_time(total(machines), longest(machines), microbatches) for machines in shops])


# ---- collectives -----------------------------------------------------------------------------------------


def ring_all_reduce_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Ring all-reduce on a ring: reduce-scatter, then all-gather.

    .. math:: t = 2 (n - 1) (\\lambda + \\frac{S}{n b})

    Symbols: n [1] members, S [B] payload, lambda [s] latency, b [B/s] bandwidth. Does not model: a line; time to add.
    Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009.

    >>> ring_all_reduce_time(4, 240, 5, 2)
    210.0
    """
    return 2 * ring_all_gather_time(members, payload, latency, bandwidth)


def bidirectional_ring_all_gather_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """All-gather, and reduce-scatter, on a ring whose blocks travel both ways at once.

    .. math:: t = \\lceil (n - 1) / 2 \\rceil (\\lambda + \\frac{S}{n b})

    Symbols: n [1] members, S [B] payload, lambda [s] latency, b [B/s] bandwidth. Does not model: halving the last
    block of an even ring between the two ways, as `halved_ring_all_gather_time` does. Source: Chan, Heimlich, Purkayastha
    and van de Geijn, Concurr. Comput. 19, 2007.

    >>> bidirectional_ring_all_gather_time(4, 240, 5, 2)
    70.0
    """
    return ceil_div(members - 1, 2) * (latency + payload / (members * bandwidth))


def halved_ring_all_gather_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """All-gather, and reduce-scatter, on an even ring whose blocks travel both ways at once; the block of the opposite member
    comes in halves, one each way. In n / 2 steps every member gets (n - 1) / n of the payload over its two links.

    .. math:: t = \\frac{n}{2} \\lambda + \\frac{(n - 1) S}{2 n b}

    Symbols: n [1] members, even; S [B] payload, lambda [s] latency, b [B/s] bandwidth. Source: the node bound of Chan,
    Heimlich, Purkayastha and van de Geijn, Concurr. Comput. 19, 2007, which it meets.

    >>> halved_ring_all_gather_time(4, 240, 5, 2)
    55.0
    """
    return members / 2 * latency + (members - 1) * payload / (2 * members * bandwidth)


def direct_all_reduce_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Direct (two-shot) all-reduce among fully connected members.

    .. math:: t = 2 (\\lambda + \\frac{S}{n b})

    Symbols: n [1] members, S [B] payload, lambda [s] latency, b [B/s] bandwidth of each link. Does not model: a
    switch; time to add. For n >= 2. Source: an all-reduce is a reduce-scatter and an all-gather (Chan et al.,
    Concurr. Comput. 19, 2007), here of one step each.

    >>> direct_all_reduce_time(4, 240, 5, 2)
    70.0
    """
    return 2 * direct_all_gather_time(members, payload, latency, bandwidth)


def direct_all_to_all_line_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Direct all-to-all on a line: the middle link carries what one half sends the other.

    .. math:: t = (n - 1) \\lambda + \\lfloor n^2 / 4 \\rfloor \\frac{S}{n b}

    Symbols: n [1] members, S [B] payload of one member, lambda [s] latency, b [B/s] bandwidth. Does not model:
    queueing that delays the longest route. Source: bisection argument, Dally and Towles, Principles and Practices of
    Interconnection Networks, 2004, chapter 3.

    >>> direct_all_to_all_line_time(4, 240, 5, 2)
    135.0
    """
    return (members - 1) * latency + floor_div(members * members, 4) * payload / (members * bandwidth)


def chain_broadcast_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Broadcast or reduce of an uncut payload along a line; all-reduce by chains that meet in the centre and return.

    .. math:: t = (n - 1) (\\lambda + \\frac{S}{b})

    Symbols: n [1] members, S [B] payload, lambda [s] latency, b [B/s] bandwidth. Does not model: cutting the payload
    (`pipelined_broadcast_time`). An all-reduce by a chain to the end and back takes twice this. Source: Chan et al.,
    Concurr. Comput. 19, 2007.

    >>> chain_broadcast_time(4, 240, 5, 2)
    375.0
    """
    return (members - 1) * (latency + payload / bandwidth)


def doubling_all_reduce_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Recursive doubling all-reduce of the whole payload among fully connected members.

    .. math:: t = \\log_2(n) (\\lambda + \\frac{S}{b})

    Symbols: n [1] members, a power of two; S [B] payload, lambda [s] latency, b [B/s] bandwidth. Does not model:
    routes of more than one hop; time to add. Source: Thakur et al. 2005.

    >>> doubling_all_reduce_time(4, 240, 5, 2)
    250.0
    """
    return _log2(members) * (latency + payload / bandwidth)


def halving_all_reduce_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Rabenseifner's all-reduce among fully connected members: recursive halving, then doubling.

    .. math:: t = 2 \\log_2(n) \\lambda + 2 \\frac{n - 1}{n} \\frac{S}{b}

    Symbols: n [1] members, a power of two; S [B] payload, lambda [s] latency, b [B/s] bandwidth. Does not model:
    routes of more than one hop; time to add. Source: Thakur et al. 2005.

    >>> halving_all_reduce_time(4, 240, 5, 2)
    200.0
    """
    return 2 * doubling_all_gather_time(members, payload, latency, bandwidth)


def broadcast_bound(payload: Number, injection: Number) -> Number:
    """Lower bound of broadcast, reduce and all-reduce: every member's payload leaves it, or reaches it, once.

    .. math:: t \\ge \\frac{S}{B}

    Symbols: S [B] payload, B [B/s] injection bandwidth of the slowest member. Does not model: latency; combining
    inside the network is allowed. Source: Chan et al., Concurr. Comput. 19, 2007, table of lower bounds.

    >>> broadcast_bound(240, 2)
    120.0
    """
    return payload / injection


def latency_bound(diameter: Number, latency: Number) -> Number:
    """Lower bound of all-reduce, all-gather, reduce-scatter and all-to-all: the two members furthest apart need each other.

    .. math:: t \\ge d \\lambda

    Symbols: d [1] diameter: hops between the two members furthest apart; lambda [s] latency per hop. Does not model:
    bytes. Source: definition.

    >>> latency_bound(3, 5)
    15
    """
    return diameter * latency


# ---- training --------------------------------------------------------------------------------------------


def exposed_reduction_time(buckets: Number, work: Number, collective: Number) -> Number:
    """What is left of the gradients' collectives when the backward pass of equal buckets is over.

    .. math:: t = \\max(c, n c - (n - 1) w)

    Symbols: n [1] buckets, w [s] backward work of a bucket, c [s] collective of a bucket. Holds for: the last microbatch, whose
    gradients are final; equal buckets (`drained_time` for others). Source: `drained_time`.

    >>> exposed_reduction_time(4, 3, 5)
    11
    """
    return maximum(collective, buckets * collective - (buckets - 1) * work)


# ---- activations -----------------------------------------------------------------------------------------


def attention_core_bytes(tokens: Number, batch: Number, heads: Number, ranks: Number) -> Number:
    """What selective recomputation drops: softmax, its dropout's mask and output, per rank.

    .. math:: M = \\frac{5 a s^2 b}{t}

    Symbols: s, b, a, t [1]; M [B]. Source: Korthikanti et al. 2023, table 2.

    >>> attention_core_bytes(64, 2, 4, 8)
    20480.0
    """
    return 5.0 * heads * tokens * tokens * batch / ranks


def replicated_layer_bytes(tokens: Number, batch: Number, hidden: Number, ranks: Number) -> Number:
    """A layer without its attention core, tensor parallel; norms and dropouts outside are replicated.

    .. math:: M = s b h (10 + 24 / t)

    Symbols: s, b, h, t [1]; M [B]. Source: Korthikanti et al. 2023, table 2.

    >>> replicated_layer_bytes(64, 2, 16, 8)
    26624.0
    """
    return (10 + 24 / ranks) * tokens * batch * hidden


def sequence_parallel_layer_bytes(tokens: Number, batch: Number, hidden: Number, ranks: Number) -> Number:
    """A layer without its attention core, tensor and sequence parallel (or on one rank).

    .. math:: M = \\frac{34 s b h}{t}

    Symbols: s, b, h, t [1]; M [B]. Source: Korthikanti et al. 2023, table 2.

    >>> sequence_parallel_layer_bytes(64, 2, 16, 8)
    8704.0
    """
    return 34.0 * tokens * batch * hidden / ranks


def layer_input_bytes(tokens: Number, batch: Number, hidden: Number, ranks: Number) -> Number:
    """What full recomputation keeps of a layer: its input; sharded over t ranks where that is done (else t is 1).

    .. math:: M = \\frac{2 s b h}{t}

    Symbols: s, b, h, t [1]; M [B]. Source: Korthikanti et al. 2023, table 2.

    >>> layer_input_bytes(64, 2, 16, 8)
    512.0
    """
    return 2.0 * tokens * batch * hidden / ranks


def interleaved_share(stages: Number, chunks: Number) -> Number:
    """Activations of the first stage with interleaving, relative to those without.

    .. math:: 1 + \\frac{S - 1}{S v}

    Symbols: S [1] stages, v [1] chunks per stage, at least 2. Source: Korthikanti et al. 2023, on interleaved schedules.

    >>> interleaved_share(8, 3)
    1.2916666666666667
    """
    return 1 + (stages - 1) / (stages * chunks)


def ring_all_gather_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Ring all-gather and reduce-scatter on a ring; bidirectional all-gather and reduce-scatter on a line.

    .. math:: t = (n - 1) (\\lambda + \\frac{S}{n b})

    Symbols: n [1] members, S [B] payload, lambda [s] latency, b [B/s] bandwidth. Does not model: a line, whose
    closing message takes n - 1 hops. Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19,
    2005.

    >>> ring_all_gather_time(4, 240, 5, 2)
    105.0
    """
    return (members - 1) * (latency + payload / (members * bandwidth))


def direct_all_gather_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Direct all-gather, reduce-scatter, gather, scatter or all-to-all among fully connected members.

    .. math:: t = \\lambda + \\frac{S}{n b}

    Symbols: n [1] members, S [B] payload, lambda [s] latency, b [B/s] bandwidth of each of a member's n - 1 links.
    Does not model: a switch, whose members share one port. For n >= 2. Source: Chan et al., Concurr. Comput. 19,
    2007; one message per link.

    >>> direct_all_gather_time(4, 240, 5, 2)
    35.0
    """
    return latency + payload / (members * bandwidth)


def pipelined_broadcast_time(members: Number, chunks: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Pipelined broadcast, or reduce, along a line in chunks.

    .. math:: t = (n - 2 + k) (\\lambda + \\frac{S}{k b})

    Symbols: n [1] members, k [1] chunks, S [B] payload, lambda [s] latency, b [B/s] bandwidth. For n >= 2. Does not
    model: the best k (Halley uses n chunks). Source: Chan et al., Concurr. Comput. 19, 2007.

    >>> pipelined_broadcast_time(4, 6, 240, 5, 2)
    200.0
    """
    return (members - 2 + chunks) * (latency + payload / (chunks * bandwidth))


def doubling_all_gather_time(members: Number, payload: Number, latency: Number, bandwidth: Number) -> Number:
    """Recursive doubling all-gather, and recursive halving reduce-scatter, among fully connected members.

    .. math:: t = \\log_2(n) \\lambda + \\frac{n - 1}{n} \\frac{S}{b}

    Symbols: n [1] members, a power of two; S [B] payload, lambda [s] latency, b [B/s] bandwidth. Does not model:
    routes of more than one hop. Source: Thakur et al. 2005.

    >>> doubling_all_gather_time(4, 240, 5, 2)
    100.0
    """
    return _log2(members) * latency + (members - 1) * payload / (members * bandwidth)


def round_trip_bound(
    forward: Sequence[Number],
    backward: Sequence[Number],
    onward: Sequence[Number],
    back: Sequence[Number],
    microbatches: Number,
) -> Number:
    """Lower bound of 1F1B (one chunk per stage): a microbatch waits for the round trips of earlier ones.

    .. math:: T \\ge (1 + n) L_S + L_r, \\quad m - 1 = n S + r, \\quad L_k = \\sum_{s \\ge S - k} (f_s + b_s + p_s + q_s)

    Symbols: f_s, b_s [s] passes; p_s, q_s [s] transfers from stage s to s + 1, and back (0 for the last); S, m [1]; n, r [1]
    quotient and remainder; L_k [s] a round trip over the last k stages, after which the first of them starts the microbatch that
    is k later. Equal stages attain the bound. Source: a path of the schedule's event graph.

    >>> round_trip_bound([2, 7], [3, 11], [1], [4], 6)
    102
    """
    stages = len(forward)
    whole = floor_div(microbatches - 1, stages)
    rest = microbatches - 1 - whole * stages
    bound: Number = 0
    for stage in range(stages):
        trip = forward[stage] + backward[stage]
        if stage + 1 < stages:
            trip = trip + (onward[stage] + back[stage])
        bound = bound + (1 + whole + positive(rest - (stages - 1 - stage))) * trip
    return bound
