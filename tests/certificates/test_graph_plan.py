"""Graphs on whole systems: bounds and times against every split of every op, laws, and known answers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from halley.dfmodel.network import mesh_time
from halley.errors import BadInput, Infeasible
from halley.graphs import plan as graph_plan
from halley.graphs.kernels import graph_memory, kernel_groups, local_graph, network_times, op_extents, op_work
from halley.graphs.plan import OVERLAP_ASSUMPTIONS, GraphProblem, plan_graph
from halley.io.systems.system import load_system
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Replicate, Shard
from halley.ir.workload import OpKind, Workload
from halley.optim.multipliers import best_multipliers
from halley.sharding.axes import Role, SubAxis, degree
from halley.sharding.communication import Communication, Interconnect
from halley.sharding.layouts import MeshAxis
from halley.sharding.solution import shard
from halley.sharding.solve import ShardingProblem
from halley.sharding.strategies import axis_strategies
from halley.spatial.chip import SpatialProblem
from halley.spatial.solve import best_plan, plan
from halley.workloads import build
from halley.workloads.user import graph

RING = "4 x sn10, pcie ring"
DLRM = {
    "batch": 4096,
    "tables": 16,
    "rows": 4_000_000,
    "width": 64,
    "lookups": 8,
    "dense": 64,
    "bottom_layers": 2,
    "bottom_hidden": 256,
    "top_layers": 2,
    "top_hidden": 256,
}
MLP = ["F[m,f] = X[m,k] * Wu[k,f]", "H[m,f] = relu(F[m,f])", "Y[m,n] = H[m,f] * Wd[f,n]"]
NORM = ["C[m,n] = A[m,k] * B[k,n]", "s[m] = sum(C[m,n])", "Y[m,n] = C[m,n] / s[m]"]
SMALL = {
    "mlp": graph(MLP, {"m": 4096, "k": 512, "f": 2048, "n": 512}),
    "norm": graph(NORM, {"m": 512, "k": 8192, "n": 4096}),
    "fft": build("fft", {"rows": 64, "columns": 128, "dtype": "bf16"}),
}


def overlapped_time(problem: GraphProblem, work: Workload, splits: dict[str, dict[str, str]]) -> float:
    """A sharding with these splits, its collectives as few as can be, where all overlaps; infinite if it cannot be."""
    mesh = (MeshAxis("pcie", 4),)
    try:
        found = shard(ShardingProblem(work, mesh, lambda op, local: 0.0, mesh_time(problem.system), splits=splits))
    except (Infeasible, BadInput):
        return math.inf
    stage = SpatialProblem(local_graph(found, problem.fused), problem.chip, OVERLAP_ASSUMPTIONS, most=1.0)
    place = {op.name: number for number, op in enumerate(work.ops)}
    groups = sorted(sum(1 << place[name] for name in group) for group in kernel_groups(work))
    chosen = best_plan(stage) if problem.fused else plan(stage, stage.graph.sequence, [(group, 0) for group in groups])
    return sum(part.steady + part.once for part in chosen.partitions)


SPLIT = [(name, fused) for name in SMALL for fused in (False, True)]


@pytest.mark.parametrize(
    ("name", "fused"), [pytest.param(*each, marks=pytest.mark.slow) if each == ("fft", True) else each for each in SPLIT]
)
def test_bound_holds_for_every_split_of_every_op(name: str, fused: bool) -> None:
    """And what is found is no better than the best of them, and within the gap."""
    work = SMALL[name]
    problem = GraphProblem(work, load_system(RING), overlap=True, fused=fused)
    found = plan_graph(problem)
    partials = dict.fromkeys(work.tensors, "")
    options = [sorted({way.split for way in axis_strategies(work, op, partials)}) for op in work.ops]
    times = []
    for chosen in product(*options):
        splits = {op.name: {"pcie": dim} for op, dim in zip(work.ops, chosen, strict=True)}
        times.append(overlapped_time(problem, work, splits))
    assert found.certificate.bound <= min(times) * (1 + 1e-9)
    assert found.certificate.bound <= found.time * (1 + 1e-9)
    assert found.time <= min(times) * (1 + found.certificate.gap) * (1 + 1e-9)


WIDE = graph(["F[m,f] = X[m,k] * Wu[k,f]", "Y[m,n] = F[m,f] * Wd[f,n]"], {"m": 4096, "k": 8192, "f": 2048, "n": 8192})


def fitting_times(problem: GraphProblem) -> Iterator[float]:
    """Time of every sharding on a ring whose tensors fit, with all splits of ops and all layouts of inputs."""
    work, mesh = problem.workload, (MeshAxis("pcie", 4),)
    communication = Communication(Interconnect(problem.system), (SubAxis("pcie", Role.MODEL, 4, 1),))
    network = mesh_time(problem.system) if problem.overlap else communication.model
    kernels = (lambda op, local: 0.0) if problem.overlap else graph_plan._kernel_times(problem)
    splits = [sorted({way.split for way in axis_strategies(work, op, dict.fromkeys(work.tensors, ""))}) for op in work.ops]
    placed = [[Replicate(), *map(Shard, work.tensors[name].dims)] for name in work.inputs]
    for chosen in product(product(*splits), product(*placed)):
        layouts = {name: (each,) for name, each in zip(work.inputs, chosen[1], strict=True)} | {"Y": (Replicate(),)}
        wanted = {op.name: {"pcie": dim} for op, dim in zip(work.ops, chosen[0], strict=True)}
        found = shard(ShardingProblem(work, mesh, kernels, network, layouts, splits=wanted))
        if graph_memory(found, {}).total <= problem.capacity:
            yield graph_plan._on_chip(problem, found).time if problem.overlap else found.time


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("share", [0.97, 0.9, 0.8])
def test_bound_holds_where_what_passes_between_ops_does_not_fit(
    overlap: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that fits may come from a smaller budget for inputs; the bound may not."""
    problem = GraphProblem(WIDE, load_system(RING), layouts={"Y": {}}, overlap=overlap)
    room = share * plan_graph(problem).memory.total
    monkeypatch.setattr(GraphProblem, "capacity", room)
    found, least = plan_graph(problem), min(fitting_times(problem))
    assert found.memory.total <= room
    assert found.certificate.bound <= least * (1 + 1e-9)
    assert least <= found.time * (1 + 1e-9)


