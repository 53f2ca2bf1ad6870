"""Mamba-2 layers in training plans: their shardings executed, their scans as kernels, what they save."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.reference.drawn_graphs import Costs, drawn_mesh
from tests.reference.sequences import ORACLES
from tests.reference.test_sharding_runs import agree

from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.kernels.machine import PEAK
from halley.kernels.times import Scan
from halley.rewrite.backward import backward
from halley.rewrite.recompute import Recompute
from halley.sharding.layouts import MeshAxis
from halley.sharding.solution import Sharding, shard
from halley.sharding.solve import ShardingProblem
from halley.training.kernels import TrainingGraph, saved_tensors, training_graph
from halley.training.op_costs import op_tasks
from halley.training.part_costs import training_graphs
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan
from halley.training.sharding import training_problem
from halley.verify import verify
from halley.verify.meshes import MeshRun, WrongShare
from halley.workloads.training import training_model
from halley.workloads.transformer import StateSpace, Transformer

SMALL = Transformer(
    "mamba", layers=2, model=4, heads=4, kv_heads=1, head_dim=2, hidden=8, vocabulary=8, sequence=4,
    state_space=StateSpace(state=3, taps=2, chunk=2),
)  # fmt: skip
GROUPS = replace(SMALL, name="groups", kv_heads=2)


def layer(shape: Transformer, choice: Recompute = Recompute.NONE, fused: bool = True, batch: int = 2) -> TrainingGraph:
    part = training_model(shape, batch).blocks[0]
    return training_graph(backward(part.workload), part.weights, choice, fused, scans=part.scans)


def problem(graph: TrainingGraph, mesh: tuple[MeshAxis, ...], costs: Costs) -> ShardingProblem:
    weights = dict.fromkeys(graph.weights, 4.0)
    ties = {"same_split": graph.same_split, "compounds": graph.compounds}
    return training_problem(graph.found, mesh, costs.kernel, costs.wire, weights, {"Y": "X"}, **ties)


def inside(plan: Sharding) -> list[str]:
    """Tensors that collectives move between two ops of the scan."""
    (scan,) = plan.problem.compounds
    work = plan.problem.workload
    made = {name for op in scan.ops for name in work.op(op).outputs}
    moves = (move for move in plan.redistributions if move.reader in scan.ops and move.tensor in made)
    return [move.tensor for move in moves if any(step.kind for step in move.steps)]


# ---------------------------------------------------------------- shardings


def judge(seeds: range, axes: int) -> Counter[str]:
    """How often the scan was split on each dim."""
    splits = Counter[str]()
    for seed in seeds:
        random = Random(seed)
        graph = layer(random.choice((SMALL, GROUPS)), random.choice(list(Recompute)), random.random() < 0.7, random.randint(1, 2))
        mesh = drawn_mesh(random, axes)
        plan = shard(problem(graph, mesh, Costs(random, mesh)))
        agree(plan, random)
        assert not inside(plan)
        splits.update(way.split for way in plan.strategy("combine"))
    return splits


def test_ranks_get_the_result_of_one_rank() -> None:
    """Forward and backward, at prices that mean nothing."""
    assert judge(range(12), 1).keys() >= {"b", "h", "g"}


@pytest.mark.slow
def test_ranks_on_two_axes_get_the_result_of_one_rank() -> None:
    assert judge(range(100, 160), 2).keys() >= {"b", "h", "g"}


def on_heads() -> Sharding:
    """All products with weights split on heads, so that the scan is."""
    graph, mesh = layer(SMALL, batch=1), (MeshAxis("x", 2),)
    made = problem(graph, mesh, Costs(Random(0), mesh))
    return shard(replace(made, splits={"project_z": {"x": "h"}, "combine": {"x": "h"}}))


def test_ranks_with_some_heads_run_the_recurrence() -> None:
    """Against the state of each head, token by token; gradients of B and C are partial sums until the scan has ended."""
    plan = on_heads()
    random, work = np.random.default_rng(5), plan.problem.workload
    given = {name: random.normal(size=[work.dims[dim] for dim in work.tensors[name].dims]) for name in work.inputs}
    found = MeshRun(plan, given).run()["Y"][0]
    tokens = given["X"][0]
    normed = tokens / np.sqrt((tokens**2).mean(-1, keepdims=True) + 1e-5) * given["gain1"]
    sizes = {"chunks": 2, "chunk": 2, "heads": 4, "head_dim": 2, "state": 3}
    mixed = ORACLES["mamba-2"](sizes, {**given, "X": normed, "gain": given["gain2"], "Wt": given["Wstep"]})["Y"]
    np.testing.assert_allclose(found, tokens + mixed, rtol=1e-9, atol=1e-9)
    reduced = {move.tensor for move in plan.redistributions if any(step.kind for step in move.steps)}
    assert {"d_B2", "d_C2"} <= reduced
    assert plan.strategy("scores_d_C2")[0].name.startswith("partial ")


def test_a_missing_collective_is_found() -> None:
    plan = on_heads()
    random, work = np.random.default_rng(5), plan.problem.workload
    given = {name: random.normal(size=[work.dims[dim] for dim in work.tensors[name].dims]) for name in work.inputs}
    wrong = replace(plan, redistributions=tuple(move for move in plan.redistributions if move.tensor != "d_C2"))
    with pytest.raises(WrongShare):
        MeshRun(wrong, given).run()


def test_a_rank_without_all_windows_is_found() -> None:
    """The gradient of a window, which is a scatter without an index, needs all elements of its part."""
    plan = on_heads()
    random, work = np.random.default_rng(5), plan.problem.workload
    given = {name: random.normal(size=[work.dims[dim] for dim in work.tensors[name].dims]) for name in work.inputs}
    given["short_x"][:, 0] = np.nan
    with pytest.raises(WrongShare):
        MeshRun(plan, given).run()


# ---------------------------------------------------------------- scans as kernels


@pytest.mark.parametrize("choice", list(Recompute))
def test_a_scan_is_one_kernel_in_each_pass(choice: Recompute) -> None:
    graph = layer(SMALL, choice)
    work, passes = graph.workload, graph.found.passes
    tasks = [(passes[op.name], task.kernel) for op in work.ops for task in op_tasks(graph, op, {})]
    scans = [(passing, kernel.backward) for passing, kernel in tasks if isinstance(kernel, Scan)]
    again = [("recompute", False)] if choice is Recompute.FULL else []
    assert scans == [("forward", False), *again, ("backward", True)]
    internal = {"dt", "V", "G", "Gs", "Vs", "Bs", "S", "M", "Yd", "Ve", "St", "Hc", "Yo", "Y0"}
    assert graph.stored.isdisjoint(internal | {f"again_{name}" for name in internal})
    if choice is not Recompute.FULL:
        assert {"T", "X2", "B2", "C2", "X0"} <= set(saved_tensors(graph))
        assert not {"Ux", "Ub", "Uc", *internal}.intersection(saved_tensors(graph))


def test_the_work_of_a_scan_is_that_of_its_ops() -> None:
    """Forward, by hand: scores of a chunk once for all heads, of which positions see those up to their own."""
    graph = layer(SMALL)
    b, c, l, h, p, n = 2, 2, 2, 4, 2, 3  # noqa: E741
    seen = l * (l + 1) // 2
    ((kernel,),) = [[task.kernel for task in op_tasks(graph, graph.workload.op("skip"), {})]]
    assert isinstance(kernel, Scan)
    assert kernel.macs == b * c * seen * (n + h * p) + 2 * b * c * l * h * p * n
    assert kernel.work["exp"] == b * c * (seen * h + l * h * (2 + p + 1) + h)  # masks; steps, outputs, ends of chunks; chunks
    channels, states, heads = b * c * l * h * p, b * c * l * n, b * c * l * h
    assert kernel.read == 2 * (channels + 2 * states + heads) + 3 * 4 * h
    assert kernel.written == 2 * channels
    assert (kernel.heads, kernel.chunks, kernel.state) == (b * h, c, b * h * p * n * 4)


def test_products_of_one_input_are_one_where_they_share_columns() -> None:
    """B and C of one group have no heads; with several groups all projections have the groups."""
    assert {layer(SMALL).contributions[name].merged for name in ("project_z", "project_b")} == {
        ("project_z", "project_x", "project_step"),
        ("project_b", "project_c"),
    }
    assert len(layer(GROUPS).contributions["project_z"].merged) == 5


# ---------------------------------------------------------------- plans


def plan(**fixed: object) -> TrainingResult:
    shape, system = load_model("mamba2-1.3b"), load_system("4 x h100, nvlink 4")
    return best_training_plan(TrainingProblem(shape, system, 8, 2048, PEAK, fixed=Fixed(**fixed)), others=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("degrees", [{"data": 4}, {"model": 4}, {"model": 2, "stages": 2}], ids=str)
def test_a_plan_is_verified(degrees: dict[str, int], fused: bool) -> None:
    """Ranks of each role: execution against one rank, bytes of each collective, gradients, and the simulated iteration."""
    found = plan(**degrees, fused=fused, microbatch=1)
    for finding in verify(found, search=False):
        assert finding.passed, f"{finding.name} {finding.what}: {finding.detail}"
    if degrees == {"model": 4}:
        assert found.cost.parts.parts[1].sharding.strategy("combine")[0].split == "h"


def test_the_best_plan_is_no_slower_than_with_scans_op_by_op() -> None:
    times = {fused: plan(data=4, fused=fused).cost.time for fused in (None, True, False)}
    assert times[None] <= min(times[True], times[False])
    assert times[True] < times[False]


def test_a_fused_scan_saves_less() -> None:
    shape = load_model("mamba2-1.3b")
    sizes = {}
    for fused in (True, False):
        graph = training_graphs(shape, 1, 2048, Recompute.NONE, fused)[1]
        sizes[fused] = sum(graph.workload.bytes(name) for name in saved_tensors(graph))
    masks = 8 * 64 * 256 * 256 * 2  # of all heads and chunks
    assert sizes[True] + masks < sizes[False]
