"""Software of a machine: collectives of a communication library (start-up, steps and bytes of one protocol, and the bound of the
physical network), and the host that launches kernels."""

from __future__ import annotations

from halley.formulas.numbers import Number, maximum


def sent_bytes(passes: Number, members: Number, payload: Number) -> Number:
    """Bytes that each member sends in passes around a ring: 1 / n of the payload in every step.

    .. math:: W = p (n - 1) \\frac{S}{n}

    Symbols: p [1] passes (all-reduce 2; all-gather, reduce-scatter and all-to-all 1); n [1] members; S [B] payload. Holds for:
    every bandwidth-optimal algorithm of these collectives. Does not model: trees, combining inside the network. Source:
    Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009; the "bus bandwidth" of nccl-tests is W over the time.

    >>> sent_bytes(2, 4, 240)
    360.0
    """
    return passes * (members - 1) * payload / members


def protocol_time(startup: Number, steps: Number, latency: Number, sending: Number, copying: Number) -> Number:
    """Time of one protocol of a communication library: start-up, latency of its steps, and transfer.

    .. math:: t = \\alpha + k \\lambda + t_W + t_O

    Symbols: alpha [s] start-up (launch, set-up of the channels); k [1] steps; lambda [s] latency of a step; t_W [s] time of the
    bytes that a member sends, at the protocol's bandwidth; t_O [s] time to copy the member's own part. Holds for: kernels that
    pipeline their steps. Does not model: the choice between protocols, noise. Source: the form of the cost model with which NCCL
    chooses algorithm and protocol (a latency plus bytes over a bandwidth, for each of LL, LL128 and Simple); the copy is the n-th
    step of its ring kernels.

    >>> protocol_time(7, 6, 2, 30, 5)
    54
    """
    return startup + steps * latency + sending + copying


def overlaid_time(measured: Number, bound: Number) -> Number:
    """Time of a communication library on a network: the fit to measurements, but not below the bound of the physical network.

    .. math:: t = \\max(t_m, t_b)

    Symbols: t_m [s] time of the fit; t_b [s] lower bound of the physical network. Does not model: congestion that was absent in
    the measurement. Source: definition.

    >>> overlaid_time(12, 15)
    15
    """
    return maximum(measured, bound)


def dispatch_time(kernels: Number, launch: Number, collectives: Number, call: Number, block: Number) -> Number:
    """Time in which a host launches the kernels and collectives of a pass through a part of a model.

    .. math:: t_H = n \\tau + c \\kappa + \\beta

    Symbols: n [1] kernels, tau [s] launch of one; c [1] collectives, kappa [s] call of one; beta [s] the rest (the framework's
    own work for a layer). Holds for: launches one by one, each of which takes the host equally long. Does not model: noise, waits
    of one rank for the host of another. Source: definition.

    >>> dispatch_time(20, 0.5, 4, 2, 7)
    25.0
    """
    return kernels * launch + collectives * call + block


def queued_time(device: Number, host: Number) -> Number:
    """Time of a run of kernels that a host launches into a queue of the device.

    .. math:: t = \\max(t_D, t_H)

    Symbols: t_D [s] the kernels one after the other, t_H [s] their launches. Holds for: kernels and launches that are spread
    alike over the run, and a queue that holds the difference. Does not model: the first launch and the last kernel, which add at
    most one of each; a host that waits for the device within the run. Source: two servers in series with a queue between them;
    Lindley's recursion, Proc. Cambridge Philos. Soc. 48, 1952.

    >>> queued_time(12, 15), queued_time(31, 15)
    (15, 31)
    """
    return maximum(device, host)
