"""Halley's times of measured rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from validation.serving.recipes import started
from validation.serving.rows import Measured, libraries_of

from halley.io.chips.fits import load_chip_fit
from halley.io.chips.kernel_fits import serving_fits
from halley.kernels.machine import Efficiency
from halley.serving.deployment import Deployment
from halley.serving.software import ServingSoftware
from halley.serving.steady import Lengths, Steady, closed_loop, prompt_time
from halley.serving.step import StepBatch, StepModel

LONGEST = 16384
SAMPLES = 17
"""Points of the context at which a long decode is sampled."""


@lru_cache(maxsize=1)
def efficiency() -> Efficiency:
    return load_chip_fit("a100").efficiency


def static_batch(step: StepModel, batch: float, lengths: Lengths) -> tuple[float, float]:
    """(time to first token, time of the whole generation) [s] of ``batch`` equal requests that start together on one engine."""
    first = prompt_time(step, batch, lengths)
    more = lengths.output - 1
    if more <= 0:
        return first, first
    contexts = np.linspace(lengths.input + 1, lengths.input + more, SAMPLES)
    times = step.time(StepBatch(batch, contexts))
    return first, first + more * float(np.trapezoid(times, dx=1.0) / (SAMPLES - 1))


class Predictor:
    """Times of rows with the software of each framework; deployments are made once."""

    def __init__(self, software: Callable[[str], ServingSoftware]) -> None:
        self.software = software
        self.known: dict[object, Deployment] = {}

    def deployment(self, row: Measured) -> Deployment:
        """The deployment of a row."""
        key = row.model, row.layout, row.gpu, row.system.chips, row.framework, row.system.chip.levels[0].memories[0].capacity
        if key not in self.known:
            libraries = libraries_of(row.gpu, row.system.chips, "")
            software, fits = self.software(row.framework), serving_fits(row.system.chip.name)
            self.known[key] = Deployment(
                row.model, row.system, row.layout, software, efficiency(), libraries, None, LONGEST, fits
            )
        return self.known[key]

    def started(self, row: Measured) -> Deployment:
        """The deployment of a row with its server as the benchmark starts it."""
        made = self.deployment(row)
        software = started(row, made.software)
        if software == made.software:
            return made
        key = id(made), software
        return self.known.setdefault(key, replace(made, software=software))

    def static(self, row: Measured) -> float:
        """Time of a static batch [s]: in as many rounds as the cache has capacity for."""
        made = self.deployment(row)
        batch = max(row.batch / made.engines, 1.0)
        fits = max(made.engine_memory.users(row.lengths.input + row.lengths.output), 1)
        rounds = -(-batch // fits)
        return float(rounds) * static_batch(made.step, batch / rounds, row.lengths)[1]

    def closed(self, row: Measured) -> Steady:
        """The closed loop of a row; lengths are uniform in 0.8 to 1.0 of what the row says."""
        made = self.deployment(row)
        return closed_loop(made.step, made.engine_memory, max(row.batch / made.engines, 1.0), closed_lengths(row))


def closed_lengths(row: Measured) -> Lengths:
    """Mean lengths of a closed loop."""
    return replace(row.lengths, input=0.9 * row.lengths.input, output=0.9 * row.lengths.output)


def errors(pairs: Iterable[tuple[float, float]]) -> list[float]:
    """Relative absolute errors of (predicted, measured)."""
    return [abs(found / given - 1) for found, given in pairs]
