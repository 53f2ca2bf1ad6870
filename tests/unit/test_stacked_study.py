"""The study of compute and memory units: the page shows what is kept, its sentences are borne out, and rows are what they say."""

from __future__ import annotations

import doctest
from math import inf, sqrt

import pytest
from studies import stacked
from studies.store import DOCS

from halley.dfmodel.chip import on_chip_bytes
from halley.kernels.machine import machine
from halley.report.markup import svg_file


def test_page_and_figure_show_what_is_kept() -> None:
    known = stacked.STUDY.load()
    assert (DOCS / "stacked.md").read_text(encoding="utf-8") == stacked.page(known)
    assert (DOCS / "stacked.svg").read_text(encoding="utf-8") == svg_file(stacked.figure(known["rows"]))


def test_sentences_are_borne_out() -> None:
    found = stacked.STUDY.load()["rows"]
    assert [item.text for item in (*stacked.findings(found), *stacked.differences(found)) if not item.holds] == []


def test_units_of_a_chip_add_up() -> None:
    """Compute units of the shipped chip's rate, memory units of 512 KiB."""
    shipped = stacked.chip(0.5, 1e12)
    for share in stacked.SHARES:
        chip, count = stacked.chip(share, 1e12), stacked.compute_units(share)
        assert count == pytest.approx(share * stacked.UNITS)
        assert on_chip_bytes(chip) == pytest.approx((stacked.UNITS - count) * stacked.UNIT_BYTES)
        rate = machine(chip).mac_rate("bf16") / machine(shipped).mac_rate("bf16")
        assert rate == pytest.approx(count / stacked.compute_units(0.5))


def test_blocked_traffic() -> None:
    """Each operand once where the result fits; with less, more; near the known optimum of square blocks; endless without any."""
    assert doctest.testmod(stacked).failed == 0
    rows, columns, depth = 4096, 4096, 1024
    sizes = [4 * rows * columns, 4 * 1024 * 1024, 4 * 256 * 256, 0]
    moved = [stacked.blocked_traffic(rows, columns, depth, size) for size in sizes]
    assert moved[0] == 2 * (rows * depth + depth * columns + rows * columns)
    assert moved == sorted(moved)
    assert moved[-1] == inf
    square = 2 * (2 * rows * columns * depth / sqrt(sizes[1] / 4) + rows * columns)
    assert moved[1] == pytest.approx(square, rel=0.01)


@pytest.mark.medium
def test_a_row_is_made_again() -> None:
    kept = stacked.at(stacked.STUDY.load()["rows"], 1e11, 0.4)
    assert stacked.solve(0.4, 1e11)[0] == pytest.approx(kept)
