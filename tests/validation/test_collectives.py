"""Fitted libraries against measured collectives, where the measurements are at hand."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from validation.collectives.__main__ import main, rows
from validation.collectives.compare import TABLE, compare, judged, machines

from halley.cli.validate import DATA
from halley.io.networks.fits import load_fit
from halley.library import NETWORK_FITS
from halley.network.fit.calibrate import calibrate

FOLDER = Path(os.environ[DATA]) if os.environ.get(DATA) else None
needs_data = pytest.mark.skipif(FOLDER is None, reason=f"no data: set {DATA} to their folder")

TABLE_OF_TWO = "gpu,impl,interconnect,peak_unidir_GBps_per_gpu,n_ranks,collective,size_bytes,time_us\n" + "".join(
    f"{gpu},lib 1,NVLink,{100 * peak},{ranks},all_reduce,{2**power},{8 + ranks + peak * 2**power / 1e5}\n"
    for gpu, peak in (("a", 1), ("b", 2))
    for ranks in (2, 4)
    for power in range(10, 24)
)


def test_no_data_is_said(tmp_path: Path) -> None:
    assert compare(None).skipped == compare(tmp_path).skipped == "no data: measured_collectives.csv"


def test_machines_are_judged_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / TABLE).write_text(TABLE_OF_TWO)
    found = machines(tmp_path / TABLE)
    assert [(machine.name, machine.peak, len(measured)) for machine, measured in found.items()] == [
        ("a, lib 1", 100e9, 28),
        ("b, lib 1", 200e9, 28),
    ]
    assert all(item.overlay < 0.01 for _, item in judged(tmp_path / TABLE))
    assert [row[:3] for row in rows(tmp_path / TABLE)] == [(f"{gpu}, lib 1", "all-reduce", n) for gpu in "ab" for n in "24"]
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("\n") == 6
    assert main([str(tmp_path / "none")]) == 1


@pytest.mark.slow
@needs_data
def test_targets_are_met() -> None:
    outcome = compare(FOLDER)
    assert outcome.holds, [(line.quantity, line.mean_error) for line in outcome.lines if not line.holds]
    assert len(outcome.lines) == 6


@needs_data
def test_shipped_fits_are_those_of_the_measurements() -> None:
    assert FOLDER is not None
    shipped = {(fit.machine, fit.software): fit for fit in map(load_fit, NETWORK_FITS.names())}
    found = machines(FOLDER / TABLE)
    assert len(found) == len(shipped)
    for machine, measured in list(found.items())[:4]:
        name = "a100-fully-connected" if machine.gpu == "A100" else machine.gpu.replace("_", "-")
        fit = shipped[name, machine.software.lower()]
        again = calibrate(measured, fit.machine, fit.software, fit.source, fit.dated)
        assert replace(again, channels=fit.channels) == fit  # channels are of logs, not of these tables
