"""The study of networks: the page shows what is kept, its sentences are borne out, and what is kept is what plans say."""

from __future__ import annotations

import pytest
from studies import networks
from studies.store import DOCS

from halley.importers.training import training_problem
from halley.report.markup import svg_file
from halley.training.search.search import best_training_plan


def test_page_and_figures_show_what_is_kept() -> None:
    known = networks.STUDY.load()
    assert (DOCS / "networks.md").read_text(encoding="utf-8") == networks.page(known)
    for name, figure in (("domains", networks.domains_figure), ("splits", networks.splits_figure)):
        assert (DOCS / f"networks-{name}.svg").read_text(encoding="utf-8") == svg_file(figure(known[name]))


def test_sentences_are_borne_out() -> None:
    assert [item.text for item in networks.findings(networks.STUDY.load()) if not item.holds] == []


def test_parts_of_a_bar_add_up_to_the_time() -> None:
    known = networks.STUDY.load()
    for row in (*known["domains"], *known["splits"]):
        if row["time"]:
            assert sum(networks.shares(row).values()) == pytest.approx(row["time"])
            assert min(networks.shares(row).values()) >= 0


@pytest.mark.medium
def test_a_row_is_what_a_plan_says() -> None:
    row = next(row for row in networks.STUDY.load()["splits"] if (row["tensor"], row["stages"]) == (8, 64))
    problem = training_problem(networks.MODEL, "1024 x a100, nvlink 8, ib", networks.BATCH, fix="tp=8,pp=64")
    assert best_training_plan(problem, others=0).cost.time == pytest.approx(row["time"])
