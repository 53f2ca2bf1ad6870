"""Convolutions by Timeloop's rules: layers of ResNet-50 on the two machines, and small drawn ones, against a walk of loops."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.validation.test_timeloop import EYERISS, TPU, only_working
from tests.validation.windows import Windows, part_left
from validation.timeloop.convention import Counts, counts
from validation.timeloop.convert import from_timeloop, machine, workload
from validation.timeloop.convolutions import HEADER, LAYERS, MAPPED, Mapped, both, case, row, write
from validation.timeloop.files import Architecture, Block, Problem, read_case

from halley.cost.evaluate import evaluate
from halley.errors import BadInput
from halley.execute.interpreter import random_inputs, run
from halley.rewrite.legality import check

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"
SHORTCUT = "conv5 3x3, eyeriss-like, channels"
"""Here columns come by just inside the taps of a row. Timeloop walks two columns, leaves the tile at the second, and finds it
there when the next tap starts: it counts nothing for that step, where a walk of all seven columns fetches the tile."""


def told(found: Mapping[tuple[str, str], Counts], architecture: Architecture, problem: Problem) -> dict[tuple[str, str], object]:
    return {
        (storage.name, tensor): (count.reads, count.fills, count.updates)
        for storage in architecture.storages
        for tensor in problem.tensors
        for count in (found.get((storage.name, tensor), Counts()),)
    }


def walked(walk: Windows, architecture: Architecture) -> dict[tuple[str, str], object]:
    return {
        (storage.name, tensor): tuple(walk.counts[level, tensor, what] for what in ("reads", "fills", "updates"))
        for level, storage in enumerate(architecture.storages)
        for tensor in walk.problem.tensors
    }


@pytest.mark.parametrize("mapped", MAPPED, ids=lambda mapped: mapped.name)
def test_counts_of_layers_equal_the_walk(mapped: Mapped) -> None:
    """Halley's counts are those of whole tiles; less what overlaps, they are Timeloop's."""
    read = case(mapped)
    tree = from_timeloop(read.blocks, read.architecture, read.problem)
    check(tree, workload(read.problem), machine(read.architecture, read.blocks))
    whole, slid = (told(found, read.architecture, read.problem) for found in both(read))
    for found, is_whole in ((whole, True), (slid, False)):
        walk = Windows(read.blocks, read.problem, whole=is_whole)
        assert not walk.passed_on
        assert walk.coincided is (mapped.name == SHORTCUT)
        expected = walked(walk, read.architecture)
        differ = {place for place in expected if expected[place] != found[place]}
        assert differ == ({("GlobalBuffer", "Inputs"), ("RegFile", "Inputs")} if mapped.name == SHORTCUT else set())


def test_timeloops_shortcut_leaves_out_a_tenth_of_the_reads() -> None:
    (mapped,) = (mapped for mapped in MAPPED if mapped.name == SHORTCUT)
    read = case(mapped)
    _, slid = both(read)
    walk = Windows(read.blocks, read.problem)
    assert walk.counts[1, "Inputs", "reads"] == 3268608
    assert slid["GlobalBuffer", "Inputs"].reads == 3612672


def test_all_layers_are_mapped_and_most_mappings_slide() -> None:
    assert {mapped.layer for mapped in MAPPED} == set(LAYERS)
    slide = [mapped for mapped in MAPPED if len(set(map(str, both(case(mapped))))) == 2]
    assert len(slide) == 13


def test_the_table_of_the_page() -> None:
    page = PAGE.read_text()
    for line in (*HEADER.splitlines(), *map(row, MAPPED)):
        assert line in page


def test_input_files_are_read_back(tmp_path: Path) -> None:
    for mapped, folder in zip(MAPPED, write(tmp_path), strict=True):
        (folder / "figures.json").write_text(f'{{"{folder.name}": {{}}}}')
        read, expected = read_case(folder), case(mapped)
        assert (read.problem, read.blocks, read.architecture) == (expected.problem, expected.blocks, expected.architecture)


def drawn(source: random.Random) -> tuple[Architecture, tuple[Block, ...], Problem]:
    """A small convolution with strides and dilations; a sum of dims is split over siblings in one of its terms at most."""
    architecture = source.choice([EYERISS, TPU])
    steps = {dim: source.choice([1, 1, 2, 3]) for dim in "PQRS"}
    windows = {"Inputs": ((("C", 1),), (("P", steps["P"]), ("R", steps["R"])), (("Q", steps["Q"]), ("S", steps["S"])))}
    tensors = {"Weights": ("M", "C", "R", "S"), "Inputs": ("C", "P", "R", "Q", "S"), "Outputs": ("M", "P", "Q")}
    extents = dict.fromkeys("CMPQRS", 1)
    split = {source.choice("PR"), source.choice("QS"), "C", "M"}

    def loops(most: int, width: int, dims: set[str]) -> tuple[tuple[str, int], ...]:
        chosen: list[tuple[str, int]] = []
        for dim in source.sample(sorted(dims), len(dims)):
            count = source.choice([1, 1, 2, 2, 3])
            room, points = width, count
            for _, other in chosen:
                room //= other
            for extent in extents.values():
                points *= extent
            if 1 < count <= room and points <= 256 and len(chosen) < most:
                chosen.append((dim, count))
                extents[dim] *= count
        return tuple(chosen)

    blocks = []
    for index in range(len(architecture.storages)):
        last = index + 1 == len(architecture.storages)
        x, y = (1, 1) if last else architecture.fanout(index + 1)
        keeps = frozenset(name for name in tensors if index == 0 or source.random() < 0.75)
        blocks.append(Block(loops(4, 256, set(extents)), loops(2, min(x, 6), split), loops(2, min(y, 6), split), keeps))
    problem = Problem(extents, tensors, "Outputs", windows)
    try:
        from_timeloop(tuple(blocks), architecture, problem)
    except BadInput:  # siblings would have to take every n-th tile of a window
        return drawn(source)
    return architecture, tuple(blocks), problem


@pytest.mark.parametrize("seed", range(150))
def test_drawn_convolutions_against_the_walk(seed: int) -> None:
    """Every iteration, every sibling, whole tiles. Halley knows tiles by their indices: one held by chance is moved again."""
    architecture, blocks, problem = drawn(random.Random(seed))
    estimate = evaluate(workload(problem), machine(architecture, blocks), from_timeloop(blocks, architecture, problem))
    walk = Windows(blocks, problem, whole=True, every=True)
    found, expected = told(counts(estimate, "Outputs"), architecture, problem), walked(walk, architecture)
    differ = {place for place in expected if expected[place] != found[place]}
    assert differ <= ({(storage.name, "Inputs") for storage in architecture.storages} if walk.coincided else set())
    assert bool(differ) is walk.coincided


@pytest.mark.parametrize("seed", range(40))
def test_drawn_convolutions_compute(seed: int) -> None:
    """The trees give what NumPy gives."""
    architecture, blocks, problem = drawn(random.Random(seed))
    work, tree = workload(problem), from_timeloop(blocks, architecture, problem)
    chip = only_working(machine(architecture, blocks), tree, dict(work.dims))
    try:
        check(tree, work, chip)
    except BadInput:
        pytest.skip("a sum that is split and comes back: Halley gives old values to member 0 alone")
    arrays = random_inputs(work, seed)
    sums = {dim: dict(terms) for terms in problem.windows["Inputs"][1:] for dim, _ in terms}
    p, q, r, s = (np.arange(problem.extents[dim]) * sums[dim][dim] for dim in "PQRS")
    image = arrays["Inputs"].reshape(problem.extents["C"], p[-1] + r[-1] + 1, q[-1] + s[-1] + 1)
    read = image[:, (p[:, None] + r)[:, None, :, None], (q[:, None] + s)[None, :, None, :]]
    expected = np.einsum("cpqrs,mcrs->mpq", read, arrays["Weights"])
    np.testing.assert_allclose(run(work, chip, tree, arrays).outputs["Outputs"], expected, rtol=1e-9, atol=1e-9)


def test_boxes_subtracted() -> None:
    old = ((0, 2), (0, 4))
    assert part_left(old, old) == (None, None)
    assert part_left(((0, 2), (3, 7)), old) == (((0, 2), (5, 7)), (1, 1))
    assert part_left(((0, 2), (-1, 3)), old) == (((0, 2), (-1, -1)), (1, -1))
    assert part_left(((1, 3), (1, 5)), old) == (((1, 3), (1, 5)), None)
    assert part_left(((0, 2), (5, 9)), old) == (((0, 2), (5, 9)), None)


def test_taps_over_siblings_would_pass_rows_on() -> None:
    """A row of the image that one PE has now is its neighbour's next. Timeloop then counts a transfer between the two."""
    tensors = {"Weights": ("R",), "Inputs": ("P", "R"), "Outputs": ("P",)}
    problem = Problem({"P": 6, "R": 3}, tensors, "Outputs", {"Inputs": ((("P", 1), ("R", 1)),)})
    blocks = (
        Block(keeps=frozenset(tensors)),
        Block((("P", 6),), (), (("R", 3),), frozenset(tensors)),
        Block(keeps=frozenset(tensors)),
    )
    assert Windows(blocks, problem).passed_on
