"""Attention of one query a sequence (decode), with keys and values in a cache; and with latent ones (MLA).

A unit is one sequence and one head of keys, with the query heads that share it in one tile where the library packs them, else one
query head. Units are split along the keys, where the library splits, to fill the cores; parts are combined at the end. A unit
reads its keys at a share of the cache's bandwidth per core; all keys together come from memory at a share of its bandwidth,
unless they stayed in the cache since the last call. Tiles of latent attention that run at other times than the first of their
sequence read keys from memory again.
"""

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
    combined,
    missing,
)
from halley.kernels.library.formats import core_rate, number_format
from halley.kernels.machine import Machine

KEYS_PER_TILE = 128.0
"""Keys that a tile processes together, where this is no option; the unit of the time of a block."""
FEW_HEADS, FEWEST_ROWS = 32.0, 16.0
"""Query heads up to which kernels with an own tile for few heads take it, and its rows: the fewest of a matrix instruction."""
FREE_SPLITS = (1, 2, 4, 8, 16, 32, 64)
LATENT, POSITIONS = 512.0, 64.0
"""Dims of a latent key-value pair and of its positions, DeepSeek-V2; values are the latent part of the keys."""
LARGEST_PACKED = 32
"""Query heads for one head of keys that TensorRT-LLM's packed kernel takes; it runs others with one head a unit."""

PARAMETERS = (
    LAUNCH,
    FittedParameter("memory", 0.75, 0.1, 1.0, 0.4),
    FittedParameter("feed", 0.5, 0.02, 5.0, 0.8),
    FittedParameter("latency", 1.5e-6, 1e-8, 5e-5, 1.2),
    FittedParameter("block", 2e-7, 1e-9, 1e-5, 1.5, "low"),
    FittedParameter("overlap", 3.0, 1.0, 12.0, 0.6),
    HOST,
    FittedParameter("matrix", 0.3, 0.02, 1.1, 0.8),
    FittedParameter("combine", 1e-6, 1e-9, 5e-5, 1.5, "low"),
    FittedParameter("resident", 0.2, 0.01, 2.0, 1.0),
    FittedParameter("unit", 0.3, 0.01, 1.5, 1.0),
)
"""Shares: memory bandwidth, cache bandwidth per core (feed), matrix rate; latency [s] of a unit; block [s] of `KEYS_PER_TILE`
keys; combine [s] of parts; resident: share of the cache in which keys stay between calls; unit: part of the latency that each
further unit on a core adds."""
AGAIN = FittedParameter("again", 0.1, 1e-3, 1.0, 1.5, "low")
"""Share of its keys that a tile of query heads reads from memory, if it does not run beside the first tile of its sequence."""
OPTIONS = {
    "splits": (0.0, 1.0, 4.0, 8.0, 16.0),
    "heads_in_tile": (16.0, 64.0, 128.0),
    "packs_heads": (1.0, 0.0),
    "skips_window": (1.0, 0.0),
    "whole_tiles": (1.0, 0.0),
}
"""Parts of the keys (0: as many as are fastest); query heads in a tile; whether heads that share keys share a unit; whether keys
outside the window are skipped; whether the last tile of keys is read in full, or only as far as there are keys."""
LATENT_OPTIONS = {
    "splits": OPTIONS["splits"],
    "heads_in_tile": OPTIONS["heads_in_tile"],
    "sequences_first": (0.0, 1.0),
    "few_heads": (0.0, 1.0),
    "keys_in_tile": (128.0, 64.0, 32.0),
}
"""Options of latent attention: two as above; whether one tile of every sequence is launched before the second of any, so that
tiles of one sequence run at different times; whether up to `FEW_HEADS` heads are in tiles of `FEWEST_ROWS`; keys in a tile."""


def _features(sizes: Sizes, read: tuple[Array, Array], formats: Formats, chip: Machine, options: Options) -> Features:
    """``read``: dims of a key and value in memory, and of both products."""
    batch, keys, heads, groups = (sizes[name] for name in ("batch", "keys", "heads", "kv_heads"))
    stored_dims, product_dims = read
    sharing = heads / groups
    packed = bool(options["packs_heads"])
    few = (sharing <= FEW_HEADS) & bool(options["few_heads"])
    in_tile = np.minimum(sharing, np.where(few, FEWEST_ROWS, options["heads_in_tile"])) if packed else np.ones_like(sharing)
    tiles = np.ceil(sharing / in_tile)
    units = batch * groups * tiles
    rows = np.where(in_tile > 1, np.ceil(in_tile / 16) * 16, 4.0)
    parts = np.array(FREE_SPLITS if options["splits"] == 0 else (options["splits"],), dtype=np.float64)[None, :]
    in_block = options["keys_in_tile"]
    blocks = np.ceil(np.ceil(keys / in_block)[:, None] / parts)
    read_keys = blocks * in_block if options["whole_tiles"] else np.minimum(blocks * in_block, keys[:, None])
    beside = chip.cores / (parts * np.where(options["sequences_first"], batch * groups, 1.0)[:, None])
    on_core = units[:, None] * parts / chip.cores
    further = tiles[:, None] / np.clip(beside, 1.0, tiles[:, None]) - 1
    kept = number_format(formats.cache or formats.dtype).activation
    stored, results = batch * groups * keys * stored_dims * kept, batch * heads * product_dims
    return {
        "units": np.maximum(on_core, 1.0),
        "waves": np.ceil(on_core),
        "blocks": blocks * in_block / KEYS_PER_TILE,
        "feed": read_keys * (stored_dims * kept)[:, None] / (chip.cache / chip.cores),
        "products": blocks * (in_block * rows * product_dims)[:, None] / core_rate(chip, "bf16"),
        "keys": stored / chip.memory,
        "keys_again": (stored * missing(stored, max(chip.capacity, 1.0)))[:, None] * further / chip.memory,
        "others": 2 * results / chip.memory,
        "split": np.asarray((parts > 1) * 1.0, dtype=np.float64),
        "partials": np.asarray(4 * results[:, None] * parts * (parts > 1) / chip.memory, dtype=np.float64),
        "capacity": max(chip.capacity, 1.0) / chip.memory,
    }


