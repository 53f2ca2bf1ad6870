"""Searches on a Ray cluster of this machine: the answers are those of one process, and a lost worker costs nothing but time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest
from tests.unit.sweep_studies import SMALL

from halley.errors import BadInput
from halley.sweeps.cluster import RayExecutor
from halley.sweeps.load import parse_study
from halley.sweeps.run import DesignSweep

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayExecutor]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield RayExecutor()
    ray.shutdown()


def killed_once(mark: str) -> str:
    """A task whose first worker is killed in the middle."""
    if not Path(mark).exists():
        Path(mark).write_text("begun")
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def always_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refused() -> None:
    raise ValueError("no")


def test_the_answers_are_those_of_one_process(cluster: RayExecutor) -> None:
    assert cluster.workers == 2
    study = parse_study(SMALL)
    there = DesignSweep(study, workers=cluster.workers, executor=cluster).run()
    here = DesignSweep(study, workers=0).run()
    assert there.front == here.front
    assert [outcome.value for outcome in there.outcomes] == [outcome.value for outcome in here.outcomes]


def test_a_task_of_a_killed_worker_starts_again(cluster: RayExecutor, tmp_path: Path) -> None:
    assert cluster.submit(killed_once, str(tmp_path / "mark")).result(timeout=120) == "done"


def test_a_task_that_kills_each_worker_is_told(cluster: RayExecutor) -> None:
    with pytest.raises(BrokenExecutor):
        cluster.submit(always_killed).result(timeout=240)


def test_errors_of_tasks_are_their_own(cluster: RayExecutor) -> None:
    with pytest.raises(ValueError, match="no"):
        cluster.submit(refused).result(timeout=120)


def test_closing_ends_what_runs(cluster: RayExecutor) -> None:
    running = cluster.submit(time.sleep, 1000.0)
    time.sleep(1.0)
    cluster.shutdown()
    with pytest.raises(BrokenExecutor):
        running.result(timeout=60)


def test_no_cluster_at_an_address() -> None:
    pytest.importorskip("ray")
    import ray

    ray.shutdown()
    with pytest.raises(BadInput, match="a Ray cluster; got"):
        RayExecutor("127.0.0.1:9")
