"""A mapping with groups along an axis, on a chip with DMA engines: every command that shows an estimate takes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.running import halley

MAPPING = """
hold hbm: A B C
  spread m by 16 over tile.x/8
    hold l1: C
      sequence
        spread k by 8 over tile.x%8
          hold l1 x2: A B
            compute gemm
        reduce C over tile.x%8 with multicast
"""

GEMM = ("gemm", "--m", "64", "--n", "32", "--k", "64", "--dtype", "fp16", "--chip", "tile-mesh")


def test_an_estimate_with_groups_along_an_axis_is_shown_and_drawn(empty_folder: Path) -> None:
    Path("mapping.txt").write_text(MAPPING)
    outcome = halley("estimate", "mapping.txt", *GEMM, "-o", "own.json")
    assert outcome.code == 0, outcome.err
    assert "l1 DMA" in outcome.out
    for command in (("explain",), ("table", "nodes"), ("table", "traffic"), ("figure", "roofline"), ("figure", "time")):
        shown = halley(command[0], "own.json", *command[1:])
        assert shown.code == 0, shown.err
    assert "tile.x%8" in halley("explain", "own.json").out
    page = halley("report", "own.json", "-o", "own.html")
    assert page.code == 0, page.err
    assert "tile.x%8" in Path("own.html").read_text(encoding="utf-8")


def test_a_check_executes_a_mapping_with_groups_along_an_axis(empty_folder: Path) -> None:
    Path("mapping.txt").write_text(MAPPING)
    assert halley("estimate", "mapping.txt", *GEMM, "-o", "own.json").code == 0
    checked = halley("check", "own.json", "--json")
    assert checked.code == 0, checked.out
    assert {"execution", "counts", "simulated time"} <= {check["what"] for check in json.loads(checked.out)["checks"]}


@pytest.mark.parametrize("group", [5, 64])
def test_groups_that_do_not_divide_the_axis_are_refused(empty_folder: Path, group: int) -> None:
    Path("mapping.txt").write_text(MAPPING.replace("/8", f"/{group}").replace("%8", f"%{group}"))
    outcome = halley("estimate", "mapping.txt", *GEMM)
    assert outcome.code != 0
    assert f"axis tile.x: expected a divisor of its size 32; got groups of {group}" in outcome.err
