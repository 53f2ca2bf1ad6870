"""The schedule agrees with every total of the estimate, and the trace with its format."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cli.running import halley
from tests.reference.generate import grown

import halley.report.mapping.trace as tracing
from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.cost.figures import resource_name
from halley.ir.hardware import Chip
from halley.ir.mapping import Node, Overlap, Parallel, Pipeline, Sequence, children, walk
from halley.ir.text import parse
from halley.mapping.result import Result
from halley.report.mapping.activity import totals
from halley.report.mapping.timeline import PHASES, Timeline, timeline
from halley.report.mapping.trace import simulated, trace, trace_of
from halley.report.mapping.tree import phase_paths
from halley.simulate.simulation import simulate


def check_schedule(chip: Chip, tree: Node, cost: Estimate) -> Timeline:
    """What holds for every schedule."""
    shown = timeline(chip, tree, cost)
    time, near = float(cost.time), 1e-9 * float(cost.time)
    lanes: dict[str, float] = defaultdict(float)
    for before, after in pairwise(shown.intervals):
        assert before.lane != after.lane or before.stop <= after.start + near, "one thing at a time"
    for interval in shown.intervals:
        assert -near <= interval.start < interval.stop <= time + near
        lanes[interval.lane] += interval.stop - interval.start
    busy = {resource_name(resource): float(value) for resource, value in cost.busy.items() if value > 0}
    if any(isinstance(node, Parallel | Pipeline) for _, node in walk(tree)):
        # members of their own have lanes of their own; what is busy is the most of them
        shares: dict[str, float] = defaultdict(float)
        for lane, length in lanes.items():
            shares[lane.split(" | ")[0]] += length
        assert set(shares) == set(busy)
        assert all(shares[name] >= value * (1 - 1e-9) for name, value in busy.items())
    else:
        assert lanes == pytest.approx(busy, rel=1e-9)
    check_phases(tree, cost, shown)
    return shown


def check_phases(tree: Node, cost: Estimate, shown: Timeline) -> None:
    phases = {phase.path: phase for phase in shown.phases}
    kinds = dict(walk(tree))
    near = 1e-9 * float(cost.time)
    assert set(phases) == phase_paths(tree)
    for path, phase in phases.items():
        assert phase.stop - phase.start == pytest.approx(float(cost.nodes[path].time), abs=near)
        around = phases[max((other for other in phases if other != path and path[: len(other)] == other), key=len, default=path)]
        assert around.start - near <= phase.start <= phase.stop <= around.stop + near
        node = kinds[path]
        while len(children(node)) == 1 and not isinstance(node, Sequence | Overlap | Parallel | Pipeline):
            node, path = children(node)[0], (*path, 0)
        inner = [phases[(*path, index)] for index in range(len(children(node)))] if children(node) else []
        for first, second in pairwise(inner):
            match node:
                case Sequence():
                    assert second.start == pytest.approx(first.stop, abs=near)
                case Overlap() | Parallel():
                    assert second.start == first.start
                case Pipeline():
                    assert second.start >= first.start


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None, database=None)
def test_schedules_of_random_mappings(seed: int) -> None:
    _, workload, chip, tree = grown(seed, 16)
    cost = evaluate(workload, chip, tree)
    if float(cost.time) > 0:
        check_schedule(chip, tree, cost)


def test_schedules_of_the_made_plans(result: Result) -> None:
    for plan in (result.best, *result.baselines):
        shown = check_schedule(result.problem.chip, plan.plan, plan.estimate)
        assert {"gemm", "max", "divide"} <= {phase.name for phase in shown.phases}
        assert {interval.tensor for interval in shown.intervals if interval.lane == "bus dram"} >= {"A", "B"}
        engine = [interval.name for interval in shown.intervals if interval.lane == "vector engine"]
        assert engine == ["max", "exp", "sum", "divide"]


def test_a_pipeline_has_lanes_for_each_share(result: Result) -> None:
    """Two stages on one cluster each: the longest goes on while the other works, whose last tile comes after it."""
    chip, workload = result.problem.chip, result.problem.workload
    text = """
hold dram: A B P
  hold glb: A B S P
    pipeline m by 4 over cluster.x shares 1 1
      hold obuf: S
        hold wbuf: B
          hold ibuf: A
            compute gemm
      hold obuf: S E P mx z
        sequence
          compute max
          compute exp
          compute sum
          compute divide
