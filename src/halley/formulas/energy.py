"""Energy: action counts times energy per action."""

from __future__ import annotations

from halley.formulas.numbers import Number, maximum


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


def sustained_time(time: Number, energy: Number, power: Number) -> Number:
    """Time of one run where runs follow each other without a pause, on a chip whose power is limited.

    .. math:: t = \\max(T, E / P)

    Symbols: T [s] time of one run at full clock, E [J] energy of its actions, P [W] the limit less the static power. Does not
    model: actions take less energy at a lower clock, where the voltage is lower. Source: energy over power; against a GPU in
    docs/validation.md.

    >>> sustained_time(2.0, 900.0, 300.0), sustained_time(4.0, 900.0, 300.0)
    (3.0, 4.0)
    """
    return maximum(time, energy / power)


def engine_power(units: Number, rate: Number, clock: Number, energy: Number) -> Number:
    """Power of an engine of which every unit works in every cycle.

    .. math:: P = n r f e

    Symbols: n [1] units, r [op] operations of a unit in a cycle, f [1/s] clock, e [J/op] energy of an operation. Source:
    definition.

    >>> engine_power(4, 2, 100, 0.5)
    400.0
    """
    return units * rate * clock * energy
