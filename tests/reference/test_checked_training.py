"""The check of a training plan's time: the simulated iteration agrees with the formulas, and a wrong time is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.kernels.machine import PEAK
from halley.pipeline.data_parallel import Sharded
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan
from halley.verify import iteration, verify
from halley.verify.iteration import iteration_finding
from halley.verify.sharding import bytes_finding

FIXED = {
    "one stage": Fixed(stages=1, microbatch=1, sharded=Sharded.PARAMETERS),
    "pipeline": Fixed(stages=4, chunks=1, microbatch=1, sharded=Sharded.OPTIMIZER),
    "interleaved": Fixed(stages=4, chunks=2, microbatch=1, sharded=Sharded.GRADIENTS),
}


@pytest.fixture(scope="module", params=FIXED)
def result(request: pytest.FixtureRequest) -> TrainingResult:
    """GPT-2 XL, whose first and last stage share a table."""
    shape, system = load_model("gpt2-xl"), load_system("8 x h100, nvlink 8")
    assert shape.tied
    return best_training_plan(TrainingProblem(shape, system, 64, 1024, PEAK, fixed=FIXED[request.param]), others=0)


def test_the_simulated_iteration_takes_as_long_as_the_formulas_say(result: TrainingResult) -> None:
    (found,) = (finding for finding in verify(result, search=False) if finding.what == "iteration simulation")
    assert found.passed
    assert "simulated" in found.detail
    assert "microbatches" not in found.detail


def test_a_wrong_time_is_found(result: TrainingResult) -> None:
    wrong = replace(result, cost=replace(result.cost, time=result.cost.time * (1 + 1e-6)))
    assert iteration_finding("best", wrong).passed is False


def test_a_long_iteration_is_simulated_with_fewer_microbatches(result: TrainingResult, monkeypatch: pytest.MonkeyPatch) -> None:
    count = result.plan.pipeline.microbatches
    assert count > 4
    monkeypatch.setattr(iteration, "MOST_TASKS", 1200)
    found = iteration_finding("best", result)
    assert found.passed
    assert f"of {count} microbatches" in found.detail
    monkeypatch.setattr(iteration, "MOST_TASKS", 10)
    assert iteration_finding("best", result).passed is None


def test_bytes_on_every_axis_are_those_that_ranks_have() -> None:
    """A model over two axes: collectives and weights of each part, forward and backward, counted element by element."""
    shape, system = load_model("gpt3-175b"), load_system("64 x h100, nvlink 8, ib")
    problem = TrainingProblem(shape, system, 64, 2048, PEAK, fixed=Fixed(model=16, stages=4, microbatch=1))
    parts = best_training_plan(problem, others=0).cost.parts.parts
    assert len(parts[1].sharding.problem.mesh) == 2
    for part in parts:
        found = bytes_finding("part", part.sharding, part.parameters)
        assert found.passed, found.detail
    assert bytes_finding("layer", parts[1].sharding, parts[1].parameters + 1).passed is False
    moves = list(parts[1].sharding.redistributions)
    place = next(n for n, move in enumerate(moves) if not move.inside and any(step.kind for step in move.steps))
    steps = tuple(replace(step, bytes=step.bytes + 2) for step in moves[place].steps)
    moves[place] = replace(moves[place], steps=steps)
    assert "not" in bytes_finding("layer", replace(parts[1].sharding, redistributions=tuple(moves))).detail
