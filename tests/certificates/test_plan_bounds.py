"""Bounds of plans that a search for training plans rests on, each against what it bounds: drawn systems, all of their plans."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.certificates.test_training_search import Drawn, drawn

from halley.memory.peak import training_memory
from halley.pipeline.iteration import iteration_time
from halley.training.cost import Batch, PlanInputs, training_of
from halley.training.part_costs import MemoryBudget, ModelCosts
from halley.training.search import paths as training_paths
from halley.training.search.items import Timed
from halley.training.search.paths import TightenedBound, proof_of, tightened_bound
from halley.training.search.search import bounded_search
from halley.training.search.steps import TrainingSearch
from halley.training.sharded_model import Passes


def plans(search: TrainingSearch, most: int) -> list[tuple[int, int]]:
    """Layouts and options, evenly over the space."""
    pairs = np.argwhere(search.floors.space.allowed)
    return [(int(layout), int(option)) for layout, option in pairs[:: max(1, len(pairs) // most)]]


def cases(search: TrainingSearch, model: Drawn, layout: int, option: int) -> list[PlanInputs]:
    """A plan with each of its shardings."""
    space = search.floors.space
    communication = search.floors.communications[space.assignment[layout]]
    way = search.floors.variants[search.floors.variant_of[option]]
    return [PlanInputs(communication, costs) for costs in model.shardings(communication, int(space.microbatch[layout]), way)]


def batch(search: TrainingSearch, layout: int, option: int) -> Batch:
    chosen = search.floors.space.options[option]
    return Batch(search.floors.space.pipeline(layout), chosen.sharded, chosen.offload)


@pytest.mark.parametrize("seed", range(12))
def test_memory_is_that_of_the_sharding_and_never_less_than_its_bound(seed: int) -> None:
    problem, model = drawn(seed, 2)
    search = bounded_search(problem, model)
    for layout, option in plans(search, 60):
        rows = np.array([layout])
        least = float(search.floors.memories(rows, option)[0])
        for case in cases(search, model, layout, option):
            exact = float(training_memory(training_of(problem, batch(search, layout, option), [case])).peak[0])
            assert least <= exact
            assert search.floors.memories(rows, option, case.costs)[0] == pytest.approx(exact, rel=1e-9)
            assert search.floors.memories(rows, option, case.costs)[0] <= exact


@pytest.mark.parametrize("seed", range(20))
def test_no_sharding_takes_less_than_the_longest_path_says(seed: int) -> None:
    problem, model = drawn(seed, 5)
    search = bounded_search(problem, model)
    for layout, option in plans(search, 12):
        found = cases(search, model, layout, option)
        way = search.floors.variants[search.floors.variant_of[option]]
        costs = model.costs(found[0].communication, int(search.floors.space.microbatch[layout]), way)
        timed = [Timed(math.inf, layout, option, costs, bound) for bound in (costs.bound, 0.0)]
        proofs = [proof_of(search.floors, each) for each in timed]
        given = batch(search, layout, option)
        times = [float(iteration_time(training_of(problem, given, [case])).time[0]) for case in found]
        # whatever the target, also one that is not reached
        for target in (math.inf, max(times), min(times), 0.99 * min(times)):
            assert max(proof.least(target) for proof in proofs) <= min(times) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_layouts_in_which_parts_take_less_count_wherever_they_come(seed: int) -> None:
    problem, model = drawn(seed, 1)
    search = bounded_search(problem, model)
    for layout, option in plans(search, 8):
        (case,) = cases(search, model, layout, option)
        time = float(iteration_time(training_of(problem, batch(search, layout, option), [case])).time[0])
        own = tuple(part.time for part in case.costs.parts)
        rows = tuple(tuple(factor * each for each in own) for factor in (3.0, 2.0, 1.0))
        proof = proof_of(search.floors, Timed(math.inf, layout, option, replace(case.costs, by_boundary=rows), 0.0))
        assert proof.least(4 * time) <= time * (1 + 1e-9)


def test_cases_of_parameters_bound_all_shardings_and_say_more(monkeypatch: pytest.MonkeyPatch) -> None:
    more = 0
    for seed in range(10):
        problem, model = drawn(seed, 6)
        search = bounded_search(problem, model)
        for layout, option in plans(search, 8):
            least = min(time_of(search, layout, option, case) for case in cases(search, model, layout, option))
            result = nearer(search, model, layout, option)
            assert result.bound <= least * (1 + 1e-9)
            assert result.time >= least * (1 - 1e-9)
            with monkeypatch.context() as patch:
                patch.setattr(training_paths, "MAX_CASES", 1)
                plain = nearer(search, model, layout, option)
            assert plain.bound <= result.bound * (1 + 1e-9)
            more += plain.bound < result.bound * (1 - 1e-6)
    assert more > 5


def nearer(search: TrainingSearch, model: Drawn, layout: int, option: int) -> TightenedBound:
    """A plan's last bound, in as much memory as it takes."""
    space, way = search.floors.space, search.floors.variants[search.floors.variant_of[option]]
    communication, microbatch = search.floors.communications[space.assignment[layout]], int(space.microbatch[layout])
    costs = model.costs(communication, microbatch, way)
    unbounded = MemoryBudget(math.inf, (0.0,) * len(costs.parts))

    def solve(passes: Passes, most: NDArray[np.float64]) -> tuple[float, ModelCosts]:
        return model.along(communication, microbatch, way, passes, unbounded, 1.0, most)

    def timed(found: ModelCosts) -> float:
        return time_of(search, layout, option, PlanInputs(communication, found))

    return tightened_bound(
        proof_of(search.floors, Timed(math.inf, layout, option, costs, 0.0)), timed(costs), math.inf, solve, timed
    )


def time_of(search: TrainingSearch, layout: int, option: int, case: PlanInputs) -> float:
    """Of an iteration [s]."""
    return float(iteration_time(training_of(search.problem, batch(search, layout, option), [case])).time[0])
