"""The study of memory systems: the page shows what is kept, its sentences are borne out, and what is kept is what plans say."""

from __future__ import annotations

import pytest
from studies import memory
from studies.store import DOCS

from halley.dfmodel.plan import DFModelProblem, best_training
from halley.io.transformers import load_model
from halley.report.markup import svg_file


def test_page_and_figure_show_what_is_kept() -> None:
    known = memory.STUDY.load()
    assert (DOCS / "memory.md").read_text(encoding="utf-8") == memory.page(known)
    assert (DOCS / "memory.svg").read_text(encoding="utf-8") == svg_file(memory.figure(known["rows"]))


def test_sentences_are_borne_out() -> None:
    assert [item.text for item in memory.findings(memory.STUDY.load()["rows"]) if not item.holds] == []


@pytest.mark.medium
def test_a_dataflow_chip_may_run_kernel_by_kernel() -> None:
    """Where SRAM is too small for any partition, the dataflow plan is that of one by one, not infeasible."""
    row = next(row for row in memory.STUDY.load()["rows"] if row["sram"] == memory.SRAM[0])
    problem = DFModelProblem(
        load_model(memory.MODEL), memory.system(row["sram"], row["dram"]), memory.BATCH, memory.SEQUENCE, True
    )
    found = best_training(problem)
    assert not found.problem.fused
    assert found.utilisation == pytest.approx(row["dataflow"])
