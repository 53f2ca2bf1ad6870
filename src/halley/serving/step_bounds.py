"""Upper bounds of the throughput of an engine from the times of its steps, for any schedule of its requests.

A schedule is a number of steps per second of each kind: n sequences of context c that get a token, q tokens of prompts. Whatever
the order and the batching, these numbers obey a linear programme of six rows. Its dual has a multiplier for each row, and any
multipliers of at least 0 give a bound: those of a coarse programme are used for a fine one.

Requests have the lengths that the deployment is asked for, and all attention ranks of a replica have equal batches.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from halley.serving.bounds import ThroughputBound, throughput_bounds
from halley.serving.deployment import Deployment
from halley.serving.steady import Lengths
from halley.serving.step import StepModel, decode_steps
from halley.serving.tables import Array, PiecewiseLinear, Surface
from halley.units import counted

ROUGH, FINE = 8, 32
"""Cells of numbers of tokens between a number and its double: a step of a cell counts with its last number and the time of its
first."""
ITERATIONS = 60
"""Exchanges of kinds of steps after which the multipliers are taken as they are."""
TIME_LIMIT_SLACK = 1e-6
"""Relative slack of a limit of time, so that a schedule just at the limit keeps it."""
RELATIVE_ROUNDING = 1e-13
"""Relative rounding of a sum of a few numbers."""
SLACK = 1e-7
"""By how much rows are relaxed, relative to a step's numbers, so that no exchange stands still."""


@dataclass(frozen=True, eq=False, slots=True)
class StepKinds:
    """Kinds of steps, an array element each: most sequences ``users``, at least ``least``, most ``prompt`` tokens, at least
    ``least_prompt``, ``context``; least ``time`` [s]. ``apart`` [s]: time of a request that is in none of them (attention and
    scans of its prompt)."""

    users: Array
    least: Array
    prompt: Array
    least_prompt: Array
    context: Array
    time: Array
    apart: float


LIMITS = np.array([[1.0, 1.0, 1.0, *limits] for limits in itertools.product((1.0, 0.0), repeat=2)])
"""Multipliers with and without those of the rows that limit times, which can be so large that only the others bound."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What one request asks of the steps: ``output`` steps that decode it, prompt tokens, contexts in these steps added up, and
    ``patience`` [s]: time of these steps, added up. ``first`` [s]: the most that the steps of its prompt take, added up."""

    output: float
    prompt: float
    context: float
    patience: float
    first: float = math.inf


def request_rows(
    lengths: Lengths,
    tpot: float = math.inf,
    ttft: float = math.inf,
    prompts: bool = True,
    decoding: bool = True,
    each: float = 1.0,
) -> Rows:
    """Of a request whose times to first token and per output token have the limits ``ttft`` and ``tpot`` [s] on average; without
    ``prompts`` or ``decoding`` where others do that. ``each``: output tokens of a sequence in a step."""
    tokens = max(lengths.output - 1, 0.0) if decoding else 0.0
    steps = decode_steps(tokens, each)
    context = steps * (lengths.input + 1 + each * (steps - 1) / 2)  # before the first token of each step, and that one
    patience = tokens * tpot * (1 + TIME_LIMIT_SLACK) if tokens else math.inf
    return Rows(steps, lengths.new if prompts else 0.0, context, patience, ttft * (1 + TIME_LIMIT_SLACK) if prompts else math.inf)


def rising(line: PiecewiseLinear) -> PiecewiseLinear:
    """The largest function that never falls and is nowhere above a line, at the line's own points.

    >>> rising(PiecewiseLinear(np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 5.0]))).values.tolist()
    [2.0, 2.0, 5.0]
    """
    return PiecewiseLinear(line.at, np.minimum.accumulate(line.values[::-1])[::-1])


def rising_rows(surface: Surface) -> Surface:
    """The same along the rows of a function of two numbers."""
    return Surface(surface.rows, surface.columns, np.minimum.accumulate(surface.values[::-1], axis=0)[::-1])


