"""Attention of many queries: prefill, encoders, and prefill of latent attention (MLA).

A tile is some rows of queries of one head (or of all heads that share keys). It processes the keys that its mask shows:
products on the matrix engine beside exponentials on the special functions. Tiles are spread over the cores; the longest tile
bounds the time from below, an uneven last wave adds part of a tile. Keys that the cache does not keep are read again by every
row of tiles."""

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
    Mask,
    Options,
    Sizes,
    as_measured,
    combined,
    missing,
    under_load,
)
from halley.kernels.library.formats import core_rate, number_format
from halley.kernels.machine import Machine

MLA_KEY, MLA_VALUE = 192.0, 128.0
"""Dims of a head of keys (128 and 64 of positions) and of values in latent attention, DeepSeek-V2."""
OVERLAP_WITH_MEMORY = 3.0
"""Sharpness with which work of the cores and traffic overlap."""
UNLIMITED_WINDOW = 1e12
"""A window of all keys."""

PARAMETERS = (
    LAUNCH,
    FittedParameter("matrix", 0.65, 0.03, 1.1, 0.5),
    FittedParameter("vector", 0.8, 0.05, 4.0, 0.6),
    FittedParameter("memory", 0.7, 0.1, 1.0, 0.5),
    FittedParameter("latency", 2e-6, 1e-8, 5e-5, 1.5),
    FittedParameter("overlap", 2.0, 1.0, 12.0, 0.5),
    HOST,
    FittedParameter("wide", 0.1, 1e-3, 2.0, 1.5, "low"),
    SLOWDOWN,
    FittedParameter("tail", 0.5, 0.01, 1.5, 0.7),
    FittedParameter("row", 1e-8, 1e-11, 1e-6, 2.0, "low"),
    FittedParameter("again", 0.05, 1e-3, 1.0, 1.5, "low"),
    FittedParameter("uneven", 0.3, 1e-2, 8.0, 1.5, "low"),
    FittedParameter("resident", 0.2, 0.01, 2.0, 1.0, "low"),
    FittedParameter("unit", 0.7, 0.02, 1.5, 1.0, "high"),
)
"""Shares of the matrix rate, of the exponentials and of the memory bandwidth; latency of a tile [s]; wide: loss of heads of more
than 128 dims; uneven: loss of heads whose dims are no multiple of 16; tail: part of a tile by which an uneven last wave is
longer; row [s] of a query of a head on a core, for stores and conversions; again: share of keys that are read again;
resident: share of the cache in which queries, keys and results stay between calls; unit: part of the latency that each further
tile of a core adds."""
OPTIONS = {"skips_window": (1.0, 0.0, 0.7), "rows": (128.0, 64.0), "packs_heads": (0.0, 1.0, 2.0)}
"""skips_window: share of the work on keys outside the window that a kernel skips (0.7: it loads them and skips their products).
Rows of a tile. packs_heads: whether queries of heads that share keys share tiles (2: `SINGLE_QUERIES`)."""
SINGLE_QUERIES = 2
"""Heads are packed where every sequence has one query, as FlashAttention does."""
DECODE_SINGLE_QUERIES = ("vllm", "sglang")
"""Frameworks that run prompts of one token with their kernel for decoding."""


