"""GEMM of a GPU library: tiles in waves, feed through the shared cache, traffic of the memory, split contraction, casts.

A tile of r x c results takes the longer of its products at a share of the matrix rate and its operands at a share of the cache's
bandwidth, per core. Tiles run in waves. Tiles are processed in bands of `band` rows of tiles; a band re-reads the columns'
operand, and a wave of a band the rows' operand, from memory where the cache does not keep them. The library takes the fastest
tile and, where it can split the contraction, the fastest split.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from halley.kernels.library.family import (
    HOST,
    LAUNCH,
    SLOWDOWN,
    Array,
    Features,
    FittedParameter,
    Formats,
    KernelFamily,
    Options,
    Sizes,
    as_measured,
    combined,
    missing,
    under_load,
)
from halley.kernels.library.formats import core_rate, number_format
from halley.kernels.machine import Machine

TILES = ((16, 64), (64, 64), (128, 128), (256, 128))
"""Rows and columns of tiles: skinny, small, and the two large ones of CUTLASS and cuBLAS. More tiles fit no better."""
SPLITS = (1, 2, 4, 8, 16)
"""Parts of the contraction, where the library splits it."""
STEP = 64
"""Terms of a sum between two synchronisations of a tile."""
RESULT_BYTES, PARTIAL_BYTES = 2, 4

PARAMETERS = (
    LAUNCH,
    FittedParameter("matrix", 0.8, 0.1, 1.2, 0.5),
    FittedParameter("memory", 0.8, 0.2, 1.0, 0.5),
    FittedParameter("feed", 0.6, 0.05, 4.0, 0.7),
    FittedParameter("latency", 8e-7, 1e-8, 1e-5, 1.0),
    FittedParameter("combine", 1e-6, 1e-8, 2e-5, 1.0),
    FittedParameter("step", 3e-8, 1e-9, 1e-6, 1.0),
    FittedParameter("small", 0.05, 1e-3, 1.0, 1.0),
    FittedParameter("overlap", 4.0, 1.2, 20.0, 0.7),
    FittedParameter("band", 8.0, 1.0, 1000.0, 1.5, "high"),
    FittedParameter("cast", 0.7, 0.1, 3.0, 1.0, "high"),
    FittedParameter("cast_row", 1e-7, 1e-9, 5e-6, 1.5, "low"),
    HOST,
    SLOWDOWN,
    FittedParameter("resident", 0.1, 0.01, 1.0, 1.0),
    FittedParameter("cache", 0.5, 0.1, 2.0, 0.5),
)
"""Shares: matrix rate, memory and cache bandwidth (per core: feed), of a cast; latency of a wave, combine of a split, step of
`STEP` terms [s]; loss of small tiles; band [tiles]; cast_row [s] of a row on a core; resident: share of the cache in which
weights stay between calls."""


def features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    """Arrays of shape [rows, tilings]."""
    known = number_format(formats.dtype)
    parts = [part for part in SPLITS if part <= options["split"]]
    table = np.array([(r, c, s) for r, c in TILES for s in parts], dtype=np.float64)
    tile_rows, tile_columns, split = table[:, 0], table[:, 1], table[:, 2]
    m, n, k = (sizes[name][:, None] for name in ("m", "n", "k"))
    row_tiles, column_tiles = np.ceil(m / tile_rows), np.ceil(n / tile_columns)
    depth = np.ceil(k / split / 32) * 32
    waves = np.ceil(row_tiles * column_tiles * split / chip.cores)
    tile_bytes = np.minimum(tile_rows, m) * known.activation + np.minimum(tile_columns, n) * known.weight
    return {
        "rows": m * k * known.activation / chip.memory,
        "columns": n * k * known.weight / chip.memory,
        "results": RESULT_BYTES * m * n / chip.memory,
        "moved": m * k * known.activation + n * k * known.weight + RESULT_BYTES * m * n,
        "bandwidth": chip.cache,
        "capacity": max(chip.capacity, 1.0) / chip.memory,
        "band_bytes": tile_rows * k * known.activation / chip.memory,
        "row_tiles": m / tile_rows,
        "columns_per_core": column_tiles / chip.cores,
        "waves": waves,
        "products": waves * tile_rows * tile_columns * depth / core_rate(chip, formats.dtype),
        "feed": waves * tile_bytes * depth / (chip.cache / chip.cores),
        "partials": 2 * PARTIAL_BYTES * m * n * split * (split > 1) / chip.cache,
        "split": (split > 1) * 1.0,
        "steps": waves * depth / STEP,
        "small": np.log(128 * 256 / (tile_rows * tile_columns)),
        "cast": sizes["m"] * sizes["k"] * (2 + known.activation) / chip.memory * known.cast,
        "cast_rows": sizes["m"] / chip.cores * known.cast,
    }


def time(parameters: Mapping[str, float], known: Features) -> Array:
    """Time [s] of shape [rows]."""
    p = parameters
    products = under_load(known["products"] / p["matrix"] * np.exp(p["small"] * known["small"]), p["slowdown"])
    core = np.maximum(np.maximum(products, known["feed"] / p["feed"]), known["steps"] * p["step"])
    core = core + known["waves"] * p["latency"] + known["split"] * p["combine"] + known["partials"]
    band, capacity = np.minimum(p["band"], known["row_tiles"]), float(known["capacity"])
    kept = p["resident"] * capacity
    rows_again = missing(band * known["band_bytes"], capacity) * np.maximum(band * known["columns_per_core"] - 1, 0)
    columns_again = missing(known["columns"], capacity) * np.maximum(known["row_tiles"] / band - 1, 0)
    # results of the kernel before: they stay in four times the share in which weights do
    rows = known["rows"] * (missing(known["rows"], 4 * kept) + rows_again)
    columns = known["columns"] * (missing(known["columns"], kept) + columns_again)
    traffic = (rows + columns + known["results"]) / p["memory"]
    near = known["moved"] / (p["cache"] * known["bandwidth"])
    body = combined(core, np.maximum(traffic, near), p["overlap"]).min(axis=1)
    return as_measured(body + known["cast"] / p["cast"] + known["cast_rows"] * p["cast_row"], p)


def demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    """Times [s] of products and traffic at the data sheet's rates."""
    known, (m, n, k) = number_format(formats.dtype), (sizes[name] for name in ("m", "n", "k"))
    moved = m * k * known.activation + n * k * known.weight + RESULT_BYTES * m * n
    return m * n * k / (core_rate(chip, formats.dtype) * chip.cores), moved / chip.memory


GEMM = KernelFamily("gemm", ("m", "n", "k"), {}, PARAMETERS, {"split": (16.0, 1.0)}, features, time, demand)
"""C[m, n] = A[m, k] B[k, n]: A activations, B weights."""
