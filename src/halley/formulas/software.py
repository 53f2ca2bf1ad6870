"""Collectives as a communication library runs them: start-up, steps and passes of one protocol, and what no software beats."""

from __future__ import annotations

from halley.formulas.numbers import Number, maximum


def sent_bytes(passes: Number, members: Number, payload: Number) -> Number:
    """What each member sends in passes around a ring: in every step of a pass its share of the payload.

    .. math:: W = p (n - 1) \\frac{S}{n}

    Symbols: p [1] passes (all-reduce 2; all-gather, reduce-scatter and all-to-all 1); n [1] members; S [B] payload. Holds for:
    every bandwidth-optimal algorithm of these collectives. Does not model: trees, combining inside the network. Source:
    Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009; the "bus bandwidth" of nccl-tests is W over the time.

    >>> sent_bytes(2, 4, 240)
    360.0
    """
    return passes * (members - 1) * payload / members


def protocol_time(startup: Number, steps: Number, latency: Number, sending: Number, copying: Number) -> Number:
    """One protocol of a communication library: it starts, takes its steps, and then bytes flow.

    .. math:: t = \\alpha + k \\lambda + t_W + t_O

    Symbols: alpha [s] start-up (launch, arming the channels); k [1] steps; lambda [s] latency of a step; t_W [s] what a member
    sends over the bandwidth that the protocol reaches; t_O [s] the copy of the member's own share, over the rate of that copy.
    Holds for: kernels that pipeline their steps. Does not model: the switch between protocols, noise. Source: the form of the
    cost model by which NCCL picks algorithm and protocol (a latency plus bytes over a bandwidth, for LL, LL128 and Simple
    each); the copy is the n-th step of its ring kernels.

    >>> protocol_time(7, 6, 2, 30, 5)
    54
    """
    return startup + steps * latency + sending + copying


def overlaid_time(measured: Number, bound: Number) -> Number:
    """A time of software on a network: what was measured of the software, and never below what the network allows.

    .. math:: t = \\max(t_m, t_b)

    Symbols: t_m [s] the overlay's time; t_b [s] lower bound of the physical network. Does not model: congestion that the
    measurement did not see. Source: definition.

    >>> overlaid_time(12, 15)
    15
    """
    return maximum(measured, bound)
