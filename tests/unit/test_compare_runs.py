"""Two runs of benchmarks or of a study are compared: values one by one, costs by the mean of their ratios."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks import compare


def run(monkeypatch: pytest.MonkeyPatch, *files: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["compare", *map(str, files)])
    return compare.main()


def test_benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"name": "energy", "value": 3.0, "unit": "mJ"},
        {"name": "search", "value": 1.0, "unit": "s"},
        {"name": "rate", "value": 10.0, "unit": "1/s"},
    ]
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(rows))
    rows[1]["value"], rows[2]["value"] = 2.0, 5.0
    after.write_text(json.dumps(rows))
    assert run(monkeypatch, before, after) == 0
    assert "2 costs: geometric mean of after / before 2.000" in capsys.readouterr().out
    rows[0]["value"] = 3.3
    after.write_text(json.dumps(rows[:2]))
    assert run(monkeypatch, before, after) == 1
    printed = capsys.readouterr().out
    assert "energy: 3 -> 3.3 (+10.000%)" in printed
    assert "rate: 0.1 -> none" in printed


def test_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kept = json.loads((Path(__file__).parents[2] / "docs" / "studies" / "ssm.json").read_text(encoding="utf-8"))
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(kept))
    kept["rows"][0]["seconds"] *= 2
    after.write_text(json.dumps(kept))
    assert run(monkeypatch, before, after) == 0
    kept["rows"][0]["best"]["time"] *= 1.01
    after.write_text(json.dumps(kept))
    assert run(monkeypatch, before, after) == 1
    assert "best.time: " in capsys.readouterr().out


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(SystemExit, match=r"expected benchmarks/latest\.json or the JSON of a study"):
        run(monkeypatch, other, other)
