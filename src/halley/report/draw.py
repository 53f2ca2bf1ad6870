"""What all figures are drawn from: colours, text that fits, axes, and stacked bars. Plain SVG, no library."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from halley.report.markup import Attribute, el

Format = Callable[[float], str]
WIDTH = 1120.0
"""Width of every figure; all lengths are in pixels at full size."""
FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
FONT_SIZE = 13.0
"""Size of a figure's text [px]."""
INK, FAINT, GRID, PAPER = "#1a1a1a", "#595959", "#d9d9d9", "#ffffff"
PALETTE = ("#0072b2", "#e69f00", "#006b50", "#f0e442", "#d55e00", "#9ad2f2", "#5b2a6e", "#e3a6c8")
"""After Okabe and Ito (jfly.uni-koeln.de/color, 2008), distinguishable under the common colour blindnesses; dark and light take
turns, so that neighbours differ in grey too."""
OTHER = "#b3b3b3"
HIGHLIGHT = "#d55e00"


def colours(keys: Iterable[str]) -> dict[str, str]:
    """A colour for each key, in order; what comes after the palette's end shares a grey.

    >>> colours(["A", "B"])
    {'A': '#0072b2', 'B': '#e69f00'}
    """
    unique = tuple(dict.fromkeys(keys))
    return {key: PALETTE[index] if index < len(PALETTE) else OTHER for index, key in enumerate(unique)}


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on the colour.

    >>> ink_on("#0072b2"), ink_on("#f0e442")
    ('#ffffff', '#1a1a1a')
    """
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return PAPER if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 < 0.3 else INK


def width_of(text: str, size: float = FONT_SIZE) -> float:
    """About how wide the text is; more rather than less, as readers have different fonts.

    >>> width_of("four") < width_of("seven"), width_of("WWWW") > width_of("iiii")
    (True, True)
    """
    wide = sum(0.95 if char in "MWmw@%" else 0.4 if char in "iIjl.,:;|'!()[] " else 0.66 for char in text)
    return wide * size


def shortened(text: str, width: float, size: float = FONT_SIZE) -> str:
    """The text, or as much of it as fits; empty where not even two letters would.

    >>> shortened("all-reduce mx", 200), shortened("all-reduce mx", 60), shortened("all-reduce mx", 10)
    ('all-reduce mx', 'all-re…', '')
    """
    if width_of(text, size) <= width:
        return text
    kept = text
    while kept and width_of(kept + "…", size) > width:
        kept = kept[:-1]
    return kept + "…" if len(kept) >= 2 else ""


def words(
    x: float, y: float, text: str, anchor: str = "start", fill: str = INK, size: float = FONT_SIZE, **more: Attribute
) -> Element:
    """Text whose baseline is at y."""
    return el("text", text, x=x, y=y, text_anchor=anchor, fill=fill, font_size=size, **more)


def box(x: float, y: float, width: float, height: float, fill: str, tip: str = "", **more: Attribute) -> Element:
    """A rectangle; what ``tip`` says is shown on demand."""
    made = el("rect", x=x, y=y, width=max(width, 0.0), height=height, fill=fill, **more)
    if tip:
        made.append(el("title", tip))
    return made


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = GRID, **more: Attribute) -> Element:
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **more)


def canvas(height: float, title: str, content: Iterable[Element], width: float = WIDTH) -> Element:
    """The figure around its content; ``title`` is what a screen reader says."""
    background = box(0, 0, width, height, PAPER)
    size: dict[str, Attribute] = {"width": width, "height": height, "viewBox": f"0 0 {width:g} {height:g}"}
    return el("svg", background, *content, role="img", aria_label=title, font_family=FONT, font_size=FONT_SIZE, **size)


def legend(entries: Iterable[tuple[str, str]], x: float, y: float, width: float) -> tuple[list[Element], float]:
    """Squares of colour with their words, in as many rows as needed; and the height of these."""
    made: list[Element] = []
    at, row = x, 0
    for name, colour in entries:
        inner_width = width_of(name) + 34
        if at > x and at + inner_width > x + width:
            at, row = x, row + 1
        made.append(box(at, y + 20 * row, 12, 12, colour, stroke=FAINT, stroke_width=0.5))
        made.append(words(at + 17, y + 20 * row + 10.5, name))
        at += inner_width
    return made, 20.0 * (row + 1)


def ticks(largest: float, base: float = 1.0, count: int = 5) -> list[float]:
    """Round numbers from 0 up to ``largest``, in steps of 1, 2 or 5 times a power of ten, counted in ``base``.

    >>> ticks(23.9), ticks(3000, base=1024)
    ([0.0, 5.0, 10.0, 15.0, 20.0], [0.0, 1024.0, 2048.0])
    """
    if largest <= 0 or not math.isfinite(largest):
        return [0.0]
    rough = largest / base / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = base * next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * index for index in range(int(largest / step * (1 + 1e-9)) + 1)]


def ticks_within(least: float, most: float, count: int, base: float = 1.0) -> list[float]:
    """Round numbers from ``least`` to ``most``, about ``count`` of them, counted in ``base``.

    >>> [round(tick, 2) for tick in ticks_within(11.3, 12.9, 4)]
    [11.5, 12.0, 12.5]
    """
    steps = ticks(most - least, base, count)
    step = steps[1] if len(steps) > 1 else most - least or 1.0
    return [step * index for index in range(math.ceil(least / step), math.floor(most / step) + 1)]


def byte_base(largest: float) -> float:
    """The power of 1024 that round sizes are counted in.

    >>> byte_base(580 * 1024)
    1024.0
    """
    return 1024.0 ** max(math.floor(math.log(max(largest, 1.0), 1024)), 0)


def decades(least: float, largest: float) -> list[float]:
    """Powers of ten from at most ``least`` to at least ``largest``.

    >>> decades(0.2, 30)
    [0.1, 1.0, 10.0, 100.0]
    """
    return [10.0**power for power in range(math.floor(math.log10(least)), math.ceil(math.log10(largest)) + 1)]


@dataclass(frozen=True, slots=True)
class BarPart:
    """A piece of a bar: what it stands for, how much, and what to say of it on demand."""

    key: str
    value: float
    tip: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class ChartBar:
    """One bar of parts. ``note`` stands behind it; ``scale`` is the value of full width, the largest bar's by default."""

    name: str
    parts: tuple[BarPart, ...]
    note: str
    strong: bool = False
    scale: float = 0.0

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)


