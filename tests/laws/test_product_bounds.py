"""Lower bounds of products hold for every mapping: for the best one, and for drawn ones."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.reference.generate import random_chip, random_trees

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.kernels.bounds import product_bound
from halley.kernels.machine import machine
from halley.kernels.searched import SearchedKernels, shape_of
from halley.kernels.times import Gemm
from halley.rewrite.legality import faults

CHIPS = ("edge", "cloud", "tpu-v4i-like", "tpu-v4", "eyeriss-like", "a100", "h100")


def drawn(random: Random, largest: float) -> Gemm:
    extents = (int(2 ** random.uniform(0, largest)) for _ in range(3))
    return Gemm(*extents, batch=random.choice([1, 1, 3]), dtype="bf16", result=random.choice(["bf16", "fp32"]))


def test_no_drawn_mapping_is_faster() -> None:
    """Random legal mappings on random chips."""
    judged = 0
    for seed in range(150):
        random = Random(seed)
        kernel = Gemm(*(random.randint(1, 8) for _ in range(3)), batch=random.choice([1, 1, 3]))
        work, chip = shape_of(kernel).workload, random_chip(random)
        chip = replace(chip, matrix=replace(chip.matrix, rate={"bf16": 1.0}))
        bound = float(product_bound(kernel, chip, machine(chip)))
        for tree in random_trees(random, work, chip, lambda tree, work=work, chip=chip: not faults(tree, work, chip), 16):
            assert float(evaluate(work, chip, tree).time) >= bound
            judged += 1
    assert judged > 500


def test_no_drawn_mapping_is_faster_where_memory_is_slow() -> None:
    """Reads and writes of the outermost memory take turns on one bus, or have a port each."""
    judged = 0
    for seed in range(60):
        random = Random(seed)
        kernel = Gemm(*(random.randint(1, 8) for _ in range(3)))
        work, chip = shape_of(kernel).workload, random_chip(random)
        first, *rest = chip.levels
        memory = replace(first.memories[0], read_bandwidth=1e7, write_bandwidth=2e7, shared_bus=seed % 2 == 0)
        chip = replace(chip, levels=(replace(first, memories=(memory, *first.memories[1:])), *rest))
        chip = replace(chip, matrix=replace(chip.matrix, rate={"bf16": 1.0}))
        bound = float(product_bound(kernel, chip, machine(chip)))
        for tree in random_trees(random, work, chip, lambda tree, work=work, chip=chip: not faults(tree, work, chip), 8):
            time = float(evaluate(work, chip, tree).time)
            assert time >= bound
            judged += time < 1.01 * bound
    assert judged > 10


@pytest.mark.medium
@pytest.mark.parametrize("name", ["edge", "cloud", "tpu-v4i-like"])
def test_no_best_mapping_is_faster(name: str) -> None:
    kernels, random = SearchedKernels(load_chip(name)), Random(name)
    for _ in range(3):
        kernel = drawn(random, 7)
        bound = float(kernels.times(kernel))
        kernels.search(shape_of(kernel))
        assert kernels.known[shape_of(kernel)].time >= bound


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("name", CHIPS)
def test_no_best_mapping_of_many_is_faster(name: str, part: int) -> None:
    kernels, random = SearchedKernels(load_chip(name)), Random(f"{name} many {part}")
    for _ in range(5):
        kernel = drawn(random, 13)
        bound = float(kernels.times(kernel))
        kernels.search(shape_of(kernel))
        assert kernels.known[shape_of(kernel)].time >= bound, kernel


@pytest.mark.medium
def test_many_extents_at_once() -> None:
    """Arrays of extents have the times of each, searched ones among them."""
    kernels = SearchedKernels(load_chip("edge"))
    kernels.search(shape_of(Gemm(8, 16, 8)))
    rows, columns = np.array([8.0, 17.0])[:, None], np.array([16.0, 33.0, 64.0])
    times = kernels.times(Gemm(rows, columns, 8))
    assert times.shape == (2, 3)
    for place in np.ndindex(times.shape):
        assert times[place] == float(kernels.times(Gemm(rows[place[0], 0], columns[place[1]], 8)))
    assert times[0, 0] == kernels.known[shape_of(Gemm(8, 16, 8))].time
