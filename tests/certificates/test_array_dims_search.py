"""Dims on the matrix array as a choice of the search: all of the declared space are there, and no better one is pruned."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from tests.certificates.test_search import compare, compare_first
from tests.reference.test_array_dims import draw as draw_tree
from tests.reference.test_counts import SEEDS, many

from halley import load_chip
from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip, Dataflow
from halley.ir.mapping import Compute, Node, Spatial, Temporal, children, walk
from halley.ir.text import parse, to_text
from halley.ir.workload import OpKind, Workload, roles
from halley.mapping.optimise import optimise
from halley.mapping.problem import Objective, Problem
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.rewrite.legality import faults
from halley.workloads import attention, conv_chain, gemm, graph


def draw_several(draw: random.Random) -> Workload:
    """A contraction with two dims of one role, or two, and sometimes a map of its results."""
    dims = dict.fromkeys("mpnfkr", 1)
    for dim in draw.choice(["kr", "mp", "nf", "kr", "krn", "kmp"]):
        dims[dim] = draw.randint(2, 3 if sum(extent > 1 for extent in dims.values()) < 1 else 2)
    return graph(["C[m,p,n,f] = A[m,p,k,r] * B[k,r,n,f]"], dims)


@pytest.mark.parametrize("block", [0, 1, pytest.param(2, marks=pytest.mark.medium)])
def test_search_equals_exhaustive_enumeration(block: int) -> None:
    """Each block draws problems until a small one was compared."""
    seed = 1000 * block
    while compare(seed, 2500, draw_several) == "large":
        seed += 1


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_search_equals_exhaustive_enumeration_on_many(block: int) -> None:
    """Six problems a block, of those that are drawn all that are small enough."""
    for seed in range(50_000 + 10 * block, 50_006 + 10 * block):
        compare_first(seed, 8000, draw_several)


# ---- what the choices are --------------------------------------------------------------------------


def around(tree: Node, op: str) -> list[Node]:
    """The nodes from the root to the Compute of an op."""
    for child in children(tree):
        if found := around(child, op):
            return [tree, *found]
    return [tree] if isinstance(tree, Compute) and tree.op == op else []


def expected(workload: Workload, chip: Chip, name: str, cut: set[str]) -> set[tuple[tuple[str, ...], ...]]:
    """The choices by the words of docs/model.md. ``cut``: the dims that something around the stage cuts."""
    role, engine = roles(workload, workload.op(name)), chip.matrix
    assert engine is not None
    both = {
        Dataflow.WEIGHT: (role.reduced, role.columns),
        Dataflow.INPUT: (role.reduced, role.rows),
        Dataflow.OUTPUT: (role.rows, role.columns),
    }[engine.dataflow]
    found = []
    for dims, width in zip(both, (engine.rows, engine.cols), strict=True):
        several = [dim for dim in dims if workload.dims[dim] > 1]
        most = max((workload.dims[dim] for dim in several), default=0)
        options: set[tuple[str, ...]] = {(dim,) for dim in several if workload.dims[dim] >= width}
        options |= {([dim for dim in several if workload.dims[dim] == most][-1],)} if several else set()
        whole = [dim for dim in several if dim not in cut]
        if any(workload.dims[dim] % width == 0 for dim in whole):
            pass
        elif len(whole) == len(several) > 1:
            longest = max(workload.dims[dim] for dim in whole)
            first = [dim for dim in whole if workload.dims[dim] == longest][-1]
            options.add((first, *(dim for dim in whole if dim != first)))
        elif whole:
            options |= {(dim, *whole) for dim in several if dim in cut}
        found.append(options if width > 1 and several else {dims[-1:]})
    return set(itertools.product(*found))


MACHINES = ("edge", "simba-like", "sn40l", "tpu-v4i-like")
SUMS = ["S[p,q,f] = U[p,q,c,r,s] * W[f,c,r,s]", "Y[p,q,f] = relu(S[p,q,f])"]
WORK = {
    "convolution": lambda: conv_chain(10, 9, 4, 6, layers=1),
    "sums": lambda: graph(SUMS, {"p": 6, "q": 5, "f": 4, "c": 8, "r": 3, "s": 3}),
    "attention": lambda: attention(1, 4, 2, 8, 16, 8, variant="online"),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", WORK)
def test_every_choice_of_dims_is_in_the_space(name: str, machine: str) -> None:
    """Of every shape of every stage: with the same loops, each choice once."""
    workload, chip = WORK[name](), load_chip(machine)
    seen = 0
    for frame in frames(workload, hierarchy(chip), workload.ops):
        if frame.cut or not all(stage.skeletons for stage in frame.stages):
            continue
        tiles = {slot.name: 1 for stage in frame.stages for shape in stage.skeletons for slot in (*frame.shared, *shape.slots)}
        for place, stage in enumerate(frame.stages):
            if workload.op(stage.ops[0]).kind is not OpKind.CONTRACT:
                continue
            by_shape: dict[str, list[tuple[tuple[str, ...], ...]]] = defaultdict(list)
            cut: dict[str, set[str]] = {}
            for shape in stage.skeletons:
                nodes = [own.skeletons[0].build(tiles) for own in frame.stages]
                nodes[place] = shape.build(tiles)
                path = around(frame.sequential(tiles, nodes), stage.ops[0])
                inside = path.index(nodes[place]) if nodes[place] in path else len(path)
                compute = path[-1]
                assert isinstance(compute, Compute)
                outside = {node.dim for node in path[:inside] if isinstance(node, Temporal | Spatial)}
                spread = {node.dim for node in path if isinstance(node, Spatial)}
                text = shape.name.replace(f", {' x '.join('|'.join(side) or '-' for side in compute.array)} on the array", "")
                by_shape[text].append(compute.array or usual(workload, chip, stage.ops[0]))
                cut[text] = {dim for dim in outside | spread if workload.dims[dim] > 1}
            for text, arrays in by_shape.items():
                assert len(set(arrays)) == len(arrays)
                assert set(arrays) == expected(workload, chip, stage.ops[0], cut[text]), text
                seen += 1
    assert seen


def usual(workload: Workload, chip: Chip, name: str) -> tuple[tuple[str, ...], ...]:
    """The last dim of each role."""
    role = roles(workload, workload.op(name))
    assert chip.matrix is not None
    by_flow = {Dataflow.WEIGHT: (role.reduced, role.columns), Dataflow.OUTPUT: (role.rows, role.columns)}
    return tuple(dims[-1:] for dims in by_flow[chip.matrix.dataflow])


@pytest.mark.parametrize("machine", MACHINES)
def test_one_dim_in_each_role_is_no_choice(machine: str) -> None:
    workload = gemm(64, 48, 32)
    for frame in frames(workload, hierarchy(load_chip(machine)), workload.ops):
        assert all(shape.laid is None for stage in frame.stages for shape in stage.skeletons)


# ---- what is dropped -------------------------------------------------------------------------------


def with_array(tree: Node, array: tuple[tuple[str, ...], ...]) -> Node:
    text = to_text(tree).splitlines()
    assert text[-1].strip().startswith("compute S")
    sides = " x ".join("|".join(side) for side in array)
    return parse("\n".join([*text[:-1], f"{text[-1].split(' array ')[0]} array {sides}"]))


def check_no_worse(one: Estimate, other: Estimate) -> None:
    """In time, energy, and every count."""
    assert one.time <= other.time * (1 + 1e-12)
    assert one.energy <= other.energy * (1 + 1e-12)
    for label in ("reads", "writes", "ports"):
        more = getattr(other, label)()
        assert all(count <= more.get(key, 0) for key, count in getattr(one, label)().items())


@given(SEEDS)
@many(150)
def test_fewer_dims_together_are_no_better(seed: int) -> None:
    """With the same loops, a dim that is walked instead of lying whole beside another costs no less of anything."""
    workload, chip, tree = draw_tree(seed)
    (array,) = (node.array for _, node in walk(tree) if isinstance(node, Compute))
    if faults(tree, workload, chip):
        return
    draw = random.Random(seed)
    fewer = tuple((side[0], *draw.sample(side[1:], draw.randint(0, len(side) - 1))) for side in array)
    assert not faults(with_array(tree, fewer), workload, chip)
    one, other = (evaluate(workload, chip, with_array(tree, own)) for own in (array, fewer))
    check_no_worse(one, other)


@given(SEEDS)
@many(150)
def test_a_whole_dim_that_fills_a_side_evenly_needs_no_other(seed: int) -> None:
    """It takes no more passes alone, all others walked."""
    workload, chip, tree = draw_tree(seed)
    (array,) = (node.array for _, node in walk(tree) if isinstance(node, Compute))
    draw, engine = random.Random(seed), chip.matrix
    assert engine is not None
    if faults(tree, workload, chip) or not all(side[1:] for side in array):
        return
    full = tuple((draw.choice(side[1:]),) for side in array)
    rows, columns = (workload.dims[dim] // draw.choice([1, workload.dims[dim]]) for (dim,) in full)
    chip = replace(chip, matrix=replace(engine, rows=rows, cols=columns))
    one, other = (evaluate(workload, chip, with_array(tree, own)) for own in (full, array))
    check_no_worse(one, other)


@given(SEEDS)
@many(60)
def test_a_side_of_one_costs_the_same_for_any_dim(seed: int) -> None:
    workload, chip, tree = draw_tree(seed)
    assert chip.matrix is not None
    chip = replace(chip, matrix=replace(chip.matrix, rows=1, cols=1))
    if not faults(tree, workload, chip):
        plain = parse("\n".join([*to_text(tree).splitlines()[:-1], to_text(tree).splitlines()[-1].split(" array ")[0]]))
        one, other = (evaluate(workload, chip, each) for each in (tree, plain))
        assert (one.time, one.energy) == (other.time, other.energy)
        assert (one.reads(), one.writes()) == (other.reads(), other.writes())


# ---- what it gains ---------------------------------------------------------------------------------


def test_a_first_layer_maps_its_taps_to_one_side_of_the_array() -> None:
    """Three channels on 32 rows: 21 sums together do in one pass what takes seven with channels alone."""
    workload = graph(["S[p,f] = U[p,c,r] * W[f,c,r]"], {"p": 64, "f": 32, "c": 3, "r": 7})
    result = optimise(Problem(workload, load_chip("edge"), Objective.TIME, baselines=False))
    assert "on the array" in " ".join(result.best.shape)
    laid = [node for _, node in walk(result.best.plan) if isinstance(node, Compute) and node.array]
    assert [set(node.array[0]) for node in laid] == [{"c", "r"}]
