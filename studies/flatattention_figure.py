"""The figures of the study of FlatAttention: curves of utilisation, panels side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from halley.report.draw import FAINT, PAPER, WIDTH, canvas, legend, line, words
from halley.report.markup import el

LEFT, GUTTER, HIGH = 48.0, 26.0, 220.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A share of the peak at a power of two."""

    at: int
    share: float
    tip: str


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves by name; ``levels``: shares that do not depend on what lies along x; ``marks``: words at a value of x."""

    title: str
    least: int
    most: int
    curves: Mapping[str, Sequence[Dot]]
    levels: Mapping[str, float]
    marks: Mapping[str, float]


def curves(title: str, along: str, panels: Sequence[Panel], fills: Mapping[str, str]) -> Element:
    """The panels on one scale from 0 to 100 %, with powers of two along x."""
    content, used = legend(fills.items(), LEFT, 4, WIDTH - LEFT)
    top = used + 44
    room = (WIDTH - LEFT - GUTTER * len(panels)) / len(panels)
    for number, panel in enumerate(panels):
        left = LEFT + number * (room + GUTTER)
        content += _frame(panel, left, room, top, number == 0)
        for name, share in panel.levels.items():
            y = top + HIGH * (1 - share)
            content.append(line(left, y, left + room, y, fills[name], stroke_width=2, stroke_dasharray="6 4"))
        for name, dots in panel.curves.items():
            content += _curve([(_x(panel, dot.at, left, room), dot) for dot in dots], top, fills[name])
    content.append(words(LEFT + (WIDTH - LEFT - GUTTER) / 2, top + HIGH + 40, along, "middle", FAINT, 12))
    return canvas(top + HIGH + 50, title, content)


def _x(panel: Panel, value: float, left: float, room: float) -> float:
    span = math.log2(panel.most / panel.least)
    return left + 14 + (room - 28) * math.log2(value / panel.least) / span


def _frame(panel: Panel, left: float, room: float, top: float, first: bool) -> list[Element]:
    """Title, grid and axes."""
    made = [words(left, top - 22, panel.title, font_weight="bold")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = top + HIGH * (1 - share)
        made.append(line(left, y, left + room, y))
        if first:
            made.append(words(left - 6, y + 4, f"{share:.0%}", "end", FAINT, 12))
    value = panel.least
    while value <= panel.most:
        made.append(words(_x(panel, value, left, room), top + HIGH + 18, str(value), "middle", FAINT, 12))
        value *= 2
    for text, at in panel.marks.items():
        x = _x(panel, at, left, room)
        made += [line(x, top, x, top + HIGH, FAINT, stroke_dasharray="2 3"), words(x, top - 5, text, "middle", FAINT, 11)]
    return made


def _curve(dots: Sequence[tuple[float, Dot]], top: float, fill: str) -> list[Element]:
    places = [(x, top + HIGH * (1 - dot.share), dot.tip) for x, dot in dots]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
    made = [el("polyline", points=points, fill="none", stroke=fill, stroke_width=2)]
    for x, y, tip in places:
        made.append(el("circle", el("title", tip), cx=x, cy=y, r=4.5, fill=fill, stroke=PAPER, stroke_width=0.8))
    return made
