"""The pages on how far to trust a time: made of what is kept, and what is kept is what the comparisons say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from validation.outcome import Case
from validation.trust import PAGES, SUBJECTS, TITLES, load, of_cases, own_rows, pages

from halley.cli.validate import DATA
from halley.io.chips.kin import KIN
from halley.io.chips.load import load_chip

FOLDER = Path(os.environ[DATA]) if os.environ.get(DATA) else None


def test_pages_show_what_is_kept() -> None:
    made = pages(load())
    assert {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")} == made
    assert len(made) == 1 + len({row.chip for row in load()})


def test_rows_are_of_chips_that_ship() -> None:
    rows = load()
    assert {row.chip for row in rows} <= set(TITLES)
    assert all(load_chip(chip).name == chip for chip in TITLES)
    assert {row.subject for row in rows} == set(SUBJECTS)
    assert all(row.rows > 0 and row.median >= 0 and row.mean >= 0 for row in rows)


def test_intervals_cover_about_what_they_say() -> None:
    covered = [(row.covered, row.rows) for row in load() if row.covered is not None]
    assert 0.75 < sum(share * count for share, count in covered) / sum(count for _, count in covered) < 0.92


def test_a_row_of_cases() -> None:
    row = of_cases("h100", "training", "passes", [Case("a", 1.1, 1.0), Case("b", 1.6, 2.0)])
    assert (row.rows, row.mean, row.median, row.bias) == (2, pytest.approx(0.15), pytest.approx(0.15), pytest.approx(-0.05))
    assert row.kendall is None, "too few for an order"


def test_kin_say_whose_shares_they_take() -> None:
    made = pages(load())
    for chip in KIN:
        if f"{chip}.md" in made:
            assert TITLES[KIN[chip]] in made[f"{chip}.md"]


@pytest.mark.medium
def test_rows_of_this_repository_are_found_again() -> None:
    kept = {(row.chip, row.what): row for row in load()}
    for row in own_rows():
        assert kept[row.chip, row.what].mean == pytest.approx(row.mean, abs=1e-4)
