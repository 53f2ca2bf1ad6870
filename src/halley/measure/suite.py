"""The kernels that `halley measure` times, and what each needs: operations and bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from halley.errors import BadInput, Fault, did_you_mean
from halley.kernels.library.formats import FORMATS

FLASH, CUDNN, DEFAULT = "flash", "cudnn", "default"
"""Attention kernels of PyTorch: FlashAttention-2, that of cuDNN, and what PyTorch chooses."""
ATTENTION = ("attention_prefill", "attention_decode", "attention_encoder", "attention_backward")
UNDER_LOAD = "gemm_under_load"
"""A product that is repeated for seconds, at the clock that the power limit leaves."""
PRODUCTS = ("gemm", "grouped_gemm", UNDER_LOAD)
ROWS = ("softmax", "layernorm", "rmsnorm")
STREAMS = ("gelu", "silu", "add", "copy")
CASE_STRIDE = 37
"""Cases between one that is timed and the next, about: a run that stops early has timed cases of all parts of the suite."""
ONE_READ, TWO_READ = 2, 3
"""Tensors that a stream moves: one in and one out, or two in."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel to time: an operation of `OPS`, its sizes, the number format of its operands, and of attention the kernel."""

    op: str
    sizes: Mapping[str, int] = field(hash=False)
    dtype: str = "bf16"
    kernel: str = ""

    def __str__(self) -> str:
        said = ", ".join(f"{name} {value}" for name, value in self.sizes.items())
        return f"{self.op} ({', '.join(filter(None, (self.dtype, self.kernel, said)))})"


def operations(case: Case) -> float:
    """Multiplications and additions of the products; of a stream, its elements.

    >>> operations(Case("gemm", {"m": 2, "n": 3, "k": 4}))
    48.0
    """
    s = case.sizes
    if case.op in PRODUCTS:
        return 2.0 * s.get("batch", 1) * s["m"] * s["n"] * s["k"]
    if case.op == "attention_decode":
        return 4.0 * s["batch"] * s["heads"] * s["head_dim"] * (s["cached"] + 1)
    if case.op in ATTENTION:
        square = 4.0 * s["batch"] * s["heads"] * s["head_dim"] * s["queries"] ** 2
        return {"attention_encoder": square, "attention_prefill": square / 2, "attention_backward": 1.25 * square}[case.op]
    return float(s["rows"] * s["columns"])


def operand_bytes(case: Case) -> float:
    """Bytes [B] of all tensors of a call, results included."""
    s, element = case.sizes, FORMATS[case.dtype].activation
    if case.op in PRODUCTS:
        return s.get("batch", 1) * (element * (s["m"] * s["k"] + s["k"] * s["n"]) + max(element, 2) * s["m"] * s["n"])
    if case.op in ATTENTION:
        keys = s["cached"] + 1 if case.op == "attention_decode" else s["queries"]
        queries = 1 if case.op == "attention_decode" else s["queries"]
        heads, kv_heads = s["heads"], s.get("kv_heads", s["heads"])
        forward = element * s["batch"] * s["head_dim"] * (2 * heads * queries + 2 * kv_heads * keys)
        return 2.5 * forward if case.op == "attention_backward" else forward
    return element * s["rows"] * s["columns"] * (TWO_READ if case.op == "add" else ONE_READ)


_WEIGHTS = (
    (4096, 4096),
    (6144, 4096),
    (14336, 4096),
    (4096, 14336),
    (8192, 8192),
    (28672, 8192),
    (8192, 28672),
    (1280, 8192),
    (8192, 1024),
    (12288, 12288),
    (49152, 12288),
    (2048, 2048),
    (512, 7168),
    (128256, 4096),
)
"""Columns and depth of products: weights of models of 1 to 175 billion parameters, whole and divided over eight chips."""
_TOKENS = (1, 8, 32, 64, 128, 192, 256, 512, 1024, 2048, 4096, 8192, 16384)
_HEADS = ((32, 8, 128), (64, 8, 128), (32, 32, 128), (8, 1, 128), (16, 16, 64))
"""Heads, heads of keys, and the dimension of a head."""
_PROMPTS = ((1, 256), (1, 1024), (1, 4096), (1, 16384), (4, 512), (4, 2048), (4, 8192), (16, 1024), (32, 128))
_TRAINED = ((1, 1024), (1, 4096), (2, 8192), (8, 2048), (16, 512))
_DECODED = (
    *((1, 1024), (1, 16384), (1, 131072), (8, 2048), (8, 32768)),
    *((32, 1024), (32, 8192), (128, 512), (128, 4096)),
)
"""Sequences, and tokens of each (in the cache, with the new one), of prompts, of training and of decoding."""


