"""Measured serving against Halley: static batches, closed loops, and requests with time stamps.

The table is public, but not part of this repository: ``serving/`` of the folder of data. The software that ships is fitted to
half of the (GPU, model) pairs (`validation.serving.fit`, `validation.serving.front`); the other half judges it here. TTFT of
closed loops is that of the event simulation with the benchmark's own rule: ten times as many prompts as users, all users start
at once, lengths uniform in 0.8 to 1.0 of what is stated, servers as its scripts start them (`validation.serving.recipes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from validation.outcome import Case, Line, Outcome, covered
from validation.serving.predict import Predictor, efficiency
from validation.serving.rows import END_TO_END, Measured, halves, measured
from validation.serving.speculation import curve_cases, rounds
from validation.serving.traces import SHARES, percentiles, traces

from halley.io.software import load_software
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.simulate import Simulated, generated, simulate
from halley.serving.step import StepBatch

SKIPPED = "no data: serving/end_to_end.csv lies outside the repository"

STATIC = {"vllm": "vllm-2024", "trtllm": "trtllm-2024"}
"""ServingSoftware of static batches, which were measured in 2024, by framework."""
STATIC_CHIPS = ("A100", "H100")

MEANS = {"static vllm": 0.13, "static trtllm": 0.16, "tpot dense": 0.13, "tpot moe": 0.16, "ttft": 0.50}
MEANS |= {"acceptance": 0.02, "signs": 0.1, "sn40l": 0.10, "TTFT": 0.60, "TPOT": 0.12, "end to end": 0.15}
MEANS |= {"percentiles": 0.15}
"""Mean errors that are allowed; docs/serving.md has the medians beside the targets."""
WORST = math.inf
"""A single row: some report what no machine does (a token every 70 ms where its neighbours take 8)."""
WORST_TTFT = math.inf
"""A single TTFT: where the cache is a little too small in the model, requests queue that did not."""
PROMPTS_PER_USER = 10


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """A closed loop as predicted: ``tpot``, ``ttft`` and ``rate`` of the closed form, ``simulated`` the event simulation."""

    row: Measured
    tpot: float
    ttft: float
    rate: float
    simulated: Simulated


def static_rows(folder: Path) -> tuple[list[Measured], list[Measured]]:
    """Static batches on A100 and H100, fitted and judged, with a cache of bf16 or fp8."""
    rows = [row for row in measured(folder, ("static",)) if row.gpu in STATIC_CHIPS and row.model.cache in ("bf16", "fp8")]
    return halves(row for row in rows if row.latency)


def closed_rows(folder: Path) -> tuple[list[Measured], list[Measured]]:
    """Closed loops, fitted and judged."""
    return halves(row for row in measured(folder, ("agg",)) if row.tpot)


def static_predictor() -> Predictor:
    return Predictor(lambda framework: load_software(STATIC[framework]))


def closed_predictor() -> Predictor:
    return Predictor(load_software)


def closed_loop_of(row: Measured, made: Predictor, events: bool = True) -> ClosedLoop:
    """The closed loop of a row in closed form, and by events."""
    state = made.closed(row)
    deployment = made.deployment(row)
    found = Simulated()
    if events:
        bounds = [(0.8 * length, length) for length in (row.lengths.input, row.lengths.output)]
        blocks = generated(PROMPTS_PER_USER * row.batch, 0.0, bounds[0], bounds[1])
        server = made.started(row)
        found = simulate(server.step, server.engine_memory, blocks, server.engines, row.batch)
    return ClosedLoop(row, state.tpot, state.ttft, state.rate * min(deployment.engines, row.batch), found)


def compare(data: Path | None) -> Outcome:
    """All lines, on the rows that judge."""
    if data is None or not (data / END_TO_END).is_file():
        return Outcome("serving", skipped=SKIPPED)
    made, lines = static_predictor(), []
    _, judged = static_rows(data)
    for framework in STATIC:
        cases = tuple(Case(row.where, made.static(row), row.latency or 0.0) for row in judged if row.framework == framework)
        lines.append(Line(f"static batches, {framework}", cases, MEANS[f"static {framework}"], WORST))
    loops = [closed_loop_of(row, closed_predictor_of(row)) for row in closed_rows(data)[1]]
    for kind, experts in (("dense", False), ("moe", True)):
        cases = tuple(Case(loop.row.where, loop.tpot, loop.row.tpot or 0.0) for loop in loops if loop.row.experts == experts)
        lines.append(Line(f"closed loops, TPOT, {kind}", cases, MEANS[f"tpot {kind}"], WORST))
        mine = [loop for loop in loops if loop.row.experts == experts]
        cases = tuple(Case(loop.row.where, loop.simulated.tpot.mean, loop.row.tpot or 0.0) for loop in mine)
        lines.append(Line(f"closed loops, TPOT by events, {kind}", cases, MEANS[f"tpot {kind}"], WORST))
        cases = tuple(Case(loop.row.where, loop.simulated.ttft.mean, loop.row.ttft) for loop in mine if loop.row.ttft)
        lines.append(Line(f"closed loops, TTFT by events, {kind}", cases, MEANS["ttft"], WORST_TTFT))
    lines.append(Line("tokens of a round, two numbers a curve", tuple(curve_cases(data)), MEANS["acceptance"], 0.10))
    signs = tuple(Case(name, float(found.speedup > 1), float(given > 1)) for name, found, given in rounds(data))
    lines.append(Line("whether a draft of 68M pays (1: yes)", signs, MEANS["signs"], math.inf))
    for trace in traces(data):
        shares = []
        for name, pairs in (("TTFT", trace.ttft), ("TPOT", trace.tpot), ("end to end", trace.latency)):
            cases = tuple(Case(f"request {number}", float(found), float(given)) for number, (given, found) in enumerate(pairs))
            lines.append(Line(f"requests, {trace.name}, {name}", cases, MEANS[name], WORST))
            both = zip(SHARES, percentiles(pairs), strict=True)
            shares += [Case(f"{name}, {share} % of the requests", *values) for share, values in both]
        name = f"requests, {trace.name}, percentiles of all three"
        lines.append(Line(name, tuple(shares), MEANS["percentiles"], MEANS["percentiles"]))
    lines.append(Line("16 SN40L, decode of llama3-8b", (sn40l(),), MEANS["sn40l"], MEANS["sn40l"]))
    return Outcome("serving", tuple(lines), tuple(_interval_notes(loops)))


def in_closed_form(loops: Iterable[ClosedLoop], framework: str) -> tuple[list[Case], list[Case]]:
    """TPOT and TTFT in closed form of a framework's loops."""
    mine = [loop for loop in loops if loop.row.framework == framework]
    tpot = [Case(loop.row.where, loop.tpot, loop.row.tpot or 0.0) for loop in mine]
    return tpot, [Case(loop.row.where, loop.ttft, loop.row.ttft) for loop in mine if loop.row.ttft]