def time(parameters: Mapping[str, float], known: Features) -> Array:
    """Time [s] of shape [rows]."""
    p = parameters
    unit = np.maximum(known["feed"] / p["feed"], known["products"] / p["matrix"])
    unit = np.maximum(unit, known["blocks"] * p["block"])
    cores = unit * known["waves"] + p["latency"] * (1 + p["unit"] * (np.asarray(known["units"]) - 1))
    cores = cores + known["split"] * p["combine"] + known["partials"]
    keys = np.asarray(known["keys"])
    once = keys * missing(keys, p["resident"] * float(known["capacity"])) + known["others"]
    traffic = (once[:, None] + p.get("again", 0.0) * known["keys_again"]) / p["memory"]
    return as_measured(combined(cores, traffic, p["overlap"]).min(axis=1), p)


def _seen(sizes: Sizes, skips: bool = True) -> Sizes:
    """With the number of keys: cached ones and the new one, within the window."""
    keys = sizes["cached"] + 1
    inside = np.where(sizes["window"] > 0, np.minimum(keys, sizes["window"]), keys)
    return {**sizes, "keys": inside if skips else keys}


def _demand(sizes: Sizes, stored_dims: Array, product_dims: Array, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    batch, keys, heads, groups = (sizes[name] for name in ("batch", "keys", "heads", "kv_heads"))
    kept = number_format(formats.cache or formats.dtype).activation
    moved = batch * groups * keys * stored_dims * kept + 2 * batch * heads * product_dims
    return batch * heads * keys * product_dims / (core_rate(chip, "bf16") * chip.cores), moved / chip.memory


_NO_LATENT = {"sequences_first": 0.0, "few_heads": 0.0, "keys_in_tile": KEYS_PER_TILE}
"""Values of the options of latent attention in other attention, which gains nothing by them (decision 0137)."""


def _decode_features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    both = 2 * sizes["head_dim"]
    return _features(_seen(sizes, bool(options["skips_window"])), (both, both), formats, chip, {**_NO_LATENT, **options})


def _decode_demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    both = 2 * sizes["head_dim"]
    return _demand(_seen(sizes), both, both, formats, chip)


def _variant(sizes: Sizes, framework: str) -> NDArray[np.str_]:
    """TensorRT-LLM packs some numbers of heads, FlashAttention-2 none under a window, and neither packs or splits single
    heads."""
    sharing = sizes["heads"] / sizes["kv_heads"]
    if framework == "trtllm":
        return np.where((sharing > LARGEST_PACKED) | (sharing == 1), "single heads", "")
    if framework == "vllm":
        return np.where((sizes["window"] > 0) | (sharing == 1), "single heads", "")
    return np.full(sharing.shape, "")


def _latent(sizes: Sizes) -> Sizes:
    ones = np.ones_like(sizes["heads"])
    return {**sizes, "kv_heads": ones, "keys": sizes["cached"] + 1}


def _mla_features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    stored, products = _mla_dims(sizes)
    return _features(_latent(sizes), (stored, products), formats, chip, {"packs_heads": 1.0, "whole_tiles": 1.0, **options})


def _mla_demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    return _demand(_latent(sizes), *_mla_dims(sizes), formats, chip)


def _mla_dims(sizes: Sizes) -> tuple[Array, Array]:
    ones = np.ones_like(sizes["heads"])
    return (LATENT + POSITIONS) * ones, (2 * LATENT + POSITIONS) * ones


def _mla_variant(sizes: Sizes, framework: str) -> NDArray[np.str_]:
    """The Triton kernel of vLLM has another one for a single head."""
    return np.where((sizes["heads"] == 1) & (framework == "vllm"), "single heads", "")


DECODE = KernelFamily(
    "attention_decode",
    ("batch", "cached", "heads", "kv_heads", "head_dim", "window"),
    {"window": 0.0},
    PARAMETERS,
    OPTIONS,
    _decode_features,
    time,
    _decode_demand,
    _variant,
)
"""Attention of one new token a sequence to itself and to ``cached`` ones; ``window`` keys at most (0: all)."""

MLA_DECODE = KernelFamily(
    "mla_decode",
    ("batch", "cached", "heads"),
    {},
    (*PARAMETERS, AGAIN),
    LATENT_OPTIONS,
    _mla_features,
    time,
    _mla_demand,
    _mla_variant,
)
"""Latent attention (MLA) of one new token a sequence to itself and to ``cached`` latent pairs."""
