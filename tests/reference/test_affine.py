"""Affine indices: results equal NumPy's, counts and verdicts of the formulas and the rule book equal the interpreter's."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from tests.reference import graphs
from tests.reference.affine_draws import drawn_affine
from tests.reference.agreement import dealt_again, described, grown_trees, run_if_legal, without_prefetch_as_simulated
from tests.reference.generate import Editor, plain_tree, random_chip
from tests.reference.test_simulation import assert_busy

from halley.execute.interpreter import random_inputs
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.workload import Workload
from halley.simulate.simulation import simulate
from halley.verify.plain import plain


def verdict(workload: Workload, chip: Chip, tree: Node, seed: int) -> bool:
    """Whether a tree is legal; where it is, it computes what NumPy does."""
    arrays = random_inputs(workload, seed)
    done = run_if_legal(workload, chip, tree, arrays)
    if done is None:
        return False
    expected, whole = graphs.evaluate(workload, arrays), plain(workload, arrays)
    for name in workload.outputs:
        told = described(workload, tree)
        np.testing.assert_allclose(done.outputs[name], expected[name], rtol=1e-9, atol=1e-12, err_msg=told)
        np.testing.assert_allclose(whole[name], expected[name], rtol=1e-9, atol=1e-12, err_msg=told)
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


def test_busy_times_equal_those_of_the_simulation() -> None:
    judged = [case for case in grown_trees(250, drawn_affine) if not dealt_again(case[0], case[2])]
    for workload, chip, tree in judged:
        assert_busy(workload, chip, tree, simulate(workload, chip, tree))
    assert len(judged) > 200


def test_time_is_exact_without_prefetch() -> None:
    assert without_prefetch_as_simulated(grown_trees(250, drawn_affine)) > 40
