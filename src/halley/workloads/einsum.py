"""Attention and a GPT-3 layer as plain einsums, with softmax as one elementwise operation.

Other mappers (Timeloop, AccelForge) count softmax as one exponential per score, without a row sum. These graphs have the same
work, so that results can be compared. For softmax with its reductions, see `attention` and `transformer-layer`.
"""

from __future__ import annotations

from halley.ir.workload import Op, Workload
from halley.workloads.construction.graph import contract, elementwise, tensors
from halley.workloads.construction.parameters import WorkloadKind, check, element_type, size


def attention_einsum(
    heads: int, queries: int, keys: int, head_dim: int, value_dim: int | None = None, dtype: str = "int8"
) -> Workload:
    """``S = Q K^T; P = exp(S); O = P V`` for each head: the weights are not normalised.

    Dims: heads h, queries m, keys n, head dim d, value head dim e.

    >>> [op.name for op in attention_einsum(heads=2, queries=4, keys=5, head_dim=3).ops]
    ['QK', 'softmax', 'AV']

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "heads": heads,
        "queries": queries,
        "keys": keys,
        "head_dim": head_dim,
        "value_dim": head_dim if value_dim is None else value_dim,
        "dtype": dtype,
    }
    check(ATTENTION_EINSUM, given)
    return Workload(
        ATTENTION_EINSUM.name,
        {"h": heads, "m": queries, "n": keys, "d": head_dim, "e": head_dim if value_dim is None else value_dim},
        tensors(dtype, {"Q": "h m d", "K": "h n d", "V": "h n e", "S": "h m n", "P": "h m n", "O": "h m e"}),
        _ATTENTION,
        ("O",),
        kernels=tuple((op.name,) for op in _ATTENTION),
        parameters=given,
    )


def gpt_layer(tokens: int, model: int, heads: int, head_dim: int, hidden: int, dtype: str = "int8") -> Workload:
    """The ten operations of a GPT-3 layer as other mappers count it: no norms, residual sums, biases, mask or activation.

    ``I`` copies the input; ``Q``, ``K``, ``V`` project it; ``QK``, ``softmax`` (as exp), ``AV``; ``Z`` projects the heads back;
    ``FFA`` and ``FFB`` are the feed-forward matrices (shapes: Brown et al., arXiv 2005.14165, table 2.1).

    Dims: tokens m as queries and n as keys, model k (of the input), p (of Z) and q (of the result), heads h, head dim d of
    queries and keys, e of values, hidden f. Tokens are two dims, m and n, so the input is two tensors with the same values: X
    over the keys n and Xq over the queries m, each read once. I copies X, for K and V.

    >>> len(gpt_layer(tokens=4, model=6, heads=2, head_dim=3, hidden=8).ops)
    10

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {
        "tokens": tokens,
        "model": model,
        "heads": heads,
        "head_dim": head_dim,
        "hidden": hidden,
        "dtype": dtype,
    }
    check(GPT_LAYER, given)
    ops = (
        elementwise("I", "identity", "X", "I", "n k"),
        contract("Q", "Xq Wq", "Q", "h m k d"),
        contract("K", "I Wk", "K", "h n k d"),
        contract("V", "I Wv", "V", "h n k e"),
        *_ATTENTION,
        contract("Z", "O Wz", "Z", "m h e p"),
        contract("FFA", "Z Wa", "F", "m p f"),
        contract("FFB", "F Wb", "Y", "m f q"),
    )
    return Workload(
        GPT_LAYER.name,
        {"m": tokens, "n": tokens, "k": model, "h": heads, "d": head_dim, "e": head_dim, "p": model, "f": hidden, "q": model},
        tensors(
            dtype,
            {"X": "n k", "Xq": "m k", "I": "n k", "Wq": "h k d", "Wk": "h k d", "Wv": "h k e", "Wz": "h e p", "Wa": "p f"}
            | {"Wb": "f q", "Q": "h m d", "K": "h n d", "V": "h n e", "S": "h m n", "P": "h m n", "O": "h m e"}
            | {"Z": "m p", "F": "m f", "Y": "m q"},
        ),
        ops,
        ("Y",),
        kernels=tuple((op.name,) for op in ops),
        parameters=given,
    )


_ATTENTION: tuple[Op, ...] = (
    contract("QK", "Q K", "S", "h m d n"),
    elementwise("softmax", "exp", "S", "P", "h m n"),
    contract("AV", "P V", "O", "h m n e"),
)

ATTENTION_EINSUM = WorkloadKind(
    "attention-einsum",
    "exp(Q K^T) V: softmax as one elementwise operation",
    attention_einsum,
    (
        size("heads", "heads"),
        size("queries", "query tokens"),
        size("keys", "keys"),
        size("head_dim", "head dim of queries and keys"),
        size("value_dim", "head dim of values; head_dim unless given", None),
        element_type("int8"),
    ),
)
GPT_LAYER = WorkloadKind(
    "gpt-layer",
    "ten operations of a GPT-3 layer: projections, exp(Q K^T) V, feed-forward",
    gpt_layer,
    (
        size("tokens", "tokens"),
        size("model", "model dim"),
        size("heads", "heads"),
        size("head_dim", "head dim"),
        size("hidden", "hidden dim of the feed-forward matrices"),
        element_type("int8"),
    ),
)
