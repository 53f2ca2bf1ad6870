"""The cases on which AccelForge's mapper was measured, on the same hardware: energy and time of the energy-optimal plan beside
its optimum, CPU time and memory beside its mapper's. Each case is searched in a process of its own.

``python -m benchmarks.peers CASE`` prints one as JSON.

The peer's figures: objective energy, batch 1, CPU time of the mapper alone (AccelForge 1.0.467, August 2026, one process on two
cores). Its array has no skew and its transfers no ramps, so that its times are work over rates alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.measure import Measurement, in_new_process
from benchmarks.proofs import LIMIT, peak_memory
from halley.io.chips.load import load_chip
from halley.ir.workload import Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Point, Solution
from halley.workloads import attention_einsum, gemm, gpt_layer, graph

CHIP = "tpu-v4i-like"
UNFUSED = "unfused"


@dataclass(frozen=True)
class Peer:
    """What the peer's mapper finds: energy [J] and time [s] of its optimum; its CPU time [s] and memory [MiB]."""

    energy: float
    time: float
    seconds: float
    memory: float


@dataclass(frozen=True)
class Case:
    """``fused``: the best of all plans, else of those with each kernel by itself. ``target``: CPU time that the search should
    take at most [s]. ``front``: the time-energy front is quick enough to be asked for as well."""

    name: str
    work: Callable[[], Workload]
    peer: Peer
    target: float | None = None
    fused: bool = True
    front: bool = False


SOFTMAX = (
    "S[h,m,n] = Q[h,m,d] * K[h,n,d]",
    "X[h,m] = max(S[h,m,n])",
    "E[h,m,n] = exp_difference(S[h,m,n], X[h,m])",
    "Z[h,m] = sum(E[h,m,n])",
    "P[h,m,n] = E[h,m,n] / Z[h,m]",
    "O[h,m,e] = P[h,m,n] * V[h,n,e]",
)
"""Attention with softmax as four einsums."""


def _attention() -> Workload:
    return attention_einsum(96, 2048, 2048, 128)


def _four() -> Workload:
    return graph(SOFTMAX, {"h": 96, "m": 2048, "n": 2048, "d": 128, "e": 128}, "int8")


def _layer() -> Workload:
    return gpt_layer(2048, 4096, 32, 128, 16384)


HEADS = "QK, softmax, AV of 96 heads, 2048 tokens"
LAYER = "GPT-3 6.7B layer, 2048 tokens"

CASES: dict[str, Case] = {
    "gemm": Case(
        "GEMM 4096^3", lambda: gemm(4096, 4096, 4096, dtype="int8"), Peer(14.2265e-3, 0.998644e-3, 2.79, 278), 1.0, front=True
    ),
    "attention": Case(f"{HEADS}, fused", _attention, Peer(51.2265e-3, 2.24695e-3, 16.7, 364), 16.7 / 30, front=True),
    "attention-unfused": Case(f"{HEADS}, unfused", _attention, Peer(114.491e-3, 2.80954e-3, 7.9, 286), fused=False),
    "softmax": Case(f"{HEADS}, softmax as four einsums", _four, Peer(99.5910e-3, 4.49390e-3, 47.4, 692)),
    "layer-7b": Case(f"{LAYER}, fused", _layer, Peer(91.1482e-3, 6.75451e-3, 193, 852), 193 / 25),
    "layer-7b-unfused": Case(f"{LAYER}, unfused", _layer, Peer(121.422e-3, 6.92838e-3, 30.2, 381), fused=False),
    "layer-175b": Case(
        "GPT-3 175B layer, 2048 tokens, fused",
        lambda: gpt_layer(2048, 12288, 96, 128, 49152),
        Peer(693.351e-3, 56.2147e-3, 221, 1039),
        221 / 25,
    ),
}
"""By the word that asks for it. The targets are a share of the peer's time: a thirtieth for attention, a 25th for layers."""


def measurements() -> Iterator[Measurement]:
    for word, case in CASES.items():
        found = in_new_process("-m", "benchmarks.peers", word)
        name, peer = f"peer: {case.name}, {CHIP}", case.peer
        yield Measurement(f"{name}: energy", 1e3 * found["energy"], "mJ", peer=1e3 * peer.energy)
        yield Measurement(f"{name}: time of that plan", 1e3 * found["time"], "ms", peer=1e3 * peer.time)
        if "front_time" in found:
            fast = f"{name}: least time within the peer's energy"
            yield Measurement(fast, 1e3 * found["front_time"], "ms", peer=1e3 * peer.time)
            yield Measurement(f"{fast}: energy", 1e3 * found["front_energy"], "mJ", peer=1e3 * peer.energy)
        yield Measurement(f"{name}: CPU time", found["seconds"], "s", case.target, peer=peer.seconds)
        yield Measurement(f"{name}: gap", found["gap"], "", 0.0)
        yield Measurement(f"{name}: peak memory", found["peak"] / 2**20, "MiB", 1024.0, peer=peer.memory)


def solve(case: Case) -> Solution:
    """The plan of least energy."""
    problem = Problem(
        case.work(), load_chip(CHIP), Objective.ENERGY, baselines=() if case.fused else (UNFUSED,), time_limit=LIMIT
    )
    result = optimise(problem)
    return result.best if case.fused else result.baselines[0]


def within(case: Case) -> Point:
    """The fastest plan that takes no more energy than the peer's optimum, as it is printed."""
    problem = Problem(case.work(), load_chip(CHIP), Objective.ENERGY, front=True, baselines=False, time_limit=LIMIT)
    points = [point for point in optimise(problem).front if point.energy <= case.peer.energy * (1 + PRINTED)]
    return min(points, key=lambda point: point.time)


PRINTED = 5e-6
"""The peer's figures have six digits."""


def prove(word: str) -> dict[str, float]:
    """CPU seconds, peak resident bytes, gap, energy and time of one case; where it has a front, the fastest of it within the
    peer's energy."""
    case = CASES[word]
    load_chip(CHIP)  # the peer's time is that of its mapper alone, without its input files
    start = time.process_time()
    best = solve(case)
    found = {
        "seconds": time.process_time() - start,
        "peak": float(peak_memory()),
        "gap": best.certificate.gap,
        "energy": float(best.estimate.energy),
        "time": float(best.estimate.time),
    }
    if case.front:
        fast = within(case)
        found |= {"front_time": fast.time, "front_energy": fast.energy}
    return found


if __name__ == "__main__":
    print(json.dumps(prove(*sys.argv[1:])))
