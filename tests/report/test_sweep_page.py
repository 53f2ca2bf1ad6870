"""The page of a sweep in a browser: it loads nothing, its table sorts and searches, and marks are shared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.report.chromium import Chromium, chromium
from tests.unit.sweep_studies import SMALL

from halley.report.browser import browser
from halley.report.sweeps.page import sweep_page
from halley.sweeps.load import parse_study
from halley.sweeps.run import DesignSweep

pytestmark = [pytest.mark.medium, pytest.mark.skipif(browser() is None, reason="no Chromium")]

ROWS = "[...document.querySelectorAll('.sortable tbody tr')].filter((row) => !row.hidden)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "sweep.html"
    path.write_text(sweep_page(DesignSweep(parse_study(SMALL), workers=0, everything=True).run()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as made:
        made.size(1280, 900)
        yield made


@pytest.fixture
def browsed(running: Chromium, page: Path) -> Chromium:
    running.open(page)
    return running


def shown(browsed: Chromium) -> list[int]:
    """The designs in the table, in its order."""
    return list(browsed.run(f"{ROWS}.map((row) => Number(row.dataset.design))"))


def test_it_loads_nothing_and_complains_of_nothing(browsed: Chromium, page: Path) -> None:
    assert browsed.requests() == [page.as_uri()]
    assert browsed.complaints() == []
    assert browsed.run("document.querySelectorAll('.plot svg circle').length") == 8


def test_a_click_on_a_head_sorts_by_number(browsed: Chromium) -> None:
    capacity = "[...document.querySelectorAll('.sortable th')].find((head) => head.textContent === 'buf.capacity')"
    cells = f"{ROWS}.map((row) => row.cells[1].textContent)"
    browsed.run(f"{capacity}.click()")
    assert browsed.run(cells) == ["128 B", "128 B", "512 B", "512 B"]
    browsed.run(f"{capacity}.click()")
    assert browsed.run(cells) == ["512 B", "512 B", "128 B", "128 B"]


def test_a_search_keeps_rows_with_all_words(browsed: Chromium) -> None:
    type_ = (
        "((text) => { const box = document.querySelector('#search'); box.value = text; box.dispatchEvent(new Event('input')) })"
    )
    browsed.run(f"{type_}('512 b')")
    assert sorted(shown(browsed)) == [2, 3]
    assert browsed.run("document.querySelector('#matches').textContent") == " 2 of 4 rows"
    browsed.run(f"{type_}('')")
    assert sorted(shown(browsed)) == [0, 1, 2, 3]


def test_a_click_on_a_point_shows_its_design_and_mapping(browsed: Chromium) -> None:
    click = "document.querySelector('.plot circle[data-design=\"{}\"]').dispatchEvent(new MouseEvent('click'))"
    index = browsed.run("JSON.parse(document.querySelector('#result').textContent).front[0]")
    browsed.run(click.format(index))
    said = str(browsed.run("document.querySelector('#picked').textContent"))
    assert f"Design {index}" in said
    assert "compute gemm" in said
    assert browsed.run("[...document.querySelectorAll('tr.picked')].map((row) => Number(row.dataset.design))") == [index]
    assert browsed.run("document.querySelectorAll('.plot circle[stroke]').length") == 2


def test_a_rectangle_marks_points_in_both_plots_and_rows(browsed: Chromium) -> None:
    """Over the left half of the first plot, whose horizontal axis is the capacity."""
    drag = """((kind, x, y) => {
      const plot = document.querySelector('.plot svg'), area = plot.getBoundingClientRect();
      plot.setPointerCapture = () => {};
      const at = { clientX: area.x + x * area.width, clientY: area.y + y * area.height, button: 0, bubbles: true, pointerId: 1 };
      (kind === 'pointerdown' ? plot.querySelector('.paper') : plot).dispatchEvent(new PointerEvent(kind, at));
    })"""
    for kind, x, y in (("pointerdown", 0.15, 0.01), ("pointermove", 0.5, 0.9), ("pointerup", 0.5, 0.9)):
        browsed.run(f"{drag}('{kind}', {x}, {y})")
    assert sorted(shown(browsed)) == [0, 1]
    assert browsed.run("document.querySelectorAll('.plot circle[fill=\"#d9d9d9\"]').length") == 4


def test_every_searched_design_has_its_mapping(browsed: Chromium) -> None:
    """Those that are not on the front too."""
    for index in range(4):
        browsed.run(f"document.querySelector('.plot circle[data-design=\"{index}\"]').dispatchEvent(new MouseEvent('click'))")
        said = str(browsed.run("document.querySelector('#picked').textContent"))
        assert f"Design {index}" in said
        assert "compute gemm" in said


def test_parallel_coordinates_share_the_selection(browsed: Chromium) -> None:
    """A line for each design; a click picks it; a drag along the first axis, the capacity, marks its lower half everywhere."""
    line = "document.querySelector('#parallel polyline[data-design=\"2\"]')"
    assert browsed.run("document.querySelectorAll('#parallel polyline').length") == 4
    browsed.run(f"{line}.dispatchEvent(new MouseEvent('click'))")
    assert "Design 2" in str(browsed.run("document.querySelector('#picked').textContent"))
    assert browsed.run(f"{line}.getAttribute('stroke-width')") == "3"
    assert browsed.run("document.querySelectorAll('.plot circle[stroke]').length") == 2
    drag = """((axis, kind, share) => {
      const grip = document.querySelector(`#parallel [data-axis="${axis}"]`), svg = grip.ownerSVGElement;
      grip.setPointerCapture = () => {};
      const area = svg.getBoundingClientRect(), y = (262 - 228 * share) / 300;
      grip.dispatchEvent(new PointerEvent(kind, { clientY: area.top + y * area.height, button: 0, pointerId: 1 }));
    })"""

    def dragged(axis: int, low: float, high: float) -> None:
        browsed.run(
            f"(() => {{ const drag = {drag}; drag({axis}, 'pointerdown', {low}); drag({axis}, 'pointerup', {high}); }})()"
        )

    dragged(0, -0.2, 0.5)
    assert sorted(shown(browsed)) == [0, 1]
    assert browsed.run("document.querySelectorAll('#parallel polyline[stroke=\"#e6e6e6\"]').length") == 1  # and the picked one
    assert browsed.run("document.querySelectorAll('.plot circle[fill=\"#d9d9d9\"]').length") == 4
    dragged(1, 0.5, 1.0)
    assert shown(browsed) == [1]
    dragged(1, 0.5, 0.5)
    dragged(0, 0.5, 0.5)
    assert sorted(shown(browsed)) == [0, 1, 2, 3]
    assert browsed.complaints() == []


def test_axes_of_plots_can_be_chosen(browsed: Chromium) -> None:
    choose = (
        "((name, value) => { const s = document.querySelector(name); s.value = value; s.dispatchEvent(new Event('change')) })"
    )
    browsed.run(f"{choose}('.plot .across', 'macs')")
    assert browsed.run("document.querySelector('.plot svg').getAttribute('aria-label')") == "time by macs"
    browsed.run(
        "(() => { const s = document.querySelector('.plot .log'); s.checked = true; s.dispatchEvent(new Event('change')) })()"
    )
    assert browsed.run("document.querySelectorAll('.plot svg')[0].querySelectorAll('circle').length") == 4
    assert browsed.complaints() == []


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_sticks_out_of_the_page(running: Chromium, page: Path, width: int) -> None:
    running.size(width, 900)
    running.open(page)
    assert running.run("document.documentElement.scrollWidth <= innerWidth")
