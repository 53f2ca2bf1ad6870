"""Mappings that ran as Triton kernels on an H200: the comparison, their texts, and where the chip file has its numbers from."""

from __future__ import annotations

import json

import pytest
from validation.tiles import compare as tiles
from validation.tiles.cases import ATTENTION, CAUSAL, COLUMNS, DECODE, ELEMENT, GEMM, ROWS, SHARED, SOFTMAX, SPLIT, Case, cases
from validation.tiles.mappings import texts, workload

from halley import estimate
from halley.cost.own import own_mapping
from halley.io.chips.load import parse_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, Spatial, walk
from halley.ir.text import parse
from halley.library import CHIPS

CLOCK = 1.98e9
"""Of the cores while latencies and bandwidths were measured, by the same programs."""


def with_latency(latency: float) -> Chip:
    """The chip with another latency of the ports [ns]."""
    text = CHIPS.text(tiles.CHIP)
    assert text.count("value: 260 ns") == 1
    return parse_chip(text.replace("value: 260 ns", f"value: {latency} ns"), tiles.CHIP)


def test_every_line_holds_and_beats_the_roofline() -> None:
    lines = {line.quantity: line for line in tiles.compare().lines}
    assert all(line.holds for line in lines.values())
    rooflines = [name for name in lines if name.endswith(", roofline")]
    assert len(rooflines) == len(tiles.ALLOWED)
    for name in rooflines:
        kind = name.removesuffix(", roofline")
        line = lines.get(kind) or lines[f"{kind}, held out"]
        assert len(line.cases) == len(lines[name].cases)
        assert line.mean_error < lines[name].mean_error / 2


def test_every_case_was_measured_or_does_not_fit() -> None:
    """Left out: kernels that stage their result in shared memory, too, and have no space for it."""
    measured = {tiles.case_of(row) for row in tiles.measured()["rows"]}
    assert measured <= set(cases())
    for case in set(cases()) - measured:
        rows, columns, depth = case.tile
        if case.kind in (ATTENTION, CAUSAL):
            staged = ELEMENT * depth * (rows + 2 * columns * case.buffers + rows)
        else:
            staged = ELEMENT * (depth * (rows + columns) * case.buffers + rows * columns)
        assert staged > SHARED


@pytest.mark.parametrize("kind", tiles.ALLOWED)
def test_texts_give_each_core_what_the_kernel_gives_it(kind: str) -> None:
    """Every core has a part; collectives stand where the kernel has them; the interpreter agrees with NumPy on smaller sizes."""
    case = next(case for case in cases() if case.kind == kind and case.buffers == 3)
    collectives = {SPLIT: 1, SOFTMAX: 2}.get(kind, 3 if kind == DECODE else 0)
    for text in texts(case):
        tree = parse(text)
        spread = [node for _, node in walk(tree) if isinstance(node, Spatial)]
        assert {node.axis for node in spread} == {"x", "y"}
        assert sum(isinstance(node, Collective) for _, node in walk(tree)) == collectives
    own = estimate(next(texts(case)), workload(case), tiles.CHIP)
    findings = own.check(limit=20.0)
    assert all(finding.passed for finding in findings), [str(finding) for finding in findings]


def test_the_fitted_latency_has_the_least_error() -> None:
    """Of every second GEMM; the others judge it."""
    rows = tiles.rows(GEMM, tiles.SEVERAL_LOADS)[::2]
    works = [(workload(case), [parse(text) for text in texts(case)], time) for case, time in rows]

    def error(latency: float) -> float:
        chip = with_latency(latency)
        times = [min(float(own_mapping(work, chip, tree).estimate.time) for tree in trees) for work, trees, _ in works]
        return sum(abs(found / time - 1) for found, (*_, time) in zip(times, works, strict=True)) / len(works)

    errors = {latency: error(latency) for latency in (220, 260, 300)}
    assert min(errors, key=errors.__getitem__) == 260


def test_the_file_has_what_was_measured() -> None:
    """The file's values are of a first run of the programs, the rows of a second one: latencies differ by up to 7 %."""
    seen = json.loads((tiles.TABLE.parent / "memories-h200.json").read_text(encoding="utf-8"))
    chip = tiles.machine()
    near, far = (seen[f"latency of a load, {size} MiB [cycles]"] / CLOCK for size in (16, 1024))
    assert chip.memory("l2").latency == pytest.approx(near, rel=0.02)
    assert chip.memory("dram").latency == pytest.approx(far - near, rel=0.07)
    reads = seen["L2 reads of 24 MiB by 132 cores [B/cycle]"] * CLOCK
    assert chip.memory("l2").read_bandwidth == pytest.approx(reads * 4 / 3, rel=0.02)
    assert chip.memory("l2").write_bandwidth == pytest.approx(seen["L2 writes of 24 MiB [B/cycle]"] * CLOCK, rel=0.03)
    word = seen["a word to another core and back, first and last of 132 [cycles]"] / 2 / CLOCK
    axis = chip.axis("sm", "x")
    assert axis.link.latency == pytest.approx(word, rel=0.02)
    alone = seen["all-reduce of 4 B among 12 cores, all groups at a time [ns]"] * 1e-9
    assert axis.exchange.barrier + axis.link.latency == pytest.approx(alone, rel=0.02)
    assert (axis.size, chip.axis("sm", "y").size) == (ROWS, COLUMNS)
    idle = [row["power"] for row in tiles.measured()["loaded"] if row["name"].startswith("nothing")]
    assert chip.static_power == pytest.approx(sum(idle) / len(idle), rel=0.01)


def test_a_product_without_a_pause_takes_the_time_of_the_limit() -> None:
    """The largest product with tiles of 128 x 256, measured in a loop and once; nothing is fitted to it."""
    loaded = {row["name"]: row for row in tiles.measured()["loaded"]}
    case = Case(GEMM, (6144, 5632, 4096), (128, 256, 64), 3)
    alone = next(row["time"] for row in tiles.measured()["rows"] if tiles.case_of(row) == case)
    time = loaded[str(case)]["time"]
    assert time > 1.15 * alone
    chip = tiles.machine()
    every = [own_mapping(workload(case), chip, parse(text)).estimate for text in texts(case)]
    found = min(every, key=lambda estimate: float(estimate.time))
    actions = sum(float(energy) for name, energy in found.energy_by.items() if name != "static")
    assert actions / (chip.power_limit - chip.static_power) == pytest.approx(time, rel=0.05)


def test_cases_are_named_by_what_they_are() -> None:
    assert str(Case(GEMM, (12, 22, 32), (4, 2, 8), 3)) == "gemm 12 x 22 x 32, tiles 4 x 2 x 8, 3 buffers"
