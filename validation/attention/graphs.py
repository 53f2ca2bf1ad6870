"""Attention forward and backward as graphs of elementary operations, as the measured kernels do them.

Dims: h heads of all sequences, m queries, n keys, d head dim, e value dim. A name in lower case is a row's statistic.
``standard`` is what a framework runs without fusion; ``forward`` and ``backward`` are the two kernels of
FlashAttention-2, ``.._by_blocks`` those of FlashAttention-1.
"""

from __future__ import annotations

import math

from halley.ir.workload import Op, OpKind, Workload
from halley.workloads.construction.graph import STATISTIC, contract, elementwise, reduction, tensors

HALF = "fp16"

WARPS = 4
"""Warps among which FlashAttention-1 splits a block of keys (FlashAttention-2, arXiv 2307.08691, section 3.3)."""


def standard(heads: int, queries: int, keys: int, head_dim: int, causal: bool) -> Workload:
    """Forward and backward kernel by kernel: S and its successors pass through memory.

    The scale is the factor of the first GEMM. A causal mask is added by a kernel of its own, to all scores. Batched GEMMs want
    heads outermost and the model keeps tokens outermost: Q, K, V and dO are copied before, dQ, dK and dV after (``..0``: as the
    model has them).
    """
    scores = "S2" if causal else "S"
    constants = {"scale": 1.0, "queries": float(queries), "offset": float(keys - queries), "causal": 1.0}
    mask = (elementwise("mask", "scale_mask", "S", "S2", "h m n", constants=constants),) if causal else ()
    square = dict.fromkeys(("S", *(("S2",) if causal else ()), "E", "P", "dP", "dS"), "h m n")
    shapes = {"Q": "h m d", "K": "h n d", "V": "h n e", "dO": "h m e", "dQ": "h m d", "dK": "h n d", "dV": "h n e"}
    copied = {name: elementwise(f"copy_{name}", "identity", f"{name}0", name, shapes[name]) for name in ("Q", "K", "V", "dO")}
    back = [elementwise(f"copy_{name}", "identity", name, f"{name}0", shapes[name]) for name in ("dQ", "dK", "dV")]
    return Workload(
        "attention-standard",
        {"h": heads, "m": queries, "n": keys, "d": head_dim, "e": head_dim},
        tensors(HALF, shapes | {f"{name}0": dims for name, dims in shapes.items()} | square | {"O": "h m e"})
        | tensors(STATISTIC, {"mx": "h m", "z": "h m", "r": "h m"}),
        (
            *copied.values(),
            contract("scores", "Q K", "S", "h m d n"),
            *mask,
            reduction("max", "max", scores, "mx", "h m n"),
            elementwise("exp", "exp_difference", f"{scores} mx", "E", "h m n"),
            reduction("sum", "sum", "E", "z", "h m n"),
            elementwise("divide", "divide", "E z", "P", "h m n"),
            contract("values", "P V", "O", "h m n e"),
            contract("dV", "P dO", "dV", "h n m e"),
            contract("dP", "dO V", "dP", "h m e n"),
            reduction("row", "sum", "P dP", "r", "h m n", function="mul"),
            # dS = P (dP - r): `normalise` is (x - mean) factor, whatever the factor's dims
            elementwise("dS", "normalise", "dP r P", "dS", "h m n"),
            contract("dQ", "dS K", "dQ", "h m n d"),
            contract("dK", "dS Q", "dK", "h n m d"),
            *back,
        ),
        ("O", "dQ0", "dK0", "dV0"),
    )


def forward(heads: int, queries: int, keys: int, head_dim: int) -> Workload:
    """The fused forward kernel: the maximum runs along with the keys, and what is summed is rescaled when it grows."""
    return Workload(
        "attention-forward",
        {"h": heads, "m": queries, "n": keys, "d": head_dim, "e": head_dim},
        tensors(HALF, {"Q": "h m d", "K": "h n d", "V": "h n e", "S": "h m n", "S2": "h m n", "E": "h m n"})
        | tensors(HALF, {"U": "h m e", "O": "h m e"})
        | tensors(STATISTIC, {"mx": "h m", "z": "h m"}),
        (
            contract("scores", "Q K", "S", "h m d n"),
            elementwise("scale", "scale", "S", "S2", "h m n", constants={"scale": 1 / math.sqrt(head_dim)}),
            reduction("max", "max", "S2", "mx", "h m n"),
            elementwise("exp", "exp_difference", "S2 mx", "E", "h m n", running="mx"),
            Op("sum", OpKind.REDUCE, ("E",), ("z",), ("h", "m", "n"), monoid="sum", scaled_by="mx"),
            contract("values", "E V", "U", "h m n e", scaled_by="mx"),
            elementwise("divide", "divide", "U z", "O", "h m e"),
        ),
        ("O", "mx", "z"),
    )


