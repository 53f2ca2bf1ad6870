"""The public names, the start-up time, the notebook tables, and result files as values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import Outcome

import halley
from halley.errors import BadInput
from halley.execute.interpreter import random_inputs
from halley.io.chips.chip import read_chip
from halley.io.chips.load import load_chip
from halley.io.chips.save import chip_document
from halley.io.files.text import Document
from halley.io.results.result import load_result, save_result
from halley.ir.mapping import Spatial, walk
from halley.library import CHIPS
from halley.report.mapping import html
from halley.report.table import Table
from halley.rewrite.legality import faults
from halley.verify.plain import plain
from halley.verify.reduced import reduced
from halley.workloads import build

Solved = tuple[Path, Outcome]


def test_public_names() -> None:
    for name in halley.__all__:
        assert getattr(halley, name).__module__.startswith("halley.")
    assert sorted(halley.__all__) == list(halley.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        halley.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("module", "heavy"), [("halley", "numpy pydantic yaml rich typer"), ("halley.cli.main", "numpy pydantic yaml")]
)
def test_import_brings_in_nothing_heavy(module: str, heavy: str) -> None:
    program = f"import sys, {module}; print(sorted({set(heavy.split())} & set(sys.modules)))"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


@pytest.mark.parametrize("name", CHIPS.names())
def test_a_saved_chip_is_the_same_chip(name: str) -> None:
    chip = load_chip(name)
    again, findings = read_chip(Document("chip", chip_document(chip), {(): 1}))
    assert findings == []
    assert again == chip
    assert again.sources == chip.sources


def test_a_saved_result_is_the_same_result(solved: Solved, empty_folder: Path) -> None:
    result = load_result(solved[0])
    save_result(result, empty_folder / "again.json")
    assert load_result(empty_folder / "again.json") == result
    with pytest.raises(BadInput, match="--force"):
        save_result(result, empty_folder / "again.json")


def test_tables_for_notebooks(solved: Solved) -> None:
    result = load_result(solved[0])
    html.attach()
    for value in (result, result.best, result.best.estimate):
        text = value._repr_html_()  # type: ignore[union-attr]
        assert text.count("<table") == text.count("</table>") > 1
    assert "&lt;script&gt;" in html.table_html(Table("<script>", ("a",), ()))


def test_a_reduced_mapping_is_legal_and_keeps_its_splits(solved: Solved) -> None:
    result = load_result(solved[0])
    workload = build("gemm-layernorm", {**result.problem.workload.parameters, "variant": result.best.variant})
    small, tree = reduced(workload, result.best.plan)
    assert max(small.dims.values()) <= 16
    assert faults(tree, small, result.problem.chip) == []
    before, after = ([type(node) for _, node in walk(item)] for item in (result.best.plan, tree))
    assert before == after
    ranges = dict(small.dims.items())
    assert any(isinstance(node, Spatial) and node.tile < ranges[node.dim] for _, node in walk(tree))


@pytest.mark.parametrize("seed", [0, 1])
def test_plain_evaluation_equals_the_textbook(seed: int) -> None:
    from tests.reference.oracles import oracle
    from tests.reference.test_workloads import examples

    for workload in examples():
        arrays = random_inputs(workload, seed)
        made = plain(workload, arrays)
        for name, value in oracle(workload, arrays).items():
            assert abs(made[name] - value).max() <= 1e-9 * max(1.0, abs(value).max()), workload.name
