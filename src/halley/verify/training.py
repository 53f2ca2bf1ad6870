"""Verification of plans of training: laws, memory, certificate, shardings executed, the time of
an iteration simulated, and a search for better ones. The simulation shares no code with the recurrences of `halley.pipeline`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from halley.answer import Status
from halley.dfmodel.plan import DFModelResult, best_training
from halley.errors import Infeasible, SearchStopped
from halley.formulas.numbers import Number
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.iteration import PipelinedTraining, iteration_time
from halley.pipeline.schedule import PipelineSchedule, TrainingPipeline
from halley.sharding.axes import assignment_text
from halley.sharding.communication import Communication, Interconnect
from halley.simulate import schedule
from halley.simulate.schedule import PassTable
from halley.simulate.training import SimulatedBlock, TrainingIteration, simulate
from halley.training.cost import Batch, PlanInputs, training_of
from halley.training.plan import TrainingResult
from halley.training.search.decided import memory_faults, plan_faults
from halley.training.search.joint import best_joint_plan
from halley.training.search.search import OPTIMAL_GAP, best_training_plan
from halley.units import format_bytes, format_time
from halley.verify.findings import TOLERANCE, Finding, Progress, certificate_finding, close, out_of_time, stop_after
from halley.verify.sharding import bytes_finding, sharding_finding

MOST_TASKS = 200_000
"""Tasks of an iteration that is simulated whole: some seconds. With more, it is simulated with fewer microbatches."""


BEST = "best"
"""What the best plan is called."""


def training_findings(
    result: TrainingResult, limit: float = 60.0, search: bool = True, progress: Progress | None = None
) -> Iterator[Finding]:
    """A plan of training: its numbers go together, every stage fits, the parts of the time add up to it, no alternative is
    faster, the certificate is in order, a simulated iteration takes as long, sharded ops compute the right thing with collectives
    of the bytes that are counted, and a search of ``limit`` [s] finds nothing better."""
    problem, plan, cost = result.problem, result.plan, result.cost
    faults = plan_faults(problem, plan)
    text = assignment_text(plan.assignment)
    yield Finding(BEST, "laws", not faults, str(faults[0]) if faults else f"batch, layers and axes are all distributed: {text}")
    overfull = memory_faults(problem, plan, cost)
    held = max(sum(stage.values()) for stage in cost.memory)
    fits = f"{format_bytes(held)} of {format_bytes(cost.capacity)} on the fullest chip"
    yield Finding(BEST, "memory", not overfull, str(overfull[0]) if overfull else fits)
    parts = math.fsum(cost.account.values())
    yield Finding(BEST, "account", abs(parts - cost.time) <= TOLERANCE * cost.time, f"parts add up to {format_time(parts)}")
    faster = [other for other in result.alternatives if other.cost.time < cost.time * (1 - TOLERANCE)]
    detail = f"one takes {format_time(faster[0].cost.time)}" if faster else f"none of {len(result.alternatives)} is faster"
    yield Finding("alternatives", "times", not faster, detail)
    yield certificate_finding(BEST, result.certificate, cost.time, OPTIMAL_GAP)
    yield iteration_finding(BEST, result)
    for part in cost.parts.parts:
        yield sharding_finding(part.sharding.problem.workload.name, part.sharding)
        yield bytes_finding(part.sharding.problem.workload.name, part.sharding, part.parameters)
    if search:
        yield _searched(result, limit, progress)


def _searched(result: TrainingResult, limit: float, progress: Progress | None) -> Finding:
    """Nothing better exists, and the bound is confirmed if there is time."""
    what, time, bound = "search again", result.cost.time, result.certificate.bound
    try:
        if result.problem.searched is None:
            again = best_training_plan(result.problem, progress, limit, others=0)
        else:
            again = best_joint_plan(result.problem, progress, limit)
    except SearchStopped:
        return out_of_time(BEST, what, limit)
    except Infeasible as error:
        return Finding(BEST, what, False, f"no plan fits, yet the file has one: {error.faults[0]}")
    found = f"{format_time(again.cost.time)} found anew, bound {format_time(again.certificate.bound)}"
    if again.certificate.bound > time * (1 + OPTIMAL_GAP):
        return Finding(BEST, what, False, f"{found}; yet the file has {format_time(time)}")
    if bound > again.cost.time * (1 + OPTIMAL_GAP):
        return Finding(BEST, what, False, f"{found}, below the file's bound of {format_time(bound)}")
    if again.status is Status.OPTIMAL:
        return Finding(BEST, what, True, f"{found}, proven")
    if again.status is Status.WITHIN and bound <= again.certificate.bound * (1 + OPTIMAL_GAP):
        return Finding(BEST, what, True, f"{found}, which is where the search ends")
    return Finding(BEST, what, None, f"{found}, not proven within {limit:g} s; raise --time-limit")


def dfmodel_findings(
    result: DFModelResult, limit: float = 60.0, search: bool = True, progress: Progress | None = None
) -> Iterator[Finding]:
    """A plan in the view of DFModel: memory, the parts of its time, no candidate faster, and a search of at most ``limit`` [s]
    finds nothing better."""
    problem = result.problem
    fits = result.memory <= problem.chip.dram
    yield Finding(BEST, "memory", fits, f"{format_bytes(result.memory)} of {format_bytes(problem.chip.dram)} on a chip")
    parts = math.fsum(result.account.values())
    yield Finding(BEST, "account", abs(parts - result.time) <= TOLERANCE * result.time, f"parts add up to {format_time(parts)}")
    first = min((item for item in result.candidates), key=lambda item: item.time, default=None)
    own = [item for item in result.candidates if item.assignment == result.choice.assignment]
    right = first is not None and first.time >= result.time * (1 - TOLERANCE) and bool(own)
    yield Finding("candidates", "times", right, f"none of {len(result.candidates)} is faster" if right else "one is faster")
    if search:
        try:
            again = best_training(problem, stop_after(limit, progress))
        except SearchStopped:
            yield out_of_time(BEST, "search again", limit)
            return
        same = abs(again.time - result.time) <= OPTIMAL_GAP * result.time and again.choices == result.choices
        yield Finding(BEST, "search again", same, f"{format_time(again.time)} is the optimum of {again.choices:,} choices")


def iteration_finding(name: str, result: TrainingResult) -> Finding:
    """The simulated time of the plan's iteration is that of the formulas."""
    what, plan = "iteration simulation", result.plan
    communication = Communication(Interconnect(result.problem.system, result.problem.libraries, True), plan.assignment)
    batch = Batch(plan.pipeline, plan.sharded, plan.offload)
    training = training_of(result.problem, batch, [PlanInputs(communication, result.cost.parts)])
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
                SimulatedBlock(*map(_single, (b.forward, b.backward_work, data.gather(b), data.reduction(b), b.activation)))
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
