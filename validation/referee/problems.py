"""The published list: each problem on each shipped chip that the search takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from halley.ir.workload import Workload
from halley.workloads import build

CHIPS = (
    "a100", "b200", "cloud", "edge", "eyeriss-like", "h100", "h20", "h200", "mi300x", "simba-like",
    "sn10", "sn30", "sn40l", "tpu-v4", "tpu-v4i-like", "tpu-v5e",
)  # fmt: skip
"""The shipped chips, but for `wse-2`, whose 850,000 members are more than the simulation walks one by one; the meshes of tiles,
which `validation.mesh` compares with published times; chips with more levels (`simba`, `h100-clusters`), whose searches
rarely end within the limit; chips whose file differs from that of another only in numbers (A100, H100, B200, MI300X, TPU v5e);
Gaudi and Trainium."""

DTYPES = {"simba-like": "int8", "eyeriss-like": "fp16"}
"""Element types of the chips that do not compute in bf16."""


@dataclass(frozen=True, slots=True)
class Problem:
    """``kind`` with ``sizes``, as `halley optimise` takes them; ``group``: its row in the table by kind of problem."""

    name: str
    group: str
    kind: str
    sizes: Mapping[str, object] = field(hash=False)

    def on(self, chip: str) -> Workload:
        """The workload, in the element type of the chip."""
        return build(self.kind, {**self.sizes, "dtype": DTYPES[chip]} if chip in DTYPES else self.sizes)


def _gemm(name: str, group: str, m: int, n: int, k: int, b: int = 1) -> Problem:
    return Problem(name, group, "gemm", {"m": m, "n": n, "k": k} | ({"b": b} if b > 1 else {}))


def _attention(name: str, group: str, heads: int, kv_heads: int, queries: int, keys: int, **more: object) -> Problem:
    sizes = {"batch": 1, "heads": heads, "kv_heads": kv_heads, "queries": queries, "keys": keys, "head_dim": 128}
    return Problem(name, group, "attention", sizes | more)


PROBLEMS = (
    _gemm("gemv-4096", "gemv", 1, 4096, 4096),
    _gemm("gemv-11008", "gemv", 1, 11008, 4096),
    _gemm("gemv-1024", "gemv", 1, 1024, 1024),
    _gemm("gemm-16x4096x4096", "flat gemm", 16, 4096, 4096),
    _gemm("gemm-64x4096x4096", "flat gemm", 64, 4096, 4096),
    _gemm("gemm-4096x4096x64", "flat gemm", 4096, 4096, 64),
    _gemm("gemm-128", "gemm", 128, 128, 128),
    _gemm("gemm-512", "gemm", 512, 512, 512),
    _gemm("gemm-1000", "gemm", 1000, 1000, 1000),
    _gemm("gemm-1024", "gemm", 1024, 1024, 1024),
    _gemm("gemm-2048", "gemm", 2048, 2048, 2048),
    _gemm("gemm-4096", "gemm", 4096, 4096, 4096),
    _gemm("gemm-batch", "gemm", 128, 128, 64, 32),
    Problem("gemm-softmax", "gemm and rows", "gemm-softmax", {"m": 512, "n": 1024, "k": 64}),
    Problem("gemm-softmax-2048", "gemm and rows", "gemm-softmax", {"m": 2048, "n": 2048, "k": 2048}),
    Problem("gemm-layernorm", "gemm and rows", "gemm-layernorm", {"m": 512, "n": 1024, "k": 1024}),
    Problem("gemm-rmsnorm", "gemm and rows", "gemm-rmsnorm", {"m": 64, "n": 4096, "k": 4096}),
    _attention("prefill-1024", "attention", 4, 4, 1024, 1024),
    _attention("prefill-causal-2048", "attention", 8, 8, 2048, 2048, causal=True),
    _attention("decode-4096", "attention", 32, 8, 1, 4096),
    _attention("decode-1024", "attention", 8, 8, 1, 1024),
    Problem("mlp-decode", "mlp", "gated-mlp", {"tokens": 1, "model": 4096, "hidden": 11008}),
    Problem("mlp-prefill", "mlp", "gated-mlp", {"tokens": 512, "model": 1024, "hidden": 4096}),
    Problem("gelu-mlp", "mlp", "gemm-gelu-gemm", {"tokens": 256, "model": 768, "hidden": 3072}),
    Problem("conv-chain", "conv", "conv-chain", {"height": 56, "width": 56, "channels": 64, "filters": 64, "layers": 2}),
    Problem("mamba", "ssm", "mamba", {"length": 512, "model": 768}),
    Problem("gated-scan", "ssm", "gated-scan", {"length": 2048, "channels": 1536}),
    Problem("hyena", "fft", "hyena", {"length": 512, "model": 64}),
    Problem("fft", "fft", "fft", {"rows": 64, "columns": 64}),
)
"""Every problem that is tried on every chip."""


def chosen(chips: Sequence[str], words: Sequence[str]) -> Iterator[tuple[str, Problem]]:
    """The chips and problems that are named: a problem by its group, its kind or the beginning of its name; all where none is."""
    for chip in chips or CHIPS:
        for problem in PROBLEMS:
            if not words or any(word in (problem.group, problem.kind) or problem.name.startswith(word) for word in words):
                yield chip, problem
