"""Lower bounds of groups (products with the ops behind them) hold for every mapping: for the best one, and for drawn ones."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.certificates.test_joint_plans import one_cluster
from tests.laws.test_attention_bounds import drawn_chip
from tests.reference.generate import random_trees

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.workload import Workload
from halley.kernels.groups import GroupKernel, PatternDims, group_bound, pattern_of, pattern_text, read_pattern
from halley.kernels.machine import machine
from halley.kernels.search import timed_kernel
from halley.kernels.searched import KernelCost, Product, SearchedKernels
from halley.rewrite.legality import faults
from halley.workloads.gemm import gemm_layernorm, gemm_softmax
from halley.workloads.mlp import gated_mlp
from halley.workloads.user import graph

BEHIND = (
    "relu(C[m,n])",
    "add(C[m,n],X[m,n])",
    "add(C[m,n],c[n])",
    "mul(C[m,n],X[m,n])",
    "maximum(C[m,n],r[m])",
    "square(C[m,n])",
)


def drawn(random: Random, largest: int) -> Workload:
    """A product with one to three ops behind it, the last perhaps a reduction; some results leave the group."""
    count = random.randint(1, 3)
    lines = ["C[m,n] = A[m,k] * B[k,n]"]
    for number in range(count):
        before = f"Y{number}[m,n]" if number else "C[m,n]"
        lines.append(f"Y{number + 1}[m,n] = {random.choice(BEHIND).replace('C[m,n]', before)}")
    if random.random() < 0.4:
        lines.append(f"Z[m] = max(Y{count}[m,n])")
    outputs = [line.split("[")[0] for line in lines[:-1] if random.random() < 0.3] + [lines[-1].split("[")[0]]
    return graph(lines, {dim: random.randint(1, largest) for dim in "mnk"}, outputs=outputs)


def pattern(work: Workload) -> PatternDims:
    first, *behind = (op.name for op in work.ops)
    found = pattern_of(work, [first], behind)
    assert found is not None
    return found


def kernel(work: Workload) -> GroupKernel:
    found = pattern(work)
    return GroupKernel(found.pattern, tuple(math.prod(work.dims[dim] for dim in dims) for dims in found.dims))


def test_no_drawn_mapping_is_faster() -> None:
    """Random legal mappings on random chips whose memory, arrays or lanes may be what is slow."""
    judged, close = 0, 0
    for seed in range(60):
        random = Random(seed)
        group, chip = kernel(drawn(random, 6)), drawn_chip(random)
        work, bound = group.shape.workload, float(group_bound(group, chip, machine(chip)))
        for tree in random_trees(random, work, chip, lambda tree, work=work, chip=chip: not faults(tree, work, chip), 6):
            time = float(evaluate(work, chip, tree).time)
            assert time >= bound, (seed, work)
            judged, close = judged + 1, close + (time < 1.5 * bound)
    assert judged > 150
    assert close > 0


def drawn_mlp(random: Random, largest: int) -> Workload:
    """Two products with one or two ops between; some hidden values leave the group."""
    lines = ["C[m,n] = A[m,k] * B[k,n]", f"Y1[m,n] = {random.choice(BEHIND)}"]
    if random.random() < 0.5:
        lines.append(f"Y2[m,n] = {random.choice(BEHIND).replace('C[m,n]', 'Y1[m,n]')}")
    last = lines[-1].split("[")[0]
    outputs = [line.split("[")[0] for line in lines if random.random() < 0.3] + ["D"]
    return graph([*lines, f"D[m,o] = {last}[m,n] * V[n,o]"], {dim: random.randint(1, largest) for dim in "mnko"}, outputs=outputs)


def test_no_drawn_mapping_of_an_mlp_is_faster() -> None:
    judged = 0
    for seed in range(60):
        random = Random(1000 + seed)
        group, chip = kernel(drawn_mlp(random, 6)), drawn_chip(random)
        assert len(group.pattern.contractions) == 2
        work, bound = group.shape.workload, float(group_bound(group, chip, machine(chip)))
        for tree in random_trees(random, work, chip, lambda tree, work=work, chip=chip: not faults(tree, work, chip), 6):
            assert float(evaluate(work, chip, tree).time) >= bound, (seed, work)
            judged += 1
    assert judged > 100


def test_a_pattern_is_the_group_that_it_was_made_of() -> None:
    """The workload has the work, the tensors and the outputs of the ops, and its text says all of it."""
    for seed in range(40):
        work = drawn(Random(seed), 9)
        group = kernel(work)
        made = group.shape.workload
        assert read_pattern(pattern_text(group.pattern)) == group.pattern
        assert [(op.kind, op.function, op.monoid) for op in made.ops] == [(op.kind, op.function, op.monoid) for op in work.ops]
        assert sorted(map(made.bytes, made.tensors)) == sorted(map(work.bytes, work.tensors))
        assert sorted(map(made.bytes, made.outputs)) == sorted(map(work.bytes, work.outputs))
        assert made.macs() == work.macs()


def test_equal_groups_of_other_names_are_one_pattern() -> None:
    one = graph(["C[m,n] = A[m,k] * B[k,n]", "Y[m,n] = relu(C[m,n])"], {"m": 4, "n": 5, "k": 6})
    other = graph(["F[b,t,f] = X[b,t,e] * W[e,f]", "H[b,t,f] = relu(F[b,t,f])"], {"b": 2, "t": 2, "f": 5, "e": 6})
    assert kernel(one).shape == kernel(other).shape
    assert pattern(other).dims == (("b", "t"), ("e",), ("f",))


def test_groups_of_several_products_and_reductions() -> None:
    gated = gated_mlp(4, 5, 6)
    found = pattern_of(gated, ["gate", "up"], ["activate"])
    assert found is not None
    assert (found.pattern.products, found.pattern.outputs) == (2, ("Y",))
    assert pattern_of(gated, ["gate"], ["down"]) is not None, "a second product may be behind the first"
    for work in (gemm_softmax(4, 5, 6), gemm_layernorm(4, 5, 6)):
        assert pattern(work).pattern.workload((4, 6, 5)).macs() == 4 * 5 * 6


def test_many_extents_at_once() -> None:
    """Arrays of extents have the bounds of each, searched ones their times."""
    kernels, group = SearchedKernels(load_chip("edge")), kernel(drawn(Random(3), 9))
    rows, columns = np.array([8.0, 17.0])[:, None], np.array([16.0, 33.0, 64.0])
    known = GroupKernel(group.pattern, (8, 7, 33)).shape
    kernels.known[known] = kernels.known[Product(8, 33, 7, 1, "bf16", "bf16")] = KernelCost(1.0, "")
    times = kernels.times(GroupKernel(group.pattern, (rows, 7, columns)))
    assert times.shape == (2, 3)
    for place in np.ndindex(times.shape):
        assert times[place] == float(kernels.times(GroupKernel(group.pattern, (rows[place[0], 0], 7, columns[place[1]]))))
    assert times[0, 1] == 1.0 > times[1, 1]
    assert kernels.missing([GroupKernel(group.pattern, (8, 7, 33)), GroupKernel(group.pattern, (8, 7, 16))]) == [
        GroupKernel(group.pattern, (8, 7, 16)).shape
    ]


def judge(chip: Chip, random: Random, count: int, largest: int) -> None:
    """Best mappings take at least their bounds, and as long as the formulas say of them."""
    for _ in range(count):
        group, kernels = kernel(drawn(random, largest)), SearchedKernels(chip)
        bound = float(kernels.times(group))
        kernels.search(group.shape)
        found = kernels.known[group.shape]
        assert found.time == float(kernels.times(group)) >= bound, group.shape
        assert timed_kernel(chip, group.shape, found.mapping).time == found.time


@pytest.mark.medium
def test_no_best_mapping_is_faster() -> None:
    judge(one_cluster(), Random(1), 2, 24)


@pytest.mark.medium
def test_no_best_mapping_of_an_mlp_is_faster() -> None:
    """Nor is it slower than its kernels one after the other."""
    random, chip = Random(2), one_cluster()
    group, kernels = kernel(drawn_mlp(random, 24)), SearchedKernels(chip)
    bound = float(kernels.times(group))
    kernels.search(group.shape)
    found = kernels.known[group.shape]
    assert bound <= found.time == timed_kernel(chip, group.shape, found.mapping).time
    work = group.shape.workload
    names = [op.name for op in work.ops]
    pair = pattern_of(
        replace(work, outputs=tuple(dict.fromkeys((*work.outputs, work.ops[-1].inputs[0])))), names[:1], names[1:-1]
    )
    assert pair is not None
    one = GroupKernel(pair.pattern, tuple(math.prod(work.dims[dim] for dim in dims) for dims in pair.dims)).shape
    rows, depth, columns = (work.dims[dim] for dim in work.ops[-1].dims)
    two = Product(rows, columns, depth, 1, "bf16", "bf16")
    for shape in (one, two):
        kernels.search(shape)
    assert found.time <= (kernels.known[one].time + kernels.known[two].time) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edge", "cloud", "tpu-v4i-like"])
def test_no_best_mapping_of_many_is_faster(name: str) -> None:
    judge(load_chip(name), Random(name), 6, 200)
