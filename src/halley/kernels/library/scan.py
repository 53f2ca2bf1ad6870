"""The causal convolution before a state-space layer (Mamba-2): a stream of tokens, with a state for each sequence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from halley.kernels.library.family import (
    HOST,
    LAUNCH,
    Array,
    Features,
    FittedParameter,
    Formats,
    KernelFamily,
    Options,
    Sizes,
    as_measured,
)
from halley.kernels.machine import Machine

TAPS = 4.0
"""Tokens of a window."""

PARAMETERS = (
    LAUNCH,
    FittedParameter("memory", 0.6, 0.02, 1.0, 0.6),
    FittedParameter("channel", 1e-8, 1e-12, 1e-6, 3.0, "low"),
    FittedParameter("token", 1e-9, 1e-13, 1e-6, 3.0, "low"),
    HOST,
)
"""Share of the memory bandwidth; channel [s]: of a channel of a sequence on a core; token [s]: of the tokens of one sequence."""


def _channels(sizes: Sizes) -> Array:
    return sizes["heads"] * sizes["head_dim"] + 2 * sizes["groups"] * sizes["state"]


def features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    """Arrays of shape [rows]."""
    return {
        "traffic": demand(sizes, formats, chip)[1],
        "channels": sizes["batch"] * _channels(sizes) / chip.cores,
        "tokens": sizes["queries"] * np.ceil(sizes["batch"] * _channels(sizes) / 128 / chip.cores),
    }


def time(parameters: Mapping[str, float], known: Features) -> Array:
    """Time [s] of shape [rows]."""
    p = parameters
    return as_measured(known["traffic"] / p["memory"] + known["channels"] * p["channel"] + known["tokens"] * p["token"], p)


def demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    """Times [s] of products (none) and traffic: tokens in and out; for one token a sequence, its window in and out."""
    values = np.where(sizes["queries"] > 1, 2 * sizes["queries"], 2 * TAPS)
    moved = 2 * sizes["batch"] * _channels(sizes) * values
    return 0 * moved, moved / chip.memory


def _variant(sizes: Sizes, framework: str) -> NDArray[np.str_]:
    return np.where(sizes["queries"] > 1, "prefill", "decode")


CONVOLUTION = KernelFamily(
    "mamba2",
    ("batch", "queries", "heads", "head_dim", "groups", "state"),
    {"head_dim": 64.0},
    PARAMETERS,
    {},
    features,
    time,
    demand,
    _variant,
)
"""Causal convolution of 4 taps of a Mamba-2 layer: ``queries`` tokens a sequence (1: decode), channels of ``heads`` x
``head_dim`` values and twice ``groups`` x ``state``. The scan itself is in no measured table."""
