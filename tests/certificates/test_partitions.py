"""Partitions of kernels against their enumeration, and groups that are alike."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.certificates.exhaustive import cuts, draw_chip, draw_graph, draw_workload, kernels

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.mapping import Hold
from halley.ir.workload import Op, Workload
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.declared_space import TOO_MANY
from halley.mapping.groups import FusedGroups
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.mapping.space import partitions as module
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.partitions import (
    Breadth,
    before,
    consecutive_groups,
    every_partition,
    group_ops,
    in_order,
    members,
    partitions,
)
from halley.workloads import attention, gated_mlp, gemm_softmax, graph, mla, moe, transformer_layer


def drawn(seed: int) -> Workload:
    """Five to seven kernels that read each other's results at random."""
    draw = random.Random(seed)
    lines, made = [], ["X[m,n]"]
    for place in range(draw.randint(5, 7)):
        first, second = (draw.choice(made) for _ in range(2))
        made.append(f"T{place}[m,n]")
        lines.append(f"{made[-1]} = {first} + {second if second != first else f'Y{place}[m,n]'}")
    return graph(lines, {"m": 2, "n": 3})


@pytest.mark.parametrize("seed", range(12))
def test_partitions_are_those_of_the_enumeration(seed: int) -> None:
    """With every set of kernels as a group: each partition is one path, none is missing, none is there twice."""
    work = drawn(seed)
    needs = before(work)
    found = partitions(needs, range(1, 1 << len(needs)))
    paths: dict[int, list[tuple[int, ...]]] = {0: [()]}
    for source, group, target in found.steps:
        paths.setdefault(target, []).extend((*path, group) for path in paths[source])
    ways = [frozenset(path) for path in paths[found.states - 1]]
    parts = {part: 1 << place for place, part in enumerate(kernels(work))}
    expected = {frozenset(sum(parts[kernel] for kernel in group) for group in cut) for cut in cuts(work)}
    assert len(ways) == len(expected) == found.count
    assert set(ways) == expected
    fused = found.restricted(lambda group: group.bit_count() < 3, fused=lambda group: group.bit_count() > 1)
    sizes = [sorted(group.bit_count() for group in way) for way in expected]
    assert fused.count == sum(size[-1] == 2 for size in sizes)


@pytest.mark.parametrize("seed", range(12))
def test_groups_run_after_what_they_need(seed: int) -> None:
    work = drawn(seed)
    needs = before(work)
    for cut in random.Random(seed).sample(cuts(work), 5):
        groups = [sum(1 << kernels(work).index(kernel) for kernel in group) for group in cut]
        done = 0
        for group in in_order(needs, random.Random(seed).sample(groups, len(groups))):
            assert not any(needs[kernel] & ~(done | group) for kernel in members(group))
            done |= group


@pytest.mark.parametrize("seed", range(20))
def test_sets_that_are_no_group_have_no_frame(seed: int) -> None:
    draw = random.Random(seed)
    fixed = [attention(1, 2, 2, 3, 4, 2), gated_mlp(2, 3, 4), moe(4, 2, 3, 2, 1), mla(2, 2, 3, 2, 2, 2)]
    work = draw.choice([draw_workload(draw), draw_graph(draw), *fixed])
    needs, machine = before(work), hierarchy(draw_chip(draw))
    groups = set(module.convex_groups(work))
    for cut in draw.sample(cuts(work), min(30, len(cuts(work)))):
        for part in cut:
            group = sum(1 << kernels(work).index(kernel) for kernel in part)
            assert group in groups or not frames(work, machine, group_ops(work, group))
    assert all(1 << place in groups for place in range(len(needs)))


def test_a_graph_with_too_many_groups_gets_consecutive_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    work = gated_mlp(2, 3, 4)
    monkeypatch.setattr(module, "GROUP_LIMIT", 5)
    found, limited = every_partition(work)
    assert limited is Breadth.CONSECUTIVE
    assert set(found.groups) <= set(consecutive_groups(4))
    assert TOO_MANY[limited] in optimise(Problem(work, load_chip("edge"), baselines=False)).best.certificate.left_out


def test_kernels_are_fused_across_the_order_in_which_they_are_written() -> None:
    """What B makes is read by D alone; C stands between them."""
    lines = ["B[m,n] = relu(X[m,n])", "C[p,q] = A[p,r] * W[r,q]", "D[m,n] = exp(B[m,n])"]
    work = graph(lines, {"m": 256, "n": 256, "p": 8, "q": 8, "r": 8})
    groups = optimise(Problem(work, load_chip("edge"), baselines=False)).best.groups
    assert sorted(map(len, groups)) == [1, 2]


def with_names(work: Workload, change: dict[str, str]) -> Workload:
    """The workload with other names of dims."""

    def dims(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(change.get(name, name) for name in names)

    def op(item: Op) -> Op:
        return replace(item, dims=dims(item.dims), along=" ".join(dims(item.sequence)))

    return replace(
        work,
        dims={change.get(name, name): extent for name, extent in work.dims.items()},
        tensors={name: replace(tensor, dims=dims(tensor.dims)) for name, tensor in work.tensors.items()},
        ops=tuple(map(op, work.ops)),
    )


def test_renaming_changes_neither_the_best_nor_the_space() -> None:
    work = gemm_softmax(16, 24, 8)
    other = with_names(work, {"m": "z", "n": "a", "k": "y"})
    first, second = (
        optimise(Problem(each, load_chip("edge"), baselines=False, fixed_variant=True)).best for each in (work, other)
    )
    assert first.certificate.value == second.certificate.value
    assert first.certificate.size == second.certificate.size


def test_groups_that_are_alike_are_searched_once() -> None:
    """Queries, keys and values differ in names alone; what is found for the keys is the others' mapping under their own names."""
    work, chip = transformer_layer(16, 32, 2, 2, 16, 48), load_chip("edge")
    groups = FusedGroups(Problem(work, chip), ("time",), ("time",), 0.0, SearchCounter())
    keys, values, queries = (1 << kernels(work).index((name,)) for name in ("keys", "make_values", "queries"))
    found = groups.of(work, keys)
    assert groups.of(work, values) is found
    assert groups.of(work, queries) is found
    found.dive()
    for group, kept in ((keys, ("An", "Wk", "K")), (values, ("An", "Wv", "V")), (queries, ("A", "Wq", "Q"))):
        tree = groups.choice(work, group, found.choices[0]).tree()
        estimate = evaluate(work, chip, Hold("dram", tuple((name,) for name in kept), tree, 1))
        assert estimate.time == pytest.approx(found.points[0, 0], rel=1e-12)
