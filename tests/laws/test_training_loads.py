"""What a plan of training asks of each resource: never more than it has time for, and as much as its parts add up to."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import replace

import pytest

from halley.io.chips.load import load_chip
from halley.ir.hardware import Axis, Chip, Link, Memory, Topology
from halley.ir.system import System
from halley.kernels.machine import PEAK, Efficiency
from halley.rewrite.recompute import Recompute
from halley.spatial.solve import SpatialPlan
from halley.training.cost import stage_parts
from halley.training.plan import Fixed, TrainingProblem, TrainingResult
from halley.training.search.search import best_training_plan
from halley.training.sharded_model import ShardedModel
from halley.workloads.transformer import Experts, Transformer

FITTED = Efficiency(0.9, 0.8, 0.85, 0.9, 1.0, 2e-7, 1e-6)
GPT = Transformer("gpt", 2, 256, 4, 4, 64, 1024, 512, 128, gated=False, rms=False, positions=True, tied=True, dropout=0.1)
LLAMA = Transformer("llama", 2, 256, 4, 2, 64, 512, 512, 128)
SHAPES = (GPT, LLAMA, replace(LLAMA, name="mixture", experts=Experts(4, 2, 256, shared=128)))
SPATIAL = [
    pytest.param(seed, chip, marks=[pytest.mark.slow] if seed % 2 else [])
    for chip in ("sn10", "sn40l", "wse-2")
    for seed in range(4)
]
TEMPORAL = [(seed, chip) for chip in ("a100", "h100") for seed in range(3)]


@functools.cache
def drawn(seed: int, chip: str) -> TrainingResult:
    """The best plan of a small model, on sequences short and long (whose work is attention), with choices that are drawn."""
    draw = random.Random(f"{seed} {chip}")
    chips, sequence = draw.choice((1, 2)), draw.choice((128, 512, 8192))
    system = System("drawn", load_chip(chip), (Axis("x", chips, Topology.RING, Link(10 ** draw.uniform(9.5, 11.5), 1e-6)),))
    recompute, fused = draw.choice(list(Recompute)), draw.random() < 0.7 or sequence > 512
    fixed = Fixed(data=1, stages=1, microbatch=1, recompute=recompute, fused=fused)
    shape, efficiency = replace(draw.choice(SHAPES), sequence=sequence), draw.choice((PEAK, FITTED))
    return best_training_plan(TrainingProblem(shape, system, 4, sequence, efficiency, fixed=fixed), others=0)


@pytest.mark.parametrize(("seed", "chip"), SPATIAL + TEMPORAL)
def test_no_load_takes_longer_than_the_iteration(seed: int, chip: str) -> None:
    result = drawn(seed, chip)
    for load in result.cost.loads:
        assert load.time <= result.cost.time * (1 + 1e-9), load.resource


@pytest.mark.parametrize(("seed", "chip"), SPATIAL)
def test_memory_traffic_is_that_of_the_partitions(seed: int, chip: str) -> None:
    """Tensors with an end outside of their partition, and weights; no partition moves more than its time allows."""
    result = drawn(seed, chip)
    memory = next(load for load in result.cost.loads if load.resource == "memory")
    whole = math.fsum(
        times * sum(map(partition_bytes, part.on_chip.values())) for part, times in stage_parts(result.plan, result.cost.parts, 0)
    )
    assert memory.parts["passes"] == pytest.approx(result.plan.pipeline.microbatches * whole, rel=1e-9)
    for part, _ in result.cost.parts.counted:
        for plan in part.on_chip.values():
            for each in plan.partitions:
                allowed = (each.steady + each.once) * plan.problem.chip.bandwidth
                assert each.traffic + each.loaded <= allowed * (1 + 1e-9)


def partition_bytes(plan: SpatialPlan) -> float:
    """What the partitions of a pass move, counted by sets of kernels; of a kernel alone what the kernel says."""
    graph, found = plan.problem.graph, 0.0
    for each in plan.partitions:
        inside = {place for place, kernel in enumerate(graph.kernels) if kernel.name in each.names}
        if each.unfused:
            found += sum(graph.kernels[place].unfused_traffic for place in inside)
            continue
        for place in inside:
            again = -(-graph.sequence // each.tile) if graph.kernels[place].name in each.streamed else 1
            found += again * graph.kernels[place].weights
        for tensor in graph.tensors:
            readers = set(tensor.readers)
            if tensor.writer in inside:
                found += tensor.bytes if tensor.leaves or readers - inside else 0.0
            elif readers & inside:
                found += tensor.bytes
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_alone_move_what_they_move_on_other_chips(shape: Transformer) -> None:
    """Without on-chip capacity, a spatial chip is like any other."""
    fixed = Fixed(microbatch=1, recompute=Recompute.SELECTIVE, fused=True)
    problem = TrainingProblem(shape, System("one", without_room("sn10"), ()), 1, shape.sequence, FITTED, fixed=fixed)
    spatial = best_training_plan(problem, others=0)
    temporal = best_training_plan(problem, model=ShardedModel(problem), others=0)
    assert all(each.unfused for part in spatial.cost.parts.parts for plan in part.on_chip.values() for each in plan.partitions)
    assert spatial.cost.time == pytest.approx(temporal.cost.time, rel=1e-12)
    for ours, theirs in zip(spatial.cost.loads, temporal.cost.loads, strict=True):
        assert ours.demand == pytest.approx(theirs.demand, rel=1e-12), ours.resource


def without_room(name: str) -> Chip:
    """A spatial chip with next to nothing of the memories through which kernels hand tensors on."""
    chip = load_chip(name)

    def emptied(memory: Memory) -> Memory:
        return replace(memory, capacity=1e-6) if memory.name in chip.streams else memory

    return replace(chip, levels=tuple(replace(level, memories=tuple(map(emptied, level.memories))) for level in chip.levels))
