"""Steady states in closed form: static batches, closed loops of users, Poisson arrivals.

An engine is what schedules its own batch: an attention rank of a replica, or, of a pipeline, one of the batches that follow each
other through the stages. All engines of a deployment are equal and get equal shares of the load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from halley.serving.memory import ServingMemory
from halley.serving.step import StepBatch, StepModel
from halley.serving.tables import Array

POISSON_TAIL = 6.0
"""Standard deviations of a Poisson number up to which its probabilities are summed."""
FRONT_ROUNDS = 4
"""Rounds in which the users of an engine and its latency agree."""
ROUNDS = 60
"""Rounds of a fixed point or a bisection."""
QUEUE_LIMIT = 64
"""Requests in flight, relative to the sequences of a batch, from which arrivals count as too many."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean lengths [tokens] of requests: ``input``, of which a ``prefix`` is cached, and ``output``."""

    input: float
    output: float
    prefix: float = 0.0

    @property
    def new(self) -> float:
        """Prompt tokens that are computed."""
        return max(self.input - self.prefix, 1.0)

    @property
    def mean_context(self) -> float:
        """Of a request while it decodes."""
        return self.input + self.output / 2


@dataclass(frozen=True, slots=True)
class Steady:
    """A steady state of one engine. ``users``: requests in flight, of which ``running`` have a place in the batch; ``ttft``,
    ``tpot`` [s]; ``rate`` [1/s] of requests; ``decoding`` [1]: mean sequences of a step that decode; ``chunk`` [tokens]: prompt
    tokens of a mean step; ``step`` [s]: mean step; ``parts`` [s]: its parts; ``limit``: what bounds the rate."""

    users: float
    running: float
    ttft: float
    tpot: float
    rate: float
    decoding: float
    chunk: float
    step: float
    parts: dict[str, float]
    limit: str


def prompt_time(step: StepModel, batch: float, lengths: Lengths) -> float:
    """Time of the steps that process ``batch`` prompts, in chunks of the budget."""
    budget, new = step.software.budget, lengths.new
    per_step = max(math.floor(budget / new), 1) if new <= budget else 1
    if new <= budget:
        full, rest = divmod(batch, per_step)
        counts = np.array([per_step, rest], dtype=np.float64)
        times = step.time(StepBatch(0, 0, counts * new, lengths.input, np.maximum(counts, 1e-9)))
        return float(full * times[0] + (times[1] if rest else 0.0))
    chunks = np.arange(budget, new + budget, budget, dtype=np.float64)
    sizes = np.minimum(budget, new - (chunks - budget))
    sizes, ends = sizes[sizes > 0], lengths.prefix + np.minimum(chunks, new)[: len(sizes[sizes > 0])]
    return float(batch * step.time(StepBatch(0, 0, sizes, ends)).sum())


def front_end(step: StepModel, users: float) -> float:
    """Time of a request in the front end of a replica whose engines have ``users`` requests each [s]."""
    return step.software.request + step.software.request_user * users * step.layout.dp * step.layout.pp


def closed_loop(step: StepModel, memory: ServingMemory, users: float, lengths: Lengths) -> Steady:
    """The steady state with ``users`` requests in flight on one engine, each followed by the next at once. Those in the front end
    are not in the engine: of N users with latency T in the engine and F before it, N T / (T + F) are there."""
    front, inside = front_end(step, users), users
    state = engine_loop(step, memory, inside, lengths)
    for _ in range(FRONT_ROUNDS if front else 0):
        latency = state.users / state.rate
        inside = (inside + max(users * latency / (latency + front), min(users, 1.0))) / 2
        state = engine_loop(step, memory, inside, lengths)
    latency = state.users / state.rate + front
    return replace(state, users=users, ttft=state.ttft + front, rate=users / latency)


