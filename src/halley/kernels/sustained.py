"""A chip's efficiency in a run that goes on for long, where it is lower than in the short runs that kernels are timed in."""

from __future__ import annotations

import math
from dataclasses import replace

from halley.errors import BadInput, Fault
from halley.kernels.calibrate import ChipFit
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.times import Gemm, kernel_time

BISECTIONS = 60
"""Halvings of the matrix share, until it is known to the last bit."""


def under_load(fit: ChipFit, chip: Machine) -> Efficiency:
    """The chip's efficiency in a run that goes on for long: `sustained`, if the fit says how much slower products are then."""
    return fit.efficiency if fit.loaded is None else sustained(fit.efficiency, chip, fit.loaded.product, fit.loaded.time)


def sustained(efficiency: Efficiency, chip: Machine, measured: Gemm, time: float) -> Efficiency:
    """The matrix rate that is left under load. Short runs are timed at full clock; a chip that multiplies random numbers without
    pause meets its power limit, and lowers the clock.

    ``measured`` took ``time`` [s] so; the share of the matrix rate is lowered until it does here. Raises BadInput: a time that no
    share gives.
    """
    low, high = 0.0, efficiency.matrix
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        slow = kernel_time(measured, chip, replace(efficiency, matrix=middle)) > time
        low, high = (middle, high) if slow else (low, middle)
    found = replace(efficiency, matrix=high)
    if not math.isclose(float(kernel_time(measured, chip, found)), time, rel_tol=1e-6):
        least = float(kernel_time(measured, chip, efficiency))
        raise BadInput(Fault("sustained GEMM", f"a time of at least {least:g} s, that of a short run", f"{time:g} s"))
    return found