def step_kinds(step: StepModel, most: float, lengths: Lengths, fine: bool) -> StepKinds:
    """All kinds of steps of an engine with at most so many sequences a step, and requests of these lengths.

    Between two contexts of the table the time of a step is linear, so that no step between them is better than both."""
    per_octave = FINE if fine else ROUGH
    users, last = cells(most, per_octave)
    prompt, last_prompt = cells(float(step.software.budget), per_octave)
    ends = lengths.input + 1, lengths.input + max(lengths.output - 1, 1.0)
    inner = step.decode.columns[(step.decode.columns > ends[0]) & (step.decode.columns < ends[1])]
    context = np.unique(np.concatenate([ends, inner]))
    n, q, c = users[:, None, None], prompt[None, :, None], context[None, None, :]
    apart = prompt_attention(step, lengths)
    time = least_time(step, n, q, c, lengths, apart)
    if step.draft is not None:  # a step for each proposed token, of which the first has the prompts too
        drafted = prompt_attention(step.draft, lengths)
        more = np.where(n > 0, least_time(step.draft, n, np.zeros(1), c, lengths, drafted), 0.0)
        time = time + least_time(step.draft, n, q, c, lengths, drafted) + (step.width - 2) * more
        apart += drafted
    every = np.broadcast_arrays(last[:, None, None], n, last_prompt[None, :, None], q, c, time)
    some = (every[0] + every[2] > 0) & ((n > 0) | (c == context[0]))  # without sequences their context does not matter
    own = tuple(np.ascontiguousarray(np.asarray(each, dtype=np.float64)[some]) for each in every)
    return StepKinds(own[0], own[1], own[2], own[3], own[4], own[5], apart)


def least_time(step: StepModel, users: Array, prompt: Array, context: Array, lengths: Lengths, apart: float) -> Array:
    """Least time of steps of one model with at least so many ``users`` and ``prompt`` tokens [s], without that of attention of
    prompts: ``apart`` [s] of one."""
    verified, prompts = users * step.width, prompt / lengths.new
    tokens, started = verified + prompt, np.where(prompt > 0, np.maximum(prompts, 1.0), 0.0)
    chip = rising(PiecewiseLinear(step.tokens, step.stacked.values.sum(axis=0)))(tokens) + rising(step.head)(verified + started)
    if step.model.shape.latent is not None:
        chip = chip + rising(step.absorbed)(verified)
    if step.model.hybrid is not None:
        chip = chip + rising(step.update)(users * step.states_moved)
    launches = np.where(tokens > step.software.graphs, step.launches, 0.0)
    host = step.software.step + step.software.user * (users + started)
    # attention of prompts is apart, and may hide behind the launches of its step
    return host + np.maximum(chip + rising_rows(step.decode)(users, context), launches - apart * prompts)


def cells(most: float, per_octave: int) -> tuple[Array, Array]:
    """Whole numbers from 0 to ``most`` in cells: the first and the last of each.

    >>> [each.tolist() for each in cells(7, 2)]
    [[0.0, 1.0, 2.0, 4.0, 5.0], [0.0, 1.0, 3.0, 4.0, 7.0]]
    """
    largest = math.floor(most)
    points = np.unique(np.floor(np.exp2(np.arange(math.ceil(math.log2(max(largest, 2))) * per_octave + 1) / per_octave)))
    first = np.concatenate([[0.0], points[points <= largest]])
    return first, np.append(first[1:] - 1, float(largest))


def prompt_attention(step: StepModel, lengths: Lengths) -> float:
    """Least time of the attention and the scans of one prompt, in chunks of any sizes [s]."""
    expanded = step.expanded if step.model.shape.latent is not None else None
    return _prompt_attention(
        step.prefill, expanded, step.scan if step.model.hybrid is not None else None, step.software.budget, lengths
    )


