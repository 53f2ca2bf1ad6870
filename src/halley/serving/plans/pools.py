"""Chips for prompts and chips for decoding: the best split of a system into both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from halley.ir.hardware import Link
from halley.serving.deployment import Deployment, transfer_time
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.plans.problem import ServingObjective, ServingProblem, replicas_needed
from halley.serving.plans.prompt_queue import BUSY_SHARE_MOST, PromptSteps, prompt_steps
from halley.serving.software import ServingSoftware
from halley.serving.speculation import Speculation
from halley.serving.steady import Lengths, front_end_alone, root
from halley.serving.step import StepBatch
from halley.serving.tables import Array


@dataclass(frozen=True, slots=True)
class Pools:
    """Chips for prompts and chips for decoding: layouts and replicas of each, ``rate`` [1/s] of requests, times [s], ``transfer``
    [s] of the cache of a request. With ``speculation`` the chips for prompts process those of the draft too, and its cache moves
    with that of the model. A step for prompts has at most ``prompt_budget`` tokens."""

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
    prompt_budget: int
    speculation: Speculation | None = None

    @property
    def chips(self) -> int:
        """Chips of both."""
        return self.prompt_replicas * self.prompts.chips + self.decode_replicas * self.decoding.chips


@dataclass(frozen=True, slots=True)
class _PromptReplica:
    """A replica that processes prompts in ``steps``, ``moved`` [s] the cache of one, ``front`` [s] the front end."""

    layout: ReplicaLayout
    steps: PromptSteps
    moved: float
    front: float
    software: ServingSoftware

    @property
    def engines(self) -> int:
        return self.layout.dp * self.layout.pp

    def ttft(self, rate: float, decoding: float) -> float:
        """Time to first token [s] of Poisson arrivals of ``rate`` [1/s], distributed round robin to the engines, whose requests
        decode for so long [s] elsewhere.

        .. math:: T = T_P(\\lambda / e, e) + t_K + f + g \\lambda (T + D)

        Symbols: T_P [s] of a prompt in its engine (`PromptSteps.latency`), t_K [s] transfer of its cache, f, g [s] front end of a
        request and for each in flight, lambda [1/s] rate, D [s] decoding, e [1] engines. Infinite where the prompts or the front
        end cannot keep up.
        """
        streamed = self.software.request_user * rate
        if streamed >= 1:
            return math.inf
        inside = self.steps.latency(rate / self.engines, self.engines) + self.moved + self.front
        return (inside + streamed * decoding) / (1 - streamed)

    @property
    def fastest(self) -> float:
        """The largest rate without a limit of TTFT [1/s]."""
        return BUSY_SHARE_MOST * self.engines * self.steps.most

    def most(self, limit: float, decoding: float) -> float:
        """The largest rate [1/s] at which the TTFT is at most ``limit`` [s]; 0: none."""
        if self.ttft(self.fastest, decoding) <= limit:
            return self.fastest
        spare = self.ttft(0.0, decoding) - limit
        return root(lambda rate: self.ttft(rate, decoding) - limit, 0.0, self.fastest, spare) if spare < 0 else 0.0


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
    link = problem.system.axes[0].link if problem.system.axes else None
    if link is None:
        return None
    if problem.objective is ServingObjective.THROUGHPUT:
        cost = min(cost, 0.0)  # pools that serve nothing are none
    groups: dict[tuple[ServedModel, Speculation | None], list[Deployment]] = {}
    for deployment in made:
        if deployment.layout.chips < problem.system.chips:
            groups.setdefault((deployment.model, deployment.speculation), []).append(deployment)
    best: Pools | None = None
    for (model, speculation), group in groups.items():
        found = _best_of(problem, group, link, cost)
        if found is not None:
            cost, pair = found
            best = replace(_pools(problem, model, cost, *pair), speculation=speculation)
    return best


def _best_of(
    problem: ServingProblem, group: Sequence[Deployment], link: Link, cost: float
) -> tuple[float, tuple[_PromptReplica, _DecodeReplica]] | None:
    """The least cost below ``cost`` of deployments of one model and speculation, and its replicas; None: there is none. Pairs
    come in the order of their costs without the limit of TTFT, which are no more than those with it."""
    lengths, limits = problem.lengths, problem.limits
    largest = max(problem.budgets)
    prompts = [_prompt_replica(each, lengths, link) for each in group]
    made = (_decode_replica(each, problem) for each in group if each.software.budget == largest)
    decoding = _undominated([each for each in made if each is not None])
    if not decoding:
        return None
    second = np.array([(each.layout.chips, each.rate) for each in decoding]).T
    first = np.array([(each.layout.chips, each.fastest) for each in prompts]).T[:, :, None]
    least = pool_costs(problem, first, second)
    best = None
    for place in np.argsort(least, axis=None, kind="stable"):
        row, column = np.unravel_index(int(place), least.shape)
        if least[row, column] >= cost:
            break
        pair = prompts[row], decoding[column]
        most = pair[0].most(limits.ttft, (lengths.output - 1) * pair[1].tpot)
        own = float(pool_costs(problem, np.array([pair[0].layout.chips, most]), second[:, column]))
        if own < cost:
            cost, best = own, pair
    return None if best is None else (cost, best)


def pool_costs(problem: ServingProblem, first: Array, second: Array) -> Array:
    """Costs (`objective_cost`) of pools of whole replicas of two layouts. ``first``, ``second``: (chips, requests per second) of
    a replica for prompts, and of one that decodes; the cost has the shape of both together."""
    total = problem.system.chips
    if problem.objective is ServingObjective.THROUGHPUT:
        return -most_requests(total, *first, *second)
    prompts, decoding = (each[0] * replicas_needed(problem.rate, each[1]) for each in (first, second))
    chips = prompts + decoding
    return np.asarray(np.where(chips <= total, chips, math.inf))


def most_requests(total: float, prompt_chips: Array, prompt_rates: Array, decode_chips: Array, decode_rates: Array) -> Array:
    """Most requests per second of whole replicas of two layouts on ``total`` chips, element by element.

    .. math:: X = \\max_a \\min(a r_P, \\lfloor (m - a c_P) / c_D \\rfloor r_D)

    Symbols: m [1] chips, c_P, c_D [1] of a replica, r_P, r_D [1/s] of a replica, a [1] replicas for prompts. The first term grows
    with a, the second falls: the largest a with the first no larger than the second is bisected.

    >>> most_requests(8, np.array([1.0, 2.0]), np.array([1.0, 5.0]), np.array([4.0, 4.0]), np.array([3.0, 3.0])).tolist()
    [3.0, 3.0]
    """

    def other(replicas: Array) -> Array:
        return np.asarray(np.floor((total - replicas * prompt_chips) / decode_chips) * decode_rates)

    high = np.maximum(np.floor((total - decode_chips) / prompt_chips), 0.0)
    low, top = np.zeros_like(high + decode_rates), high + 1.0
    for _ in range(math.ceil(math.log2(total + 2))):
        middle = np.floor((low + top) / 2)
        below = middle * prompt_rates <= other(middle)
        low, top = np.where(below, middle, low), np.where(below, top, middle)
    low = np.minimum(low, high)
    most = np.maximum(low * prompt_rates, np.where(low < high, other(low + 1), 0.0))
    return np.asarray(np.where(high >= 1, most, 0.0))


def _prompt_replica(deployment: Deployment, lengths: Lengths, link: Link) -> _PromptReplica:
    moved = transfer_time(deployment, lengths.input, link, deployment.layout.tp)
    front = front_end_alone(deployment.software, deployment.model)
    return _PromptReplica(deployment.layout, prompt_steps(deployment.step, lengths), moved, front, deployment.software)


def _decode_replica(deployment: Deployment, problem: ServingProblem) -> _DecodeReplica | None:
    """With the batch that serves most under the limit of TPOT; None: there is none."""
    lengths, layout = problem.lengths, deployment.layout
    users = np.arange(1.0, math.floor(deployment.capacity_users(lengths)) + 1)
    steps = deployment.decode_steps(lengths) / (lengths.output - 1)
    times = deployment.step.time(StepBatch(users, lengths.mean_context)) * steps
    allowed = np.flatnonzero(times <= problem.limits.tpot)
    if not allowed.size:
        return None
    rates = users[allowed] / times[allowed] / (lengths.output - 1) * layout.dp * layout.pp
    place = int(np.argmax(rates))
    return _DecodeReplica(layout, float(rates[place]), float(times[allowed][place]), float(users[allowed][place]))


def _undominated(every: Sequence[_DecodeReplica]) -> list[_DecodeReplica]:
    """Those to which no other is equal or better in chips, requests per second and TPOT."""
    found: list[_DecodeReplica] = []
    for each in sorted(every, key=lambda item: (item.layout.chips, -item.rate, item.tpot)):
        if not any(other.rate >= each.rate and other.tpot <= each.tpot for other in found):
            found.append(each)
    return found


def _pools(problem: ServingProblem, model: ServedModel, cost: float, first: _PromptReplica, second: _DecodeReplica) -> Pools:
    """The pools of two replicas that have this ``cost``: as many for prompts as their rate needs, and to decode what is left of
    the chips, or as many as the rate asked for needs."""
    decode = (problem.lengths.output - 1) * second.tpot
    asked = problem.objective is ServingObjective.CHIPS
    rate = problem.rate if asked else -cost
    replicas = int(replicas_needed(rate, np.float64(first.most(problem.limits.ttft, decode))))
    left = (problem.system.chips - replicas * first.layout.chips) // second.layout.chips
    rest = int(replicas_needed(rate, np.float64(second.rate))) if asked else left
    times = rate, first.ttft(rate / replicas, decode), second.tpot, first.moved
    return Pools(first.layout, replicas, second.layout, rest, model, second.users, *times, first.software.budget)
