"""Drawn pipelines and training plans, with the simulation that judges them."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass

from halley.errors import BadInput
from halley.ir.mapping import CollectiveKind
from halley.pipeline.data_parallel import RECIPES, DataParallel, LayerBlock, Sharded
from halley.pipeline.iteration import Optimizer, PipelinedTraining
from halley.pipeline.schedule import PipelineSchedule, TrainingPipeline
from halley.simulate import schedule as tables
from halley.simulate import training as simulated

NORM_REDUCTION = 0.7


@dataclass(frozen=True)
class Drawn:
    """A pipeline, its table (None: refused), and times of passes and transfers."""

    pipeline: TrainingPipeline | None
    table: tables.PassTable | None
    forward: list[float]
    backward: list[float]
    onward: list[float]
    back: list[float]
    blocking: bool


def table_of(stages: int, microbatches: int, chunks: int, schedule: PipelineSchedule) -> tables.PassTable:
    """The simulation's own table of a schedule."""
    if schedule is PipelineSchedule.GPIPE:
        return tables.gpipe(stages, microbatches)
    if chunks == 1:
        return tables.one_forward_one_backward(stages, microbatches)
    return tables.interleaved(stages, chunks, microbatches)


def shape(draw: random.Random, stages: int, microbatches: int) -> tuple[int, int, int, PipelineSchedule]:
    """Stages, microbatches, chunks, schedule: up to these numbers."""
    few = draw.randint(1, stages)
    chunks = draw.choice([1, 1, 2, 3, 4]) if few > 1 else 1
    schedule = draw.choice(list(PipelineSchedule)) if chunks == 1 else PipelineSchedule.ONE_FORWARD_ONE_BACKWARD
    return few, draw.randint(1, microbatches), chunks, schedule


def both(numbers: tuple[int, int, int, PipelineSchedule]) -> tuple[TrainingPipeline | None, tables.PassTable | None]:
    """A pipeline and its table, None where they are refused."""
    pipeline: TrainingPipeline | None = None
    table: tables.PassTable | None = None
    with suppress(BadInput):
        pipeline = TrainingPipeline(*numbers)
    with suppress(BadInput):
        table = table_of(*numbers)
    return pipeline, table


def drawn(draw: random.Random, stages: int = 16, microbatches: int = 64) -> Drawn:
    """Uneven passes; transfers that take nothing, little, or longer than passes."""
    numbers = shape(draw, stages, microbatches)
    count, scale = numbers[0] * numbers[2], draw.choice([0.0, 0.5, 1.0, 8.0])

    def times(length: int, least: float, most: float) -> list[float]:
        return [draw.uniform(least, most) for _ in range(length)]

    passes = times(count, 1, 10), times(count, 1, 10)
    transfers = times(count - 1, 0, 2 * scale), times(count - 1, 0, 2 * scale)
    return Drawn(*both(numbers), *passes, *transfers, blocking=draw.random() < 0.4)


def simulate_passes(case: Drawn) -> simulated.SimulatedIteration:
    """The clock's answer; chunks of one block each."""
    assert case.table is not None
    blocks = [[simulated.SimulatedBlock(ahead, behind)] for ahead, behind in zip(case.forward, case.backward, strict=True)]
    return simulated.simulate(simulated.TrainingIteration(case.table, blocks, case.onward, case.back, case.blocking))


def collective_time(scale: float) -> object:
    """Latency and bytes, an all-reduce twice an all-gather."""
    factor = {CollectiveKind.ALL_REDUCE: 2.0, CollectiveKind.ALL_GATHER: 1.0, CollectiveKind.REDUCE_SCATTER: 1.1}
    return lambda kind, payload: (0.3 + payload / 1000 * factor[kind]) * scale


def training(draw: random.Random, case: Drawn) -> PipelinedTraining:
    """A training plan on a drawn pipeline: blocks, sharding, optimizer drawn too."""
    assert case.pipeline is not None

    def block() -> LayerBlock:
        recompute = draw.choice([0.0, draw.uniform(0, 5)])
        sizes = draw.randint(10, 1000), draw.randint(1, 100), draw.randint(0, 50)
        return LayerBlock(draw.uniform(1, 10), draw.uniform(1, 10), recompute, *sizes)

    chunks = [[block() for _ in range(draw.randint(1, 4))] for _ in case.forward]
    recipe = RECIPES[draw.choice(sorted(RECIPES))]
    time = collective_time(draw.choice([0.01, 0.1, 0.5]))
    data = DataParallel(draw.choice([1, 2, 4]), draw.choice(list(Sharded)), time, recipe)  # type: ignore[arg-type]
    optimizer = Optimizer(1000.0, 0.1, draw.random() < 0.5, NORM_REDUCTION, draw.choice([None, 100.0]))
    tied = draw.choice([0.0, draw.uniform(0, 20)])
    return PipelinedTraining(case.pipeline, chunks, data, optimizer, case.onward, case.back, case.blocking, tied)


def simulate_training(plan: PipelinedTraining, table: tables.PassTable) -> simulated.SimulatedIteration:
    """The clock's answer to a training plan."""
    data, optimizer = plan.data, plan.optimizer
    blocks = [
        [simulated.SimulatedBlock(b.forward, b.backward_work, data.gather(b), data.reduction(b), b.activation) for b in chunk]
        for chunk in plan.chunks
    ]
    parameters = [plan.parameters(stage) for stage in range(plan.pipeline.stages)]
    return simulated.simulate(
        simulated.TrainingIteration(
            table,
            blocks,
            plan.onward,
            plan.back,
            plan.blocking,
            int(data.sharded),
            [optimizer.step_time(data, count) for count in parameters],
            [optimizer.norm_time(data, count) for count in parameters],
            optimizer.norm_reduction if optimizer.clipping else None,
            float(plan.tied),
        )
    )
