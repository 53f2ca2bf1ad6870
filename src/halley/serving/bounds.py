"""Upper bounds of the throughput of a deployment, for any schedule of its requests.

Each holds whatever the order and the batching of requests: operations and bytes that every schedule has to spend, over the rates
that kernels reach at most. In one step at most as many sequences get a token as the cache has capacity for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from halley.serving.deployment import Deployment, ReachedRates
from halley.serving.model import ACTIVATION_BYTES, CACHE_BYTES, WEIGHT_BYTES, ServedModel, cached_tokens
from halley.serving.steady import Lengths
from halley.serving.step import distinct_experts
from halley.units import counted, format_bytes, format_time

MATRIX_RATE = "matrix rate"
"""The bound whose demand is operations; those of other resources are bytes."""


@dataclass(frozen=True, slots=True)
class ThroughputBound:
    """Most requests per second of a deployment by one resource; ``why`` in words. ``demand`` of a request [op or B] and
    ``capacity`` of all chips [op/s or B/s] for resources that have them; 0 for bounds by steps."""

    name: str
    rate: float
    why: str
    demand: float = 0.0
    capacity: float = 0.0


@dataclass(frozen=True, slots=True)
class StepBytes:
    """Least bytes that a step of n sequences reads on all chips of a replica: at least ``fixed`` + n ``each`` for n from 1 to
    ``most``, with equality for models without experts and at both ends with them."""

    fixed: float
    each: float
    most: float

    def of(self, sequences: float) -> float:
        """[B]"""
        return self.fixed + self.each * sequences


def throughput_bounds(
    deployment: Deployment,
    lengths: Lengths,
    users: float = math.inf,
    tpot: float = math.inf,
    rates: ReachedRates | None = None,
) -> tuple[ThroughputBound, ...]:
    """Bounds of requests per second, the least first. ``users``: most requests in flight; ``tpot`` [s]: most that the mean time
    of an output token may be; ``rates``: those of the deployment, where they are known.

    .. math::

        X \\le \\frac{m R}{F}, \\quad X \\le \\frac{r}{D} \\frac{n B}{A + n K}, \\quad
        n \\le \\frac{\\tau B (O - 1) / D - A}{K}, \\quad X \\le \\frac{m b}{N}

    Symbols: m [1] chips, r [1] replicas, R [op/s] and b [B/s] rates of one chip for products and of its port, B [B/s] of the
    memories of a replica; F [op], N [B] operations and bytes between chips of a request; O [1] output tokens, D [1] steps that
    decode those after the first, O - 1 without speculation; A + n K [B] what a step of n sequences reads at least (`StepBytes`);
    tau [s] limit of the TPOT.

    Why the third holds for any schedule: with n_s sequences in step s, the mean over sequences of the time of their steps is at
    most T = tau (O - 1) / D, so sum n_s (A + n_s K) <= T B sum n_s; as sum n_s^2 >= (sum n_s)^2 / S over S steps, the mean of n_s
    is at most (T B - A) / K, and the throughput sum n_s / sum t_s grows with that mean.
    """
    layout, shape = deployment.layout, deployment.model.shape
    rates, replicas = rates or deployment.rates, deployment.replicas
    chips = replicas * layout.chips
    more, steps = max(lengths.output - 1, 0.0), deployment.decode_steps(lengths)
    width = deployment.verified
    tokens = lengths.new + steps * width
    tpot *= more / steps if steps else 1.0  # of a step: with speculation it has several tokens of a sequence
    work = request_work(deployment.model, lengths, steps, deployment.tokens_of_step, width)
    operations, rate = 2 * work, chips * rates.macs / work
    found = [ThroughputBound(MATRIX_RATE, rate, f"{operations / 1e12:.3g} Top a request", operations, 2 * chips * rates.macs)]
    most = min(mean_sequences(deployment, lengths) * layout.dp * layout.pp, users / replicas)
    if steps and most > 0:
        read, bandwidth = step_bytes(deployment, lengths, max(most, 1.0)), layout.chips * rates.memory
        why = "memory bandwidth"
        if math.isfinite(tpot):
            allowed = (tpot * bandwidth - read.fixed) / read.each if read.each else math.inf
            if allowed < most:
                most, why = max(allowed, 0.0), "memory bandwidth under the limit of TPOT"
        if most < 1 and why != "memory bandwidth" and read.of(1.0) > tpot * bandwidth:
            found.append(ThroughputBound(why, 0.0, f"one sequence alone takes {format_time(read.of(1.0) / bandwidth)} a token"))
        else:
            each = read.of(most) / most
            rate = replicas * bandwidth / each / steps
            least = format_time(read.of(most) / bandwidth)
            text = f"{format_bytes(each)} a token with {counted(most, 'sequence')} a step of a replica, at least {least}"
            found.append(ThroughputBound(why, rate, text, each * steps, replicas * bandwidth))
    if layout.tp > 1:
        # what a chip has to send for the sums of two products of each layer, whoever adds them up
        sums = shape.layers + deployment.model.feed_forward_layers
        sent = tokens * sums * shape.model * ACTIVATION_BYTES * (layout.tp - 1) / layout.tp / layout.pp
        capacity = replicas * layout.dp * deployment.port
        found.append(
            ThroughputBound("network", capacity / sent, f"{format_bytes(sent)} a request out of each chip", sent, capacity)
        )
    return tuple(sorted(found, key=lambda item: item.rate))


@lru_cache(maxsize=64)
def least_cached_tokens(model: ServedModel, lengths: Lengths, each: float = 1.0) -> float:
    """Tokens that a layer keeps of a sequence that decodes, on average over its steps with ``each`` output tokens, at least: the
    mean of both ends of a function of the context that is concave."""
    ends = lengths.input + 1, lengths.input + max(lengths.output - each, 1.0)
    return sum(cached_tokens(model, end) for end in ends) / 2


def mean_sequences(deployment: Deployment, lengths: Lengths) -> float:
    """Sequences of a step of one engine at most, on average over all steps: their pages are no more than there are."""
    memory = deployment.engine_memory
    each = least_cached_tokens(deployment.model, lengths, deployment.tokens_of_step) / memory.page_tokens + memory.state_pages
    if memory.draft is not None:
        draft = least_cached_tokens(memory.draft.model, lengths, deployment.tokens_of_step)
        each += (draft / memory.page_tokens + memory.draft.state_pages) * memory.draft.page / memory.page
    return min(memory.capacity_pages / each, deployment.software.users)


@lru_cache(maxsize=64)
def request_work(model: ServedModel, lengths: Lengths, steps: float, each: float = 1.0, width: int = 1) -> float:
    """Multiply-accumulates of one request: its prompt, and ``steps`` that decode it, with ``each`` output tokens and ``width``
    computed ones. Attention of a step counts as that of one token, as it is timed; a draft and scans of recurrent layers do not
    count."""
    shape = model.shape
    tokens = lengths.new + steps * width
    decoding = lengths.input + 1, lengths.input + max(lengths.output - each, 1.0)
    seen = _least_seen(lengths.new, (lengths.prefix, lengths.input)) + _least_seen(steps, decoding)
    near = _least_seen(lengths.new, (lengths.prefix, lengths.input), model.window) + _least_seen(steps, decoding, model.window)
    scores = (model.attention_layers - model.windowed) * seen + model.windowed * near
    score = 2 * shape.head_dim if shape.latent is None else shape.head_dim + shape.latent.rope_dim + shape.latent.value_dim
    head = shape.vocabulary * shape.model
    return tokens * (model.active_parameters - head) + (steps * width + 1) * head + scores * shape.heads * score


def _least_seen(tokens: float, ends: tuple[float, float], window: float = math.inf) -> float:
    """Keys that so many tokens with contexts between two ends attend to, at least."""
    return tokens * sum(min(end, window) for end in ends) / 2


def prompt_bound(deployment: Deployment, lengths: Lengths, rates: ReachedRates | None = None) -> float:
    """Least time of a first token on one replica: the operations of its prompt at the rate of all its chips [s]. ``rates``: those
    of the deployment, where they are known."""
    head = deployment.model.shape.vocabulary * deployment.model.shape.model
    work = lengths.new * (deployment.model.active_parameters - head) + head
    return work / (deployment.layout.tp * deployment.layout.dp * (rates or deployment.rates).macs)


def step_bytes(deployment: Deployment, lengths: Lengths, most: float) -> StepBytes:
    """What a step reads at least, for up to ``most`` sequences of these lengths; with speculation the experts of all tokens that
    are verified, and the draft in a step for each proposed token."""
    tokens = deployment.tokens_of_step
    own = _model_bytes(deployment.model, lengths, most, tokens, deployment.verified)
    if deployment.speculation is None:
        return own
    draft, window = _model_bytes(deployment.speculation.draft, lengths, most, tokens), deployment.speculation.window
    return StepBytes(own.fixed + window * draft.fixed, own.each + window * draft.each, most)


def _model_bytes(model: ServedModel, lengths: Lengths, most: float, tokens: float, width: int = 1) -> StepBytes:
    """`step_bytes` of one model, whose steps have ``width`` tokens of a sequence."""
    shape = model.shape
    fixed, each = _plain_bytes(model, lengths, tokens)
    if shape.experts is not None:
        word = WEIGHT_BYTES[model.weights]
        # concave in the number of sequences: never below the chord between its ends
        experts = shape.experts.experts, shape.experts.top_k
        ends = [model.expert_layers * float(distinct_experts(n * width, *experts)) * model.expert_parameters for n in (1.0, most)]
        slope = (ends[1] - ends[0]) / (most - 1) if most > 1 else 0.0
        fixed, each = fixed + (ends[0] - slope) * word, each + slope * word
    return StepBytes(fixed, each, most)


@lru_cache(maxsize=64)
def _plain_bytes(model: ServedModel, lengths: Lengths, tokens: float) -> tuple[float, float]:
    """Of a step, and of each of its sequences, without routed experts."""
    shape = model.shape
    each = model.attention_layers * least_cached_tokens(model, lengths, tokens) * model.cache_width * CACHE_BYTES[model.cache]
    each += 2 * model.state_bytes_per_sequence  # read and written
    layers = float(model.mixer_parameters + model.dense_layers * model.feed_forward_parameters)
    if shape.experts is not None:
        layers += model.expert_layers * model.shared_parameters
    return float(shape.vocabulary * shape.model * ACTIVATION_BYTES) + layers * WEIGHT_BYTES[model.weights], each
