"""The study of the 80 systems: its page shows what was kept, parts add up, and a few cases are planned again."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from studies import systems80, systems80_figure, systems80_page
from studies.store import DOCS
from studies.systems80 import PARTS, WORKLOADS, Case, Row, cases, load, solve
from studies.systems80_dlrm import looked_up
from studies.systems80_page import OBSERVATIONS, SIMPLE, ratios_within

from halley.dfmodel.network import ALL_TO_ALL_TIME

ROWS, PLANNED_ON = load()
SHAPES = ("torus-2d", "dragonfly")


def test_every_case_is_there() -> None:
    assert [row.key for row in ROWS] == [case.key for case in cases()]
    assert len(ROWS) == 4 * 80


def test_page_and_figures_show_what_was_kept() -> None:
    assert (DOCS / "systems.md").read_text(encoding="utf-8") == systems80_page.page(ROWS, PLANNED_ON)
    for name, svg in systems80_page.figures(ROWS).items():
        assert (DOCS / f"{name}.svg").read_text(encoding="utf-8") == svg


def test_spreadsheet_has_the_same_numbers() -> None:
    lines = csv.DictReader(io.StringIO((DOCS / "systems.csv").read_text(encoding="utf-8")))
    for row, line in zip(ROWS, lines, strict=True):
        assert (line["workload"], line["chip"], line["topology"]) == (row.workload, *row.words[:2])
        assert line["time_s"] == ("" if row.reason else repr(row.time))


def test_rows_are_lawful() -> None:
    """Parts add up to the time, the peak is not exceeded, training plans are proven."""
    for row in ROWS:
        if row.reason:
            continue
        assert sum(row.parts.values()) == pytest.approx(row.time, rel=1e-6)
        assert 0 < row.utilisation <= 1
        assert row.gap >= -1e-9
        assert row.workload != "llm" or row.gap == 0


def test_heat_maps_have_a_cell_for_each_number() -> None:
    for name, svg in systems80_page.figures(ROWS).items():
        if not name.endswith("-time"):
            assert len(ElementTree.fromstring(svg).findall(".//{*}rect/{*}title")) == 3 * 80


def test_observations_compare_what_they_say() -> None:
    chips, topologies = {row.words[0] for row in ROWS}, {row.words[1] for row in ROWS}
    assert topologies == {*SIMPLE, "dragonfly"}
    for each in OBSERVATIONS:
        above, below = ({row.key for row in ROWS if which(row)} for which in (each.above, each.below))
        assert above
        assert below
        assert not above & below
        assert all(ratio > 0 for ratio in (each.ratio(ROWS, measure) for measure in each.paper))
    assert chips == {"h100", "tpu-v4", "sn30", "wse-2"}


def test_ratios_are_counted_by_factor() -> None:
    page = (DOCS / "systems.md").read_text(encoding="utf-8")
    ratios = [each.ratio(ROWS, measure) / paper for each in OBSERVATIONS for measure, paper in each.paper.items()]
    for factor in (1.25, 2.0):
        count = sum(max(ratio, 1 / ratio) <= factor for ratio in ratios)
        assert ratios_within(ROWS, factor) == (count, len(ratios))
        assert f"{count} of {len(ratios)} are within {factor:g} x" in page or f", {count} within {factor:g} x" in page


def test_a_case_is_planned_again() -> None:
    """The figures of a page are those of the present source."""
    kept = {row.key: row for row in ROWS}
    for workload in WORKLOADS:
        case = Case("h100/dgx-1/hbm3/nvlink-4", workload)
        found = solve(case, "")
        assert found.utilisation == pytest.approx(kept[case.key].utilisation, rel=1e-6)
        assert set(found.parts) == set(PARTS)


def test_known_rows_are_not_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems80, "DOCS", tmp_path)
    monkeypatch.setattr(systems80_page, "DOCS", tmp_path)
    mark = systems80.source()
    rows: list[Row] = [replace(row, source=mark) for row in ROWS]
    systems80.save(rows, "somewhere")
    said: list[str] = []
    systems80_page.run(again=False, say=said.append)
    assert said == ["systems: 320 cases, 320 of them known before"]
    assert load()[0] == rows
    assert (tmp_path / "systems.md").exists()


def test_shades_run_from_light_to_dark() -> None:
    assert systems80_figure.shade(0.0) > systems80_figure.shade(0.5) > systems80_figure.shade(1.0)


def test_sentences_are_borne_out() -> None:
    """Numbers that the page's text names."""
    said = {
        ("llm", "GPUs and TPUs: HBM over DDR", "utilisation"): 2.3,
        ("llm", "PCIe: dragonfly over simple topologies", "per_price"): 1.2,
        ("llm", "WSEs: HBM over DDR", "utilisation"): 1.1,
        ("dlrm", "WSEs over the others", "utilisation"): 0.10,
        ("fft", "WSEs over the others", "utilisation"): 0.09,
    }
    found = {(each.workload, each.text, measure): each.ratio(ROWS, measure) for each in OBSERVATIONS for measure in each.paper}
    for key, value in said.items():
        assert found[key] == pytest.approx(value, rel=0.06), key
    used = {row.key: row.utilisation for row in ROWS}
    assert all(0.87 < share < 0.995 for (system, workload), share in used.items() if workload == "hpl" and "wse" not in system)
    assert all(share < 0.1 for (_, workload), share in used.items() if workload == "fft")
    assert used["h100/torus-2d/hbm3/pcie-4", "llm"] < used["h100/torus-2d/ddr4/pcie-4", "llm"]
    assert used["wse-2/torus-2d/hbm3/pcie-4", "llm"] < used["wse-2/torus-2d/ddr4/pcie-4", "llm"]
    factors = [each.ratio(ROWS, "utilisation") / each.paper["utilisation"] for each in OBSERVATIONS if each.workload == "dlrm"]
    assert round(min(factors), 1) == 0.6
    assert round(max(factors), 1) == 1.5
    assert looked_up() == pytest.approx(857e6, rel=1e-3)
    ring, full = ({axis.size: axis for axis in systems80.grid()[f"h100/{name}/hbm3/pcie-4"].axes}[32] for name in SHAPES)
    assert ALL_TO_ALL_TIME[ring.topology](ring, 1e9) == pytest.approx(128 * ALL_TO_ALL_TIME[full.topology](full, 1e9))
    best = {chip: used[f"{chip}/dragonfly/hbm3/nvlink-4", "dlrm"] for chip in ("h100", "tpu-v4", "sn30", "wse-2")}
    assert min(best["h100"], best["tpu-v4"], best["sn30"]) > 0.4 > 0.1 > best["wse-2"]
