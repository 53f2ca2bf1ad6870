"""CPU time and memory to the proven optimum, each case in a process of its own.

``python -m benchmarks.proofs CASE CHIP`` prints one case as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Measurement, in_new_process
from halley.io.chips.load import load_chip
from halley.ir.workload import Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.workloads import (
    attention,
    conv_chain,
    gated_mlp,
    gemm,
    gemm_layernorm,
    gemm_softmax,
    mamba_2,
    mla,
    moe,
    transformer_layer,
)

LIMIT = 120.0
"""Seconds on the clock after which a search is stopped: one that does not end until then is shown with its gap."""


@dataclass(frozen=True)
class Case:
    """What is searched, on which chips, and the CPU time that it should take at most [s]; None where none is asked for.
    ``limit`` of the search [s on the clock]; ``gap``: the largest that it should leave, None where none is asked for."""

    name: str
    work: Callable[[], Workload]
    target: float | None = None
    chips: tuple[str, ...] = ("edge", "cloud")
    objective: Objective = Objective.TIME
    front: bool = False
    limit: float = LIMIT
    gap: float | None = None

    @property
    def largest_gap(self) -> float | None:
        return self.gap if self.target is None else 0.0


HEAD_GROUP = "self-attention of a Llama-3-8B head group, 2048 tokens"


def _head_group() -> Workload:
    return attention(1, 4, 1, 2048, 2048, 128, causal=True)


CASES: dict[str, Case] = {
    "gemm": Case("GEMM 4096^3", lambda: gemm(4096, 4096, 4096), 1.0),
    "gemm-softmax": Case("GEMM-Softmax 4096^3", lambda: gemm_softmax(4096, 4096, 4096), 2.0),
    "gemm-softmax-front": Case("front of GEMM-Softmax 4096^3", lambda: gemm_softmax(4096, 4096, 4096), 5.0, front=True),
    "gemm-softmax-edp": Case(
        "energy x time of GEMM-Softmax 4096^3", lambda: gemm_softmax(4096, 4096, 4096), objective=Objective.EDP
    ),
    "attention": Case(HEAD_GROUP, _head_group, 6.0),
    "attention-edp": Case(f"energy x time of {HEAD_GROUP}", _head_group, objective=Objective.EDP),
    "gemm-layernorm": Case("GEMM-LayerNorm 4096^3", lambda: gemm_layernorm(4096, 4096, 4096)),
    "gated-mlp": Case("gated MLP of Llama-3-8B, 2048 tokens", lambda: gated_mlp(2048, 4096, 14336)),
    "moe": Case("mixture of experts of Mixtral-8x7B, 2048 tokens", lambda: moe(2048, 4096, 14336, experts=8, top_k=2)),
    "mla": Case(
        "latent attention of DeepSeek-V3, a decoded token of 128 heads, 4096 keys",
        lambda: mla(128, 1, 4096, 512, 128, 64, value_dim=128),
    ),
    "layer": Case(
        "layer of Llama-3-8B, 2048 tokens",
        lambda: transformer_layer(tokens=2048, model=4096, heads=32, kv_heads=8, head_dim=128, hidden=14336),
        chips=("cloud", "h100"),
        limit=60.0,
        gap=0.05,
    ),
    "mamba-2": Case(
        "block of Mamba-2, 2048 tokens",
        lambda: mamba_2(chunks=8, chunk=256, model=2048, heads=64, head_dim=64, state=128),
        chips=("edge",),
        limit=60.0,
        gap=0.1,
    ),
    "conv-chain": Case(
        "three convolutions of 64 channels, 56 x 56",
        lambda: conv_chain(height=56, width=56, channels=64, filters=64, layers=3),
        limit=60.0,
        gap=0.05,
    ),
    "gemm-softmax-small": Case("GEMM-Softmax 256 x 512 x 64", lambda: gemm_softmax(256, 512, 64), chips=("a100",)),
    "attention-decode": Case(
        "a decoded token of 4 heads, 2048 keys", lambda: attention(1, 4, 4, 1, 2048, 128), 10.0, chips=("h100",)
    ),
    "gemm-unequal": Case("GEMM 145408 x 2048 x 64", lambda: gemm(145408, 2048, 64), 10.0, chips=("edge", "cloud", "h100")),
}
"""By the word that asks for it."""


def measurements() -> Iterator[Measurement]:
    for word, case in CASES.items():
        for chip in case.chips:
            found = in_new_process("-m", "benchmarks.proofs", word, chip)
            yield Measurement(f"proof: {case.name}, {chip}", found["seconds"], "s", case.target)
            yield Measurement(f"proof: gap of {case.name}, {chip}", found["gap"], "", case.largest_gap)
            yield Measurement(f"proof: value of {case.name}, {chip}", found["value"], "")
            if "size" in found:
                yield Measurement(f"proof: mappings of {case.name}, {chip}", found["size"], "")
            memory = None if case.largest_gap is None else 1024.0
            yield Measurement(f"proof: peak memory of {case.name}, {chip}", found["peak"] / 2**20, "MiB", memory)


def prove(word: str, chip: str) -> dict[str, float]:
    """CPU seconds, peak resident bytes, gap, value and, if the search ended by itself, size of the space of one search
    without baselines."""
    case = CASES[word]
    problem = Problem(case.work(), load_chip(chip), case.objective, front=case.front, baselines=False, time_limit=case.limit)
    start = time.process_time()
    result = optimise(problem)
    seconds = time.process_time() - start
    certificate = result.best.certificate
    size = {} if certificate.size is None else {"size": float(certificate.size)}
    return {"seconds": seconds, "peak": peak_memory(), "gap": certificate.gap, "value": certificate.value, **size}


def peak_memory() -> int:
    """Largest resident size of this process [B]."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage counts what the parent had at the fork as well; this does not
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    print(json.dumps(prove(*sys.argv[1:])))
