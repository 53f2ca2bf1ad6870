"""Shardings and plans that are costed again from their decisions alone are the ones that were found."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.cli.test_plan import TINY
from tests.reference.test_sharding_runs import chosen

from halley.errors import BadInput, Infeasible
from halley.io.files.save import dumps
from halley.io.results.envelope import read_saved
from halley.io.results.training import plan_document, read_training
from halley.io.systems.system import load_system
from halley.io.transformers import parse_model
from halley.ir.system import with_memory
from halley.kernels.machine import PEAK
from halley.sharding.decisions import decided, decisions_of
from halley.sharding.solution import shard
from halley.sharding.solve import sharding_graph
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan


@pytest.mark.parametrize("seed", range(40))
def test_a_sharding_follows_from_its_decisions(seed: int) -> None:
    random = Random(seed)
    plan = chosen(random, random.choice((1, 2)), (2, 3, 6, 8))
    for found in (plan, _tighter(plan)):
        again = decided(sharding_graph(found.problem), decisions_of(found))
        assert (again.time, again.memory, again.ends, again.copies) == (found.time, found.memory, found.ends, found.copies)
        assert again.redistributions == found.redistributions
        assert [item.op for item in again.ops] == [item.op for item in found.ops]
        assert [(item.strategy, item.time) for item in again.ops] == [(item.strategy, item.time) for item in found.ops]


def _tighter(plan):  # type: ignore[no-untyped-def]
    """The best that holds less, if there is one."""
    try:
        return shard(plan.problem, capacity=plan.memory * 0.9)
    except Infeasible:
        return plan


@pytest.mark.parametrize("seed", range(10))
def test_decisions_of_another_graph_are_refused(seed: int) -> None:
    random = Random(seed)
    plan = chosen(random, 1, (6, 8))
    decisions, graph = decisions_of(plan), sharding_graph(plan.problem)
    op = plan.ops[0].op
    for wrong in (
        replace(decisions, ops={**decisions.ops, op: ("nothing",)}),
        replace(decisions, ops={**decisions.ops, "nothing": ("",)}),
        replace(decisions, ops={name: ways for name, ways in decisions.ops.items() if name != op}),
        replace(decisions, ends={}),
        replace(decisions, ends=dict.fromkeys(decisions.ends, ("nothing",))),
    ):
        with pytest.raises(BadInput):
            decided(graph, wrong)


def planned(capacity: float | None, fixed: Fixed) -> TrainingResult:
    """A small model on four chips of so much memory."""
    system, shape = load_system("4 x a100, nvlink 4"), parse_model(TINY)
    if capacity is not None:
        memory = system.chip.levels[0].memories[0]
        system = replace(system, chip=with_memory(system.chip, capacity, memory.read_bandwidth, memory.read_energy))
    return best_training_plan(TrainingProblem(shape, system, 8, shape.sequence, PEAK, fixed=fixed))


@pytest.mark.medium
@pytest.mark.parametrize("share", [None, 0.9, 0.7])
@pytest.mark.parametrize("fixed", [Fixed(model=2, stages=2), Fixed(model=4)], ids=["pipeline", "model"])
def test_a_plan_follows_from_its_decisions(share: float | None, fixed: Fixed, tmp_path: Path) -> None:
    """Also where memory is short, so that copies and layouts are chosen to fit."""
    result = planned(None, fixed)
    if share is not None:
        most = max(sum(stage.values()) for stage in result.cost.memory)
        try:
            result = planned(share * most, fixed)
        except Infeasible:
            pytest.skip("nothing fits")
    document = json.loads(dumps(plan_document(result)))
    (tmp_path / "plan.json").write_text(json.dumps(document))
    again = read_training(read_saved(tmp_path / "plan.json"))
    assert again.plan == result.plan
    assert math.isclose(again.cost.time, result.cost.time, rel_tol=1e-12)
    for before, after in zip(result.cost.memory, again.cost.memory, strict=True):
        assert {name: pytest.approx(size, rel=1e-12) for name, size in before.items()} == after
    assert json.loads(dumps(plan_document(again)))["answer"] == document["answer"]
