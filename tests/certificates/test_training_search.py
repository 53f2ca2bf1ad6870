"""The search for training plans against `training_enumeration`: every plan of small systems, put together by the simulation."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.certificates import training_enumeration as oracle

from halley.answer import Status
from halley.errors import BadInput, Infeasible, SearchStopped
from halley.io.chips.load import load_chip
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Replicate, Shard
from halley.ir.system import Host, System, with_memory
from halley.kernels.machine import PEAK, Efficiency
from halley.kernels.software import Software
from halley.optim.deadline import Tick, no_limit
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule, never_deadlocks
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role, assignments
from halley.sharding.communication import Communication, Interconnect
from halley.simulate.schedule import interleaved
from halley.training.axis_bounds import GraphVariant
from halley.training.part_bounds import ModelBound, PartBound
from halley.training.part_costs import MemoryBudget, ModelCosts, PartCosts
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.search import best_training_plan, bounded_search
from halley.training.search.space import training_space
from halley.training.sharded_model import Passes, ShardedModel
from halley.workloads.transformer import Transformer

EFFICIENCY = Efficiency(matrix=0.8, vector=0.7, memory=0.9, cache=0.9, overlap=0.5, latency=1e-6, launch=3e-6)
TOPOLOGIES = (Topology.SWITCH, Topology.RING, Topology.FULL)


PASSES = "forward", "recompute", "backward"


class Drawn:
    """Costs of parts drawn at random: ``many`` shardings for each mesh, microbatch and way, none below the bounds."""

    def __init__(self, seed: int, kinds: tuple[int, ...], many: int) -> None:
        self.seed, self.kinds, self.many = seed, kinds, many
        draw = random.Random(seed)
        self.base = [
            {"time": draw.uniform(1e-4, 2e-3), "size": draw.uniform(1e6, 2e7), "kept": draw.uniform(1e6, 1e8)}
            for _ in range(len(kinds) + 2)
        ]
        self.known: dict[object, list[ModelCosts]] = {}
        self.spent = 0

    def shardings(self, communication: Communication, microbatch: int, way: GraphVariant) -> list[ModelCosts]:
        key = tuple((axis.name, axis.ranks) for axis in communication.mesh), microbatch, way
        if key not in self.known:
            draw = random.Random(f"{self.seed} {key}")
            self.known[key] = [self._drawn(draw, communication, microbatch, way) for _ in range(self.many)]
        return self.known[key]

    def _drawn(self, draw: random.Random, communication: Communication, microbatch: int, way: GraphVariant) -> ModelCosts:
        ranks = math.prod(axis.ranks for axis in communication.mesh)
        parts = []
        for base in self.base:
            time, kept = base["time"] * microbatch / ranks, base["kept"] * microbatch / ranks
            kept *= {Recompute.NONE: 1.0, Recompute.SELECTIVE: 0.6, Recompute.FULL: 0.2}[way.recompute]
            again = {Recompute.NONE: 0.0, Recompute.SELECTIVE: 0.3, Recompute.FULL: 1.0}[way.recompute] * time
            slow = 1.0 if way.fused else 1.1
            parts.append(
                PartCosts(
                    forward=time * slow * draw.uniform(1, 1.4),
                    recompute=again * slow * draw.uniform(1, 1.4),
                    backward=2 * time * slow * draw.uniform(1, 1.4),
                    parameters=float(math.ceil(base["size"] / ranks * draw.uniform(1, 1.5))),
                    activation=float(math.ceil(kept * draw.uniform(1, 1.5))),
                    working=float(draw.randint(0, 10**6)),
                    macs=1e9,
                    products=1e9,
                    traffic=1e9,
                    exposed={CollectiveKind.ALL_REDUCE: 1e-6},
                    sharding=SimpleNamespace(steps=(), problem=SimpleNamespace(mesh=communication.mesh)),  # type: ignore[arg-type]
                )
            )
        boundary = tuple(draw.choice([Replicate(), Shard("m"), Shard("k")]) for _ in communication.mesh)
        return ModelCosts(parts[0], tuple(zip(parts[1:-1], self.kinds, strict=True)), parts[-1], boundary)

    def tighter(self, communication: Communication, microbatch: int, way: GraphVariant) -> list[Any]:
        return []

    def layers(self, communication: Communication, microbatch: int, way: GraphVariant, rough: bool = False) -> Any:
        rows = [[part.time for part, _ in each.blocks] for each in self.shardings(communication, microbatch, way)]
        return np.min(rows, axis=0) * (0.9 if rough else 1.0)

    def costs(
        self,
        communication: Communication,
        microbatch: int,
        way: GraphVariant,
        budget: MemoryBudget | None = None,
        resident: float | None = None,
    ) -> ModelCosts:
        found = self.shardings(communication, microbatch, way)
        if budget is not None:
            found = [each for each in found if self.taken(each, budget, resident or 0.0) <= budget.capacity]
        if not found:
            raise Infeasible([])
        known = self.shardings(communication, microbatch, way)
        rows = [[part.time for part in each.parts] for each in known]
        best = min(found, key=lambda each: each.time)
        boundaries = {each.boundary: [row for row, other in zip(rows, known, strict=True) if other.boundary == each.boundary]
                      for each in known}  # fmt: skip
        return replace(
            best,
            least=tuple(map(min, zip(*rows, strict=True))),
            by_boundary=tuple(tuple(map(min, zip(*some, strict=True))) for some in boundaries.values()),
            bound=best.time,
        )

    def along(
        self,
        communication: Communication,
        microbatch: int,
        way: GraphVariant,
        passes: Passes,
        budget: MemoryBudget,
        resident: float,
        most: NDArray[np.float64] | None = None,
    ) -> tuple[float, ModelCosts]:
        every = self.shardings(communication, microbatch, way)
        found = [each for each in every if self.taken(each, budget, resident) <= budget.capacity]
        if most is not None:
            found = [each for each in found if all(part.parameters <= own for part, own in zip(each.parts, most, strict=True))]
        if not found:
            raise Infeasible([])

        def path(costs: ModelCosts) -> float:
            rows = zip(costs.parts, *passes, strict=True)
            return math.fsum(ahead * part.forward + behind * (part.recompute + part.backward) for part, ahead, behind in rows)

        best = min(found, key=path)
        return path(best), best

    @staticmethod
    def taken(costs: ModelCosts, budget: MemoryBudget, resident: float) -> float:
        sizes = (resident * part.parameters + budget.in_flight * part.activation for part in costs.parts)
        return sum(held * each for held, each in zip(budget.held, sizes, strict=True))

    def bound(self, ranks: Any, microbatch: Any, way: GraphVariant) -> ModelBound:
        known = self.raised(None, ranks, microbatch, way)
        less = [replace(part, **{name: 0.8 * getattr(part, name) for name in PASSES}) for part in known.parts]
        return ModelBound(less[0], tuple(zip(less[1:-1], known.layers, strict=True)), less[-1])

    def raised(
        self, bound: ModelBound | None, ranks: Any, microbatch: Any, way: GraphVariant, tick: Tick = no_limit
    ) -> ModelBound:
        share = np.asarray(microbatch, float) / ranks
        less = {Recompute.NONE: 1.0, Recompute.SELECTIVE: 0.6, Recompute.FULL: 0.2}[way.recompute]
        again = {Recompute.NONE: 0.0, Recompute.SELECTIVE: 0.3, Recompute.FULL: 1.0}[way.recompute]
        slow = 1.0 if way.fused else 1.1
        parts = [
            PartBound(
                slow * base["time"] * share,
                slow * again * base["time"] * share,
                slow * 2 * base["time"] * share,
                base["size"] / ranks,
                less * base["kept"] * share,
                0.0,
                0.0,
                0.0,
            )
            for base in self.base
        ]
        return ModelBound(parts[0], tuple(zip(parts[1:-1], self.kinds, strict=True)), parts[-1])


def drawn(seed: int, many: int) -> tuple[TrainingProblem, Drawn]:
    """A small system, model and batch; some choices fixed, so that there are some hundreds of plans."""
    draw = random.Random(seed)
    sizes = draw.choice([(2,), (4,), (2, 2), (8,), (4, 2), (2, 2, 2), (6,), (3, 2)])
    axes = [
        Axis(f"x{n}", size, draw.choice(TOPOLOGIES), Link(10 ** draw.uniform(9.5, 11.5), 10 ** draw.uniform(-6.5, -5)))
        for n, size in enumerate(sizes)
    ]
    capacity = 10 ** draw.uniform(7.8, 9.8)
    chip = with_memory(load_chip("a100"), capacity, 2e12, 1e-12)
    host = Host(1e12, 5e10, Link(3e10)) if draw.random() < 0.3 else None
    system = System("drawn", chip, tuple(axes), host=host)
    kinds = draw.choice([(2,), (3,), (4,), (5,), (1, 2), (2, 3)])
    shape = Transformer("drawn", sum(kinds), 256, heads=4, kv_heads=4, head_dim=64, hidden=512, vocabulary=100, sequence=64)
    fixed = Fixed(
        recompute=draw.choice([Recompute.NONE, Recompute.FULL, Recompute.SELECTIVE]),
        fused=draw.choice([True, False]),
        sharded=draw.choice([None, *Sharded]) if draw.random() < 0.7 else None,
    )
    if fixed.sharded is not None and fixed.sharded is not Sharded.NOTHING:
        fixed = Fixed(recompute=fixed.recompute, fused=fixed.fused)
    problem = TrainingProblem(shape, system, draw.choice([4, 6, 8]), 64, EFFICIENCY, fixed=fixed)
    software = Software("drawn", contention=draw.choice([0.05, 0.3])) if draw.random() < 0.5 else None
    return replace(problem, software=software), Drawn(seed, kinds, many)


def check(seed: int, many: int) -> bool:
    """The search's answer, its count and its bounds at every step; False: nothing fits, and the search says so."""
    problem, model = drawn(seed, many)
    best, count = oracle.least(oracle.enumerate_plans(problem, model), problem.capacity)
    assert training_space(problem).size * many == count
    if best is None:
        with pytest.raises(Infeasible):
            best_training_plan(problem, model=model, others=0)
        return False
    search = bounded_search(problem, model)
    assert search.least <= best.time * (1 + 1e-12)
    for _ in search.steps():
        assert search.least <= best.time * (1 + 1e-12)
    assert search.closed
    search.bound_timed_plans()
    assert search.least <= best.time * (1 + 1e-12)
    if many == 1:
        assert search.incumbent == pytest.approx(best.time, rel=1e-12)
    else:
        assert search.incumbent >= best.time * (1 - 1e-12)
    return True


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_that_of_all_plans(seed: int) -> None:
    check(seed, 1)