@pytest.mark.parametrize(("choices", "kernels"), [(3, 1), (6, 4), (12, 9)])
def test_prices_are_near_the_best(choices: int, kernels: int) -> None:
    """Against a linear programme."""
    random = np.random.default_rng(choices)
    always, times = random.random(choices), random.exponential(size=(choices, kernels, 3))
    flat = times.reshape(choices, -1)
    shares = best_multipliers(always, times)
    assert shares.sum(axis=1) == pytest.approx(np.ones(kernels))
    found = float((always + flat @ shares.ravel()).min())
    each = np.kron(np.eye(kernels), np.ones(3))
    best = linprog(
        [*np.zeros(3 * kernels), -1.0],
        A_ub=np.column_stack([-flat, np.ones(choices)]),
        b_ub=always,
        A_eq=np.column_stack([each, np.zeros(kernels)]),
        b_eq=np.ones(kernels),
        bounds=[*[(0, None)] * (3 * kernels), (None, None)],
    )
    assert 0.97 * -best.fun <= found <= -best.fun * (1 + 1e-9)


def test_a_gathered_tensor_is_read_whole() -> None:
    """Kernel by kernel, what a kernel reads is what it touches, not what the kernel before has made of it."""
    work = SMALL["mlp"]
    splits = {"F": {"pcie": "f"}, "H": {"pcie": "f"}, "Y": {"pcie": "n"}}
    found = shard(ShardingProblem(work, (MeshAxis("pcie", 4),), lambda op, local: 0.0, lambda *given: 1e-9, splits=splits))
    entering = [tensor.bytes for tensor in local_graph(found, fused=False).tensors if tensor.readers == (len(work.ops) - 1,)]
    whole = work.dims["m"] * work.dims["f"] * work.tensors["H"].word
    assert whole in entering


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("system", [RING, "8 x sn10, pcie torus 4x2", "32 x h100, nvlink 8, ib"])
def test_accounts_add_up(overlap: bool, system: str) -> None:
    for work in (*SMALL.values(), build("dlrm", DLRM)):
        found = plan_graph(GraphProblem(work, load_system(system), overlap=overlap))
        assert sum(found.account.values()) == pytest.approx(found.time, rel=1e-9)
        assert min(found.account.values()) >= -1e-12
        assert 0 < found.utilisation <= 1
        assert found.memory.total <= found.problem.capacity
        if not overlap:
            assert found.certificate.gap <= 1e-8


