"""The study of joint and two-stage plans: the page shows what is kept, its sentences are borne out, and plans are ordered."""

from __future__ import annotations

import pytest
from studies import joint
from studies import joint_page as page
from studies.joint import Cell
from studies.store import DOCS

from halley.report.markup import svg_file
from halley.sharding.axes import Role
from halley.training.search.search import best_training_plan

SMALL = Cell("gpt2-xl", "sn40l", 16)


def test_page_and_figure_show_what_is_kept() -> None:
    known = page.STUDY.load()
    assert (DOCS / "joint.md").read_text(encoding="utf-8") == page.page(known)
    assert (DOCS / "joint.svg").read_text(encoding="utf-8") == svg_file(page.figure(known["rows"]))


def test_sentences_are_borne_out() -> None:
    found = page.cells(page.STUDY.load()["rows"])
    assert [item.text for item in page.findings(found) if not item.holds] == []


def test_plans_are_ordered() -> None:
    """No plan is faster than the bound of a plan that could choose more: of two stages, or without compound kernels."""
    for cell in page.cells(page.STUDY.load()["rows"]):
        for fused in (False, True):
            whole = page.at(cell, fused)
            assert whole["bound"] <= whole["time"]
            assert all(whole["bound"] <= page.at(cell, fused, first)["time"] * (1 + 1e-9) for first in ("formulas", "exact"))
        assert page.at(cell, True)["bound"] <= page.at(cell, False)["time"] * (1 + 1e-9)


def test_networks_are_alike() -> None:
    """All chips have one network, and the chip for inference the memory of `cloud`."""
    found = [joint.system(Cell("gpt3-175b", chip, 64)) for chip in ("cloud", "tpu-v4i-like", "h100", "sn40l")]
    assert len({tuple((axis.size, axis.topology, axis.link.bandwidth) for axis in each.axes) for each in found}) == 1
    assert found[0].chip.levels[0].memories[0].capacity == found[1].chip.levels[0].memories[0].capacity


def test_what_the_first_stage_decides() -> None:
    """The second stage keeps roles, microbatch and pipeline, and may choose the rest."""
    given = joint.problem(SMALL, fused=False)
    assert given.fixed.fused is False
    assert given.chip.streams == ()
    assert joint.problem(SMALL, fused=True).chip.streams
    first = best_training_plan(given, others=0)
    fixed = joint.decided(first.plan)
    again = best_training_plan(joint.problem(SMALL, False, fixed), others=0)
    assert again.plan.assignment == first.plan.assignment
    assert (again.plan.microbatch, again.plan.pipeline.chunks) == (first.plan.microbatch, first.plan.pipeline.chunks)
    assert again.cost.time == pytest.approx(first.cost.time, rel=max(first.certificate.gap, again.certificate.gap, 1e-9))
    assert fixed.recompute is None
    assert all(set(parts) <= set(Role) for parts in fixed.axes.values())
