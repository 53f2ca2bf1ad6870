"""A check keeps to its time: searches that are repeated stop there, and the finding says that nothing was decided."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from halley.dfmodel.plan import DFModelProblem, best_training
from halley.errors import SearchStopped
from halley.graphs.plan import GraphProblem, plan_graph
from halley.io.chips.load import load_chip
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.kernels.machine import PEAK
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.pipeline.data_parallel import Sharded
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.search import best_training_plan
from halley.verify import verify
from halley.verify.findings import Finding, stop_after
from halley.workloads import build

RING = "8 x sn10, pcie torus 4x2"


def graph_problem(overlap: bool, fused: bool = False) -> GraphProblem:
    work = build("gemm-softmax", {"m": 64, "n": 64, "k": 64})
    return GraphProblem(work, load_system(RING), overlap=overlap, fused=fused)


def dfmodel_problem(fused: bool) -> DFModelProblem:
    return DFModelProblem(load_model("gpt3-6.7b"), load_system(RING), 8, 2048, fused=fused)


def search_again(findings: Iterator[Finding]) -> Finding:
    (found,) = (finding for finding in findings if finding.what == "search again")
    return found


@pytest.mark.parametrize(("overlap", "fused"), [(False, False), (True, False), (True, True)])
def test_a_check_of_a_sharding_stops_at_its_time(overlap: bool, fused: bool) -> None:
    plan = plan_graph(graph_problem(overlap, fused))
    assert search_again(verify(plan, limit=60.0)).passed is not False
    found = search_again(verify(plan, limit=0.0))
    assert found.passed is None
    assert "not decided within 0 s; raise --time-limit" in found.detail


@pytest.mark.parametrize("fused", [False, True])
def test_a_check_of_a_dfmodel_plan_stops_at_its_time(fused: bool) -> None:
    result = best_training(dfmodel_problem(fused))
    assert search_again(verify(result, limit=60.0)).passed is True
    found = search_again(verify(result, limit=0.0))
    assert found.passed is None
    assert "not decided within 0 s; raise --time-limit" in found.detail


def test_a_check_of_a_training_plan_stops_at_its_time() -> None:
    shape, system = load_model("gpt2-xl"), load_system("8 x h100, nvlink 8")
    fixed = Fixed(stages=1, microbatch=1, sharded=Sharded.PARAMETERS)
    result = best_training_plan(TrainingProblem(shape, system, 64, 1024, PEAK, fixed=fixed), others=0)
    assert search_again(verify(result, limit=0.0)).passed is None


def test_a_check_of_a_mapping_stops_at_its_time() -> None:
    work = build("gemm-softmax", {"m": 16, "n": 64, "k": 16})
    result = optimise(Problem(work, load_chip("edge"), baselines=False))
    assert search_again(verify(result, limit=60.0)).passed is True
    assert search_again(verify(result, limit=1e-9)).passed is None


class Stopped(Exception):
    """Raised by a test."""


@pytest.mark.parametrize("overlap", [False, True])
def test_the_search_for_a_sharding_can_be_stopped_at_many_steps(overlap: bool) -> None:
    """Not only between assignments of axes: the search for one of them asks as well."""
    asked = 0

    def tick() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise Stopped

    with pytest.raises(Stopped):
        plan_graph(graph_problem(overlap), tick)


@pytest.mark.parametrize("fused", [False, True])
def test_the_search_for_a_dfmodel_plan_can_be_stopped(fused: bool) -> None:
    asked = 0

    def tick() -> None:
        nonlocal asked
        asked += 1
        if asked == 5:
            raise Stopped

    with pytest.raises(Stopped):
        best_training(dfmodel_problem(fused), tick)


def test_time_is_counted_from_the_start_of_the_search() -> None:
    shares: list[float] = []
    tick = stop_after(0.05, lambda what, share: shares.append(share))
    tick()
    time.sleep(0.06)
    with pytest.raises(SearchStopped):
        tick()
    assert len(shares) == 1
    assert 0 <= shares[0] <= 1
