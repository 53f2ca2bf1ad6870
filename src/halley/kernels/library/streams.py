"""Softmax, norms and elementwise functions: passes over rows, or streams, at a share of the memory bandwidth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

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
from halley.kernels.library.formats import number_format
from halley.kernels.machine import Machine

PARAMETERS = (
    LAUNCH,
    FittedParameter("memory", 0.8, 0.05, 1.0, 0.5),
    FittedParameter("core", 0.5, 0.02, 10.0, 1.0),
    FittedParameter("row", 1e-8, 1e-10, 1e-5, 2.0, "low"),
    HOST,
)
"""Shares of the memory bandwidth, and of the cache's bandwidth per core for the rows of one core; row [s] of a row on a core."""


def features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    """Arrays of shape [rows]."""
    rows, size = sizes["rows"], 2 * sizes["columns"] * number_format(formats.dtype).activation
    on_core = np.ceil(rows / chip.cores)
    return {
        "traffic": rows * size / chip.memory,
        "core": on_core * size / (chip.cache / chip.cores),
        "rows": on_core,
    }


def time(parameters: Mapping[str, float], known: Features) -> Array:
    """Time [s] of shape [rows]."""
    p = parameters
    cores = known["core"] / p["core"] + known["rows"] * p["row"]
    return as_measured(np.maximum(known["traffic"] / p["memory"], cores), p)


def demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    """Times [s] of products (none) and traffic: each value in and out."""
    moved = 2 * sizes["rows"] * sizes["columns"] * number_format(formats.dtype).activation
    return 0 * moved, moved / chip.memory


def _stream(name: str) -> KernelFamily:
    return KernelFamily(name, ("rows", "columns"), {}, PARAMETERS, {}, features, time, demand)


SOFTMAX, LAYER_NORM, GELU = _stream("softmax"), _stream("layernorm"), _stream("gelu")
"""Functions of ``rows`` rows of ``columns`` values."""
