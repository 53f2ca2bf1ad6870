"""The page: what it says without a browser, and what a reader meets in a real one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import halley
from tests.report.chromium import Chromium, chromium
from tests.report.made import NASTY, made_result, nasty_result

from halley.cost.figures import resource_name
from halley.io.results.result import result_document
from halley.mapping.result import Result
from halley.report.browser import browser
from halley.report.mapping.activity import totals
from halley.report.mapping.facts import outer_traffic
from halley.report.mapping.figures import FIGURES
from halley.report.mapping.page import SECTIONS, page
from halley.report.mapping.tree import lines, path_name
from halley.report.table import percent, ratio
from halley.units import format_bytes, format_energy, format_time

needs_chromium = pytest.mark.skipif(browser() is None, reason="no Chromium on the search path; install the package chromium")


class Reader(HTMLParser):
    """Elements and attributes of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data


def test_the_page_needs_nothing_beside_itself(result: Result) -> None:
    text = page(result)
    reader = Reader(text)
    loading = {"link", "img", "iframe", "object", "embed", "base", "form", "audio", "video", "source", "image", "use"}
    assert not loading & {tag for tag, _ in reader.tags}
    for tag, attributes in reader.tags:
        for name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], "no handlers in attributes"
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text.replace(json.dumps(result_document(result)), ""))


def test_the_numbers_in_the_page_are_the_file(result: Result, result_file: Path) -> None:
    saved = json.loads(result_file.read_text())
    data = json.loads(Reader(page(result, saved["provenance"])).scripts[0])
    assert data == saved


@pytest.mark.parametrize("proven", [True, False])
def test_names_stay_text(proven: bool) -> None:
    calm, nasty = Reader(page(made_result(proven=proven))), Reader(page(nasty_result()))
    assert len(nasty.scripts) == len(calm.scripts) == 2
    assert nasty.scripts[1] == calm.scripts[1]
    assert {tag for tag, _ in nasty.tags} == {tag for tag, _ in calm.tags}
    assert json.loads(nasty.scripts[0])["question"]["chip"]["name"] == NASTY


def test_a_bare_result_makes_a_page() -> None:
    """Neither baselines nor front, and no proof."""
    text = page(made_result(front=False, baselines=False, proven=False))
    assert 'id="front"' not in text
    assert "speed-up over" not in text
    assert "Not proven optimal" in text
    assert "gap 11.11 %" in text


def test_the_command_writes_the_page(result_file: Path, empty_folder: Path) -> None:
    outcome = halley("report", str(result_file))
    assert outcome.code == 0, outcome.err
    assert outcome.out == ""
    first = (empty_folder / "report.html").read_text(encoding="utf-8")
    refused = halley("report", str(result_file))
    assert refused.code == 1
    assert "report.html: expected a new file" in refused.err
    assert halley("report", str(result_file), "--force").code == 0
    assert (empty_folder / "report.html").read_text(encoding="utf-8") == first


# --- in the browser -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all tests of this file."""
    with chromium(tmp_path_factory.mktemp("profile")) as made:
        made.size(1280, 900)
        yield made


def opened(made: Chromium, result: Result, folder: Path) -> Chromium:
    file = folder / "report.html"
    file.write_text(page(result), encoding="utf-8")
    made.open(file)
    return made


