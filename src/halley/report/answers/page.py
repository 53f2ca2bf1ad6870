"""The page of an answer that has no page of its own: its verdict, its pictures, and all of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from halley.report.document import ROOFLINE, ROOFLINE_WORDS, document, framed, zoomed_out
from halley.report.draw import BarPart, ChartBar, colours, stacked
from halley.report.html_tables import table
from halley.report.markup import el
from halley.report.table import Table, percent
from halley.units import format_time


def simple_page(
    kicker: str,
    lines: Sequence[str],
    pictures: Sequence[Element],
    tables: Sequence[Table],
    data: Mapping[str, Any],
    proven: bool,
    main: Mapping[str, str],
) -> str:
    """The page as HTML. ``lines``: the headline, what is proven, and remarks; each picture is a section under its own title;
    ``data``: the file of the answer, for the page to hold; ``main``: the figures that a reader looks for first, by name."""
    first, *others = lines
    header = [el("p", kicker, class_="kicker"), el("h1", first)]
    header += [el("div", el("strong", line), class_="verdict" if proven else "verdict open") for line in others[:1]]
    header += [el("p", line) for line in others[1:]]
    header.append(el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in main.items()), class_="tiles"))
    sections = [_section(picture, f"picture-{number}") for number, picture in enumerate(pictures, 1)]
    sections.append(el("section", el("h2", "In numbers"), *(table(item) for item in tables), id="numbers"))
    made = data["provenance"]
    footer = f"Halley {made['halley']}, Python {made['python']}; made {made['created']}."
    return document(first, header, sections, data, "answer.json", footer)


CAPTIONS = {ROOFLINE: ROOFLINE_WORDS}
"""How to read pictures that do not explain themselves, by title."""


def _section(picture: Element, name: str) -> Element:
    title = picture.get("aria-label", "")
    return el("section", el("h2", title), *_tools(picture), framed(picture, CAPTIONS.get(title, "")), id=name)


def _tools(picture: Element) -> list[Element]:
    return [zoomed_out()] if "gantt" in picture.get("class", "") else []


def account_bars(title: str, bars: Mapping[str, Mapping[str, float]], names: Mapping[str, str], strong: str = "") -> Element:
    """Times [s] by what they go to, one bar each; ``names`` of the parts; ``strong``: the bar that stands out."""
    used = list(dict.fromkeys(key for parts in bars.values() for key in parts))
    fills = colours([names.get(key, key) for key in used])
    made = []
    for name, parts in bars.items():
        whole = sum(parts.values())
        shown = tuple(
            BarPart(names.get(key, key), time, f"{names.get(key, key)}: {format_time(time)}, {percent(time, whole)}")
            for key, time in parts.items()
            if time > 0
        )
        made.append(ChartBar(name, shown, format_time(whole), name == strong))
    return stacked(title, made, fills, format_time)
