"""``halley calibrate network``: a log in, a fit, a figure and two tables out."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.running import halley
from tests.unit.nccl_logs import log

from halley.io.networks.fits import load_fit
from halley.ir.mapping import CollectiveKind

SIZES = tuple(2**power for power in range(10, 28))


def all_reduce(ranks: int) -> str:
    """Two protocols: 10 us and 40 GB/s for small messages, 35 us and 200 GB/s for large ones."""
    sent = 2 * (ranks - 1) / ranks
    return log("all_reduce", ranks, SIZES, lambda size: min(1e-5 + sent * size / 4e10, 3.5e-5 + sent * size / 2e11), 0.03, ranks)


@pytest.fixture
def logs(empty_folder: Path) -> list[str]:
    for ranks in (2, 4):
        (empty_folder / f"{ranks}.log").write_text(all_reduce(ranks))
    return ["2.log", "4.log"]


def test_a_log_becomes_a_fit(logs: list[str], empty_folder: Path) -> None:
    named = ("--machine", "mine", "--software", "nccl 2")
    made = halley("calibrate", "network", *logs, *named, "-o", "fit.yaml", "--plot", "fit.svg")
    assert made.code == 0, made.err
    assert "written to fit.yaml\nwritten to fit.svg\n" in made.err
    assert "mine, nccl 2: protocols" in made.out
    assert made.out.count("all-reduce") == 2
    overlay = load_fit(empty_folder / "fit.yaml")
    assert (overlay.machine, overlay.software, overlay.source) == ("mine", "nccl 2", "2.log, 4.log")
    assert overlay.fits[0].protocols[-1].bandwidth == pytest.approx(2e11, rel=0.1)
    assert overlay.time(CollectiveKind.ALL_REDUCE, 4, 2**26) == pytest.approx(3.5e-5 + 1.5 * 2**26 / 2e11, rel=0.05)
    assert all(item.held_out is not None and item.held_out < 0.05 for item in overlay.fits[0].series)


def test_the_figure_has_every_row_twice(logs: list[str], empty_folder: Path) -> None:
    """As a time and as a residual, at the heights that the axes say."""
    assert halley("calibrate", "network", *logs, "--plot", "fit.svg").code == 0
    drawn = ElementTree.parse(empty_folder / "fit.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    circles = drawn.findall(f"{space}circle")
    assert len(circles) == 2 * 2 * len(SIZES)
    tips = [circle.findtext(f"{space}title") or "" for circle in circles]
    assert all(tip.startswith("all-reduce on ") and "measured" in tip and "fit" in tip for tip in tips)
    assert len(drawn.findall(f"{space}polyline")) == 2
    text = "".join(drawn.itertext())
    assert all(word in text for word in ("2 ranks", "4 ranks", "all-reduce", "1 MiB", "+10 %", "unnamed"))


def test_json_is_the_overlay(logs: list[str]) -> None:
    made = halley("calibrate", "network", *logs, "--json")
    assert made.json["fits"][0]["family"] == "ring"
    assert [item["ranks"] for item in made.json["fits"][0]["series"]] == [2, 4]


def test_text_of_the_user_stays_text(logs: list[str], empty_folder: Path) -> None:
    name = '<script>"a": [b]'
    assert halley("calibrate", "network", *logs, "--machine", name, "--plot", "fit.svg").code == 0
    assert load_fit(empty_folder / "network.yaml").machine == name
    assert "<script>" not in (empty_folder / "fit.svg").read_text()


def test_what_is_wrong_is_said_before_anything_is_written(logs: list[str], empty_folder: Path) -> None:
    (empty_folder / "there.yaml").write_text("mine")
    (empty_folder / "bad.log").write_text("nothing\n")
    for words, message in (
        (("network", "none.log"), "halley: none.log: expected a file; got no such file; check the path"),
        (("network", "bad.log"), "halley: bad.log: expected a table of nccl-tests, or a CSV with a head; got neither"),
        (("network", *logs, "-o", "there.yaml"), "halley: there.yaml: expected a new file; got a file that exists"),
        (("network", *logs, "--plot", "a.gif"), "halley: --plot: expected a name that ends in .svg or .png; got 'a.gif'"),
        (("network", *logs, "--collective", "allreduec"), "got 'allreduec'; did you mean 'all_reduce'?"),
        (("network",), "halley: halley calibrate network: expected FILE..."),
        (("netwrok",), "halley: command of halley calibrate: expected a known one; got 'netwrok'; did you mean 'network'?"),
    ):
        outcome = halley("calibrate", *words)
        assert outcome.code == 1, outcome
        assert message in outcome.err
        assert outcome.err.count("\n") <= 2
    assert (empty_folder / "there.yaml").read_text() == "mine"
    assert not (empty_folder / "network.yaml").exists()
