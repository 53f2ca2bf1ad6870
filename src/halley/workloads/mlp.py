"""The feed-forward blocks of language models: two matrices around GELU, or three with a gate."""

from __future__ import annotations

from halley.ir.workload import Workload
from halley.workloads.construction.graph import contract, elementwise, tensors
from halley.workloads.construction.parameters import WorkloadKind, check, element_type, size


def gemm_gelu_gemm(tokens: int, model: int, hidden: int, dtype: str = "bf16") -> Workload:
    """``Y = gelu(X W1) W2``, the feed-forward block of GPT and BERT (GELU: Hendrycks and Gimpel, arXiv 1606.08415, tanh form).

    Dims: tokens m, model k (of the input) and n (of the result, with the same extent), hidden f.

    >>> gemm_gelu_gemm(tokens=4, model=5, hidden=6).macs() == 2 * 4 * 5 * 6
    True

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"tokens": tokens, "model": model, "hidden": hidden, "dtype": dtype}
    check(GEMM_GELU_GEMM, given)
    return Workload(
        GEMM_GELU_GEMM.name,
        {"m": tokens, "k": model, "f": hidden, "n": model},
        tensors(dtype, {"X": "m k", "W1": "k f", "W2": "f n", "F": "m f", "H": "m f", "Y": "m n"}),
        (
            contract("expand", "X W1", "F", "m k f"),
            elementwise("activate", "gelu", "F", "H", "m f"),
            contract("contract", "H W2", "Y", "m f n"),
        ),
        ("Y",),
        kernels=(("expand",), ("activate",), ("contract",)),
        parameters=given,
    )


def gated_mlp(tokens: int, model: int, hidden: int, dtype: str = "bf16") -> Workload:
    """``Y = (silu(X Wg) * (X Wu)) Wd``, the SwiGLU block (Shazeer, arXiv 2002.05202).

    Dims: tokens m, model k (of the input) and n (of the result, with the same extent), hidden f.

    >>> gated_mlp(tokens=4, model=5, hidden=6).macs() == 3 * 4 * 5 * 6
    True

    Raises BadInput with every fault of the arguments.
    """
    given: dict[str, object] = {"tokens": tokens, "model": model, "hidden": hidden, "dtype": dtype}
    check(GATED_MLP, given)
    return Workload(
        GATED_MLP.name,
        {"m": tokens, "k": model, "f": hidden, "n": model},
        tensors(
            dtype,
            {"X": "m k", "Wg": "k f", "Wu": "k f", "Wd": "f n", "G": "m f", "U": "m f", "H": "m f", "Y": "m n"},
        ),
        (
            contract("gate", "X Wg", "G", "m k f"),
            contract("up", "X Wu", "U", "m k f"),
            elementwise("activate", "silu_mul", "G U", "H", "m f"),
            contract("down", "H Wd", "Y", "m f n"),
        ),
        ("Y",),
        kernels=(("gate",), ("up",), ("activate",), ("down",)),
        parameters=given,
    )


_SIZES = (size("tokens", "tokens"), size("model", "model dim"), size("hidden", "hidden dim"))

GEMM_GELU_GEMM = WorkloadKind("gemm-gelu-gemm", "gelu(X W1) W2", gemm_gelu_gemm, (*_SIZES, element_type()))
GATED_MLP = WorkloadKind("gated-mlp", "(silu(X Wg) * (X Wu)) Wd", gated_mlp, (*_SIZES, element_type()))
