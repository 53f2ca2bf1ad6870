"""The examples of the documentation run as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.cli.running import halley

from halley.cli.main import COMMANDS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(name: str) -> list[tuple[str, str]]:
    """(language, text) of each fenced block."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (DOCS / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("reference/cli.md", 7),
        ("tutorial.md", 5),
        ("how-to/write-your-own-graph.md", 3),
        ("how-to/report.md", 7),
        ("how-to/why-is-it-faster.md", 4),
        ("how-to/make-it-faster.md", 0),
        ("how-to/calibrate-a-network.md", 1),
        ("how-to/calibrate-a-chip.md", 1),
        ("how-to/compare-collectives.md", 11),
        ("how-to/plan-training.md", 3),
        ("how-to/plan-your-cluster.md", 5),
        ("reference/collectives.md", 0),
        ("reference/whole-systems.md", 0),
        ("training.md", 0),
        ("validation.md", 2),
        ("simulation.md", 3),
    ],
)
def test_examples_run(name: str, commands: int, empty_folder: Path) -> None:
    ran = 0
    for language, text in blocks(name):
        file = re.match(r"# (\S+\.(?:yaml|txt))\n", text)
        if file:
            (empty_folder / file[1]).write_text(text)
        if language == "python":
            exec(compile(text, name, "exec"), {})
        for line in text.splitlines() if language == "console" else ():
            assert line.startswith("$ halley "), line
            outcome = halley(*shlex.split(line)[2:])
            assert outcome.code == 0, f"{line}\n{outcome.err}"
            ran += 1
    assert ran >= commands


def test_every_command_is_documented() -> None:
    text = (DOCS / "reference/cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"halley {name}" in text
