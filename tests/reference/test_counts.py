"""Formulas equal execution: every count that the interpreter makes while it runs a mapping, the cost fold finds by formula.

Trees come from two sources: grown at random with all node kinds (tests/reference/generate.py), and drawn from the declared search
space. Then: batches equal scalars.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.certificates.exhaustive import cuts
from tests.reference.generate import at, grown, numbers, plain_tree, put, random_chip, random_trees, random_workload
from tests.reference.oracles import inputs, oracle

from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.execute.interpreter import Execution, run
from halley.ir.hardware import Chip
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    walk,
)
from halley.ir.workload import OpKind, Workload
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.stages import BUFFERS
from halley.rewrite.canonical import canonical
from halley.workloads import build, variants

SEEDS = st.integers(0, 2**32 - 1)


def many(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)


# ---- formulas equal execution ----------------------------------------------------------------------


def assert_equal(label: str, formula: Mapping[Any, Any], counted: Mapping[Any, Any]) -> None:
    """Exact for bytes; elementary functions are counted in floats, in another order of addition."""
    wrong = {}
    for key in {*formula, *counted}:
        a, b = formula.get(key, 0), counted.get(key, 0)
        if abs(a - b) > (1e-9 * abs(b) if label == "work" else 0):
            wrong[key] = (a, b)
    assert not wrong, f"{label} (formula, interpreter): {wrong}"


def assert_agrees(workload: Workload, chip: Chip, tree: Node, done: Execution) -> None:
    estimate, counters = evaluate(workload, chip, tree), done.counters
    assert_equal("reads", estimate.reads(), counters.reads)
    assert_equal("writes", estimate.writes(), counters.writes)
    assert_equal("links", estimate.links(), counters.links)
    assert_equal("ports", estimate.ports(), counters.ports)
    assert_equal("work", estimate.work(), counters.work)
    assert_equal("footprint", estimate.footprint, counters.footprint)


class Checker:
    """Accepts the trees that the interpreter accepts, and checks each of them."""

    def __init__(self, workload: Workload, chip: Chip, seed: int) -> None:
        self.workload, self.chip = workload, chip
        self.arrays = inputs(workload, seed)
        self.expected = oracle(workload, self.arrays)

    def __call__(self, tree: Node) -> bool:
        try:
            done = run(self.workload, self.chip, tree, self.arrays)
        except BadInput:
            return False
        for name, value in self.expected.items():
            np.testing.assert_allclose(done.outputs[name], value, rtol=1e-6, atol=1e-9)
        assert_agrees(self.workload, self.chip, tree, done)
        return True


def grow(seed: int, edits: int) -> tuple[Random, Workload, Chip, Node, int]:
    """A random problem, the last of its legal trees (all checked), and how many there were."""
    random = Random(seed)
    workload, chip = random_workload(random), random_chip(random)
    trees = list(random_trees(random, workload, chip, Checker(workload, chip, seed % 1000), edits))
    return random, workload, chip, trees[-1], len(trees)


@given(SEEDS)
@many(90)
def test_grown_trees(seed: int) -> None:
    grow(seed, 16)


@pytest.mark.slow
@given(SEEDS, st.integers(5, 60))
@many(3000)
def test_many_grown_trees(seed: int, edits: int) -> None:
    grow(seed, edits)


KINDS_OF_ALL_OPS = (
    "gemm-softmax", "gated-mlp", "gated-scan", "power-spectrum", "embedding", "scatter-add", "merge-heads", "mamba"
)  # fmt: skip
"""Workloads in which, together, every kind of op occurs, and ops that need not wait for each other."""


REACHING = (22, 91, 122, 125, 140, 152, 153, 159, 169, 175, 281)
"""Seeds whose trees reach everything together; should the generator change, the slow variant draws until it does."""


@pytest.mark.parametrize("seeds", [REACHING, pytest.param(range(400), marks=pytest.mark.slow)], ids=["few", "many"])
def test_the_generator_reaches_every_node_and_collective(seeds: Iterable[int]) -> None:
    wanted = (
        {Temporal, Spatial, Hold, Collective, Compute, Sequence, Overlap, Parallel, Pipeline}, set(CollectiveKind), set(OpKind)
    )  # fmt: skip
    reached: tuple[set[type], set[CollectiveKind], set[OpKind]] = (set(), set(), set())
    for seed in seeds:
        _, workload, _, tree = grown(seed, 20, (KINDS_OF_ALL_OPS[seed % len(KINDS_OF_ALL_OPS)],))
        reached[0].update(type(node) for _, node in walk(tree))
        reached[1].update(node.kind for _, node in walk(tree) if isinstance(node, Collective))
        reached[2].update(op.kind for op in workload.ops)
        if reached == wanted:
            break
    assert reached == wanted


# ---- the declared search space ---------------------------------------------------------------------

SEARCHED = ("gemm", "gemm-softmax", "gemm-layernorm", "gemm-rmsnorm", "attention", "gated-mlp")


def search_chip(random: Random) -> Chip:
    """A chip of three levels, with a memory for each operand at the last."""
    while True:
        chip = random_chip(random)
        if len(chip.levels) == 3:
            engine = replace(chip.matrix, reads={"input": ("ibuf",), "weight": ("wbuf",), "output": ("obuf",)})  # type: ignore[type-var]
            return replace(chip, matrix=engine)


def drawn_tiles(random: Random, slots: Any, arrays: bool) -> dict[str, Any]:
    """A size per slot; or an array of up to three sizes, each slot along an axis of its own."""
    tiles: dict[str, Any] = {}
    if not arrays:
        for slot in slots:
            tiles[slot.name] = random.choice(slot.sizes(int(slot.limit(tiles))))
        return tiles
    widest: dict[str, Any] = defaultdict(lambda: 1 << 40)
    for axis, slot in enumerate(slots):
        choices = slot.sizes(int(slot.limit(widest)))
        sizes = sorted(random.sample(choices, min(len(choices), 3)))
        tiles[slot.name] = np.array(sizes, dtype=np.float64).reshape([-1 if axis == i else 1 for i in range(len(slots))])
    return tiles


def searched(seed: int, on: Callable[[Random], Chip]) -> tuple[Random, Workload, Chip, list[Any]] | None:
    """A random problem, and per group of a random partition of its kernels (frame, a skeleton per stage)."""
    random = Random(seed)
    workload, chip = random_workload(random, SEARCHED), on(random)
    machine = hierarchy(chip)
    drawn = []
    for group in random.choice(cuts(workload)):
        names = {name for kernel in group for name in kernel}
        ops = [op for op in workload.ops if op.name in names]
        options = [frame for frame in frames(workload, machine, ops) if all(stage.skeletons for stage in frame.stages)]
        if not options:
            return None
        frame = random.choice(options)
        drawn.append((ops, frame, [random.choice(stage.skeletons) for stage in frame.stages]))
    return random, workload, chip, drawn


def whole(workload: Workload, chip: Chip, groups: list[Any], tiles: list[dict[str, Any]]) -> Node:
    """The tree around all groups, with what they hand over in the outermost memory."""
    owner = {op.name: index for index, (ops, _, _) in enumerate(groups) for op in ops}
    nodes = [
        frame.tree(sizes, [skeleton.build(sizes) for skeleton in skeletons])
        for (_, frame, skeletons), sizes in zip(groups, tiles, strict=True)
    ]

    def handed(name: str) -> bool:
        writer = workload.producer(name)
        if writer is None or name in workload.outputs:
            return True
        return any(owner[reader.name] != owner[writer.name] for reader in workload.consumers(name))

    ends = tuple((name,) for name in workload.tensors if handed(name))
    return Hold(hierarchy(chip).outer, ends, nodes[0] if len(nodes) == 1 else Sequence(tuple(nodes)))


def slots_of(group: Any) -> list[Any]:
    _, frame, skeletons = group
    slots = (*frame.shared, *(slot for skeleton in skeletons for slot in skeleton.slots))
    return list({slot.name: slot for slot in slots}.values())


def check_searched(seed: int, on: Callable[[Random], Chip] = search_chip) -> bool:
    """A random mapping of the declared space is legal, and executed as its formulas say; False where nothing was drawn."""
    found = searched(seed, on)
    if found is None:
        return False
    random, workload, chip, groups = found
    tree = whole(workload, chip, groups, [drawn_tiles(random, slots_of(group), False) for group in groups])
    checker = Checker(workload, chip, seed % 1000)
    assert checker(canonical(tree, workload.dims)), "a mapping of the declared search space breaks a rule"
    return True


@pytest.mark.parametrize("seed", [18848, 19396])
def test_overlapped_stages_may_broadcast_one_operand(seed: int) -> None:
    assert check_searched(seed)  # a broadcast into a stage's own buffer changes nothing for the other stages


@given(SEEDS)
@many(200)
def test_mappings_of_the_search_space(seed: int) -> None:
    check_searched(seed)


@pytest.mark.slow
@given(SEEDS)
@many(10000)
def test_many_mappings_of_the_search_space(seed: int) -> None:
    check_searched(seed)


@pytest.mark.parametrize(("keys", "tile", "inner"), [(3, 1, 1), (4, 2, 1), (5, 3, 2)])
def test_members_without_keys_rescale_nothing(keys: int, tile: int, inner: int) -> None:
    """Where the Hold of the sums is around the split, and some members have no keys."""
    sizes: dict[str, Any] = {"batch": 1, "heads": 1, "kv_heads": 1, "queries": 2, "keys": keys, "head_dim": 2, "value_dim": 4}
    workload = next(item for item in variants(build("attention", sizes)) if item.variant == "online")
    chip = next(chip for chip in map(random_chip, map(Random, range(999))) if chip.axes[0][1].size == 4)
    *steps, last = (Compute(op.name) for op in workload.ops)
    tiles = Hold("obuf", (("S",), ("S2",), ("E",)), Sequence(tuple(steps)))
    split = Spatial("n", tile, "cluster", "x", Temporal("n", inner, Hold("obuf", (("Q",), ("K",), ("V",)), tiles)))
    joins = [Collective(CollectiveKind.ALL_REDUCE, (name,), "cluster", "x", "direct") for name in ("mx", "z", "U")]
    sums = Hold("obuf", (("mx",), ("z",), ("U",), ("O",)), Sequence((split, *joins, last)))
    ends = tuple((name,) for name in (*workload.inputs, *workload.outputs))
    assert Checker(workload, chip, 0)(Hold("dram", ends, sums))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("keys", "tile_x", "tile_y"), [(6, 3, 2), (5, 2, 1), (4, 4, 2), (7, 3, 2), (5, 3, 3)])
def test_rescales_of_keys_split_over_two_axes(keys: int, tile_x: int, tile_y: int, interleaved: bool) -> None:
    sizes: dict[str, Any] = {"batch": 1, "heads": 2, "kv_heads": 1, "queries": 3, "keys": keys, "head_dim": 2, "value_dim": 3}
    workload = next(item for item in variants(build("attention", sizes)) if item.variant == "online")
    chip = next(chip for chip in map(random_chip, map(Random, range(99))) if [axis.size for _, axis in chip.axes] == [3, 2])
    *steps, last = (Compute(op.name) for op in workload.ops)
    scaled = [op for op in workload.ops if op.scaled_by]
    states = [(scaled[0].scaled_by,), *(op.outputs for op in scaled)]

    def combine(tensors: tuple[str, ...], axis: str) -> Node:
        return Collective(CollectiveKind.ALL_REDUCE, tensors, "cluster", axis, "direct")

    if interleaved:
        joins = [combine(tensors, axis) for axis in "xy" for tensors in states]
    else:
        joins = [combine(tensors, axis) for tensors in states for axis in "xy"]
    inside = Hold("obuf", tuple((name,) for name in workload.tensors), Sequence((*steps, *joins, last)))
    split = Spatial("n", tile_x, "cluster", "x", Spatial("n", tile_y, "cluster", "y", inside))
    ends = tuple((name,) for name in (*workload.inputs, *workload.outputs))
    assert Checker(workload, chip, 0)(Hold("dram", ends, split))


# ---- batches ----------------------------------------------------------------------------


def check_batch(workload: Workload, chip: Chip, random: Random, shape: tuple[int, ...], batch: Node, single: Any) -> None:
    """``batch`` is a tree whose tiles are arrays of that shape together, ``single(index)`` the tree of one entry."""
    together = numbers(evaluate(workload, chip, batch))
    entries = list(itertools.product(*map(range, shape)))
    for entry in random.sample(entries, min(len(entries), 40)):
        alone = numbers(evaluate(workload, chip, single(entry)))
        for key in {*alone, *together}:
            got = np.broadcast_to(together.get(key, 0), shape)[entry]
            assert got == alone.get(key, 0), f"{key} of {entry}: {got} in the batch, {alone.get(key, 0)} alone"


def with_tiles(tree: Node, tiles: Mapping[tuple[int, ...], Any]) -> Node:
    for path, tile in tiles.items():
        tree = put(tree, path, replace(at(tree, path), tile=tile))  # type: ignore[type-var]
    return tree


def check_varied(seed: int) -> None:
    """A grown tree with up to four of its tiles varied. Splits of one dim over one axis vary together: in a batch they are the
    same split only if their tiles are the same array (see `evaluate`)."""
    random, workload, chip, tree = grown(seed, 16)
    together = varied_together(tree)
    chosen = random.sample(together, min(len(together), 4))
    options = []
    for paths in chosen:
        node: Any = at(tree, paths[0])
        extent = workload.dims[node.dim]
        more = {extent} if isinstance(node, Spatial) else {random.randint(1, extent), random.randint(1, extent)}
        options.append(sorted({node.tile} | more))
    axes = range(len(chosen))
    arrays = {}
    for axis, (paths, sizes) in enumerate(zip(chosen, options, strict=True)):
        array = np.array(sizes, dtype=np.float64).reshape([-1 if axis == other else 1 for other in axes])
        arrays |= dict.fromkeys(paths, array)

    def single(entry: tuple[int, ...]) -> Node:
        return with_tiles(tree, {path: options[axis][entry[axis]] for axis, paths in enumerate(chosen) for path in paths})

    check_batch(workload, chip, random, tuple(map(len, options)), with_tiles(tree, arrays), single)


def varied_together(tree: Node) -> list[list[tuple[int, ...]]]:
    """Paths of loops whose tiles may vary, each list as one: a loop in time alone, the splits of a dim over an axis if all
    have the same tile."""
    splits: dict[tuple[str, str, str], list[tuple[int, ...]]] = {}
    tiles: dict[tuple[str, str, str], set[int]] = {}
    found = []
    for path, node in walk(tree):
        if isinstance(node, Spatial):
            splits.setdefault((node.dim, node.level, node.axis), []).append(path)
            tiles.setdefault((node.dim, node.level, node.axis), set()).add(node.tile)
        elif isinstance(node, Temporal | Pipeline):
            found.append([path])
    return [*found, *(paths for key, paths in splits.items() if len(tiles[key]) == 1)]


@given(SEEDS)
@many(60)
def test_batches_and_bounds_of_grown_trees(seed: int) -> None:
    check_varied(seed)


@pytest.mark.slow
@given(SEEDS)
@many(3000)
def test_many_batches_and_bounds_of_grown_trees(seed: int) -> None:
    check_varied(seed)


def check_skeleton(seed: int) -> None:
    """One random group of the search space with arrays for its tile sizes, as the search itself evaluates it (for numbers of
    buffers see tests/certificates/test_buffers.py: with some Holds left out, sums have another order)."""
    found = searched(seed, search_chip)
    if found is None:
        return
    random, workload, chip, groups = found
    chosen = random.randrange(len(groups))
    fixed = [drawn_tiles(random, slots_of(group), False) for group in groups]
    slots = [slot for slot in slots_of(groups[chosen]) if slot.dim != BUFFERS]
    varied = set(random.sample(range(len(slots)), min(len(slots), 5)))
    arrays = drawn_tiles(random, [slots[i] for i in sorted(varied)], True)
    shape = tuple(array.size for array in arrays.values())

    def tree(sizes: dict[str, Any]) -> Node:
        tiles = [{**own, **sizes} if index == chosen else own for index, own in enumerate(fixed)]
        return whole(workload, chip, groups, tiles)

    def single(entry: tuple[int, ...]) -> Node:
        return tree({name: int(array.ravel()[index]) for (name, array), index in zip(arrays.items(), entry, strict=True)})

    check_batch(workload, chip, random, shape, tree(arrays), single)


@given(SEEDS)
@many(50)
def test_batches_and_bounds_of_the_search_space(seed: int) -> None:
    check_skeleton(seed)


@pytest.mark.slow
@given(SEEDS)
@many(5000)
def test_many_batches_and_bounds_of_the_search_space(seed: int) -> None:
    check_skeleton(seed)


# ---- plain cases, so that a failure above has a small neighbour ------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_one_op_after_the_other(seed: int) -> None:
    random = Random(seed)
    chip = random_chip(random)
    for kind in ("gemm", "attention", "gated-scan", "scatter-add", "embedding", "merge-heads", "power-spectrum"):
        workload = random_workload(random, (kind,))
        assert Checker(workload, chip, seed)(plain_tree(workload, chip))
