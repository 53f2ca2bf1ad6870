"""The study of FlatAttention: the page shows what is kept, its sentences hold, and what is kept is found again."""

from __future__ import annotations

from typing import Any

import pytest
from studies import flatattention as study
from studies import flatattention_page as pages
from studies.store import DOCS
from validation.mesh import runs
from validation.mesh.attention import FLASH, FLASH_2, FLASH_3, FLAT, FLAT_ASYNCHRONOUS, FLAT_HARDWARE

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.text import parse
from halley.report.markup import svg_file
from halley.rewrite.legality import faults
from halley.simulate.simulation import simulate
from halley.workloads.attention import attention

KNOWN = pages.STUDY.load()
ROWS = KNOWN["rows"]
VARIANTS = ("plain", "deferred", "online")


def test_page_and_figures_show_what_is_kept() -> None:
    assert (DOCS / "flatattention.md").read_text(encoding="utf-8") == pages.page(KNOWN)
    for name, figure in (
        ("groups", pages.groups_figure),
        ("channels", pages.channels_figure),
        ("fabrics", pages.fabrics_figure),
    ):
        assert (DOCS / f"flatattention-{name}.svg").read_text(encoding="utf-8") == svg_file(figure(ROWS))


def test_sentences_are_borne_out() -> None:
    found = [*pages.agreeing(KNOWN), *pages.differing(KNOWN)]
    assert len(found) == 15
    assert [item.text for item in found if not item.holds] == []


@pytest.mark.parametrize(
    ("dataflow", "group", "full"),
    [(FLASH_2, 1, True), (FLASH_3, 1, False), (FLAT, 8, False), (FLAT_HARDWARE, 32, False), (FLAT_ASYNCHRONOUS, 4, False)],
)
def test_a_row_is_found_again(dataflow: str, group: int, full: bool) -> None:
    asked = study.figure(dataflow, 512, 128, group, full=full)
    (kept,) = pages.chosen(ROWS, dataflow, sequence=512, head=128, group=group, full=full)
    made = study.row(asked, simulated=group in (1, 4))
    assert made["formulas"] == pytest.approx(kept["formulas"])
    assert made["simulation"] is None or made["simulation"] == pytest.approx(kept["simulation"])
    assert {key: made[key] for key in ("slice", "traffic")} == {key: kept[key] for key in ("slice", "traffic")}


def test_every_case_has_all_dataflows_and_groups() -> None:
    for case in pages.cases():
        groups = {name: [row["group"] for row in pages.chosen(ROWS, name, **case)] for name in pages.FLATS}
        assert all(found == list(study.GROUPS) for found in groups.values())
        assert all(len(pages.chosen(ROWS, name, full=full, **case)) == 1 for name in FLASH for full in (False, True))


def test_every_fabric_has_all_sequences_channels_and_groups() -> None:
    """And the finest one is the chip of the other rows."""
    for tiles, groups in study.FABRICS.items():
        for sequence in study.SEQUENCES:
            for channels in study.FABRIC_CHANNELS:
                case = {"tiles": tiles, "sequence": sequence, "head": study.HEAD, "channels": channels}
                assert sorted(row["group"] for row in pages.chosen(ROWS, FLAT_ASYNCHRONOUS, **case)) == sorted(groups)
                assert all(len(pages.chosen(ROWS, name, full=True, **case)) == 1 for name in FLASH)
    assert max(study.FABRICS) == study.TILES


def test_a_row_of_a_coarse_fabric_is_found_again() -> None:
    """With 512 tokens FlashAttention has one block of keys there."""
    for dataflow, group, full in ((FLAT_ASYNCHRONOUS, 2, False), (FLASH_2, 1, True)):
        asked = study.figure(dataflow, 512, 128, group, 8, full, tiles=8)
        (kept,) = pages.chosen(ROWS, dataflow, sequence=512, head=128, group=group, channels=8, full=full, tiles=8)
        made = study.row(asked, simulated=True)
        assert (made["formulas"], made["simulation"]) == (pytest.approx(kept["formulas"]), pytest.approx(kept["simulation"]))


def test_no_run_is_faster_than_the_engines_or_the_memory() -> None:
    """All bytes at the full bandwidth of the channels, all products at the peak."""
    for row in ROWS:
        assert study.utilisation(row) < 1
        assert row["traffic"] / (row["channels"] * pages.CHANNEL) < study.time(row)


@pytest.mark.parametrize("row", KNOWN["searches"], ids=lambda row: f"{row['sequence']} tokens")
def test_a_found_mapping_is_legal_fits_and_takes_as_long(row: dict[str, Any]) -> None:
    chip, tree = runs.machine(study.figure(FLAT_ASYNCHRONOUS, row["sequence"], 128, 4)), parse(row["plan"])
    sizes = (study.BATCH, study.HEADS, study.HEADS, row["sequence"], row["sequence"], 128)
    works = [attention(*sizes, variant=name, dtype="fp16") for name in VARIANTS]
    (legal,) = (work for work in works if not faults(tree, work, chip))
    estimate = evaluate(legal, chip, tree)
    assert estimate.footprint["l1"] <= chip.memory("l1").capacity
    assert float(estimate.time) == pytest.approx(row["formulas"])
    assert simulate(legal, chip, tree).time == pytest.approx(row["simulation"])


def test_the_bandwidth_of_h100_is_that_of_its_chip_file() -> None:
    assert load_chip("h100").memory("dram").read_bandwidth == pages.H100
