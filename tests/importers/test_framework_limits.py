"""Searches that are restricted to what a framework can run: the best of the plans that it has, and flags that say all of it."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.running import halley

from halley.answers.load import load
from halley.errors import BadInput, Infeasible
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.kernels.machine import PEAK
from halley.launch.decisions import decisions
from halley.launch.emit import FRAMEWORKS, emit, emitted_text
from halley.launch.limits import LIMITS, limits_of
from halley.launch.read import read_degrees
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute
from halley.training.framework import FrameworkLimits
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan

F1B = PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
LAYERS = 4
USABLE = 5e9
"""Bytes of a chip: so few that ZeRO, stages and recomputation are worth their time."""


def problem(framework: str | None, fixed: Fixed | None = None) -> TrainingProblem:
    system, shape = load_system("2 x h100, nvlink 2"), replace(load_model("gpt2-xl"), layers=LAYERS)
    asked = TrainingProblem(shape, system, 8, 1024, PEAK, fixed=fixed or Fixed(model=1), usable=USABLE)
    return replace(asked, limits=None if framework is None else limits_of(framework))


def shards(limits: FrameworkLimits, what: Sharded, stages: int) -> bool:
    """Whether its data-parallel ranks can shard that, in a pipeline of so many stages."""
    return what in limits.sharded and (stages == 1 or what in limits.staged)


def kept(result: TrainingResult, framework: str) -> bool:
    """Whether the framework has all that the plan decides."""
    plan, limits = result.plan, LIMITS[framework]
    pipeline, layers = plan.pipeline, result.problem.shape.layers
    return (
        shards(limits, plan.sharded, pipeline.stages)
        and limits.runs(pipeline.schedule, pipeline.stages, pipeline.chunks, layers)
        and plan.recompute in limits.recompute
        and (limits.offload or not plan.offload)
    )


@pytest.mark.medium
@pytest.mark.parametrize("framework", LIMITS)
def test_the_best_of_what_it_can_run(framework: str) -> None:
    """Equal to the best over all plans of the whole space, each choice of the framework fixed once."""
    found = best_training_plan(problem(framework))
    assert kept(found, framework)
    assert found.certificate.left_out[0] == f"plans that {LIMITS[framework].version} has no settings for"
    limits, times = LIMITS[framework], []
    for stages, schedule, chunks in ((1, F1B, 1), (2, F1B, 1), (2, F1B, 2), (2, PipelineSchedule.GPIPE, 1)):
        for sharded, recompute, offload in itertools.product(Sharded, Recompute, (False, True)):
            able = shards(limits, sharded, stages) and limits.runs(schedule, stages, chunks, LAYERS)
            if able and recompute in limits.recompute and (limits.offload or not offload):
                fixed = Fixed(None, stages, 1, None, schedule, chunks, recompute, sharded, offload)
                with suppress(BadInput, Infeasible):
                    times.append(best_training_plan(problem(None, fixed)).cost.time)
    assert found.cost.time == pytest.approx(min(times), rel=1e-9)


@pytest.mark.medium
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_flags_of_such_a_plan_read_again(framework: str) -> None:
    """The degrees are the same, and no remark says that a choice is another one in the framework."""
    found = best_training_plan(problem(framework))
    made, said = emit(found, framework), decisions(found)
    back = read_degrees(emitted_text(made), said.chips)
    assert (back.data, back.pipeline, back.tensor, back.context) == (said.data, said.pipeline, said.tensor, said.context)
    words = " ".join(made.remarks)
    for wrong in ("no GPipe", "same number of layers", "no sharding of", "stays on the chip", "no setting for an optimizer"):
        assert wrong not in words


@pytest.mark.medium
def test_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    system = ("--system", "8 x h100, nvlink 8", "--batch", "16")
    made = halley("plan", "gpt2-xl", "--train", *system, "--for", "torchtitan", "-o", str(file))
    assert made.code == 0, made.err
    answer = load(str(file)).value
    assert isinstance(answer, TrainingResult)
    assert answer.problem.limits == LIMITS["torchtitan"]
    wrong = halley("plan", "gpt2-xl", "--train", *system, "--for", "torchtitan", "--fix", "zero=1")
    assert (wrong.code, "expected some that torchtitan" in wrong.err) == (1, True)
    other = halley("plan", "gpt2-xl", "--train", *system, "--for", "torchtitn")
    assert (other.code, "did you mean" in other.err) == (1, True)
