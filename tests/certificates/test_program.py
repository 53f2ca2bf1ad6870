"""Programs over tile chains: on one chain per dim they give the cost, on sets of chains a lower bound."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.certificates.exhaustive import group_search

from halley.cost.evaluate import evaluate
from halley.cost.programs.instructions import tabulate
from halley.cost.programs.program import NormalForms, Program
from halley.formulas.numbers import ceil_div, floor_div, maximum, minimum, positive
from halley.formulas.terms import Term, TermFactory
from halley.io.chips.load import load_chip
from halley.ir.mapping import Hold
from halley.ir.workload import Workload
from halley.mapping.solve.group_search import GroupSearch
from halley.mapping.space.choice import GroupMapping
from halley.mapping.space.frame_sets import GroupSpace
from halley.mapping.space.frames.group import frames
from halley.mapping.space.hierarchy import hierarchy
from halley.mapping.space.partitions import kernels
from halley.mapping.space.stages import BUFFERS
from halley.mapping.space.tile_sizes import tile_sizes
from halley.workloads import attention, gated_mlp, gemm, gemm_layernorm, gemm_softmax


def group(workload: Workload, chip_name: str, draw: random.Random) -> GroupSearch:
    """A search of some kernels that follow each other."""
    chip = load_chip(chip_name)
    count = len(kernels(workload))
    start = draw.randrange(count)
    stop = draw.randint(start + 1, count)
    ops = [workload.op(name) for kernel in kernels(workload)[start:stop] for name in kernel]
    inside = {op.name for op in ops}
    made = {name for op in ops for name in op.outputs}
    kept = tuple(
        (name,)
        for name in dict.fromkeys(name for op in ops for name in (*op.inputs, *op.outputs))
        if name not in made or name in workload.outputs or any(op.name not in inside for op in workload.consumers(name))
    )
    space = GroupSpace(tuple(frames(workload, hierarchy(chip), ops)))  # those on shares at hand as well
    objectives = draw.choice([("time",), ("energy",), ("time", "energy")])
    return group_search(workload, chip, space, lambda node: Hold("dram", kept, node, 1), objectives)


@pytest.mark.parametrize("seed", range(24))
def test_bounds_hold_and_single_mappings_cost_what_they_cost(seed: int) -> None:
    draw = random.Random(seed)
    work = draw.choice(
        [
            gemm(300, 96, 130, b=draw.choice([1, 3])),
            gemm_softmax(120, 200, 64, variant=draw.choice(["plain", "online"])),
            gemm_layernorm(96, 256, 100),
            gated_mlp(60, 128, 160),
            attention(1, 6, 2, draw.choice([1, 80]), 300, 64, variant=draw.choice(["plain", "online", "deferred"])),
        ]
    )
    search = group(work, draw.choice(["edge", "cloud"]), draw)
    for _ in range(3):
        if not search.frames:
            return
        at = draw.randrange(len(search.frames))
        frame = search.frames[at]
        index = draw.randrange(len(frame.stages))
        skeleton = draw.choice(frame.stages[index].skeletons)
        shape = search.costs.shape(frame, index, skeleton)
        # from all chains down to single ones, a random child each time
        nodes = {dim: np.zeros(1, dtype=np.int64) for dim in shape.trees}
        path = [dict(nodes)]
        while open_dims := [dim for dim, tree in shape.trees.items() if tree.children[nodes[dim][0]]]:
            dim = draw.choice(open_dims)
            tree, node = shape.trees[dim], nodes[dim][0]
            nodes = {**nodes, dim: np.array([tree.first_child[node] + draw.randrange(int(tree.children[node]))])}
            path.append(nodes)
        sizes = {name: size for dim, tree in shape.trees.items() for name, size in tree.sizes(int(nodes[dim][0])).items()}
        sizes |= search.costs.fixed_sizes((*frame.shared, *skeleton.slots))
        known = search.costs
        everything = group_search(known.workload, known.chip, search.space, known.enclose, ("time", "energy"))
        estimate = everything.costs.estimate(frame, index, skeleton, sizes)
        fits = all(used <= search.costs.chip.memory(name).capacity for name, used in estimate.footprint.items())
        costs = np.array([getattr(estimate, name) for name in search.objectives])
        exact = costs if fits else np.full_like(costs, np.inf)
        for place, sets in enumerate(path):
            bound = shape.bounds(sets, 1)[0]
            if place == len(path) - 1:
                assert np.allclose(bound, exact, rtol=1e-12, atol=0)
            assert (bound <= exact * (1 + 1e-12)).all()
            if shape.given is not None:
                assert (shape.given()(sets, 1)[0] <= costs * (1 + 1e-12)).all()


@pytest.mark.parametrize("seed", range(150))
def test_normal_form_equals_the_terms(seed: int) -> None:
    """Random arithmetic on open numbers of three dims: the program equals it, and its bounds hold."""
    draw = random.Random(seed)
    terms = TermFactory()
    opened = [terms.open(f"{dim}{level}", dim) for dim in "abc" for level in (1, 2)]
    columns: dict[str, dict[str, np.ndarray]] = {dim: {} for dim in "abc"}
    for term in opened:
        (dim,) = term.kinds
        columns[dim][term.a] = np.array([draw.randint(1, 9) for _ in range(5)], dtype=np.float64)

    def grow(depth: int, whole: bool = False) -> object:
        """``whole``: a whole number, which rounding errors cannot push over an edge."""
        if depth == 0:
            return draw.choice([*opened, draw.randint(1, 4), draw.randint(1, 4) if whole else 2.5])
        kind = draw.randrange(8 if whole else 9)
        a, b = grow(depth - 1, whole or kind in (0, 1)), grow(depth - 1, whole)
        if kind == 0:
            return ceil_div(a, draw.choice([2, 3]))
        if kind == 1:
            return floor_div(a, 2) + positive(b)
        if kind == 2:
            return minimum(a, b)
        if kind == 3:
            return maximum(a, b)
        if kind == 4:
            return a + b - minimum(a, b)  # a difference that is not negative
        if kind == 8:
            return a / maximum(b, 1)
        return a * b if kind == 5 else a + b

    outputs = [grow(draw.randint(1, 5)) for _ in range(3)]
    program = Program(NormalForms(terms), outputs)
    tables = [tabulate([factor.term], columns[factor.kind])[0] for factor in program.factors]
    if any(table.min() < 0 for table in tables):
        program = Program(NormalForms(terms, differences=False), outputs)
        tables = [tabulate([factor.term], columns[factor.kind])[0] for factor in program.factors]
        assert all(table.min() >= 0 for table in tables)
    picks = {dim: np.array([draw.randrange(5) for _ in range(50)]) for dim in "abc"}
    values = program(tables, picks, 50)
    everything = {name: column[picks[dim]] for dim in "abc" for name, column in columns[dim].items()}
    for output, row in zip(outputs, values, strict=True):
        expected = tabulate([output], everything)[0] if isinstance(output, Term) else output
        assert np.allclose(row, expected, rtol=1e-12, atol=1e-12)
    loose = [np.array([(t.max() if f.upper else t.min())]) for f, t in zip(program.factors, tables, strict=True)]
    bound = program(loose, {dim: np.zeros(1, dtype=np.int64) for dim in "abc"}, 1)
    assert (bound <= values.min(axis=1, keepdims=True) * (1 + 1e-12) + 1e-12).all()


@pytest.mark.parametrize("extent", [1, 2, 3, 12, 13, 97, 100, 1000, 4096])
def test_tile_sizes_are_every_balanced_cut(extent: int) -> None:
    assert set(tile_sizes(extent)) == {-(-extent // parts) for parts in range(1, extent + 1)}
    assert set(tile_sizes(extent, (16,))) >= set(tile_sizes(extent))
    assert all(size <= extent for size in tile_sizes(extent, (16,)))


def test_a_formula_must_not_branch_on_an_open_number() -> None:
    with pytest.raises(TypeError, match="must not branch"):
        bool(TermFactory().open("m1", "m"))


def test_costs_of_terms_are_those_of_numbers() -> None:
    """Terms run through the same formulas: put the numbers in, and each output is what the numbers give, bit for bit. Where
    numbers of buffers are open as well, what a Hold of none does is added as 0, in another order: equal but for rounding."""
    draw = random.Random(7)
    search = group(gemm(300, 96, 130), "edge", draw)
    for frame in search.frames[:3]:
        for skeleton in frame.stages[0].skeletons:
            symbols = search.costs.trees.symbols(skeleton.slots)
            tiles: dict[str, int] = {}
            for slot in skeleton.slots:
                tiles[slot.name] = draw.choice(slot.sizes(int(slot.limit(tiles))))
            plain = evaluate(
                search.costs.workload, search.costs.chip, search.costs.enclose(GroupMapping(frame, (skeleton,), tiles).tree())
            )
            columns = {name: np.array([float(size)]) for name, size in tiles.items()}
            given = {slot.name: tiles[slot.name] for slot in skeleton.slots if slot.dim == BUFFERS}
            for traced, tolerance in ((symbols | given, 0.0), (symbols, 1e-12)):
                costs = search.costs.estimate(frame, 0, skeleton, traced)
                for term, value in ((getattr(costs, name), getattr(plain, name)) for name in search.objectives):
                    assert tabulate([term], columns)[0][0] == pytest.approx(value, rel=tolerance, abs=0)