def test_chips_share_all_the_work() -> None:
    """What the kernels of all chips do together is at least the graph's work, and its collectives' time is all there."""
    work = build("dlrm", DLRM)
    found = plan_graph(GraphProblem(work, load_system(RING), overlap=True)).sharding
    for op in work.ops:
        local = op_extents(found, op)
        whole = math.prod(work.dims[dim] for dim in op.dims)
        assert 4 * math.prod(local[dim] for dim in op.dims) >= whole
    assert sum(network_times(found).values()) == pytest.approx(found.collective_time)
    products = [op for op in work.ops if op.kind is OpKind.CONTRACT]
    assert sum(op_work(work, op) for op in products) == 2 * work.macs()


def test_tables_are_dealt_out_and_exchanged() -> None:
    """Embedding tables that no chip holds: look-ups by table, layers by sample, an all-to-all between."""
    found = plan_graph(GraphProblem(build("dlrm", DLRM | {"rows": 2_500_000_000}), load_system(RING), overlap=True))
    kinds = {step.kind for _, step in found.sharding.steps}
    assert CollectiveKind.ALL_TO_ALL in kinds
    assert found.sharding.strategy("look_up")[0].split == "t"
    assert found.sharding.strategy("pair")[0].split == "b"


def test_layers_make_pipelines() -> None:
    """Where collectives are slow and inputs many, stages beat splits; one input at a time has no use for stages."""
    work, system = SMALL["mlp"], load_system("8 x sn10, pcie torus 4x2")
    layouts = {"X": {}, "Y": {}}
    many = plan_graph(GraphProblem(work, system, layers=8, microbatches=64, layouts=layouts))
    alone = plan_graph(GraphProblem(work, system, layers=1, microbatches=64, layouts=layouts))
    assert degree(many.assignment, Role.PIPELINE) > 1 == degree(alone.assignment, Role.PIPELINE)
    assert many.time < 8 * alone.time
    assert many.account["bubble"] > 0
    assert sum(many.account.values()) == pytest.approx(many.time, rel=1e-9)


def test_a_transformer_layer() -> None:
    sizes = {"tokens": 2048, "model": 4096, "heads": 32, "kv_heads": 32, "head_dim": 128, "hidden": 16384}
    work = build("transformer-layer", sizes)
    found = plan_graph(GraphProblem(work, load_system("8 x h100, nvlink 8"), same_layout=(("X", "Y"),)))
    assert 0.1 < found.utilisation < 1
    assert found.certificate.gap <= 1e-8


def test_faults_come_together() -> None:
    with pytest.raises(BadInput) as caught:
        GraphProblem(SMALL["mlp"], load_system(RING), layers=0, layouts={"Z": {}, "X": {"pci": "m"}}, fused=True)
    assert len(caught.value.faults) == 4
    with pytest.raises(BadInput, match="at least 2 chips"):
        GraphProblem(SMALL["mlp"], load_system("1 x sn10"))
    with pytest.raises(Infeasible, match="memory"):
        plan_graph(GraphProblem(build("dlrm", DLRM | {"rows": 1 << 38}), load_system(RING)))