@lru_cache(maxsize=1024)
def _prompt_attention(
    prefill: Surface, expanded: PiecewiseLinear | None, scan: PiecewiseLinear | None, budget: int, lengths: Lengths
) -> float:
    """The same from the tables of a step, which steps with other windows of speculation have in common.

    Chunks of q tokens that end at k keys have q (k - q / 2) pairs, and all chunks of a prompt together a number that the sizes do
    not change: the bound is that number times the least time of a pair. Keys and values are made from latents at least once.
    Scans of recurrent layers take at least their least time of a token for each."""
    new, prefix = lengths.new, lengths.prefix
    first, last = (each[1:] for each in cells(min(float(budget), new), FINE))
    ends, last_ends = (each[1:] for each in cells(prefix + new, FINE))
    values = np.minimum.accumulate(rising_rows(prefill).values[:, ::-1], axis=1)[:, ::-1]
    small, large, end, last_end = first[:, None], last[:, None], ends[None, :], last_ends[None, :]
    times = Surface(prefill.rows, prefill.columns, values)(small, np.maximum(end, small))
    pairs = large * (last_end - large / 2)
    possible = (last_end >= small) & (pairs > 0)
    found = float((times[possible] / pairs[possible]).min()) * new * (prefix + new / 2)
    if expanded is not None:
        found += float(rising(expanded)(lengths.input))
    if scan is not None:
        found += float((rising(scan)(first) / last).min()) * new
    return found


@dataclass(slots=True)
class StepProgramme:
    """The linear programme of one engine:

    .. math::

        \\max \\lambda: \\quad \\sum_s x_s t_s + \\lambda A \\le 1, \\quad \\sum_s x_s n_s \\ge \\lambda O, \\quad
        \\sum_s x_s q_s \\ge \\lambda P, \\quad \\sum_s x_s n_s c_s \\ge \\lambda C, \\quad
        \\sum_s x_s n_s t_s \\le \\lambda T, \\quad \\sum_s x_s q_s t_s \\le \\lambda P (F - A)

    The fifth row limits the mean over output tokens of the time of their steps. The last one limits the mean time to first token:
    it is at least the time of the steps in which the prompt has tokens, and in a step with q tokens at least q / P requests wait.
    With multipliers y of all rows but the first,

    .. math::

        \\lambda \\le \\frac{1}{A + D / \\mu}, \\quad D = y_O O + y_P P + y_C C - y_T T - y_F P (F - A), \\quad
        \\mu = \\max_s \\frac{n_s (y_O + y_C c_s - y_T t_s) + q_s (y_P - y_F t_s)}{t_s}

    Symbols: x_s [1/s] steps of kind s, n_s, q_s [1] its output and prompt tokens, c_s [1] mean context, t_s [s] time; lambda
    [1/s] requests, A [s] time of a request apart; O, P, C [1], T, F [s]: `Rows` of a request. Source: the dual of a linear
    programme.
    """

    kinds: StepKinds
    rows: Rows

    @property
    def request(self) -> Array:
        """What a request adds to the rows: time, output, prompt, context, time of its output tokens' and its prompt tokens' steps
        (negative where a row has to reach it; infinite limits as they are)."""
        rows, apart = self.rows, self.kinds.apart
        limits = rows.patience, rows.prompt * (rows.first - apart) if rows.prompt else math.inf
        return np.array([apart, rows.output, rows.prompt, rows.context, *(-limit for limit in limits)])

    def bound(self, multipliers: Array) -> float:
        """The bound of some multipliers [output, prompt, context, patience, first], all at least 0; infinite if they bound
        nothing."""
        kinds, request = self.kinds, self.request[1:]
        if request[-1] >= 0:
            return 0.0  # a prompt's attention alone takes too long
        prices = np.where(np.isfinite(request), np.maximum(multipliers, 0.0), 0.0)
        output, prompt, context, patience, first = prices.tolist()
        worth = (kinds.users * (output + context * kinds.context) + prompt * kinds.prompt) / kinds.time
        charge = patience * kinds.least + first * kinds.least_prompt
        most = float((worth - charge).max())
        terms = [float(price * item) for price, item in zip(prices, request, strict=True) if price]
        # differences of large numbers: on the safe side
        most += RELATIVE_ROUNDING * float((worth + charge).max())
        gain = math.fsum(terms) - RELATIVE_ROUNDING * math.fsum(map(abs, terms))
        if gain <= 0:
            return math.inf
        return 1 / (kinds.apart + gain / most) if most > 0 else 0.0

    def multipliers(self) -> Array:
        """Multipliers by the simplex method: those of its basis when no kind of step improves it."""
        kinds, request = self.kinds, self.request
        columns = np.stack(
            [
                kinds.time,
                -kinds.users,
                -kinds.prompt,
                -kinds.users * kinds.context,
                kinds.least * kinds.time,
                kinds.least_prompt * kinds.time,
            ]
        )
        unlimited = ~np.isfinite(request)
        columns[unlimited], request[unlimited] = 0.0, 0.0
        scale = np.maximum(np.abs(columns).max(axis=1), 1e-300)
        scale[0] = float(kinds.time.min())
        columns = columns / scale[:, None]
        request = request / scale
        request /= np.abs(request).max()
        count = len(request)
        basis, costs, unit = np.eye(count), np.zeros(count), np.eye(count)
        right = np.array([1.0, *(SLACK * (1 + place) for place in range(count - 1))])
        multipliers = np.zeros(count)
        for _ in range(ITERATIONS):
            inverse = np.linalg.inv(basis)
            multipliers = costs @ inverse
            reduced = -(multipliers @ columns)
            at = int(reduced.argmax())
            of_request = 1 - float(multipliers @ request)
            slack = -multipliers
            options = [(float(reduced[at]), 0.0, columns[:, at]), (of_request, 1.0, request)]
            options += [(float(slack[row]), 0.0, unit[row]) for row in range(count)]
            value, cost, entering = max(options, key=lambda option: option[0])
            if value <= 1e-9:
                break
            way, level = inverse @ entering, inverse @ right
            leaving = np.flatnonzero(way > 1e-12)
            if not len(leaving):
                break
            place = int(leaving[np.argmin(level[leaving] / way[leaving])])
            basis[:, place], costs[place] = entering, cost
        return np.asarray(multipliers[1:] / scale[1:])


