"""Groups of kernels in plans, with times of kernels that are drawn in place of searches of mappings: against every plan of small
systems, each with the shardings that are fastest where all times are known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.certificates import training_enumeration as oracle
from tests.certificates.test_joint_plans import one_cluster

from halley.ir.hardware import Axis, Chip, Link, Topology
from halley.ir.system import System
from halley.ir.workload import OpKind
from halley.kernels import search
from halley.kernels.bounds import attention_bound, product_bound
from halley.kernels.groups import GroupKernel, GroupShape, group_bound
from halley.kernels.machine import PEAK, machine
from halley.kernels.searched import AnyKernel, AttentionShape, KernelCost, KernelShape, Product, SearchedKernels
from halley.kernels.times import Array, Attention, Gemm
from halley.rewrite.recompute import Recompute
from halley.sharding.axes import Role
from halley.sharding.communication import Communication
from halley.training.axis_bounds import GraphVariant
from halley.training.groups import product_groups
from halley.training.part_costs import ModelCosts, training_graphs
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.joint import best_joint_plan, plan_kernels
from halley.training.search.search import bounded_search
from halley.training.sharded_model import ShardedModel
from halley.workloads.transformer import Experts, Transformer

MODELS = {
    "gated": Transformer("gated", layers=2, model=64, heads=2, kv_heads=2, head_dim=32, hidden=128, vocabulary=64, sequence=32),
    "wide": Transformer("wide", layers=3, model=32, heads=4, kv_heads=2, head_dim=8, hidden=256, vocabulary=32, sequence=16),
}


FEW = 24
"""Seeds of systems that often have four chips."""


def draw(seed: int, chip: Chip, shape: KernelShape) -> KernelCost:
    """A time above the bound; c times as many heads take c times as long. Some groups have no mapping."""
    rates, random = machine(chip), Random(f"{seed} {shape}")
    match shape:
        case Product():
            bound = product_bound(Gemm(*shape), chip, rates)
        case AttentionShape():
            bound = attention_bound(Attention(1, *shape[:6], causal=shape.causal, dtype=shape.dtype), chip, rates)
            random = Random(f"{seed} {shape.queries} {shape.keys}")
        case GroupShape():
            bound = group_bound(GroupKernel(shape.group, shape.sizes), chip, rates)
            if random.random() < 0.1:
                return KernelCost(math.inf, "")
    return KernelCost(float(bound) * random.uniform(1.0, 1.3), "")


class Known(SearchedKernels):
    """Knows every kernel that it is asked for."""

    seed = 0

    def times(self, kernel: AnyKernel) -> Array:
        match kernel:
            case GroupKernel():
                extents, kind = kernel.extents, lambda *row: GroupKernel(kernel.pattern, row)
            case Gemm() if not kernel.spread:
                extents = (kernel.rows, kernel.columns, kernel.depth, kernel.batch)
                kind = lambda *row: Gemm(*row, kernel.dtype, kernel.result)  # noqa: E731
            case Attention() if not kernel.backward:
                names = ("queries", "keys", "heads", "kv_heads", "head_dim", "value_dim")
                extents = tuple(getattr(kernel, name) for name in names)
                kind = lambda *row: replace(kernel, **dict(zip(names, row, strict=True)))  # noqa: E731
            case _:
                return SearchedKernels.times(self, kernel)
        for row in set(zip(*(each.ravel().tolist() for each in np.broadcast_arrays(*extents)), strict=True)):
            for shape in self.missing([kind(*row)]):
                self.known[shape] = draw(self.seed, self.chip, shape)
        return SearchedKernels.times(self, kernel)


def problem(seed: int) -> TrainingProblem:
    """A system of two or, of some seeds above 2, four chips, with fast or slow links. The enumeration of four takes ten times as
    long."""
    random = Random(seed)
    link = Link(random.choice([1e9, 20e9, 400e9]), 1e-7)
    counts = [1] if seed <= 2 else [1, 1, 2] if seed < FEW else [*[1] * 19, 2]
    axes = tuple(Axis(name, 2, Topology.SWITCH, link) for name in ("x", "y")[: random.choice(counts)])
    fixed = Fixed(fused=True, recompute=random.choice([Recompute.NONE, Recompute.NONE, Recompute.FULL]))
    model = random.choice(list(MODELS.values()))
    return TrainingProblem(model, System("drawn", one_cluster(), axes), 4, model.sequence, PEAK, fixed=fixed)


@cache
def known(seed: int) -> TrainingProblem:
    """The problem with all times known."""
    each = problem(seed)
    each = replace(each, home=each.homes[0])
    kernels = Known(each.chip)
    kernels.seed = seed
    return replace(each, searched=kernels)


class Fastest:
    """The fastest shardings of every mesh, as the enumeration takes them."""

    def __init__(self, model: ShardedModel) -> None:
        self.model = model
        self.found: dict[object, ModelCosts] = {}

    def shardings(self, communication: Communication, microbatch: int, variant: GraphVariant) -> Iterator[ModelCosts]:
        key = communication.assignment, microbatch, variant
        if key not in self.found:
            self.found[key] = self.model.costs(communication, microbatch, variant)
        yield self.found[key]


def lazy(seed: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(search, "searched_kernel", lambda chip, shape, limit=None: draw(seed, chip, shape))
    return best_joint_plan(problem(seed))


@pytest.mark.medium
def test_the_plan_is_the_best_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    compare(range(2), monkeypatch)


@pytest.mark.slow
def test_the_plan_is_the_best_of_all_of_more_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    compare(range(2, FEW), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_the_plan_is_the_best_of_all_of_200_systems(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the 24 above: shardings, groups and the drawn time of every kernel."""
    compare(range(FEW + 11 * part, FEW + 11 * (part + 1)), monkeypatch)


