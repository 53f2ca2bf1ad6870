"""The figure of a study: ratios of time as dots on a logarithmic axis, a line per case, panels side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from halley.report.draw import FAINT, GRID, HIGHLIGHT, INK, PAPER, WIDTH, box, canvas, legend, line, shortened, words
from halley.report.markup import el

TICKS = (0.1, 0.2, 0.5, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
COARSE = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
HEADING, LABELS, GUTTER = 34.0, 176.0, 34.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A ratio; ``hollow`` is the panel's second kind."""

    series: str
    value: float
    hollow: bool
    tip: str


@dataclass(frozen=True, slots=True)
class Line:
    """The dots of one case, panel by panel."""

    name: str
    panels: tuple[tuple[Dot, ...], ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Cases under one heading. Published values, if there are any, are drawn in the first panel, with the claim's words above."""

    title: str
    lines: tuple[Line, ...]
    published: tuple[float, ...] = ()
    claim: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """What the dots of one kind and of the other mean."""

    filled: str
    hollow: str


@dataclass(frozen=True, slots=True)
class _Scale:
    left: float
    width: float
    least: float
    most: float

    def x(self, value: float) -> float:
        return self.left + self.width * math.log(value / self.least) / math.log(self.most / self.least)


def ratio_plot(title: str, panels: Sequence[Panel], blocks: Sequence[Block], fills: Mapping[str, str]) -> Element:
    """All cases, block under block; ``fills`` is the colour of each series."""
    entries, used = legend(fills.items(), LABELS, 4, WIDTH - LABELS)
    pitch = 6.0 + 8.0 * len(fills)
    top = used + 58
    height = top + sum(HEADING + pitch * len(block.lines) for block in blocks) + 34
    room = (WIDTH - LABELS - GUTTER * len(panels)) / len(panels)
    scales = [_scale(index, LABELS + index * (room + GUTTER), room, blocks) for index in range(len(panels))]
    content = list(entries)
    for panel, scale in zip(panels, scales, strict=True):
        content += _head(panel, scale, used + 22) + _axis(scale, top, height - 26)
    y = top
    for block in blocks:
        content += _block(block, scales, y, pitch, fills)
        y += HEADING + pitch * len(block.lines)
    return canvas(height, title, content)


def _scale(index: int, left: float, width: float, blocks: Sequence[Block]) -> _Scale:
    values = [dot.value for block in blocks for each in block.lines for dot in each.panels[index]]
    if index == 0:
        values += [value for block in blocks for value in block.published]
    most = max((*values, 1.2)) * 1.06
    return _Scale(left, width, min((*values, 1.0)) * (0.985 if most < 2 else 0.94), most)


def _head(panel: Panel, scale: _Scale, y: float) -> list[Element]:
    """The meaning of both kinds of dots."""
    made: list[Element] = []
    for row, (text, hollow) in enumerate(((panel.filled, False), (panel.hollow, True))):
        at = y + 18 * row
        made += [_dot(scale.left + 6, at - 4, FAINT, hollow, ""), words(scale.left + 16, at, text, size=12)]
    return made


def _axis(scale: _Scale, top: float, bottom: float) -> list[Element]:
    made: list[Element] = []
    before = -math.inf
    for tick in COARSE if scale.most > 10 else TICKS:
        x = scale.x(tick)
        if not scale.least < tick < scale.most or x - before < 36:  # off the axis, or its word would touch the one before
            continue
        before = x
        stroke = INK if tick == 1 else GRID
        made += [line(x, top, x, bottom, stroke), words(x, bottom + 16, f"{tick:g} x", "middle", FAINT, 12)]
    return made


def _block(block: Block, scales: Sequence[_Scale], top: float, pitch: float, fills: Mapping[str, str]) -> list[Element]:
    # the heading lies on the grid, so that it has a ground of its own
    made = [box(0, top + 6, WIDTH, HEADING - 10, "#f2f2f2"), words(4, top + 23, block.title, font_weight="bold")]
    first = top + HEADING
    for value in block.published:
        x = scales[0].x(value)
        made.append(line(x, first - 4, x, first + pitch * len(block.lines), HIGHLIGHT, stroke_width=2, stroke_dasharray="6 4"))
    made.append(words(scales[0].left + scales[0].width, top + 23, block.claim, "end", HIGHLIGHT, 12))
    series = list(fills)
    for index, each in enumerate(block.lines):
        y = first + pitch * index
        made.append(words(LABELS - 10, y + pitch / 2 + 4, shortened(each.name, LABELS - 14), "end"))
        for scale, dots in zip(scales, each.panels, strict=True):
            for dot in sorted(dots, key=lambda dot: not dot.hollow):  # where both lie on one place, the filled one is seen
                place = y + pitch * (series.index(dot.series) + 1) / (len(series) + 1)
                made.append(_dot(scale.x(dot.value), place, fills[dot.series], dot.hollow, dot.tip))
    return made


def _dot(x: float, y: float, colour: str, hollow: bool, tip: str) -> Element:
    content = (el("title", tip),) if tip else ()
    if hollow:
        return el("circle", *content, cx=x, cy=y, r=4.2, fill=PAPER, fill_opacity=0.6, stroke=colour, stroke_width=1.6)
    return el("circle", *content, cx=x, cy=y, r=4.5, fill=colour, stroke=PAPER, stroke_width=0.8)