def engine_bound(
    step: StepModel, most: float, lengths: Lengths, rows: Rows, enough: float = 0.0, known: dict[bool, StepKinds] | None = None
) -> float:
    """Most requests per second of one engine by any schedule, with at most so many sequences a step: the rough programme's bound
    where that is at most ``enough``, else that of the fine one. ``known``: kinds of steps that were made before."""
    known = {} if known is None else known

    def kinds(fine: bool) -> StepKinds:
        if fine not in known:
            known[fine] = step_kinds(step, most, lengths, fine)
        return known[fine] if rows.prompt else replace(known[fine], apart=0.0)  # prompts are others' then

    rough = StepProgramme(kinds(False), rows)
    each = rough.multipliers() * LIMITS
    found = min(map(rough.bound, each))
    if found <= enough:
        return found
    fine = StepProgramme(kinds(True), rows)
    return min(found, *map(fine.bound, each))


def step_bound(deployment: Deployment, lengths: Lengths, users: float = math.inf) -> ThroughputBound:
    """The bound of a deployment with at most so many ``users`` in flight, in equal parts on its engines."""
    most = max(min(most_sequences(deployment, lengths), math.ceil(min(users, 1e9) / deployment.engines)), 1.0)
    rows = request_rows(lengths, each=deployment.step.each)
    rate = deployment.engines * engine_bound(deployment.step, most, lengths, rows)
    return ThroughputBound("steps", rate, f"steps of at most {counted(most, 'sequence')} of an engine, in any order and batching")


def schedule_bounds(deployment: Deployment, lengths: Lengths, users: float = math.inf) -> tuple[ThroughputBound, ...]:
    """Upper bounds of the requests per second for any schedule, of single resources and of steps, the least first.

    ``users``: most requests in flight.
    """
    found = *throughput_bounds(deployment, lengths, users), step_bound(deployment, lengths, users)
    return tuple(sorted(found, key=lambda item: item.rate))


def most_sequences(deployment: Deployment, lengths: Lengths) -> float:
    """Sequences of a step of one engine at most: each has at least its whole prompt in the cache."""
    memory = deployment.engine_memory
    return float(min(memory.capacity_pages // max(memory.pages(lengths.input + 1), 1), deployment.software.users))