"""
    tree = parse(text)
    cost = evaluate(workload, chip, tree)
    shown = check_schedule(chip, tree, cost)
    stages = {phase.lane: phase for phase in reversed(shown.phases) if phase.lane != PHASES}  # the outermost of each lane
    first, second = stages[f"{PHASES} | 1 of 2"], stages[f"{PHASES} | 2 of 2"]
    assert first.start < second.start < first.stop < second.stop
    tile = (float(cost.nodes[(0, 0)].work) - float(cost.nodes[(0, 0, 0)].time)) / float(cost.nodes[(0, 0, 1)].time)
    assert tile == pytest.approx(1 / 4)
    assert second.stop - first.stop == pytest.approx((second.stop - second.start) * tile)
    assert {"matrix engine | 1 of 2", "vector engine | 2 of 2", "bus dram"} <= set(shown.lanes)


def test_totals_of_the_root_are_those_of_the_estimate(result: Result) -> None:
    cost = result.best.estimate
    root = totals(result.problem.chip, result.best.plan, cost)[()]
    assert root.energy == pytest.approx(float(cost.energy) - float(cost.energy_by["static"]), rel=1e-12)
    for memory in result.problem.chip.memories:
        assert root.moved([memory.name]) == pytest.approx(float(cost.traffic(memory.name)), rel=1e-12)


# --- trace ----------------------------------------------------------------------------------------------------------------


def check_trace(document: object) -> dict[tuple[int, int], list[dict[str, object]]]:
    """The rules of the trace event format that a reader relies on; complete events by thread."""
    assert isinstance(document, dict)
    assert document["displayTimeUnit"] in ("ms", "ns")
    threads: dict[tuple[int, int], list[dict[str, object]]] = defaultdict(list)
    named: set[tuple[int, int]] = set()
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        key = (event["pid"], event["tid"])
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            kind, value = next(iter(event["args"].items()))
            assert isinstance(value, str if kind == "name" else int)
            named |= {key} if event["name"] == "thread_name" else set()
        else:
            assert event["ph"] == "X"
            assert {type(event[name]) for name in ("ts", "dur")} <= {int, float}
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            threads[key].append(event)
    assert set(threads) <= named
    for events in threads.values():
        around: list[float] = []
        last = 0.0
        for event in events:
            start, stop = event["ts"], event["ts"] + event["dur"]
            assert start >= last, "in order of start"
            last = start
            while around and around[-1] <= start + 1e-6:
                around.pop()
            # a reader draws what overlaps on one thread as nested, so that it has to be nested
            assert not around or stop <= around[-1] + 2e-6
            around.append(stop)
    return threads


def test_the_trace_follows_its_format_and_adds_up(result: Result) -> None:
    document = json.loads(json.dumps(trace(result), allow_nan=False))
    threads = check_trace(document)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    plans = (result.best, *result.baselines)
    processes = {e["args"]["name"]: e["pid"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert list(processes) == ["best", "best, simulated", *(plan.name for plan in result.baselines)]
    for plan in plans:
        process = processes[plan.name]
        for resource, busy in plan.estimate.busy.items():
            (key,) = (
                (key for key, name in names.items() if key[0] == process and name == resource_name(resource)) if busy else (None,)
            )
            if key:
                total = sum(float(str(event["dur"])) for event in threads[key])
                assert total == pytest.approx(float(busy) * 1e6, rel=1e-6, abs=1e-4)
        (phases,) = (key for key, name in names.items() if key[0] == process and name == PHASES)
        whole = threads[phases][0]
        assert (whole["ts"], whole["dur"]) == (0, pytest.approx(float(plan.estimate.time) * 1e6, abs=1e-6))


def test_a_simulation_in_the_trace(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tile by tile: as many fills of B as there are tiles of it; and cut where there are too many tasks."""
    made = simulate(result.problem.workload, result.problem.chip, result.best.plan)
    ((name, shown),) = simulated(result)
    assert (name, shown.time) == ("best, simulated", made.time)
    for server, busy in made.busy.items():
        lane = resource_name(server.resource)
        assert sum(item.stop - item.start for item in shown.intervals if item.lane == lane) == pytest.approx(busy, rel=1e-9)
    assert sum(item.lane == "matrix engine" for item in shown.intervals) == (64 // 8) * (256 // 128)
    monkeypatch.setattr(tracing, "TASKS", made.tasks - 1)
    ((name, part),) = simulated(result)
    assert name == "best, simulated, first iterations"
    assert sum(item.lane == "matrix engine" for item in part.intervals) < (64 // 8) * (256 // 128)
    monkeypatch.setattr(tracing, "TASKS", 1)
    assert simulated(result) == []


@given(st.integers(0, 2**32 - 1))
@example(8948)  # stages that overlap within one that overlaps
@settings(max_examples=10, deadline=None, database=None)
def test_traces_of_random_mappings(seed: int) -> None:
    _, workload, chip, tree = grown(seed, 16)
    cost = evaluate(workload, chip, tree)
    if float(cost.time) > 0:
        check_trace(trace_of([("plan", timeline(chip, tree, cost))]))


def test_the_command_writes_a_trace(result_file: Path, empty_folder: Path, result: Result) -> None:
    outcome = halley("report", str(result_file), "--trace", "trace.json")
    assert outcome.code == 0, outcome.err
    check_trace(json.loads((empty_folder / "trace.json").read_text()))
    assert json.loads((empty_folder / "trace.json").read_text()) == json.loads(json.dumps(trace(result)))
    assert "perfetto" in outcome.err
    small = ("gemm-layernorm", "--m", "1", "--n", "64", "--k", "4", "--chip", "edge", "--no-baselines")
    outcome = halley("optimise", *small, "--no-save", "--trace", "solved.json")
    assert outcome.code == 0, outcome.err
    check_trace(json.loads((empty_folder / "solved.json").read_text()))
    assert halley("optimise", *small, "--trace", "solved.json").code == 1
    assert not (empty_folder / "result.json").exists()
    again = halley("report", str(result_file), "-o", "other.html", "--trace", "trace.json")
    assert again.code == 1
    assert "--force" in again.err
    assert not (empty_folder / "other.html").exists()
