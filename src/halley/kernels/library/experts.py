"""Feed-forward layers of experts (MoE) on one rank: two grouped GEMMs over the tokens that the router sends to its experts.

Balanced routing gives every expert equally many tokens. Under a power law the tokens of an expert are drawn from a density
proportional to x^-alpha, and the rank is the busiest of its group, as in the measured tables: the mean over a few fixed draws.
Every expert with tokens has whole tiles and its weights are read once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from halley.kernels.library.family import (
    HOST,
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

TILE_ROWS = (16, 32, 64, 128)
STEP_TERMS = 64
"""Terms of a sum between two synchronisations of a tile."""
DRAWS = 8
"""Draws of the tokens of each expert; measurements average over ten."""
LARGEST_SHARE = 0.8
"""Largest number that the power law draws, as a share of the tokens (`SMALL_BATCH_SHARES`: of small batches)."""
SMALL_BATCH_SHARES = (0.01, 2.0)
"""Smallest and largest number that the power law draws where there are fewer choices than experts."""

PARAMETERS = (
    FittedParameter("launch", 1.5e-5, 1e-6, 1e-3, 3.0, "low"),
    FittedParameter("matrix", 0.55, 0.03, 1.0, 0.5),
    FittedParameter("memory", 0.7, 0.1, 1.0, 0.5),
    FittedParameter("feed", 0.8, 0.1, 4.0, 0.7),
    FittedParameter("latency", 2e-6, 1e-8, 5e-5, 1.2),
    FittedParameter("step", 3e-8, 1e-9, 2e-6, 1.5, "low"),
    FittedParameter("small", 0.1, 1e-3, 1.0, 1.0),
    FittedParameter("overlap", 3.0, 1.0, 12.0, 0.6),
    HOST,
    FittedParameter("activations", 1.0, 0.05, 30.0, 1.0),
    FittedParameter("slowdown", 0.1, 1e-3, 0.6, 1.0, "low"),
    FittedParameter("expert", 2e-8, 1e-10, 1e-6, 1.5, "low"),
    FittedParameter("resident", 0.1, 0.01, 2.0, 1.0, "low"),
)
"""Shares of matrix rate, memory bandwidth, cache bandwidth per core (feed); latency of a wave, step
of `STEP_TERMS` terms of a sum [s]; loss of small tiles; how often
activations are read and written, relative to once; expert [s]: sorting tokens, for each expert of the model; resident:
share of the cache in which weights stay between calls."""
OPTIONS = {"columns": (128.0, 64.0, 256.0), "rows": (0.0, 64.0, 128.0), "own_tokens": (0.0, 1.0)}
"""Columns of a tile, and its rows (0: as many as are fastest). own_tokens: in the table, ``tokens`` are those of the rank, all of
which choose among its own experts, instead of those of the whole group."""


def features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    """Arrays of shape [rows, heights of tiles]."""
    known = number_format(formats.dtype)
    hidden, inter, experts = sizes["hidden"], sizes["inter"] / sizes["tp"], np.maximum(sizes["experts"] / sizes["ep"], 1)
    heights = np.array(TILE_ROWS if options["rows"] == 0 else (options["rows"],), dtype=np.float64)
    if options["own_tokens"]:
        topk = np.minimum(sizes["topk"], experts)
        sizes = {**sizes, "topk": topk, "experts": experts, "ep": np.ones_like(experts)}
    tokens, active, row_tiles = _loads(sizes, heights)
    up = (1 + sizes["gated"]) * inter
    rate = core_rate(chip, formats.dtype)
    found: dict[str, Array | float] = {}
    for name, width, depth in (("up", up, hidden), ("down", hidden, inter)):
        waves = np.ceil(row_tiles * np.ceil(width / options["columns"])[:, None] / chip.cores)
        found[f"{name}_waves"] = waves
        found[f"{name}_products"] = waves * heights * options["columns"] * depth[:, None] / rate
        found[f"{name}_steps"] = waves * np.ceil(depth / STEP_TERMS)[:, None]
        tile_bytes = (heights * known.activation + options["columns"] * known.weight) * depth[:, None]
        found[f"{name}_feed"] = waves * tile_bytes / (chip.cache / chip.cores)
    return {
        **found,
        "small": np.log(128 / heights),
        "capacity": max(chip.capacity, 1.0) / chip.memory,
        "weights": np.minimum(active, experts) * hidden * (up + inter) * known.weight / chip.memory,
        "activations": tokens * 2 * (2 * hidden + up + inter) / chip.memory,
        "experts": sizes["experts"],
    }


def time(parameters: Mapping[str, float], known: Features) -> Array:
    """Time [s] of shape [rows]."""
    p, cores = parameters, np.zeros(())
    for name in ("up", "down"):
        products = known[f"{name}_products"] / p["matrix"] * np.exp(p["small"] * known["small"])
        loop = np.maximum(np.maximum(products, known[f"{name}_feed"] / p["feed"]), known[f"{name}_steps"] * p["step"])
        cores = cores + loop + known[f"{name}_waves"] * p["latency"]
    cores = under_load(cores, p["slowdown"])
    weights = np.asarray(known["weights"])
    weights = weights * missing(weights, p["resident"] * float(known["capacity"]))
    traffic = (weights + p["activations"] * known["activations"]) / p["memory"]
    body = combined(cores, traffic[:, None], p["overlap"]).min(axis=1)
    return as_measured(body + known["experts"] * p["expert"], p)


def demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    """Times [s] of products and traffic at the data sheet's rates, of equally many tokens for each expert."""
    known = number_format(formats.dtype)
    hidden, inter, experts = sizes["hidden"], sizes["inter"] / sizes["tp"], np.maximum(sizes["experts"] / sizes["ep"], 1)
    chosen, width = sizes["tokens"] * sizes["topk"] / sizes["ep"], (2 + sizes["gated"]) * inter
    moved = np.minimum(experts, chosen) * hidden * width * known.weight + chosen * hidden * 2 * 2
    return chosen * hidden * width / (core_rate(chip, formats.dtype) * chip.cores), moved / chip.memory


