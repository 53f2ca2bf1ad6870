"""What one chip does in a pass: kernels one after the other, and collectives between them or beside one of them.

A collective that runs beside a kernel holds some of the chip's cores meanwhile. What both take longer than the kernel alone is
exposed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number
from halley.formulas.timing import total
from halley.formulas.training import beside_time
from halley.ir.mapping import CollectiveKind
from halley.planning.calibrate import ChipFit
from halley.planning.data_parallel import CollectiveTime
from halley.planning.kernels import Gemm, Kernel, demand, kernel_time
from halley.planning.machine import Efficiency, Machine

BISECTIONS = 60
"""Halvings of the matrix share, until it is known to the last bit."""


class Kind(StrEnum):
    """What time goes to."""

    MATRIX = "matrix products"
    ATTENTION = "attention core"
    VECTOR = "elementwise, norms, sums"
    EXPOSED = "collectives, exposed"


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel."""

    name: str
    kind: Kind
    kernel: Kernel


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective of ``size`` bytes (by the convention of `halley.network.collective`); ``beside``: the kernel that it runs
    beside, None where the chip waits for it."""

    collective: CollectiveKind
    size: Number
    beside: Step | None = None


Work: TypeAlias = tuple[Step | Exchange, ...]


@dataclass(frozen=True, slots=True)
class Worker:
    """A chip among its ranks: how long a kernel takes on it, and a collective between them (`CollectiveTime`). ``held``: share of
    the cores that the library's kernels hold while a collective runs."""

    chip: Machine
    efficiency: Efficiency
    collective: CollectiveTime
    held: float = 0.0

    def step_time(self, step: Step) -> Number:
        """[s], launch included."""
        return kernel_time(step.kernel, self.chip, self.efficiency)

    def exposed_time(self, exchange: Exchange) -> Number:
        """[s] that a collective adds to the pass."""
        time = self.collective(exchange.collective, exchange.size)
        if exchange.beside is None:
            return time
        alone = self.step_time(exchange.beside)
        return beside_time(alone, time, self.held) - alone

    def times(self, work: Work) -> Mapping[Kind, Number]:
        """Time [s] of each kind; together they are the time of the pass."""
        parts: dict[Kind, list[Number]] = {kind: [0.0] for kind in Kind}
        for item in work:
            step = item if isinstance(item, Step) else item.beside
            if isinstance(item, Exchange):
                parts[Kind.EXPOSED].append(self.exposed_time(item))
            if step is not None:
                parts[step.kind].append(self.step_time(step))
        return {kind: total(times) for kind, times in parts.items()}

    def time(self, work: Work) -> Number:
        """Time [s] of the pass."""
        return total(list(self.times(work).values()))


def steps(work: Work) -> tuple[Step, ...]:
    """The kernels, those beside collectives among them."""
    found = (item if isinstance(item, Step) else item.beside for item in work)
    return tuple(step for step in found if step is not None)


def macs(work: Work) -> Number:
    """Multiply-accumulates of the matrix products."""
    return total([demand(step.kernel)[0] for step in steps(work)])


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
