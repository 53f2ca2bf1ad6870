"""Whole systems in the view of DFModel: its inputs, its network, and the search against an enumeration of its own."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from validation.dfmodel.case import graph as published_graph

from halley.dfmodel.layer import layer_graph
from halley.dfmodel.network import collective_time
from halley.dfmodel.plan import AxisChoice, DFModelProblem, best_training
from halley.errors import BadInput, Infeasible
from halley.formulas.collectives import all_reduce_bound
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.network.time.collective import bound_of, team_of
from halley.sharding.axes import Role, degree
from halley.spatial.solve import best_plan
from halley.workloads.transformer import Transformer

K = CollectiveKind
CASES = 40
LINK = Link(25e9)


@pytest.mark.parametrize("chips", [1, 4, 8])
@pytest.mark.parametrize("name", ["forward", "training"])
def test_layer_is_the_published_one(chips: int, name: str) -> None:
    """Kernels and tensors of the authors' input files, which the table writes with symbols."""
    made = layer_graph(
        load_model("gpt3-175b"), 2048, chips, lambda size: all_reduce_bound(chips, size, chips * 2 * 25e9), name == "training"
    )
    wanted = published_graph(chips, name)
    assert made.kernels == wanted.kernels
    assert sorted(made.tensors, key=str) == sorted(wanted.tensors, key=str)


@pytest.mark.parametrize(
    ("topology", "time"),
    [(Topology.RING, 800e6 * 7 / (8 * 25e9)), (Topology.SWITCH, 800e6 * 7 / (8 * 25e9)), (Topology.FULL, 2 * 800e6 / (8 * 25e9))],
)
def test_all_reduce_is_the_published_one(topology: Topology, time: float) -> None:
    assert collective_time(K.ALL_REDUCE, (Axis("x", 8, topology, LINK),), 800e6) == pytest.approx(time, rel=1e-12)


@pytest.mark.parametrize("kind", [K.ALL_REDUCE, K.ALL_GATHER, K.REDUCE_SCATTER, K.ALL_TO_ALL])
@pytest.mark.parametrize("axes", [(("ring", 8),), (("full", 6),), (("ring", 8), ("ring", 4)), (("full", 4), ("ring", 6))])
def test_no_collective_is_faster_than_the_network_allows(kind: CollectiveKind, axes: tuple[tuple[str, int], ...]) -> None:
    network = tuple(Axis(f"a{place}", size, Topology(name), LINK) for place, (name, size) in enumerate(axes))
    assert collective_time(kind, network, 96_000_000) >= bound_of(kind, team_of(network), 96_000_000).value * (1 - 1e-9)


def drawn(seed: int) -> DFModelProblem:
    """A small GPT on a few chips whose memory is scarce."""
    draw = random.Random(seed)
    heads = draw.choice((2, 4))
    shape = Transformer(
        f"drawn {seed}",
        layers=draw.choice((3, 4, 8)),
        model=heads * 64,
        heads=heads,
        kv_heads=heads,
        head_dim=64,
        hidden=draw.choice((256, 1024)),
        vocabulary=512,
        sequence=256,
        gated=False,
        rms=False,
    )
    count = draw.choice((1, 2, 3))
    topologies = (Topology.RING, Topology.SWITCH, Topology.FULL)
    sizes, rates = (2, 3, 4), (1e9, 1e11)
    axes = tuple(
        Axis(f"a{place}", draw.choice(sizes), draw.choice(topologies), Link(draw.choice(rates))) for place in range(count)
    )
    system = load_system("8 x sn10, pcie torus 4x2")
    level = system.chip.levels[0]
    memory = replace(level.memories[0], capacity=draw.choice((1.5e7, 6e7, 1e9)))
    chip = replace(system.chip, levels=(replace(level, memories=(memory,)), *system.chip.levels[1:]))
    system = System(f"drawn {seed}", chip, axes, ("dram",))
    return DFModelProblem(shape, system, draw.choice((4, 6, 12)), draw.choice((64, 256)), fused=False)