def _features(
    sizes: Sizes, dims: tuple[Array, Array], formats: Formats, chip: Machine, options: Options, causal: bool
) -> Features:
    batch, queries, cached, heads, groups = (sizes[name] for name in ("batch", "queries", "cached", "heads", "kv_heads"))
    key_dim, value_dim = dims
    keys = queries + cached
    packs = queries == 1 if options["packs_heads"] == SINGLE_QUERIES else np.full(keys.shape, bool(options["packs_heads"]))
    sharing: Array = np.where(packs, heads / groups, 1.0)
    tile_rows, tile_queries = options["rows"], np.maximum(options["rows"] / sharing, 1.0)
    row_tiles = np.ceil(queries * sharing / tile_rows)
    mean, longest = _worked(sizes, options["skips_window"], row_tiles, tile_queries) if causal else (keys, keys)
    rows = queries * sharing
    filled = np.where(rows < tile_rows, np.where(rows < 16, 16, np.where(rows < 64, 64, tile_rows)), tile_rows)
    tiles = batch * heads / sharing * row_tiles / chip.cores
    products = filled * (key_dim + value_dim) / core_rate(chip, formats.dtype)
    exponentials = filled / (chip.lanes * chip.rates["exp"] / chip.cores)
    word, kept = number_format(formats.dtype).activation, number_format(formats.cache or formats.dtype).activation
    stored = batch * groups * keys * (key_dim + value_dim) * kept
    new = batch * queries * (heads * (key_dim * word + 2 * value_dim) + groups * (key_dim + value_dim) * (2 + kept))
    seen_again = np.maximum(row_tiles * mean / np.maximum(keys, 1) - 1, 0) * (heads / groups / sharing)
    return {
        "products": np.maximum(tiles, 1) * mean * products,
        "exponentials": np.maximum(tiles, 1) * mean * exponentials,
        "longest_products": longest * products,
        "longest_exponentials": longest * exponentials,
        "last_wave": np.ceil(tiles) - np.maximum(tiles, 1),
        "tile_products": mean * products,
        "tile_exponentials": mean * exponentials,
        "waves": np.ceil(tiles),
        "capacity": max(chip.capacity, 1.0) / chip.memory,
        "traffic": (new + stored) / chip.memory,
        "traffic_again": stored * missing(stored, max(chip.capacity, 1.0)) * seen_again / chip.memory,
        "wide": np.log(np.maximum(key_dim / 128, 1.0)),
        "uneven": np.asarray((np.mod(sizes.get("head_dim", key_dim), 16) > 0) * 1.0, dtype=np.float64),
        "rows": batch * queries * (heads + 2 * groups) / chip.cores,
    }


def _worked(sizes: Sizes, skipped: float, row_tiles: Array, tile_queries: Array) -> tuple[Array, Array]:
    """`_seen` keys, with those outside the window for the part of the work that is not ``skipped``."""
    queries, window = sizes["queries"], _window(sizes)
    keys = queries + sizes["cached"]
    inside = _seen(queries, keys, window, row_tiles, tile_queries)
    if skipped == 1:
        return inside
    every = _seen(queries, keys, np.full_like(keys, UNLIMITED_WINDOW), row_tiles, tile_queries)
    return every[0] - skipped * (every[0] - inside[0]), every[1] - skipped * (every[1] - inside[1])


def _window(sizes: Sizes) -> Array:
    return np.asarray(np.where(sizes["window"] > 0, sizes["window"], UNLIMITED_WINDOW), dtype=np.float64)


def _seen(queries: Array, keys: Array, window: Array, row_tiles: Array, tile_queries: Array) -> tuple[Array, Array]:
    """Keys that a tile processes, on average and at most: those up to its last query, as far as the window reaches."""
    reach, first = window + tile_queries, keys - queries + np.minimum(queries, tile_queries)

    def total(last: Array) -> Array:
        return np.where(last < reach, last**2 / 2, reach**2 / 2 + (last - reach) * reach)

    longest = np.minimum(keys, reach)
    mean = (total(keys) - total(first)) / np.maximum(keys - first, 1e-9)
    return np.where(row_tiles > 1, np.minimum(mean, longest), longest), longest


def time(parameters: Mapping[str, float], known: Features) -> Array:
    """Time [s] of shape [rows]."""
    p = parameters
    matrix: Array = p["matrix"] * np.exp(-p["wide"] * known["wide"] - p["uneven"] * known["uneven"])

    def both(products: str, exponentials: str) -> Array:
        return combined(np.asarray(known[products]) / matrix, np.asarray(known[exponentials]) / p["vector"], p["overlap"])

    even, tile = both("products", "exponentials"), both("tile_products", "tile_exponentials")
    cores = np.maximum(even + p["tail"] * known["last_wave"] * tile, both("longest_products", "longest_exponentials"))
    cores = under_load(cores, p["slowdown"]) + p["latency"] * (1 + p["unit"] * (np.asarray(known["waves"]) - 1))
    first = np.asarray(known["traffic"])
    first = first * missing(first, p["resident"] * float(known["capacity"]))
    traffic = np.asarray((first + p["again"] * known["traffic_again"]) / p["memory"], dtype=np.float64)
    return as_measured(combined(cores, traffic, OVERLAP_WITH_MEMORY) + known["rows"] * p["row"], p)


