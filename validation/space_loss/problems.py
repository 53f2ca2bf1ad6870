"""The published list: 40 problems that are searched within seconds, on chips of different kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from halley.ir.workload import Workload
from halley.workloads import build

DTYPES = {"simba-like": "int8", "eyeriss-like": "fp16"}
"""Element types of the chips that do not compute in bf16."""


@dataclass(frozen=True, slots=True)
class Problem:
    """``kind`` with ``sizes``, as `halley optimise` takes them, on a ``chip``, for an ``objective``."""

    chip: str
    kind: str
    sizes: Mapping[str, object] = field(hash=False)
    objective: str = "time"

    @property
    def name(self) -> str:
        return f"{self.kind} " + " ".join(f"{key}={value}" for key, value in self.sizes.items())

    def workload(self) -> Workload:
        """The workload, in the element type of the chip."""
        return build(self.kind, {**self.sizes, "dtype": DTYPES[self.chip]} if self.chip in DTYPES else self.sizes)


def _gemm(m: int, n: int, k: int) -> tuple[str, dict[str, object]]:
    return "gemm", {"m": m, "n": n, "k": k}


def _softmax(m: int, n: int, k: int) -> tuple[str, dict[str, object]]:
    return "gemm-softmax", {"m": m, "n": n, "k": k}


def _attention(heads: int, queries: int, keys: int, head_dim: int) -> tuple[str, dict[str, object]]:
    sizes = {"heads": heads, "kv_heads": heads, "queries": queries, "keys": keys, "head_dim": head_dim}
    return "attention", {"batch": 1, **sizes}


def _conv(height: int, channels: int, filters: int, kernel: int) -> tuple[str, dict[str, object]]:
    padding = kernel // 2
    return "conv", {
        "height": height, "width": height, "channels": channels, "filters": filters, "kernel": kernel, "padding": padding
    }  # fmt: skip


PROBLEMS = (
    *(Problem("edge", *_gemm(*size)) for size in ((32, 32, 32), (64, 64, 64), (128, 128, 128), (64, 64, 256), (96, 48, 40))),
    *(Problem("edge", *_gemm(*size)) for size in ((1, 512, 512), (16, 512, 64), (512, 512, 512))),
    *(Problem("edge", *_gemm(*size), "energy") for size in ((32, 32, 32), (64, 64, 64), (96, 48, 40), (512, 512, 512))),
    *(Problem("cloud", *_gemm(*size)) for size in ((128, 128, 128), (512, 512, 512), (64, 4096, 64), (16, 1024, 1024))),
    *(Problem("cloud", *_gemm(*size), "energy") for size in ((128, 128, 128), (64, 4096, 64))),
    *(Problem(chip, *_gemm(256, 256, 256)) for chip in ("tpu-v5e", "tpu-v4i-like", "simba-like", "eyeriss-like")),
    *(Problem(chip, *_gemm(256, 256, 256), "energy") for chip in ("tpu-v5e", "eyeriss-like")),
    *(Problem(chip, *_gemm(512, 512, 512)) for chip in ("a100", "h100", "mi300x")),
    *(Problem("edge", *_softmax(*size)) for size in ((16, 32, 16), (64, 128, 64))),
    Problem("cloud", *_softmax(64, 4096, 64)),
    Problem("edge", *_softmax(64, 128, 64), "energy"),
    Problem("edge", *_attention(1, 64, 64, 32)),
    Problem("cloud", *_attention(4, 256, 256, 64)),
    Problem("edge", "gemm-layernorm", {"m": 64, "n": 128, "k": 64}),
    Problem("edge", "gemm-rmsnorm", {"m": 64, "n": 128, "k": 64}),
    Problem("cloud", "gemm-gelu-gemm", {"tokens": 64, "model": 128, "hidden": 256}),
    Problem("edge", "gated-mlp", {"tokens": 16, "model": 64, "hidden": 128}),
    Problem("edge", *_conv(14, 32, 32, 3)),
    Problem("eyeriss-like", *_conv(14, 32, 32, 3), "energy"),
    Problem("tpu-v4i-like", *_conv(14, 64, 64, 1)),
)
