"""Fits of library kernels against measured tables, where the tables are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from validation.kernels.__main__ import main
from validation.kernels.compare import DEVICES, MEANS, TABLES, compare, judged, rank_correlation, score

from halley.cli.validate import DATA

FOLDER = Path(os.environ[DATA]) if os.environ.get(DATA) else None
needs_data = pytest.mark.skipif(FOLDER is None, reason=f"no data: set {DATA} to their folder")


def test_no_data_is_said(tmp_path: Path) -> None:
    assert compare(None).skipped == compare(tmp_path).skipped == "no data: kernels/*.csv"


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["x", "--draw"]) == 1
    assert "usage" in capsys.readouterr().err


def test_rank_correlation_of_orders() -> None:
    order = np.arange(20.0)
    assert rank_correlation(order, order) == 1
    assert rank_correlation(order, -order) == -1
    assert rank_correlation(order, np.zeros(20)) == 0


@needs_data
@pytest.mark.medium
def test_the_smallest_table_is_predicted_better_than_by_a_roofline() -> None:
    assert FOLDER is not None
    found = score([item for chip in DEVICES.values() for item in judged(FOLDER, "mamba2", chip)])
    assert found.mean < MEANS["mamba2"] < found.baseline
    assert 0.7 < found.covered < 0.95


@needs_data
@pytest.mark.slow
def test_every_family_holds() -> None:
    outcome = compare(FOLDER)
    assert len(outcome.lines) == len(TABLES)
    assert [line.quantity for line in outcome.lines if not line.holds] == []
