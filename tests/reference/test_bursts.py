"""Whole bursts of contiguous runs: by hand, element by element, formula against simulation, and laws."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest
from tests.reference.affine_draws import drawn_affine
from tests.reference.agreement import dealt_again, grown_trees
from tests.reference.generate import random_chip, random_trees
from tests.reference.test_simulation import assert_busy
from tests.reference.trees import chip, gemm, nest

from halley.cost.evaluate import evaluate
from halley.cost.events import Access
from halley.errors import BadInput
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Node
from halley.ir.workload import Workload
from halley.report.mapping.explain import explanation
from halley.report.mapping.tree import lines
from halley.rewrite import legality
from halley.simulate.members import Box
from halley.simulate.simulation import simulate
from halley.simulate.traffic import bursts_of

BURSTS = (2, 3, 8, 32)
"""Lengths [B] among the run lengths of the drawn tensors, which have a few elements per dim."""


def with_burst(machine: Chip, burst: int) -> Chip:
    """The chip with bursts in its outermost memories."""
    outer, *inner = machine.levels
    return replace(machine, levels=(replace(outer, memories=tuple(replace(m, burst=burst) for m in outer.memories)), *inner))


def by_elements(box: Box, stored: tuple[int, ...], word: int, burst: int) -> int:
    """Bursts of a box: each element's place in the row-major tensor, runs of neighbours, each rounded up."""
    places = []
    for index in itertools.product(*(range(start, stop) for start, stop in box)):
        place = 0
        for at, extent in zip(index, stored, strict=True):
            place = place * extent + at
        places.append(place)
    places.sort()
    runs = [len(list(run)) for _, run in itertools.groupby(enumerate(places), lambda pair: pair[1] - pair[0])]
    return sum(-(-run * word // burst) for run in runs)


def test_bursts_of_boxes_by_elements() -> None:
    random = Random(5)
    for _ in range(400):
        stored = tuple(random.randint(1, 6) for _ in range(random.randint(0, 4)))
        box = tuple(sorted((random.randint(0, extent), random.randint(0, extent))) for extent in stored)
        box = tuple((start, stop) for start, stop in box)
        word, burst = random.choice((1, 2, 4)), random.choice((1, 3, 8, 16, 64))
        assert bursts_of(box, stored, word, burst) == by_elements(box, stored, word, burst)


def test_a_fill_by_hand() -> None:
    """Rows of 6 words of 2 bytes; tiles of 4 columns: runs of 8 and of 4 bytes, a burst of 8 each. With all columns
    in the tile, three rows are one run of 36 bytes: 5 bursts."""
    workload = gemm(3, 2, 6)

    def read(tile: int) -> tuple[float, float]:
        tree = nest(("dram", "A B C"), ("obuf", "C"), ("wbuf", "B"), ("k", tile), ("ibuf", "A"), Compute("C"))
        machine = with_burst(chip(1, 1), 8)
        estimate = evaluate(workload, machine, tree)
        (event,) = (
            e for e in estimate.events if isinstance(e, Access) and (e.memory, e.tensor, e.cause) == ("dram", "A", "fill")
        )
        return float(event.total), float(event.moved)

    assert read(4) == (36, 6 * 8)
    assert read(6) == (36, 5 * 8)


def test_an_explanation_names_bursts() -> None:
    workload, machine = gemm(3, 2, 6), with_burst(chip(1, 1), 8)
    tree = nest(("dram", "A B C"), ("obuf", "C"), ("wbuf", "B"), ("k", 4), ("ibuf", "A"), Compute("C"))
    estimate = evaluate(workload, machine, tree)
    line = next(line for line in lines(tree, estimate) if line.text.strip() == "hold ibuf: A")
    _, numbers, *_ = explanation(machine, estimate, line)
    assert any(
        row[0] == "fill: read A in dram" and "D = 48 B" in row[2] and "bursts of 8 B for 36 B" in row[2] for row in numbers.rows
    )


def drawn() -> list[tuple[Workload, Chip, Node]]:
    """Drawn trees on chips with bursts, without those whose collectives the simulation counts otherwise, and those that read
    beyond the ends of a tensor, which are refused."""
    return [
        (workload, with_burst(machine, burst), tree)
        for at, (workload, machine, tree) in enumerate(grown_trees(250))
        for burst in (BURSTS[at % len(BURSTS)],)
        if not dealt_again(workload, tree) and not any(index.padded(workload.dims) for index in workload.indices)
    ]


def test_busy_times_of_affine_reads_with_bursts_equal_the_simulation() -> None:
    compared = 0
    for seed in range(150):
        random = Random(seed)
        workload, machine = drawn_affine(random), random_chip(random)
        if any(index.padded(workload.dims) for index in workload.indices):
            continue

        def legal(tree: Node, workload: Workload = workload, machine: Chip = machine) -> bool:
            return not legality.faults(tree, workload, machine)

        *_, tree = random_trees(random, workload, machine, legal, 16)
        if not dealt_again(workload, tree):
            burst = with_burst(machine, BURSTS[seed % len(BURSTS)])
            assert_busy(workload, burst, tree, simulate(workload, burst, tree))
            compared += 1
    assert compared > 20


def test_bursts_of_padded_tensors_are_refused() -> None:
    found = [
        (workload, machine, tree)
        for workload, machine, tree in grown_trees(250)
        if any(index.padded(workload.dims) for index in workload.indices)
    ]
    for workload, machine, tree in found[:3]:
        with pytest.raises(BadInput, match="expected no burst for"):
            evaluate(workload, with_burst(machine, 8), tree)
    assert found


def test_busy_times_with_bursts_equal_the_simulation() -> None:
    longer = 0
    for workload, machine, tree in drawn():
        assert_busy(workload, machine, tree, simulate(workload, machine, tree))
        plain = evaluate(workload, with_burst(machine, 0), tree)
        found = evaluate(workload, machine, tree)
        longer += any(float(found.busy[name]) > float(plain.busy[name]) * (1 + 1e-9) for name in plain.busy)
    assert longer > 100


def test_bursts_never_make_a_mapping_better() -> None:
    for workload, machine, tree in drawn():
        plain, found = evaluate(workload, with_burst(machine, 0), tree), evaluate(workload, machine, tree)
        assert float(found.time) >= float(plain.time) * (1 - 1e-12)
        assert float(found.energy) >= float(plain.energy) * (1 - 1e-12)
        assert (found.reads(), found.writes()) == (plain.reads(), plain.writes())  # the bytes that are asked for stay


def test_a_burst_of_a_byte_changes_nothing() -> None:
    for workload, machine, tree in drawn():
        plain, found = evaluate(workload, with_burst(machine, 0), tree), evaluate(workload, with_burst(machine, 1), tree)
        assert float(found.time) == pytest.approx(float(plain.time), rel=1e-12)
        assert float(found.energy) == pytest.approx(float(plain.energy), rel=1e-12)
