"""Plans whose kernels may run as one: bounds below every sharding, the optimum of all plans, and the table that it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from tests.certificates import training_enumeration as oracle
from tests.certificates.test_training_search import EFFICIENCY, REAL, SYSTEM, _Fastest, check_bounds
from tests.reference.test_part_costs import CHIP, FIT, check_below, drawn

from halley.errors import BadInput, Fault, Infeasible
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.system import System
from halley.ir.workload import Workload
from halley.rewrite.recompute import Recompute
from halley.search.result import Status
from halley.training.fusion import plan as fused_plan
from halley.training.fusion.bounds import with_fusions
from halley.training.fusion.plan import best_fused_plan, joined_groups
from halley.training.fusion.shapes import FusionKey, FusionPattern
from halley.training.fusion.table import FusionEntry, FusionTable, empty_table
from halley.training.part_costs import training_graphs
from halley.training.plan import Fixed, Outcome, TrainingProblem, TrainingResult
from halley.training.product_bounds import ProductBounds
from halley.training.search.search import best_training_plan
from halley.training.sharded_model import ShardedModel

UNKNOWN = empty_table(SYSTEM.chip)
NONE = FusionEntry(math.inf, math.inf, 0.0, "none")
SMALL: System = replace(SYSTEM, axes=(replace(SYSTEM.axes[0], size=2), replace(SYSTEM.axes[1], size=2)))
FOUR = TrainingProblem(replace(REAL, layers=4), SMALL, 4, 1024, EFFICIENCY, fixed=Fixed(recompute=Recompute.NONE, fused=True))


class Drawn(Mapping[FusionKey, FusionEntry]):
    """A table that knows every shape: no mapping, a slow one, or one that is as fast as can be."""

    def __getitem__(self, key: FusionKey) -> FusionEntry:
        random = Random(str(key))
        time = random.choice((1e-9, random.uniform(1e-5, 1e-3), math.inf))
        return FusionEntry(time, time, 0.0, "drawn")

    def __iter__(self):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


DRAWN = replace(UNKNOWN, entries=Drawn())


@pytest.mark.parametrize("seed", range(12))
def test_no_sharding_costs_less_than_the_bound(seed: int) -> None:
    given = drawn(seed)
    graphs, products = training_graphs(given.shape, 1, 512, given.choice, given.fused), ProductBounds(CHIP, FIT, 4)
    apart = products.raised(given.bound(), graphs, given.microbatch, given.ranks)
    bound = with_fusions(products, apart, graphs, given.microbatch, given.ranks)
    check_below(given.costs(fusions=empty_table(load_chip("a100"))), bound)
    assert float(bound.time) < float(apart.time), "something can be saved"


@pytest.mark.parametrize("table", [UNKNOWN, DRAWN], ids=["unknown", "drawn"])
def test_bounds_of_layers_are_below_their_costs(table: FusionTable) -> None:
    check_bounds(Recompute.NONE, True, {(2,), (4,), (2, 2)}, table)


@pytest.fixture(scope="module")
def apart() -> TrainingResult:
    """The best plan without fused groups."""
    return best_training_plan(FOUR, others=0)


@pytest.fixture(scope="module")
def hoped() -> TrainingResult:
    """The best plan where every group is as fast as its bound."""
    return best_training_plan(replace(FOUR, fusions=UNKNOWN), others=0)


@pytest.mark.parametrize("table", [UNKNOWN, DRAWN], ids=["unknown", "drawn"])
def test_the_best_of_all_plans(table: FusionTable, apart: TrainingResult) -> None:
    problem = replace(FOUR, fusions=table)
    best, count = oracle.least(oracle.enumerate_plans(problem, _Fastest(ShardedModel(problem))), problem.capacity)
    found = best_training_plan(problem, others=0)
    assert best is not None
    assert found.certificate.size == count
    assert found.cost.time == pytest.approx(best.time, rel=1e-12)
    assert found.certificate.bound <= best.time < apart.cost.time


def test_shapes_are_searched_until_plans_use_none_that_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a searcher of its own: the loop ends at the optimum of the table that knows every shape."""
    asked = list[Workload]()

    def search(group: Workload, chip: Chip, limit: float) -> FusionEntry:
        asked.append(group)
        pattern = FusionPattern(group.ops, group.tensors, group.outputs, {})
        return DRAWN.entries[FusionKey(pattern.graph, tuple(group.dims.values()))]

    monkeypatch.setattr(fused_plan, "searched", search)
    found = best_fused_plan(FOUR, others=2)
    exact = best_training_plan(replace(FOUR, fusions=DRAWN), others=0)
    assert found.result.cost.time == pytest.approx(exact.cost.time, rel=1e-9)
    assert len(asked) == len(found.table.entries) > 0
    assert found.rounds > 1
    again = best_fused_plan(FOUR, found.table, others=2)
    assert (again.rounds, again.result.cost.time) == (1, found.result.cost.time)


def test_where_no_group_has_a_mapping_plans_are_as_they_were(apart: TrainingResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_plan, "searched", lambda group, chip, limit: NONE)
    found = best_fused_plan(FOUR, others=0)
    assert found.result.cost.time == apart.cost.time
    assert not list(joined_groups(found.result.cost))
    assert all(entry is NONE for entry in found.table.entries.values())


