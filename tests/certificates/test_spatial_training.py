"""Parts of a model on spatial chips: partitions and shardings together against every sharding of small graphs; laws of fusing."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from halley.io.chips.load import load_chip
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.kernels.machine import PEAK, Efficiency, machine
from halley.optim.constrained import ConstrainedMinimum
from halley.optim.elimination import cost
from halley.rewrite.backward import backward
from halley.rewrite.recompute import Recompute
from halley.sharding.layouts import Mesh, MeshAxis
from halley.sharding.solution import Sharding, decoded
from halley.sharding.solve import sharding_graph
from halley.spatial.chip import HALLEY, SpatialChip, SpatialProblem
from halley.spatial.solve import best_plan
from halley.training.kernels import TrainingGraph, training_graph
from halley.training.op_costs import OpCosts
from halley.training.part_costs import ModelCosts, model_costs, training_graphs
from halley.training.part_solvers import CostTerms
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan, bounded_search
from halley.training.sharded_model import ShardedModel
from halley.training.sharding import training_problem
from halley.training.spatial.bounds import part_tables, pass_floors
from halley.training.spatial.branches import Branches
from halley.training.spatial.model import SpatialModel, _rank, cost_model, spatial_chip
from halley.training.spatial.passes import PASSES, ChipRates, PassGraphs, pass_kernels
from halley.training.spatial.relaxation import least_by_layout
from halley.workloads.transformer import Experts, Latent, Transformer
from halley.workloads.user import graph as user_graph

EFFICIENCY = Efficiency(0.9, 0.8, 0.85, 0.9, 1.0, 2e-7, 1e-6)
GPT = Transformer("gpt", 2, 256, 4, 4, 64, 1024, 512, 128, gated=False, rms=False, positions=True, tied=True, dropout=0.1)
LLAMA = Transformer("llama", 2, 256, 4, 2, 64, 512, 512, 128)
SHAPES = (
    GPT,
    LLAMA,
    replace(LLAMA, name="mixture", experts=Experts(4, 2, 256, shared=128)),
    Transformer("latent", 2, 256, 4, 4, 64, 512, 512, 128, latent=Latent(queries=96, keys=64, rope_dim=32, value_dim=48)),
)
MESHES: tuple[Mesh, ...] = ((), (MeshAxis("x", 2),), (MeshAxis("x", 2), MeshAxis("y", 2)))
LINK = Link(25e9, 1e-6)


def wire(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
    return (2e-6 + size / 25e9) * len(axes)


def system(chips: int = 4, chip: str = "sn10") -> System:
    return System("drawn", load_chip(chip), (Axis("x", chips, Topology.RING, LINK),))


def rates(efficiency: Efficiency = EFFICIENCY, **changes: float) -> ChipRates:
    chip = replace(spatial_chip(system(), efficiency), **changes)
    return ChipRates(machine(system().chip), chip, efficiency, 4)


def parts(
    shape: Transformer, mesh: Mesh, fused: bool, choice: Recompute
) -> Iterator[tuple[TrainingGraph, Sharding, list[float]]]:
    """The parts of a model as kernels run one by one, with the times of their passes."""
    terms = CostTerms(mesh, wire, machine(system().chip), EFFICIENCY, fused=fused)
    found: ModelCosts = model_costs(shape, 2, shape.sequence, terms, choice)
    for part, graph in zip(found.parts, training_graphs(shape, 2, shape.sequence, choice, fused), strict=True):
        yield graph, part.sharding, [part.forward, part.recompute, part.backward]


def pass_times(graph: TrainingGraph, sharding: Sharding, known: ChipRates) -> list[float]:
    """Of the best partitions."""
    graphs = PassGraphs(graph, known, wire).of(sharding, {item.op: item.time for item in sharding.ops})
    tiles = (16, 64, 256)
    return [best_plan(SpatialProblem(each, known.chip, HALLEY, most=1.0), tiles).layer if each else 0.0 for each in graphs]


CASES = [
    (shape, mesh, True, choice)
    for shape, mesh, choice in itertools.product(SHAPES[:3], MESHES, (Recompute.SELECTIVE, Recompute.FULL))
]


DRAWN = random.Random(5).sample(CASES, 5)


@pytest.mark.parametrize(
    ("shape", "mesh", "fused", "choice"), [*DRAWN[:2], *(pytest.param(*case, marks=pytest.mark.slow) for case in DRAWN[2:])]
)
def test_laws_of_fusing(shape: Transformer, mesh: Mesh, fused: bool, choice: Recompute) -> None:
    """Never slower than kernel by kernel or with less capacity; without any, kernel by kernel; never below the bounds."""
    ranks = math.prod(axis.ranks for axis in mesh)
    for graph, sharding, one_by_one in parts(shape, mesh, fused, choice):
        before = one_by_one
        for sram in (1.0, 2e5, 3e8):
            known = rates(sram=sram)
            found = pass_times(graph, sharding, known)
            if sram == 1.0:
                assert found == pytest.approx(one_by_one, rel=1e-12)
            assert all(after <= time * (1 + 1e-12) for after, time in zip(found, before, strict=True))
            before = found
        floors = pass_floors(graph, known, 2, ranks)
        assert all(float(floor) <= time * (1 + 1e-9) for floor, time in zip(floors, before, strict=True))
        end = "X" if "X" in graph.workload.inputs else "Y"
        if mesh:
            least = least_by_layout(part_tables(graph, known, sharding.problem, end)).bounds
            assert float(least.min()) <= math.fsum(before) * (1 + 1e-9)


def test_each_op_is_in_one_kernel() -> None:
    for shape, fused, choice in itertools.product(SHAPES, (True, False), Recompute):
        for graph in training_graphs(shape, 1, shape.sequence, choice, fused):
            names = [name for groups in pass_kernels(graph) for group in groups for name in group.ops]
            assert sorted(names) == sorted(op.name for op in graph.workload.ops)


LINES = (
    ("Y[m,n2] = X[m,k] * W[k,n2]", {"m": 64, "k": 96, "n2": 48}, ["W"]),
    ("Y[m,f] = X[m,k] * W[k,f]; Z[m,f] = gelu(Y[m,f])", {"m": 128, "k": 64, "f": 96}, ["W"]),
    # a sum over tokens, which runs alone, parts what is before it from what is behind
    ("A[m,f] = X[m,k] * W[k,f]; T[f] = sum(A[m,f]); B[m,f] = subtract(A[m,f], T[f])", {"m": 64, "k": 32, "f": 48}, ["W"]),
    # and a product that may run before it or behind it
    (
        "A[m,f] = X[m,k] * W[k,f]; H[m,f] = gelu(A[m,f]); T[f] = sum(H[m,f]); B[m,f] = subtract(H[m,f], T[f]);"
        " C[m,g] = A[m,f] * V[f,g]",
        {"m": 64, "k": 32, "f": 48, "g": 40},
        ["W", "V"],
    ),
)


@pytest.mark.parametrize("case", [0, 1, 2, 3, *(pytest.param(case, marks=pytest.mark.slow) for case in range(4, 16))])
def test_bound_of_all_shardings(case: int) -> None:
    """Shardings of a small graph with its backward, drawn from all of them, each with its best partitions: none is below the
    bound, nor below what the bound's tables say of itself, at its own prices or at others."""
    draw = random.Random(case)
    text, dims, weights = LINES[case % len(LINES)]
    work = user_graph(text.split("; "), dims)
    graph = training_graph(backward(work), weights)
    slow = replace(machine(system().chip), memory=10 ** draw.uniform(9, 12))
    known = replace(rates(PEAK, bandwidth=slow.memory, sram=10 ** draw.uniform(4, 6)), machine=slow)
    pace = 10 ** draw.uniform(8.5, 11)

    def collective(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        return 1e-8 + size / pace

    times = OpCosts(graph, slow, PEAK)
    problem = training_problem(graph.found, (MeshAxis("x", 2),), times, collective, dict.fromkeys(weights, 1.0))
    tables = sharding_graph(replace(problem, same_split=graph.same_split))
    bounding = part_tables(graph, known, replace(problem, same_split=graph.same_split), "X")
    branches = Branches(bounding)
    root, prices = branches.bounds, np.random.default_rng(case)
    branches.refine()
    refined = branches.bounds
    branches.raise_to(math.inf)
    bounds = branches.bounds
    assert (bounds >= refined).all()
    assert (refined >= root).all()
    drawn = [prices.dirichlet(np.full(3, 0.3), bounding.sections) for _ in range(3)]
    priced = [bounding.relaxed(shares) for shares in (branches.relaxed.multipliers, *drawn)]
    sizes: dict[str, int] = {}
    for item in (*tables.time, *tables.memory):
        sizes |= dict(zip(item.variables, item.values.shape, strict=True))
    least, count = math.inf, 0
    for values in choices(tables.time, sizes):
        sharding = decoded(tables, ConstrainedMinimum(values, cost(tables.time, values), 0.0, 0.0, 1, 1))
        graphs = PassGraphs(graph, known, collective).of(sharding, {item.op: item.time for item in sharding.ops})
        plans = [best_plan(SpatialProblem(each, known.chip, HALLEY, most=1.0), [16, 64, 128]) for each in graphs if each]
        time = math.fsum(plan.layer for plan in plans)
        assert all(cost(tables, values) <= time * (1 + 1e-9) for tables in priced)
        assert float(bounds[values[bounding.end]]) <= time * (1 + 1e-9)
        least, count = min(least, time), count + 1
        if count == 300:
            break
    bound = float(bounds.min())
    assert count > 5
    assert 0 < bound <= least * (1 + 1e-9)


def test_of_equals_those_that_hold_least_are_taken() -> None:
    """Weights are summed and copied beyond what a microbatch takes: of shardings that look the same and take the same, in any
    order, the one that holds least."""
    for part in planned(2).cost.parts.parts:
        # the same sum in another order
        assert _rank(part.time * (1 + 1e-13), 2e8) < _rank(part.time, 3e8)
        assert _rank(part.time * (1 + 1e-6), 2e8) > _rank(part.time, 3e8)


def choices(tables: object, sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    """All values that are allowed, in an order that is drawn."""
    draw, names = random.Random(1), list(sizes)
    order = {name: draw.sample(range(size), size) for name, size in sizes.items()}

    def extended(known: dict[str, int], left: list[str]) -> Iterator[dict[str, int]]:
        if any(
            set(item.variables) <= known.keys() and not np.isfinite(item.values[tuple(known[name] for name in item.variables)])
            for item in tables  # type: ignore[attr-defined]
        ):
            return
        if not left:
            yield known
            return
        for value in order[left[0]]:
            yield from extended({**known, left[0]: value}, left[1:])

    return extended({}, names)


def problem_on(chip: str, chips: int, **fixed: object) -> TrainingProblem:
    return TrainingProblem(LLAMA, system(chips, chip), 8, 128, EFFICIENCY, fixed=Fixed(**fixed))  # type: ignore[arg-type]


@cache
def planned(chips: int) -> TrainingResult:
    """Two of the chips share the work of a microbatch, or none."""
    fixed = {"data": chips // 2} if chips > 2 else {}
    return best_training_plan(problem_on("sn10", chips, recompute=Recompute.NONE, stages=1, microbatch=2, **fixed), others=0)


@pytest.mark.parametrize("chips", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_plans_on_spatial_chips_are_no_slower(chips: int) -> None:
    fused = planned(chips)
    plain = best_training_plan(fused.problem, model=ShardedModel(fused.problem), others=0)
    assert fused.cost.time < plain.cost.time
    assert fused.certificate.bound <= fused.cost.time
    for part in fused.cost.parts.parts:
        times = {name: plan.layer for name, plan in part.on_chip.items()}
        assert [times.get(name, 0.0) for name in PASSES] == pytest.approx([part.forward, part.recompute, part.backward])
    names = [name for plan in fused.cost.parts.blocks[0][0].on_chip.values() for part in plan.partitions for name in part.names]
    assert "queries" in names
    assert len(names) == len(set(names))


def test_other_chips_run_kernel_by_kernel() -> None:
    assert isinstance(cost_model(problem_on("a100", 4)), ShardedModel)
    assert isinstance(cost_model(problem_on("sn40l", 4)), SpatialModel)


def test_streams_are_what_the_chip_says() -> None:
    """512 KiB in each of 1,040 units; the HBM is no part of it."""
    found: SpatialChip = spatial_chip(system(2, "sn40l"), PEAK)
    assert found.sram == 1040 * 512 * 1024
    assert found.bandwidth == 200e9
    assert found.peak == pytest.approx(638e12, rel=0.01)


def test_after_a_time_limit_the_shardings_of_unfused_kernels_are_fused_and_no_others() -> None:
    """What a search is in the middle of ends soon after its limit: with a plan, and a bound that holds."""
    given = problem_on("sn10", 4)
    times, spent = [], []
    for stopped in (False, True):
        model = cost_model(given, lambda stopped=stopped: stopped)
        search = bounded_search(given, model)
        found = model.costs(search.floors.communications[-1], 1, search.floors.variants[0])
        assert 0 < found.bound <= found.time
        times.append(found.time)
        spent.append(model.spent)
        search.stopped = lambda stopped=stopped: stopped
        before = search.refined
        search.improve_incumbent()
        assert (search.refined == before) == stopped
    assert times[0] <= times[1] * (1 + 1e-9)
    assert spent[1] < 0.7 * spent[0]
