"""Verification of the time of a training iteration: its passes, transfers and collectives as tasks of the event simulation, which
shares no code with the recurrences of `halley.pipeline`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from halley.formulas.numbers import Number
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.iteration import PipelinedTraining, iteration_time
from halley.pipeline.schedule import PipelineSchedule, TrainingPipeline
from halley.sharding.communication import Communication, Interconnect
from halley.simulate import schedule
from halley.simulate.schedule import PassTable
from halley.simulate.training import SimulatedBlock, SimulatedIteration, TrainingIteration, simulate
from halley.training.cost import Batch, PlanInputs, training_of
from halley.training.plan import TrainingResult
from halley.units import format_time
from halley.verify.findings import Finding, close

MOST_TASKS = 200_000
"""Tasks of an iteration that is simulated whole: some seconds. With more, it is simulated with fewer microbatches."""


def iteration_finding(name: str, result: TrainingResult) -> Finding:
    """The simulated time of the plan's iteration is that of the formulas."""
    what, plan = "iteration simulation", result.plan
    training = _training(result)
    microbatches = _simulated_microbatches(training)
    if not microbatches:
        return Finding(name, what, None, f"more than {MOST_TASKS:,} tasks for a few microbatches")
    if microbatches < plan.pipeline.microbatches:
        training = replace(training, pipeline=replace(plan.pipeline, microbatches=microbatches))
        time, size = float(iteration_time(training).time[0]), f" at {microbatches} of {plan.pipeline.microbatches} microbatches"
    else:
        time, size = result.cost.time, ""
    simulated = simulate(_tasks(training)).time
    detail = f"{format_time(simulated)} simulated, {format_time(time)} by the formulas{size}"
    return Finding(name, what, close(simulated, time), detail)


def simulated_iteration(result: TrainingResult, microbatches: int) -> SimulatedIteration:
    """The simulated iteration of a plan with so many microbatches. Raises BadInput: too many tasks."""
    training = _training(result)
    return simulate(_tasks(replace(training, pipeline=replace(training.pipeline, microbatches=microbatches))))


def _training(result: TrainingResult) -> PipelinedTraining:
    """The plan as the recurrences take it."""
    plan = result.plan
    communication = Communication(Interconnect(result.problem.system, result.problem.libraries, True), plan.assignment)
    batch = Batch(plan.pipeline, plan.sharded, plan.offload)
    return training_of(result.problem, batch, [PlanInputs(communication, result.cost.parts)])


def _simulated_microbatches(training: PipelinedTraining) -> int:
    """As many microbatches as `MOST_TASKS` allow: all, or a multiple of the stages; 0 if not even one of each stage."""
    pipeline, sharded = training.pipeline, training.data.sharded
    per_block = 2 + 2 * (sharded is Sharded.PARAMETERS) + (sharded >= Sharded.GRADIENTS)
    each = sum(len(chunk) * per_block + 2 for chunk in training.chunks)
    if each * pipeline.microbatches <= MOST_TASKS:
        return pipeline.microbatches
    return MOST_TASKS // (each * pipeline.stages) * pipeline.stages


def _tasks(training: PipelinedTraining) -> TrainingIteration:
    """The iteration of one plan, for the simulation."""
    data, optimizer, stages = training.data, training.optimizer, range(training.pipeline.stages)
    parameters = [training.parameters(stage) for stage in stages]
    return TrainingIteration(
        pass_table(training.pipeline),
        [
            [
                SimulatedBlock(
                    *map(_single, (data.forward(b), data.backward(b), data.gather(b), data.reduction(b), b.activation))
                )
                for b in chunk
            ]
            for chunk in training.chunks
        ],
        [_single(time) for time in training.onward],
        [_single(time) for time in training.back],
        training.blocking,
        int(data.sharded),
        [_single(optimizer.step_time(data, count)) for count in parameters],
        [_single(optimizer.norm_time(data, count)) for count in parameters],
        _single(optimizer.norm_reduction) if optimizer.clipping else None,
        _single(training.tied),
    )


def pass_table(pipeline: TrainingPipeline) -> PassTable:
    """The simulation's own order of passes."""
    if pipeline.schedule is PipelineSchedule.GPIPE:
        return schedule.gpipe(pipeline.stages, pipeline.microbatches)
    if pipeline.chunks == 1:
        return schedule.one_forward_one_backward(pipeline.stages, pipeline.microbatches)
    return schedule.interleaved(pipeline.stages, pipeline.chunks, pipeline.microbatches)


def _single(value: Number) -> float:
    """A number, which may be an array over a single plan."""
    return float(np.ravel(value)[0])
