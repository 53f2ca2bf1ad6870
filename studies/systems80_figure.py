"""Figures of the 80 systems: heat maps of what a workload reaches, and where its time goes."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from halley.report.draw import FAINT, GRID, PALETTE, PAPER, WIDTH, box, canvas, ink_on, legend, line, words
from studies.systems80 import PARTS, Row

MEASURES = {
    "utilisation": ("utilisation [%]", 100.0),
    "per_price": ("Gop/s per USD", 1e-9),
    "per_energy": ("Gop per joule", 1e-9),
}
"""By the name of a row's field: its words, and the unit of the figure."""

FILLS = dict(zip(PARTS, (PALETTE[0], PALETTE[1], PALETTE[4], "#b3b3b3"), strict=True))
LABELS, CELL, HEAD, GAP = 176.0, 22.0, 66.0, 26.0
LIGHT, DARK = (247, 251, 255), (8, 48, 107)
"""Ends of the heat maps' scale, on which lightness alone tells values apart."""


def shade(share: float) -> str:
    """A colour between light and dark.

    >>> shade(0.0), shade(1.0)
    ('#f7fbff', '#08306b')
    """
    mixed = (round(low + (high - low) * share) for low, high in zip(LIGHT, DARK, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def shown(value: float) -> str:
    """Two or three digits, more where there are more before the point.

    >>> shown(91.25), shown(0.01234), shown(0.0), shown(1234.5)
    ('91.2', '0.012', '0', '1234')
    """
    if value == 0 or value >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.1 else f"{value:.2g}"


def heat_map(title: str, rows: Sequence[Row]) -> Element:
    """Chips with their memories and links downwards, topologies to the right; a panel per measure, with a scale of its own."""
    topologies = list(dict.fromkeys(row.words[1] for row in rows))
    systems = list(dict.fromkeys((row.words[0], row.words[2], row.words[3]) for row in rows))
    room = (WIDTH - LABELS - GAP * len(MEASURES)) / len(MEASURES)
    content: list[Element] = []
    tops = {system: HEAD + CELL * place + 8 * (place // 4) for place, system in enumerate(systems)}
    for system, top in tops.items():
        content.append(words(LABELS - 8, top + 16, " ".join(system), "end", size=12))
    for number, (measure, (label, unit)) in enumerate(MEASURES.items()):
        left = LABELS + number * (room + GAP)
        content.append(words(left, 16, label, font_weight="bold"))
        most = max(getattr(row, measure) for row in rows)
        width = room / len(topologies)
        for place, topology in enumerate(topologies):
            x = left + width * place + width / 2
            content.append(words(x, HEAD - 22 + 14 * (place % 2), topology, "middle", FAINT, 11))
        for row in rows:
            chip, topology, memory, link = row.words
            value = getattr(row, measure)
            fill = shade((value / most) ** 0.5 if most else 0.0)
            x, y = left + width * topologies.index(topology), tops[chip, memory, link]
            tip = f"{row.system}\n{label}: {shown(value * unit)}\n{row.plan or row.reason}"
            content.append(box(x, y, width, CELL, fill, tip, stroke=PAPER, stroke_width=1))
            text, ink = shown(value * unit), ink_on(fill)
            content.append(words(x + width / 2, y + 15.5, text, "middle", ink, 11, pointer_events="none"))
    return canvas(max(tops.values()) + CELL + 8, title, content)


def breakdown(title: str, rows: Sequence[Row]) -> Element:
    """A bar per system, all of one length: shares of its time. A column per chip."""
    chips = list(dict.fromkeys(row.words[0] for row in rows))
    entries, used = legend(FILLS.items(), LABELS + 40, 4, WIDTH)
    systems = list(dict.fromkeys(row.words[1:] for row in rows))
    top = used + 34
    room = (WIDTH - LABELS - 40 - GAP * (len(chips) - 1)) / len(chips)
    content = list(entries)
    tops = {system: top + 18 * place + 8 * (place // 4) for place, system in enumerate(systems)}
    for system, y in tops.items():
        content.append(words(LABELS + 32, y + 12, " ".join(system), "end", size=11))
    for number, chip in enumerate(chips):
        left = LABELS + 40 + number * (room + GAP)
        content.append(words(left, top - 10, chip, font_weight="bold"))
        for row in (row for row in rows if row.words[0] == chip and not row.reason):
            content += _bar(row, left, tops[row.words[1:]], room)
        for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
            x = left + room * share
            content.append(line(x, max(tops.values()) + 16, x, max(tops.values()) + 20, GRID))
            content.append(words(x, max(tops.values()) + 32, f"{share:.0%}", anchor, FAINT, 11))
    return canvas(max(tops.values()) + 40, title, content)


def _bar(row: Row, left: float, y: float, room: float) -> list[Element]:
    made, x = [], left
    for part in PARTS:
        share = row.parts[part] / row.time
        if share > 0:
            tip = f"{row.system}\n{part}: {share:.1%} of {row.time:.3g} s"
            made.append(box(x, y, room * share, 14, FILLS[part], tip, stroke=PAPER, stroke_width=0.5))
        x += room * share
    return made
