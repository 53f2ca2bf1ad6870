"""GEMM, and GEMM followed by a row-wise softmax or norm.

Dims: rows m, columns n, contraction k, batch b (present only if b > 1). ``S = A B`` has one row per m; softmax and the norms
reduce over n, so splitting n over clusters or chips makes their statistics partial.
"""

from __future__ import annotations

from halley.ir.workload import Op, Workload
from halley.workloads.construction.graph import STATISTIC, batch, contract, elementwise, reduction, tensors
from halley.workloads.construction.parameters import WorkloadKind, algorithm, check, element_type, size
from halley.workloads.construction.steps import layernorm, rmsnorm


def gemm(m: int, n: int, k: int, b: int = 1, dtype: str = "bf16") -> Workload:
    """``C[m, n] = sum_k A[m, k] B[k, n]``, for each b.

    >>> gemm(4, 5, 6).macs()
    120

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"m": m, "n": n, "k": k, "b": b, "dtype": dtype}
    check(GEMM, given)
    prefix, extents = batch(b)
    return Workload(
        GEMM.name,
        extents | {"m": m, "n": n, "k": k},
        tensors(dtype, {"A": f"{prefix}m k", "B": f"{prefix}k n", "C": f"{prefix}m n"}),
        (contract("gemm", "A B", "C", f"{prefix}m k n"),),
        ("C",),
        kernels=(("gemm",),),
        parameters=given,
    )


def gemm_softmax(m: int, n: int, k: int, b: int = 1, variant: str = "plain", dtype: str = "bf16") -> Workload:
    """``P = softmax over n of A B``.

    - plain: ``mx = max_n S; E = exp(S - mx); z = sum_n E; P = E / z``, three passes over S.
    - online: maximum and sum in one pass (Milakov and Gimelshein, arXiv 1805.02867), then ``P = exp(S - mx) / z``.

    >>> [op.name for op in gemm_softmax(4, 5, 6, variant="online").ops]
    ['gemm', 'statistics', 'normalise']

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"m": m, "n": n, "k": k, "b": b, "variant": variant, "dtype": dtype}
    check(GEMM_SOFTMAX, given)
    prefix, extents = batch(b)
    row, matrix = f"{prefix}m", f"{prefix}m n"
    if variant == "plain":
        steps: tuple[Op, ...] = (
            reduction("max", "max", "S", "mx", matrix),
            elementwise("exp", "exp_difference", "S mx", "E", matrix),
            reduction("sum", "sum", "E", "z", matrix),
            elementwise("divide", "divide", "E z", "P", matrix),
        )
        made = {"S": matrix, "E": matrix, "P": matrix}
    else:
        steps = (
            reduction("statistics", "softmax", "S", "mx z", matrix),
            elementwise("normalise", "softmax_from_stats", "S mx z", "P", matrix),
        )
        made = {"S": matrix, "P": matrix}
    return Workload(
        GEMM_SOFTMAX.name,
        extents | {"m": m, "n": n, "k": k},
        tensors(dtype, {"A": f"{prefix}m k", "B": f"{prefix}k n"} | made) | tensors(STATISTIC, {"mx": row, "z": row}),
        (contract("gemm", "A B", "S", f"{prefix}m k n"), *steps),
        ("P",),
        kernels=(("gemm",), tuple(op.name for op in steps)),
        variant=variant,
        parameters=given,
    )


def gemm_layernorm(m: int, n: int, k: int, variant: str = "two-pass", dtype: str = "bf16") -> Workload:
    """``P = (S - mean) / sqrt(var + epsilon) * gain + bias`` along n, with ``S = A B`` (Ba et al., arXiv 1607.06450).

    - two-pass: the mean, then ``v = sum_n (S - mu)^2``.
    - welford: mean and v in one pass (Welford 1962), partial states merged after Chan et al. 1979.

    >>> gemm_layernorm(4, 5, 6).tensors["v"].dtype
    'fp32'

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"m": m, "n": n, "k": k, "variant": variant, "dtype": dtype}
    check(GEMM_LAYERNORM, given)
    norm = layernorm("S", "P", "m", "n", n, variant)
    return Workload(
        GEMM_LAYERNORM.name,
        {"m": m, "n": n, "k": k},
        tensors(dtype, {"A": "m k", "B": "k n", "gain": "n", "bias": "n", "S": "m n", "P": "m n"})
        | tensors(STATISTIC, norm.statistics),
        (contract("gemm", "A B", "S", "m k n"), *norm.ops),
        ("P",),
        kernels=(("gemm",), *norm.kernels),
        variant=variant,
        parameters=given,
    )


def gemm_rmsnorm(m: int, n: int, k: int, dtype: str = "bf16") -> Workload:
    """``P = S / sqrt(mean_n S^2 + epsilon) * gain``, with ``S = A B`` (Zhang and Sennrich, arXiv 1910.07467).

    >>> [op.name for op in gemm_rmsnorm(4, 5, 6).ops]
    ['gemm', 'sum_squares', 'rrms', 'normalise']

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"m": m, "n": n, "k": k, "dtype": dtype}
    check(GEMM_RMSNORM, given)
    norm = rmsnorm("S", "P", "m", "n", n)
    return Workload(
        GEMM_RMSNORM.name,
        {"m": m, "n": n, "k": k},
        tensors(dtype, {"A": "m k", "B": "k n", "gain": "n", "S": "m n", "P": "m n"}) | tensors(STATISTIC, norm.statistics),
        (contract("gemm", "A B", "S", "m k n"), *norm.ops),
        ("P",),
        kernels=(("gemm",), *norm.kernels),
        parameters=given,
    )


_SIZES = (size("m", "rows"), size("n", "columns"), size("k", "contraction"))
_BATCH = size("b", "independent GEMMs", 1)

GEMM = WorkloadKind("gemm", "C = A B", gemm, (*_SIZES, _BATCH, element_type()))
GEMM_SOFTMAX = WorkloadKind(
    "gemm-softmax", "softmax of the rows of A B", gemm_softmax, (*_SIZES, _BATCH, algorithm("plain", "online"), element_type())
)
GEMM_LAYERNORM = WorkloadKind(
    "gemm-layernorm", "LayerNorm of the rows of A B", gemm_layernorm, (*_SIZES, algorithm("two-pass", "welford"), element_type())
)
GEMM_RMSNORM = WorkloadKind("gemm-rmsnorm", "RMSNorm of the rows of A B", gemm_rmsnorm, (*_SIZES, element_type()))