def test_no_fused_kernel_is_faster_than_the_table_says() -> None:
    class Slow(Drawn):
        def __getitem__(self, key: FusionKey) -> FusionEntry:
            return FusionEntry(2e-3, 1e-3, 0.0, "slow")

    result = best_training_plan(replace(FOUR, fusions=replace(UNKNOWN, entries=Slow())), others=0)
    assert all(each.time >= 1e-3 for each in joined_groups(result.cost))


def test_tables_of_other_chips_and_chips_that_stream_are_refused() -> None:
    with pytest.raises(BadInput, match="one of h100"):
        best_fused_plan(FOUR, empty_table(load_chip("h100")))
    with pytest.raises(BadInput, match="kernel by kernel"):
        best_fused_plan(replace(FOUR, system=replace(SMALL, chip=load_chip("sn40l"))))


def test_what_is_moved_is_counted_as_one(apart: TrainingResult, hoped: TrainingResult) -> None:
    """Traffic of a chip is less by what stays between the kernels."""
    assert hoped.plan == apart.plan
    less = [a.traffic - b.traffic for a, b in zip(apart.cost.parts.parts, hoped.cost.parts.parts, strict=True)]
    assert less[1] > 0
    assert np.allclose([less[0], less[2]], 0.0)


def _interrupted(group: Workload, chip: Chip, limit: float) -> FusionEntry:
    raise KeyboardInterrupt


def _cut_short(group: Workload, chip: Chip, limit: float) -> FusionEntry:
    """As a search of mappings ends that is interrupted."""
    return FusionEntry(1.0, 1e-9, 0.0, Status.LIMIT.value)


@pytest.mark.parametrize("search", [_interrupted, _cut_short])
def test_when_interrupted_groups_that_are_not_known_run_apart(
    search: Callable, apart: TrainingResult, hoped: TrainingResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known yet: the plan is one of those without groups, and the bound that of plans with them."""
    monkeypatch.setattr(fused_plan, "searched", search)
    found = best_fused_plan(FOUR, others=2)
    cost, proof = found.result.cost, found.result.certificate
    assert found.result.outcome is Outcome.LIMIT
    assert not list(joined_groups(cost))
    assert not found.table.entries
    assert apart.certificate.bound <= cost.time < 1.2 * apart.cost.time
    assert proof.value == cost.time
    assert proof.bound <= hoped.cost.time < cost.time


@pytest.mark.parametrize("step", ["fused group", "proven; looks for plans of other kinds"])
def test_an_interrupt_between_searches_keeps_the_plan(step: str, hoped: TrainingResult) -> None:
    """As what shows the progress raises it, where there was one that was lost."""
    told = list[str]()

    def progress(text: str, share: float) -> None:
        told.append(text)
        if any(step in each for each in told):
            raise KeyboardInterrupt

    result = best_fused_plan(FOUR, progress=progress, others=2).result
    assert any(step in each for each in told)
    assert result.outcome is Outcome.LIMIT
    assert result.certificate.bound <= hoped.cost.time


def test_the_limit_is_that_of_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock passes the limit while the first group is searched, whose entry is kept: its search came to its end."""
    searches = list[float]()

    def search(group: Workload, chip: Chip, limit: float) -> FusionEntry:
        searches.append(limit)
        return FusionEntry(1e-9, 1e-9, 0.0, Status.OPTIMAL.value)

    monkeypatch.setattr(fused_plan, "searched", search)
    monkeypatch.setattr(fused_plan, "time", SimpleNamespace(monotonic=lambda: 99.0 if searches else 0.0))
    found = best_fused_plan(FOUR, limit=60.0, others=2)
    assert searches == [30.0]
    assert len(found.table.entries) == 1
    assert found.result.outcome is Outcome.LIMIT


@pytest.mark.parametrize("late", ["last group", "next round"])
def test_a_plan_is_not_lost_when_time_is_up_between_rounds(late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit passes while the last group is searched, or before the next round has a first plan."""
    exact, asked, passed = FusionEntry(1e-9, 1e-9, 0.0, Status.OPTIMAL.value), list[Workload](), list[float]()
    plans = list[TrainingResult]()

    def search(group: Workload, chip: Chip, limit: float) -> FusionEntry:
        asked.append(group)
        if late == "last group" and len(asked) == len(fused_plan.empty_table(chip).missing(fused_plan._used(plans[0]))):
            passed.append(99.0)
        return exact

    def plan(problem: TrainingProblem, *given: object, **more: object) -> TrainingResult:
        pinned = problem.fusions is not None and problem.fusions.settled
        if plans and not pinned:
            raise Infeasible(Fault("plan", "one in time", "none yet"))
        plans.append(best_training_plan(problem, others=0))
        return plans[-1]

    monkeypatch.setattr(fused_plan, "searched", search)
    monkeypatch.setattr(fused_plan, "best_training_plan", plan)
    monkeypatch.setattr(fused_plan, "time", SimpleNamespace(monotonic=lambda: passed[0] if passed else 0.0))
    found = best_fused_plan(FOUR, limit=60.0, others=0)
    assert len(plans) == 2, "the first round, and its plan as it is"
    assert found.result.certificate.bound <= found.result.cost.time
    assert len(found.table.entries) == len(asked) > 0
