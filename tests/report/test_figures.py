"""Figures as files, the roofline's numbers, and the tables as CSV."""

from __future__ import annotations

import csv
import io
import math
import re
import struct
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.running import halley
from tests.reference.generate import grown
from tests.report.made import NASTY, made_result, nasty_result

from halley.cost.evaluate import evaluate
from halley.cost.figures import resource_name
from halley.errors import BadInput
from halley.ir.hardware import CHIP_TOPOLOGIES, Axis, Link, Topology
from halley.mapping.result import Result
from halley.network.time.axis import route
from halley.report.browser import BROWSERS, browser
from halley.report.draw import PALETTE, colours, ink_on
from halley.report.mapping.figures import FIGURES, figure
from halley.report.mapping.roofline import bandwidth, links, roofline
from halley.report.mapping.sheets import SHEETS
from halley.report.markup import svg_file
from halley.report.rows import csv_text
from halley.report.table import percent

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("nasty", [False, True])
def test_every_figure_is_an_svg_of_its_own(name: str, nasty: bool) -> None:
    text = svg_file(figure(nasty_result() if nasty else made_result(), name))
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert {item.tag for item in root.iter()} <= {
        SVG + tag for tag in ("svg", "g", "rect", "line", "path", "circle", "text", "title")
    }
    assert float(root.get("height", "0")) < 900
    assert not any("href" in key or key.startswith("on") for item in root.iter() for key in item.attrib)
    assert "nan" not in text
    assert "inf" not in text.replace("info", "")


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=12, deadline=None, database=None)
def test_figures_of_random_mappings(seed: int) -> None:
    """Whatever a mapping does or leaves out, there is something to draw, and no number that is none."""
    _, workload, chip, tree = grown(seed, 16)
    cost = evaluate(workload, chip, tree)
    if float(cost.time) <= 0:
        return
    made = made_result()
    best = replace(made.best, plan=tree, estimate=cost)
    result = replace(made, problem=replace(made.problem, workload=workload, chip=chip), best=best, baselines=())
    for name in FIGURES:
        text = svg_file(figure(result, name))
        numbers = re.findall(r' (?:x|y|x1|x2|y1|y2|cx|cy|width|height)="([^"]*)"', text)
        assert all(math.isfinite(float(number)) for number in numbers), name


def test_bars_are_as_long_as_their_values(result: Result) -> None:
    """The same scale for all plans, and parts that add up."""
    root = figure(result, "time")
    bars = [item for item in root.iter("rect") if item.find("title") is not None]
    lengths: dict[str, float] = {}
    for bar in bars:
        name = (bar.findtext("title") or "").splitlines()[0]
        lengths[name] = lengths.get(name, 0.0) + float(bar.get("width", "0"))
    times = {plan.name: float(plan.estimate.time) for plan in (result.best, *result.baselines)}
    scale = max(lengths.values()) / max(times.values())
    assert lengths == pytest.approx({name: time * scale for name, time in times.items()}, abs=0.1)


def test_a_stem_is_as_long_as_its_resource_is_idle(result: Result) -> None:
    cost, chip = result.best.estimate, result.problem.chip
    shown = roofline(chip, cost)
    work = cost.work()
    assert shown.operations == 2 * 16 * 256 * 64 + sum(float(count) for name, count in work.items() if name != "mac")
    assert shown.reached == pytest.approx(shown.operations / float(cost.time))
    for item in (*shown.roofs, *shown.peaks):
        assert shown.reached / item.limit == pytest.approx(item.used)
        assert item.used <= 1 + 1e-12
    busy = {resource_name(key): float(value) for key, value in cost.busy.items() if value > 0}
    assert {item.name: item.busy for item in (*shown.roofs, *shown.peaks)} == busy
    for roof in shown.roofs:
        if roof.resource[0] in ("read", "write"):
            # no port moves more than its bandwidth allows, and members here are even
            assert roof.moved == sum(
                float(v) for key, v in getattr(cost, f"{roof.resource[0]}s")().items() if key[0] == roof.resource[1]
            )
            assert roof.bandwidth * roof.intensity <= roof.limit * (1 + 1e-9)


def test_bandwidth_of_all_instances(result: Result) -> None:
    """The edge chip: 2 x 2 clusters at 1 GHz; 64 B/cycle per buffer, 32 B/cycle per port and link."""
    chip = result.problem.chip
    assert bandwidth(chip, ("read", "dram")) == 25.6e9
    assert bandwidth(chip, ("read", "ibuf")) == 4 * 64e9
    assert bandwidth(chip, ("port", "cluster", "down")) == 4 * 32e9
    assert bandwidth(chip, ("axis", "cluster", "x")) == 2 * 2 * 32e9


