"""Lower bounds of attention hold for every mapping of every variant: for the best one, and for drawn ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.certificates.test_joint_plans import one_cluster
from tests.reference.generate import random_chip, random_trees

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.text import parse
from halley.kernels.bounds import attention_bound, kernel_bound
from halley.kernels.machine import PEAK, machine
from halley.kernels.search import mapped_workload, timed_kernel
from halley.kernels.searched import AttentionShape, KernelCost, SearchedKernels, shape_of
from halley.kernels.times import Attention, kernel_time
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.rewrite.legality import faults
from halley.workloads import variants

FUNCTIONS = {"add": 1.0, "mul": 1.0, "max": 1.0, "exp": 0.5, "div": 0.5, "rsqrt": 0.5}


def drawn(random: Random, largest: int) -> Attention:
    kv_heads, causal = random.choice([1, 2]), random.random() < 0.5
    queries = random.randint(1, largest)
    keys = queries + random.randint(0, largest) if causal else random.randint(1, largest)
    dim, value = random.randint(1, largest), random.choice([0, random.randint(1, largest)])
    return Attention(1, queries, keys, kv_heads * random.choice([1, 2]), kv_heads, dim, value, causal)


def drawn_chip(random: Random) -> Chip:
    """A random chip whose memory, arrays or lanes may be what is slow."""
    chip = random_chip(random)
    first, *rest = chip.levels
    slow = random.choice([1.0, 0.01])
    memories = tuple(
        replace(
            memory,
            read_bandwidth=memory.read_bandwidth * slow,
            write_bandwidth=memory.write_bandwidth * slow,
            shared_bus=random.random() < 0.5,
        )
        for memory in first.memories
    )
    vector = replace(chip.vector, rate={name: rate * random.choice([1.0, 0.1]) for name, rate in FUNCTIONS.items()})
    matrix = replace(chip.matrix, rate={"bf16": 1.0})
    return replace(chip, levels=(replace(first, memories=memories), *rest), vector=vector, matrix=matrix)


def test_no_drawn_mapping_is_faster() -> None:
    """Random legal mappings of each variant on random chips."""
    judged, close = 0, 0
    for seed in range(60):
        random = Random(seed)
        kernel, chip = drawn(random, 6), drawn_chip(random)
        bound = float(attention_bound(kernel, chip, machine(chip)))
        for work in variants(shape_of(kernel).workload):
            for tree in random_trees(random, work, chip, lambda tree, work=work, chip=chip: not faults(tree, work, chip), 6):
                time = float(evaluate(work, chip, tree).time)
                assert time >= bound, (seed, work.variant)
                judged, close = judged + 1, close + (time < 1.5 * bound)
    assert judged > 300
    assert close > 0


def one_member(name: str) -> Chip:
    """A chip of the library with one cluster, whose mappings are found faster."""
    chip, levels = load_chip(name), []
    for level in chip.levels:
        network = level.network and replace(level.network, axes=tuple(replace(axis, size=1) for axis in level.network.axes))
        levels.append(replace(level, network=network))
    return replace(chip, levels=tuple(levels))


def judge(chip: Chip, random: Random, count: int, largest: int = 64) -> None:
    """The best mappings of drawn attention take at least their bounds: of the closed form, and of the same with more heads."""
    for _ in range(count):
        few, more = drawn(random, largest), random.choice([2, 3])
        kernels = SearchedKernels(chip)
        closed = float(kernels.times(few))
        many = replace(few, heads=few.heads * more, kv_heads=few.kv_heads * more)
        kernels.search(shape_of(many))
        bound, known = float(kernels.times(few)), kernels.known
        assert bound >= max(closed, known[shape_of(many)].time / more * (1 - 1e-9))
        kernels.search(shape_of(few))
        assert float(kernels.times(few)) == known[shape_of(few)].time >= bound, few


@pytest.mark.medium
@pytest.mark.parametrize("name", ["edge", "cloud", "tpu-v4i-like"])
def test_no_best_mapping_is_faster(name: str) -> None:
    judge(one_member(name), Random(name), 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "largest"), [("edge", 64), ("cloud", 64), ("tpu-v4i-like", 64), ("eyeriss-like", 8)])
def test_no_best_mapping_of_many_is_faster(name: str, largest: int) -> None:
    """On `eyeriss-like` a row of scores and what is made of it have to fit into 48 B."""
    judge(one_member(name), Random(f"{name} many"), 6, largest)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edge", "cloud"])
def test_no_best_mapping_on_clusters_is_faster(name: str) -> None:
    judge(load_chip(name), Random(f"{name} clusters"), 3)


def test_a_searched_time_bounds_that_of_fewer_heads() -> None:
    kernels = SearchedKernels(load_chip("cloud"))
    kernels.known[AttentionShape(64, 64, 16, 8, 32, 32, True, "bf16")] = KernelCost(8e-3, "")
    few = Attention(1, 64, 64, np.array([2.0, 4.0, 6.0, 16.0, 32.0]), np.array([1.0, 2.0, 3.0, 8.0, 16.0]), 32, causal=True)
    times, bounds = kernels.times(few), attention_bound(few, kernels.chip, kernels.rates)
    assert times == pytest.approx([1e-3, 2e-3, bounds[2], 8e-3, bounds[4]])
    assert float(kernels.times(replace(few, heads=2.0, kv_heads=2.0))) == float(
        attention_bound(replace(few, heads=2.0, kv_heads=2.0), kernels.chip, kernels.rates)
    )


@pytest.mark.medium
def test_a_searched_time_is_that_of_optimise_and_no_formula() -> None:
    chip, kernel = one_cluster(), Attention(1, 16, 16, 2, 2, 8, causal=True)
    kernels = SearchedKernels(chip)
    kernels.search(shape_of(kernel))
    shape = AttentionShape(16, 16, 2, 2, 8, 8, True, "bf16")
    found, best = kernels.known[shape], optimise(Problem(shape.workload, chip, baselines=False)).best
    assert found.time == best.certificate.value == timed_kernel(chip, shape, found.mapping).time
    assert mapped_workload(shape, parse(found.mapping)).variant == best.variant
    assert kernel_time(kernel, kernels.rates, PEAK) < found.time


def test_many_extents_at_once() -> None:
    """Arrays of extents have the bounds of each."""
    kernels = SearchedKernels(load_chip("edge"))
    queries, heads = np.array([8.0, 17.0])[:, None], np.array([2.0, 4.0, 6.0])
    times = kernels.times(Attention(1, queries, 32, heads, 2.0, 16, causal=True))
    assert times.shape == (2, 3)
    for place in np.ndindex(times.shape):
        one = Attention(1, queries[place[0], 0], 32, heads[place[1]], 2.0, 16, causal=True)
        assert times[place] == float(kernels.times(one))


def test_what_is_not_searched() -> None:
    kernels = SearchedKernels(load_chip("cloud"))
    for other in ({"backward": True}, {"latent": True}, {"cached": "int8"}):
        kernel = replace(Attention(1, 64, 64, 4, 4, 32), **other)
        assert shape_of(kernel) is None
        bound = kernel_bound(kernel, kernels.chip, kernels.rates)
        assert kernels.times(kernel) == max(kernel_time(kernel, kernels.rates, PEAK), bound)


def test_macs_without_hidden_scores() -> None:
    shape = AttentionShape(3, 4, 2, 1, 5, 6, True, "bf16")
    assert shape.macs == 2 * (2 + 3 + 4) * (5 + 6)
    assert shape.workload.dims == {"h": 1, "m": 6, "n": 4, "d": 5, "e": 6}
