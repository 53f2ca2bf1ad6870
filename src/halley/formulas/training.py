"""Data-parallel training: gradient reduction, sharded states (ZeRO), and the optimizer step.

Symbols throughout: layers (or buckets of layers) l in the order of the work; w_l [s] work of a layer; c_l [s] its collective.
The collectives of a rank share one network and run sequentially in the order of their requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from halley.formulas.numbers import Number, ceil_div, maximum
from halley.formulas.timing import longest


def drained_time(end: Number, first: Number, apart: Number, service: Number, requests: Number) -> Number:
    """Time at which a server finishes a run of equal requests at equal intervals (or a single one), served in order of arrival.

    .. math:: T = \\max(e + n c, \\; r + n c, \\; r + (n - 1) w + c)

    Symbols: e [s] when the server finishes earlier requests, r [s] arrival of the first request, w [s] interval between
    arrivals, c [s] service of each; n [1] requests. Holds for: requests that arrive after all earlier ones. Source: Lindley's
    recursion, Proc. Cambridge Philos. Soc. 48, 1952, whose maximum is at either end of a run; gradients in buckets: Li et al.,
    VLDB 2020 (arXiv 2006.15704).

    >>> drained_time(1, 4, 3, 5, 6), drained_time(1, 4, 7, 5, 6)
    (34, 44)
    """
    return maximum(maximum(end, first) + requests * service, first + (requests - 1) * apart + service)


def contended_time(work: Number, collectives: Number, share: Number) -> Number:
    """Time of kernels beside which collectives run, as those take a part of the chip.

    .. math:: t = w + \\kappa c

    Symbols: w [s] the kernels alone, c [s] the collectives that run beside them, kappa [1] share of the chip that a collective
    takes while it runs (cores that move its data, bandwidth of the memory). Holds for: collectives that end no later than the
    kernels; of longer ones it counts too much, but then they decide. Does not model: collectives that the kernels slow. Source:
    definition of a share.

    >>> contended_time(20, 30, 0.1)
    23.0
    """
    return work + share * collectives


def prefetched_time(gathers: Sequence[Number], works: Sequence[Number]) -> Number:
    """Time of a pass over layers whose parameters are all-gathered one layer ahead.

    .. math:: T = g_0 + \\sum_l \\max(w_l, g_{l+1})

    Symbols: g_l [s] all-gather of the parameters of layer l, w_l [s] its work, g after the last layer 0. Holds for: the next
    gather issued when a layer starts, so that parameters of two layers are held. Source: Zhao et al. (PyTorch FSDP), VLDB 2023
    (arXiv 2304.11277); the maximum of the work and the overlapped gather.

    >>> prefetched_time([2, 6, 3], [4, 5, 7])
    20
    """
    end = gathers[0]
    for work, following in zip(works, gathers[1:], strict=False):
        end = end + maximum(work, following)
    return end + works[-1]


def sharded_backward_time(gathers: Sequence[Number], works: Sequence[Number], scatters: Sequence[Number]) -> Number:
    """Time of a backward pass over layers whose parameters are all-gathered one layer ahead and whose gradients are
    reduce-scattered after each layer.

    .. math:: e_l = s_l + w_l, \\quad s_{l+1} = \\max(e_l, G_{l+1}), \\quad G_{l+1} = \\max(R_{l-1}, s_l) + g_{l+1}, \\quad
              R_l = \\max(G_{l+1}, e_l) + c_l, \\quad T = R_{last}

    Symbols: layers in the order of the pass; g_l, c_l [s] all-gather of the parameters and reduce-scatter of the gradients of
    layer l; w_l [s] its work; s_l, e_l [s] its start and end; G_l, R_l [s] ends of its collectives, on one network. Holds
    for: the next gather issued when a layer starts; the pass ends with its last reduce-scatter. Source: Zhao et al. (PyTorch
    FSDP), VLDB 2023 (arXiv 2304.11277), as a recursion of Lindley's kind.

    >>> sharded_backward_time([2, 6, 3], [4, 5, 7], [1, 8, 9])
    30
    """
    network = gathers[0]
    start = network
    for layer, work in enumerate(works):
        gathered: Number = 0
        if layer + 1 < len(works):
            gathered = network = maximum(network, start) + gathers[layer + 1]
        end = start + work
        network = maximum(network, end) + scatters[layer]
        start = maximum(end, gathered)
    return network


def sharded_bytes(parameters: Number, word: Number, ranks: Number) -> Number:
    """Bytes per rank of a state of the parameters that is sharded over data-parallel ranks (one rank: not sharded).

    .. math:: M = w \\lceil P / n \\rceil

    Symbols: P [1] parameters of the chip, w [B] bytes of the state per parameter, n [1] ranks. Source: Rajbhandari et al.
    (ZeRO), SC 2020 (arXiv 1910.02054); here for whole parameters.

    >>> sharded_bytes(1003, 12, 4)
    3012
    """
    return word * ceil_div(parameters, ranks)


def optimizer_traffic(parameters: Number, gradient: Number, state: Number, weight: Number) -> Number:
    """Bytes that an optimizer step moves in memory: it reads gradients, reads and writes its state, writes weights.

    .. math:: D = P (g + 2 s + w)

    Symbols: P [1] parameters that this rank updates; g, s, w [B] bytes of gradient, state and weight per parameter (Adam in
    mixed precision: s is 12, a master weight and two moments in fp32). Holds for: one fused kernel. Source: Rajbhandari et
    al., SC 2020 (arXiv 1910.02054) for the states; each read or written once.

    >>> optimizer_traffic(1000, 4, 12, 2)
    30000
    """
    return parameters * (gradient + 2 * state + weight)


def offloaded_step_time(traffic: Number, bandwidth: Number, state: Number, link: Number) -> Number:
    """Time of an optimizer step whose state is in a second memory tier and streams through the chip.

    .. math:: t = \\max(D / B, M / b)

    Symbols: D [B] traffic in the chip's memory, B [B/s] its bandwidth; M [B] state, b [B/s] bandwidth of the link to the second
    tier, each way. Holds for: state that streams in and out concurrently, overlapped with the traffic of the chip's memory.
    Source: Rajbhandari et al. (ZeRO-Infinity), SC 2021 (arXiv 2104.07857).

    >>> offloaded_step_time(30000, 1000, 12000, 200)
    60.0
    """
    return longest((traffic / bandwidth, state / link))
