"""Searches of kernels in other processes: the same answers, whatever ends them."""

from __future__ import annotations

import os
import pickle
import signal
import time
from concurrent.futures.process import BrokenProcessPool

import pytest
from tests.certificates.test_joint_plans import found, one_cluster, problem
from tests.certificates.test_searched_graphs import problem as graph_problem

from halley.errors import BadInput, Fault, SearchStopped
from halley.graphs.searched import plan_searched_graph
from halley.kernels import ahead
from halley.kernels.ahead import SearchesAhead
from halley.kernels.search import searched_kernel
from halley.kernels.searched import Product
from halley.training.search.joint import best_joint_plan

SMALL = [Product(rows, 16, 16, 1, "bf16", "bf16") for rows in (8, 16, 24, 32, 40, 48)]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes start with the first kernels."""
    monkeypatch.setattr(ahead, "START_AFTER", 0.0)


def processes(searches: SearchesAhead) -> list[int]:
    assert searches._pool is not None
    return list(searches._pool.executor._processes)


@pytest.mark.medium
def test_a_plan_is_the_same_with_any_number_of_processes(at_once: None) -> None:
    alone, together = found(), best_joint_plan(problem(one_cluster()), workers=2)
    assert (together.plan, together.cost.time) == (alone.plan, alone.cost.time)
    assert together.certificate.bound == alone.certificate.bound
    assert together.certificate.effort == alone.certificate.effort
    assert alone.problem.searched is not None
    assert together.problem.searched is not None
    assert together.problem.searched.known == alone.problem.searched.known


@pytest.mark.medium
def test_a_sharding_is_the_same_with_any_number_of_processes(at_once: None) -> None:
    alone, together = (plan_searched_graph(graph_problem(one_cluster()), workers=workers) for workers in (1, 2))
    assert (together.time, together.certificate.bound) == (alone.time, alone.certificate.bound)
    assert alone.problem.searched is not None
    assert together.problem.searched is not None
    assert together.problem.searched.known == alone.problem.searched.known


@pytest.mark.medium
def test_results_of_other_processes_and_those_that_are_not_asked_for(at_once: None) -> None:
    chip = one_cluster()
    many = [*SMALL, *(SMALL[0]._replace(depth=depth) for depth in range(32, 640, 8))]
    with SearchesAhead(chip, 2) as searches:
        searches.expect(many)
        running = processes(searches)
        assert searches.search(SMALL[1]) == searched_kernel(chip, SMALL[1])
        assert searches.search(SMALL[0]) == searched_kernel(chip, SMALL[0])
        searches.expect([])
        assert len(searches._begun) < len(many) - 2  # what had not begun is dropped
        assert searches.search(many[-1]) == searched_kernel(chip, many[-1])
    for _ in range(100):
        if not any(alive(process) for process in running):
            break
        time.sleep(0.05)
    assert not any(alive(process) for process in running)


def alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.medium
def test_a_process_that_is_killed_costs_its_search_only(at_once: None) -> None:
    chip = one_cluster()
    with SearchesAhead(chip, 2) as searches:
        searches.expect(SMALL)
        for process in processes(searches):
            os.kill(process, signal.SIGKILL)
        assert [searches.search(shape) for shape in SMALL] == [searched_kernel(chip, shape) for shape in SMALL]
        searches.expect(SMALL)
        assert searches.search(SMALL[0]) == searched_kernel(chip, SMALL[0])


@pytest.mark.medium
def test_a_limit_ends_searches_of_other_processes(at_once: None) -> None:
    with SearchesAhead(one_cluster(), 2) as searches:
        searches.expect(SMALL, limit=0.0)
        with pytest.raises(SearchStopped, match="expected a first mapping"):
            searches.search(SMALL[0], limit=10.0)


def test_errors_pass_between_processes() -> None:
    error = pickle.loads(pickle.dumps(BadInput([Fault("here", "this", "that", "do so"), Fault("there", "one", "none")])))
    assert isinstance(error, BadInput)
    assert [fault.where for fault in error.faults] == ["here", "there"]
    assert str(error) == str(BadInput(error.faults))


def test_where_no_process_can_start_this_one_searches(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a script without `if __name__ == "__main__"`."""

    def broken(workers: int) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr(ahead, "WorkerPool", broken)
    with SearchesAhead(one_cluster(), 2) as searches:
        searches.expect(SMALL)
        assert searches.search(SMALL[0]).time > 0


def test_few_searches_start_no_process() -> None:
    with SearchesAhead(one_cluster(), 2) as searches:
        searches.expect(SMALL)
        searches.search(SMALL[0])
        assert searches._pool is None
