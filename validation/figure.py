"""``python -m validation.figure attention FOLDER`` or ``tiles``: predicted against measured, as an SVG on standard output.

FOLDER holds the table of measurements of attention. The pictures in the documentation, docs/images/validation-*.svg, are made so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from validation.outcome import Line
from validation.sources import SOURCES
from validation.tiles.cases import ATTENTION, CAUSAL, DECODE, FLAT, GEMM, SOFTMAX, SPLIT

from halley.errors import HalleyError

SIDE, LEFT, TOP = 400, 64, 16
"""The square of the plot and where it begins [px]."""


@dataclass(frozen=True)
class Scatter:
    """Two logarithmic axes with ``ticks``; ``marks``: names and colours by line; ``band``: the relative error that is shaded;
    ``scale``: ticks in one unit of the figures."""

    title: str
    across: str
    up: str
    ticks: tuple[float, ...]
    marks: Mapping[str, tuple[str, str]]
    band: float = 0.2
    scale: float = 1.0

    def place(self, value: float) -> float:
        """Distance from the origin [px]."""
        low, high = self.ticks[0], self.ticks[-1]
        return SIDE * math.log(value / low) / math.log(high / low)

    def point(self, measured: float, predicted: float) -> tuple[float, float]:
        return LEFT + self.place(measured), TOP + SIDE - self.place(predicted)


SCATTERS = {
    "attention": Scatter(
        "Speed-up of fused over unfused attention, forward and backward, on A100",
        "measured speed-up over unfused attention",
        "predicted speed-up",
        (0.8, 1, 1.5, 2, 3, 4, 6, 8, 10),
        {"speed-ups, second kernel": ("FlashAttention-2", "#0072b2"), "speed-ups, first kernel": ("FlashAttention-1", "#d55e00")},
    ),
    "tiles": Scatter(
        "Times of mappings by the formulas, and of Triton kernels that do the same on an H200",
        "measured time on an H200 [us]",
        "time by the formulas [us]",
        (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 4000),
        {
            f"{GEMM}, held out": ("GEMM", "#0072b2"),
            FLAT: ("flat GEMM", "#56b4e9"),
            SPLIT: ("GEMM, contraction split over 12 cores", "#d55e00"),
            SOFTMAX: ("GEMM-softmax, rows over 11 cores", "#e69f00"),
            ATTENTION: ("attention", "#009e73"),
            CAUSAL: ("causal attention", "#555555"),
            DECODE: ("attention of one token", "#cc79a7"),
        },
        scale=1e6,
    ),
}


def figure(scatter: Scatter, lines: tuple[Line, ...]) -> str:
    """The picture: one point per case, the diagonal, and the band around it."""
    low, high, band = scatter.ticks[0], scatter.ticks[-1], scatter.band
    corners = [(low, low), (low, low * (1 + band)), (high / (1 + band), high)]
    corners += [(high, high), (high, high * (1 - band)), (low / (1 - band), low)]
    shaded = " ".join(f"{x:.1f},{y:.1f}" for x, y in (scatter.point(*corner) for corner in corners))
    parts = [
        f'<polygon points="{shaded}" fill="#e8e8e8"/>',
        f'<line x1="{LEFT}" y1="{TOP + SIDE}" x2="{LEFT + SIDE}" y2="{TOP}" stroke="#888"/>',
        f'<rect x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#444"/>',
        *_axes(scatter),
        *_points(scatter, lines),
    ]
    width, height = LEFT + SIDE + 16, TOP + SIDE + 56
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    paper = f'<rect width="{width}" height="{height}" fill="white"/>'
    title = f"<title>{escape(scatter.title)}</title>"
    return "\n".join([f'{head} font-family="sans-serif" font-size="13">', title, paper, *parts, "</svg>"]) + "\n"


def _axes(scatter: Scatter) -> Iterator[str]:
    base = TOP + SIDE
    for tick in scatter.ticks:
        x, y = scatter.point(tick, tick)
        yield f'<path d="M{x:.1f} {base}v5M{LEFT} {y:.1f}h-5" stroke="#444"/>'
        yield f'<text x="{x:.1f}" y="{base + 20}" text-anchor="middle">{tick:g}</text>'
        yield f'<text x="{LEFT - 9}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    middle = TOP + SIDE / 2
    yield f'<text x="{LEFT + SIDE / 2}" y="{base + 44}" text-anchor="middle">{escape(scatter.across)}</text>'
    yield f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">{escape(scatter.up)}</text>'


def _points(scatter: Scatter, lines: tuple[Line, ...]) -> Iterator[str]:
    for index, (quantity, (name, colour)) in enumerate(scatter.marks.items()):
        cases = next(line.cases for line in lines if line.quantity == quantity)
        for case in cases:
            yield _mark(index, *scatter.point(case.figure * scatter.scale, case.halley * scatter.scale), colour)
        y = TOP + 22 + 20 * index
        yield _mark(index, LEFT + 16, y - 4, colour)
        yield f'<text x="{LEFT + 28}" y="{y}">{escape(name)}</text>'
    y = TOP + 22 + 20 * len(scatter.marks)
    yield f'<rect x="{LEFT + 9}" y="{y - 11}" width="14" height="12" fill="#e8e8e8"/>'
    yield f'<text x="{LEFT + 28}" y="{y}">within {scatter.band:.0%}</text>'


def _mark(index: int, x: float, y: float, colour: str) -> str:
    if index % 2 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}" fill-opacity="0.8"/>'
    return f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z" fill="{colour}" fill-opacity="0.8"/>'


def main(name: str, folder: Path | None) -> None:
    """Writes the picture of a comparison."""
    outcome = SOURCES[name](folder)
    if outcome.skipped:
        sys.exit(f"skipped: {outcome.skipped}; name its folder")
    sys.stdout.write(figure(SCATTERS[name], outcome.lines))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in SCATTERS:
        sys.exit(f"expected a comparison with a picture: {', '.join(SCATTERS)}")
    try:
        main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    except HalleyError as error:
        sys.exit(str(error))
