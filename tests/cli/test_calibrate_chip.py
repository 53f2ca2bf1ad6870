"""``halley calibrate chip``: a table in, a fit, a figure and two tables out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.running import halley

from halley.io.chips.fits import load_chip_fit
from halley.io.chips.load import load_chip
from halley.kernels.calibrate import TYPICAL_EFFICIENCY
from halley.kernels.machine import HostTime, machine
from halley.kernels.times import Gemm, call_time, elementwise

TRUE = replace(TYPICAL_EFFICIENCY, matrix=0.8, memory=0.75, hosts={"gemm": HostTime(2e-5), "gelu": HostTime(1e-5)})


@pytest.fixture
def table(empty_folder: Path) -> str:
    """Twelve GEMMs and eight streams that a machine of known efficiency would have measured."""
    chip = machine(load_chip("h100"))
    lines = ["operator,dtype,m,n,k,elements,time"]
    for size in range(7, 13):
        for depth in (4096, 8192):
            took = float(call_time("gemm", Gemm(2**size, 4096, depth), chip, TRUE))
            lines.append(f"gemm,bf16,{2**size},4096,{depth},,{took * 1e6:.6f} us")
    for power in range(20, 28):
        took = float(call_time("gelu", elementwise(2**power, "gelu"), chip, TRUE))
        lines.append(f"gelu,bf16,,,,{2**power},{took * 1e3:.8f} ms")
    (empty_folder / "mine.csv").write_text("\n".join(lines) + "\n")
    return "mine.csv"


def test_a_table_becomes_a_fit(table: str, empty_folder: Path) -> None:
    made = halley("calibrate", "chip", table, "--chip", "h100", "-o", "fit.yaml", "--plot", "fit.svg", "--source", "my node")
    assert made.code == 0, made.err
    assert "written to fit.yaml\nwritten to fit.svg\n" in made.err
    assert "h100: parameters" in made.out
    assert "h100: mean relative errors" in made.out
    assert "not determined by the rows" in made.out
    found = load_chip_fit(empty_folder / "fit.yaml")
    assert (found.chip, found.source) == ("h100", "my node")
    assert (found.efficiency.matrix, found.efficiency.memory) == pytest.approx((0.8, 0.75), rel=0.05)
    assert {"overlap", "launch"} <= set(found.assumed)
    assert all(item.held_out is not None and item.held_out < 0.03 for item in found.series)


def test_the_figure_has_every_row_twice(table: str, empty_folder: Path) -> None:
    assert halley("calibrate", "chip", table, "--chip", "h100", "--plot", "fit.svg", "--source", "<b>").code == 0
    drawn = ElementTree.parse(empty_folder / "fit.svg").getroot()
    circles = drawn.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 2 * 20
    assert sum(circle.get("fill") == "#ffffff" for circle in circles) == 2 * 10, "as many rings as dots"
    assert "<b>" not in (empty_folder / "fit.svg").read_text()


def test_json_is_the_fit(table: str) -> None:
    made = halley("calibrate", "chip", table, "--chip", "h100", "--launch", "2", "--json").json
    assert made["efficiency"]["launch"] == pytest.approx(2e-6)
    assert [item["operator"] for item in made["series"]] == ["gemm", "gelu"]


def test_what_is_wrong_is_said_before_anything_is_written(table: str, empty_folder: Path) -> None:
    (empty_folder / "there.yaml").write_text("mine")
    (empty_folder / "short.csv").write_text("operator,dtype,elements,time\ngelu,bf16,5,1 us\n")
    (empty_folder / "wrong.csv").write_text("operator,dtype,elements,time\ngelu,fp8,5,1 us\ngelu,bf16,x,1\n")
    (empty_folder / "fp8.csv").write_text("operator,dtype,m,n,k,time\n" + "gemm,fp8,64,64,64,9 us\n" * 4)
    for words, message in (
        (("none.csv", "--chip", "h100"), "halley: none.csv: expected a file; got no such file"),
        ((table, "--chip", "h10"), "got 'h10'; did you mean 'h100'?"),
        ((table, "--chip", "h100", "-o", "there.yaml"), "there.yaml: expected a new file; got a file that exists"),
        ((table, "--chip", "h100", "--plot", "a.gif"), "--plot: expected a name that ends in .svg or .png; got 'a.gif'"),
        (("short.csv", "--chip", "h100"), "short.csv: expected at least 4 rows; got 1; measure more shapes"),
        (("wrong.csv", "--chip", "h100"), "wrong.csv:3: elements: expected a whole number"),
        (("fp8.csv", "--chip", "a100"), "chip a100: expected a type that its matrix engine has; got fp8"),
    ):
        made = halley("calibrate", "chip", *words)
        assert made.code != 0
        assert message in made.err
    assert (empty_folder / "there.yaml").read_text() == "mine"
    assert not (empty_folder / "chip-fit.yaml").exists()
