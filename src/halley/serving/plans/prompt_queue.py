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
"""Prompts that wait beyond those of a full step, at most: at the largest share of full steps one in 10^8 steps has more."""


@dataclass(frozen=True, eq=False, slots=True)
class PromptSteps:
    """Steps of an engine that processes prompts, as many at once as have arrived: ``times`` [s] of steps of 1, 2, ... prompts."""

    times: Array

    @property
    def most(self) -> float:
        """Prompts per second of full steps."""
        return len(self.times) / float(self.times[-1])

    def latency(self, rate: float) -> float:
        """Mean time of a prompt [s] that is one of ``rate`` [1/s] Poisson arrivals; infinite where prompts outrun the engine.

        With n prompts at the end of a step, the next one takes s = min(n, b) of them, or the first that arrives where there is
        none. The numbers at the ends of steps are a Markov chain, and by Little's law

        .. math:: T = \\frac{\\sum_n p_n (n t_s + \\lambda t_s^2 / 2)}{p_0 + \\lambda \\sum_n p_n t_s}

        Symbols: p_n [1] chance of n prompts at the end of a step, where none counts as 1 in the sums, b [1] prompts of a full
        step, t_s [s] time of a step, lambda [1/s] rate. Source: the queue with service in batches (Bailey, J. R. Stat. Soc. B 16,
        1954), with times that depend on the batch. Steps of one prompt: the queue M/D/1 (Pollaczek, Khinchine).

        >>> [round(PromptSteps(np.array(times)).latency(10.0), 4) for times in ([0.05], [0.05, 0.09])]
        [0.075, 0.0755]
        """
        if rate > BUSY_SHARE_MOST * (1 + REPLICAS_ROUNDING) * self.most:
            return math.inf
        largest = len(self.times)
        if largest == 1:
            busy = rate * float(self.times[0])
            return float(self.times[0]) * (2 - busy) / (2 * (1 - busy))
        present = np.maximum(np.arange(largest + QUEUE_STATES), 1)
        taken = np.minimum(present, largest)
        time = self.times[taken - 1]
        more = poisson_chances(rate * self.times, len(present))[taken - 1]
        # those that are left and those that arrive; the last number stands for all above it
        at = np.arange(len(present))
        moved = at[None, :] - (present - taken)[:, None]
        chances = np.where(moved >= 0, np.take_along_axis(more, np.maximum(moved, 0), axis=1), 0.0)
        chances[:, -1] += 1 - chances.sum(axis=1)
        balance = chances.T - np.eye(len(present))
        balance[-1] = 1.0
        share = np.linalg.solve(balance, np.eye(len(present))[-1])
        held = float(share @ (present * time + rate * time**2 / 2))
        return held / float(share[0] + rate * (share @ time))


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
