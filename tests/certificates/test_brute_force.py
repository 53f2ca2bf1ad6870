"""The front of a sweep against designs that it left out, searched by themselves."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from studies import brute_force
from studies.brute_force import ROUNDING, beating, searched_values
from tests.unit.sweep_studies import TWO

from halley.sweeps.load import parse_study
from halley.sweeps.run import DesignSweep

EDGE_CHIPS = Path(__file__).parents[2] / "studies/sweeps/edge-chips.yaml"
SMALLER = {
    "m: 128, n: 6144, k: 4096": "m: 32, n: 96, k: 64",
    "{kind: attention, batch: 1, heads: 32, kv_heads: 8, queries: 128, keys: 128, head_dim: 128, causal: true}": (
        "{kind: gemm-softmax, m: 8, n: 16, k: 8}"
    ),
    "{kind: gated-mlp, tokens: 128, model: 4096, hidden: 14336}": "{kind: gemm, m: 16, n: 64, k: 32}",
    "gap: 0.01": "gap: 0",
}
"""Workloads whose searches take a second (scores for attention, a product for the block), and a front without any gap."""
DRAWN = 16


@pytest.mark.slow
def test_the_front_of_drawn_chips_is_that_of_brute_force() -> None:
    """Designs drawn from the thousand of the study, with its six axes and smaller workloads: the sweep's front, which is exact,
    is that of all designs searched one by one, with fewer searches."""
    text = EDGE_CHIPS.read_text(encoding="utf-8")
    for large, small in SMALLER.items():
        assert large in text
        text = text.replace(large, small)
    study = parse_study(text)
    every = study.designs()
    assert len(every) == 1000
    drawn = random.Random(23).sample(every, DRAWN)
    result = DesignSweep(study, workers=0, designs=drawn).run()
    assert result.done
    assert result.gap <= ROUNDING
    values = searched_values(study, None, [design.number for design in drawn], 1e9)
    assert len(values) == DRAWN
    points = {(values[design.number], design.figures["die_area"]) for design in drawn}
    best = {point for point in points if not any(dominates(other, point) for other in points)}
    front = {
        (outcome.value, outcome.design.figures["die_area"]) for place in result.front for outcome in [result.outcomes[place]]
    }
    assert len(front) >= 3
    assert sorted(front) == [pytest.approx(point, rel=ROUNDING) for point in sorted(best)]
    assert beating(result, values) == {}
    searches = sum(len(outcome.answers) for outcome in result.outcomes)
    assert searches < DRAWN * len(study.workloads) / 2


def dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether a point is no worse in both figures, and better in one by more than rounding."""
    no_worse = all(a <= b * (1 + ROUNDING) for a, b in zip(one, other, strict=True))
    return no_worse and any(a < b * (1 - ROUNDING) for a, b in zip(one, other, strict=True))


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
    assert run("--sample", "3") == 0
    assert "3 of 3 excluded designs searched; 0 are better than the front" in capsys.readouterr().out
    assert run("--draw", "12") == 0
    told = capsys.readouterr().out
    assert "a sweep of 12 designs" in told
    assert "0 are better than the front" in told
    values = searched_values(result.study, tmp_path / "two.all.db", None, 0.0)
    assert len(values) == 16
    best = result.best
    assert best is not None
    assert list(beating(replace(result, front=result.front[1:]), values)) != []
