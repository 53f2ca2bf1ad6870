"""What a plan's longest paths say of its other shardings: against all shardings of small parts, and by laws of sums."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halley.errors import Infeasible
from halley.io.chips.load import load_chip
from halley.ir.mapping import CollectiveKind
from halley.kernels.machine import Efficiency, machine
from halley.optim.constrained import ConstrainedMinimum
from halley.optim.elimination import cost
from halley.rewrite.recompute import Recompute
from halley.sharding.layouts import MeshAxis
from halley.sharding.solution import Sharding, decoded
from halley.training.part_costs import MemoryBudget, ModelCosts, least_along, model_costs, training_graphs
from halley.training.part_solvers import CostTerms, PartSolver, Solvers
from halley.workloads.transformer import Transformer

EFFICIENCY = Efficiency(matrix=0.8, vector=0.7, memory=0.9, cache=0.9, overlap=0.5, latency=1e-6, launch=3e-6)
SHAPE = Transformer("small", 4, 512, heads=4, kv_heads=4, head_dim=128, hidden=2048, vocabulary=8000, sequence=256)


def wire(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
    return 5e-6 * len(axes) + size / 2e10


TERMS = CostTerms((MeshAxis("x", 4),), wire, machine(load_chip("a100")), EFFICIENCY)
SOLVERS = Solvers()
UNBOUNDED = MemoryBudget(math.inf, (1.0, 4.0, 1.0))


def along(ahead: list[float], behind: list[float], budget: MemoryBudget = UNBOUNDED) -> tuple[float, ModelCosts]:
    passes = np.array(ahead), np.array(behind)
    return least_along(SHAPE, 2, 256, TERMS, Recompute.FULL, budget, passes, solvers=SOLVERS)


def taken(costs: ModelCosts, ahead: list[float], behind: list[float]) -> float:
    rows = zip(costs.parts, ahead, behind, strict=True)
    return math.fsum(one * part.forward + other * (part.recompute + part.backward) for part, one, other in rows)


def test_one_pass_of_each_layer_is_what_shardings_are_chosen_by() -> None:
    found = model_costs(SHAPE, 2, 256, TERMS, Recompute.FULL, solvers=SOLVERS)
    bound, costs = along([1.0, 4.0, 1.0], [1.0, 4.0, 1.0])
    assert costs.time == pytest.approx(found.time, rel=1e-8)
    assert found.bound * (1 - 1e-8) <= bound <= found.time * (1 + 1e-8)


WEIGHTS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 128.0]), min_size=3, max_size=3)


@settings(max_examples=15, deadline=None)
@given(WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS)
def test_no_sharding_that_was_met_takes_less(
    ahead: list[float], behind: list[float], others: list[float], otherwise: list[float]
) -> None:
    bound, costs = along(ahead, behind)
    assert bound == pytest.approx(taken(costs, ahead, behind), rel=1e-8, abs=1e-15)
    _, met = along(others, otherwise)
    assert bound <= taken(met, ahead, behind) * (1 + 1e-8) + 1e-15


def test_tables_of_passes_are_the_passes_of_every_sharding_of_an_embedding() -> None:
    part = SOLVERS.of(training_graphs(SHAPE, 2, 256, Recompute.FULL, True)[0], TERMS)
    sizes = {name: size for item in part.tables.time for name, size in zip(item.variables, item.values.shape, strict=True)}
    tables, counted, least = list(part.along(3.0, 7.0)), 0, math.inf
    for chosen in itertools.product(*map(range, sizes.values())):
        values = dict(zip(sizes, chosen, strict=True))
        time = cost(part.tables.time, values)
        if math.isinf(time):
            continue
        sharding = decoded(part.tables, ConstrainedMinimum(values, time, 0.0, time, 1, 0))
        assert cost(tables, values) == pytest.approx(by_pass(part, sharding, 3.0, 7.0), rel=1e-12)
        counted, least = counted + 1, min(least, cost(tables, values))
    assert counted > 10
    assert along([3.0, 0.0, 0.0], [7.0, 0.0, 0.0])[0] == pytest.approx(least, rel=1e-8)


def by_pass(part: PartSolver, sharding: Sharding, ahead: float, behind: float) -> float:
    """Time of a sharding whose forward and backward ops and collectives run so often, from the sharding as a value."""
    work, first = part.graph.workload, len(part.graph.found.forward)
    makers = {name: number for number, op in enumerate(work.ops) for name in op.outputs}
    found = [(ahead if number < first else behind) * op.time for number, op in enumerate(sharding.ops)]
    for move in sharding.redistributions:
        number = move.at if move.reader else makers.get(move.tensor, 0)
        found += [(ahead if number < first else behind) * step.time for step in move.steps]
    return math.fsum(found)


def test_less_memory_is_never_faster() -> None:
    ahead, behind = [0.0, 4.0, 1.0], [0.0, 4.0, 0.0]
    bound, costs = along(ahead, behind)
    use = held(costs)
    tight, fitting = along(ahead, behind, replace(UNBOUNDED, capacity=0.9 * use))
    assert tight >= bound * (1 - 1e-8)
    assert held(fitting) <= 0.9 * use * (1 + 1e-9)


def test_few_parameters_are_asked_for_and_found() -> None:
    ahead, behind = [1.0, 4.0, 1.0], [1.0, 4.0, 0.0]
    bound, costs = along(ahead, behind)
    every = np.array([part.parameters for part in costs.parts])
    for share in (1.0, 0.9, 0.6, 0.3):
        most = every * [math.inf, math.inf, share]
        try:
            passes = np.array(ahead), np.array(behind)
            within, few = least_along(SHAPE, 2, 256, TERMS, Recompute.FULL, UNBOUNDED, passes, most=most)
        except Infeasible:
            # a table in four parts is as small as it gets
            assert most[2] < SHAPE.vocabulary * SHAPE.model / 4
            continue
        assert within >= bound * (1 - 1e-8)
        # those that are forbidden have more than that, and what was met with no more is not below the bound
        assert few.parts[2].parameters <= most[2] + 2 * SHAPE.model
        for others in itertools.product([0.0, 1.0, 3.0], repeat=2):
            _, met = along([1.0, 4.0, others[0]], [1.0, 4.0, others[1]])
            if met.parts[2].parameters <= most[2]:
                assert within <= taken(met, ahead, behind) * (1 + 1e-8)


def held(costs: ModelCosts) -> float:
    return math.fsum(many * part.sharding.memory for many, part in zip(UNBOUNDED.held, costs.parts, strict=True))