def compare(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan of the enumeration, with all times known, is faster; and the bound holds."""
    fused = few = 0
    for seed in seeds:
        found, every = lazy(seed, monkeypatch), known(seed)
        plans = oracle.enumerate_plans(every, Fastest(ShardedModel(every)))
        best, _ = oracle.least(plans, every.capacity)
        assert best is not None
        assert found.certificate.bound <= best.time * (1 + 1e-9), seed
        assert found.cost.time <= best.time * (1 + max(found.certificate.gap, 1e-6)), seed
        assert found.certificate.value == found.cost.time
        assert not found.problem.searched.missing(plan_kernels(found.problem, found.plan, found.cost.parts))
        assert found.problem.searched.known.items() <= every.searched.known.items()
        fused += any(part.sharding.fused_groups for part in found.cost.parts.parts)
        few += found.certificate.effort["kernels"] < len(every.searched.known)
    assert 2 * fused >= len(seeds)
    assert few > 0


@pytest.mark.medium
def test_without_compound_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """With attention op by op, no product and the ops behind it are one kernel: the best of all plans of such kernels, and no
    faster than the best plan that may have both."""
    seed, apart = 1, Fixed(fused=False, recompute=Recompute.NONE)
    monkeypatch.setattr(search, "searched_kernel", lambda chip, shape, limit=None: draw(seed, chip, shape))
    given = replace(problem(seed), fixed=apart)
    found = best_joint_plan(given)
    kernels = Known(given.chip, grouped=False)
    kernels.seed = seed
    every = replace(given, home=given.homes[0], searched=kernels)
    best, _ = oracle.least(oracle.enumerate_plans(every, Fastest(ShardedModel(every))), every.capacity)
    assert best is not None
    assert not any(part.sharding.fused_groups or part.sharding.problem.groups for part in found.cost.parts.parts)
    assert all(isinstance(shape, Product) for shape in found.problem.searched.known)
    assert found.certificate.bound <= best.time * (1 + 1e-9)
    assert found.cost.time <= best.time * (1 + max(found.certificate.gap, 1e-6))
    both = best_joint_plan(replace(given, fixed=replace(apart, fused=None)))
    assert both.certificate.bound <= found.cost.time * (1 + 1e-9)
    assert both.cost.time <= found.cost.time * (1 + max(both.certificate.gap, 1e-6))


def test_groups_are_never_worse() -> None:
    """With groups whose times are above those of their kernels, the same plan as without groups."""
    for seed in range(3):
        every = known(seed)
        model, communication = ShardedModel(every), bounded_search(every).floors.communications[0]
        variant = GraphVariant(Recompute.NONE, True)
        with_groups = model.costs(communication, 1, variant)
        apart = {shape: replace_time(shape, cost) for shape, cost in every.searched.known.items()}
        slow = Known(every.chip, apart)
        slow.seed = seed
        without = ShardedModel(replace(every, searched=slow)).costs(communication, 1, variant)
        assert with_groups.time <= without.time * (1 + 1e-9)
        assert not any(part.sharding.fused_groups for part in without.parts)


def replace_time(shape: KernelShape, cost: KernelCost) -> KernelCost:
    return KernelCost(math.inf, "") if isinstance(shape, GroupShape) else cost


@pytest.mark.medium
def test_bounds_of_parts_hold_with_groups() -> None:
    judge(range(3))


@pytest.mark.slow
def test_bounds_of_parts_hold_with_groups_on_more_systems() -> None:
    judge(range(3, 24))


def judge(seeds: range) -> None:
    """Of every mesh and microbatch: the floors of plans, those raised by products and groups, and those of single axes."""
    judged = 0
    for seed in seeds:
        every = known(seed)
        model, search_ = ShardedModel(every), bounded_search(every)
        for communication in search_.floors.communications:
            ranks = math.prod(axis.ranks for axis in communication.mesh)
            for variant in (GraphVariant(Recompute.NONE, True), GraphVariant(Recompute.FULL, True)):
                for microbatch in (1, 2):
                    exact = model.costs(communication, microbatch, variant)
                    floor = model.bound(float(ranks), float(microbatch), variant)
                    raised = model.raised(floor, float(ranks), float(microbatch), variant)
                    for part, low, high in zip(exact.parts, floor.parts, raised.parts, strict=True):
                        assert float(low.time) <= float(high.time) <= part.time * (1 + 1e-9)
                        assert float(low.traffic) <= part.traffic * (1 + 1e-9)
                        assert float(low.macs) <= part.macs * (1 + 1e-9)
                    layers = np.array([part.time for part, _ in exact.blocks])
                    excess = np.array([float(part.excess) for part, _ in raised.blocks])
                    for bound in model.tighter(communication, microbatch, variant):
                        assert (bound + excess <= layers * (1 + 1e-9)).all()
                        judged += 1
    assert judged > len(seeds)


def test_what_is_a_group() -> None:
    """Of a gated layer, forward and backward; with its whole layer recomputed, what nothing reads is none."""
    for choice, again in ((Recompute.NONE, 0), (Recompute.FULL, 3)):
        graph = training_graphs(MODELS["gated"], 1, 32, choice, True)[1]
        found = {group.name: group for group in product_groups(graph)}
        assert {"output", "gate", "down", "down_d_H", "gate to down", "down_d_H to gate_d_B"} <= found.keys()
        assert sum(name.startswith("again_") for name in found) == again
        assert found["output"].unsplit == ("k",), "the norm waits for its sum over the width of the model"
        pairs = [name for group in found.values() if len(group.parts) == 2 for name in group.ops]
        assert len(pairs) == len(set(pairs))
        assert all(len(group.ops) == len(set(group.ops)) for group in found.values())


@pytest.mark.parametrize("choice", [Recompute.NONE, Recompute.FULL])
def test_mlps_are_groups(choice: Recompute) -> None:
    """Both matrices with the ops between, forward and backward; of experts, for each. What the backward pass reads leaves it."""
    dense, experts = MODELS["gated"], replace(MODELS["gated"], experts=Experts(4, 2, 64))
    for shape, count in ((dense, 1), (experts, 4), (replace(dense, gated=False), 1)):
        graph = training_graphs(shape, 1, 32, choice, True)[1]
        found = {group.name: group for group in product_groups(graph)}
        first = "gate" if shape.gated else "up"
        forward = found[f"{first} to down"]
        backward = next(group for name, group in found.items() if name.startswith("down_d_H to "))
        assert len(forward.pattern.outputs) == (1 if choice is Recompute.FULL else 4 if shape.gated else 3)
        assert len(backward.parts) == (4 if shape.gated else 3)
        for group in (forward, backward):
            assert group.unsplit == ("k",)
            work, graph_ops = group.kernel({}).shape.workload, [graph.workload.op(name) for name in group.ops]
            assert [op.kind for op in work.ops] == [op.kind for op in graph_ops]
            extents = graph.workload.dims
            assert work.macs() == sum(
                math.prod(extents[dim] for dim in op.dims) for op in graph_ops if op.kind is OpKind.CONTRACT
            )
            sizes = sorted(graph.workload.bytes(name) for op in graph_ops for name in op.outputs)
            assert sorted(work.bytes(name) for op in work.ops for name in op.outputs) == sizes
            assert len(group.kernel({}).pattern.contractions) == (3 if shape.gated else 2)
            assert (work.dims.get("b", 1) == count) or count == 1


def test_model_axes_are_enumerated() -> None:
    """The systems have plans whose ops are split over chips."""
    assert any(Role.MODEL in {part.role for part in each.assignment} for each in bounded_search(known(0)).floors.communications)
