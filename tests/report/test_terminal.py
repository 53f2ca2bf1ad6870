"""Tables on narrow terminals: numbers and names of a first column are never cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from halley.report.table import Table
from halley.report.terminal import show

HEAD = ("design", "engines.matrix.rows", "dram", "die_area", "what became of it")
ROWS = (
    ("number-1041", "1,024", "51.2 GB/s", "37.79 mm2", "excluded by its bound after some searches"),
    ("number-1042", "64", "102.4 GB/s", "1,453.2 mm2", "searched"),
)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_numbers_and_names_are_whole(width: int) -> None:
    file = io.StringIO()
    show(Console(file=file, width=width), [Table("Designs", HEAD, ROWS, frozenset({1, 2, 3}))])
    lines = file.getvalue().splitlines()
    for name, *numbers, _ in ROWS:
        (line,) = (line for line in lines if name in line)
        assert all(number in line for number in numbers)
    if width >= 80:
        assert max(len(line.rstrip()) for line in lines) <= width
