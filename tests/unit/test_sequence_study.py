"""The study of sequence parallelism: the page shows what is kept, its sentences hold, and what is kept is found again."""

from __future__ import annotations

import pytest
from studies import sequence
from studies.store import DOCS

from halley.io.systems.system import load_system
from halley.report.markup import svg_file


def test_page_and_figure_show_what_is_kept() -> None:
    known = sequence.STUDY.load()
    assert (DOCS / "sequence.md").read_text(encoding="utf-8") == sequence.page(known)
    assert (DOCS / "sequence.svg").read_text(encoding="utf-8") == svg_file(sequence.figure(known["rows"]))


def test_sentences_are_borne_out() -> None:
    assert [item.text for item in sequence.findings(sequence.STUDY.load()["rows"]) if not item.holds] == []


@pytest.mark.parametrize("way", [sequence.FREE, sequence.HEADS_SPLIT])
def test_a_row_is_found_again(way: str) -> None:
    system = sequence.SYSTEMS[0]
    row = next(row for row in sequence.STUDY.load()["rows"] if (row["system"], row["way"]) == (system, way))
    fixed = sequence.ways([axis.name for axis in load_system(system).axes])[way]
    plan = sequence.planned(system, fixed)
    assert plan.time == pytest.approx(row["time"])
    assert sum(sequence.sent(step, plan.sharding.problem.mesh) for _, step in plan.sharding.steps) == pytest.approx(row["sent"])


def test_volumes_are_those_of_the_textbook() -> None:
    """A block's activations divided among n chips: an all-to-all sends (n - 1) / n of a chip's share, an all-reduce of whole
    activations twice (n - 1) / n of all."""
    whole, chips = 2.0 * sequence.FRAMES * sequence.PATCHES * sequence.HEADS * sequence.HEAD, 8
    by = {row["way"]: row["sent"] for row in sequence.STUDY.load()["rows"] if row["system"] == sequence.SYSTEMS[0]}
    share = whole / chips * (chips - 1) / chips
    assert by[sequence.FREE] == pytest.approx(2 * share)
    assert by[sequence.HEADS_SPLIT] == pytest.approx(4 * share)
    assert by[sequence.MATRICES] == pytest.approx(2 * 2 * share * chips)
