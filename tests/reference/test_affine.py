"""Affine indices: results equal NumPy's, counts and verdicts of the formulas and the rule book equal the interpreter's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random

import numpy as np
import pytest
from tests.reference import graphs
from tests.reference.affine_draws import drawn_affine
from tests.reference.generate import Editor, plain_tree, random_chip, random_trees
from tests.reference.test_counts import assert_agrees
from tests.reference.test_simulation import assert_busy, dealt_again, steady, uniform, without_prefetch

from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Chip
from halley.ir.mapping import Node, Overlap, Parallel, Pipeline, walk
from halley.ir.text import to_text
from halley.ir.workload import Workload
from halley.rewrite.legality import faults
from halley.simulate.simulation import simulate
from halley.verify.plain import plain


def verdict(workload: Workload, chip: Chip, tree: Node, seed: int) -> bool:
    """Whether a tree is legal: the interpreter and the rule book must say the same, and where it is legal count the same."""
    arrays = random_inputs(workload, seed)
    told = f"{workload.dims} {[(op.name, [str(index) for index in op.indices]) for op in workload.ops]}\n{to_text(tree)}\n"
    found, objection, done = faults(tree, workload, chip), "", None
    try:
        done = run(workload, chip, tree, arrays)
    except BadInput as error:
        objection = str(error)
    assert bool(found) == bool(objection), f"{told}static: {[str(fault) for fault in found]}\ndynamic: {objection}"
    if done is None:
        return False
    expected, whole = graphs.evaluate(workload, arrays), plain(workload, arrays)
    for name in workload.outputs:
        np.testing.assert_allclose(done.outputs[name], expected[name], rtol=1e-9, atol=1e-12, err_msg=told)
        np.testing.assert_allclose(whole[name], expected[name], rtol=1e-9, atol=1e-12, err_msg=told)
    assert_agrees(workload, chip, tree, done)
    return True


def legal_trees(seed: int, edits: int) -> Iterator[tuple[Workload, Chip, Node]]:
    """Legal trees of a drawn problem, each an edit of the one before; what is tried and refused is compared as well."""
    random = Random(seed)
    workload, chip = drawn_affine(random), random_chip(random)
    editor, tree = Editor(random, workload, chip, strays=True), plain_tree(workload, chip)
    for _ in range(edits):
        edited = editor.edit(tree)
        if edited is not None and edited != tree and verdict(workload, chip, edited, seed % 1000):
            tree = edited
            yield workload, chip, tree


@pytest.mark.parametrize("seed", range(60))
def test_one_verdict_and_equal_counts(seed: int) -> None:
    assert sum(1 for _ in legal_trees(seed, 16))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_drawn_trees(part: int) -> None:
    assert sum(1 for seed in range(part * 100 + 1000, part * 100 + 1100) for _ in legal_trees(seed, 30)) > 500


@cache
def grown(count: int) -> list[tuple[Workload, Chip, Node]]:
    """Random legal trees of drawn problems, by the rule book."""
    found = []
    for seed in range(count):
        random = Random(seed)
        workload, chip = drawn_affine(random), random_chip(random)

        def legal(tree: Node, workload: Workload = workload, chip: Chip = chip) -> bool:
            return not faults(tree, workload, chip)

        *_, tree = random_trees(random, workload, chip, legal, 16)
        found.append((workload, chip, tree))
    return found


def test_busy_times_equal_those_of_the_simulation() -> None:
    judged = [(workload, chip, tree) for workload, chip, tree in grown(250) if not dealt_again(workload, tree)]
    for workload, chip, tree in judged:
        assert_busy(workload, chip, tree, simulate(workload, chip, tree))
    assert len(judged) > 200


def test_time_is_exact_without_prefetch() -> None:
    """Even tiles, one buffer in each Hold, nothing at once: formula and simulation give the same time."""
    judged = 0
    for workload, chip, drawn in grown(250):
        tree = without_prefetch(drawn)
        at_once = any(isinstance(node, Overlap | Parallel | Pipeline) for _, node in walk(tree))
        if at_once or not uniform(workload, tree) or dealt_again(workload, tree):
            continue
        found = simulate(workload, chip, tree)
        if steady(found):
            assert float(evaluate(workload, chip, tree).time) == pytest.approx(found.time, rel=1e-9), to_text(tree)
            judged += 1
    assert judged > 40
