"""Area of what is built on a die."""

from __future__ import annotations

from halley.formulas.numbers import Number


def memory_area(copies: Number, bits: Number, fixed: Number, cell: Number, factor: Number) -> Number:
    """Area of equal memories.

    .. math:: A = n c (f b + b_0)

    Symbols: n [1] memories, c [m2] bit cell of the process, f [1] area of a bit with its share of wires, decoders and the network
    that reaches it, in cells, b [1] bits of each, :math:`b_0` [1] what the sense amplifiers and decoders of each take besides, in
    cells. Does not model: ports, error correction. Source: definition; f and :math:`b_0` are fitted to published dies.

    >>> memory_area(2, 1000, 100, 0.5, 3)
    3100.0
    """
    return copies * cell * (factor * bits + fixed)


def logic_area(units: Number, unit: Number, known: Number, density: Number, factor: Number) -> Number:
    """Area of equal units of logic in a process, from their area in another.

    .. math:: A = n f a \\frac{\\rho_0}{\\rho}

    Symbols: n [1] units, f [1] area of a unit with its registers, wires and control over that of its arithmetic, a [m2] area of
    its arithmetic in a known process, :math:`\\rho_0` and :math:`\\rho` [1] densities of transistors in the known and in this
    process. Does not model: clock and voltage. Source: definition; f is fitted to published dies.

    >>> logic_area(10, 4, 5, 20, 3)
    30.0
    """
    return units * factor * unit * (known / density)


def interface_area(bandwidth: Number, rate: Number) -> Number:
    """Area of the interfaces to other chips.

    .. math:: A = b a

    Symbols: b [B/s] bandwidth, a [m2 s/B] area per bandwidth. Does not model: the edge of the die that interfaces need. Source:
    definition; a is fitted to published dies.

    >>> interface_area(100, 0.5)
    50.0
    """
    return bandwidth * rate