@pytest.mark.parametrize("seed", range(100, 104))
def test_the_bound_holds_for_all_shardings(seed: int) -> None:
    check(seed, 3)


@pytest.mark.slow
def test_hundreds_of_systems() -> None:
    assert sum(check(seed, 1) for seed in range(1000, 1150)) > 60
    assert sum(check(seed, 3) for seed in range(2000, 2050)) > 20


def test_schedules_that_go_on_are_those_whose_tables_can_be_built() -> None:
    for stages in range(2, 8):
        for chunks in range(2, 5):
            for microbatches in range(1, 3 * stages + 1):
                try:
                    interleaved(stages, chunks, microbatches)
                    runs = True
                except BadInput:
                    runs = False
                assert never_deadlocks(stages, microbatches, chunks) == runs


REAL = Transformer("real", 8, 2048, heads=16, kv_heads=8, head_dim=128, hidden=5632, vocabulary=32000, sequence=1024)
SYSTEM = System(
    "pod",
    load_chip("a100"),
    (Axis("node", 4, Topology.SWITCH, Link(25e9, 2e-6)), Axis("gpu", 4, Topology.RING, Link(150e9, 1e-6))),
)


def test_bounds_of_parts_are_below_all_shardings() -> None:
    check_bounds(Recompute.NONE, True, {(2, 2), (4,)})


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_bounds_of_parts_are_below_all_shardings_of_all_meshes(recompute: Recompute, fused: bool) -> None:
    check_bounds(recompute, fused, None)


