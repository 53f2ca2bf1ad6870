"""A chip's efficiency in long runs, where it is lower than in the short runs in which kernels are timed."""

from __future__ import annotations

import math
from dataclasses import replace

from halley.errors import BadInput, Fault
from halley.kernels.calibrate import ChipFit
from halley.kernels.machine import Efficiency, Machine
from halley.kernels.times import Gemm, kernel_time

BISECTION_STEPS = 60
"""Bisections of the matrix share, until it is exact to the last bit."""


def under_load(fit: ChipFit, chip: Machine) -> Efficiency:
    """The chip's efficiency in a long run: `sustained`, if the fit has a measurement under load."""
    return fit.efficiency if fit.loaded is None else sustained(fit.efficiency, chip, fit.loaded.product, fit.loaded.time)


def sustained(efficiency: Efficiency, chip: Machine, measured: Gemm, time: float) -> Efficiency:
    """The efficiency with the matrix rate that remains under load. Short runs are timed at full clock; a chip that multiplies
    random numbers continuously reaches its power limit and lowers the clock.

    ``measured`` took ``time`` [s] under load; the share of the matrix rate is lowered until its time agrees. Raises BadInput: a
    time that no share gives.
    """
    low, high = 0.0, efficiency.matrix
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        slow = kernel_time(measured, chip, replace(efficiency, matrix=middle)) > time
        low, high = (middle, high) if slow else (low, middle)
    found = replace(efficiency, matrix=high)
    if not math.isclose(float(kernel_time(measured, chip, found)), time, rel_tol=1e-6):
        least = float(kernel_time(measured, chip, efficiency))
        raise BadInput(Fault("sustained GEMM", f"a time of at least {least:g} s, that of a short run", f"{time:g} s"))
    return found