ROW, BAR = 30.0, 22.0


def stacked(title: str, bars: Sequence[ChartBar], fills: dict[str, str], show: Format | None, base: float = 1.0) -> Element:
    """Bars one under the other on one scale, with an axis worded by ``show`` (none where each bar has its own scale)."""
    left = min(max((width_of(bar.name) for bar in bars), default=0.0) + 16, 280.0)
    right = max((width_of(bar.note) for bar in bars), default=0.0) + 16
    inner_width = WIDTH - left - right
    used = dict.fromkeys(part.key for bar in bars for part in bar.parts if part.value > 0)
    entries = [(key, colour) for key, colour in fills.items() if key in used and colour != OTHER]
    entries += [("others", OTHER)] if any(fills[key] == OTHER for key in used) else []
    content, top = legend(entries, left, 4, inner_width + right)
    top += 10
    bottom = top + ROW * len(bars)
    largest = max((bar.total for bar in bars), default=0.0)
    for value in ticks(largest, base) if show else ():
        x = left + inner_width * value / largest if largest else left
        content += [line(x, top, x, bottom + 4), words(x, bottom + 18, show(value) if show else "", "middle", FAINT, 12)]
    for index, bar in enumerate(bars):
        content += _bar(bar, fills, left, top + ROW * index, inner_width / (bar.scale or largest or 1.0))
    return canvas(bottom + (24 if show else 6), title, content)


def _bar(bar: ChartBar, fills: dict[str, str], left: float, top: float, unit: float) -> list[Element]:
    weight = "bold" if bar.strong else "normal"
    made = [words(left - 8, top + 19, shortened(bar.name, left - 12), "end", font_weight=weight)]
    x = left
    for part in bar.parts:
        width = part.value * unit
        if width > 0:
            fill = fills[part.key]
            made.append(box(x, top + 4, width, BAR, fill, part.tip, stroke=PAPER, stroke_width=1))
            if text := shortened(part.label or part.key, width - 8, 12):
                made.append(words(x + 4, top + 19, text, fill=ink_on(fill), size=12, pointer_events="none"))
        x += width
    made.append(words(x + 8, top + 19, bar.note, font_weight=weight))
    return made