def check_bounds(recompute: Recompute, fused: bool, meshes: set[tuple[int, ...]] | None) -> None:
    """Bounds by the rates, by products, by one axis, and by layers alone; for this microbatch and from larger ones."""
    problem, way = TrainingProblem(REAL, SYSTEM, 64, 1024, EFFICIENCY), GraphVariant(recompute, fused)
    model, interconnect = ShardedModel(problem), Interconnect(SYSTEM)
    seen = set()
    for assignment in assignments(SYSTEM):
        communication = Communication(interconnect, assignment)
        sizes = tuple(axis.ranks for axis in communication.mesh)
        if communication.model_key in seen or (meshes is not None and sizes not in meshes):
            continue
        seen.add(communication.model_key)
        ranks = math.prod(sizes)
        for microbatch in (3, 1):
            found = np.array(model.costs(communication, microbatch, way).least)
            bound = model.raised(model.bound(ranks, microbatch, way), ranks, microbatch, way)
            parts = bound.parts
            assert (np.array([float(part.time) for part in parts]) <= found * (1 + 1e-9)).all()
            excess = np.array([float(part.excess) for part in parts[1:-1]])
            assert (excess > 0).all()
            for layers in model.tighter(communication, microbatch, way):
                assert (layers + excess <= found[1:-1] * (1 + 1e-9)).all()
            alone = ShardedModel(problem).layers(communication, microbatch, way)
            assert (alone <= found[1:-1] * (1 + 1e-9)).all()
            assert (alone >= found[1:-1] * (1 - 1e-6)).all()


