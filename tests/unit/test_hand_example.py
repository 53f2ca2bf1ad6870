"""The case of docs/hand-example.md: chip, mapping and numbers are read from the page; the code must give the same numbers.

The page was worked out from docs/model.md with pencil and paper. Counts of bytes and operations are equal exactly; times and
energies to 12 digits, as decimal fractions of SI units are rounded in binary.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.execute.interpreter import run
from halley.io.chips.load import parse_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Node, walk
from halley.ir.text import parse, to_text
from halley.rewrite.legality import check
from halley.workloads import gemm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hand-example.md").read_text(encoding="utf-8")
WORKLOAD = gemm(4, 7, 5)
Row = Mapping[str, str]


def block(language: str) -> str:
    """The page's one fenced block of that language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def tables() -> dict[str, list[Row]]:
    """The page's tables, keyed by their header cells."""
    found: dict[str, list[Row]] = {}
    for text in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        cells = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines()]
        found[", ".join(cells[0])] = [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
    return found


TABLES = tables()


@pytest.fixture(scope="module")
def chip() -> Chip:
    return parse_chip(block("yaml"), "docs/hand-example.md")


@pytest.fixture(scope="module")
def tree() -> Node:
    return parse(block("text"))


@pytest.fixture(scope="module")
def estimate(chip: Chip, tree: Node) -> Estimate:
    return evaluate(WORKLOAD, chip, tree)


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-12)


def nonzero(counts: Mapping[object, object]) -> dict[object, object]:
    return {key: count for key, count in counts.items() if count}


def accesses(column: str) -> dict[object, int]:
    rows = TABLES["memory, tensor, cause, read [B], written [B]"]
    return {(row["memory"], row["tensor"], row["cause"]): int(row[column]) for row in rows if int(row[column])}


def links() -> dict[object, int]:
    found: dict[object, int] = {}
    for row in TABLES["link, bytes [B]"]:
        axis, source, _, target = row["link"].split()
        found[(*axis.split("."), int(source), int(target))] = int(row["bytes [B]"])
    return found


def column(table: str, key: str, value: str) -> dict[object, float]:
    return {tuple(row[key].split()) if " " in row[key] else row[key]: float(row[value]) for row in TABLES[table]}


def test_the_page_has_every_table() -> None:
    assert len(TABLES) == 9
    assert all(rows for rows in TABLES.values())


def test_bytes(estimate: Estimate) -> None:
    assert nonzero(estimate.reads()) == accesses("read [B]")
    assert nonzero(estimate.writes()) == accesses("written [B]")
    assert nonzero(estimate.links()) == links()
    assert nonzero(estimate.ports()) == column("port, bytes [B]", "port", "bytes [B]")
    assert nonzero(estimate.work()) == column("function, count", "function", "count")


def test_the_examples_are_those_of_the_page() -> None:
    assert (ROOT / "examples" / "pencil.yaml").read_text(encoding="utf-8") == block("yaml")
    assert (ROOT / "examples" / "split-k.txt").read_text(encoding="utf-8") == block("text")
    assert block("text") in (ROOT / "docs" / "how-to" / "cost-your-own-mapping.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    command = [sys.executable, str(ROOT / "examples" / "cost_a_mapping.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    assert printed.startswith("time 170 ns, energy 6581.5 pJ")


def test_the_mapping_is_legal(tree: Node, chip: Chip) -> None:
    check(tree, WORKLOAD, chip)


def test_footprint(estimate: Estimate, chip: Chip) -> None:
    table = "memory, footprint [B], capacity [B]"
    assert dict(estimate.footprint) == column(table, "memory", "footprint [B]")
    assert {memory.name: memory.capacity for memory in chip.memories} == column(table, "memory", "capacity [B]")


def test_busy_times(estimate: Estimate) -> None:
    for row in TABLES["resource, bytes [B], bandwidth [B/ns], busy [ns]"]:
        busy = float(row["busy [ns]"])
        assert float(row["bytes [B]"]) / float(row["bandwidth [B/ns]"]) == busy
        assert estimate.busy[tuple(row["resource"].split())] == close(busy * 1e-9), row["resource"]


def test_time_of_each_node(estimate: Estimate, tree: Node) -> None:
    paths = {to_text(node).splitlines()[0].strip(): path for path, node in walk(tree)}
    for row in TABLES["node, time [ns], how"]:
        assert estimate.nodes[paths[row["node"]]].time == close(float(row["time [ns]"]) * 1e-9), row["node"]


def test_energy(estimate: Estimate) -> None:
    found = {row["component"]: float(row["energy [pJ]"]) for row in TABLES["component, energy [pJ], how"]}
    assert set(found) == {name for name, energy in estimate.energy_by.items() if energy}
    for name, energy in found.items():
        assert estimate.energy_by[name] == close(energy * 1e-12), name


def test_totals(estimate: Estimate) -> None:
    total = column("total, value", "total", "value")
    assert estimate.time == close(total["time", "[ns]"] * 1e-9)
    assert estimate.energy == close(total["energy", "[pJ]"] * 1e-12)
    components = TABLES["component, energy [pJ], how"]
    assert sum(float(row["energy [pJ]"]) for row in components) == total["energy", "[pJ]"]


def test_the_interpreter_counts_the_same_and_computes_the_product(chip: Chip, tree: Node) -> None:
    draw = np.random.default_rng(1)
    arrays = {"A": draw.standard_normal((4, 5)), "B": draw.standard_normal((5, 7))}
    execution = run(WORKLOAD, chip, tree, arrays)
    np.testing.assert_allclose(execution.outputs["C"], arrays["A"] @ arrays["B"], rtol=1e-12)
    assert nonzero(execution.counters.reads) == accesses("read [B]")
    assert nonzero(execution.counters.writes) == accesses("written [B]")
    assert nonzero(execution.counters.links) == links()
