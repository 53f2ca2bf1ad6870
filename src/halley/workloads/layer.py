"""A transformer layer: norm, projections, attention, residual sum, norm, feed-forward block, residual sum.

Dims: tokens m as queries and n as keys, model k, KV heads h, query heads in a group g, head dim d of queries and keys, e of
values, hidden f. g is present only if it is above 1. The model dim has one name, so that residual sums can be expressed.

Tokens are two dims, m and n, so the input is two tensors with the same values: X over the queries m, Xn over the keys n. The
first norm is computed for both.
"""

from __future__ import annotations

import math

from halley.ir.workload import Op, Workload
from halley.workloads.construction.graph import STATISTIC, contract, elementwise, tensors
from halley.workloads.construction.parameters import (
    SameAs,
    WorkloadKind,
    algorithm,
    check,
    element_type,
    flag,
    grouped_heads,
    size,
)
from halley.workloads.construction.steps import OpSequence, layernorm, rmsnorm, scale_scores, softmax_and_values


def transformer_layer(
    tokens: int,
    model: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    hidden: int,
    causal: bool = True,
    gated: bool = True,
    rms: bool = True,
    variant: str = "plain",
    dtype: str = "bf16",
) -> Workload:
    """``X2 = X + attention(norm(X))``, ``Y = X2 + mlp(norm(X2))`` on one sequence: pre-norm, as in GPT-2 and Llama.

    ``gated``: the feed-forward block of `gated_mlp`, else that of `gemm_gelu_gemm`; ``rms``: RMSNorm, else LayerNorm. The
    variants are those of `attention`. Left out: rotation of queries and keys by position, biases of the matrices.

    >>> work = transformer_layer(tokens=4, model=8, heads=2, kv_heads=1, head_dim=4, hidden=16)
    >>> work.macs() == 4 * 8 * 4 * (2 + 1 + 1 + 2) + 2 * 2 * 4 * 4 * 4 + 3 * 4 * 8 * 16
    True

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "tokens": tokens,
        "model": model,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "hidden": hidden,
        "causal": causal,
        "gated": gated,
        "rms": rms,
        "variant": variant,
        "dtype": dtype,
    }
    check(TRANSFORMER_LAYER, given)
    group = heads // kv_heads
    g = "g " if group > 1 else ""
    norms = (
        _norm("X", "A", "m", model, rms, "1", "1"),
        _norm("Xn", "An", "n", model, rms, "2", "1"),
        _norm("X2", "B", "m", model, rms, "3", "2"),
    )
    attention = _attention(g, head_dim, tokens, causal, variant)
    block, block_weights, block_made = _feed_forward(gated)
    residuals = (elementwise("add_attention", "add", "X Z", "X2", "m k"), elementwise("add_mlp", "add", "X2 D", "Y", "m k"))
    weights = {"Wq": f"h {g}k d", "Wk": "h k d", "Wv": "h k e", "Wo": f"h {g}e k"} | block_weights
    gains = {f"{name}{mark}": "k" for mark in "12" for name in (("gain",) if rms else ("gain", "bias"))}
    made = attention.made | block_made
    made |= dict.fromkeys(("Z", "X2", "D", "Y"), "m k") | {name: dims for norm in norms for name, dims in norm.made.items()}
    statistics = {name: dims for part in (*norms, attention) for name, dims in part.statistics.items()}
    return Workload(
        TRANSFORMER_LAYER.name,
        {"m": tokens, "n": tokens, "k": model, "h": kv_heads}
        | ({"g": group} if group > 1 else {})
        | {"d": head_dim, "e": head_dim, "f": hidden},
        tensors(dtype, {"X": "m k", "Xn": "n k"} | weights | gains | made) | tensors(STATISTIC, statistics),
        (*norms[0].ops, *norms[1].ops, *attention.ops, residuals[0], *norms[2].ops, *block, residuals[1]),
        ("Y",),
        kernels=(
            *norms[0].kernels,
            *norms[1].kernels,
            *attention.kernels,
            ("add_attention", *norms[2].kernels[0]),
            *((op.name,) for op in block),
            ("add_mlp",),
        ),
        variant=variant,
        parameters=given,
    )


def _norm(source: str, result: str, row: str, count: int, rms: bool, mark: str, weights: str) -> OpSequence:
    if rms:
        return rmsnorm(source, result, row, "k", count, mark, f"gain{weights}")
    return layernorm(source, result, row, "k", count, "two-pass", mark, f"gain{weights} bias{weights}")


def _attention(g: str, head_dim: int, tokens: int, causal: bool, variant: str) -> OpSequence:
    """Attention from A and An to Z; ``made`` excludes Z. ``g``: the dim of query heads in a group, if any."""
    rows = f"h {g}m"
    before = (
        contract("queries", "A Wq", "Q", f"{rows} k d"),
        contract("keys", "An Wk", "K", "h n k d"),
        contract("make_values", "An Wv", "V", "h n k e"),
        contract("scores", "Q K", "S", f"{rows} d n"),
    )
    scale = scale_scores("S", f"{rows} n", 1.0 / math.sqrt(head_dim), causal, tokens, tokens)
    core = softmax_and_values(variant, scale, rows, "n", "e")
    output = contract("output", "O Wo", "Z", f"m h {g}e k")
    made = {"Q": f"{rows} d", "K": "h n d", "V": "h n e", "S": f"{rows} n"} | core.made
    kernels = (*((op.name,) for op in before), *core.kernels, (output.name,))
    return OpSequence((*before, *core.ops, output), made, core.statistics, kernels)


def _feed_forward(gated: bool) -> tuple[tuple[Op, ...], dict[str, str], dict[str, str]]:
    """From B to D: (ops, dims of the weights, dims of the intermediate tensors)."""
    down = contract("down", "H Wd", "D", "m f k")
    if not gated:
        ops: tuple[Op, ...] = (contract("up", "B Wu", "F", "m k f"), elementwise("activate", "gelu", "F", "H", "m f"), down)
        return ops, {"Wu": "k f", "Wd": "f k"}, {"F": "m f", "H": "m f"}
    ops = (
        contract("gate", "B Wg", "G", "m k f"),
        contract("up", "B Wu", "F", "m k f"),
        elementwise("activate", "silu_mul", "G F", "H", "m f"),
        down,
    )
    return ops, {"Wg": "k f", "Wu": "k f", "Wd": "f k"}, {"G": "m f", "F": "m f", "H": "m f"}


TRANSFORMER_LAYER = WorkloadKind(
    "transformer-layer",
    "norm, attention, residual sum, norm, feed-forward block, residual sum",
    transformer_layer,
    (
        size("tokens", "tokens of the sequence"),
        size("model", "model dim"),
        size("heads", "query heads"),
        size("kv_heads", "key and value heads; divides heads", SameAs("heads")),
        size("head_dim", "head dim"),
        size("hidden", "hidden dim of the feed-forward block"),
        flag("causal", "mask the keys behind each query", True),
        flag("gated", "a gated feed-forward block (three matrices); else two around GELU", True),
        flag("rms", "RMSNorm; else LayerNorm", True),
        algorithm("plain", "deferred", "online"),
        element_type(),
    ),
    (grouped_heads("transformer-layer"),),
)