def test_a_real_model_on_a_small_system() -> None:
    """Shardings by the engine; every plan is put together by the simulation, with the shardings of its group."""
    system = replace(SYSTEM, axes=(replace(SYSTEM.axes[0], size=2), replace(SYSTEM.axes[1], size=2)))
    fixed = Fixed(recompute=Recompute.NONE, fused=True)
    problem = TrainingProblem(replace(REAL, layers=4), system, 4, 1024, EFFICIENCY, fixed=fixed)
    model = ShardedModel(problem)
    model_of_all = _Fastest(model)
    best, count = oracle.least(oracle.enumerate_plans(problem, model_of_all), problem.capacity)
    found = best_training_plan(problem, others=3)
    assert best is not None
    assert found.certificate.size == count
    assert found.cost.time == pytest.approx(best.time, rel=1e-12)
    assert found.certificate.bound <= best.time
    assert math.fsum(found.cost.account.values()) == pytest.approx(found.cost.time, rel=1e-12)
    times = [found.cost.time, *(other.cost.time for other in found.alternatives)]
    assert times == sorted(times)
    assert len(times) == 4
    for other in found.alternatives:
        assert math.fsum(slower for _, slower in other.slower) == pytest.approx(other.cost.time - found.cost.time, abs=1e-9)


class _Fastest:
    """The fastest shardings of each group, as the only ones."""

    def __init__(self, model: ShardedModel) -> None:
        self.model, self.known = model, dict[object, ModelCosts]()

    def shardings(self, communication: Communication, microbatch: int, way: GraphVariant) -> list[ModelCosts]:
        key = communication.model_key, microbatch, way
        if key not in self.known:
            self.known[key] = self.model.costs(communication, microbatch, way)
        return [self.known[key]]


def test_an_interrupt_and_a_limit_give_the_best_so_far() -> None:
    problem, model = drawn(7, 1)
    whole = best_training_plan(problem, model=model, others=0)

    def interrupt(text: str, share: float) -> None:
        if text.startswith("best"):
            raise KeyboardInterrupt

    for found in (best_training_plan(problem, interrupt, model=model), best_training_plan(problem, limit=1e9, model=model)):
        assert found.certificate.bound <= whole.cost.time <= found.cost.time * (1 + 1e-12)
    with pytest.raises(SearchStopped, match="in time"):
        best_training_plan(problem, limit=0.0, model=model)


