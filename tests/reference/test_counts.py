"""Formulas equal execution: every count that the interpreter makes while it runs a mapping, the cost fold finds by formula.

Trees come from two sources: grown at random with all node kinds (tests/reference/generate.py), and drawn from the declared search
space. Then laws that every estimate obeys: sums add up, batches equal scalars, relaxed evaluations bound what they stand for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference.generate import Editor, at, plain_tree, put, random_chip, random_trees, random_workload
from tests.reference.oracles import inputs, oracle

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.execute.interpreter import Execution, run
from halley.ir.hardware import Chip, Link
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
    children,
    walk,
)
from halley.ir.workload import Op, OpKind, Tensor, Workload
from halley.rewrite.tidy import tidy
from halley.search.frames import frames
from halley.search.optimise import kernels, partitions
from halley.search.template import template
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
@many(220)
def test_grown_trees(seed: int) -> None:
    grow(seed, 16)


@pytest.mark.slow
@given(SEEDS, st.integers(5, 60))
@many(3000)
def test_many_grown_trees(seed: int, edits: int) -> None:
    grow(seed, edits)


def test_the_generator_reaches_every_node_and_collective() -> None:
    kinds: set[type] = set()
    collectives: set[CollectiveKind] = set()
    ops: set[OpKind] = set()
    for seed in range(200):
        _, workload, _, tree, _ = grow_unchecked(seed, 20)
        kinds |= {type(node) for _, node in walk(tree)}
        collectives |= {node.kind for _, node in walk(tree) if isinstance(node, Collective)}
        ops |= {op.kind for op in workload.ops}
    assert kinds == {Temporal, Spatial, Hold, Collective, Compute, Sequence, Overlap, Parallel, Pipeline}
    assert collectives == set(CollectiveKind)
    assert ops == set(OpKind)


def grow_unchecked(seed: int, edits: int) -> tuple[Random, Workload, Chip, Node, int]:
    random = Random(seed)
    workload, chip = random_workload(random), random_chip(random)
    arrays = inputs(workload, 0)

    def legal(tree: Node) -> bool:
        try:
            run(workload, chip, tree, arrays)
        except BadInput:
            return False
        return True

    trees = list(random_trees(random, workload, chip, legal, edits))
    return random, workload, chip, trees[-1], len(trees)


# ---- the declared search space ---------------------------------------------------------------------

SEARCHED = ("gemm", "gemm-softmax", "gemm-layernorm", "gemm-rmsnorm", "attention", "gated-mlp")


def search_chip(random: Random) -> Chip:
    """A chip that the search has a template for: no PEs below the clusters."""
    while True:
        chip = random_chip(random)
        if len(chip.levels) == 3:
            engine = replace(chip.matrix, reads={"input": ("ibuf",), "weight": ("wbuf",), "output": ("obuf",)})  # type: ignore[type-var]
            return replace(chip, matrix=engine)


def drawn_tiles(random: Random, slots: Any, arrays: bool) -> dict[str, Any]:
    """A size per slot; or an array of up to three sizes, each slot along an axis of its own."""
    if not arrays:
        return {slot.name: random.choice(slot.sizes) for slot in slots}
    tiles = {}
    for axis, slot in enumerate(slots):
        sizes = sorted(random.sample(list(slot.sizes), min(len(slot.sizes), 3)))
        tiles[slot.name] = np.array(sizes, dtype=np.float64).reshape([-1 if axis == i else 1 for i in range(len(slots))])
    return tiles


def searched(seed: int) -> tuple[Random, Workload, Chip, list[Any]] | None:
    """A random problem, and per group of a random partition of its kernels (frame, a skeleton per stage)."""
    random = Random(seed)
    workload, chip = random_workload(random, SEARCHED), search_chip(random)
    machine, found = template(chip), kernels(workload)
    drawn = []
    for start, stop in random.choice(partitions(len(found))):
        ops = [workload.op(name) for kernel in found[start:stop] for name in kernel]
        options = frames(workload, machine, ops)
        if not options:
            return None
        frame = random.choice(options)
        drawn.append((ops, frame, [random.choice(stage.skeletons) for stage in frame.stages]))
    return random, workload, chip, drawn


def whole(workload: Workload, chip: Chip, groups: list[Any], tiles: list[dict[str, Any]]) -> Node:
    """The tree around all groups, with what they hand over in the outermost memory."""
    owner = {op.name: index for index, (ops, _, _) in enumerate(groups) for op in ops}
    nodes = [
        frame.wrap(sizes, [skeleton.build(sizes) for skeleton in skeletons])
        for (_, frame, skeletons), sizes in zip(groups, tiles, strict=True)
    ]

    def handed(name: str) -> bool:
        writer = workload.producer(name)
        if writer is None or name in workload.outputs:
            return True
        return any(owner[reader.name] != owner[writer.name] for reader in workload.consumers(name))

    ends = tuple((name,) for name in workload.tensors if handed(name))
    return Hold(template(chip).outer, ends, nodes[0] if len(nodes) == 1 else Sequence(tuple(nodes)))


def slots_of(group: Any) -> list[Any]:
    _, frame, skeletons = group
    slots = (*frame.shared, *(slot for skeleton in skeletons for slot in skeleton.slots))
    return list({slot.name: slot for slot in slots}.values())


def check_searched(seed: int) -> bool:
    found = searched(seed)
    if found is None:
        return False
    random, workload, chip, groups = found
    tree = whole(workload, chip, groups, [drawn_tiles(random, slots_of(group), False) for group in groups])
    checker = Checker(workload, chip, seed % 1000)
    assert checker(tidy(tree, workload.dims)), "a mapping of the declared search space breaks a rule"
    return True


@given(SEEDS)
@many(500)
def test_mappings_of_the_search_space(seed: int) -> None:
    check_searched(seed)


@pytest.mark.slow
@given(SEEDS)
@many(10000)
def test_many_mappings_of_the_search_space(seed: int) -> None:
    check_searched(seed)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("keys", "tile_x", "tile_y"), [(6, 3, 2), (5, 2, 1), (4, 4, 2), (7, 3, 2), (5, 3, 3)])
def test_rescales_of_keys_split_over_two_axes(keys: int, tile_x: int, tile_y: int, interleaved: bool) -> None:
    sizes: dict[str, Any] = {"batch": 1, "heads": 2, "kv_heads": 1, "queries": 3, "keys": keys, "head_dim": 2, "value_dim": 3}
    workload = next(item for item in variants(build("attention", sizes)) if item.variant == "online")
    chip = next(chip for chip in map(random_chip, map(Random, range(99))) if [axis.size for _, axis in chip.axes] == [3, 2])
    *steps, last = (Compute(op.name) for op in workload.ops)
    scaled = next(op for op in workload.ops if op.scaled_by)
    state = workload.producer(scaled.scaled_by)
    assert state is not None

    def combine(tensors: tuple[str, ...], axis: str) -> Node:
        return Collective(CollectiveKind.ALL_REDUCE, tensors, "cluster", axis, "direct")

    both = [combine(tensors, axis) for axis in "xy" for tensors in (state.outputs, scaled.outputs)]
    joins = both if interleaved else [both[0], both[2], both[1], both[3]]
    inside = Hold("obuf", tuple((name,) for name in workload.tensors), Sequence((*steps, *joins, last)))
    split = Spatial("n", tile_x, "cluster", "x", Spatial("n", tile_y, "cluster", "y", inside))
    ends = tuple((name,) for name in (*workload.inputs, *workload.outputs))
    assert Checker(workload, chip, 0)(Hold("dram", ends, split))


# ---- batches and bounds ----------------------------------------------------------------------------


def numbers(estimate: Estimate) -> dict[Any, Any]:
    """Everything that an estimate says."""
    found: dict[Any, Any] = {"time": estimate.time, "energy": estimate.energy}
    for label in ("reads", "writes", "links", "ports", "work"):
        found |= {(label, key): value for key, value in getattr(estimate, label)().items()}
    for label in ("footprint", "energy_by", "busy"):
        found |= {(label, key): value for key, value in getattr(estimate, label).items()}
    for path, node in estimate.nodes.items():
        own = {"node": node.time, "inside": node.work, "up": node.ramp_up, "down": node.ramp_down, "entries": node.entries}
        found |= {(label, path): value for label, value in own.items()}
    return found


BOUNDED = ("time", "energy", "footprint", "energy_by")


def check_batch(workload: Workload, chip: Chip, random: Random, shape: tuple[int, ...], batch: Node, single: Any) -> None:
    """``batch`` is a tree whose tiles are arrays of that shape together, ``single(index)`` the tree of one entry."""
    together = numbers(evaluate(workload, chip, batch))
    relaxed = tuple(axis for axis in range(len(shape)) if random.random() < 0.6)
    bound = numbers(evaluate(workload, chip, batch, relaxed)) if relaxed else {}
    flat = tuple(1 if axis in relaxed else size for axis, size in enumerate(shape))
    entries = list(itertools.product(*map(range, shape)))
    for entry in random.sample(entries, min(len(entries), 40)):
        alone = numbers(evaluate(workload, chip, single(entry)))
        for key in {*alone, *together}:
            got = np.broadcast_to(together.get(key, 0), shape)[entry]
            assert got == alone.get(key, 0), f"{key} of {entry}: {got} in the batch, {alone.get(key, 0)} alone"
        place = tuple(0 if axis in relaxed else index for axis, index in enumerate(entry))
        for key, value in bound.items():
            if key in BOUNDED or key[0] in BOUNDED:
                least = np.broadcast_to(value, flat)[place]
                assert least <= alone.get(key, 0) * (1 + 1e-12), f"{key} of {entry}: bound {least}, value {alone.get(key, 0)}"


def with_tiles(tree: Node, tiles: Mapping[tuple[int, ...], Any]) -> Node:
    for path, tile in tiles.items():
        tree = put(tree, path, replace(at(tree, path), tile=tile))  # type: ignore[type-var]
    return tree


def check_varied(seed: int) -> None:
    """A grown tree with up to four of its tiles varied."""
    random, workload, chip, tree, _ = grow_unchecked(seed, 16)
    paths = [path for path, node in walk(tree) if isinstance(node, Temporal | Spatial | Pipeline)]
    paths = random.sample(paths, min(len(paths), 4))
    options = []
    for path in paths:
        node: Any = at(tree, path)
        extent = workload.dims[node.dim]
        more = {extent} if isinstance(node, Spatial) else {random.randint(1, extent), random.randint(1, extent)}
        options.append(sorted({node.tile} | more))
    axes = range(len(paths))
    arrays = {
        path: np.array(sizes, dtype=np.float64).reshape([-1 if axis == other else 1 for other in axes])
        for axis, (path, sizes) in enumerate(zip(paths, options, strict=True))
    }

    def single(entry: tuple[int, ...]) -> Node:
        return with_tiles(tree, {path: options[axis][entry[axis]] for axis, path in enumerate(paths)})

    check_batch(workload, chip, random, tuple(map(len, options)), with_tiles(tree, arrays), single)


@given(SEEDS)
@many(120)
def test_batches_and_bounds_of_grown_trees(seed: int) -> None:
    check_varied(seed)


@pytest.mark.slow
@given(SEEDS)
@many(3000)
def test_many_batches_and_bounds_of_grown_trees(seed: int) -> None:
    check_varied(seed)


def check_skeleton(seed: int) -> None:
    """One random group of the search space with arrays in all its slots, as the search itself evaluates it."""
    found = searched(seed)
    if found is None:
        return
    random, workload, chip, groups = found
    chosen = random.randrange(len(groups))
    fixed = [drawn_tiles(random, slots_of(group), False) for group in groups]
    slots = slots_of(groups[chosen])
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
@many(120)
def test_batches_and_bounds_of_the_search_space(seed: int) -> None:
    check_skeleton(seed)


@pytest.mark.slow
@given(SEEDS)
@many(5000)
def test_many_batches_and_bounds_of_the_search_space(seed: int) -> None:
    check_skeleton(seed)


# ---- laws on one estimate --------------------------------------------------------------------------


@given(SEEDS)
@many(150)
def test_sums_add_up(seed: int) -> None:
    _, workload, chip, tree, _ = grow_unchecked(seed, 16)
    estimate = evaluate(workload, chip, tree)
    assert estimate.energy == pytest.approx(sum(estimate.energy_by.values()), rel=1e-12)
    assert all(value >= 0 for value in estimate.energy_by.values())
    assert estimate.time == estimate.nodes[()].time
    for resource, busy in estimate.busy.items():
        assert 0 <= busy <= estimate.time * (1 + 1e-12), resource
    for path, node in walk(tree):
        cost = estimate.nodes[path]
        inner = [estimate.nodes[(*path, index)] for index in range(len(children(node)))]
        assert all(busy <= cost.time * (1 + 1e-12) for busy in cost.busy.values())
        if isinstance(node, Sequence):
            assert cost.work == pytest.approx(sum(child.time for child in inner), rel=1e-12)
        elif isinstance(node, Overlap | Parallel):
            assert cost.work == max(child.time for child in inner)
        elif isinstance(node, Pipeline):
            longest, total = max(child.time for child in inner), sum(child.time for child in inner)
            assert longest <= cost.work <= total * (1 + 1e-12)
        elif isinstance(node, Hold):
            assert cost.time >= inner[0].time * (1 - 1e-12)


def faster(chip: Chip, random: Random) -> Chip:
    """The chip with one bandwidth doubled: a memory's port, a level's port or a link."""
    index = random.randrange(len(chip.levels))
    level = chip.levels[index]

    def quick(link: Link) -> Link:
        return replace(link, bandwidth=2 * link.bandwidth)

    if level.network and random.random() < 0.5:
        axes = tuple(replace(axis, link=quick(axis.link)) for axis in level.network.axes)
        network = replace(level.network, axes=axes, port=quick(level.network.port) if level.network.port else None)
        level = replace(level, network=network)
    else:
        which = random.choice(("read_bandwidth", "write_bandwidth"))
        memories = tuple(replace(m, **{which: 2 * getattr(m, which)}) for m in level.memories)
        level = replace(level, memories=memories)
    return replace(chip, levels=(*chip.levels[:index], level, *chip.levels[index + 1 :]))


@given(SEEDS)
@many(120)
def test_more_bandwidth_is_never_slower(seed: int) -> None:
    random, workload, chip, tree, _ = grow_unchecked(seed, 14)
    quick = evaluate(workload, faster(chip, random), tree)
    slow = evaluate(workload, chip, tree)
    assert quick.time <= slow.time * (1 + 1e-12)
    assert quick.footprint == slow.footprint


@given(SEEDS)
@many(120)
def test_a_loop_over_the_whole_extent_is_the_identity(seed: int) -> None:
    random, workload, chip, tree, _ = grow_unchecked(seed, 14)
    editor = Editor(random, workload, chip)
    path, node = random.choice([(p, n) for p, n in walk(tree) if editor.ops(n)])
    # a loop between a distributed Hold and a split of the same dim changes what the Hold keeps, even one that runs once
    split = {inner.dim for _, inner in walk(node) if isinstance(inner, Spatial)}
    common = [dim for dim in workload.dims if dim not in split and all(dim in op.dims for op in editor.ops(node))]
    if not common:
        return
    dim = random.choice(common)
    around = put(tree, path, Temporal(dim, workload.dims[dim] + random.randint(0, 2), node))
    before, after = numbers(evaluate(workload, chip, tree)), numbers(evaluate(workload, chip, around))
    shared = [key for key in before if isinstance(key, str) or key[0] not in ("node", "inside", "up", "down", "entries")]
    assert {key: before[key] for key in shared} == {key: after[key] for key in shared}


def renamed(workload: Workload) -> Workload:
    """The workload with other names for dims, tensors and ops."""

    def tensor(item: Tensor) -> Tensor:
        return replace(item, name=f"t_{item.name}", dims=dims(item.dims))

    def dims(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"d_{name}" for name in names)

    def tensors(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"t_{name}" for name in names)

    def op(item: Op) -> Op:
        return replace(
            item,
            name=f"o_{item.name}",
            inputs=tensors(item.inputs),
            outputs=tensors(item.outputs),
            dims=dims(item.dims),
            running=tensors(item.running),
            scaled_by=f"t_{item.scaled_by}" if item.scaled_by else "",
            along=f"d_{item.along}" if item.along else "",
        )

    return replace(
        workload,
        dims={f"d_{name}": extent for name, extent in workload.dims.items()},
        tensors={f"t_{name}": tensor(item) for name, item in workload.tensors.items()},
        ops=tuple(map(op, workload.ops)),
        outputs=tensors(workload.outputs),
        kernels=(),
    )


def renamed_tree(node: Node) -> Node:
    match node:
        case Temporal() | Spatial():
            return replace(node, dim=f"d_{node.dim}", body=renamed_tree(node.body))
        case Hold():
            groups = tuple(tuple(f"t_{name}" for name in group) for group in node.tensors)
            return replace(node, tensors=groups, body=renamed_tree(node.body))
        case Compute():
            return Compute(f"o_{node.op}")
        case Collective():
            tensors = tuple(f"t_{name}" for name in node.tensors)
            return replace(node, tensors=tensors, dim=f"d_{node.dim}" if node.dim else "")
        case Pipeline():
            return replace(node, dim=f"d_{node.dim}", children=tuple(map(renamed_tree, node.children)))
        case _:
            return replace(node, children=tuple(map(renamed_tree, node.children)))


@given(SEEDS)
@many(80)
def test_renaming_changes_nothing(seed: int) -> None:
    _, workload, chip, tree, _ = grow_unchecked(seed, 14)
    before = evaluate(workload, chip, tree)
    after = evaluate(renamed(workload), chip, renamed_tree(tree))
    assert (before.time, before.energy, before.footprint) == (after.time, after.energy, after.footprint)
    assert list(before.reads().values()) == list(after.reads().values())
    assert list(before.links().values()) == list(after.links().values())


# ---- plain cases, so that a failure above has a small neighbour ------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_one_op_after_the_other(seed: int) -> None:
    random = Random(seed)
    chip = random_chip(random)
    for kind in ("gemm", "attention", "gated-scan", "scatter-add", "embedding", "merge-heads", "power-spectrum"):
        workload = random_workload(random, (kind,))
        assert Checker(workload, chip, seed)(plain_tree(workload, chip))
