"""Chips for prompts and chips for decoding: the best split of a system into both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from halley.serving.deployment import Deployment, transfer_time
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.plans.candidates import batches
from halley.serving.plans.problem import REPLICAS_ROUNDING, ServingObjective, ServingProblem, replicas_for
from halley.serving.software import ServingSoftware
from halley.serving.speculation import Speculation
from halley.serving.steady import front_end_alone, prompt_time
from halley.serving.step import StepBatch

BUSY_SHARE_MOST = 0.9
"""Share of the time that chips for prompts work at most: beyond it their queue grows without end."""
RATE_BISECTIONS = 50
"""Halvings of a rate for which the time to first token is at its limit."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Chips for prompts and chips for decoding: layouts and replicas of each, ``rate`` [1/s] of requests, times [s], ``transfer``
    [s] of the cache of a request. With ``speculation`` the chips for prompts process those of the draft too, and its cache moves
    with that of the model."""

    prompts: ReplicaLayout
    prompt_replicas: int
    decoding: ReplicaLayout
    decode_replicas: int
    model: ServedModel
    users: float
    rate: float
    ttft: float
    tpot: float
    transfer: float
    speculation: Speculation | None = None

    @property
    def chips(self) -> int:
        """Chips of both."""
        return self.prompt_replicas * self.prompts.chips + self.decode_replicas * self.decoding.chips


@dataclass(frozen=True, slots=True)
class _PromptReplica:
    """A replica that processes prompts: ``single`` [s] a prompt, on ``engines`` at a time, ``moved`` [s] its cache, ``front``
    [s] the front end."""

    layout: ReplicaLayout
    single: float
    moved: float
    front: float
    software: ServingSoftware

    @property
    def engines(self) -> int:
        return self.layout.dp * self.layout.pp

    def ttft(self, rate: float, decoding: float) -> float:
        """Time to first token [s] of Poisson arrivals of ``rate`` [1/s], whose requests decode for so long [s] elsewhere.

        .. math:: T = t (1 + \\frac{\\rho}{2 (1 - \\rho)}) + t_K + f + g \\lambda (T + D), \\quad \\rho = \\lambda t / e

        Symbols: t [s] of a prompt, t_K [s] transfer of its cache, f, g [s] front end of a request and for each in flight, lambda
        [1/s] rate, D [s] decoding, e [1] engines. Source: the queue M/D/1 (Pollaczek, Khinchine). Infinite where the prompts or
        the front end cannot keep up.
        """
        busy, streamed = rate * self.single / self.engines, self.software.request_user * rate
        if busy > BUSY_SHARE_MOST * (1 + REPLICAS_ROUNDING) or streamed >= 1:
            return math.inf
        inside = self.single * (1 + busy / (2 * (1 - busy))) + self.moved + self.front
        return (inside + streamed * decoding) / (1 - streamed)

    def most(self, limit: float, decoding: float) -> float:
        """The largest rate [1/s] at which the TTFT is at most ``limit`` [s]; 0: none."""
        low, high = 0.0, BUSY_SHARE_MOST * self.engines / self.single
        if self.ttft(high, decoding) <= limit:
            return high
        for _ in range(RATE_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.ttft(middle, decoding) <= limit else (low, middle)
        return low


@dataclass(frozen=True, slots=True)
class _DecodeReplica:
    """A replica that decodes with the best batch: requests per second ``rate``, ``tpot`` [s], ``users`` of an engine."""

    layout: ReplicaLayout
    rate: float
    tpot: float
    users: float


def best_pools(problem: ServingProblem, made: Sequence[Deployment], cost: float) -> Pools | None:
    """The best split into a pool for prompts and one for decoding whose cost (`objective_cost`) is below ``cost``; None: there is
    none."""
    lengths, limits, total = problem.lengths, problem.limits, problem.system.chips
    prompts: dict[tuple[ServedModel, Speculation | None, ReplicaLayout], _PromptReplica] = {}
    decoding: dict[tuple[ServedModel, Speculation | None, ReplicaLayout], _DecodeReplica] = {}
    link = problem.system.axes[0].link if problem.system.axes else None
    if link is None:
        return None
    largest = max(problem.budgets)
    for deployment in made:
        key, layout = (deployment.model, deployment.speculation, deployment.layout), deployment.layout
        if deployment.software.budget != largest or layout.chips >= total:
            continue
        moved = transfer_time(deployment, lengths.input, link, layout.tp)
        single, front = prompt_time(deployment.step, 1, lengths), front_end_alone(deployment.software, deployment.model)
        prompts[key] = _PromptReplica(layout, single, moved, front, deployment.software)
        most_users = deployment.capacity_users(lengths)
        users = np.array(batches(most_users), dtype=np.float64)
        users = users[users <= most_users]
        steps = deployment.decode_steps(lengths)
        times = deployment.step.time(StepBatch(users, lengths.mean_context)) * (steps / (lengths.output - 1))
        allowed = np.flatnonzero(times <= limits.tpot)
        if allowed.size:
            rates = users[allowed] / times[allowed] / (lengths.output - 1) * layout.dp * layout.pp
            place = int(np.argmax(rates))
            decoding[key] = _DecodeReplica(
                layout, float(rates[place]), float(times[allowed][place]), float(users[allowed][place])
            )
    best: Pools | None = None
    for (model, speculation, _), first in prompts.items():
        for (other, own, _), second in decoding.items():
            if (other, own) != (model, speculation):
                continue
            most = first.most(limits.ttft, (lengths.output - 1) * second.tpot)
            for made_pools in _splits(problem, first, second, most):
                value = made_pools[0]
                if value < cost:
                    cost, best = value, replace(_pools(problem, model, first, second, *made_pools[1:]), speculation=speculation)
    return best


def _splits(
    problem: ServingProblem, first: _PromptReplica, second: _DecodeReplica, most: float
) -> Iterator[tuple[float, int, int, float]]:
    """(cost, replicas for prompts, replicas for decoding, requests per second): every split of the chips, or the smallest that
    serves the rate asked for. ``most`` [1/s]: of a replica for prompts."""
    total = problem.system.chips
    if problem.objective is ServingObjective.CHIPS:
        counts = replicas_for(problem, most, total), replicas_for(problem, second.rate, total)
        chips = counts[0] * first.layout.chips + counts[1] * second.layout.chips
        if chips <= total:
            yield chips, int(counts[0]), int(counts[1]), problem.rate
        return
    for replicas in range(1, (total - second.layout.chips) // first.layout.chips + 1):
        rest = (total - replicas * first.layout.chips) // second.layout.chips
        rate = min(replicas * most, rest * second.rate)
        if rate > 0:
            yield -rate, replicas, rest, rate


def _pools(problem: ServingProblem, model: ServedModel, first: _PromptReplica, second: _DecodeReplica, *split: float) -> Pools:
    replicas, rest, rate = int(split[0]), int(split[1]), split[2]
    ttft = first.ttft(rate / replicas, (problem.lengths.output - 1) * second.tpot)
    return Pools(first.layout, replicas, second.layout, rest, model, second.users, rate, ttft, second.tpot, first.moved)
