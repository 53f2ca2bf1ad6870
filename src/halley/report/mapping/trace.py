"""The timeline as a trace that Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing) open.

The format is the JSON of "Trace Event Format" (Google, 2016): complete events (``ph`` "X") with start ``ts`` and length ``dur``
in microseconds, and metadata events (``ph`` "M") that name processes and threads. A plan is a process, a resource a thread.
Each plan is there as the formulas see it; the best one also as the event simulation runs it, tile by tile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from halley.cost.figures import resource_name
from halley.errors import BadInput
from halley.ir.axis_groups import with_axis_groups
from halley.ir.mapping import walk
from halley.ir.workload import Workload
from halley.mapping.result import Result
from halley.report.mapping.activity import resources
from halley.report.mapping.timeline import PHASES, Interval, Timeline, timeline
from halley.report.mapping.tree import path_name
from halley.simulate.simulation import Simulation, first_iterations, simulate
from halley.workloads import build

MICROSECONDS_PER_SECOND = 1e6
"""Times of a trace are in microseconds."""
DIGITS = 6
"""Decimals of a time: a picosecond."""
TASKS = 5_000
"""Most tasks of a simulation in a trace; a larger one is cut to its first iterations."""
ITERATIONS = 2
"""Of each dim's outermost loop, where a simulation is cut."""


def trace(result: Result) -> dict[str, Any]:
    """The trace of a result: the best plan with its phases and all its resources, then simulated, then the baselines."""
    chip = result.problem.chip
    plans = [(plan.name, timeline(chip, plan.plan, plan.estimate)) for plan in (result.best, *result.baselines)]
    return trace_of([plans[0], *simulated(result), *plans[1:]])


def simulated(result: Result) -> list[tuple[str, Timeline]]:
    """The best plan tile by tile: the whole if that is short enough, else its first iterations; nothing if these are too long."""
    chip, best = result.problem.chip, result.best
    workload = _workload(result)
    for name, part in (
        (f"{best.name}, simulated", workload),
        (f"{best.name}, simulated, first iterations", first_iterations(workload, best.plan, ITERATIONS)),
    ):
        try:
            return [(name, _timeline(result, simulate(part, chip, best.plan, TASKS)))]
        except BadInput:  # more tasks than the limit
            continue
    return []


def _workload(result: Result) -> Workload:
    """The variant that the best plan maps."""
    asked = result.problem.workload
    if "variant" not in asked.parameters or asked.parameters["variant"] == result.best.variant:
        return asked
    return build(asked.name, {**asked.parameters, "variant": result.best.variant})


def _timeline(result: Result, made: Simulation) -> Timeline:
    chip = with_axis_groups(result.problem.chip, (node for _, node in walk(result.best.plan)))
    order = [resource_name(resource) for resource in resources(chip)]
    found = []
    for item in made.intervals:
        lane = resource_name(item.server.resource) + (f" | {item.server.place}" if item.server.place else "")
        found.append(Interval(lane, item.start, item.stop, item.name, item.path))
    lanes = sorted({item.lane for item in found}, key=lambda lane: (order.index(lane.split(" | ")[0]), lane))
    return Timeline(made.time, (), tuple(sorted(found)), tuple(lanes))


def trace_of(plans: Iterable[tuple[str, Timeline]]) -> dict[str, Any]:
    """The trace of named timelines. Events of one thread are in order of start, outer before inner."""
    events: list[dict[str, Any]] = []
    for process, (name, shown) in enumerate(plans, 1):
        events += [_named("process_name", process, 0, name=name), _named("process_sort_index", process, 0, sort_index=process)]
        lanes = (*dict.fromkeys(phase.lane for phase in shown.phases), *shown.lanes)
        for thread, lane in enumerate(lanes, 1):
            events.append(_named("thread_name", process, thread, name=lane))
            events.append(_named("thread_sort_index", process, thread, sort_index=thread))
            spans = [item for item in (*shown.phases, *shown.intervals) if item.lane == lane]
            spans.sort(key=lambda item: (item.start, -item.stop, item.path))
            events += [_complete(span, process, thread) for span in spans]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"source": "Halley"},
    }


def _named(kind: str, process: int, thread: int, **arguments: str | int) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": arguments}


def _complete(span: Interval, process: int, thread: int) -> dict[str, Any]:
    # both ends are rounded, not the length, so that neighbours neither overlap nor drift apart
    start, stop = (round(time * MICROSECONDS_PER_SECOND, DIGITS) for time in (span.start, span.stop))
    arguments = {"node": path_name(span.path)} | ({"tensor": span.tensor} if span.tensor else {})
    category = "phase" if span.lane.startswith(PHASES) else "work"
    return {
        "ph": "X",
        "name": span.name,
        "cat": category,
        "pid": process,
        "tid": thread,
        "ts": start,
        "dur": round(stop - start, DIGITS),
        "args": arguments,
    }
