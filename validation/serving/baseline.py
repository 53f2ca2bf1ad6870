"""A roofline with five fitted numbers, beside which Halley is judged.

.. math:: t = a + L l + \\max(\\frac{D}{m B}, \\frac{F}{c R}) + 2 L k [p > 1]

Symbols: a, l, k [s] of a step, a layer, a collective; m, c [1] shares of the memory's bandwidth B [B/s] and the matrix rate R
[op/s] of p chips; D [B], F [op] of a step: weights once, the cache once, all products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from validation.serving.rows import Measured

from halley.serving.kernels import NVFP4_SHARE, serving_machine
from halley.serving.model import CACHE_BYTES, WEIGHT_BYTES
from halley.serving.step import distinct_experts

Array = NDArray[np.float64]

START = np.array([1e-3, 5e-5, 0.8, 0.6, 1e-5])
LOW, HIGH = np.array([0.0, 0.0, 0.3, 0.1, 0.0]), np.array([0.05, 1e-3, 1.0, 1.0, 1e-3])


def _demands(row: Measured) -> tuple[Array, Array, Array, float, float]:
    """(weight of each step kind, bytes, operations) of the steps of a row, bandwidth and rate of its chips."""
    model, shape, lengths = row.model, row.model.shape, row.lengths
    machine = serving_machine(row.system)
    dtype = model.compute
    rate = machine.macs["fp8"] / NVFP4_SHARE if dtype == "nvfp4" else machine.macs[dtype]
    chips = row.layout.tp * row.layout.dp
    users = max(row.batch / row.layout.pp, 1.0)
    context = lengths.mean_context

    def bytes_of(tokens: float) -> float:
        layers = shape.layers * model.attention_parameters + model.dense_layers * model.feed_forward_parameters
        if shape.experts:
            distinct = float(distinct_experts(tokens, shape.experts.experts, shape.experts.top_k))
            layers += model.expert_layers * (model.shared_parameters + distinct * model.expert_parameters)
        return layers * WEIGHT_BYTES[model.weights] + shape.vocabulary * shape.model * 2

    cache = users * context * shape.layers * model.cache_width * CACHE_BYTES[model.cache]
    decode = bytes_of(users) + cache, users * model.active_parameters
    prompt_tokens = users * lengths.input
    prompts = bytes_of(prompt_tokens), prompt_tokens * model.active_parameters
    return (
        np.array([lengths.output - 1, 1.0]),
        np.array([decode[0], prompts[0]]),
        np.array([decode[1], prompts[1]], dtype=np.float64),
        chips * machine.memory,
        chips * rate,
    )


def roofline(row: Measured, values: Array) -> float:
    """Time of a static batch, or the TPOT of a closed loop [s]."""
    counts, moved, macs, bandwidth, rate = _demands(row)
    a, layer, memory, matrix, collective = values
    fixed = a + row.model.shape.layers * (layer + 2 * collective * (row.layout.tp > 1))
    steps = fixed + np.maximum(moved / (memory * bandwidth), macs / (matrix * rate))
    if row.mode == "static":
        return float((counts * steps).sum())
    return float(steps[0] + steps[1] / max(counts[0], 1))


def target(row: Measured) -> float:
    """What was measured of it [s]."""
    found = row.latency if row.mode == "static" else row.tpot
    assert found is not None  # rows without are left out
    return found


def fitted(rows: Sequence[Measured]) -> Array:
    """The five numbers that fit the rows best, by the logarithm of the ratio."""

    def errors(values: Array) -> Array:
        return np.array([np.log(roofline(row, values) / target(row)) for row in rows])

    found = least_squares(errors, START, bounds=(LOW, HIGH), loss="soft_l1", f_scale=0.1, x_scale=START, max_nfev=60)
    return np.asarray(found.x)
