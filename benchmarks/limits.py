"""Searches that a time limit ends: time on the clock, CPU time, memory and the gap that is left, each case in a process of its
own, with the baselines, as ``halley optimise WORKLOAD --chip CHIP --time-limit '10 s'`` searches it.

``python -m benchmarks.limits CASE CHIP`` prints one case as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.measure import Measurement, in_new_process
from benchmarks.proofs import CASES as PROOFS
from benchmarks.proofs import peak_memory
from halley.io.chips.load import load_chip
from halley.ir.workload import Workload
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.workloads import attention, gemm

LIMIT = 10.0
"""Limit of each search [s on the clock]."""

LONGEST = 1.1 * LIMIT + 1.0
"""Until when there has to be an answer [s on the clock]: a tenth of the limit and a second later."""

MOST_MEMORY = 1024.0
"""Peak of the process [MiB]."""


@dataclass(frozen=True)
class Case:
    """What is searched, on which chips."""

    name: str
    work: Callable[[], Workload]
    chips: tuple[str, ...]


CASES: dict[str, Case] = {
    "layer": Case(PROOFS["layer"].name, PROOFS["layer"].work, ("cloud", "h100")),
    "mamba-2": Case(PROOFS["mamba-2"].name, PROOFS["mamba-2"].work, ("edge", "cloud", "h100")),
    "conv-chain": Case(PROOFS["conv-chain"].name, PROOFS["conv-chain"].work, ("edge", "cloud")),
    "decode-4": Case(PROOFS["attention-decode"].name, PROOFS["attention-decode"].work, ("h100",)),
    "decode-64": Case("a decoded token of 64 heads, 2048 keys", lambda: attention(1, 64, 64, 1, 2048, 128), ("wse-2",)),
    "gemm-long": Case("GEMM 1e9 x 16 x 16", lambda: gemm(10**9, 16, 16), ("cloud",)),
}
"""By the word that asks for it: workloads of which the search took long, without a plan or past its limit."""


def measurements() -> Iterator[Measurement]:
    for word, case in CASES.items():
        for chip in case.chips:
            found = in_new_process("-m", "benchmarks.limits", word, chip)
            name = f"limit of {LIMIT:g} s: {case.name}, {chip}"
            yield Measurement(f"{name}: clock", found["clock"], "s", LONGEST)
            yield Measurement(f"{name}: CPU time", found["seconds"], "s")
            yield Measurement(f"{name}: gap", found["gap"], "at the limit")
            yield Measurement(f"{name}: peak memory", found["peak"] / 2**20, "MiB", MOST_MEMORY)


def answer(word: str, chip: str) -> dict[str, float]:
    """Seconds on the clock and of the CPU, peak resident bytes and gap of one search."""
    problem = Problem(CASES[word].work(), load_chip(chip), time_limit=LIMIT)
    clock, start = time.perf_counter(), time.process_time()
    best = optimise(problem).best
    return {
        "clock": time.perf_counter() - clock,
        "seconds": time.process_time() - start,
        "peak": float(peak_memory()),
        "gap": best.certificate.gap,
    }


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