def forward_by_blocks(heads: int, queries: int, keys: int, head_dim: int, block: int) -> Workload:
    """FlashAttention-1's forward kernel: b blocks of keys, outermost; each adds its part to the output in memory, in fp32.

    The keys of a block are w slices of c, one per warp. Each warp has a part of the output; the parts are added through shared
    memory. The weights of the parts follow from the statistics; that work is one number per row and left out.
    """
    square = dict.fromkeys(("S", "S2", "E"), "h m b w c")
    return Workload(
        "attention-forward-by-blocks",
        _blocks(heads, queries, keys, head_dim, block),
        tensors(HALF, {"Q": "h m d", "K": "h b w c d", "V": "h b w c e", "U": "h m b w e"} | square)
        | tensors(STATISTIC, {"mx": "h m b", "z": "h m b", "weight": "h m b", "part": "h m b w e", "O": "h m e"}),
        (
            contract("scores", "Q K", "S", "h m d b w c"),
            elementwise("scale", "scale", "S", "S2", "h m b w c", constants={"scale": 1 / math.sqrt(head_dim)}),
            reduction("max", "max", "S2", "mx", "h m b w c"),
            elementwise("exp", "exp_difference", "S2 mx", "E", "h m b w c"),
            reduction("sum", "sum", "E", "z", "h m b w c"),
            contract("values", "E V", "U", "h m b w c e"),
            elementwise("share", "identity", "U", "part", "h m b w e"),
            reduction("combine", "sum", "part weight", "O", "h m b w e", function="mul"),
        ),
        ("O", "mx", "z"),
    )


def backward_by_blocks(heads: int, queries: int, keys: int, head_dim: int, block: int) -> Workload:
    """FlashAttention-1's backward kernel: as `backward`, by blocks; dQ's parts of the warps are added through shared memory, and
    its sum over the blocks in memory, both in fp32."""
    square = dict.fromkeys(("S", "S2", "P", "dP", "dS"), "h m b w c")
    keyed = {"K": "h b w c d", "V": "h b w c e", "dK": "h b w c d", "dV": "h b w c e"}
    return Workload(
        "attention-backward-by-blocks",
        _blocks(heads, queries, keys, head_dim, block),
        tensors(HALF, {"Q": "h m d", "O": "h m e", "dO": "h m e", "U": "h m b w d"} | keyed | square)
        | tensors(STATISTIC, {"lse": "h m", "r": "h m", "part": "h m b w d", "dQ": "h m d"}),
        (
            reduction("row", "sum", "O dO", "r", "h m e", function="mul"),
            contract("scores", "Q K", "S", "h m d b w c"),
            elementwise("scale", "scale", "S", "S2", "h m b w c", constants={"scale": 1 / math.sqrt(head_dim)}),
            elementwise("again", "exp_difference", "S2 lse", "P", "h m b w c"),
            contract("dP", "dO V", "dP", "h m e b w c"),
            elementwise("dS", "normalise", "dP r P", "dS", "h m b w c"),
            contract("dV", "P dO", "dV", "h b w c m e"),
            contract("dK", "dS Q", "dK", "h b w c m d"),
            contract("dQ", "dS K", "U", "h m b w c d"),
            elementwise("share", "identity", "U", "part", "h m b w d"),
            reduction("combine", "sum", "part", "dQ", "h m b w d"),
        ),
        ("dQ", "dK", "dV"),
    )


def _blocks(heads: int, queries: int, keys: int, head_dim: int, block: int) -> dict[str, int]:
    """Extents of the dims: b blocks of w warps of c keys."""
    split = {"b": math.ceil(keys / block), "w": WARPS, "c": math.ceil(block / WARPS)}
    return {"h": heads, "m": queries, **split, "d": head_dim, "e": head_dim}


def backward(heads: int, queries: int, keys: int, head_dim: int) -> Workload:
    """The fused backward kernels: S and P are recomputed from Q, K and the logarithm of each row's sum of exponentials.

    The factor of the scale is part of the GEMMs of dQ and dK.
    """
    square = dict.fromkeys(("S", "S2", "P", "dP", "dS"), "h m n")
    return Workload(
        "attention-backward",
        {"h": heads, "m": queries, "n": keys, "d": head_dim, "e": head_dim},
        tensors(HALF, {"Q": "h m d", "K": "h n d", "V": "h n e", "O": "h m e", "dO": "h m e"})
        | tensors(HALF, {"dQ": "h m d", "dK": "h n d", "dV": "h n e"} | square)
        | tensors(STATISTIC, {"lse": "h m", "r": "h m"}),
        (
            reduction("row", "sum", "O dO", "r", "h m e", function="mul"),
            contract("scores", "Q K", "S", "h m d n"),
            elementwise("scale", "scale", "S", "S2", "h m n", constants={"scale": 1 / math.sqrt(head_dim)}),
            elementwise("again", "exp_difference", "S2 lse", "P", "h m n"),
            contract("dP", "dO V", "dP", "h m e n"),
            elementwise("dS", "normalise", "dP r P", "dS", "h m n"),
            contract("dV", "P dO", "dV", "h n m e"),
            contract("dK", "dS Q", "dK", "h n m d"),
            contract("dQ", "dS K", "dQ", "h m n d"),
        ),
        ("dQ", "dK", "dV"),
    )


__all__ = ["backward", "backward_by_blocks", "forward", "forward_by_blocks", "standard"]
