"""How well a fitted network meets what was measured: curves and residuals per collective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element

import numpy as np

from halley.network.fit.calibrate import Measurement, series
from halley.network.fit.overlay import Overlay, Protocol, Series
from halley.report.draw import FAINT, INK, WIDTH, box, canvas, colours, decades, legend, line, words
from halley.report.mapping.plots import Plane
from halley.report.markup import el
from halley.report.table import Table
from halley.units import format_bytes, format_rate, format_time

CURVE_POINTS = 240
"""Points of a fitted curve."""
TOP, DEPTH, GAP, RESIDUALS = 44.0, 220.0, 34.0, 120.0
"""Heights: of the head, a panel of times, what lies between, a panel of residuals."""
EDGE_RESIDUAL = 0.3
"""Residual at the panel's edge; larger ones are drawn there."""


def calibration_plot(overlay: Overlay, rows: Sequence[Measurement]) -> Element:
    """Per collective a panel of times over sizes (rows as dots, the fit as a line) and one of relative residuals below."""
    groups = series(rows)
    kinds = list(dict.fromkeys(kind for kind, _ in groups))
    shades = colours(f"{ranks} ranks" for ranks in sorted({ranks for _, ranks in groups}))
    left = 62.0
    width = (WIDTH - left - 8) / len(kinds)
    times = [row.time for row in rows]
    low, high = decades(min(times), max(times))[0], decades(min(times), max(times))[-1]
    content, _ = legend(shades.items(), left, 6, WIDTH - left)
    bottom = TOP + DEPTH + GAP + RESIDUALS
    for place, kind in enumerate(kinds):
        at = left + place * width
        mine = [group for (other, _), group in groups.items() if other is kind]
        sizes = [row.size for group in mine for row in group]
        x_from, x_to = float(min(sizes)) / 1.3, float(max(sizes)) * 1.3
        plane = Plane(at, TOP, width - 14, DEPTH, x_from, x_to, low, high if high > low else 10 * low)
        content += _frame(plane, str(kind), first=place == 0)
        for group in mine:
            content += _series(overlay, group, plane, shades[f"{group[0].ranks} ranks"])
    content.append(words(left, bottom + 40, f"{overlay.machine}, {overlay.software}", fill=FAINT, size=12))
    return canvas(bottom + 50, f"Measured and fitted collectives of {overlay.machine}", content)


def _frame(plane: Plane, name: str, first: bool) -> list[Element]:
    """Axes and grid of both panels, worded on the left of the first."""
    right, bottom = plane.left + plane.width, plane.top + plane.height
    made = [words(plane.left + 4, plane.top - 6, name, font_weight="bold")]
    for value in decades(plane.y_from, plane.y_to):
        made.append(line(plane.left, plane.y(value), right, plane.y(value)))
        if first:
            made.append(words(plane.left - 6, plane.y(value) + 4, format_time(value), "end", FAINT, 12))
    base = bottom + GAP
    for residual in (-EDGE_RESIDUAL, -0.1, 0.0, 0.1, EDGE_RESIDUAL):
        y = _height(plane, residual)
        made.append(line(plane.left, y, right, y, INK if residual == 0 else "#d9d9d9"))
        if first:
            made.append(words(plane.left - 6, y + 4, f"{100 * residual:+.0f} %" if residual else "fit", "end", FAINT, 12))
    powers = range(math.ceil(math.log2(plane.x_from)), math.floor(math.log2(plane.x_to)) + 1)
    for power in powers:
        if power % (10 if len(powers) > 12 else 2) == 0:
            x = plane.x(2.0**power)
            made += [line(x, plane.top, x, bottom), line(x, base, x, base + RESIDUALS)]
            made.append(words(x, base + RESIDUALS + 16, format_bytes(2.0**power), "middle", FAINT, 12))
    return made


def _height(plane: Plane, residual: float) -> float:
    """Where a residual lies in the lower panel."""
    inside = min(max(residual, -EDGE_RESIDUAL), EDGE_RESIDUAL)
    return plane.top + plane.height + GAP + RESIDUALS * (1 - inside / EDGE_RESIDUAL) / 2


def _series(overlay: Overlay, group: Sequence[Measurement], plane: Plane, colour: str) -> list[Element]:
    kind, ranks = group[0].kind, group[0].ranks
    sizes = np.geomspace(group[0].size, group[-1].size, CURVE_POINTS) if len(group) > 1 else np.array([float(group[0].size)])
    pairs = zip(sizes.tolist(), np.asarray(overlay.time(kind, ranks, sizes)).tolist(), strict=True)
    corners = " ".join(f"{plane.x(size):.1f} {plane.y(time):.1f}" for size, time in pairs)
    made = [el("polyline", points=corners, fill="none", stroke=colour, stroke_width=1.5)]
    for row in group:
        fitted = float(overlay.time(kind, ranks, row.size))
        residual = fitted / row.time - 1
        tip = f"{kind} on {ranks} ranks, {format_bytes(row.size)}: measured {format_time(row.time)}, fit {format_time(fitted)}"
        x, y = plane.x(row.size), _height(plane, residual)
        made.append(el("circle", el("title", tip), cx=x, cy=plane.y(row.time), r=2.5, fill=colour))
        if abs(residual) > EDGE_RESIDUAL:  # at the edge, as a bar: it lies further out
            made.append(box(x - 4, y - 2, 8, 4, colour, tip))
        else:
            made.append(el("circle", el("title", tip), cx=x, cy=y, r=2.5, fill=colour))
    return made


def calibration_tables(overlay: Overlay) -> list[Table]:
    """The protocols of each family, and what was measured with the errors of the fit."""
    protocols, measured = [], []
    for fit in overlay.fits:
        protocols += [(str(fit.family), str(number), *_protocol(item)) for number, item in enumerate(fit.protocols, start=1)]
        measured += [(str(item.kind), str(item.ranks), str(item.rows), *_measured(item)) for item in fit.series]
    head = ("family", "protocol", "start-up", "step", "bandwidth", "copy")
    seen = ("collective", "ranks", "sizes", "range", "error of the fit", "held out")
    title = f"{overlay.machine}, {overlay.software}"
    return [
        Table(f"{title}: protocols", head, tuple(protocols), frozenset({1, 2, 3, 4, 5})),
        Table(f"{title}: mean relative errors", seen, tuple(measured), frozenset({1, 2, 4, 5})),
    ]


def _protocol(item: Protocol) -> tuple[str, ...]:
    return (*map(format_time, (item.startup, item.latency)), *map(format_rate, (item.bandwidth, item.copy_rate)))


def _measured(item: Series) -> tuple[str, ...]:
    held_out = "-" if item.held_out is None else _percent(item.held_out)
    return (f"{format_bytes(item.least)} to {format_bytes(item.most)}", _percent(item.error), held_out)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
