"""Energy: action counts times energy per action."""

from __future__ import annotations

from halley.formulas.numbers import Number


def action_energy(count: Number, per_action: Number) -> Number:
    """Energy of an action.

    .. math:: E = n e

    Symbols: n [B or op] bytes moved or operations done, e [J/B or J/op]. Source: definition.

    >>> action_energy(10, 0.5)
    5.0
    """
    return count * per_action


def static_energy(power: Number, time: Number) -> Number:
    """Static (leakage) energy during the execution.

    .. math:: E = P t

    Symbols: P [W] static power, t [s] time. Source: definition.

    >>> static_energy(2.0, 3.0)
    6.0
    """
    return power * time


def engine_power(units: Number, rate: Number, clock: Number, energy: Number) -> Number:
    """Power of an engine of which every unit works in every cycle.

    .. math:: P = n r f e

    Symbols: n [1] units, r [op] operations of a unit in a cycle, f [1/s] clock, e [J/op] energy of an operation. Source:
    definition.

    >>> engine_power(4, 2, 100, 0.5)
    400.0
    """
    return units * rate * clock * energy