@pytest.mark.parametrize("topology", CHIP_TOPOLOGIES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_links_are_those_that_routes_use(topology: Topology, size: int) -> None:
    used = {link for a in range(size) for b in range(size) for link in (route(topology, size, a, b) if size > 1 else ())}
    assert links(Axis("x", size, topology, Link(1.0))) == len(used)


def test_colours_differ_in_grey_too() -> None:
    def grey(colour: str) -> float:
        return sum(weight * int(colour[at : at + 2], 16) / 255 for at, weight in ((1, 0.299), (3, 0.587), (5, 0.114)))

    for first, second in pairwise(PALETTE):
        assert abs(grey(first) - grey(second)) > 0.1, (first, second)
    for colour in PALETTE:
        assert abs(grey(colour) - grey(ink_on(colour))) > 0.3, colour
    assert len(set(colours(map(str, range(20))).values())) == len(PALETTE) + 1


def test_a_front_that_is_not_there() -> None:
    with pytest.raises(BadInput, match="--front"):
        figure(made_result(front=False), "front")


def test_the_command_writes_svg(result_file: Path, empty_folder: Path, result: Result) -> None:
    for name in FIGURES:
        assert halley("figure", str(result_file), name).code == 0
        assert (empty_folder / f"{name}.svg").read_text() == svg_file(figure(result, name))
    assert halley("figure", str(result_file), "roofline").code == 1
    assert "did you mean 'roofline'" in halley("figure", str(result_file), "rooflin").err
    assert ".svg or .png" in halley("figure", str(result_file), "time", "-o", "time.gif").err


@pytest.mark.skipif(browser() is None, reason="no Chromium on the search path; install the package chromium")
def test_the_command_writes_png(result_file: Path, empty_folder: Path, result: Result) -> None:
    outcome = halley("figure", str(result_file), "time", "-o", "time.png")
    assert outcome.code == 0, outcome.err
    data = (empty_folder / "time.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    wanted = figure(result, "time")
    assert (width, height) == (2 * float(wanted.get("width", "0")), 2 * round(float(wanted.get("height", "0"))))
    assert (depth, kind) in ((8, 2), (8, 6))
    # the last row of pixels is white: the picture was not cut, and nothing lies below it
    packed, at = b"", 8
    while at < len(data):
        length = struct.unpack(">I", data[at : at + 4])[0]
        packed += data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
        at += length + 12
    raw = zlib.decompress(packed)
    assert len(raw) == height * (1 + width * (3 if kind == 2 else 4))
    assert len(set(raw)) > 20


def test_png_without_a_browser(result_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    outcome = halley("figure", str(result_file), "time", "-o", "time.png")
    assert outcome.code == 1
    assert "PNG: expected a Chromium" in outcome.err
    assert "chromium" in BROWSERS


# --- tables ---------------------------------------------------------------------------------------------------------------


def rows(result: Result, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(SHEETS[name](result)))))


def test_tables_add_up_to_the_result(result: Result) -> None:
    plans = {plan.name: plan.estimate for plan in (result.best, *result.baselines)}
    for name, cost in plans.items():
        parts = [row for row in rows(result, "parts") if row["plan"] == name]
        assert sum(float(row["value"]) for row in parts if row["quantity"] == "time") == pytest.approx(float(cost.time), rel=1e-9)
        assert sum(float(row["value"]) for row in parts if row["quantity"] == "energy") == pytest.approx(
            float(cost.energy), rel=1e-9
        )
        for memory in ("dram", "glb", "obuf"):
            moved = sum(
                float(row["bytes_B"]) for row in rows(result, "traffic") if (row["plan"], row["memory"]) == (name, memory)
            )
            assert moved == float(cost.traffic(memory))
        busy = {row["resource"]: float(row["busy_s"]) for row in rows(result, "resources") if row["plan"] == name}
        assert busy == {resource_name(key): float(value) for key, value in cost.busy.items()}
        (root,) = (row for row in rows(result, "nodes") if (row["plan"], row["line"]) == (name, "1"))
        assert float(root["time_s"]) == float(cost.time)
        assert float(root["outer_B"]) == float(cost.traffic("dram"))
        (whole,) = (row for row in rows(result, "comparison") if row["plan"] == name)
        assert (float(whole["time_s"]), float(whole["energy_J"])) == (float(cost.time), float(cost.energy))
    assert [(float(row["time_s"]), float(row["energy_J"])) for row in rows(result, "front")] == [
        (p.time, p.energy) for p in result.front
    ]


def test_a_name_is_no_formula_in_a_spreadsheet(result: Result) -> None:
    bad = replace(result, best=replace(result.best, name="=HYPERLINK(1)"))
    assert {row["plan"] for row in rows(bad, "comparison")} >= {"'=HYPERLINK(1)"}
    assert any(NASTY in row["plan"] for row in rows(nasty_result(), "comparison"))


def test_the_command_writes_tables(result_file: Path, empty_folder: Path, result: Result) -> None:
    for name in SHEETS:
        assert halley("table", str(result_file), name).out == csv_text(SHEETS[name](result))
        assert halley("table", str(result_file), name, "-o", f"{name}.csv").code == 0
        assert (empty_folder / f"{name}.csv").read_text() == csv_text(SHEETS[name](result))
    assert halley("table", str(result_file), "nodes", "-o", "nodes.csv").code == 1
    assert "did you mean 'nodes'" in halley("table", str(result_file), "node").err


def test_the_chip_says_what_each_memory_holds(result: Result) -> None:
    """Tiles as the mapping has them, shares as the estimate has them."""
    texts = [item.text or "" for item in figure(result, "chip").iter("text")]
    chip, cost, workload = result.problem.chip, result.best.estimate, result.problem.workload
    for memory in chip.memories:
        assert any(text.startswith(f"{memory.name}, ") for text in texts)
        used = float(cost.footprint.get(memory.name, 0.0)) / memory.capacity
        assert f"{percent(used, 1.0)} full" in texts
    for name in (*workload.inputs, *workload.outputs):  # whole in DRAM
        extents = " x ".join(str(workload.dims[dim]) for dim in workload.tensors[name].dims)
        assert f"{name}: {extents}" in texts
    for resource in (("engine", "matrix"), ("bus", "dram")):
        assert f"{percent(float(cost.busy.get(resource, 0.0)), float(cost.time))} busy" in texts
