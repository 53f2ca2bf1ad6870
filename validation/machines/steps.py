"""Times passes of whole models on one GPU with PyTorch: training (forward, backward, optimizer) and decoding with a CUDA graph.

    python -m validation.machines.steps OUT.json [--device cpu] [--compiled] [--experts] [--seconds 10]

``--compiled``: layers and loss of four of the runs are compiled (`torch.compile`), so that norms, rotations and the loss are one
kernel each. ``--seconds``: passes are repeated without a pause for so long, and the second half of them is timed, at the clock
that the power limit leaves; else seven passes with pauses between, at full clock.

Needs PyTorch, nothing of Halley. The models are written out here so that it is known which kernels run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

SAMPLES = 5


@dataclass(frozen=True)
class Shape:
    """A decoder. ``gated``: RMSNorm, SwiGLU, no biases, rotated positions (Llama); else LayerNorm, GELU, biases (GPT)."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inter: int
    vocabulary: int
    gated: bool
    experts: int = 0
    """Each token is computed by ``chosen`` of so many experts; 0: one feed-forward block for all."""
    chosen: int = 0


GPT_1B = Shape("gpt-1.3b", 24, 2048, 16, 16, 8192, 51200, False)
GPT_7B_8 = Shape("gpt-6.7b, 8 layers", 8, 4096, 32, 32, 16384, 51200, False)
LLAMA_1B = Shape("llama-3.2-1b", 16, 2048, 32, 8, 8192, 128256, True)
LLAMA_8B_8 = Shape("llama-3-8b, 8 layers", 8, 4096, 32, 8, 14336, 128256, True)
LLAMA_8B = Shape("llama-3-8b", 32, 4096, 32, 8, 14336, 128256, True)
FEW_EXPERTS = Shape("2 of 8 experts of 14336, 3 layers", 3, 4096, 32, 8, 14336, 32000, True, 8, 2)
MANY_EXPERTS = Shape("8 of 128 experts of 768, 8 layers", 8, 2048, 32, 4, 768, 151936, True, 128, 8)
TINY_EXPERTS = Shape("tiny experts", 2, 64, 4, 2, 128, 256, True, 4, 2)
TINY = Shape("tiny", 2, 64, 4, 2, 128, 256, True)
TINY_GPT = Shape("tiny gpt", 2, 64, 4, 4, 128, 256, False)

TRAINED = ((GPT_1B, 2048, (1, 2, 4, 8)), (GPT_7B_8, 2048, (1, 2, 4)), (LLAMA_1B, 4096, (1, 2)), (LLAMA_8B_8, 4096, (1, 2)))
"""Model, tokens of a sequence, sequences of a microbatch."""
CONTEXTS = ((1, 1024), (1, 16384), (8, 1024), (8, 8192), (32, 1024), (32, 4096), (64, 1024), (128, 1024), (128, 2048))
COMPILED = ((GPT_7B_8, 2048, (2,)), (LLAMA_1B, 4096, (1, 2)), (LLAMA_8B_8, 4096, (1,)))
LOADED = ((GPT_1B, 2048, (4,)), (GPT_7B_8, 2048, (1, 2)), (LLAMA_1B, 4096, (1, 2)), (LLAMA_8B_8, 4096, (1, 2)))
EXPERTS = ((FEW_EXPERTS, 4096, (1, 2, 4)), (MANY_EXPERTS, 4096, (1, 2, 4)))
DECODED = ((LLAMA_8B, CONTEXTS),)
"""Model; sequences and tokens in the cache."""
PREFILLED = ((LLAMA_8B, ((1, 512), (1, 2048), (1, 8192), (4, 2048))),)


