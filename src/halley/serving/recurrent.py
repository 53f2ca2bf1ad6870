"""Recurrent layers in a step: the update of states for sequences that decode, the scan of prompts in chunks.

Where chunks are multiplied (Mamba-2, gated delta rule), each product is that of the workload `halley.workloads.mamba.mamba_2`
with the variant ``chunked``; the heads of a group read the same operand and are columns of one product.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np

from halley.formulas.numbers import Number
from halley.formulas.recurrence import sequence_state
from halley.ir.workload import FUNCTIONS, MONOIDS
from halley.serving.kernels import StepKernels
from halley.serving.model import ACTIVATION_BYTES, STATE_BYTES, ServedModel
from halley.serving.tables import Array
from halley.workloads.transformer import Hybrid

CHUNK_STATE_BYTES = 4
"""States between chunks are fp32, as in the published kernels (github.com/state-spaces/mamba, ssd_chunk_state)."""
RECURRENT_KERNELS = {"mamba": 10, "mamba-2": 6, "gated-delta": 8}
"""Kernels of a recurrent layer that decodes: norm, projection, convolution, update of the state, gated norm, output projection.
Mamba has two projections and three norms of the selection (Jamba) in place of the gated norm, the delta rule a projection and a
kernel of its rates more. The few more of a scan are not counted."""
SCAN_STEPS = (FUNCTIONS["exp_product"], FUNCTIONS["product"], MONOIDS["linear"], FUNCTIONS["mul"], MONOIDS["sum"])
"""Of each element of state and token of a Mamba layer: its decay, what is added, the recurrence, and the product and sum by which
it is read (as in `halley.workloads.mamba.mamba`)."""


def groups_per_rank(own: Hybrid, tp: int) -> float:
    """Groups of a rank; where there are fewer than ranks, some have copies.

    >>> [groups_per_rank(Hybrid("mamba-2", 2, 16, 64, 128, 2, 4, 256, 2), tp) for tp in (1, 4)]
    [2.0, 1.0]
    """
    return max(own.groups / tp, 1.0)


def channels_per_rank(own: Hybrid, tp: int) -> float:
    """Channels of the convolution of a rank."""
    shared = 0.0 if own.kind == "mamba" else 2 * groups_per_rank(own, tp) * own.state
    return own.inner / tp + shared


def entry_per_rank(own: Hybrid, tp: int) -> float:
    """Columns of the projection into a layer on one rank."""
    return channels_per_rank(own, tp) + (own.entry - own.channels) / tp


def state_bytes_per_rank(model: ServedModel, tp: int) -> float:
    """Bytes that a rank keeps of a sequence for one recurrent layer; 0 of a model without any."""
    own = model.hybrid
    if own is None:
        return 0.0
    word, channels = STATE_BYTES[model.state], channels_per_rank(own, tp)
    return float(sequence_state(own.heads / tp, own.head_dim, own.state, word, channels, own.taps - 1, ACTIVATION_BYTES))


def moved_states(kernels: StepKernels, model: ServedModel, tp: int, states: Number) -> Array:
    """Time [s] in which one layer moves so many states of sequences, read or written. A sequence that decodes has one read and
    one written; with w tokens to verify w are written, so that it can go on behind any of them."""
    moved = np.asarray(states, dtype=np.float64) * state_bytes_per_rank(model, tp) / 2
    return kernels.stream(moved, moved)


def projections(kernels: StepKernels, model: ServedModel, tp: int, tokens: Array) -> Array:
    """Time [s] of the products of one layer with its weights."""
    own, shape, dtype = model.hybrid, model.shape, model.weights
    assert own is not None  # asked for only then
    inner = own.inner / tp
    found = kernels.product(tokens, entry_per_rank(own, tp), shape.model, 1, dtype)
    if own.kind == "mamba":
        found = found + kernels.product(tokens, own.rank + 2 * own.state, inner, 1, dtype)
        found = found + kernels.product(tokens, inner, own.rank, 1, dtype)
    return found + kernels.product(tokens, shape.model, inner, 1, dtype)


def elementwise(kernels: StepKernels, model: ServedModel, tp: int, tokens: Array) -> Array:
    """Time [s] of the convolution of one layer, and of the gate and norm of its output, without the norm of its input."""
    own = model.hybrid
    assert own is not None  # asked for only then
    channels = tokens * channels_per_rank(own, tp) * ACTIVATION_BYTES
    values = tokens * (own.inner / tp) * ACTIVATION_BYTES
    return kernels.stream(channels, channels) + kernels.stream(2 * values, values)


def scan(kernels: StepKernels, model: ServedModel, tp: int, prompts: Number, tokens: Number) -> Array:
    """Time [s] of the scan of one layer over ``prompts`` of ``tokens`` each, from the state before them to the one behind."""
    own = model.hybrid
    assert own is not None  # asked for only then
    ends = kernels.stream(prompts * state_bytes_per_rank(model, tp), prompts * state_bytes_per_rank(model, tp))
    match own.kind:
        case "mamba":
            return ends + _selective_scan(kernels, own, tp, prompts * np.asarray(tokens, dtype=np.float64))
        case "mamba-2" | "gated-delta":
            return ends + _chunked_scan(kernels, own, tp, np.asarray(prompts, dtype=np.float64), tokens)
        case _:
            assert_never(own.kind)


def _selective_scan(kernels: StepKernels, own: Hybrid, tp: int, tokens: Array) -> Array:
    """One pass over the channels, whose states stay in registers: values, steps and gate in, results out."""
    values = tokens * (own.inner / tp) * ACTIVATION_BYTES
    work: dict[str, float] = {}
    for step in SCAN_STEPS:
        for name, count in step.work.items():
            work[name] = work.get(name, 0.0) + count * own.state
    return kernels.stream(3 * values, values, values / ACTIVATION_BYTES, work)


def _chunked_scan(kernels: StepKernels, own: Hybrid, tp: int, prompts: Array, tokens: Number) -> Array:
    """Products inside the chunks, and states between them: each is written, read and written by the pass over the chunks, and
    read again. The products are counted whole, without what a mask leaves out.

    The delta rule also multiplies the keys of a chunk with each other and solves a triangular system for each head, of l^3 / 3
    multiply-accumulates (Yang et al., arXiv 2406.06484, section 3; arXiv 2412.06464, section 3.3)."""
    length = np.minimum(np.asarray(tokens, dtype=np.float64), own.chunk)
    chunks = prompts * np.ceil(np.asarray(tokens, dtype=np.float64) / own.chunk)
    heads, groups = own.heads / tp, groups_per_rank(own, tp)
    wide, of_groups = own.inner / tp / groups, chunks * groups
    found = kernels.product(length, length, own.state, of_groups)  # scores
    found = found + kernels.product(length, wide, length, of_groups)  # values by scores
    found = found + kernels.product(own.state, wide, length, of_groups)  # the state of the chunk alone
    found = found + kernels.product(length, wide, own.state, of_groups)  # what the state before it adds
    if own.kind == "gated-delta":
        of_heads = chunks * heads
        found = found + kernels.product(length, length, own.state, of_groups)
        found = found + kernels.product(length, length, length / 3, of_heads)
        found = found + kernels.product(length, own.state, length, of_heads)
        found = found + kernels.product(length, own.head_dim, length, of_heads)
        found = found + kernels.product(length, own.head_dim, own.state, of_heads)
    states = 2 * chunks * (own.inner / tp) * own.state * CHUNK_STATE_BYTES
    return found + kernels.stream(states, states)
