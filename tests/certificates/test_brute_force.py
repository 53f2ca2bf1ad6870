"""The front of a sweep against designs that it left out, searched by themselves."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from studies import brute_force
from studies.brute_force import beating, searched_values
from tests.unit.sweep_studies import TWO

from halley.sweeps.explore import Standing
from halley.sweeps.load import parse_study
from halley.sweeps.run import DesignSweep

EDGE_CHIPS = Path(__file__).parents[2] / "studies/sweeps/edge-chips.yaml"
SMALLER = {
    "m: 128, n: 6144, k: 4096": "m: 32, n: 96, k: 64",
    "heads: 32, kv_heads: 8, queries: 128, keys: 128, head_dim: 128": "heads: 2, kv_heads: 1, queries: 16, keys: 32, head_dim: 8",
    "tokens: 128, model: 4096, hidden: 14336": "tokens: 32, model: 64, hidden: 128",
}


@pytest.mark.slow
def test_no_excluded_design_of_a_thousand_chips_beats_the_front() -> None:
    """The six axes of the study of a thousand chips with smaller workloads: the sweep ends, and of the designs that it did not
    search, a drawn sample, searched by itself, has none that is better than the front."""
    text = EDGE_CHIPS.read_text(encoding="utf-8")
    for large, small in SMALLER.items():
        assert large in text
        text = text.replace(large, small)
    study = parse_study(text)
    result = DesignSweep(study, workers=0).run()
    assert result.done
    assert result.gap <= study.gap + 1e-9
    assert len(result.outcomes) == 1000
    touched = sum(bool(outcome.answers) for outcome in result.outcomes)
    assert touched <= 1000 / 3
    excluded = [o.design.number for o in result.outcomes if o.standing is Standing.EXCLUDED]
    drawn = random.Random(7).sample(excluded, 30)
    values = searched_values(study, None, drawn, 1e9)
    assert sorted(values) == sorted(drawn)
    assert beating(result, values) == {}


@pytest.mark.medium
def test_brute_force_goes_on_and_finds_what_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "two.yaml"
    study.write_text(TWO)

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["brute_force", str(study), *words])
        return brute_force.main()

    DesignSweep(str(study), tmp_path / "two.db", workers=0).close()
    with pytest.raises(SystemExit):  # no sweep yet
        run()
    result = DesignSweep(str(study), tmp_path / "two.db", workers=0).run()
    assert run("--limit", "0") == 3
    assert run() == 0
    assert "16 of 16 designs searched; 0 are better than the front" in capsys.readouterr().out
    values = searched_values(result.study, tmp_path / "two.all.db", None, 0.0)
    assert len(values) == 16
    best = result.best
    assert best is not None
    assert list(beating(replace(result, front=result.front[1:]), values)) != []
