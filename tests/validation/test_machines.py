"""Kernels and passes that were timed for Halley: what the files hold, and the comparison."""

from __future__ import annotations

import pytest
from validation.machines.compare import COMPILED, SECOND, compare, measured, name_of, passes, predicted

from halley.io.chips.software import load_software
from halley.measure.suite import GROUPS, UNDER_LOAD, Case, suite
from halley.measure.tables import attention_share


@pytest.mark.parametrize(("name", "parts"), [("h100", 4), (SECOND, 5), ("h200", 5)])
def test_the_suite_was_timed_as_a_whole(name: str, parts: int) -> None:
    timed = {str(item.case) for item in measured(name)}
    assert timed == {str(case) for case in suite(tuple(GROUPS)[:parts])}
    assert max(item.timing.spread for item in measured(name)) < 0.3


def test_the_software_has_the_measured_share_of_attention() -> None:
    share, kernels = attention_share(measured())
    assert (
        load_software("pytorch").on("h100").attention
        == load_software(COMPILED).on("h200").attention
        == pytest.approx(share, abs=0.005)
    )
    assert kernels == 51
    assert attention_share(measured(SECOND))[0] == pytest.approx(share, abs=0.02)


def test_a_product_under_load_takes_longer() -> None:
    known = {str(item.case): item.timing.time for item in measured(SECOND)}
    sizes = {"m": 8192, "n": 8192, "k": 8192}
    assert 1.1 < known[str(Case(UNDER_LOAD, sizes))] / known[str(Case("gemm", sizes))] < 1.3


def test_one_pass() -> None:
    row = passes("h100", "train compiled")[0]
    assert name_of(row) == "gpt-6.7b, 8 layers, 2 sequences of 2048 tokens"
    forward, backward = predicted(row, "h100", load_software(COMPILED))
    assert forward == pytest.approx(row["forward"], rel=0.1)
    assert backward == pytest.approx(row["backward"], rel=0.1)


@pytest.mark.medium
def test_comparison() -> None:
    found = compare()
    assert found.holds
    lines = {line.quantity: line for line in found.lines}
    for said in ("compiled passes, H200", "plain passes, H200"):
        assert lines[said].mean_error < lines[f"{said}, one utilisation"].mean_error
    compiled = [case for said, line in lines.items() if said.startswith("compiled") and "one" not in said for case in line.cases]
    errors = [abs(case.error) for case in compiled]
    assert load_software(COMPILED).error == pytest.approx(sum(errors) / len(errors), abs=0.001)
    assert load_software("pytorch").error == pytest.approx(lines["plain passes, H200"].mean_error, abs=0.001)
