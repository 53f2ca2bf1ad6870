"""The timeline as a picture: phases above, one lane per resource below."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from halley.report.draw import FAINT, GRID, INK, OTHER, WIDTH, box, canvas, ink_on, line, shortened, ticks, width_of, words
from halley.report.mapping.timeline import PHASES, Interval, Timeline
from halley.report.mapping.tree import path_name
from halley.report.markup import el
from halley.report.table import percent
from halley.units import format_time

LANE, PHASE_ROW = 20.0, 22.0
ENGINE, NETWORK = "#404040", "#d55e00"
SHADES = ("#f0f0f0", "#dcdcdc")


def gantt(shown: Timeline, tensors: Mapping[str, str]) -> Element:
    """Phases, outer above inner, and what each resource does in them. Memory ports have the colour of the tensor that they move.

    Each span carries its place as shares of the whole (``data-from``, ``data-to``), so that a page can zoom.
    """
    left = max((width_of(lane, 12) for lane in shown.lanes), default=0.0) + 14
    inner_width = WIDTH - left - 64
    rows = _rows(shown.phases)
    top = 24.0
    middle = top + PHASE_ROW * (max(rows.values(), default=0) + 1) + 8
    bottom = middle + LANE * len(shown.lanes)
    content = [el("g", *_axis(shown.time, left, inner_width, bottom), class_="axis")]
    content.append(words(left - 8, top + 15, PHASES, "end", FAINT, 12))
    spans = []
    for index, phase in enumerate(shown.phases):
        y = top + PHASE_ROW * rows[phase]
        length = phase.stop - phase.start
        tip = f"phase {phase.name}\n{format_time(length)}, {percent(length, shown.time)} of the whole"
        spans.append(_span(phase, shown.time, left, inner_width, y + 1, PHASE_ROW - 3, SHADES[index % 2], tip, "phase"))
    for row, lane in enumerate(shown.lanes):
        y = middle + LANE * row
        inside = [interval for interval in shown.intervals if interval.lane == lane]
        busy = sum(interval.stop - interval.start for interval in inside)
        content.append(line(left, y + LANE, left + inner_width, y + LANE))
        content.append(words(left - 8, y + 14.5, lane, "end", size=12))
        content.append(words(WIDTH - 4, y + 14.5, percent(busy, shown.time), "end", FAINT, 12))
        for interval in inside:
            took = format_time(interval.stop - interval.start)
            tip = f"{lane}\n{interval.name}: {took}, node {path_name(interval.path)}"
            spans.append(_span(interval, shown.time, left, inner_width, y + 3, LANE - 5, _fill(interval, tensors), tip, "work"))
    content.append(words(WIDTH - 4, top + 15, "busy", "end", FAINT, 12))
    made = canvas(bottom + 26, "When each resource works", [*content, *spans])
    made.set("class", "gantt")
    for name, value in (("data-left", left), ("data-room", inner_width), ("data-time", shown.time), ("data-bottom", bottom)):
        made.set(name, repr(value))
    return made


def _rows(phases: tuple[Interval, ...]) -> dict[Interval, int]:
    """The row of each phase: one below all that are around it or beside it."""
    rows: dict[Interval, int] = {}
    for phase in phases:
        around = [row for other, row in rows.items() if other.start < phase.stop and phase.start < other.stop]
        within = [row for other, row in rows.items() if other.path == phase.path[: len(other.path)]]
        rows[phase] = max((*within, *(around if phase.lane != PHASES else ())), default=-1) + 1
    return rows


def _fill(interval: Interval, tensors: Mapping[str, str]) -> str:
    if interval.tensor:
        return tensors.get(interval.tensor, OTHER)
    kind = interval.lane.split(" | ")[0]
    if kind.endswith(" engine"):
        return ENGINE
    return NETWORK if kind.startswith("network ") else OTHER


def _span(
    interval: Interval, time: float, left: float, inner_width: float, y: float, height: float, fill: str, tip: str, kind: str
) -> Element:
    begin, end = interval.start / time, interval.stop / time
    x, width = left + inner_width * begin, max(inner_width * (end - begin), 1.0)
    rect = box(x, y, width, height, fill, tip, stroke="#ffffff", stroke_width=0.5 if width > 3 else 0)
    label = words(
        x + 4, y + height - 4.5, shortened(interval.name, width - 8, 11), fill=ink_on(fill), size=11, pointer_events="none"
    )
    places = {"data-from": f"{begin:.9g}", "data-to": f"{end:.9g}", "data-name": interval.name}
    made = el("g", rect, label, class_=f"span {kind}")
    for name, value in places.items():
        made.set(name, value)
    return made


def _axis(time: float, left: float, inner_width: float, bottom: float) -> list[Element]:
    made = []
    for value in ticks(time, count=8):
        x = left + inner_width * value / time if time else left
        made += [line(x, 20, x, bottom + 4, GRID), words(x, bottom + 18, format_time(value), "middle", FAINT, 12)]
    return [*made, line(left, bottom, left + inner_width, bottom, INK)]
