"""Bound <= searched <= any drawn mapping, on drawn kernels and all chips that ship; no formula is below a bound."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.laws.test_attention_bounds import one_member
from tests.reference.generate import random_trees

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Hold, Node, Spatial, Temporal, walk
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.kernels.bounds import kernel_bound, product_bound, rate_time
from halley.kernels.machine import PEAK, machine
from halley.kernels.searched import Product, SearchedKernels
from halley.kernels.times import Array, Attention, Gemm, Kernel, Stream, demand, layer_norm
from halley.library import CHIPS
from halley.rewrite.legality import faults

NAMES = CHIPS.names()
ALIKE = {
    "a100-40gb", "b300", "gb200", "gb300", "gh200", "h20", "h200", "h800", "mi250", "mi325x", "mi355x", "rtx-pro-6000", "tpu-v5p",
    "tpu-v6e", "tpu-v7", "gaudi-3",
}  # fmt: skip
"""Chips whose files have the form of another chip's, with other numbers: the long tests leave them out."""
FORMS = tuple(name for name in NAMES if name not in ALIKE)
QUICK = ("cloud", "edge", "simba-like", "sn10", "tile-mesh", "tpu-v4", "tpu-v4i-like", "tpu-v5e")
"""Chips whose mappings are found in a fraction of a second, with one member of each level."""


def dtype(chip: Chip) -> str:
    assert chip.matrix is not None
    return next(name for name in ("bf16", "fp16", "int8") if name in chip.matrix.rate)


def drawn_gemm(random: Random, chip: Chip, largest: float) -> Gemm:
    word = dtype(chip)
    rows, columns, depth = (int(2 ** random.uniform(0, largest)) for _ in range(3))
    return Gemm(rows, columns, depth, random.choice([1, 1, 1, 3]), word, word)


def shape(kernel: Gemm) -> Product:
    return Product(kernel.rows, kernel.columns, kernel.depth, kernel.batch, kernel.dtype, kernel.result)


