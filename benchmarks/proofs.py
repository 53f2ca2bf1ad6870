"""Time and memory to the proven optimum, each case in a process of its own.

``python -m benchmarks.proofs CASE CHIP`` prints one case as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Measurement, in_new_process
from halley.io.load import load_chip
from halley.ir.workload import Workload
from halley.search.optimise import optimise
from halley.search.problem import Problem
from halley.workloads import attention, gemm, gemm_softmax

CASES: dict[str, tuple[str, Callable[[], Workload], float]] = {
    "gemm": ("GEMM 4096^3", lambda: gemm(4096, 4096, 4096), 1.0),
    "gemm-softmax": ("GEMM-Softmax 4096^3", lambda: gemm_softmax(4096, 4096, 4096), 5.0),
    "attention": (
        "self-attention of a Llama-3-8B head group, 2048 tokens",
        lambda: attention(1, 4, 1, 2048, 2048, 128, causal=True),
        15.0,
    ),
}
"""By name: what it is, the workload, the time that it should take at most [s]."""

CHIPS = ("edge", "cloud")


def measurements() -> Iterator[Measurement]:
    for case, (name, _, target) in CASES.items():
        for chip in CHIPS:
            found = in_new_process("-m", "benchmarks.proofs", case, chip)
            yield Measurement(f"proof: {name}, {chip}", found["seconds"], "s", target)
            yield Measurement(f"proof: gap of {name}, {chip}", found["gap"], "", 0.0)
            yield Measurement(f"proof: peak memory of {name}, {chip}", found["peak"] / 2**20, "MiB")


def prove(case: str, chip: str) -> dict[str, float]:
    """Seconds, peak resident bytes and gap of one search without baselines."""
    problem = Problem(CASES[case][1](), load_chip(chip), baselines=False)
    start = time.perf_counter()
    result = optimise(problem)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak": peak_memory(), "gap": result.best.certificate.gap}


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
