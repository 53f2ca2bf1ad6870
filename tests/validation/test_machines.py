"""Kernels and passes that were timed for Halley: what the files hold, and the comparison."""

from __future__ import annotations

import pytest
from validation.machines.compare import CHIPS, PASSES, compare, measured, name_of, passes, predicted

from halley.io.chips.fits import load_chip_fit
from halley.io.chips.software import load_software
from halley.measure.suite import suite
from halley.measure.tables import attention_share


def test_the_suite_was_timed_as_a_whole() -> None:
    timed = {str(item.case) for item in measured()}
    assert timed == {str(case) for case in suite(("gemm", "grouped", "attention", "rows"))}
    assert max(item.timing.spread for item in measured()) < 0.2


def test_the_software_has_the_measured_share_of_attention() -> None:
    share, kernels = attention_share(measured())
    assert load_software("pytorch").attention == pytest.approx(share, abs=0.005)
    assert kernels == 51


def test_the_load_of_the_fit_is_a_row() -> None:
    loaded = load_chip_fit("h100").loaded
    assert loaded is not None
    product = loaded.product
    sizes = {"m": product.rows, "n": product.columns, "k": product.depth}
    (row,) = [item for item in measured() if dict(item.case.sizes) == sizes and item.case.dtype == "bf16"]
    assert loaded.time == pytest.approx(row.timing.time, rel=1e-5)


def test_one_pass() -> None:
    row = passes("h100")[0]
    assert name_of(row) == "gpt-1.3b, 1 sequences of 2048 tokens"
    forward, backward = predicted(row, "h100", load_software("pytorch"))
    assert forward == pytest.approx(row["forward"], rel=0.1)
    assert backward == pytest.approx(row["backward"], rel=0.1)


@pytest.mark.medium
def test_comparison() -> None:
    found = compare()
    assert found.holds
    lines = {line.quantity: line for line in found.lines}
    for chip in CHIPS:
        said = f"passes of training, {chip.upper()}"
        own, software, constant = (lines[f"{said}, {kind}"] for kind in ("none fitted", "no software", "one utilisation"))
        assert own.mean_error < PASSES[chip][0] < min(software.mean_error, constant.mean_error)
