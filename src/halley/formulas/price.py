"""Prices and power of chips, memories and interconnects."""

from __future__ import annotations

from halley.formulas.numbers import Number


def silicon_power(throughput: Number) -> Number:
    """Power of a chip as a function of its peak throughput, fitted to four accelerators.

    .. math:: P = 3 \\cdot 10^{-7} X^2 + 4.3 \\cdot 10^{-4} X + 0.04

    Symbols: X [1] peak throughput in units of 1e12 op/s, P [1] power in units of 1e3 W. Holds for: 275 to 7500 Top/s of 2020 to
    2022. Source: DFModel (arXiv 2412.16432), Fig. 9, which prints the linear term with a minus. That gives negative power for
    three of the four fitted chips. With a plus the results are 0.18, 0.42, 0.76 and 20 kW, near the figures of the vendors.

    >>> round(silicon_power(1000), 3)
    0.77
    """
    return 3e-7 * throughput * throughput + 4.3e-4 * throughput + 0.04


def bandwidth_price(bandwidth: Number, rate: Number) -> Number:
    """Price of a memory by its bandwidth.

    .. math:: C = c b

    Symbols: b [B/s] bandwidth, c [USD s/B] price per bandwidth. Does not model: capacity. Source: DFModel (arXiv 2412.16432),
    section VI-C, which prices DRAM in this way.

    >>> bandwidth_price(300, 2.0)
    600.0
    """
    return bandwidth * rate


def interconnect_price(links: Number, ports: Number, bandwidth: Number, link_rate: Number, port_rate: Number) -> Number:
    """Price of links and of the switch ports at their ends, all of one bandwidth.

    .. math:: C = b (l c_l + p c_p)

    Symbols: l [1] links, p [1] ports of switches, b [B/s] bandwidth of each, c_l [USD s/B] and c_p [USD s/B] prices of a link and
    of a port per bandwidth. Source: DFModel (arXiv 2412.16432), section VI-C; LIBRA (Won et al., arXiv 2109.11762).

    >>> interconnect_price(8, 2, 50, 3, 24)
    3600
    """
    return bandwidth * (links * link_rate + ports * port_rate)


def busy_power(bandwidth: Number, energy: Number) -> Number:
    """Power of a memory or a link that is always busy.

    .. math:: P = b e

    Symbols: b [B/s] bandwidth, e [J/B] energy per byte. Source: definition.

    >>> busy_power(300, 0.5)
    150.0
    """
    return bandwidth * energy