class Norm(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gated = shape.gated
        self.weight = nn.Parameter(torch.ones(shape.hidden))
        self.bias = None if shape.gated else nn.Parameter(torch.zeros(shape.hidden))

    def forward(self, x: Any) -> Any:
        size = (x.shape[-1],)
        if self.gated:
            return functional.rms_norm(x, size, self.weight, 1e-5)
        return functional.layer_norm(x, size, self.weight, self.bias)


def rotated(x: Any, cosine: Any, sine: Any) -> Any:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


class Experts(nn.Module):
    """Gated blocks, of which each token takes the ``chosen`` best; tokens are sorted by expert, and the products are grouped."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.router = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.up = nn.Parameter(torch.randn(shape.experts, shape.hidden, 2 * shape.inter) * 0.02)
        self.down = nn.Parameter(torch.randn(shape.experts, shape.inter, shape.hidden) * 0.02)

    def forward(self, x: Any) -> Any:
        flat = x.flatten(0, 1)
        weights, chosen = functional.softmax(self.router(flat).float(), -1).topk(self.shape.chosen, -1)
        order = chosen.flatten().argsort(stable=True)
        tokens = order // self.shape.chosen
        counts = torch.zeros(self.shape.experts, dtype=torch.long, device=x.device)  # bincount would wait for the device
        counts.index_add_(0, chosen.flatten(), torch.ones_like(order))
        ends = counts.cumsum(0).to(torch.int32)
        gate, value = torch._grouped_mm(flat[tokens], self.up, offs=ends).chunk(2, -1)
        made = torch._grouped_mm(functional.silu(gate) * value, self.down, offs=ends)
        weighted = made * weights.flatten()[order, None].to(made.dtype)
        return torch.zeros_like(flat).index_add(0, tokens, weighted).view_as(x)


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, bias, dim = shape, not shape.gated, shape.hidden // shape.heads
        self.before, self.between = Norm(shape), Norm(shape)
        self.qkv = nn.Linear(shape.hidden, dim * (shape.heads + 2 * shape.kv_heads), bias=bias)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=bias)
        self.experts = Experts(shape) if shape.experts else None
        if self.experts is not None:
            return
        self.up = nn.Linear(shape.hidden, shape.inter * (2 if shape.gated else 1), bias=bias)
        self.down = nn.Linear(shape.inter, shape.hidden, bias=bias)

    def forward(self, x: Any, positions: tuple[Any, Any], cache: tuple[Any, Any] | None = None) -> Any:
        """``cache``: keys and values [batch, kv_heads, context, head_dim], whose last place the new token takes."""
        s, (batch, tokens, _) = self.shape, x.shape
        dim = s.hidden // s.heads
        joined = self.qkv(self.before(x)).view(batch, tokens, s.heads + 2 * s.kv_heads, dim).transpose(1, 2)
        q, k, v = joined.split((s.heads, s.kv_heads, s.kv_heads), 1)
        if s.gated:
            q, k = rotated(q, *positions), rotated(k, *positions)
        if cache is not None:
            cache[0][:, :, -1:].copy_(k)
            cache[1][:, :, -1:].copy_(v)
            k, v = cache
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=s.heads != s.kv_heads)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, s.hidden))
        if self.experts is not None:
            return x + self.experts(self.between(x))
        up = self.up(self.between(x))
        if s.gated:
            gate, value = up.chunk(2, -1)
            active = functional.silu(gate) * value
        else:
            active = functional.gelu(up)
        return x + self.down(active)


class Model(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(self, tokens: Any, positions: tuple[Any, Any], caches: Any = None) -> Any:
        x = self.embedding(tokens)
        for index, layer in enumerate(self.layers):
            x = layer(x, positions, None if caches is None else caches[index])
        return self.norm(x)


def made(shape: Shape, device: str) -> Model:
    """The model in bf16 with random weights, made on the device."""
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        return Model(shape)


class Timer:
    """Times [s] on the device, or on the processor."""

    def __init__(self, device: str) -> None:
        self.gpu = device != "cpu"

    def __call__(self, *steps: Callable[[], object]) -> list[float]:
        """Of steps that follow each other: events between them, so that the host may run ahead."""
        if not self.gpu:
            marks = [time.perf_counter()]
            for step in steps:
                step()
                marks.append(time.perf_counter())
            return [after - before for before, after in pairwise(marks)]
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(steps) + 1)]
        torch.cuda.synchronize()
        events[0].record()
        for event, step in zip(events[1:], steps, strict=True):
            step()
            event.record()
        torch.cuda.synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(events)]

    def sustained(self, seconds: float, *steps: Callable[[], object]) -> list[float]:
        """Medians of the second half of so many seconds; the host runs at most two rounds ahead."""
        rounds, ended = list[list[Any]](), time.perf_counter() + seconds
        while time.perf_counter() < ended:
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(steps) + 1)]
            marks[0].record()
            for mark, step in zip(marks[1:], steps, strict=True):
                step()
                mark.record()
            rounds.append(marks)
            if len(rounds) > 2:
                rounds[-3][-1].synchronize()
        torch.cuda.synchronize()
        kept = rounds[len(rounds) // 2 :]
        times = [[before.elapsed_time(after) / 1e3 for before, after in pairwise(marks)] for marks in kept]
        return [statistics.median(values) for values in zip(*times, strict=True)]

    def median(self, *steps: Callable[[], object], warm_up: int = 2) -> list[float]:
        for _ in range(warm_up):
            self(*steps)
        return [statistics.median(values) for values in zip(*(self(*steps) for _ in range(SAMPLES)), strict=True)]


def table(shape: Shape, tokens: int, device: str) -> tuple[Any, Any]:
    angles = torch.rand(tokens, shape.hidden // shape.heads, device=device)
    return torch.cos(angles).to(torch.bfloat16), torch.sin(angles).to(torch.bfloat16)


def cross_entropy(logits: Any, targets: Any) -> Any:
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def train(
    shape: Shape,
    tokens: int,
    microbatches: tuple[int, ...],
    device: str,
    timer: Timer,
    compiled: bool = False,
    seconds: float = 0.0,
) -> list[dict[str, Any]]:
    model = made(shape, device)
    entropy = torch.compile(cross_entropy) if compiled else cross_entropy
    if compiled:
        for layer in model.layers:
            layer.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=device != "cpu")
    positions, rows = table(shape, tokens, device), []
    for batch in microbatches:
        given = torch.randint(shape.vocabulary, (batch, tokens), device=device)
        loss: list[Any] = [None]

        def forward(given: Any = given, loss: list[Any] = loss) -> None:
            loss[0] = entropy(model.head(model(given, positions)), given)

        def backward(loss: list[Any] = loss) -> None:
            loss[0].backward()

        def step() -> None:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        try:
            times = timer.median(forward, backward, step)
            if seconds:
                times = timer.sustained(seconds, forward, backward, step)
        except torch.OutOfMemoryError:
            break
        named = dict(zip(("forward", "backward", "optimizer"), times, strict=True))
        rows.append(
            {
                "kind": f"train{' compiled' if compiled else ''}{' under load' if seconds else ''}",
                **asdict(shape),
                "tokens": tokens,
                "batch": batch,
                **named,
            }
        )
        print(rows[-1], flush=True)
        loss[0] = None
    return rows


@torch.no_grad()
def serve(shape: Shape, decoded: Any, prefilled: Any, device: str, timer: Timer) -> list[dict[str, Any]]:
    model, rows, dim = made(shape, device), [], shape.hidden // shape.heads
    for batch, context in decoded:
        size = (batch, context, shape.kv_heads, dim)
        caches = [tuple(torch.randn(size, device=device).transpose(1, 2) for _ in range(2)) for _ in range(shape.layers)]
        given, positions = torch.randint(shape.vocabulary, (batch, 1), device=device), table(shape, 1, device)

        def step(given: Any = given, positions: Any = positions, caches: Any = caches) -> Any:
            return model.head(model(given, positions, caches)).argmax(-1)

        replay: Callable[[], object] = step
        if device != "cpu":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            replay = graph.replay
        rows.append({"kind": "decode", **asdict(shape), "batch": batch, "context": context, "time": timer.median(replay)[0]})
        print(rows[-1], flush=True)
        del caches
    for batch, tokens in prefilled:
        given, positions = torch.randint(shape.vocabulary, (batch, tokens), device=device), table(shape, tokens, device)

        def prompt(given: Any = given, positions: Any = positions) -> Any:
            return model.head(model(given, positions)[:, -1:]).argmax(-1)

        rows.append({"kind": "prefill", **asdict(shape), "batch": batch, "tokens": tokens, "time": timer.median(prompt)[0]})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--experts", action="store_true", help="models with experts, and no others")
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    gpu, timer, rows = options.device != "cpu", Timer(options.device), []
    trained = EXPERTS if options.experts else COMPILED if options.compiled else LOADED if options.seconds else TRAINED
    tried = ((TINY_EXPERTS, 32, (1, 2)),) if options.experts else ((TINY, 32, (1, 2)), (TINY_GPT, 32, (1,)))
    for shape, tokens, microbatches in trained if gpu else tried:
        rows += train(shape, tokens, microbatches, options.device, timer, options.compiled, options.seconds)
        if gpu:
            torch.cuda.empty_cache()
    tiny = ((TINY, ((2, 16),)),)
    served = (
        ()
        if options.compiled or options.seconds or options.experts
        else tuple(zip(DECODED if gpu else tiny, PREFILLED if gpu else tiny, strict=True))
    )
    for (shape, decoded), (_, prefilled) in served:
        rows += serve(shape, decoded, prefilled, options.device, timer)
    name = torch.cuda.get_device_name() if gpu else "CPU"
    said = {"device": name, "software": f"torch {torch.__version__}", "rows": rows}
    Path(options.out).write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
