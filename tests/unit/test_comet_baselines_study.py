"""The study of COMET's baselines: the page shows what is kept, its sentences hold, and what is kept is found again."""

from __future__ import annotations

import pytest
from studies import comet_baselines as study
from studies.store import DOCS


def test_page_shows_what_is_kept() -> None:
    known = study.STUDY.load()
    assert (DOCS / "comet-baselines.md").read_text(encoding="utf-8") == study.page(known)
    assert len(known["rows"]) == len(list(study.cases()))


def test_sentences_are_borne_out() -> None:
    assert [item.text for item in study.findings(study.STUDY.load()["rows"]) if not item.holds] == []


def test_a_restriction_more_is_never_faster_and_all_is_proven() -> None:
    for row in study.STUDY.load()["rows"]:
        assert row["gap"] == 0
        assert row["best"] <= row["unfused"] <= row["unfused-local"]
        assert row["best"] <= row["op-by-op"] <= row["op-by-op-local"]
        assert row["op-by-op"] <= row["plain"] * (1 + 1e-9)
        assert row["op-by-op-local"] <= row["plain-local"] * (1 + 1e-9)


@pytest.mark.slow
def test_a_row_is_found_again() -> None:
    (row,) = next(study.cases()).solve()
    assert row == pytest.approx(study.STUDY.load()["rows"][0])
