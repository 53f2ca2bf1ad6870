"""The queue of an engine that processes prompts alone: how long a prompt takes that arrives at random."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from halley.serving.plans.problem import REPLICAS_ROUNDING
from halley.serving.steady import Lengths, prompt_time
from halley.serving.step import StepBatch, StepModel
from halley.serving.tables import Array

BUSY_SHARE_MOST = 0.9
"""Share of the prompts of full steps that chips for prompts get at most: beyond it their queue grows without end."""
PROMPTS_AT_ONCE = 64
"""Prompts of a step at most: what steps cost whatever their prompts is small for as many."""
QUEUE_STATES = 100
"""Arrivals beyond those of a full step, at most: at the largest share of full steps one in 10^8 steps has more."""
FULL_STEP_STATES = 512
"""Most arrivals of a full step. With more engines or prompts, arrivals count as those of fewer engines, which come less
evenly."""


@dataclass(frozen=True, eq=False, slots=True)
class PromptSteps:
    """Steps of an engine that processes prompts, as many at once as have arrived: ``times`` [s] of steps of 1, 2, ... prompts."""

    times: Array

    @property
    def most(self) -> float:
        """Prompts per second of full steps."""
        return len(self.times) / float(self.times[-1])

    def latency(self, rate: float, engines: int = 1) -> float:
        """Mean time of a prompt [s]; infinite where prompts outrun the engine. Prompts arrive at random, and are distributed
        round robin to ``engines`` equal engines, each of which gets ``rate`` [1/s].

        So an engine gets every e-th arrival. With x arrivals at the end of a step since the last prompt that it took,
        floor(x / e) prompts wait; the next step takes s of them, at most b, or the first that arrives where there is none. The
        numbers x at the ends of steps are a Markov chain, and by Little's law

        .. math:: T = \\frac{1}{r} \\left(\\frac{\\sum_x p_x (\\sum_{i=x}^{e-1} i / r + y_x t_s + r t_s^2 / 2)}
            {\\sum_x p_x (\\max(e - x, 0) / r + t_s)} - \\frac{e - 1}{2}\\right), \\quad y_x = \\max(x, e)

        Symbols: p_x [1] chance of x at the end of a step, b [1] prompts of a full step, t_s [s] time of a step of s prompts,
        r [1/s] rate of arrivals at all engines, e [1] engines. Source: the queue with service in batches (Bailey, J. R. Stat.
        Soc. B 16, 1954), with times that depend on the batch, and arrivals in e phases (Erlang). One engine and steps of one
        prompt: the queue M/D/1 (Pollaczek, Khinchine).

        >>> [round(PromptSteps(np.array(times)).latency(10.0), 4) for times in ([0.05], [0.05, 0.09])]
        [0.075, 0.0755]
        >>> [round(PromptSteps(np.array([0.05])).latency(10.0, engines), 4) for engines in (2, 8)]
        [0.0588, 0.0505]
        """
        if rate > BUSY_SHARE_MOST * (1 + REPLICAS_ROUNDING) * self.most:
            return math.inf
        largest = len(self.times)
        phases = max(1, min(engines, FULL_STEP_STATES // largest))
        if largest == phases == 1:
            busy = rate * float(self.times[0])
            return float(self.times[0]) * (2 - busy) / (2 * (1 - busy))
        if rate == 0:
            return float(self.times[0])
        every = phases * rate
        present = np.arange(largest * phases + QUEUE_STATES)
        started = np.maximum(present, phases)
        taken = np.minimum(started // phases, largest)
        time, idle = self.times[taken - 1], (started - present) / every
        share = _chances_at_ends(started - phases * taken, poisson_chances(every * self.times, len(present))[taken - 1])
        waited = idle * (started + present - 1) / 2  # the mean of the numbers from x to e - 1
        held = float(share @ (waited + started * time + every * time**2 / 2))
        return (held / float(share @ (idle + time)) - (phases - 1) / 2) / every


def _chances_at_ends(left: Array, more: Array) -> Array:
    """Chances of 0, 1, ... arrivals at the end of a step, from those that are ``left`` when it starts, by their number at the end
    of the step before, and the chances of so many ``more`` [number before, more]. The last number stands for all above it."""
    at = np.arange(len(left))
    moved = at[None, :] - left[:, None]
    chances = np.where(moved >= 0, np.take_along_axis(more, np.maximum(moved, 0), axis=1), 0.0)
    chances[:, -1] += 1 - chances.sum(axis=1)
    balance = chances.T - np.eye(len(left))
    balance[-1] = 1.0
    return np.asarray(np.linalg.solve(balance, np.eye(len(left))[-1]))


def poisson_chances(means: Array, count: int) -> Array:
    """Chances of 0, 1, ... events, ``count`` numbers, in a row for each mean.

    >>> poisson_chances(np.array([1.0]), 3).round(4).tolist()
    [[0.3679, 0.3679, 0.1839]]
    """
    ratios = means[:, None] / np.maximum(np.arange(count), 1)
    ratios[:, 0] = np.exp(-means)
    return np.asarray(ratios.cumprod(axis=1))


def prompt_steps(step: StepModel, lengths: Lengths) -> PromptSteps:
    """Of a step model: steps of whole prompts, or one prompt after the other where a step does not fit two."""
    most = min(int(step.software.budget / lengths.new), step.software.users, PROMPTS_AT_ONCE)
    if most < 2:
        return PromptSteps(np.array([prompt_time(step, 1, lengths)]))
    counts = np.arange(1.0, most + 1)
    return PromptSteps(np.asarray(step.time(StepBatch(0, 0, counts * lengths.new, lengths.input, counts))))
