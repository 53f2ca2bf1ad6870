"""The examples of the documentation run as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import halley

from halley import Problem, build, load_chip, optimise, to_text
from halley import load as load_answer
from halley.answers.load import KINDS
from halley.cli.main import COMMANDS
from halley.report.mapping.facts import result_tables

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

COMMANDS_OF = {
    "reference/cli.md": 14,
    "model.md": 1,
    "how-to/your-own-accelerator.md": 11,
    "reference/answers.md": 0,
    "how-to/why-is-mine-slower.md": 11,
    "tutorial.md": 5,
    "gallery.md": 28,
    "how-to/write-your-own-graph.md": 4,
    "how-to/report.md": 7,
    "how-to/bring-your-own-model.md": 7,
    "how-to/launch-flags.md": 7,
    "how-to/why-is-it-faster.md": 4,
    "how-to/make-it-faster.md": 0,
    "how-to/calibrate-a-network.md": 1,
    "how-to/calibrate-a-chip.md": 1,
    "how-to/calibrate-training.md": 2,
    "how-to/time-a-kernel.md": 3,
    "how-to/compare-collectives.md": 11,
    "how-to/plan-training.md": 3,
    "how-to/sweep-a-design.md": 4,
    "how-to/design-under-budgets.md": 2,
    "how-to/serve-a-model.md": 8,
    "serving.md": 0,
    "how-to/use-from-an-agent.md": 0,
    "how-to/plan-your-cluster.md": 5,
    "reference/collectives.md": 0,
    "reference/files.md": 1,
    "reference/whole-systems.md": 0,
    "reference/axes.md": 0,
    "reference/models.md": 0,
    "reference/networks.md": 0,
    "reference/sharding.md": 0,
    "reference/systems.md": 0,
    "reference/workloads.md": 0,
    "bounds.md": 0,
    "spatial.md": 0,
    "training.md": 0,
    "validation.md": 2,
    "simulation.md": 3,
    "how-to/cost-your-own-mapping.md": 7,
}
"""Pages whose examples run below, and at least how many commands each has."""

ELSEWHERE = {
    "reference/chips.md": "tests/cli/test_chips_page.py",
    "how-to/describe-a-chip.md": "tests/certificates/test_hierarchies.py",
    "validation-dfmodel.md": "tests/validation/test_dfmodel.py",
    "worked-plan.md": "tests/cli/test_worked_plan.py",
    "how-to/import-pytorch.md": "tests/importers/test_torch.py",
    "how-to/import-onnx.md": "tests/importers/test_onnx.py",  # where the package onnx is installed
}
"""Pages whose examples run in another test, which also compares their results with the page."""


def blocks(name: str) -> list[tuple[str, str]]:
    """(language, text) of each fenced block."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (DOCS / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("name", "commands"), COMMANDS_OF.items())
def test_examples_run(name: str, commands: int, empty_folder: Path) -> None:
    ran, names = 0, dict[str, object]()
    (empty_folder / "examples").symlink_to(ROOT / "examples")
    for language, text in blocks(name):
        file = re.match(r"# (\S+\.(?:yaml|txt))\n", text)
        if file:
            (empty_folder / file[1]).write_text(text)
        if language == "python":
            exec(compile(text, name, "exec"), names)
        for line in text.splitlines() if language == "console" else ():
            sign, program, *words = shlex.split(line)
            assert (sign, program) in (("$", "halley"), ("$", "python")), line
            if program == "python":
                subprocess.run([sys.executable, *words], check=True, capture_output=True)
            else:
                outcome = halley(*words)
                assert outcome.code == 0, f"{line}\n{outcome.err}"
            ran += 1
    assert ran >= commands


def test_examples_of_every_page_run() -> None:
    """Pages of studies aside: `make studies` writes them, with the searches that they show."""
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.parent.name != "studies"}
    with_examples = {name for name in pages if any(language in ("console", "python") for language, _ in blocks(name))}
    assert with_examples <= {*COMMANDS_OF, *ELSEWHERE}
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())


def test_the_gallery_has_a_report_of_each_kind_of_answer(empty_folder: Path) -> None:
    """What the commands of its page save: one file of each kind, and a page and a picture of each."""
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    saved = re.findall(r"^\$ halley (\w+) .*-o (\w+)\.json$", text, re.MULTILINE)
    pages, pictures = (re.findall(rf"-o (\w+)\.{suffix}$", text, re.MULTILINE) for suffix in ("html", "svg"))
    assert [name for _, name in saved] == pages == pictures
    assert len(saved) == len(KINDS)


def test_every_command_is_documented() -> None:
    text = (DOCS / "reference/cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"halley {name}" in text


def test_the_first_page_compares_the_plans_that_one_gets() -> None:
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    texts = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = next(block for block in texts if block.startswith("plan "))
    rows = [re.split(r" {2,}", line.strip()) for line in shown.splitlines()]
    problem = Problem(build("gemm-layernorm", {"m": 512, "n": 1024, "k": 1024}), load_chip("cloud"))
    table = next(table for table in result_tables(optimise(problem)) if {"plan", "speed-up"} <= set(table.head))
    assert rows == [list(row[: len(rows[0])]) for row in (table.head, *table.rows)]


def test_the_first_page_on_a_chip_of_ones_own(empty_folder: Path) -> None:
    """Its commands run as written, with the chip of the reference page and a mapping without double buffers."""
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    section = page.partition("## Your own chip")[2].partition("## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("$ ")]
    assert len(lines) == 3
    chip = next(text for language, text in blocks("reference/files.md") if language == "yaml" and "levels:" in text)
    (empty_folder / "my-chip.yaml").write_text(chip)
    for line in lines:
        sign, program, *words = shlex.split(line, comments=True)
        assert (sign, program) == ("$", "halley")
        outcome = halley(*words)
        assert outcome.code == 0, f"{line}\n{outcome.err}"
        if "optimise" in words:
            best = load_answer("best.json").value.best
            (empty_folder / "mine.txt").write_text(to_text(best.plan).replace(" x2:", ":"))
        if "compare" in words:
            assert "fills and drains of single buffers" in " ".join(outcome.out.split())
