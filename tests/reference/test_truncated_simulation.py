"""Shortened simulations: equal visits are simulated once, and long mappings are cut to their first iterations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from statistics import median

import pytest
from tests.reference.generate import random_chip, random_trees, random_workload
from tests.reference.trees import gemm
from validation.simulation.draw import drawn

from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip
from halley.ir.mapping import Node
from halley.ir.text import parse, to_text
from halley.ir.workload import Workload
from halley.rewrite import legality
from halley.simulate.holds import Holds
from halley.simulate.simulation import simulate
from halley.simulate.truncation import estimated_tasks, truncated, truncated_to_tasks
from halley.workloads import build


def random_problems(count: int) -> Iterator[tuple[Workload, Chip, Node]]:
    for seed in range(count):
        random = Random(seed)
        workload, machine = random_workload(random), random_chip(random)

        def legal(tree: Node, workload: Workload = workload, machine: Chip = machine) -> bool:
            return not legality.faults(tree, workload, machine)

        *_, tree = random_trees(random, workload, machine, legal, 12)
        yield workload, machine, tree


def test_equal_visits_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every interval of every server, with each visit counted anew."""
    cases = [*random_problems(60), *((one.workload, one.chip, one.tree) for one in drawn(3, seed=3))]
    quick = [simulate(*case) for case in cases]
    visits = count()
    monkeypatch.setattr(Holds, "_alike", lambda *_: (next(visits),))
    assert [simulate(*case) for case in cases] == quick


def test_truncation_keeps_the_tiles() -> None:
    tree = parse("hold dram: A B C\n  for m by 8\n    hold glb: A B C\n      for k by 2\n        compute C\n", "test")
    found = truncated(gemm(64, 4, 16), tree, 3)
    assert dict(found.workload.dims) == {"m": 24, "n": 4, "k": 6}
    assert found.tree == tree
    assert estimated_tasks(tree, found.workload.dims) == 1 + 3 * (1 + 3)


def test_splits_outside_the_loop_shrink_with_it() -> None:
    """Each of 12 x 14 members has 6 tiles of n of 7 points; 2 are left."""
    text = (
        "hold dram: A B C\n  spread n by 588 over pe.y\n    spread n by 42 over pe.x\n      for n by 7\n"
        "        hold glb: A B C\n          compute gemm\n"
    )
    workload = build("gemm", {"m": 4, "n": 12 * 588, "k": 8})
    found = truncated(workload, parse(text, "test"), 2)
    assert found.workload.dims["n"] == 12 * 14 * 14
    assert to_text(found.tree) == text.replace("588", "196").replace("42", "14").strip()
    assert found.workload.dims["n"] // 196 == 12


def test_a_dim_without_a_loop_somewhere_is_kept() -> None:
    workload = build("gemm-softmax", {"m": 64, "n": 32, "k": 16})
    for one in drawn(8, seed=5):
        found = truncated(one.workload, one.tree, 1)
        assert not legality.faults(found.tree, found.workload, one.chip)
    whole = truncated_to_tasks(workload, parse("hold dram: A B P\n  compute gemm\n", "test"), 100)
    assert whole.iterations == 0


@pytest.mark.slow
def test_the_ratio_of_the_first_iterations_is_that_of_all() -> None:
    """Formula over simulation, of mappings cut to a quarter of their tasks, against the whole."""
    apart = []
    for one in drawn(60, seed=21):
        visits = estimated_tasks(one.tree, one.workload.dims)
        found = truncated_to_tasks(one.workload, one.tree, visits // 4)
        if found.iterations and visits >= 400:
            simulated = simulate(found.workload, one.chip, found.tree).time
            ratio = float(evaluate(found.workload, one.chip, found.tree).time) / simulated
            apart.append(abs(ratio / (1 + one.deviation) - 1))
    assert len(apart) > 10
    assert median(apart) < 0.05
    assert max(apart) < 0.2


def test_a_count_of_visits_is_about_that_of_the_tasks() -> None:
    for one in drawn(6, seed=9):
        assert 0.3 < estimated_tasks(one.tree, one.workload.dims) / one.simulation.tasks < 3
