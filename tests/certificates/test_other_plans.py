"""Plans beside the best one against all plans of small systems: the next best kinds, as far as the answer vouches for them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.certificates import training_enumeration as oracle
from tests.certificates.test_training_search import drawn

from halley.errors import Infeasible
from halley.pipeline.schedule import PipelineSchedule
from halley.sharding.axes import Role
from halley.training.plan import Plan
from halley.training.search import steps as training_steps
from halley.training.search.search import best_training_plan


def kind(choices: tuple[Any, ...]) -> tuple[Any, ...]:
    """What tells plans apart for a user: degrees, microbatch, schedule, recomputation, ZeRO, where the optimizer's state lies."""
    assignment, microbatch, name, recompute, _, zero, offload = choices
    ranks = (oracle.size(assignment, Role.DATA), oracle.size(assignment, Role.PIPELINE))
    return (*ranks, microbatch, name == "gpipe", recompute, zero, offload)


def kind_of(plan: Plan) -> tuple[Any, ...]:
    pipeline = plan.pipeline
    ranks = (plan.data, pipeline.stages, plan.microbatch, pipeline.schedule is PipelineSchedule.GPIPE)
    return (*ranks, plan.recompute, int(plan.sharded), plan.offload)


@pytest.mark.parametrize("seed", range(12))
def test_the_next_best_are_those_of_all_plans(seed: int) -> None:
    problem, model = drawn(seed, 1)
    best: dict[tuple[Any, ...], float] = {}
    for each in oracle.enumerate_plans(problem, model):
        if each.memory <= problem.capacity:
            best[kind(each.choices)] = min(each.time, best.get(kind(each.choices), each.time))
    try:
        found = best_training_plan(problem, model=model, others=10)
    except Infeasible:
        assert not best
        return
    wanted = sorted(best.values())
    times = [found.cost.time, *(item.cost.time for item in found.alternatives)]
    assert len(times) == min(11, len(wanted))
    assert times == sorted(times)
    kinds = [kind_of(found.plan), *(kind_of(item.plan) for item in found.alternatives)]
    assert len(set(kinds)) == len(kinds)
    proven = [time for time in times if time <= min(found.untimed, found.unfit)]
    assert proven == pytest.approx(wanted[: len(proven)], rel=1e-12)
    assert all(time >= least * (1 - 1e-12) for time, least in zip(times, wanted, strict=False))
    # where all kinds are shown, all are vouched for, but for plans that fit with no sharding that was tried
    assert len(proven) == len(wanted) or len(wanted) > 11 or found.unfit < times[-1]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_said_holds_when_little_is_looked_for(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no work allowed after the proof, plans come from known shardings, and what was left out counts as such."""
    problem, model = drawn(seed, 1)
    best: dict[tuple[Any, ...], float] = {}
    for each in oracle.enumerate_plans(problem, model):
        if each.memory <= problem.capacity:
            best[kind(each.choices)] = min(each.time, best.get(kind(each.choices), each.time))
    if not best:
        return
    monkeypatch.setattr(training_steps, "ALTERNATIVES_ENTRIES", 0)
    found = best_training_plan(problem, model=model, others=10)
    times = {kind_of(found.plan): found.cost.time, **{kind_of(item.plan): item.cost.time for item in found.alternatives}}
    assert found.cost.time == pytest.approx(min(best.values()), rel=1e-12)
    assert all(time >= best[each] * (1 - 1e-12) for each, time in times.items())
    vouched = min(found.untimed, found.unfit)
    missing = [time for each, time in best.items() if each not in times or times[each] > time * (1 + 1e-12)]
    shown = max(times.values()) if len(times) > 10 else math.inf
    assert all(time >= min(vouched, shown) * (1 - 1e-12) for time in missing)
