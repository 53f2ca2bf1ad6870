"""Groups of equal form and programs of equal outputs share results: they must be the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from halley.formulas.terms import Term
from halley.io.chips.load import load_chip
from halley.mapping.bounds.progress import SearchCounter
from halley.mapping.bounds.shapes import Trees
from halley.mapping.groups import FusedGroups, _kept
from halley.mapping.problem import Objective, Problem
from halley.mapping.space.equal_groups import form
from halley.mapping.space.partitions import group_ops, kernels
from halley.mapping.space.stages import Slot
from halley.workloads import gemm_softmax, gpt_layer


def test_projections_of_equal_form_cost_the_same() -> None:
    """Queries and keys read rows of their own; that values read the keys' rows too changes nothing for a contraction."""
    layer = gpt_layer(24, 16, 2, 8, 40)
    problem = Problem(layer, load_chip("tpu-v4i-like"), Objective.ENERGY)
    found = []
    for name in ("Q", "K"):
        alone = 1 << next(place for place, kernel in enumerate(kernels(layer)) if name in kernel)
        group = FusedGroups(problem, ("energy",), ("energy",), 0.0, SearchCounter()).of(layer, alone)
        group.run(np.empty((0, 1)))
        found.append((form(layer, group_ops(layer, alone), _kept(layer, alone)), group.points.tolist(), group.size(lambda: None)))
    assert found[0] == found[1]


def test_a_map_may_not_work_in_place_of_what_others_need() -> None:
    plain = gemm_softmax(16, 24, 8, variant="plain")
    first = plain.ops[0]
    (made,) = first.outputs
    needed = replace(plain, outputs=(*plain.outputs, made))
    rows = plain.ops[1:]
    kept = tuple(dict.fromkeys(name for op in rows for name in op.inputs if plain.producer(name) in (None, first)))
    assert form(plain, rows, kept) != form(needed, rows, kept)
    assert form(plain, (first,), (*first.inputs, made)) == form(needed, (first,), (*first.inputs, made))


def test_a_constant_does_not_equal_a_term() -> None:
    trees = Trees()
    slot = Slot("m1", "m", lambda extent: (3, 7), lambda tiles: 7)
    size = trees.symbols([slot])["m1"]
    assert isinstance(size, Term)
    chains = trees.of((), (slot,))
    root = {"m": np.zeros(1, dtype=np.int64)}
    constant = trees.program([float(size.index)], chains, lambda: "a constant")
    least = trees.program([size], chains, lambda: "a term")
    assert constant(root, 1).tolist() == [[size.index]]
    assert least(root, 1).tolist() == [[3.0]]
    assert trees.program([size], chains, lambda: "again") is least