def engine_loop(step: StepModel, memory: ServingMemory, users: float, lengths: Lengths) -> Steady:
    """The steady state of an engine with ``users`` requests in it.

    Requests end at different times, so that prompts arrive like Poisson numbers: with mu prompts a step on average,

    .. math:: t = \\sum_j \\frac{\\mu^j e^{-\\mu}}{j!} t(n, j c)

    Symbols: n [1] decoding sequences, c [1] prompt tokens of a chunk. A decoding request never meets its own prompt, so that its
    steps have mu (n - 1) / n of them.
    """
    software = step.software
    most = min(memory.capacity_pages / max(memory.pages(lengths.input + lengths.output / 2), 1), software.users)
    running = min(users, most)
    limit = "users in flight" if running == users else "memory for the cache" if most < software.users else "sequences of a batch"
    more = max(lengths.output - 1, 0.0)
    budget, new = float(software.budget), lengths.new
    decoding = running * more / (more + 1)
    for _ in range(ROUNDS):
        free = max(budget - decoding, 1.0)
        chunks = math.ceil(new / free) if new > free else 1.0
        before, decoding = decoding, running * more / (more + chunks)
        if abs(before - decoding) < 1e-9 * running:
            break
    chunk = new / chunks
    prompts = (running - decoding) if more else running
    fits = max(math.floor((budget - decoding) / chunk), 1)
    waiting = 0.0
    if prompts > fits:  # more prompts than the budget of a step has capacity for: they queue
        limit = "tokens of a step"
        decoding = min(decoding, fits / chunks * more)
        waiting = max(running - decoding - fits, 0.0)
        prompts = float(fits)
    keys = lengths.prefix + (new + chunk) / 2 if chunks > 1 else lengths.input
    context = lengths.mean_context
    others = prompts * max(running - 1, 0) / running if running > 1 else 0.0
    mixed = _mixture(others, fits), _mixture(others, fits, own=True), _mixture(prompts, fits)
    (tpot, own, whole), parts = _mean_steps(step, decoding, context, chunk, keys, mixed)
    service = chunks * own + more * tpot
    rate = (running - waiting) / service
    queued = (users - running + waiting) / rate
    parts = {name: value for name, value in parts.items() if value > 0}
    return Steady(users, running, queued + chunks * own, tpot, rate, decoding, prompts * chunk, whole, parts, limit)


def _mixture(prompts: float, fits: int, own: bool = False) -> tuple[Array, Array]:
    """Chunks of a step and their chances: a Poisson number, at most ``fits``; ``own``: one of them is certain."""
    if prompts >= fits and not own:
        return np.array([float(fits)]), np.ones(1)
    counts, chances = poisson(prompts, fits - 1 if own else fits)
    return (counts + 1 if own else counts), chances


def _mean_steps(
    step: StepModel, users: float, context: float, chunk: float, keys: float, mixed: tuple[tuple[Array, Array], ...]
) -> tuple[list[float], dict[str, float]]:
    """The mean step of each mixture of chunks, and the parts of the last."""
    counts = np.concatenate([item[0] for item in mixed])
    parts = step.parts(StepBatch(users, context, counts * chunk, keys, np.maximum(counts, 1.0)))
    total = sum(parts.values(), np.zeros(len(counts)))
    ends = np.cumsum([len(item[0]) for item in mixed])
    means = [float((total[end - len(item[1]) : end] * item[1]).sum()) for item, end in zip(mixed, ends, strict=True)]
    chances = mixed[-1][1]
    return means, {name: float((value[-len(chances) :] * chances).sum()) for name, value in parts.items()}


def poisson(mean: float, most: int) -> tuple[Array, Array]:
    """Numbers from 0 to ``most`` and their chances, with the mean kept where that is possible.

    >>> [round(float(chance), 3) for chance in poisson(0.5, 2)[1]]
    [0.6, 0.3, 0.1]
    """
    top = int(min(most, math.ceil(mean + POISSON_TAIL * math.sqrt(mean) + 3)))
    counts = np.arange(max(top, 0) + 1, dtype=np.float64)
    logs = counts * math.log(mean) if mean > 0 else np.where(counts == 0, 0.0, -np.inf)
    logs = logs - np.array([math.lgamma(count + 1) for count in counts])
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    short = mean - float((counts * chances).sum())
    if short > 0 and len(counts) > 1:  # what lies beyond the largest number moves to it, out of all
        moved = min(short / (short + float(counts[-1]) - mean), 1.0)
        chances = chances * (1 - moved)
        chances[-1] += moved
    return counts, chances


def arrivals(step: StepModel, memory: ServingMemory, rate: float, lengths: Lengths) -> Steady | None:
    """The steady state of one engine with Poisson arrivals of ``rate`` [1/s]; None where it cannot keep up.

    A request meets as many others as there are on average, as an arriving one does: it has the latency T of a closed loop of one
    user more than are in flight. With Little's law,

    .. math:: \\lambda T(n) = n - 1, \\quad w = \\frac{E[t^2]}{2 E[t]} \\approx \\rho \\frac{t}{2}

    Symbols: lambda [1/s] rate, n [1] users of the closed loop, w [s] wait for the end of the step under way, t [s] a mean step,
    rho [1] share of the time that there is one. Source: the arrival theorem (Sevcik and Mitrani, J. ACM 28, 1981), of which this
    is the open case.
    """

    def kept_up(users: float) -> float:
        return closed_loop(step, memory, users, lengths).rate * (users - 1) / users

    low, high = 1.0, 2.0
    while kept_up(high) < rate:
        low, high = high, high * 2
        if high > QUEUE_LIMIT * step.software.users:
            return None
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if kept_up(middle) < rate else (low, middle)
    state = closed_loop(step, memory, high, lengths)
    busy = 1 - math.exp(-(high - 1))
    ttft = state.ttft + busy * state.step / 2
    users = rate * (ttft + max(lengths.output - 1, 0) * state.tpot)
    return replace(state, users=users, running=min(users, state.running), ttft=ttft, rate=rate, limit="arrivals")