def texts(made: Chromium, selector: str) -> list[str]:
    """The text of every element that the selector finds."""
    return list(made.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((item) => item.textContent)"))


def cells(made: Chromium, rows: str) -> list[list[str]]:
    """The text of every cell of the rows that the selector finds."""
    found = f"[...document.querySelectorAll({json.dumps(rows)})]"
    return list(made.run(f"{found}.map((row) => [...row.cells].map((cell) => cell.textContent))"))


BOX = "((item) => { const r = item.getBoundingClientRect(); return [r.x, r.y, r.width, r.height] })"

OUTSIDE = """[...document.querySelectorAll("figure svg")].flatMap((svg) => {
  const edge = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    const wide = box.left < edge.left - 1 || box.right > edge.right + 1;
    return text.textContent !== "" && (wide || box.top < edge.top - 1 || box.bottom > edge.bottom + 1);
  }).map((text) => text.textContent);
})"""
"""Words that stick out of their figure."""

SPILLED = """[...document.querySelectorAll("figure rect[data-tip] + text[pointer-events=none]")].filter((text) =>
  text.getBoundingClientRect().right > text.previousElementSibling.getBoundingClientRect().right + 1
).map((text) => text.textContent)"""
"""Words on a bar that are wider than it."""


@needs_chromium
def test_no_error_and_no_request(browsed: Chromium, result: Result, empty_folder: Path) -> None:
    opened(browsed, result, empty_folder)
    assert browsed.requests() == [(empty_folder / "report.html").as_uri()]
    assert browsed.complaints() == []
    assert browsed.run("performance.getEntriesByType('resource').length") == 0


@needs_chromium
def test_the_policy_stops_what_markup_would_do(browsed: Chromium, result: Result, empty_folder: Path) -> None:
    """The second lock: a script that got in does not run, and a picture from elsewhere is not asked for."""
    text = page(result).replace("<h2>", "<script>window.got_in = 1</script><img src='http://127.0.0.1:9/x.png'><h2>", 1)
    (empty_folder / "broken.html").write_text(text, encoding="utf-8")
    browsed.open(empty_folder / "broken.html")
    assert browsed.run("window.got_in") is None
    assert len(browsed.complaints()) >= 2
    answers = [event["params"]["response"] for event in browsed.events if event.get("method") == "Network.responseReceived"]
    assert not [answer for answer in answers if not answer["url"].startswith("file:")]


@needs_chromium
def test_every_section_and_figure_is_there(browsed: Chromium, result: Result, empty_folder: Path) -> None:
    opened(browsed, result, empty_folder)
    assert texts(browsed, "main h2") == [title for _, title in SECTIONS]
    assert texts(browsed, "nav a") == [title for _, title in SECTIONS]
    for name in FIGURES:
        size = browsed.run(f"{BOX}(document.querySelector('#figure-{name} svg'))")[2:]
        assert min(size) > 100, name
    assert texts(browsed, "#save") == ["Save result.json"]


@needs_chromium
def test_numbers_on_the_page_are_those_of_the_file(browsed: Chromium, result: Result, empty_folder: Path) -> None:
    """The expected figures come from the JSON in the page, formatted; the shown ones from what the browser renders."""
    opened(browsed, result, empty_folder)
    data: dict[str, Any] = json.loads(texts(browsed, "#result")[0])
    answer = data["answer"]
    best, plans = answer["best"], [*answer["baselines"], answer["best"]]
    cost = best["estimate"]
    dram = cost["traffic"]["dram"]
    shown = {key: texts(browsed, f"[data-value={key}]")[0] for key in ("time_s", "energy_J", "outer_B", "busy", "gap")}
    busiest = max(cost["busy_s"], key=lambda name: cost["busy_s"][name])
    assert shown == {
        "time_s": format_time(cost["time_s"]),
        "energy_J": format_energy(cost["energy_J"]),
        "outer_B": format_bytes(dram["read_B"] + dram["write_B"]),
        "busy": percent(cost["busy_s"][busiest], cost["time_s"]),
        "gap": "0.00 %",
    }
    rows = cells(browsed, "#comparison > table:first-of-type tbody tr")
    assert [row[:4] for row in rows] == [
        [
            plan["name"],
            format_time(plan["estimate"]["time_s"]),
            format_energy(plan["estimate"]["energy_J"]),
            format_bytes(sum(plan["estimate"]["traffic"]["dram"].values())),
        ]
        for plan in plans
    ]
    assert [row[4] for row in rows] == [ratio(plans[0]["estimate"]["time_s"] / plan["estimate"]["time_s"]) for plan in plans]
    lanes = dict(zip(texts(browsed, "#figure-timeline text"), texts(browsed, "#figure-timeline text")[1:], strict=False))
    for name, busy in cost["busy_s"].items():
        assert not busy or lanes[name] == percent(busy, cost["time_s"])
    for memory, used in cost["footprint_B"].items():
        assert any(text.startswith(f"{format_bytes(used)} of ") for text in texts(browsed, "#figure-footprint text")), memory
    assert f"none takes less time than {format_time(best['certificate']['bound']['value'])}" in texts(browsed, "#verdict")[0]


@needs_chromium
def test_the_tree_has_the_cost_of_each_node(browsed: Chromium, result: Result, empty_folder: Path) -> None:
    opened(browsed, result, empty_folder)
    chip, best = result.problem.chip, result.best
    sums = totals(chip, best.plan, best.estimate)
    expected = []
    for line in lines(best.plan, best.estimate):
        moved = sums[line.path].moved(["dram"])
        bound = resource_name(line.bound) if line.bound else ""
        share = percent(line.time, float(best.estimate.time))
        node = (str(line.number), line.text.strip(), format_time(line.time), share, bound)
        expected.append([*node, format_energy(sums[line.path].energy), format_bytes(moved) if moved else ""])
    found = cells(browsed, ".tree tbody tr")
    assert [[row[0], row[1][1:], *row[2:]] for row in found] == expected
    assert expected[0][-1] == format_bytes(outer_traffic(chip, best.estimate))
    rows = "[...document.querySelectorAll('.tree tbody tr')]"
    tips = browsed.run(f"Object.fromEntries({rows}.map((row) => [row.dataset.path, row.dataset.tip]))")
    hold = next(line for line in lines(best.plan, best.estimate) if line.text.strip() == "hold glb x2: B")
    assert (
        f"fill B: {format_bytes(float(best.estimate.reads()['dram', 'B', 'fill']))} read from dram" in tips[path_name(hold.path)]
    )


@needs_chromium
def test_folding_tips_and_zoom(browsed: Chromium, result: Result, empty_folder: Path) -> None:
    opened(browsed, result, empty_folder)
    seen = "[...document.querySelectorAll('.tree tbody tr')].filter((row) => row.getClientRects().length).length"
    whole = browsed.run(seen)
    assert whole == len(lines(result.best.plan, result.best.estimate))
    browsed.run("document.querySelector('.tree tr[data-path=\"0.0.1\"] .fold').click()")
    inside = sum(line.path[:3] == (0, 0, 1) and len(line.path) > 3 for line in lines(result.best.plan, result.best.estimate))
    assert browsed.run(seen) == whole - inside
    browsed.run("document.querySelector('#fold').click()")
    assert browsed.run(seen) == 2
    browsed.run("document.querySelector('#unfold').click()")
    assert browsed.run(seen) == whole
    browsed.run("document.querySelector('#figure-time rect[data-tip]').scrollIntoView()")
    x, y, *_ = browsed.run(f"{BOX}(document.querySelector('#figure-time rect[data-tip]'))")
    browsed.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + 3, y=y + 3)
    assert browsed.run("document.querySelector('#tip').hidden") is False
    assert "%" in texts(browsed, "#tip")[0]
    exp = "[...document.querySelectorAll('.gantt .phase')].find((item) => item.dataset.name === 'exp')"
    width = f"Number({exp}.querySelector('rect').getAttribute('width'))"
    small = browsed.run(width)
    browsed.run(f"{exp}.dispatchEvent(new Event('click'))")
    assert browsed.run(width) == pytest.approx(float(browsed.run("document.querySelector('.gantt').dataset.room")), abs=0.5)
    assert texts(browsed, ".gantt .axis text")[0].endswith((" us", " ns"))
    browsed.run("document.querySelector('#whole').click()")
    assert browsed.run(width) == small
    assert browsed.complaints() == []