def _interval_notes(loops: Sequence[ClosedLoop]) -> Iterable[str]:
    """How many of the loops lie in the intervals that answers state."""
    for framework in sorted({loop.row.framework for loop in loops}):
        tpot, ttft = (f"{100 * covered(cases):.0f} %" for cases in in_closed_form(loops, framework))
        yield f"{framework}: {tpot} of TPOT and {ttft} of TTFT in closed form lie in the interval of 80 %"


def sn40l() -> Case:
    """Decode of Llama3-8B on 16 SN40L with TP 16, as DFModel (arXiv 2412.16432, VIII-A) quotes its measurement; batch and context
    are not stated: one sequence of 1,024 tokens. Kernels reach the A100's shares, and the host takes no time."""
    system = load_system("sn40l-torus")
    made = Deployment(ServedModel(load_model("llama3-8b")), system, ReplicaLayout(16), load_software("ideal"), efficiency())
    return Case("TP 16, one sequence of 1,024 tokens", 1 / float(made.step.time(StepBatch(1, 1024))), 1100.0)


_KNOWN: dict[str, Predictor] = {}


def closed_predictor_of(row: Measured) -> Predictor:
    """One predictor for all rows."""
    return _KNOWN.setdefault("closed", closed_predictor())


def medians(pairs: Iterable[tuple[float, float]]) -> tuple[float, float, int]:
    """Median and mean of the absolute relative errors of (predicted, measured), and their number."""
    errors = np.array([abs(found / given - 1) for found, given in pairs])
    return (float(np.median(errors)), float(errors.mean()), len(errors)) if len(errors) else (float("nan"), float("nan"), 0)


def groups(rows: Sequence[Measured]) -> Mapping[tuple[object, ...], list[int]]:
    """Places of rows that differ in layout and users alone."""
    found: dict[tuple[object, ...], list[int]] = {}
    for place, row in enumerate(rows):
        key = row.gpu, row.framework, row.name, row.model.weights, row.lengths.input, row.lengths.output
        found.setdefault(key, []).append(place)
    return found


def rank_and_regret(
    rows: Sequence[Measured], predicted: Sequence[float], given: Sequence[float]
) -> tuple[float, float, float, int]:
    """Over groups of at least five configurations with throughputs per chip: median rank correlation (Spearman), mean and
    largest regret of the configuration that is predicted to be best, and the number of groups."""
    correlations, regrets = [], []
    for places in groups(rows).values():
        if len(places) < 5:
            continue
        first, second = np.array([predicted[p] for p in places]), np.array([given[p] for p in places])
        ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
        correlations.append(float(np.corrcoef(*ranks)[0, 1]))
        regrets.append(1 - float(second[int(np.argmax(first))]) / float(second.max()))
    if not correlations:
        return float("nan"), float("nan"), float("nan"), 0
    return float(np.median(correlations)), float(np.mean(regrets)), float(max(regrets)), len(correlations)


Throughput = Callable[[Measured, float], float]


def static_throughput(row: Measured, time: float) -> float:
    """Output tokens per second and chip of a static batch that takes so long."""
    return row.batch * row.lengths.output / time / row.system.chips


def closed_throughput(row: Measured, tpot: float) -> float:
    """Output tokens per second and chip of a closed loop at a TPOT."""
    return row.batch / tpot / row.system.chips
