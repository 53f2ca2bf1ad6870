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


def time(parameters: Mapping[str, float], known: Features) -> Array:
    """Time [s] of shape [rows]."""
    p = parameters
    cores = known["core"] / p["core"] + known["rows"] * p["row"]
    return as_measured(np.maximum(known["traffic"] / p["memory"], cores), p)


def _stream(name: str, tensors: int = 2) -> KernelFamily:
    """A function that moves so many tensors."""

    def size(sizes: Sizes, formats: Formats) -> Array:
        """Bytes [B] of a row."""
        return np.asarray(tensors * sizes["columns"] * number_format(formats.dtype).activation)

    def features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
        on_core, row = np.ceil(sizes["rows"] / chip.cores), size(sizes, formats)
        return {
            "traffic": sizes["rows"] * row / chip.memory,
            "core": on_core * row / (chip.cache / chip.cores),
            "rows": on_core,
        }

    def demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
        """Times [s] of products (none) and traffic: each value in and out."""
        moved = sizes["rows"] * size(sizes, formats)
        return 0 * moved, moved / chip.memory

    return KernelFamily(name, ("rows", "columns"), {}, PARAMETERS, {}, features, time, demand)


SOFTMAX, LAYER_NORM, RMS_NORM = _stream("softmax"), _stream("layernorm"), _stream("rmsnorm")
GELU, SILU, COPY, ADD = _stream("gelu"), _stream("silu"), _stream("copy"), _stream("add", 3)
"""Functions of ``rows`` rows of ``columns`` values; add: of two such arrays."""
