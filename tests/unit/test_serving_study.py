"""The study of serving: the page shows what is kept, its sentences are borne out, and what is kept is what the model says."""

from __future__ import annotations

import pytest
from studies import serving, serving_page
from studies.store import DOCS

from halley.report.markup import svg_file


def test_page_and_figures_show_what_is_kept() -> None:
    known = serving.load()
    assert (DOCS / "serving.md").read_text(encoding="utf-8") == serving_page.page(known)
    for name, figure in serving_page.figures(known).items():
        assert (DOCS / f"{name}.svg").read_text(encoding="utf-8") == svg_file(figure)


def test_sentences_are_borne_out() -> None:
    said = serving_page.findings(serving.load())
    assert [item.text for group in said.values() for item in group if not item.holds] == []


@pytest.mark.medium
@pytest.mark.parametrize("part", list(serving.PARTS))
def test_rows_are_what_the_model_says(part: str) -> None:
    kept, found = serving.load()[part], serving.PARTS[part]()
    assert len(kept) == len(found)
    for one, other in zip(kept, found, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert value == (pytest.approx(other[key], rel=1e-6) if isinstance(value, float | list | dict) else other[key])
