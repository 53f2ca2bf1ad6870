"""Collectives over sizes: as a table, as data, and as a plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from halley.network.time.sweep import Sweep
from halley.report.draw import FAINT, INK, PALETTE, WIDTH, canvas, decades, legend, line, words
from halley.report.mapping.plots import Plane
from halley.report.markup import el
from halley.report.table import Table, gap_text
from halley.units import format_bytes, format_rate, format_time

MAX_COLOURED = 6
"""Algorithms in a plot that have a colour of their own."""
LINES = tuple(colour for colour in PALETTE if colour != "#f0e442")
"""Colours of thin lines: yellow is lost on white."""
MARGIN = 34.0
"""Right of the plot, for half of the last size."""
PALE = "#d0d0d0"
RED = "#cc3311"
Times = tuple[float | None, ...]
Software = tuple[str, tuple[float, ...]]
"""Name of a library, and its time at every size [s]."""


def sweep_table(sweep: Sweep, title: str, software: Software | None = None) -> Table:
    """One size a row: the fastest schedule, its time, its bandwidths, its gap."""
    head = ["size", "algorithm", "time", "steps", "algorithm bandwidth", "bus bandwidth", "gap"]
    rows = []
    for place, (size, cost) in enumerate(zip(sweep.sizes, sweep.best, strict=True)):
        row = [format_bytes(size), cost.algorithm, format_time(cost.time), str(cost.steps)]
        row += [format_rate(cost.algbw), format_rate(cost.busbw), gap_text(cost.gap)]
        rows.append((*row, format_time(software[1][place])) if software else tuple(row))
    if software:
        head.append(f"time with {software[0]}")
    return Table(f"{title}, fastest by size", tuple(head), tuple(rows), frozenset(range(2, len(head))) | {0})


def sweep_document(sweep: Sweep, software: Software | None = None) -> dict[str, Any]:
    """The sweep as plain data; SI units."""
    return {
        "sizes": list(sweep.sizes),
        "times": {name: list(times) for name, times in sweep.times.items()},
        "bounds": list(sweep.bounds),
        "best": [{"algorithm": cost.algorithm, "time": cost.time} for cost in sweep.best],
        "software": None if software is None else {"name": software[0], "times": list(software[1])},
    }


def sweep_plot(sweep: Sweep, title: str, software: Software | None = None) -> Element:
    """Times over sizes, both logarithmic: a line for each algorithm, the fastest drawn thick, the bound dashed."""
    drawn = [*sweep.times.values(), sweep.bounds, *([software[1]] if software else [])]
    values = [time for times in drawn for time in times if time]
    low, *_, high = decades(min(values), max(values) * 1.001)
    curves = _merged(sweep)
    shades = _shades(sweep, curves)
    entries = [(name, shade) for name, shade in shades.items() if shade != FAINT]
    others = sum(shade == FAINT for shade in shades.values())
    entries += [(f"{others} others", PALE)] if others else []
    left, height = 78.0, 420.0
    content, top = legend(entries, left, 30, WIDTH - left)
    first, last = float(sweep.sizes[0]), float(sweep.sizes[-1])
    plane = Plane(left, 30 + top + 12, WIDTH - left - MARGIN, height, first, last, low, high)
    content = [words(left, 18, title, font_weight="bold"), *content, *_grid(plane)]
    fastest = [cost.time for cost in sweep.best]
    content += _curve(plane, sweep, "fastest", fastest, INK, 6.0, stroke_opacity=0.2)
    for name in sorted(curves, key=lambda name: shades[name] != FAINT):
        faint = shades[name] == FAINT
        content += _curve(plane, sweep, name, curves[name], PALE if faint else shades[name], 1.0 if faint else 1.75)
    content += _curve(plane, sweep, "bound", sweep.bounds, INK, 1.5, stroke_dasharray="6 4")
    if software:
        content += _curve(plane, sweep, software[0], software[1], RED, 1.75, stroke_dasharray="2 3")
    key = "thick: fastest; dashed: bound" + (f"; dotted: {software[0]}" if software else "")
    content.append(words(WIDTH - MARGIN, 18, key, "end", FAINT))
    return canvas(plane.top + height + 50, f"{title}: times over sizes", content)


def _merged(sweep: Sweep) -> dict[str, Times]:
    """The curves by name; schedules of the same times share one."""
    alike: dict[Times, list[str]] = {}
    for name, times in sweep.times.items():
        rounded = tuple(None if time is None else float(f"{time:.6e}") for time in times)
        alike.setdefault(rounded, []).append(name)
    return {", ".join(names): sweep.times[names[0]] for names in alike.values()}


def _shades(sweep: Sweep, curves: Mapping[str, Times]) -> dict[str, str]:
    """A colour for the algorithms that win somewhere or come closest; the others are faint."""

    def distance(name: str) -> tuple[int, float]:
        pairs = zip(curves[name], sweep.best, strict=True)
        ratios = [time / best.time if best.time else 1.0 for time, best in pairs if time is not None]
        return -sum(ratio <= 1 + 1e-9 for ratio in ratios), math.prod(ratios) ** (1 / len(ratios))

    ordered = sorted(curves, key=distance)
    return {name: LINES[place] if place < MAX_COLOURED else FAINT for place, name in enumerate(ordered)}


def _grid(plane: Plane) -> list[Element]:
    right, bottom = plane.left + plane.width, plane.top + plane.height
    made = []
    for value in decades(plane.y_from, plane.y_to):
        made.append(line(plane.left, plane.y(value), right, plane.y(value)))
        made.append(words(plane.left - 6, plane.y(value) + 4, format_time(value), "end", FAINT, 12))
    powers = range(math.ceil(math.log2(plane.x_from)), math.floor(math.log2(plane.x_to)) + 1)
    for power_of_two in powers[:: max(math.ceil(len(powers) / 12), 1)]:
        x = plane.x(2.0**power_of_two)
        made += [line(x, plane.top, x, bottom), words(x, bottom + 17, format_bytes(2.0**power_of_two), "middle", FAINT, 12)]
    made.append(words(plane.left + plane.width / 2, bottom + 38, "size", "middle", FAINT, 12))
    return [*made, line(plane.left, bottom, right, bottom, INK), line(plane.left, plane.top, plane.left, bottom, INK)]


def _curve(
    plane: Plane, sweep: Sweep, name: str, times: Sequence[float | None], colour: str, thick: float, **more: str | float
) -> list[Element]:
    """A line through the sizes at which it runs."""
    points = [(size, time) for size, time in zip(sweep.sizes, times, strict=True) if time]
    corners = " ".join(f"{plane.x(size):.1f} {plane.y(time):.1f}" for size, time in points)
    tip = el("title", name)
    return [el("polyline", tip, points=corners, fill="none", stroke=colour, stroke_width=thick, **more)] if points else []
