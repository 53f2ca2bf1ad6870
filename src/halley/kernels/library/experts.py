"""Feed-forward layers of experts (MoE) on one rank: two grouped GEMMs over the tokens that the router sends to its experts.

`halley.kernels.library.routing` says how many tokens each expert of the rank gets. Every expert with tokens has whole tiles and
its weights are read once.
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
from halley.kernels.library.routing import load
from halley.kernels.machine import Machine

TILE_ROWS = (8, 16, 32, 64, 128)
STEP_TERMS = 64
"""Terms of a sum between two synchronisations of a tile."""
VECTOR = 16
"""Elements of a row of weights that are loaded together; rows of other lengths start out of line."""

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
    FittedParameter("choice", 1e-9, 1e-12, 1e-7, 2.0, "low"),
    FittedParameter("uneven", 1e-11, 1e-12, 1e-6, 3.0, "low"),
)
"""Shares of matrix rate, memory bandwidth, cache bandwidth per core (feed); latency of a wave, step of `STEP_TERMS` terms of a
sum [s]; loss of small tiles; how often activations are read and written, relative to once; expert, choice [s]: sorting, for
each expert of the model and for each choice of a token; resident: share of the cache in which weights stay between calls;
uneven [s] of a result of the second product on a core, where the rows of its weights are no multiple of `VECTOR`."""
OPTIONS = {"remote": (0.0, 1.0, 2.0), "columns": (128.0, 64.0, 256.0), "rows": (0.0, 64.0, 1.0)}
"""remote: what the rank does for choices of experts of other ranks. 0: nothing. 1: their activations pass, as zeros. 2: it gets
only tokens with a choice among its experts, and its first expert computes their other choices, as the benchmark of SGLang asks
it to. Columns of a tile, and its rows (0: as many as are fastest; 1: `TRITON_ROWS`)."""
PASSED, COMPUTED = 1, 2
TRITON_ROWS = (16.0, 64.0)
"""Default rows of a tile of Triton kernels: with at most as many tokens as experts, and with more."""


def features(sizes: Sizes, formats: Formats, chip: Machine, options: Options) -> Features:
    """Arrays of shape [rows, heights of tiles]."""
    known = number_format(formats.dtype)
    hidden, inter, experts = sizes["hidden"], sizes["inter"] / sizes["tp"], np.maximum(sizes["experts"] / sizes["ep"], 1)
    heights = _heights(sizes, experts, int(options["rows"]))
    choices, tokens, active, row_tiles = _loads(sizes, heights, int(options["remote"]))
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
        "activations": 2 * (choices * (hidden + up + inter) + tokens * 2 * hidden) / chip.memory,
        "experts": sizes["experts"],
        "choices": tokens * sizes["topk"],
        "uneven": (np.mod(inter, VECTOR) > 0) * choices * hidden / chip.cores,
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
    return as_measured(body + known["experts"] * p["expert"] + known["choices"] * p["choice"] + known["uneven"] * p["uneven"], p)


def demand(sizes: Sizes, formats: Formats, chip: Machine) -> tuple[Array, Array]:
    """Times [s] of products and traffic at the data sheet's rates, of equally many tokens for each expert."""
    known = number_format(formats.dtype)
    hidden, inter, experts = sizes["hidden"], sizes["inter"] / sizes["tp"], np.maximum(sizes["experts"] / sizes["ep"], 1)
    chosen, width = sizes["tokens"] * sizes["topk"] / sizes["ep"], (2 + sizes["gated"]) * inter
    moved = np.minimum(experts, chosen) * hidden * width * known.weight + chosen * hidden * 2 * 2
    return chosen * hidden * width / (core_rate(chip, formats.dtype) * chip.cores), moved / chip.memory


def _loads(sizes: Sizes, heights: Array, remote: int) -> tuple[Array, Array, Array, Array]:
    """Choices of tokens whose activations pass [rows], tokens [rows], experts with tokens [rows], and row tiles by height of a
    tile [rows, heights]."""
    names = ("tokens", "topk", "experts", "ep", "alpha")
    keys = np.stack(np.broadcast_arrays(*(sizes[name] for name in names), *heights.T), axis=1)
    distinct, back = np.unique(keys, axis=0, return_inverse=True)
    loads = [_load(row[: len(names)], row[len(names) :], remote) for row in distinct]
    choices, tokens, active, tiles = (np.array(column, dtype=np.float64)[back.ravel()] for column in zip(*loads, strict=True))
    return choices, tokens, active, tiles


def _heights(sizes: Sizes, experts: Array, rows: int) -> Array:
    """Rows of tiles, of shape [rows, heights]."""
    if rows == 1:
        return np.where(sizes["tokens"] <= experts, *TRITON_ROWS)[:, None]
    heights = np.array(TILE_ROWS if rows == 0 else (rows,), dtype=np.float64)
    return np.broadcast_to(heights, (len(experts), len(heights)))


def _load(key: Array, heights: Array, remote: int) -> tuple[float, float, float, Array]:
    """Of one set of tokens, topk, experts, ep and alpha: means over the draws."""
    alpha = float(key[4])
    tokens, topk, experts, ranks = (int(np.ceil(value)) for value in key[:4])
    drawn = load(tokens, topk, experts, ranks, alpha)
    counts, choices = drawn.counts.astype(np.float64), drawn.counts.sum(axis=1)
    mine = drawn.tokens if remote == COMPUTED else np.full_like(choices, tokens)
    if remote == COMPUTED:
        counts[:, 0] += mine * topk - choices
    if remote in (PASSED, COMPUTED):
        choices = mine * topk
    tiles = np.ceil(counts[:, :, None] / heights[None, None, :]).sum(axis=1).mean(axis=0)
    return float(choices.mean()), float(mine.mean()), float((counts > 0).sum(axis=1).mean()), tiles


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
