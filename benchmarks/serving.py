"""Serving: one deployment, bounds, the best deployment of two systems, and the event simulation with its memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.measure import Measurement
from halley.importers.serving import lengths_of, serving_problem
from halley.serving.bounds import throughput_bounds
from halley.serving.deployment import Load
from halley.serving.plans.candidates import deployments
from halley.serving.plans.problem import ServingProblem
from halley.serving.plans.search import search
from halley.serving.served import served
from halley.serving.simulate import generated, simulate
from halley.serving.steady import arrivals

SEARCHES = {
    "Llama-3-70B on 16 H100": ("llama3-70b", "16 x h100, nvlink 8, ib", "bf16"),
    "DeepSeek-V3 on 64 H200": ("deepseek-v3", "64 x h200, nvlink 8, ib", "fp8"),
}
SLO = "ttft 1 s, tpot 30 ms"
REQUESTS = (20_000, 400_000)
"""Requests of the shorter and the longer simulation, whose memory is compared."""
SIMULATION = """
from benchmarks.serving import small, simulated
simulated(small(), {count})
"""


def measurements() -> Iterator[Measurement]:
    problem = small()
    made, lengths = deployments(problem)[0], problem.lengths
    served(made, Load(lengths, concurrency=1))  # kernels are known then
    closed = _mean(lambda: served(made, Load(lengths, concurrency=32)), 50)
    yield Measurement("a deployment with 32 users, kernels known", 1e3 * closed, "ms", 5.0)
    rate = 0.7 * served(made, Load(lengths, concurrency=256)).requests
    poisson = _mean(lambda: arrivals(made.step, made.engine_memory, rate, lengths), 20)
    yield Measurement("the same with Poisson arrivals", 1e3 * poisson, "ms", 5.0)
    model, system, weights = SEARCHES["DeepSeek-V3 on 64 H200"]
    candidates = deployments(serving_problem(model, system, lengths_of(2048, 512), SLO, weights))
    rates = candidates[0].rates  # of the model: one set for all layouts
    begun = time.process_time()
    for each in candidates:
        throughput_bounds(each, lengths, rates=rates)
    taken = time.process_time() - begun
    yield Measurement("deployments bounded by resources, per second", len(candidates) / taken, "1/s", 1e5, most=False)
    for name, (model, system, weights) in SEARCHES.items():
        asked = serving_problem(model, system, lengths_of(2048, 512), SLO, weights)
        begun = time.process_time()
        found = search(asked)
        taken = time.process_time() - begun
        yield Measurement(f"{name}: the best of {found.candidates:,} deployments", taken, "s", 10.0)
    simulated(problem, REQUESTS[0])  # loads the compiled loop
    begun = time.process_time()
    simulated(problem, REQUESTS[1])
    taken = time.process_time() - begun
    yield Measurement("requests of Llama-3-8B simulated, per second", REQUESTS[1] / taken, "1/s", 1e5, most=False)
    short, long = (_peak(count) for count in REQUESTS)
    yield Measurement(f"memory of {REQUESTS[1]:,} requests beyond that of {REQUESTS[0]:,}", long - short, "MiB", 20.0)


def small() -> ServingProblem:
    """Llama-3-8B on one H100."""
    return serving_problem("llama3-8b", "1 x h100", lengths_of(1024, 128))


def simulated(problem: ServingProblem, count: int) -> None:
    """So many requests of a problem, event by event, at about half of the capacity."""
    made = deployments(problem)[-1]
    simulate(made.step, made.engine_memory, generated(count, 10.0, (900, 1100), (110, 140)))


def _mean(call: Callable[[], object], count: int) -> float:
    """CPU time of a call [s]."""
    call()
    begun = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - begun) / count


def _peak(count: int) -> float:
    """Memory of a process that simulates so many requests [MiB]."""
    code = SIMULATION.format(count=count) + "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