def _demand(sizes: Sizes, dims: tuple[Array, Array], formats: Formats, chip: Machine, causal: bool) -> tuple[Array, Array]:
    batch, queries, cached, heads, groups = (sizes[name] for name in ("batch", "queries", "cached", "heads", "kv_heads"))
    width = dims[0] + dims[1]
    # keys that a query sees, on average: those before it and itself, within the window
    reach, last = _window(sizes), queries + cached

    def seen(position: Array) -> Array:
        inside = np.minimum(position, reach)
        return np.asarray(inside * (inside + 1) / 2 + np.maximum(position - reach, 0) * reach, dtype=np.float64)

    pairs = seen(last) - seen(cached) if causal else queries * last
    needed = np.minimum(last, queries + reach) if causal else last
    word, kept = number_format(formats.dtype).activation, number_format(formats.cache or formats.dtype).activation
    moved = batch * queries * heads * (dims[0] * word + 2 * dims[1]) + batch * groups * needed * width * kept
    return batch * heads * pairs * width / (core_rate(chip, formats.dtype) * chip.cores), moved / chip.memory


def _prefill_features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    return _features(sizes, (sizes["head_dim"],) * 2, formats, chip, options, causal=True)


def _prefill_demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    return _demand(sizes, (sizes["head_dim"],) * 2, formats, chip, causal=True)


def _single_queries(sizes: Sizes, framework: str) -> Mask:
    """vLLM and SGLang decode single queries; the kernels of TensorRT-LLM for prompts process them too."""
    return np.asarray((sizes["queries"] == 1) & (framework in DECODE_SINGLE_QUERIES))


def _encoder_sizes(sizes: Sizes) -> Sizes:
    return {**sizes, "kv_heads": sizes["heads"], "cached": 0 * sizes["heads"], "window": 0 * sizes["heads"]}


def _encoder_features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    dim, to = sizes["head_dim"], options["pads_head_to"]
    padded = np.where(dim <= 64, 64.0, np.maximum(dim, 128.0)) if to == 128 else np.ceil(dim / to) * to
    return _features(_encoder_sizes(sizes), (padded,) * 2, formats, chip, {"skips_window": 1.0, **options}, causal=False)


def _encoder_demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    return _demand(_encoder_sizes(sizes), (sizes["head_dim"],) * 2, formats, chip, causal=False)


def _latent(sizes: Sizes) -> tuple[Sizes, tuple[Array, Array]]:
    ones = np.ones_like(sizes["heads"])
    return {**sizes, "kv_heads": sizes["heads"], "window": 0 * ones}, (MLA_KEY * ones, MLA_VALUE * ones)


def _mla_features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    known, dims = _latent(sizes)
    return _features(known, dims, formats, chip, {"skips_window": 1.0, "packs_heads": 0.0, **options}, causal=True)


def _mla_demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    known, dims = _latent(sizes)
    return _demand(known, dims, formats, chip, causal=True)


PREFILL = KernelFamily(
    "attention_prefill",
    ("batch", "queries", "cached", "heads", "kv_heads", "head_dim", "window"),
    {"cached": 0.0, "window": 0.0},
    PARAMETERS,
    OPTIONS,
    _prefill_features,
    time,
    _prefill_demand,
    decodes=_single_queries,
)
"""Causal attention of ``queries`` new tokens a sequence after ``cached`` ones; ``window`` keys at most (0: all)."""

ENCODER = KernelFamily(
    "attention_encoder",
    ("batch", "queries", "heads", "head_dim"),
    {},
    PARAMETERS,
    {"rows": (128.0, 64.0), "packs_heads": (0.0,), "pads_head_to": (16.0, 1.0, 32.0, 128.0)},
    _encoder_features,
    time,
    _encoder_demand,
)
"""Attention of all tokens to all, as in vision encoders."""

MLA_PREFILL = KernelFamily(
    "mla_prefill",
    ("batch", "queries", "cached", "heads"),
    {"cached": 0.0},
    PARAMETERS,
    {"rows": (128.0, 64.0)},
    _mla_features,
    time,
    _mla_demand,
)
"""Latent attention (MLA) of ``queries`` new tokens, with keys and values expanded to heads."""
