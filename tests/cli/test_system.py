"""``halley system`` from end to end, and the page about systems."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.running import halley
from tests.unit.test_schema import fits

from halley import library
from halley.io.files.text import read_yaml
from halley.io.schema import schema
from halley.io.systems.system import load_system, parse_system

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "systems.md").read_text(encoding="utf-8")


def test_list_names_every_system() -> None:
    outcome = halley("system", "list", width=160)
    assert outcome.code == 0
    assert [name for name in library.SYSTEMS.names() if name not in outcome.out] == []
    grid = halley("system", "list", "dfmodel", width=160)
    assert grid.code == 0
    assert len(re.findall(r"^\S+/\S+/\S+/\S+ +1024 ", grid.out, re.MULTILINE)) == 80


def test_show_prints_the_numbers() -> None:
    outcome = halley("system", "show", "1024 x h100, nvlink 8, ib", width=140)
    assert outcome.code == 0
    text = re.sub(r"\s+", " ", outcome.out)
    for words in (
        "chips 1024 h100",
        "ib 128 switch 42.5 GB/s 2.5 us 21.76 TB/s",
        "nvlink 8 switch with multicast and reduction on request 450 GB/s 500 ns 230.4 TB/s",
        "host 238.4 GiB 76.8 GB/s 63.02 GB/s",
        "chips 1024 716.8 kW 30,720,000",
        "nodes 1024 588.8 kW not stated",
        "all that is stated 1.362 MW 41,492,480",
        "DGX SuperPOD reference architecture",
    ):
        assert words in text


def test_a_small_system_is_drawn(empty_folder: Path) -> None:
    assert {"0", "3", "7"} <= set(re.findall(r"\d+", halley("system", "show", "sn10-torus").out.split("System")[0]))
    assert halley("system", "show", "sn10-ring", "-o", "ring.svg").code == 0
    assert ElementTree.parse(empty_folder / "ring.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("name", ["gb200-nvl72-pod", "1 x edge"])
def test_json_is_a_file_that_reads_back(name: str) -> None:
    outcome = halley("system", "show", name, "--json")
    again, system = parse_system(outcome.out), load_system(name)
    assert (again.axes, again.chip_cost, again.node_cost) == (system.axes, system.chip_cost, system.node_cost)


def test_shipped_files_fit_the_schema() -> None:
    rules = schema("system")
    texts = {name: read_yaml(library.SYSTEMS.text(name), name).data for name in library.SYSTEMS.names()}
    assert [name for name, data in texts.items() if not fits(data, rules, rules)] == []
    assert not fits({"name": "x"}, rules, rules)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "dgx-h100-po"], "did you mean 'dgx-h100-pod'?"),
        (["show", "8 x h100, nvlnk"], "halley: system, axis 'nvlnk': expected a port of h100 (nvlink, ib, pcie)"),
        (["show", "sn10-ring", "-o", "x.pdf"], "a name that ends in .svg"),
        (["show", "1 x h100", "-o", "x.svg"], "expected a system with a network"),
        (["list", "dfmodl"], "did you mean 'dfmodel'?"),
    ],
)
def test_faults(words: list[str], said: str, empty_folder: Path) -> None:
    outcome = halley("system", *words)
    assert outcome.code == 1
    assert said in outcome.err
    assert list(empty_folder.iterdir()) == []


def test_no_file_is_replaced(empty_folder: Path) -> None:
    (empty_folder / "old.svg").write_text("kept")
    assert halley("system", "show", "sn10-ring", "-o", "old.svg").code == 1
    assert (empty_folder / "old.svg").read_text() == "kept"


def test_the_page_about_systems_runs(empty_folder: Path) -> None:
    ran = 0
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        if named := re.match(r"# (\S+\.yaml)\n", block):
            (empty_folder / named[1]).write_text(block)
        if language == "python":
            exec(compile(block, "systems.md", "exec"), {})
        for line in block.splitlines() if language == "console" else ():
            outcome = halley(*shlex.split(line)[2:])
            assert outcome.code == 0, f"{line}\n{outcome.err}"
            ran += 1
    assert ran >= 6


def test_the_page_has_every_system_and_every_port() -> None:
    from halley.io.systems.models import parts_table

    assert [name for name in library.SYSTEMS.names() if f"`{name}`" not in PAGE] == []
    for chip, row in parts_table().chips.items():
        assert [port for port in row.ports if not re.search(rf"^\| `{chip}` \|.*`{port}`", PAGE, re.MULTILINE)] == []