@pytest.mark.parametrize("seed", [1, 3, 7])
def test_a_first_plan_out_of_order_leaves_the_optimum_as_it_is(seed: int) -> None:
    problem, model = drawn(seed, 1)
    best, _ = oracle.least(oracle.enumerate_plans(problem, model), problem.capacity)
    search = bounded_search(problem, model)
    search.find_first_plan()
    assert best is not None
    assert search.best
    for _ in search.steps():
        pass
    assert search.closed
    assert search.incumbent == pytest.approx(best.time, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_better_plans_out_of_order_leave_the_optimum_as_it_is(seed: int) -> None:
    problem, model = drawn(seed, 1)
    best, _ = oracle.least(oracle.enumerate_plans(problem, model), problem.capacity)
    search = bounded_search(problem, model)
    for _ in search.steps():
        search.improve_incumbent()
    assert search.incumbent == pytest.approx(best.time if best else math.inf, rel=1e-12)


@pytest.mark.parametrize("stages", [None, 4, 8])
def test_small_models_without_shared_ops_are_proven(stages: int | None) -> None:
    system = replace(SYSTEM, axes=(replace(SYSTEM.axes[0], size=2), SYSTEM.axes[1]))
    problem = TrainingProblem(REAL, system, 64, 1024, EFFICIENCY, fixed=Fixed(model=1, stages=stages))
    found = best_training_plan(problem, others=0)
    assert found.status is Status.OPTIMAL
    assert found.certificate.gap < 1e-6


def test_ends_that_share_a_table_add_up_its_gradients() -> None:
    system = replace(SYSTEM, axes=(SYSTEM.axes[1],))
    fixed = Fixed(data=1, stages=4, model=1, recompute=Recompute.NONE, fused=True, schedule=PipelineSchedule.GPIPE, microbatch=1)
    problem = TrainingProblem(REAL, system, 4, 1024, EFFICIENCY, fixed=fixed)
    apart = best_training_plan(problem, others=0).cost
    tied = best_training_plan(replace(problem, shape=replace(REAL, tied=True)), others=0).cost
    link, table = system.axes[0].link, REAL.vocabulary * REAL.model * problem.recipe.gradient
    # halves there and back, over the links of a ring that join its ends
    expected = 2 * (link.latency + table / 2 / link.bandwidth)
    assert tied.time - apart.time == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        (Fixed(data=3), "degrees"),
        (Fixed(microbatch=5), "microbatch"),
        (Fixed(chunks=9, stages=2), "chunks per stage"),
        (Fixed(axes={"x0": {Role.DATA: 3}}), "fixed parts"),
        (Fixed(stages=2, chunks=2, schedule=PipelineSchedule.GPIPE), "GPipe"),
    ],
)
def test_choices_that_no_plan_has(fixed: Fixed, words: str) -> None:
    problem, model = drawn(7, 1)
    axes = (Axis("x0", 8, Topology.SWITCH, Link(1e11)),)
    with pytest.raises(BadInput, match=words):
        best_training_plan(replace(problem, system=replace(problem.system, axes=axes), batch=8, fixed=fixed), model=model)


def test_what_is_short_is_named() -> None:
    problem, model = drawn(7, 1)
    chip = with_memory(problem.system.chip, 1e5, 2e12, 1e-12)
    with pytest.raises(Infeasible, match=r"expected at most .* on a chip; got at least .*; "):
        best_training_plan(replace(problem, system=replace(problem.system, chip=chip)), model=model)


@pytest.mark.medium
def test_parameters_that_are_gathered_need_more_memory_than_sharded_gradients() -> None:
    """A layout counted as too large where it did not fit with sharded parameters, and a plan 7 % slower as proven."""
    shape = replace(load_model("gpt2-xl"), layers=4)
    system, fixed = load_system("2 x h100, nvlink 2"), Fixed(model=1, offload=False)
    found = best_training_plan(TrainingProblem(shape, system, 8, 1024, PEAK, fixed=fixed, usable=5e9))
    for sharded in Sharded:
        try:
            other = best_training_plan(replace(found.problem, fixed=replace(fixed, sharded=sharded)))
        except Infeasible:
            continue
        assert found.cost.time <= other.cost.time * (1 + 1e-9)
        assert found.certificate.bound <= other.cost.time
