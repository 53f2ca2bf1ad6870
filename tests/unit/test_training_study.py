"""The study of training plans: its page shows what was kept, rows are lawful, and a case is planned again."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from studies import training
from studies.store import DOCS
from studies.training import MODELS, SYSTEMS, cases, load, solve

from halley.report.markup import svg_file

ROWS, PLANNED_ON = load()


def test_every_case_is_there() -> None:
    assert [row.key for row in ROWS] == cases()
    assert len(ROWS) == len(MODELS) * len(SYSTEMS)


def test_page_and_figure_show_what_was_kept() -> None:
    assert (DOCS / "training.md").read_text(encoding="utf-8") == training.page(ROWS, PLANNED_ON)
    svg = svg_file(training.figure(ROWS))
    assert (DOCS / "training.svg").read_text(encoding="utf-8") == svg
    assert len(ElementTree.fromstring(svg).findall(".//{*}rect/{*}title")) == 2 * len(ROWS)


def test_rows_are_lawful() -> None:
    for row in ROWS:
        if row.reason:
            assert math.isinf(row.time)
            continue
        assert row.gap > -1e-9
        assert 0 < row.memory <= 1
        assert 0 < row.utilisation < 1.5, "what a mask hides is counted, twice the work at most"


def test_a_case_is_planned_again() -> None:
    """The figures of the page are those of the present source."""
    kept = {row.key: row for row in ROWS}
    found = solve(*cases()[0], "")
    assert found.time == pytest.approx(kept[found.key].time, rel=1e-6)
    assert found.plan == kept[found.key].plan


def test_known_rows_are_not_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "DOCS", tmp_path)
    training.save([replace(row, source=training.source()) for row in ROWS], "somewhere")
    said: list[str] = []
    training.run(again=False, say=said.append)
    assert said == [f"training: {len(ROWS)} cases, {len(ROWS)} of them known before"]
    assert [row.key for row in load()[0]] == cases()
    assert (tmp_path / "training.md").exists()
