"""docs/reference/chips.md: its table is what the chip files say, every chip has its paragraph, its commands run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.cli.running import halley

from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.library import CHIPS
from halley.units import format_bytes, format_rate

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "chips.md").read_text(encoding="utf-8")


def row(chip: Chip) -> str:
    """The chip's line of the table: levels, dense peak by element type in TFLOPS or TOPS, memories with their read bandwidth."""
    assert chip.matrix is not None
    levels, members = [], 1
    for level in chip.levels:
        members *= level.count
        size = " x ".join(str(axis.size) for axis in level.network.axes) if level.network else ""
        levels.append(f"{level.name} ({size})" if size else level.name)
    peaks: dict[str, list[str]] = {}
    for dtype, rate in chip.matrix.rate.items():
        tera = 2 * members * chip.matrix.rows * chip.matrix.cols * rate * chip.matrix.clock / 1e12
        peaks.setdefault(f"{tera:.4g}", []).append(dtype)
    peak = ", ".join(f"{value} {' '.join(dtypes)}" for value, dtypes in peaks.items())
    memories = ", ".join(f"{m.name} {format_bytes(m.capacity)} {format_rate(m.read_bandwidth)}" for m in chip.memories)
    return f"| `{chip.name}` | {' > '.join(levels)} | {peak} | {memories} |"


@pytest.mark.parametrize("name", CHIPS.names())
def test_the_table_is_what_the_files_say(name: str) -> None:
    assert row(load_chip(name)) in PAGE


def test_every_chip_has_its_paragraph_and_no_other() -> None:
    assert re.findall(r"^- \*\*`([\w-]+)`\*\*", PAGE, flags=re.M) == list(CHIPS.names())


def test_commands_run(empty_folder: Path) -> None:
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S):
        if language == "text" and (file := re.match(r"# (\S+\.txt)\n", text)):
            (empty_folder / file[1]).write_text(text)
    commands = re.findall(r"^\$ (halley .*)$", PAGE, re.M)
    assert len(commands) == 3
    for command in commands:
        outcome = halley(*shlex.split(command)[1:])
        assert outcome.code == 0, outcome.err
    estimate = json.loads(halley(*shlex.split(commands[-1])[1:], "--json").out)["answer"]["estimate"]
    told = dict(re.findall(r"^\| (\w+) \| ([\d.]+) mJ \|", PAGE, re.M))
    found = {name: f"{1e3 * energy:.4f}" for name, energy in estimate["energy_by_J"].items() if energy}
    assert told == {**found, "sum": f"{1e3 * estimate['energy_J']:.4f}"}
