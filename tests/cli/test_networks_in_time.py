"""Searches of whole networks and of large systems keep their time limits."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from halley.errors import Fault, SearchStopped
from halley.importers.training import training_problem
from halley.io.chips.load import load_chip
from halley.ir.neural_network import LeftOut, NetworkLayer, NeuralNetwork
from halley.mapping import network
from halley.mapping.problem import Objective, Problem
from halley.optim.deadline import Deadline, TimeIsUp
from halley.report.mapping.networks_on_chip import on_chip_lines
from halley.training.search.search import best_training_plan, bounded_search
from halley.training.search.space import training_space
from halley.workloads import build


class Clock:
    """A clock that searches move."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(network, "time", made)
    return made


def searched(
    clock: Clock, takes: dict[str, float], limit: float, extra: float = 0.0, unproven: str = "", overtime: float = 0.0
) -> tuple[list[Any], list[tuple[str, float]]]:
    """The layers, and their searches with their limits. A layer has a mapping if it has the time that it takes; those that stay
    ``unproven`` use all of their time, and the ``overtime``."""
    asked: list[tuple[str, float]] = []

    def solve(problem: Problem, label: str) -> tuple[Any, bool]:
        assert problem.time_limit is not None
        name = label.split(" (")[0]
        asked.append((name, problem.time_limit))
        clock.now += problem.time_limit + overtime if name in unproven else min(takes[name], problem.time_limit)
        if problem.time_limit < takes[name]:
            raise SearchStopped(Fault(name, "a mapping", "none"))
        return f"mapping of {name}", False

    work = build("gemm", {"m": 4, "n": 4, "k": 4})
    layers = tuple(SimpleNamespace(name=name, workload=work, count=1) for name in takes)
    whole = cast(Any, SimpleNamespace(layers=layers))
    searches = network._Searches(whole, load_chip("edge"), Objective.TIME, 0.0, limit, extra, solve, {})
    return searches.run(), asked


def test_layers_share_the_time_and_what_short_ones_leave(clock: Clock) -> None:
    found, asked = searched(clock, {"a": 1.0, "b": 2.0, "c": 6.0}, 9.0)
    assert [item.result for item in found] == ["mapping of a", "mapping of b", "mapping of c"]
    assert asked == [("a", 3.0), ("b", 4.0), ("c", 6.0)]


def test_a_layer_without_a_mapping_is_searched_again(clock: Clock) -> None:
    found, asked = searched(clock, {"a": 4.0, "b": 1.0, "c": 1.0}, 9.0)
    assert [bool(item.result) for item in found] == [True, True, True]
    assert asked[-1] == ("a", 4.0)
    assert clock.now <= 9.0


def test_time_is_left_for_a_layer_without_a_mapping(clock: Clock) -> None:
    """Also where all others use what they are given."""
    found, asked = searched(clock, {"a": 3.0, "b": 0.8, "c": 0.8, "d": 0.8}, 9.0, unproven="bcd")
    assert [bool(item.result) for item in found] == [True, True, True, True]
    assert asked[-1][0] == "a"
    assert asked[-1][1] == pytest.approx(4 * asked[1][1])
    assert clock.now <= 9.0


def test_searches_that_exceed_their_parts_leave_time_for_the_last_ones(clock: Clock) -> None:
    found, _ = searched(clock, dict.fromkeys("abcdefghij", 0.2), 12.0, unproven="abcdefghij", overtime=0.6)
    assert all(item.result for item in found)
    assert clock.now <= 12.0 + 0.6


def test_layers_that_were_not_reached_say_so_and_the_limit_is_kept(clock: Clock) -> None:
    found, _ = searched(clock, {"a": 8.0, "b": 8.0}, 4.0)
    assert [item.reason for item in found] == [network.LATE, network.LATE]
    assert clock.now <= 4.0
    clock.now = 0.0
    found, asked = searched(clock, {"a": 8.0, "b": 8.0}, 4.0, extra=20.0)
    assert all(item.result for item in found)
    assert asked[2:] == [("a", 20.0), ("b", 20.0)]


def test_the_headline_counts_layers_and_costs_what_is_left_out() -> None:
    layer = NetworkLayer("b", "Gemm", build("gemm", {"m": 4, "n": 4, "k": 4}), ("b",))
    left = LeftOut("Erf", "a test", 1, 102_400)
    whole = NeuralNetwork("net", "net.onnx", 17, "bf16", 0, (layer, replace(layer, name="c")), {}, (left,))
    chip = load_chip("edge")
    found = tuple(network.LayerResult(layer, None, "late") for layer in whole.layers)
    lines = on_chip_lines(network.NetworkResult(whole, chip, Objective.TIME, 0.0, 9.0, found))
    assert "for 0 of 2 distinct layers" in lines[0]
    took = 102_400 / chip.memories[0].read_bandwidth
    assert any(line.startswith(f"not imported, beside these totals: {1e6 * took:.4g} us, ") for line in lines)


def test_assignments_without_a_pipeline_are_no_part_of_the_space() -> None:
    problem = replace(training_problem("gpt3-1t", "100000 x h100, nvlink 8, ib", 100_000), home="dram")
    space = training_space(problem)
    assert np.array_equal(np.unique(space.assignment), np.arange(len(space.assignments)))


def test_plans_of_large_systems_keep_the_limit() -> None:
    """By time of the processor, of which a busy machine gives less: the clock ends the search."""
    problem = training_problem("gpt3-1t", "100000 x h100, nvlink 8, ib", 100_000)
    began = time.process_time()
    with pytest.raises(SearchStopped, match="in time"):
        best_training_plan(problem, limit=0.5)
    assert time.process_time() - began < 0.5 * 1.1 + 1.0


def test_the_set_up_ends_at_a_deadline() -> None:
    problem = training_problem("gpt2-xl", "8 x h100, nvlink 8", 8)
    with pytest.raises(TimeIsUp):
        bounded_search(problem, deadline=Deadline(0.0))


MILLION = "1000000 x h100, nvlink 8, ib"


def test_a_step_of_bounds_ends_with_the_deadline() -> None:
    """Bounds by kernels of 16,000 sequences on a million chips take minutes: they are ended between two products."""
    problem = replace(training_problem("gpt3-1t", "1024 x h100, nvlink 8, ib", 2048), home="dram")
    found = bounded_search(problem)
    found.floors.deadline.end = 0.0
    with pytest.raises(TimeIsUp):
        found.floors.raise_times(0, 0)
    assert not found.floors.raised


def test_a_first_plan_in_a_hurry_needs_no_bounds_by_kernels() -> None:
    problem = replace(training_problem("gpt3-6.7b", "16 x h100, nvlink 8, ib", 64), home="dram")
    found = bounded_search(problem)
    found.find_first_plan(raised=False)
    assert found.best
    assert not found.floors.raised
    assert found.bound <= best_training_plan(problem).cost.time <= found.incumbent


@pytest.mark.slow
@pytest.mark.parametrize("batch", [2048, 16_000])
def test_a_million_chips_have_a_plan_within_a_minute(batch: int) -> None:
    problem = training_problem("gpt3-1t", MILLION, batch)
    found = best_training_plan(problem, limit=60.0)
    assert found.cost.time < math.inf
    assert 0 < found.certificate.bound <= found.certificate.value
