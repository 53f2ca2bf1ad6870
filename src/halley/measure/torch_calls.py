"""Calls of PyTorch's kernels on random operands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from halley.measure.suite import CUDNN, FLASH, UNDER_LOAD, Case
from halley.measure.timing import Call, NotSupported

BACKENDS = {FLASH: "FLASH_ATTENTION", CUDNN: "CUDNN_ATTENTION"}


def make_call(torch: Any, case: Case, device: Any) -> Call:
    """A call of the case's kernel with new operands on the device. Raises NotSupported: PyTorch has no such kernel."""
    return _MAKERS[case.op](torch, case, device)


def _dtype(torch: Any, case: Case) -> Any:
    known = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    if case.dtype not in known:
        raise NotSupported(f"no {case.op} in {case.dtype}")
    return known[case.dtype]


def _random(torch: Any, case: Case, device: Any, *shape: int) -> Any:
    return torch.randn(shape, dtype=_dtype(torch, case), device=device)


def _gemm(torch: Any, case: Case, device: Any) -> Call:
    m, n, k = (case.sizes[name] for name in ("m", "n", "k"))
    if case.dtype != "fp8_static":
        left, right = _random(torch, case, device, m, k), _random(torch, case, device, n, k)
        out = torch.empty((m, n), dtype=left.dtype, device=device)
        return lambda: torch.mm(left, right.t(), out=out)
    if not hasattr(torch, "_scaled_mm"):
        raise NotSupported("this PyTorch has no products of fp8")
    narrow = torch.float8_e4m3fn
    left, right = (torch.randn((rows, k), dtype=torch.bfloat16, device=device).to(narrow) for rows in (m, n))
    one = torch.ones((), dtype=torch.float32, device=device)
    return lambda: torch._scaled_mm(left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _grouped(torch: Any, case: Case, device: Any) -> Call:
    if not hasattr(torch, "_grouped_mm"):
        raise NotSupported("this PyTorch has no grouped products")
    groups, m, n, k = (case.sizes[name] for name in ("batch", "m", "n", "k"))
    left, right = _random(torch, case, device, groups * m, k), _random(torch, case, device, groups, n, k)
    ends = torch.arange(1, groups + 1, dtype=torch.int32, device=device) * m
    return lambda: torch._grouped_mm(left, right.transpose(-2, -1), offs=ends)


def _attention(causal: bool, backward: bool = False) -> Callable[[Any, Case, Any], Call]:
    def make(torch: Any, case: Case, device: Any) -> Call:
        s = case.sizes
        decode = "cached" in s
        new, keys = (1, s["cached"] + 1) if decode else (s["queries"], s["queries"])
        heads, kv_heads = s["heads"], s.get("kv_heads", s["heads"])

        def operand(count: int, tokens: int) -> Any:
            # [batch, heads, tokens, head_dim], with the heads of a token side by side, as a model has them
            made = _random(torch, case, device, s["batch"], tokens, count, s["head_dim"]).transpose(1, 2)
            return made.requires_grad_() if backward else made

        q, k, v = operand(heads, new), operand(kv_heads, keys), operand(kv_heads, keys)

        def forward() -> Any:
            with _backend(torch, case.kernel):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal and not decode, enable_gqa=kv_heads != heads
                )

        if not backward:
            return forward
        out = forward()
        gradient = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)

    return make


def _backend(torch: Any, kernel: str) -> AbstractContextManager[object]:
    if kernel not in BACKENDS:
        return nullcontext()
    chosen: AbstractContextManager[object] = torch.nn.attention.sdpa_kernel(
        getattr(torch.nn.attention.SDPBackend, BACKENDS[kernel])
    )
    return chosen


def _rows(torch: Any, case: Case, device: Any) -> Call:
    rows, columns = case.sizes["rows"], case.sizes["columns"]
    functional = torch.nn.functional
    data = _random(torch, case, device, rows, columns)
    gain, bias = _random(torch, case, device, columns), _random(torch, case, device, columns)
    calls: dict[str, Call] = {
        "softmax": lambda: torch.softmax(data, -1),
        "layernorm": lambda: functional.layer_norm(data, (columns,), gain, bias),
        "rmsnorm": lambda: functional.rms_norm(data, (columns,), gain, 1e-5),
    }
    return calls[case.op]


def _streams(torch: Any, case: Case, device: Any) -> Call:
    data = _random(torch, case, device, case.sizes["rows"], case.sizes["columns"])
    out = torch.empty_like(data)
    if case.op == "add":
        other = torch.randn_like(data)
        return lambda: torch.add(data, other, out=out)
    calls: dict[str, Call] = {
        "gelu": lambda: torch.nn.functional.gelu(data),
        "silu": lambda: torch.nn.functional.silu(data),
        "copy": lambda: out.copy_(data),
    }
    return calls[case.op]


_MAKERS: dict[str, Callable[[Any, Case, Any], Call]] = {
    **dict.fromkeys(("gemm", UNDER_LOAD), _gemm),
    "grouped_gemm": _grouped,
    "attention_prefill": _attention(True),
    "attention_decode": _attention(True),
    "attention_encoder": _attention(False),
    "attention_backward": _attention(True, backward=True),
    **dict.fromkeys(("softmax", "layernorm", "rmsnorm"), _rows),
    **dict.fromkeys(("gelu", "silu", "add", "copy"), _streams),
}
