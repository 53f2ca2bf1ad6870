"""Measured serving: rules of the comparison, and its tolerances where the tables are present."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from validation.serving.compare import SKIPPED, compare, medians, rank_and_regret
from validation.serving.rows import END_TO_END, Measured, halves, measured
from validation.serving.speculation import curve_cases, rounds

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("HALLEY_DATA", ROOT.parent / "shared" / "data"))
present = pytest.mark.skipif(not (DATA / END_TO_END).is_file(), reason="no data")


def test_without_data_nothing_is_said() -> None:
    assert compare(None).skipped == SKIPPED


def test_errors_and_ranks() -> None:
    assert medians([(1.1, 1.0), (1.0, 2.0), (3.0, 3.0)]) == (pytest.approx(0.1), pytest.approx(0.2), 3)
    assert np.isnan(rank_and_regret([], [], [])[0])


@present
@pytest.mark.medium
def test_halves_share_no_pair() -> None:
    """Every pair of GPU and model is in one half alone, by a rule that looks at names only."""
    rows = list(measured(DATA, ("static",)))
    fitted, judged = halves(rows)
    assert len(fitted) + len(judged) == len(rows) > 900
    pairs = [{row.pair for row in half} for half in (fitted, judged)]
    assert not pairs[0] & pairs[1]
    assert sorted(pairs[0] | pairs[1])[::2] == sorted(pairs[0])
    assert all(isinstance(row, Measured) for row in rows)


@present
@pytest.mark.medium
def test_speculation_against_measurements() -> None:
    cases = list(curve_cases(DATA))
    assert len(cases) > 150
    assert np.mean([abs(case.error) for case in cases]) < 0.02
    signs = [(found.speedup > 1) == (given > 1) for _, found, given in rounds(DATA)]
    assert len(signs) >= 8
    assert np.mean(signs) >= 0.9


@present
@pytest.mark.slow
def test_tolerances_hold() -> None:
    outcome = compare(DATA)
    assert outcome.holds, [line.quantity for line in outcome.lines if not line.holds]
