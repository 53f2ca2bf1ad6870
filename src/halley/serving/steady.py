"""Steady states in closed form: static batches, closed loops of users, Poisson arrivals.

An engine is what schedules its own batch: an attention rank of a replica, or, of a pipeline, one of the batches that follow each
other through the stages. All engines of a deployment are equal and get equal shares of the load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from halley.serving.memory import ServingMemory
from halley.serving.model import ServedModel
from halley.serving.software import IDEAL, ServingSoftware
from halley.serving.step import StepBatch, StepModel
from halley.serving.tables import Array

POISSON_TAIL = 6.0
"""Standard deviations of a Poisson number up to which its probabilities are summed."""
FRONT_ROUNDS = 4
"""Rounds in which the users of an engine and its latency agree."""
ROUNDS = 60
"""Rounds of a fixed point or a bisection."""
FIXED_POINT_TOLERANCE = 1e-7
"""Relative error of a fixed point that ends its search."""
ROOT_TOLERANCE = 1e-13
"""Relative width of an interval, and value relative to that at its lower end, at which the search for a root ends."""
QUEUE_LIMIT = 64
"""Requests in flight, relative to the sequences of a batch, from which arrivals count as too many."""
MOST_EXPONENT = 100.0
"""Largest number whose exponential is taken: with more prompts a step, each is followed by another."""
SATURATED_STEPS = 1.0
"""Steps that a prompt waits, from which the tokens of a step are said to limit the rate."""


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
    return front_end_alone(step.software, step.model) + step.software.request_user * users * step.layout.dp * step.layout.pp


def front_end_alone(software: ServingSoftware, model: ServedModel) -> float:
    """Time of the only request in the front end [s]."""
    return software.request + (software.request_experts if model.shape.experts else 0.0)


def closed_loop(step: StepModel, memory: ServingMemory, users: float, lengths: Lengths) -> Steady:
    """The steady state with ``users`` requests in flight on one engine, each followed by the next at once."""
    return closed_loops(step, memory, (users,), lengths)[0]


def closed_loops(step: StepModel, memory: ServingMemory, users: Sequence[float], lengths: Lengths) -> list[Steady]:
    """`closed_loop` of each number of users. Those in the front end are not in the engine: of N users with latency T in the
    engine and F before it, N T / (T + F) are there."""
    fronts, inside = [front_end(step, each) for each in users], list(users)
    states = engine_loops(step, memory, inside, lengths)
    for _ in range(FRONT_ROUNDS if any(fronts) else 0):
        for place, (each, front, state) in enumerate(zip(users, fronts, states, strict=True)):
            latency = state.users / state.rate
            inside[place] = (inside[place] + max(each * latency / (latency + front), min(each, 1.0))) / 2
        states = engine_loops(step, memory, inside, lengths)
    found = []
    for each, front, state in zip(users, fronts, states, strict=True):
        latency = state.users / state.rate + front
        found.append(replace(state, users=each, ttft=state.ttft + front, rate=each / latency))
    return found


def engine_loop(step: StepModel, memory: ServingMemory, users: float, lengths: Lengths, engines: int = 1) -> Steady:
    """The steady state of an engine with ``users`` requests in it."""
    return engine_loops(step, memory, (users,), lengths, engines)[0]


def engine_loops(
    step: StepModel, memory: ServingMemory, users: Sequence[float], lengths: Lengths, engines: int = 1
) -> list[Steady]:
    """`engine_loop` of each number of users.

    Requests end at different times, so that prompts arrive like Poisson numbers: with mu chunks a step on average,

    .. math:: t = \\sum_j \\frac{\\mu^j e^{-\\mu}}{j!} t(n, \\min(j c, B - w n))

    Symbols: n [1] decoding sequences of w [1] tokens each, c [1] prompt tokens of a chunk, B [1] budget of a step. A request
    meets the others alone: of N that run, (N - 1) / N of mu and of n, and itself. Prompts beyond the budget wait
    (`decoding_sequences`), and those that the server does not admit at once (`admission_steps`) for steps without prompts.
    Prompts that are distributed round robin to several ``engines`` arrive more evenly than Poisson numbers (`arrival_counts`).
    """
    batches = [_mean_batch(step, memory, each, lengths, engines) for each in users]
    times, parts = _mean_steps(step, lengths.mean_context, batches)
    more = max(lengths.output - 1, 0.0)
    steps = step.decode_steps(more)
    return [_steady(*item, more, steps) for item in zip(users, batches, times, parts, strict=True)]


@dataclass(frozen=True, slots=True)
class _MeanBatch:
    """What the steps of an engine have on average: ``running`` sequences, of which ``decoding``; ``prompts`` of ``chunk``
    tokens that end at ``keys``; a prompt has ``chunks``, and waits ``wait`` full steps and ``late`` steps without prompts.
    ``mixed``: (decoding sequences, chunks, their chances) of a full step, of one that decodes, of one with a prompt of its own,
    of one without prompts (where prompts are late), and of all."""

    running: float
    decoding: float
    prompts: float
    chunk: float
    keys: float
    chunks: float
    wait: float
    late: float
    limit: str
    mixed: tuple[tuple[float, Array, Array], ...]


def _mean_batch(step: StepModel, memory: ServingMemory, users: float, lengths: Lengths, engines: int) -> _MeanBatch:
    software, width = step.software, step.width
    most = min(max(memory.capacity_pages // max(memory.pages(lengths.mean_context), 1), 1.0), software.users)
    running = min(users, most)
    limit = "users in flight" if running == users else "memory for the cache" if most < software.users else "sequences of a batch"
    more, budget, new = step.decode_steps(max(lengths.output - 1, 0.0)), float(software.budget), lengths.new
    decoding, chunks, wait, late = decoding_sequences(running, budget, new, more, software, width, engines)
    chunk, fits = new / chunks, max((budget - width * decoding) / (new / chunks), 1.0)
    prompts = decoding / more * chunks if more else min(running, fits)
    if not more:
        wait = max(running / fits - 1, 0.0) * chunks
    if wait > SATURATED_STEPS:
        limit = "tokens of a step"
    keys = lengths.prefix + (new + chunk) / 2 if chunks > 1 else lengths.input
    other = max(running - 1, 0.0) / max(running, 1.0)
    seen = min(min(1.0, running) + other * decoding, budget / width)
    met = other * later_arrivals(decoding, engines)
    full = np.array([fits]), np.ones(1)
    mixed = [
        (decoding, *full),
        (seen, *_mixture(met * prompts, min(fits, (budget - width * seen) / chunk), engines)),
        (other * decoding, *_mixture(other * prompts, fits, engines, own=True)),
    ]
    mixed += [(decoding, np.zeros(1), np.ones(1))] if late else []
    mixed.append((decoding, *_mixture(prompts, fits, engines)))
    return _MeanBatch(running, decoding, prompts, chunk, keys, chunks, wait, late, limit, tuple(mixed))


def _steady(
    users: float, batch: _MeanBatch, times: Sequence[float], parts: dict[str, float], more: float, steps: float
) -> Steady:
    """The state of a batch whose requests get ``more`` tokens after the first in so many ``steps``."""
    full, own, whole = times[0], times[2], times[-1]
    tpot = times[1] * (steps / more if more else 1.0)
    first = batch.wait * full + batch.chunks * own + (batch.late * times[3] if batch.late else 0.0)
    rate = batch.running / (first + more * tpot)
    first += (users - batch.running) / rate
    chunk, parts = batch.prompts * batch.chunk, {name: value for name, value in parts.items() if value > 0}
    return Steady(users, batch.running, first, tpot, rate, batch.decoding, chunk, whole, parts, batch.limit)


def held_to(state: Steady, most: float) -> Steady:
    """The state with at most so many requests per second, ``most``: users wait longer for their first token."""
    if state.rate <= most:
        return state
    latency = state.users / most if most > 0 else math.inf
    return replace(state, rate=most, ttft=state.ttft + latency - state.users / state.rate)


def admission_steps(software: ServingSoftware, prompts: float, decoding: float, new: float) -> float:
    """Steps until a server admits a prompt of ``new`` tokens, where ``prompts`` arrive in a step and ``decoding`` sequences
    decode.

    .. math:: a = \\frac{I^2 / 2 + K / 2}{I + K} - \\frac{1}{2} + \\frac{L + \\mu L^2 / 2}{1 + \\mu L}, \\quad
        K = (1 - e^{-\\mu I}) e^\\mu, \\quad L = \\min(W, (\\lceil (S - n) / P \\rceil - 1) / \\mu)

    Symbols: I [1] steps between two receipts of requests, K [1] steps with prompts that follow one, behind each of which there is
    another receipt; mu [1] prompts that arrive in a step; L [1] steps for which the first of several prompts waits for the
    others, W [1] the most that it may, S [1] tokens with which a step starts at once, P [1] tokens of a prompt, n [1] decoding
    sequences. Holds for: prompts that arrive like a Poisson process.

    >>> admission_steps(ServingSoftware(), 0.1, 8, 1024)
    0.0
    >>> [round(admission_steps(ServingSoftware(receive=30), rate, 8, 1024), 1) for rate in (0.001, 0.1)]
    [14.5, 14.0]
    >>> round(admission_steps(ServingSoftware(wait_steps=20), 0.01, 8, 1024), 1)
    18.3
    """
    steps = 0.0
    if software.receive > 1:
        every = software.receive
        more = -math.expm1(-prompts * every) * math.exp(min(prompts, MOST_EXPONENT))
        steps += (every**2 + more) / 2 / (every + more) - 0.5
    if software.wait_steps and prompts > 0:
        enough = math.ceil((math.ceil(software.wait_share * software.budget) - decoding) / new)
        longest = min(software.wait_steps, max(enough - 1, 0) / prompts)
        steps += (longest + prompts * longest**2 / 2) / (1 + prompts * longest)
    return steps


def decoding_sequences(
    running: float, budget: float, new: float, more: float, software: ServingSoftware = IDEAL, width: int = 1, engines: int = 1
) -> tuple[float, float, float, float]:
    """(decoding sequences of a step, chunks of a prompt, steps that a prompt waits for others' tokens, and for its admission) of
    ``running`` sequences: ``new`` prompt tokens in steps of at most ``budget`` tokens, and ``more`` steps that decode.

    Each step brings n / M prompts, and has B - v n tokens for them. They queue like Poisson arrivals of equal work, of which each
    of e ``engines`` gets every e-th:

    .. math:: N = n (1 + \\frac{k + w + a}{M}), \\quad w = \\frac{\\rho}{2 (1 - \\rho)} \\frac{g}{e} \\frac{P}{B - v n}, \\quad
        \\rho = \\frac{n P}{M (B - v n)}, \\quad g = e^{-2 (1 - \\rho) (1 - 1 / e)^2 e / (3 \\rho)}

    Symbols: N, n [1] sequences that run and that decode, v [1] tokens of one that decodes (``width``), M [1] steps in which one
    decodes, k [1] chunks of a prompt, w [1] steps that it waits, a [1] `admission_steps`, P [1] tokens of a prompt, B [1] tokens
    of a step. At most B M / (v M + P) sequences decode, where each step is full. Source: the queue M/D/1 (Pollaczek, Khinchine);
    of several engines GI/G/1 (Kraemer and Langenbach-Belz, ITC 8, 1976).

    >>> [round(value, 1) for value in decoding_sequences(1000, 512, 1024, 127)]
    [56.5, 3.0, 2118.0, 0.0]
    """
    if not more:
        return 0.0, float(math.ceil(new / budget)), 0.0, 0.0
    chunks = late = 0.0

    def spare(decoding: float) -> float:
        """Sequences in the engine if so many of them decode, less those that there are."""
        nonlocal chunks, late
        free = budget - width * decoding
        chunks = math.ceil(new / free)
        busy = decoding / more * new / free * max(running - 1, 0.0) / running
        wait = busy / (2 * (1 - busy)) * new / free * _evenness(busy, engines) if busy < 1 else math.inf
        late = min(running - 1, 1.0) * admission_steps(software, decoding / more, width * decoding, new)  # alone: at once
        return decoding * (1 + (chunks + wait + late) / more) - running

    decoding = root(spare, 0.0, min(running, budget * more / (width * more + new)), -running)
    return decoding, float(chunks), max((running / decoding - 1) * more - chunks - late, 0.0), late


def root(function: Callable[[float], float], low: float, high: float, under: float) -> float:
    """The root of an increasing function between ``low``, where its value is ``under`` (below 0), and ``high``. If the value at
    ``high`` is not above 0 either, ``high``.

    Regula falsi; the value at an end that stays twice is halved (Illinois). Bisection where the value at ``high`` is infinite.

    >>> round(root(lambda x: x**3 - 2, 0.0, 2.0, -2.0), 12) == round(2 ** (1 / 3), 12)
    True
    """
    over, kept, middle, small = function(high), 0, high, -ROOT_TOLERANCE * under
    if over <= 0:
        return high
    for _ in range(ROUNDS):
        part = under / (under - over) if over < math.inf else 0.5
        middle = low + (high - low) * part
        value = function(middle)
        if value > 0:
            high, over, under, kept = middle, value, under / 2 if kept > 0 else under, 1
        else:
            low, under, over, kept = middle, value, over / 2 if kept < 0 else over, -1
        if abs(value) <= small or high - low < ROOT_TOLERANCE * high:
            break
    return middle


def _evenness(busy: float, engines: int) -> float:
    """Wait of every e-th of random arrivals over that of random ones, g / e of `decoding_sequences`."""
    if engines == 1 or busy <= 0:
        return 1.0 / engines
    return math.exp(-2 * (1 - busy) * (1 - 1 / engines) ** 2 * engines / (3 * busy)) / engines


def _mixture(prompts: float, fits: float, engines: int, own: bool = False) -> tuple[Array, Array]:
    """Chunks of a step and their chances, at most ``fits``; ``own``: of a step with a certain one."""
    most = fits - 1 if own else fits
    if prompts >= most:
        return np.array([fits]), np.ones(1)
    counts, chances = arrival_counts(prompts, most, engines, own)
    return (counts + 1 if own else counts), chances


def _mean_steps(
    step: StepModel, context: float, batches: Sequence[_MeanBatch]
) -> tuple[list[list[float]], list[dict[str, float]]]:
    """The mean step of each mixture of each batch, and the parts of its last: all are looked up together."""
    mixed = [item for batch in batches for item in batch.mixed]
    sizes = [sum(len(item[1]) for item in batch.mixed) for batch in batches]
    counts, chances = np.concatenate([item[1] for item in mixed]), np.concatenate([item[2] for item in mixed])
    users = np.repeat([item[0] for item in mixed], [len(item[1]) for item in mixed])
    chunk, keys = (np.repeat(values, sizes) for values in zip(*((batch.chunk, batch.keys) for batch in batches), strict=True))
    # a full step has no more tokens than its budget, to the last bit: graphs and tables may end there
    free = np.maximum((step.software.budget - step.width * users) * (1 - FIXED_POINT_TOLERANCE), 0.0)
    prompt = np.minimum(counts * chunk, free)
    parts = step.parts(StepBatch(users, context, prompt, keys, np.maximum(counts, 1.0)))
    starts = np.cumsum([0, *(len(item[1]) for item in mixed[:-1])])
    means = np.add.reduceat(sum(parts.values(), np.zeros(len(counts))) * chances, starts).tolist()
    each = {name: np.add.reduceat(value * chances, starts) for name, value in parts.items()}
    ends = np.cumsum([len(batch.mixed) for batch in batches]).tolist()
    times = [means[end - len(batch.mixed) : end] for end, batch in zip(ends, batches, strict=True)]
    return times, [{name: float(value[end - 1]) for name, value in each.items()} for end in ends]


@lru_cache(maxsize=32)
def _log_factorials(count: int) -> Array:
    """Logarithms of the factorials of as many numbers from 0."""
    return np.array([math.lgamma(number + 1) for number in range(count)])


def arrival_counts(mean: float, most: float, engines: int, others: bool = False) -> tuple[Array, Array]:
    """Numbers of arrivals in a time, from 0 to ``most``, and their chances, at one of so many ``engines``, to which random
    arrivals are distributed round robin. ``others``: beside an arrival in that time.

    An engine gets every e-th arrival, so that of m arrivals at all engines it gets floor((u + m) / e), with u from 0 to e - 1
    drawn evenly. Times with n arrivals are n times as likely around one of them.

    >>> [[round(float(chance), 3) for chance in arrival_counts(0.5, 2, engines)[1]] for engines in (1, 8)]
    [[0.6, 0.3, 0.1], [0.504, 0.492, 0.004]]
    """
    if engines == 1 or mean <= 0:
        return poisson(mean, most)
    counts, chances = poisson(engines * mean, math.inf)
    whole, rest = np.divmod(counts.astype(np.int64), engines)
    larger = chances * rest / engines
    each = np.asarray(np.bincount(whole, chances - larger, minlength=int(whole[-1]) + 2), dtype=np.float64)
    each[1:] += np.bincount(whole, larger, minlength=int(whole[-1]) + 1)
    if others:
        each = each[1:] * np.arange(1, len(each))
        mean, each = float(each @ np.arange(len(each))) / float(each.sum()), each / each.sum()
    return _cut(each, mean, most)


def later_arrivals(mean: float, engines: int) -> float:
    """Arrivals at one of so many ``engines`` in a time after an arrival there, over their ``mean`` in any such time.

    >>> [round(later_arrivals(mean, engines), 3) for mean, engines in ((0.5, 1), (0.5, 8), (20.0, 8))]
    [1.0, 0.102, 0.978]
    """
    if engines == 1 or mean <= 0:
        return 1.0
    counts, chances = poisson(engines * mean, math.inf)
    return float(counts // engines @ chances) / mean


def poisson(mean: float, most: float) -> tuple[Array, Array]:
    """Numbers from 0 to ``most``, which larger ones count as, and their chances, with the mean kept where that is possible.

    >>> [round(float(chance), 3) for chance in poisson(0.5, 2)[1]]
    [0.6, 0.3, 0.1]
    """
    longest = math.ceil(mean + POISSON_TAIL * math.sqrt(mean) + 3)
    top = longest if most == math.inf else min(math.ceil(most), longest)
    counts = np.arange(max(top, 0) + 1, dtype=np.float64)
    logs = counts * math.log(mean) if mean > 0 else np.where(counts == 0, 0.0, -np.inf)
    logs = logs - _log_factorials(2 ** len(counts).bit_length())[: len(counts)]
    chances = np.exp(logs - logs.max())
    return _cut(chances / chances.sum(), mean, most)


def _cut(chances: Array, mean: float, most: float) -> tuple[Array, Array]:
    """Numbers from 0 on, of which those above ``most`` count as that, and their ``chances``, with the ``mean`` kept where that is
    possible."""
    top = len(chances) if most == math.inf else min(len(chances), math.ceil(most) + 1)
    chances = np.append(chances[: top - 1], chances[top - 1 :].sum())
    counts = np.minimum(np.arange(top, dtype=np.float64), most)
    short = mean - float((counts * chances).sum())
    if short > 0 and len(counts) > 1:  # what lies beyond the largest number moves to it, out of all
        moved = min(short / (short + float(counts[-1]) - mean), 1.0)
        chances = chances * (1 - moved)
        chances[-1] += moved
    return counts, chances


def arrivals(step: StepModel, memory: ServingMemory, rate: float, lengths: Lengths, engines: int = 1) -> Steady | None:
    """The steady state of one engine that gets ``rate`` [1/s] requests; None where it cannot keep up. Requests arrive at random,
    and are distributed round robin to so many equal ``engines``.

    A request meets as many others as there are on average, as an arriving one does: it has the latency T of a closed loop of one
    user more than are in flight. With Little's law,

    .. math:: \\lambda T(n) = n - 1, \\quad w = \\frac{E[t^2]}{2 E[t]} \\approx \\rho \\frac{t}{2}

    Symbols: lambda [1/s] rate, n [1] users of the closed loop, w [s] wait for the end of the step under way, t [s] a mean step,
    rho [1] share of the time that there is one. Source: the arrival theorem (Sevcik and Mitrani, J. ACM 28, 1981), of which this
    is the open case.
    """

    def spare(users: float) -> float:
        """What users of a closed loop ask for beyond the rate, relative to it."""
        return engine_loop(step, memory, users, lengths, engines).rate * (users - 1) / users / rate - 1

    low, high, under, over = 1.0, 2.0, -1.0, spare(2.0)
    while over < 0:
        low, high, under, over = high, high * 2, over, spare(high * 2)
        if high > QUEUE_LIMIT * step.software.users:
            return None
    for _ in range(ROUNDS):  # the secant, with the weight of an end that stays halved (Illinois)
        middle = low + (high - low) * under / (under - over)
        found = spare(middle)
        if found < 0:
            low, under, over = middle, found, over / 2
        else:
            high, under, over = middle, under / 2, found
        if abs(found) < FIXED_POINT_TOLERANCE or high - low < FIXED_POINT_TOLERANCE * high:
            high = middle
            break
    state = engine_loop(step, memory, high, lengths, engines)
    busy = 1 - float(arrival_counts(high - 1, math.inf, engines, others=True)[1][0])
    inside = state.ttft + busy * state.step / 2 + max(lengths.output - 1, 0) * state.tpot
    alone, more = front_end(step, 0.0), front_end(step, 1.0) - front_end(step, 0.0)
    if rate * more >= 1:
        return None  # the front end cannot keep up: its time grows with the requests in flight
    users = rate * (inside + alone) / (1 - rate * more)
    ttft = state.ttft + busy * state.step / 2 + alone + more * users
    return replace(state, users=users, running=min(users, state.running), ttft=ttft, rate=rate, limit="arrivals")