def _gemms() -> Iterator[Case]:
    for n, k in _WEIGHTS:
        for m in _TOKENS:
            yield Case("gemm", {"m": m, "n": n, "k": k})
    for n, k in _WEIGHTS[::2]:
        for m in _TOKENS[1::2]:
            yield Case("gemm", {"m": m, "n": n, "k": k}, "fp8_static")
    for side in (128, 256, 512, 1024, 2048, 4096, 8192):
        yield Case("gemm", {"m": side, "n": side, "k": side})


def _grouped() -> Iterator[Case]:
    for experts, n, k in ((8, 14336, 4096), (8, 4096, 14336), (64, 2048, 2048), (128, 1536, 4096)):
        for m in (16, 64, 256, 1024):
            yield Case("grouped_gemm", {"batch": experts, "m": m, "n": n, "k": k})


def _attention() -> Iterator[Case]:
    for heads, kv_heads, dim in _HEADS:
        shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": dim}
        for kernel in (FLASH, CUDNN):
            for batch, queries in _PROMPTS:
                yield Case("attention_prefill", {"batch": batch, "queries": queries, **shape}, kernel=kernel)
            for batch, queries in _TRAINED:
                yield Case("attention_backward", {"batch": batch, "queries": queries, **shape}, kernel=kernel)
        for batch, context in _DECODED:
            cached = context - 1
            yield Case("attention_decode", {"batch": batch, "cached": cached, **shape}, kernel=FLASH)
    for heads, dim in ((12, 64), (16, 64), (16, 128)):
        for kernel in (FLASH, CUDNN):
            for batch, queries in ((1, 512), (8, 512), (64, 256), (2, 4096)):
                sizes = {"batch": batch, "queries": queries, "heads": heads, "head_dim": dim}
                yield Case("attention_encoder", sizes, kernel=kernel)


def _rows() -> Iterator[Case]:
    for op in ROWS:
        for columns in (1024, 4096, 8192, 32768):
            for rows in (1, 32, 512, 4096, 32768):
                yield Case(op, {"rows": rows, "columns": columns})
    for op in STREAMS:
        for rows in (16, 256, 1024, 4096, 16384, 65536, 262144):
            yield Case(op, {"rows": rows, "columns": 4096})


def _load() -> Iterator[Case]:
    yield Case(UNDER_LOAD, {"m": 8192, "n": 8192, "k": 8192})


GROUPS = {"gemm": _gemms, "grouped": _grouped, "attention": _attention, "rows": _rows, "load": _load}
"""Parts of the suite by the name that ``--only`` takes. rows: softmax, norms, elementwise functions, copies; load: a product
that is repeated for seconds, which comes last since it makes the device hot."""


def suite(only: Iterable[str] = (), most_operations: float = float("inf"), most_bytes: float = float("inf")) -> tuple[Case, ...]:
    """The cases, each part spread over the whole: a run that ends early has some of each.

    ``only``: names of `GROUPS`, all by default. Larger cases than ``most_operations`` and ``most_bytes`` [B] are left out.
    Raises BadInput: no such group; nothing small enough.
    """
    names = tuple(only) or tuple(GROUPS)
    faults = [
        Fault("measure: only", f"parts of the suite ({', '.join(GROUPS)})", repr(name), did_you_mean(name, GROUPS))
        for name in names
        if name not in GROUPS
    ]
    if faults:
        raise BadInput(faults)
    every = {str(case): case for name in GROUPS if name in names for case in GROUPS[name]()}.values()
    kept = [case for case in every if operations(case) <= most_operations and operand_bytes(case) <= most_bytes]
    if not kept:
        raise BadInput(Fault("measure", "kernels below the limit of operations", f"a limit of {most_operations:g}", "raise it"))
    stride = next(step for step in range(CASE_STRIDE, CASE_STRIDE + len(kept) + 1) if math.gcd(step, len(kept)) == 1)
    return tuple(sorted((kept[index * stride % len(kept)] for index in range(len(kept))), key=lambda case: case.op == UNDER_LOAD))
