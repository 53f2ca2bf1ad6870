"""Axes that are equal but for their names: one order of their parts stands for all, and nothing is lost by that."""

from __future__ import annotations

import math

import numpy as np
import pytest

from halley.io.chips.load import load_chip
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.kernels.machine import Efficiency
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role, SubAxis, assignments, parts_of
from halley.sharding.communication import Communication, Interconnect
from halley.training.axis_bounds import GraphVariant
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.floors import floors_of
from halley.training.search.search import best_training_plan
from halley.training.search.space import training_space
from halley.training.search.steps import TrainingSearch
from halley.training.sharded_model import ShardedModel
from halley.workloads.transformer import Transformer

EFFICIENCY = Efficiency(matrix=0.8, vector=0.7, memory=0.9, cache=0.9, overlap=0.5, latency=1e-6, launch=3e-6)
SHAPE = Transformer("real", 4, 2048, heads=16, kv_heads=8, head_dim=128, hidden=5632, vocabulary=32000, sequence=1024)
LINK = Link(50e9, 1e-6)


def system(*sizes: int) -> System:
    return System("grid", load_chip("a100"), tuple(Axis(f"a{n}", size, Topology.RING, LINK) for n, size in enumerate(sizes)))


def test_equal_keys_have_equal_meshes_but_for_names_and_equal_times() -> None:
    grid = system(4, 6, 4)
    interconnect = Interconnect(grid)
    first: dict[object, Communication] = {}
    for assignment in assignments(grid):
        found = Communication(interconnect, assignment)
        other = first.setdefault(found.model_key, found)
        assert [axis.ranks for axis in found.mesh] == [axis.ranks for axis in other.mesh]
        assert {(axis.name, axis.ranks) for axis in found.mesh} == {
            (part.axis, part.size) for part in parts_of(assignment, Role.MODEL)
        }
        for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL):
            for count in range(1, len(found.mesh) + 1):
                names = [tuple(axis.name for axis in each.mesh[-count:]) for each in (found, other)]
                assert found.model(kind, names[0], 1 << 20) == other.model(kind, names[1], 1 << 20)
    named = {Communication(Interconnect(grid, named=True), each).model_key for each in assignments(grid)}
    assert len(first) < len(named)


def test_names_and_measurements_distinguish_axes() -> None:
    grid = system(4, 4)
    parts = SubAxis("a0", Role.MODEL, 4, 1), SubAxis("a1", Role.MODEL, 2, 1), SubAxis("a1", Role.DATA, 2, 2)
    swapped = SubAxis("a1", Role.MODEL, 4, 1), SubAxis("a0", Role.MODEL, 2, 1), SubAxis("a0", Role.DATA, 2, 2)
    alike, apart = Interconnect(grid), Interconnect(grid, named=True)
    assert Communication(alike, parts).model_key == Communication(alike, swapped).model_key
    assert Communication(apart, parts).model_key != Communication(apart, swapped).model_key


@pytest.mark.parametrize("sizes", [(2, 2), pytest.param((2, 4, 2), marks=pytest.mark.slow)])
def test_the_optimum_is_that_of_all_orders(sizes: tuple[int, ...]) -> None:
    fixed = Fixed(recompute=Recompute.NONE, fused=True)
    problem = TrainingProblem(SHAPE, system(*sizes), 4, 1024, EFFICIENCY, fixed=fixed)
    found = best_training_plan(problem, others=3)
    space, interconnect = training_space(problem), Interconnect(problem.system, named=True)
    model = ShardedModel(problem)
    search = TrainingSearch(
        problem, floors_of(space, [Communication(interconnect, each) for each in space.assignments], model), model
    )
    search.start()
    for _ in search.steps():
        pass
    assert found.cost.time == pytest.approx(search.incumbent, rel=1e-12)
    assert found.certificate.size == space.size
    for plan, cost in [(found.plan, found.cost), *((other.plan, other.cost) for other in found.alternatives)]:
        own = {part.axis: part.size for part in parts_of(plan.assignment, Role.MODEL)}
        for sharding in cost.shardings.values():
            assert {axis.name: axis.ranks for axis in sharding.problem.mesh} == own
            assert {axis for _, step in sharding.steps for axis in step.axes} <= {*own}
            names = [axis.name for axis in sharding.problem.mesh]
            for _, step in sharding.steps:
                assert step.kind is not None
                assert step.time <= sharding.problem.collective_time(step.kind, step.axes, step.bytes) * (1 + 1e-12)
                changed = {name for name, a, b in zip(names, step.before, step.after, strict=True) if a != b}
                assert changed <= {*step.axes}


def test_bounds_of_pairs_of_axes_are_below_all_shardings() -> None:
    grid = system(2, 2, 2)
    problem, way = TrainingProblem(SHAPE, grid, 64, 1024, EFFICIENCY), GraphVariant(Recompute.NONE, True)
    model, whole = ShardedModel(problem), tuple(SubAxis(axis.name, Role.MODEL, 2, 1) for axis in grid.axes)
    communication = Communication(Interconnect(grid), whole)
    for microbatch in (2, 1):
        found = np.array(model.costs(communication, microbatch, way).least)[1:-1]
        known = model.raised(model.bound(8, microbatch, way), 8, microbatch, way)
        excess = np.array([float(part.excess) for part in known.parts[1:-1]])
        bounds = [layers + excess for layers in model.tighter(communication, microbatch, way)]
        assert len(bounds) == 2  # three equal axes, three equal pairs
        assert (np.array(bounds) <= found * (1 + 1e-9)).all()
        assert math.isfinite(float(found.sum()))