@needs_chromium
@pytest.mark.parametrize("width", [1280, 1600])
def test_nothing_sticks_out(browsed: Chromium, width: int, result: Result, empty_folder: Path) -> None:
    """No scrolling sideways, no words beyond their figure or their bar, no cell that is too small for its words."""
    browsed.size(width, 900)
    opened(browsed, result, empty_folder)
    assert browsed.run("document.documentElement.scrollWidth") <= width
    assert browsed.run(OUTSIDE) == []
    assert browsed.run(SPILLED) == []
    every = "[...document.querySelectorAll('td, th, dd, p')]"
    assert browsed.run(f"{every}.filter((item) => item.scrollWidth > item.clientWidth + 1).map((item) => item.textContent)") == []
    browsed.size(1280, 900)


@needs_chromium
def test_paper_has_all_sections(browsed: Chromium, result: Result, empty_folder: Path) -> None:
    opened(browsed, result, empty_folder)
    browsed.run("document.querySelector('#fold').click()")
    made = browsed.pdf()
    assert made.startswith(b"%PDF-")
    pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", made))
    assert 4 <= pages <= 16
    # on paper nothing is folded away, and what only a screen can use is gone
    browsed.call("Emulation.setEmulatedMedia", media="print")
    browsed.run("dispatchEvent(new Event('beforeprint'))")
    seen = "(selector) => [...document.querySelectorAll(selector)].filter((item) => item.getClientRects().length).length"
    assert browsed.run(f"({seen})('main h2')") == len(SECTIONS)
    assert browsed.run(f"({seen})('.tree tbody tr')") == len(lines(result.best.plan, result.best.estimate))
    assert browsed.run(f"({seen})('details tbody tr')") > 20
    assert browsed.run(f"({seen})('nav, .tools, .fold')") == 0
    # the width that A4 across has between its margins
    browsed.size(1039, 700)
    assert browsed.run("document.documentElement.scrollWidth") <= 1039
    browsed.call("Emulation.setEmulatedMedia", media="")
    browsed.size(1280, 900)


@needs_chromium
def test_names_stay_text_in_the_browser(browsed: Chromium, empty_folder: Path) -> None:
    opened(browsed, nasty_result(), empty_folder)
    assert browsed.complaints() == []
    assert browsed.requests() == [(empty_folder / "report.html").as_uri()]
    assert 'alert("x")' in texts(browsed, "h1")[0]
    assert browsed.run("document.scripts.length") == 2
    assert browsed.run("document.documentElement.scrollWidth") <= 1280
