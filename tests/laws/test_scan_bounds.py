"""Scans by chunks as kernels: no time is below the chip's bound, and no mapping of their ops is."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.laws.test_attention_bounds import drawn_chip
from tests.laws.test_kernel_bounds import NAMES, dtype
from tests.reference.generate import random_trees

from halley.cost.evaluate import evaluate
from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.ir.workload import Workload
from halley.kernels.bounds import kernel_bound, rate_time
from halley.kernels.machine import PEAK, machine
from halley.kernels.searched import SearchedKernels, shape_of
from halley.kernels.times import Scan, kernel_time
from halley.rewrite.backward import backward
from halley.rewrite.legality import faults
from halley.training.kernels import training_graph
from halley.training.op_costs import op_tasks
from halley.workloads.training import training_model
from halley.workloads.transformer import StateSpace, Transformer


def drawn(random: Random, largest: int) -> tuple[dict[bool, Scan], Workload]:
    """The kernels of a drawn layer's scan, by whether they are of the backward pass; and the ops of the forward one."""
    heads, dim, chunk = (random.randint(1, largest) for _ in range(3))
    space = StateSpace(random.randint(1, largest), chunk=chunk)
    shape = Transformer("s", 1, 2, heads, 1, dim, heads * dim, 2, chunk * random.randint(1, 4), state_space=space)
    part = training_model(shape, random.randint(1, 3)).blocks[0]
    graph = training_graph(backward(part.workload), part.weights, scans=part.scans)
    found = [task.kernel for op in graph.workload.ops for task in op_tasks(graph, op, {})]
    work = part.workload
    ops = tuple(work.op(name) for name in part.scans[0].ops)
    tensors = {name: work.tensors[name] for op in ops for name in (*op.inputs, *op.outputs)}
    dims = {dim: size for dim, size in work.dims.items() if any(dim in tensor.dims for tensor in tensors.values())}
    core = Workload("scan", dims, tensors, ops, ops[-1].outputs, tuple((op.name,) for op in ops), divisible=True)
    return {kernel.backward: kernel for kernel in found if isinstance(kernel, Scan)}, core


@pytest.mark.parametrize("name", NAMES)
def test_no_time_is_below_the_bound(name: str) -> None:
    """At the rates of the data sheet, at those of a fit, and as searched kernels take it."""
    random, chip = Random(name), load_chip(name)
    rates = machine(chip)
    for _ in range(8):
        for kernel in (replace(each, dtype=dtype(chip)) for each in drawn(random, 64)[0].values()):
            bound = float(kernel_bound(kernel, chip, rates))
            for share in (PEAK, load_chip_fit("h100").efficiency):
                time = float(kernel_time(kernel, rates, share))
                assert time >= bound * (1 - 1e-12)
                assert time >= float(rate_time(kernel, 1, rates, share)) * (1 - 1e-12)
            assert float(SearchedKernels(chip).times(kernel)) >= bound * (1 - 1e-12)
            assert shape_of(kernel) is None  # its mappings are not searched


def test_no_drawn_mapping_of_its_ops_is_faster() -> None:
    judged = 0
    for seed in range(25):
        random = Random(seed)
        kernels, work = drawn(random, 3)
        chip = drawn_chip(random)
        bound = float(kernel_bound(kernels[False], chip, machine(chip)))
        for tree in random_trees(random, work, chip, lambda tree, work=work, chip=chip: not faults(tree, work, chip), 6):
            assert float(evaluate(work, chip, tree).time) >= bound, seed
            judged += 1
    assert judged > 60


def test_times_at_many_extents_are_those_at_each() -> None:
    random, rates = Random(3), machine(load_chip("h100"))
    share = load_chip_fit("h100").efficiency
    each = [kernel for _ in range(30) for kernel in drawn(random, 64)[0].values() if kernel.backward]
    names = ("heads", "chunks", "macs", "read", "written", "state", "kept")
    work = {name: np.array([kernel.work[name] for kernel in each]) for name in each[0].work}
    many = Scan(work=work, backward=True, **{name: np.array([getattr(kernel, name) for kernel in each], float) for name in names})
    np.testing.assert_allclose(
        kernel_time(many, rates, share), [kernel_time(kernel, rates, share) for kernel in each], rtol=1e-12
    )


def test_more_of_anything_is_no_faster() -> None:
    random, rates = Random(5), machine(load_chip("h100"))
    share = load_chip_fit("h100").efficiency
    for _ in range(40):
        for kernel in drawn(random, 64)[0].values():
            time = float(kernel_time(kernel, rates, share))
            for name in ("macs", "read", "written", "state", "kept"):
                assert float(kernel_time(replace(kernel, **{name: 2 * getattr(kernel, name)}), rates, share)) >= time
            assert float(kernel_time(kernel, replace(rates, memory=2 * rates.memory), share)) <= time