def enumerated(problem: DFModelProblem) -> float:
    """The least time over roles of axes and microbatches, in arithmetic of its own; infinite where nothing works."""
    shape, axes, chip = problem.shape, problem.system.axes, problem.system.chip
    assert chip.matrix is not None
    rate = 2 * 640 * 32 * 6 * 1.25e9
    capacity, bandwidth = chip.levels[0].memories[0].capacity, chip.levels[0].memories[0].read_bandwidth
    best = math.inf
    for roles in product("dpt", repeat=len(axes)):
        size = {role: math.prod(axis.size for axis, each in zip(axes, roles, strict=True) if each == role) for role in "dpt"}
        if size["p"] > shape.layers or size["d"] > problem.batch:
            continue
        tensor, data = ([axis for axis, each in zip(axes, roles, strict=True) if each == role] for role in "td")
        graph = layer_graph(shape, problem.sequence, size["t"], lambda bytes_, tensor=tensor: reduced(tensor, bytes_))
        steady = kept = 0.0
        for place, kernel in enumerate(graph.kernels):
            ends = [t.bytes for t in graph.tensors if t.writer is not None for reader in t.readers if place in (t.writer, reader)]
            compute = least_cycles(kernel.rows, kernel.columns, kernel.depth, kernel.engine == "matrix") / 1.25e9
            assert compute >= kernel.work / rate * (1 - 1e-9) or kernel.engine == "vector"
            steady += max(compute, sum(ends) / bandwidth, kernel.network)
            kept += sum(ends)
        weights = sum(kernel.weights for kernel in graph.kernels)
        layers = math.ceil(shape.layers / size["p"])
        samples = math.ceil(problem.batch / size["d"])
        gradients = sum(kernel.weights for kernel in graph.kernels[:18])
        links = [axis.link.bandwidth for axis, each in zip(axes, roles, strict=True) if each == "p"]
        transfer = shape.model * problem.sequence * 2 / min(links) if links else 0.0
        for microbatch in (m for m in range(1, samples + 1) if samples % m == 0):
            if (weights + kept * microbatch) * layers > capacity:
                continue
            layer = max(steady + weights / bandwidth / microbatch, transfer)
            time = layer * layers * microbatch * (samples // microbatch + size["p"] - 1)
            best = min(best, max(time, reduced(data, gradients) * layers if data else 0.0))
    return best


def reduced(axes: list[Axis], size: float) -> float:
    """An all-reduce, over one axis after the other in the best order."""

    def down(left: list[Axis], size: float) -> float:
        found = []
        for axis in left:
            links = {Topology.RING: 2, Topology.SWITCH: 2, Topology.FULL: axis.size - 1}[axis.topology]
            own = size * (axis.size - 1) / axis.size / (links * axis.link.bandwidth)
            found.append(own + down([other for other in left if other is not axis], size / axis.size))
        return min(found, default=0.0)

    return 2 * down(axes, size)


@cache
def least_cycles(rows: int, columns: int, depth: int, matrix: bool) -> float:
    """Over every block of lanes and stages on 640 compute tiles of 32 x 6."""
    if not matrix:
        return math.ceil(rows / (32 * 640)) * columns
    blocks = ((lanes, 640 // lanes) for lanes in range(1, 641))
    return min(math.ceil(rows / (32 * lanes)) * math.ceil(columns / (6 * stages)) for lanes, stages in blocks) * depth


def test_best_of_all_assignments_and_microbatches() -> None:
    solved = 0
    for seed in range(CASES):
        problem = drawn(seed)
        least = enumerated(problem)
        if least == math.inf:
            with pytest.raises(Infeasible):
                best_training(problem)
            continue
        found = best_training(problem)
        assert found.time == pytest.approx(least, rel=1e-9)
        assert sum(found.account.values()) == pytest.approx(found.time, rel=1e-9)
        assert min(found.account.values()) >= 0
        assert found.memory <= problem.system.tiers[-1].capacity
        solved += 1
    assert CASES / 4 < solved < CASES


@pytest.mark.parametrize("seed", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)])
def test_fused_search_finds_the_best_of_all_choices(seed: int) -> None:
    """Each choice searched for itself, without the limits that choices set each other."""
    problem = replace(drawn(seed), fused=True, batch=4, sequence=64)
    found = best_training(problem)
    assert len(found.candidates) == 3 ** len(problem.system.axes)
    least = math.inf
    for assignment in (each.assignment for each in found.candidates):
        for microbatch in (1, 2, 4):
            choice = AxisChoice(assignment, microbatch)
            if problem.samples(assignment) % microbatch or degree(assignment, Role.PIPELINE) > problem.shape.layers:
                continue
            stage = problem.stage(choice)
            try:
                layer = best_plan(stage).layer
            except Infeasible:
                continue
            least = min(least, max(layer * problem.scale(choice, stage), problem.reduction(choice, stage)))
    assert found.time == pytest.approx(least, rel=1e-9)
    assert all(each.time >= found.time * (1 - 1e-9) for each in found.candidates)


def test_a_thousand_chips() -> None:
    """GPT3-1T: proven, its parts add up, and more of anything is never slower."""
    shape = load_model("gpt3-1t")
    system = load_system("1024 x h100, nvlink 8, ib")
    found = best_training(DFModelProblem(shape, system, 2048, 2048, fused=False))
    assert 0.3 < found.utilisation < 1
    assert sum(found.account.values()) == pytest.approx(found.time, rel=1e-9)
    faster = tuple(replace(axis, link=replace(axis.link, bandwidth=2 * axis.link.bandwidth)) for axis in system.axes)
    assert best_training(DFModelProblem(shape, replace(system, axes=faster), 2048, 2048, fused=False)).time <= found.time
    fixed = best_training(DFModelProblem(shape, system, 2048, 2048, fused=False, degrees={Role.PIPELINE: 128}))
    assert fixed.time == found.time


def test_what_does_not_work_is_reported() -> None:
    shape = load_model("gpt3-1t")
    with pytest.raises(BadInput, match=r"model llama3-8b, gated: expected a plain feed-forward block; got True"):
        DFModelProblem(load_model("llama3-8b"), load_system("8 x h100, nvlink"), 8, 2048, fused=False)
    with pytest.raises(Infeasible, match="memory does not hold a sample"):
        best_training(DFModelProblem(shape, load_system("8 x h100, nvlink"), 8, 2048, fused=False))


def test_a_dataflow_chip_runs_one_by_one_where_a_kernel_does_not_fit() -> None:
    """The plan is that of the same chips one by one, and never slower than that where kernels do fit."""
    for name, fits in (("gpt3-1t", False), ("gpt3-175b", True)):
        problem = DFModelProblem(load_model(name), load_system("8 x sn10, pcie torus 4x2"), 8, 2048, fused=True)
        fused, alone = best_training(problem), best_training(replace(problem, fused=False))
        assert fused.problem.fused is fits
        assert fused.time < alone.time if fits else fused.time == alone.time
        assert fused.choices >= alone.choices > 0
