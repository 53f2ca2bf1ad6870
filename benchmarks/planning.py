"""Plans of training: how many are bounded and timed in a second, and a large model on a thousand chips to the proven optimum."""

from __future__ import annotations

import importlib.util
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.measure import Measurement
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.io.networks.fits import load_libraries
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.placement import Replicate
from halley.kernels.machine import machine
from halley.kernels.sustained import under_load
from halley.memory.peak import training_memory
from halley.pipeline.iteration import iteration_time
from halley.pipeline.recurrence import pipeline_times
from halley.pipeline.schedule import SWITCH, TrainingPipeline
from halley.training.cost import Batch, PlanInputs, training_of
from halley.training.part_costs import ModelCosts, PartCosts
from halley.training.plan import TrainingProblem
from halley.training.search.search import best_training_plan, bounded_search
from halley.training.search.steps import TrainingSearch

SYSTEM, MODEL, BATCH = "1024 x h100, nvlink 8, ib", "gpt3-1t", 2048
CASES = 512
"""Plans of one pipeline that are timed together."""

DRAWS = 400
"""Plans that are drawn from the space."""

SHAPES = (1, 1), (2, 32), (8, 1), (8, 4), (32, 1), (32, 4), (128, 1)
"""Stages and chunks of pipelines that are timed apart."""


def measurements() -> Iterator[Measurement]:
    shape = load_model(MODEL)
    fit = load_chip_fit("a100")
    efficiency = under_load(fit, machine(load_chip(fit.chip)))
    system = load_system(SYSTEM)
    problem = TrainingProblem(shape, system, BATCH, shape.sequence, efficiency, load_libraries(system))
    begun = time.process_time()
    search = bounded_search(problem)
    seconds = time.process_time() - begun
    yield Measurement("plans bounded, work and memory, per second", search.floors.space.size / seconds, "1/s", 1e5, most=False)
    yield from _exact(search)
    begun = time.process_time()
    found = best_training_plan(problem, others=0)
    what = f"{MODEL} on 1024 chips to the optimum of {found.certificate.size:.2g} plans"
    yield Measurement(what, time.process_time() - begun, "s", 5.0)
    yield Measurement("gap of that", 100 * found.certificate.gap, "%", 0.5)
    seconds, size = _command()
    yield Measurement("the whole command, with ten other plans", seconds, "s", 8.0)
    yield Measurement("memory of that", size, "MiB", 350.0)


def _command() -> tuple[float, float]:
    """CPU time [s] and memory [MiB] of the command that does this."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ("plan", MODEL, "--train", "--system", SYSTEM, "--batch", str(BATCH), "--json")
    command = [sys.executable, "-c", "from halley.cli.start import main; main()", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024


def _slower(costs: ModelCosts, draw: random.Random) -> ModelCosts:
    """Other times of each part, so that no two plans are alike."""

    def part(known: PartCosts) -> PartCosts:
        return replace(known, forward=known.forward * draw.uniform(1, 2), backward=known.backward * draw.uniform(1, 2))

    blocks = tuple((part(block), count) for block, count in costs.blocks)
    return replace(costs, embedding=part(costs.embedding), blocks=blocks, head=part(costs.head))


Job = tuple[Batch, list[PlanInputs]]
"""Plans that are timed together."""


def _exact(search: TrainingSearch) -> Iterator[Measurement]:
    """Time of the iteration, account apart, and memory, of plans whose parts' costs are given."""
    mode, draw = SWITCH.mode, random.Random(5)
    jobs = _drawn(search, DRAWS, draw)
    shapes = {shape: _alike(search, *shape, draw) for shape in SHAPES}
    SWITCH.mode = "on" if importlib.util.find_spec("numba") else "off"
    pipeline_times(TrainingPipeline(2, 2), [1.0, 1.0], [1.0, 1.0])  # loads the compiled loops
    for what in ("plans timed exactly, drawn from the space, nothing known before", "plans timed exactly, drawn from the space"):
        yield Measurement(f"{what}, per second", 1 / _mean_time(search, jobs), "1/s", 1e5, most=False)
    for (stages, chunks), job in shapes.items():
        _mean_time(search, [job])
        name = f"plans timed exactly, {stages} stages of {chunks} chunks, per second"
        yield Measurement(name, 1 / _mean_time(search, [job]), "1/s", 1e5, most=False)
    SWITCH.mode = "off"
    yield Measurement("the draw with NumPy alone, per second", 1 / _mean_time(search, jobs[: DRAWS // 8]), "1/s", 1e4, most=False)
    SWITCH.mode = mode


def _mean_time(search: TrainingSearch, jobs: list[Job]) -> float:
    """CPU time per plan [s], the mean over jobs: that of a plan drawn from the space, as jobs are drawn by their plans."""
    taken = []
    for batch, cases in jobs:
        begun = time.process_time()
        training = training_of(search.problem, batch, cases)
        training_memory(training)
        iteration_time(training, attribute_transfers=False)
        taken.append((time.process_time() - begun) / len(cases))
    return sum(taken) / len(taken)


def _drawn(search: TrainingSearch, draws: int, draw: random.Random) -> list[Job]:
    """Plans drawn uniformly from the space, each with all plans that share its pipeline and its shares of the states. Plans of
    one mesh, microbatch, recomputation and attention have the same costs of parts, as in a search; they are drawn as well."""
    space, floors = search.floors.space, search.floors
    known: dict[object, ModelCosts] = {}
    sample, allowed = _costs(search, int(np.flatnonzero(space.stages == 8)[-1])), space.allowed
    shapes = np.stack([space.stages, space.microbatches, space.chunks, space.gpipe], axis=1)

    def case(layout: int, option: int) -> PlanInputs:
        communication = floors.communications[space.assignment[layout]]
        key = communication.model_key, int(space.microbatch[layout]), floors.variant_of[option]
        if key not in known:
            known[key] = replace(_slower(sample, draw), boundary=tuple(Replicate() for _ in communication.mesh))
        return PlanInputs(communication, known[key])

    jobs = []
    for plan in draw.choices(np.flatnonzero(allowed).tolist(), k=draws):
        layout, option = divmod(plan, len(space.options))
        chosen = space.options[option]
        alike = np.flatnonzero((shapes == shapes[layout]).all(axis=1)).tolist()
        same = [place for place, each in enumerate(space.options) if each[2:] == chosen[2:]]
        cases = [case(row, place) for row in alike for place in same if allowed[row, place]]
        jobs.append((Batch(space.pipeline(layout), chosen.sharded, chosen.offload), cases))
    return jobs


def _alike(search: TrainingSearch, stages: int, chunks: int, draw: random.Random) -> Job:
    """Plans of one pipeline, no two of them with the same costs."""
    space, floors = search.floors.space, search.floors
    alike = (space.stages == stages) & (space.chunks == chunks) & (space.gpipe == 0)
    layout = int(np.flatnonzero(alike & (space.microbatches >= 4 * stages))[-1])
    costs, communication = _costs(search, layout), floors.communications[space.assignment[layout]]
    batch = Batch(space.pipeline(layout), space.options[0].sharded, False)
    return batch, [PlanInputs(communication, _slower(costs, draw)) for _ in range(CASES)]


def _costs(search: TrainingSearch, layout: int) -> ModelCosts:
    """Of the parts of a layout's model, under the fastest shardings."""
    space, floors = search.floors.space, search.floors
    communication = floors.communications[space.assignment[layout]]
    return search.model.costs(communication, int(space.microbatch[layout]), floors.variants[floors.variant_of[0]])
