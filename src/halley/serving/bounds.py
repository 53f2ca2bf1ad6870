"""Upper bounds of the throughput of a deployment, for any schedule of its requests.

Each holds whatever the order and the batching of requests: operations and bytes that every schedule has to spend, over the rates
that kernels reach at most. In one step at most as many sequences get a token as the cache has capacity for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from halley.serving.deployment import Deployment
from halley.serving.model import ACTIVATION_BYTES, CACHE_BYTES, WEIGHT_BYTES
from halley.serving.steady import Lengths
from halley.serving.step import distinct_experts


@dataclass(frozen=True, slots=True)
class ThroughputBound:
    """Most requests per second of a deployment by one resource; ``why`` in words."""

    name: str
    rate: float
    why: str


def throughput_bounds(deployment: Deployment, lengths: Lengths, users: float = math.inf) -> tuple[ThroughputBound, ...]:
    """Bounds of requests per second, the least first. ``users``: most requests in flight.

    .. math:: X \\le \\frac{m R}{F}, \\quad X \\le \\frac{m B}{(O - 1)(W(u) / u + \\bar K)}, \\quad X \\le \\frac{m b}{N}

    Symbols: m [1] chips, R [op/s], B, b [B/s] rates of one chip for products, of its memory, of its port; F [op], N [B] operations
    and bytes between chips of a request; O [1] output tokens, W(u) [B] weights that a step of u sequences reads, K [B] the cache
    of a request at its mean context.
    """
    model, layout, shape = deployment.model, deployment.layout, deployment.model.shape
    rates = deployment.rates
    chips = deployment.chips
    steps = max(lengths.output - 1, 0.0)
    tokens = lengths.new + steps
    seen = lengths.new * (lengths.prefix + lengths.new / 2) + steps * lengths.mean_context
    width = 2 * shape.head_dim if shape.latent is None else shape.head_dim + shape.latent.rope_dim + shape.latent.value_dim
    plain = (shape.layers - model.windowed) * seen
    near = model.windowed * min(seen, tokens * model.window)
    macs = tokens * (model.active_parameters - shape.vocabulary * shape.model) + (steps + 1) * shape.vocabulary * shape.model
    macs += (plain + near) * shape.heads * width
    found = [ThroughputBound("matrix rate", chips * rates.macs / macs, f"{2 * macs:.3g} operations a request")]
    most = min(deployment.capacity_users(lengths), users / deployment.engines)
    if steps and most > 0:
        context = lengths.mean_context
        kept = ((shape.layers - model.windowed) * context + model.windowed * min(context, model.window)) * model.cache_width
        cache = kept * CACHE_BYTES[model.cache]
        # all engines of a replica share the reading of weights only within one step
        together = most * layout.dp
        weights = _read_weights(deployment, together)
        each = steps * (weights / together + cache)
        why = f"weights for at most {together:.0f} sequences a step and the cache: {each / lengths.output:.3g} B a token"
        found.append(ThroughputBound("memory bandwidth", chips * rates.memory / each, why))
        if math.isfinite(users):
            step = (weights + together * cache) / (layout.chips * rates.memory)
            why = f"{users:.0f} requests in flight, a step of at least {step * 1e3:.2f} ms"
            found.append(ThroughputBound("requests in flight", users / (steps * step), why))
    if layout.tp > 1:
        sent = tokens * 2 * shape.layers * shape.model * ACTIVATION_BYTES * (layout.tp - 1) / layout.tp
        rate = deployment.engines / layout.pp * deployment.port / sent if sent else math.inf
        found.append(ThroughputBound("network", rate, f"{sent:.3g} B a request out of each chip"))
    return tuple(sorted(found, key=lambda item: item.rate))


def _read_weights(deployment: Deployment, sequences: float) -> float:
    """Weights that a step with so many sequences reads at least [B], over all chips of a replica."""
    model, shape = deployment.model, deployment.model.shape
    word = WEIGHT_BYTES[model.weights]
    layers = shape.layers * model.attention_parameters + model.dense_layers * model.feed_forward_parameters
    if shape.experts is not None:
        distinct = float(distinct_experts(max(sequences, 1.0), shape.experts.experts, shape.experts.top_k))
        layers += model.expert_layers * (model.shared_parameters + distinct * model.expert_parameters)
    return layers * word + shape.vocabulary * shape.model * ACTIVATION_BYTES
