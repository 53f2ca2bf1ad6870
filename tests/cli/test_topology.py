"""``halley topology`` from end to end, and the page about networks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.running import halley

from halley import library
from halley.io.networks.network import load_network, parse_network
from halley.report.browser import browser
from halley.report.networks.layout import layout
from halley.report.networks.topology import cables

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def test_list_names_every_network() -> None:
    outcome = halley("topology", "list", width=160)
    assert outcome.code == 0
    assert [name for name in library.NETWORKS.names() if name not in outcome.out] == []
    assert "torus 4,4,4" in outcome.out


def test_show_prints_the_measures() -> None:
    outcome = halley("topology", "show", "tpu-v4-cube", width=140)
    assert outcome.code == 0
    text = re.sub(r"\s+", " ", outcome.out)
    for words in (
        "ranks 64",
        "links 192, 192 of them in both directions",
        "diameter 6 links, 6 us",
        "bisection bandwidth 1.6 TB/s in each direction",
        "injection bandwidth 300 GB/s a rank",
        "price 74,880 USD",
        "power 1.229 kW with all links busy",
        "Jouppi et al., TPU v4",
    ):
        assert words in text


def test_the_picture_of_characters_has_every_rank() -> None:
    outcome = halley("topology", "show", "noc-mesh-8x8")
    picture = outcome.out.split("Network")[0]
    assert set(map(str, range(64))) <= set(re.findall(r"\d+", picture))


@pytest.mark.parametrize("name", library.NETWORKS.names())
def test_a_picture_has_every_vertex_and_every_link_in_its_frame(name: str) -> None:
    assert halley("topology", "show", name, "-o", "made.svg").code == 0
    root = ElementTree.parse("made.svg").getroot()
    graph = load_network(name).graph
    circles, wires = root.findall(f"{SVG}circle"), root.findall(f"{SVG}path")
    assert (len(circles), len(wires)) == (graph.ranks, len(list(cables(graph))))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for circle in circles:
        assert 0 < float(circle.get("cx", "-1")) < width
        assert 0 < float(circle.get("cy", "-1")) < height
    assert len({(circle.get("cx"), circle.get("cy")) for circle in circles}) == graph.ranks


@pytest.mark.parametrize("name", library.NETWORKS.names())
def test_no_two_vertices_share_a_place(name: str) -> None:
    places = {tuple(place) for place in layout(load_network(name)).round(6).tolist()}
    assert len(places) == load_network(name).graph.vertices


def test_json_is_a_file_that_reads_back() -> None:
    outcome = halley("topology", "show", "hgx-pod", "--json")
    assert parse_network(outcome.out).axes == load_network("hgx-pod").axes  # the order of axes too


def test_text_goes_to_a_file_too(empty_folder: Path) -> None:
    assert halley("topology", "show", "sn10-ring", "-o", "ring.txt").code == 0
    assert "·" in (empty_folder / "ring.txt").read_text()


@pytest.mark.skipif(browser() is None, reason="needs a Chromium")
def test_png(empty_folder: Path) -> None:
    assert halley("topology", "show", "dgx-1", "-o", "dgx.png").code == 0
    assert (empty_folder / "dgx.png").read_bytes().startswith(b"\x89PNG")


def test_names_in_a_file_become_no_markup(empty_folder: Path) -> None:
    link = "- {bandwidth: 1 GB/s, latency: 0 s, energy: 1 pJ/bit, between: [[0, '<b>'], [1, '<b>']]}"
    (empty_folder / "own.yaml").write_text(f"name: '<script>'\nranks: 2\nswitches: [{{name: '<b>'}}]\nlinks:\n  {link}\n")
    outcome = halley("topology", "show", "own.yaml", "-o", "own.svg")
    assert outcome.code == 0
    assert "<script>" in outcome.out
    text = (empty_folder / "own.svg").read_text()
    assert "<script>" not in text
    assert "<b>" not in text


def test_faults(empty_folder: Path) -> None:
    outcome = halley("topology", "show", "dgx-0")
    assert outcome.code == 1
    assert "expected the name of a shipped network" in outcome.err
    assert "did you mean 'dgx-" in outcome.err
    assert "a name that ends in .svg, .png or .txt" in halley("topology", "show", "dgx-1", "-o", "x.pdf").err
    (empty_folder / "old.svg").write_text("kept")
    assert halley("topology", "show", "dgx-1", "-o", "old.svg").code == 1
    assert (empty_folder / "old.svg").read_text() == "kept"
    assert halley("topology", "show", "dgx-1", "-o", "old.svg", "--force").code == 0


def test_the_page_about_networks_runs(empty_folder: Path) -> None:
    text = (DOCS / "reference" / "networks.md").read_text(encoding="utf-8")
    ran = 0
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if named := re.match(r"# (\S+\.yaml)\n", block):
            (empty_folder / named[1]).write_text(block)
        if language == "python":
            exec(compile(block, "networks.md", "exec"), {})
        for line in block.splitlines() if language == "console" else ():
            outcome = halley(*shlex.split(line)[2:])
            assert outcome.code == 0, f"{line}\n{outcome.err}"
            ran += 1
    assert ran >= 4
    assert [name for name in library.NETWORKS.names() if f"`{name}`" not in text] == []
