"""The first mapping of docs/model.md has the counts and times that the page states."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from halley.answers.load import as_answer
from halley.cost.own import OwnMapping, own_mapping
from halley.io.chips.load import load_chip
from halley.ir.text import parse
from halley.report.mapping.causes import causes
from halley.units import format_bytes, format_time
from halley.workloads import gemm

PAGE = (Path(__file__).parents[2] / "docs" / "model.md").read_text(encoding="utf-8")
START = PAGE.partition("## One mapping")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in START.splitlines() if line.startswith("| ")]
TEXT = re.findall(r"```text\n(.*?)```", START, re.DOTALL)[0]
M, N, K = (int(re.findall(rf"--{dim} (\d+)", START)[0]) for dim in "mnk")


def mapped(text: str) -> OwnMapping:
    return own_mapping(gemm(M, N, K), load_chip("edge"), parse(text))


def test_counts() -> None:
    sheet = as_answer(mapped(TEXT)).table("traffic")
    counted = {
        (row["memory"], row["tensor"], f"{row['cause']}, {row['way']}"): float(row["bytes_B"])
        for row in csv.DictReader(io.StringIO(sheet))
    }
    stated = {(memory, tensor, event): float(size.replace(",", "")) for memory, tensor, event, size, _ in ROWS_OF_BYTES}
    assert len(stated) == 7
    assert stated.items() <= counted.items()


ROWS_OF_BYTES = [row for row in ROWS if len(row) == 5 and row[0] != "memory"]
ROWS_OF_TIME = [row for row in ROWS if len(row) == 3 and row[0] != "part"]


def test_times() -> None:
    own = mapped(TEXT)
    found = {**causes(own.plan, own.estimate), "whole mapping": own.estimate.time}
    assert {part: time for part, time, _ in ROWS_OF_TIME} == {part: format_time(time) for part, time in found.items()}


def test_the_tensor_held_around_the_loop() -> None:
    lines = TEXT.splitlines()
    assert lines[2:4] == ["  for m by 128", "    hold glb x2: A B"]
    held = ["  hold glb: B", *(f"  {line}" for line in ["  for m by 128", "    hold glb x2: A", *lines[4:]])]
    own = mapped("\n".join([*lines[:2], *held]))
    moved = sum(
        float(row["bytes_B"]) for row in csv.DictReader(io.StringIO(as_answer(own).table("traffic"))) if row["memory"] == "dram"
    )
    assert f"{format_bytes(moved)} in {format_time(own.estimate.time)}" in START
