"""Shardings of drawn graphs run on arrays: whatever is chosen, members that see only their own shares get the right result."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.reference.drawn_graphs import Costs, drawn_graph, drawn_inputs, drawn_mesh
from tests.reference.training_graphs import GRADIENTS, TIED, WEIGHTS, expert_block, layer_dims, training_layer

from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Replicate, Shard
from halley.sharding.layouts import MeshAxis
from halley.sharding.solution import Sharding, shard
from halley.sharding.solve import ShardingProblem
from halley.verify.meshes import MeshRun, WrongShare, whole_graph
from halley.workloads.user import graph


def agree(plan: Sharding, random: Random) -> MeshRun:
    given = drawn_inputs(random, plan.problem.workload)
    run = MeshRun(plan, given)
    found, wanted = run.run(), whole_graph(plan.problem.workload, given)
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-9, atol=1e-9)
    return run


def chosen(random: Random, axes: int, extents: tuple[int, ...]) -> Sharding:
    """The best sharding at prices that mean nothing, so that all sorts are best somewhere."""
    mesh = drawn_mesh(random, axes)
    work = drawn_graph(random, random.randint(2, 6), extents)
    costs = Costs(random, mesh)
    backward = random.choice(("", random.choice(work.ops).name))
    return shard(ShardingProblem(work, mesh, costs.kernel, costs.wire, backward=backward))


@pytest.mark.parametrize("seed", range(180))
def test_members_get_the_result(seed: int) -> None:
    random = Random(seed)
    agree(chosen(random, random.choice((1, 1, 2)), (2, 3, 6, 7, 9)), random)


@pytest.mark.parametrize("seed", range(30))
def test_three_axes(seed: int) -> None:
    random = Random(1000 + seed)
    agree(chosen(random, 3, (8, 27, 5)), random)


@pytest.mark.parametrize("seed", range(60))
def test_collectives_carry_what_they_are_said_to(seed: int) -> None:
    """Where parts are equal, bytes that members really have are those of the steps."""
    random = Random(2000 + seed)
    run = agree(chosen(random, 2, (36, 72)), random)
    for step, size in run.bytes:
        assert size == step.bytes


@pytest.mark.parametrize(("seed", "axes"), [*((seed, 1) for seed in range(6)), pytest.param(9, 2, marks=pytest.mark.slow)])
def test_a_layer_with_its_backward(seed: int, axes: int) -> None:
    """Every output and gradient of a transformer layer, tied and with ends that lie alike, with and without capacity for
    copies."""
    random = Random(3000 + seed)
    mesh = drawn_mesh(random, axes)
    costs = Costs(random, mesh)
    work = training_layer(layer_dims(6, 12, 3, 8, batch=2))
    problem = ShardingProblem(
        work,
        mesh,
        costs.kernel,
        costs.wire,
        tied=TIED,
        backward="dH",
        same_layout=(*GRADIENTS, ("X", "Y", "dX", "dY")),
        weights=dict.fromkeys(WEIGHTS, 16.0),
    )
    plan = shard(problem)
    agree(plan, random)
    if axes == 1:
        agree(shard(problem, capacity=plan.memory - 1), random)


@pytest.mark.parametrize("seed", range(12))
def test_experts(seed: int) -> None:
    random = Random(4000 + seed)
    mesh = drawn_mesh(random, random.choice((1, 2)))
    costs = Costs(random, mesh)
    agree(shard(ShardingProblem(expert_block(12, 6, 8, 4, 2), mesh, costs.kernel, costs.wire)), random)


def test_all_sorts_are_drawn() -> None:
    """Every kind of change and every kind of way occurs in the plans above."""
    seen: Counter[str] = Counter()
    for seed in range(180):
        random = Random(seed)
        plan = chosen(random, random.choice((1, 1, 2)), (2, 3, 6, 7, 9))
        seen.update(str(step.kind) for move in plan.redistributions for step in move.steps)
        seen.update("inside" for move in plan.redistributions if move.inside)
        seen.update("copy" for move in plan.redistributions if move.copy)
        seen.update(way.name.split()[-1] for item in plan.ops for way in item.strategy if way.name.endswith("exchanged"))
    wanted = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "None", "inside", "copy", "exchanged")
    assert [name for name in wanted if seen[name] < 2] == []


def test_partial_sums_that_are_added_first() -> None:
    """Two sums over split dims are added up, and the sum again over another dim, before one small all-reduce."""
    lines = "C[m,n] = A[m,k] * B[k,n]\nD[m,n] = E[m,k] * F[k,n]\nS[m,n] = C[m,n] + D[m,n]\nT[m] = sum(S[m,n])"
    work, mesh = graph(lines, {"m": 6, "n": 8, "k": 9}, "fp64"), (MeshAxis("x", 3),)
    ends = {"A": (Shard("k"),), "E": (Shard("k"),), "T": (Replicate(),)}
    plan = shard(ShardingProblem(work, mesh, lambda op, local: 0.0, lambda kind, axes, size: float(size), layouts=ends))
    assert [item.strategy[0].name for item in plan.ops] == ["k", "k", "partial C D", "partial S"]
    assert [(step.kind, step.bytes) for _, step in plan.steps] == [(CollectiveKind.ALL_REDUCE, 6 * 8)]
    agree(plan, Random(1))


@pytest.mark.parametrize("seed", range(40))
def test_a_missing_collective_shows(seed: int) -> None:
    """Without any one of its moves a plan stops; where members only pretend to have made it, elements are missing or wrong."""
    random = Random(6000 + seed)
    plan = chosen(random, random.choice((1, 2)), (6, 7, 9))
    for number, move in enumerate(plan.redistributions):
        if move.inside or not any(step.kind for step in move.steps):
            continue
        pretended = replace(move, steps=tuple(replace(step, kind=None) for step in move.steps))
        for instead in ((), (pretended,)):
            less = replace(plan, redistributions=(*plan.redistributions[:number], *instead, *plan.redistributions[number + 1 :]))
            with pytest.raises((AssertionError, WrongShare)):
                agree(less, Random(seed))
