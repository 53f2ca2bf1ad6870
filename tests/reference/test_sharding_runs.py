"""Shardings of drawn graphs run on arrays: whatever is chosen, members that see only their own shares get the right result."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tests.reference.drawn_graphs import Costs, drawn_graph, drawn_inputs, drawn_mesh
from tests.reference.meshes import Run, whole_graph

from halley.planning.sharded import Sharding, shard
from halley.planning.sharding import ShardingProblem


def agree(plan: Sharding, random: Random) -> Run:
    given = drawn_inputs(random, plan.problem.workload)
    run = Run(plan, given)
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


@pytest.mark.parametrize("seed", range(250))
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
