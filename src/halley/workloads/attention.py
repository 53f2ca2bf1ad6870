"""Scaled dot-product attention: multi-head, grouped-query and multi-query, prefill and decode.

Dims: h = KV heads of all sequences, m = query rows that share a KV head, n = keys, d = head dim, e = value head dim.

- index of h: ``sequence * kv_heads + kv_head``;
- index of m: ``query_head_in_group * queries + query``, with ``heads / kv_heads`` query heads per group: the rows of a group are
  stacked, so that K and V of a KV head are read once for the whole group.
"""

from __future__ import annotations

import math

from halley.errors import Fault
from halley.ir.workload import Workload
from halley.workloads.construction.graph import STATISTIC, contract, tensors
from halley.workloads.construction.parameters import (
    SIZE_LIMIT,
    Rule,
    SameAs,
    WorkloadKind,
    algorithm,
    check,
    element_type,
    flag,
    grouped_heads,
    size,
)
from halley.workloads.construction.steps import scale_scores, softmax_and_values


def attention(
    batch: int,
    heads: int,
    kv_heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    value_dim: int | None = None,
    causal: bool = False,
    variant: str = "plain",
    dtype: str = "bf16",
    window: int | None = None,
) -> Workload:
    """``O = softmax(scale Q K^T + mask) V`` with ``scale = 1 / sqrt(head_dim)`` (Vaswani et al., arXiv 1706.03762).

    ``kv_heads == heads`` is MHA, ``1 < kv_heads < heads`` GQA (arXiv 2305.13245), ``kv_heads == 1`` MQA (arXiv 1911.02150).
    ``queries == keys`` is prefill; ``queries == 1`` decode against a KV cache of ``keys``. A causal mask lets query i see
    the keys up to ``i + keys - queries``: the queries are the last positions. A mapping may skip tiles of keys that no row sees
    (docs/model.md, "Masks"). With a ``window``, a query sees only the last ``window`` of these keys.

    - plain: ``mx; E = exp(S2 - mx); z; P = E / z; O = P V``.
    - deferred: the division follows the second GEMM: ``U = E V; O = U / z``.
    - online: ``mx`` is the maximum of the keys so far; ``z`` and ``U`` are rescaled when it grows (arXiv 2112.05682,
      2205.14135). One exponential for each score, as in FlashAttention-2 (arXiv 2307.08691).

    >>> work = attention(batch=2, heads=8, kv_heads=2, queries=1, keys=100, head_dim=64)
    >>> dict(work.dims)
    {'h': 4, 'm': 4, 'n': 100, 'd': 64, 'e': 64}

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "batch": batch,
        "heads": heads,
        "kv_heads": kv_heads,
        "queries": queries,
        "keys": keys,
        "head_dim": head_dim,
        "value_dim": head_dim if value_dim is None else value_dim,
        "causal": causal,
        "variant": variant,
        "dtype": dtype,
        **({} if window is None else {"window": window}),
    }
    check(ATTENTION, given)
    scale = scale_scores("S", "h m n", 1.0 / math.sqrt(head_dim), causal, queries, keys, window)
    rest = softmax_and_values(variant, scale, "h m", "n", "e")
    return Workload(
        ATTENTION.name,
        {
            "h": batch * kv_heads,
            "m": heads // kv_heads * queries,
            "n": keys,
            "d": head_dim,
            "e": head_dim if value_dim is None else value_dim,
        },
        tensors(dtype, {"Q": "h m d", "K": "h n d", "V": "h n e", "S": "h m n"} | rest.made)
        | tensors(STATISTIC, rest.statistics),
        (contract("scores", "Q K", "S", "h m d n"), *rest.ops),
        ("O",),
        kernels=(("scores",), *rest.kernels),
        variant=variant,
        parameters=given,
    )


def _visible(causal: bool, queries: int, keys: int) -> Fault | None:
    if not causal or queries <= keys:
        return None
    remedy = "count the new tokens in keys as well; the first rows would see no key"
    return Fault("workload attention, parameter queries", f"at most keys ({keys}) under a causal mask", str(queries), remedy)


def _windowed(causal: bool, window: int | None) -> Fault | None:
    if causal or window is None:
        return None
    return Fault("workload attention, parameter window", "a causal mask", f"a window of {window} without", "set causal, too")


def _folded(batch: int, heads: int, kv_heads: int, queries: int) -> Fault | None:
    """The dims h and m are products of parameters; neither must exceed the limit of sizes."""
    largest = max(batch * kv_heads, heads // kv_heads * queries)
    if largest <= SIZE_LIMIT:
        return None
    return Fault("workload attention", f"batch x kv_heads and heads / kv_heads x queries of at most {SIZE_LIMIT}", str(largest))


ATTENTION = WorkloadKind(
    "attention",
    "softmax(scale Q K^T + mask) V",
    attention,
    (
        size("batch", "sequences", 1),
        size("heads", "query heads"),
        size("kv_heads", "key and value heads; divides heads", SameAs("heads")),
        size("queries", "query tokens per sequence; 1 in decode"),
        size("keys", "keys per sequence, the KV cache included"),
        size("head_dim", "head dim of queries and keys"),
        size("value_dim", "head dim of values; head_dim unless given", None),
        flag("causal", "mask the keys behind each query", False),
        algorithm("plain", "deferred", "online"),
        element_type(),
        size("window", "keys that a query sees under a causal mask; all unless given", None),
    ),
    (
        grouped_heads("attention"),
        Rule(("causal", "queries", "keys"), _visible),
        Rule(("causal", "window"), _windowed),
        Rule(("batch", "heads", "kv_heads", "queries"), _folded),
    ),
)
