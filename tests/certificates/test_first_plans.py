"""First plans of large systems from fewer data-parallel replicas, and the bound that holds before any plan is bounded."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from halley.answer import Status
from halley.importers.training import training_problem
from halley.io.results.training import plan_document
from halley.optim.divisors import divisors, prime_divisors
from halley.report.plans.plan import verdict
from halley.report.plans.words import plan_words
from halley.sharding.axes import Role
from halley.sharding.decisions import decisions_of
from halley.training.plan import Fixed, TrainingProblem
from halley.training.product_bounds import distinct_splits
from halley.training.search.decided import decided_cost, plan_faults
from halley.training.search.search import best_training_plan, bounded_search, least_bound
from halley.training.search.space import training_space
from halley.training.search.start import fewer_replicas, with_all_replicas, work_bound
from halley.training.sharded_model import ShardedModel

LARGE = "8192 x h100, nvlink 8, ib"


def large(batch: int = 8192) -> TrainingProblem:
    return training_problem("gpt2-xl", LARGE, batch)


def test_a_smaller_system_has_the_same_share_of_the_batch() -> None:
    problem = training_problem("gpt3-1t", "1000000 x h100, nvlink 8, ib", 500_000)
    found = list(fewer_replicas(problem))
    assert [each.system.chips for each in found] == [1600, 2000, 4000]
    assert all(each.batch * 2 == each.system.chips for each in found)
    assert all(each.system.axes[1:] == problem.system.axes[1:] for each in found)


@pytest.mark.parametrize(
    "fixed", [Fixed(data=8), Fixed(axes={"ib": {Role.DATA: 1024}}), None], ids=["data", "parts of an axis", "few chips"]
)
def test_some_systems_have_no_smaller_one(fixed: Fixed | None) -> None:
    problem = large() if fixed else training_problem("gpt2-xl", "1024 x h100, nvlink 8, ib", 1024)
    assert not list(fewer_replicas(replace(problem, fixed=fixed or Fixed())))


def test_a_batch_without_common_factors_has_no_smaller_one() -> None:
    assert not list(fewer_replicas(large(8191)))


def test_the_plan_on_all_replicas_is_one_of_the_space() -> None:
    problem = large()
    smaller = next(fewer_replicas(problem))
    found = best_training_plan(smaller, others=0)
    fixed = with_all_replicas(problem, found.plan)
    (plan,) = {training_space(fixed).plan(layout, 0) for layout in range(training_space(fixed).layouts)}
    assert (plan.model, plan.pipeline, plan.microbatch) == (found.plan.model, found.plan.pipeline, found.plan.microbatch)
    assert plan.data == found.plan.data * (problem.system.chips // smaller.system.chips)
    space = training_space(replace(problem, home=problem.homes[-1]))
    place = space.find(plan)
    assert place is not None
    assert space.plan(*place) == plan


def test_every_plan_of_a_space_is_found_in_it() -> None:
    space = training_space(training_problem("gpt2-xl", "8 x h100, nvlink 8", 4))
    every = itertools.product(range(space.layouts), range(len(space.options)))
    assert all(space.find(space.plan(*place)) == (place if space.allowed[place] else None) for place in every)


def test_a_search_from_a_first_plan_proves_the_same_optimum() -> None:
    problem = large()
    found = best_training_plan(problem, limit=1e6, others=0)
    alone = best_training_plan(problem, others=0, model=ShardedModel(replace(problem, home=problem.homes[-1])))
    assert found.status is not Status.LIMIT
    assert found.cost.time == pytest.approx(alone.cost.time, rel=1e-9)
    assert found.certificate.bound <= alone.cost.time
    assert alone.certificate.bound <= found.cost.time
    assert found.certificate.size == alone.certificate.size


def test_an_interrupt_in_the_smaller_system_gives_its_plan_on_all_replicas() -> None:
    problem = large()

    def interrupt(words: str, share: float) -> None:
        assert words.startswith("first a plan for 1,024 chips: ")
        if ": best" in words:
            raise KeyboardInterrupt

    found = best_training_plan(problem, interrupt, limit=1e6)
    assert found.status is Status.LIMIT
    assert found.plan.data * found.plan.model * found.plan.pipeline.stages == 8192
    assert not plan_faults(problem, found.plan)
    parts = [decisions_of(part.sharding) for part in found.cost.parts.parts]
    assert decided_cost(problem, found.plan, parts).time == pytest.approx(found.cost.time, rel=1e-12)
    # the proven bound of all plans, from the search to its end
    optimum = best_training_plan(problem, others=0)
    assert 0 < found.certificate.bound <= optimum.certificate.bound
    assert found.cost.time >= optimum.certificate.bound
    assert found.certificate.size is None
    assert "plans not counted" in verdict(found.certificate, found.status)
    assert plan_document(found)["certificate"]["size"] is None
    assert plan_words(found.plan, found.cost)


@pytest.mark.parametrize(
    ("model", "system", "batch", "changes"),
    [
        ("gpt2-xl", "8 x h100, nvlink 8", 8, {}),
        ("gpt2-xl", "1 x h100", 3, {}),
        ("llama3-8b", "16 x h100, nvlink 8, ib", 32, {"products": "fp8"}),
        ("mixtral-8x7b", "64 x h100, nvlink 8, ib", 64, {}),
        ("llama2-7b", "12 x tpu-v4, ici 2x2, ethernet-400g-dsp", 24, {}),
    ],
)
@pytest.mark.parametrize("searched", [False, True], ids=["library", "searched"])
def test_the_work_of_all_sequences_bounds_all_plans(
    model: str, system: str, batch: int, changes: dict[str, str], searched: bool
) -> None:
    problem = training_problem(model, system, batch, searched=searched)
    problem = replace(problem, shape=replace(problem.shape, **changes))
    homes = [replace(problem, home=home) for home in problem.homes]
    assert 0 < min(map(work_bound, homes)) <= least_bound(problem) * (1 + 1e-12)


def test_the_work_bounds_every_plan_of_a_fixed_kind() -> None:
    problem = training_problem("gpt2-xl", "8 x h100, nvlink 8", 8, fix="pp=4,tp=2,microbatch=2")
    assert work_bound(problem) <= best_training_plan(problem).cost.time


def test_a_plan_added_to_a_search_is_not_open() -> None:
    problem = replace(training_problem("gpt2-xl", "8 x h100, nvlink 8", 8), home="dram")
    found, other = bounded_search(problem), bounded_search(problem)
    other.find_first_plan()
    (timed,) = other.best.values()
    plan = other.floors.space.plan(timed.layout, timed.option)
    assert found.add_timed(plan, timed)
    assert found.incumbent == timed.time
    assert math.isinf(found.bounds[timed.layout, timed.option])
    for _ in found.steps():
        pass
    assert found.incumbent == pytest.approx(best_training_plan(problem).cost.time, rel=1e-9)


def test_splits_that_are_omitted_have_the_extents_of_others_on_as_many_ranks() -> None:
    counts, ranks = [(12,), (1, 6), (5,)], (8, 12, 36)
    kept = [tuple(row) for row in distinct_splits(counts, ranks).tolist()]
    every = [row for row in itertools.product(divisors(8 * 9), repeat=3) if any(count % math.prod(row) == 0 for count in ranks)]
    assert set(kept) < set(every)
    for chosen in itertools.product(*counts):

        def local(row: tuple[int, ...], chosen: tuple[int, ...] = chosen) -> tuple[int, ...]:
            return tuple(-(-extent // parts) for extent, parts in zip(chosen, row, strict=True))

        for row in every:
            alike = [each for each in kept if local(each) == local(row)]
            assert any(math.prod(row) % math.prod(each) == 0 for each in alike)


def test_divisors_and_primes_of_small_numbers() -> None:
    for number in range(1, 200):
        known = [each for each in range(1, number + 1) if number % each == 0]
        assert list(divisors(number)) == known
        primes = [each for each in known if each > 1 and np.all(each % np.arange(2, each))]
        assert list(prime_divisors(number)) == primes