def drawn_tree(random: Random, work: Workload, chip: Chip) -> Node:
    """A mapping of a product: tiles and splits drawn at random, each tensor in one memory that the engine reaches."""
    assert chip.matrix is not None
    reads, dims = chip.matrix.reads, work.dims
    places = {
        role: random.choice(reads.get(role) or (chip.levels[-1].memories[-1].name,)) for role in ("input", "weight", "output")
    }
    tree: Node = Hold(places["input"], (("A",),), Hold(places["weight"], (("B",),), Compute("gemm")))
    tree = Temporal("k", min(2 ** random.randint(0, 7), dims["k"]), tree)
    tree = Hold(places["output"], (("C",),), tree)
    for dim in (name for name in ("n", "m", "b") if name in dims):
        tree = Temporal(dim, min(2 ** random.randint(0, 7), dims[dim]), tree)
    for level, axis in reversed(chip.axes):
        if random.random() < 0.7:
            dim = random.choice(["m", "n"])
            tree = Spatial(dim, -(-dims[dim] // axis.size), level, axis.name, tree)
    return Hold(chip.levels[0].memories[0].name, (("A",), ("B",), ("C",)), tree)


def drawn_times(random: Random, work: Workload, chip: Chip, start: Node, edits: int) -> Iterator[float]:
    """Times of legal mappings, each a random edit of the one before.

    An engine without ``reads`` may take its operands from any memory; the space that is searched holds them beside the engine, so
    only such mappings count.
    """
    assert chip.matrix is not None
    inner = {memory.name for memory in chip.levels[-1].memories}

    def counts(tree: Node) -> bool:
        held = {name for _, node in walk(tree) if isinstance(node, Hold) and node.memory in inner for name in node.names}
        return bool(chip.matrix.reads) or held >= work.tensors.keys()

    for tree in random_trees(random, work, chip, lambda tree: not faults(tree, work, chip), edits, start):
        if counts(tree):
            yield float(evaluate(work, chip, tree).time)


def judge_bounds(name: str, seed: str, kernels: int) -> int:
    """Drawn mappings of drawn products take at least the bound; how many were judged."""
    random, chip, judged = Random(seed), load_chip(name), 0
    for _ in range(kernels):
        kernel = drawn_gemm(random, chip, 13)
        work, bound = shape(kernel).workload, float(product_bound(kernel, chip, machine(chip)))
        start = drawn_tree(random, work, chip)
        if faults(start, work, chip):
            continue
        for time in drawn_times(random, work, chip, start, 6):
            assert time >= bound, kernel
            judged += 1
    return judged


@pytest.mark.parametrize("name", NAMES)
def test_no_drawn_mapping_is_below_the_bound(name: str) -> None:
    assert judge_bounds(name, name, 3) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_no_drawn_mapping_of_5000_kernels_is_below_the_bound(name: str) -> None:
    """Some 200 products on each of more than 20 chips."""
    assert judge_bounds(name, f"{name} many", -(-5000 // len(FORMS))) > 500


def judge_searched(name: str, seed: str, kernels: int) -> int:
    """The best mappings of drawn products take at least their bound, and at most as long as drawn mappings: random ones, and
    edits of the best one. Single products: the space that is searched computes those of a batch one by one."""
    random, chip, judged = Random(seed), one_member(name), 0
    for _ in range(kernels):
        kernel = replace(drawn_gemm(random, chip, 7), batch=1)
        source, product, work = SearchedKernels(chip), shape(kernel), shape(kernel).workload
        bound = float(source.times(kernel))
        source.search(product)
        best = source.known[product]
        assert bound <= best.time
        starts = [parse(best.mapping), *(drawn_tree(random, work, chip) for _ in range(3))]
        for start in (tree for tree in starts if not faults(tree, work, chip)):
            for time in drawn_times(random, work, chip, start, 12):
                assert time >= best.time * (1 - 1e-9), kernel
                judged += 1
    return judged


@pytest.mark.parametrize("name", QUICK)
def test_no_drawn_mapping_is_better_than_the_searched_one(name: str) -> None:
    assert judge_searched(name, name, 1) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_no_drawn_mapping_of_many_is_better_than_the_searched_one(name: str) -> None:
    assert judge_searched(name, f"{name} many", 10) > 100


# --- formulas -----------------------------------------------------------------------------------------------------------


def many_kernels(random: np.random.Generator, count: int, word: str) -> Iterator[Kernel]:
    """Kernels of every kind, each at ``count`` extents."""

    def extents(low: float, high: float) -> Array:
        return np.floor(2 ** random.uniform(low, high, count))

    for spread in (0.0, 0.3):
        yield Gemm(extents(0, 14), extents(0, 14), extents(0, 14), extents(0, 6), word, word, spread)
    for causal in (False, True):
        for behind in (False, True):
            queries, shared = extents(0, 12), extents(0, 5)
            keys = queries + causal * extents(0, 12) if causal else extents(0, 12)
            heads = shared * extents(0, 4), shared
            yield Attention(1, queries, keys, *heads, extents(3, 8), causal=causal, backward=behind, dtype=word, cached=word)
    yield Stream(extents(0, 25), extents(0, 27), extents(0, 27), {"add": 1.0, "exp": 1.0})
    yield layer_norm(extents(0, 14), extents(0, 14), word)


@pytest.mark.parametrize("name", NAMES)
def test_no_formula_at_the_rates_of_the_data_sheet_is_below_the_bound(name: str) -> None:
    """What plans with searched kernels take for any kernel, against sums of its work and bytes that share no code with it."""
    chip, random = load_chip(name), np.random.default_rng(len(name))
    source, outer = SearchedKernels(chip), chip.levels[0].memories[0]
    members = math.prod(axis.size for _, axis in chip.axes)
    rate = members * chip.matrix.rows * chip.matrix.cols * chip.matrix.rate[dtype(chip)] * chip.matrix.clock
    for kernel in many_kernels(random, 300, dtype(chip)):
        times = source.times(kernel)
        assert (times >= kernel_bound(kernel, chip, source.rates)).all(), kernel
        if isinstance(kernel, Gemm) and kernel.spread:
            continue  # its groups may be empty
        macs, moved = demand(kernel)
        most = outer.read_bandwidth if outer.shared_bus else outer.read_bandwidth + outer.write_bandwidth
        assert (times >= np.maximum(macs / rate, moved / most) * (1 - 1e-9)).all(), kernel


def test_the_backward_pass_of_attention_takes_the_functions_of_its_graph() -> None:
    """Where lanes limit: 12 functions at each visible score, counted by hand in the graph of the backward pass. Scale and mask,
    exponential, quotient; product and sum of the row, gradient of the scores, its scale and mask."""
    chip = load_chip("cloud")
    chip = replace(chip, vector=replace(chip.vector, lanes=1, rate=dict.fromkeys(chip.vector.rate, 1.0)))
    kernel = Attention(1, 16, 16, 4, 4, 8, causal=True, backward=True)
    scale, exponential, quotient, row, gradient, back = 2, 2, 1, 2, 3, 2
    functions = 4 * (16 * 17 / 2) * (scale + exponential + quotient + row + gradient + back)
    members = math.prod(axis.size for _, axis in chip.axes)
    expected = functions / (members * chip.vector.clock)
    assert float(SearchedKernels(chip).times(kernel)) == pytest.approx(expected)


def test_limits_hold_for_memories_with_two_ports() -> None:
    """Reads and writes at once: the bytes of both in the time of one."""
    chip = load_chip("edge")
    first, *rest = chip.levels
    memory = replace(first.memories[0], shared_bus=False)
    both = replace(chip, levels=(replace(first, memories=(memory,)), *rest))
    assert SearchedKernels(chip).limits.memory == memory.read_bandwidth
    source, kernel = SearchedKernels(both), Gemm(4096, 4096, 1)
    least = float(rate_time(kernel, 1, source.limits, PEAK))
    assert least <= float(product_bound(kernel, both, source.rates)) < float(rate_time(kernel, 1, source.rates, PEAK))


@pytest.mark.medium
def test_slower_links_inside_the_chip_are_heard() -> None:
    """With ports and links at a tenth of their bandwidth, the best mapping of a product is another one and takes longer."""
    times, mappings = list[float](), list[str]()
    for share in (1.0, 0.1):
        chip, levels = load_chip("edge"), []
        for level in chip.levels:
            network = level.network
            if network is not None:
                slow = [replace(axis, link=replace(axis.link, bandwidth=axis.link.bandwidth * share)) for axis in network.axes]
                port = replace(network.port, bandwidth=network.port.bandwidth * share)
                network = replace(network, axes=tuple(slow), port=port)
            levels.append(replace(level, network=network))
        source, product = SearchedKernels(replace(chip, levels=tuple(levels))), Product(64, 64, 64, 1, "bf16", "bf16")
        source.search(product)
        times.append(source.known[product].time)
        mappings.append(source.known[product].mapping)
    assert times[1] > 2 * times[0]
    assert mappings[0] != mappings[1]
