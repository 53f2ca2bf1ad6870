"""Laws of every estimate: sums add up, more bandwidth is never slower, other names and loops that run once change nothing.

A random tree takes longer to grow than to judge: every law is asked of every tree on the way to it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.reference.generate import Editor, all_grown, numbers, put
from tests.reference.trees import chip, gemm, nest

from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip, Link
from halley.ir.mapping import (
    Collective,
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
from halley.ir.workload import Op, Tensor, Workload

SEEDS = st.integers(0, 2**32 - 1)


def sums_add_up(_: Random, workload: Workload, chip: Chip, tree: Node) -> None:
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
        elif isinstance(node, Parallel):
            assert cost.work == max(child.time for child in inner)
        elif isinstance(node, Overlap):
            assert max(child.time for child in inner) <= cost.work <= sum(child.time for child in inner) * (1 + 1e-12)
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


def more_bandwidth_is_never_slower(random: Random, workload: Workload, chip: Chip, tree: Node) -> None:
    quick = evaluate(workload, faster(chip, random), tree)
    slow = evaluate(workload, chip, tree)
    assert quick.time <= slow.time * (1 + 1e-12)
    assert quick.footprint == slow.footprint


def a_loop_over_the_whole_extent_is_the_identity(random: Random, workload: Workload, chip: Chip, tree: Node) -> None:
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
            along=" ".join(dims(tuple(item.along.split()))),
            indices=tuple(
                replace(index, dim=f"d_{index.dim}", terms=tuple((f"d_{dim}", count) for dim, count in index.terms))
                for index in item.indices
            ),
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
            return Compute(f"o_{node.op}", tuple(tuple(f"d_{dim}" for dim in side) for side in node.array))
        case Collective():
            tensors = tuple(f"t_{name}" for name in node.tensors)
            return replace(node, tensors=tensors, dim=f"d_{node.dim}" if node.dim else "")
        case Pipeline():
            return replace(node, dim=f"d_{node.dim}", children=tuple(map(renamed_tree, node.children)))
        case _:
            return replace(node, children=tuple(map(renamed_tree, node.children)))


def renaming_changes_nothing(_: Random, workload: Workload, chip: Chip, tree: Node) -> None:
    before = evaluate(workload, chip, tree)
    after = evaluate(renamed(workload), chip, renamed_tree(tree))
    assert (before.time, before.energy, before.footprint) == (after.time, after.energy, after.footprint)
    assert list(before.reads().values()) == list(after.reads().values())
    assert list(before.links().values()) == list(after.links().values())


def check_laws(seed: int) -> None:
    random, workload, chip, trees = all_grown(seed, 16)
    for tree in trees:
        sums_add_up(random, workload, chip, tree)
        more_bandwidth_is_never_slower(random, workload, chip, tree)
        a_loop_over_the_whole_extent_is_the_identity(random, workload, chip, tree)
        renaming_changes_nothing(random, workload, chip, tree)


@given(SEEDS)
@example(317)  # a loop that runs once around a convolution whose padding leaves a row unread
@example(45889)  # a visit that fetches a larger tile first, beside the fills of a Hold inside
@settings(max_examples=60, deadline=None, database=None)
def test_laws(seed: int) -> None:
    check_laws(seed)


@pytest.mark.slow
@given(SEEDS)
@settings(max_examples=1000, deadline=None, database=None)
def test_laws_of_many(seed: int) -> None:
    check_laws(seed)


def test_ports_add_their_latency_to_transfers() -> None:
    """With one buffer each, every transfer is exposed: four fills of A, one of B, one drain of C, each through one port."""
    work = gemm(8, 4, 4)
    plan = nest(("dram", "A B C"), ("wbuf", "B"), ("obuf", "C"), ("m", 2), ("ibuf", "A"), Compute("C"))
    times, plain = [], chip()
    for latency in (0.0, 1e-6):
        *outer, level = plain.levels
        network = replace(level.network, port=Link(1e9, latency))
        times.append(float(evaluate(work, replace(plain, levels=(*outer, replace(level, network=network))), plan).time))
    assert times[1] - times[0] == pytest.approx(6e-6)
