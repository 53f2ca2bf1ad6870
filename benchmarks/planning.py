"""Plans of training: how many are bounded and timed in a second, and a large model on a thousand chips to the proven optimum."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.measure import Measurement
from halley.io.chip_fits import load_chip_fit
from halley.io.system import load_system
from halley.io.transformers import load_model
from halley.planning.iteration import iteration_time
from halley.planning.memory import memory
from halley.planning.part_costs import ModelCosts, PartCosts
from halley.planning.plan import TrainingProblem
from halley.planning.training_cost import Batch, Case, training_of
from halley.planning.training_search import best_training_plan, started
from halley.planning.training_steps import TrainingSearch

SYSTEM, MODEL, BATCH = "1024 x h100, nvlink 8, ib", "gpt3-1t", 2048
CASES = 512
"""Plans of one pipeline that are timed together."""


def measurements() -> Iterator[Measurement]:
    shape = load_model(MODEL)
    problem = TrainingProblem(shape, load_system(SYSTEM), BATCH, shape.sequence, load_chip_fit("a100").efficiency)
    begun = time.process_time()
    search = started(problem)
    seconds = time.process_time() - begun
    yield Measurement("plans bounded, work and memory, per second", search.floors.space.size / seconds, "1/s", 1e5, most=False)
    for stages, chunks in ((1, 1), (8, 1), (8, 4), (32, 4)):
        name = f"plans timed exactly, {stages} stages of {chunks} chunks, per second"
        yield Measurement(name, _timed(search, stages, chunks), "1/s", 1e5, most=False)
    begun = time.process_time()
    found = best_training_plan(problem, others=0)
    what = f"{MODEL} on 1024 chips to the optimum of {found.certificate.size:.2g} plans"
    yield Measurement(what, time.process_time() - begun, "s", 5.0)
    yield Measurement("gap of that", 100 * found.certificate.gap, "%", 0.5)
    yield Measurement("memory of that", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB", 500.0)


def _slower(costs: ModelCosts, draw: random.Random) -> ModelCosts:
    """Other times of each part, so that no two plans are alike."""

    def part(known: PartCosts) -> PartCosts:
        return replace(known, forward=known.forward * draw.uniform(1, 2), backward=known.backward * draw.uniform(1, 2))

    blocks = tuple((part(block), count) for block, count in costs.blocks)
    return replace(costs, embedding=part(costs.embedding), blocks=blocks, head=part(costs.head))


def _timed(search: TrainingSearch, stages: int, chunks: int) -> float:
    """Plans of one pipeline per second of CPU time: time of the iteration, account apart, and memory."""
    space, floors = search.floors.space, search.floors
    alike = (space.stages == stages) & (space.chunks == chunks) & (space.gpipe == 0)
    alike &= space.microbatches >= 4 * stages
    layout = int(np.flatnonzero(alike)[-1])
    option = 0
    communication = floors.communications[space.assignment[layout]]
    costs = search.model.costs(communication, int(space.microbatch[layout]), floors.ways[floors.way(option)])
    batch = Batch(space.pipeline(layout), space.options[option].sharded, False)
    draw = random.Random(f"{stages} {chunks}")
    cases = [Case(communication, _slower(costs, draw)) for _ in range(CASES)]
    begun = time.process_time()
    training = training_of(search.problem, batch, cases)
    memory(training)
    iteration_time(training, apart=False)
    return CASES / (time.process_time() - begun)