def _loads(sizes: Sizes, heights: Array) -> tuple[Array, Array, Array]:
    """Tokens of a rank [rows], its experts with tokens [rows], and row tiles by height of a tile [rows, heights]."""
    names = ("tokens", "topk", "experts", "ep", "alpha")
    keys = np.stack(np.broadcast_arrays(*(sizes[name] for name in names)), axis=1)
    distinct, back = np.unique(keys, axis=0, return_inverse=True)
    loads = [_load(row, heights) for row in distinct]
    tokens, active, tiles = (np.array(column, dtype=np.float64)[back.ravel()] for column in zip(*loads, strict=True))
    return tokens, active, tiles


def _load(key: Array, heights: Array) -> tuple[float, float, Array]:
    """Of one set of tokens, topk, experts, ep and alpha."""
    tokens, topk, experts, ep, alpha = (float(value) for value in key)
    local = max(int(experts // ep), 1)
    if alpha == 0:
        chosen = np.ceil(tokens / ep) * min(topk, local)
        active = min(local, chosen)
        return float(chosen), float(active), np.maximum(np.ceil(chosen / active / heights), 1) * active
    groups = int(experts // local)
    low, high = (1.0, max(LARGEST_SHARE * tokens, 1.0 + 1e-9)) if tokens * topk > experts else SMALL_BATCH_SHARES
    shares = _UNIFORM[:, : groups * local]
    power = 1 - alpha
    drawn = ((high**power - low**power) * shares + low**power) ** (1 / power)
    rows = np.round(drawn / drawn.sum(axis=1, keepdims=True) * tokens * topk).reshape(DRAWS, groups, local)
    busiest = rows[np.arange(DRAWS), rows.sum(axis=2).argmax(axis=1)]
    # whole tokens are lost to rounding where there are few; then the busiest expert has at least its share of them
    busiest[:, 0] = np.where(busiest.sum(axis=1) == 0, np.ceil(tokens * topk / ep), busiest[:, 0])
    tiles = np.ceil(busiest[:, :, None] / heights).sum(axis=1).mean(axis=0)
    return float(busiest.sum(axis=1).mean()), float((busiest > 0).sum(axis=1).mean()), tiles


def _uniform(draws: int, count: int) -> Array:
    """Fixed numbers spread evenly over 0 to 1, in an order without pattern: a hash of their index (splitmix64)."""
    state = np.arange(1, draws * count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((state ^ (state >> np.uint64(31))) >> np.uint64(11)).astype(np.float64).reshape(draws, count) / 2.0**53


LARGEST_EXPERTS = 2048
"""Most experts whose loads are drawn in advance."""
_UNIFORM = _uniform(DRAWS, LARGEST_EXPERTS)

EXPERTS = KernelFamily(
    "moe",
    ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "alpha", "gated"),
    {"tp": 1.0, "ep": 1.0, "alpha": 0.0, "gated": 1.0},
    PARAMETERS,
    OPTIONS,
    features,
    time,
    demand,
)
"""Experts of ``inter`` hidden units for ``tokens`` of the whole group of ``ep`` ranks, ``topk`` experts a token; ``alpha`` of the
power law of their loads (0: balanced); ``gated``: 1 with a gate (SwiGLU), 0 without. Experts are split over ``ep`` ranks, the
hidden units of each over ``tp``."""
