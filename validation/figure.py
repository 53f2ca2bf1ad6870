"""``python -m validation.figure FOLDER``: predicted against measured speed-ups of attention, as an SVG on standard output.

FOLDER holds the table of measurements. The picture in the documentation, docs/images/validation-attention.svg, is made so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from validation.attention.compare import compare
from validation.outcome import Line

from halley.errors import HalleyError

SIDE, LEFT, TOP = 400, 64, 16
"""The square of the plot and where it begins [px]."""

TICKS = (0.8, 1, 1.5, 2, 3, 4, 6, 8, 10)
BAND = 0.2
"""The relative error that is shaded."""

MARKS = {"speed-ups, second kernel": ("FlashAttention-2", "#0072b2"), "speed-ups, first kernel": ("FlashAttention-1", "#d55e00")}


def place(speedup: float) -> float:
    """Distance from the origin [px] on a logarithmic axis."""
    return SIDE * math.log(speedup / TICKS[0]) / math.log(TICKS[-1] / TICKS[0])


def point(measured: float, predicted: float) -> tuple[float, float]:
    return LEFT + place(measured), TOP + SIDE - place(predicted)


def figure(lines: tuple[Line, ...]) -> str:
    """The picture: one point per case, the diagonal, and the band of ``BAND`` around it."""
    low, high = TICKS[0], TICKS[-1]
    band = [point(low, low), point(low, low * (1 + BAND)), point(high / (1 + BAND), high), point(high, high)]
    band += [point(high, high * (1 - BAND)), point(low / (1 - BAND), low)]
    parts = [
        f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in band)}" fill="#e8e8e8"/>',
        f'<line x1="{LEFT}" y1="{TOP + SIDE}" x2="{LEFT + SIDE}" y2="{TOP}" stroke="#888"/>',
        f'<rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#444"/>',
        *_axes(),
        *_points(lines),
    ]
    width, height = LEFT + SIDE + 16, TOP + SIDE + 56
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    title = "<title>Speed-up of fused over unfused attention, forward and backward, on A100</title>"
    paper = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([f'{head} font-family="sans-serif" font-size="13">', title, paper, *parts, "</svg>"]) + "\n"


def _axes() -> Iterator[str]:
    base = TOP + SIDE
    for tick in TICKS:
        x, y = point(tick, tick)
        yield f'<path d="M{x:.1f} {base}v5M{LEFT} {y:.1f}h-5" stroke="#444"/>'
        yield f'<text x="{x:.1f}" y="{base + 20}" text-anchor="middle">{tick:g}</text>'
        yield f'<text x="{LEFT - 9}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    middle = TOP + SIDE / 2
    yield f'<text x="{LEFT + SIDE / 2}" y="{base + 44}" text-anchor="middle">measured speed-up over unfused attention</text>'
    yield f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">predicted speed-up</text>'


def _points(lines: tuple[Line, ...]) -> Iterator[str]:
    for index, (quantity, (name, colour)) in enumerate(MARKS.items()):
        cases = next(line.cases for line in lines if line.quantity == quantity)
        for x, y in (point(case.figure, case.halley) for case in cases):
            yield _mark(index, x, y, colour)
        y = TOP + 22 + 20 * index
        yield _mark(index, LEFT + 16, y - 4, colour)
        yield f'<text x="{LEFT + 28}" y="{y}">{escape(name)}</text>'
    y = TOP + 22 + 20 * len(MARKS)
    yield f'<rect x="{LEFT + 9}" y="{y - 11}" width="14" height="12" fill="#e8e8e8"/>'
    yield f'<text x="{LEFT + 28}" y="{y}">within {BAND:.0%}</text>'


def _mark(index: int, x: float, y: float, colour: str) -> str:
    if index == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}" fill-opacity="0.8"/>'
    return f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" fill="{colour}" fill-opacity="0.8"/>'


if __name__ == "__main__":
    try:
        outcome = compare(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    except HalleyError as error:
        sys.exit(str(error))
    if outcome.skipped:
        sys.exit(f"skipped: {outcome.skipped}; name its folder")
    sys.stdout.write(figure(outcome.lines))
