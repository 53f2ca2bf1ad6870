"""Roofline and time-energy front: figures with two axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from halley.report.document import ROOFLINE
from halley.report.draw import (
    FAINT,
    HIGHLIGHT,
    INK,
    PAPER,
    WIDTH,
    box,
    canvas,
    decades,
    line,
    shortened,
    ticks_within,
    width_of,
    words,
)
from halley.report.mapping.roofline import Peak, Roof, Roofline
from halley.report.markup import el
from halley.report.table import percent
from halley.units import format_energy, format_rate, format_time

BLUE = "#0072b2"
Mark = tuple[str, float, float]
"""Name, time [s], energy [J]."""
_OPERATIONS = ("", "k", "M", "G", "T", "P", "E")


def number(value: float) -> str:
    """To three digits, without a power of ten where that is short enough.

    >>> number(0.76234), number(4260.3), number(1.23e9)
    ('0.762', '4,260', '1.23e+09')
    """
    return f"{float(f'{value:.3g}'):,.0f}" if 1000 <= value < 1e7 else f"{value:.3g}"


def format_operations(rate: float) -> str:
    """Operations per second.

    >>> format_operations(3.574e11), format_operations(8.192e12)
    ('357.4 Gop/s', '8.192 Top/s')
    """
    index = min(max(int(math.log10(rate) // 3), 0), len(_OPERATIONS) - 1) if rate >= 1 else 0
    return f"{rate / 1000**index:.4g} {_OPERATIONS[index]}op/s"


@dataclass(frozen=True, slots=True)
class Plane:
    """A plotting area with two logarithmic axes."""

    left: float
    top: float
    width: float
    height: float
    x_from: float
    x_to: float
    y_from: float
    y_to: float

    def x(self, value: float) -> float:
        return self.left + self.width * math.log(value / self.x_from) / math.log(self.x_to / self.x_from)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - math.log(value / self.y_from) / math.log(self.y_to / self.y_from))


def roofline_plot(shown: Roofline) -> Element:
    """The roofline: a diagonal per bandwidth, and per resource a numbered stem from what is reached to what it would allow."""
    ranked: list[Roof | Peak] = sorted((*shown.roofs, *shown.peaks), key=lambda item: -item.used)
    numbers = {item.name: index for index, item in enumerate(ranked, 1)}
    height = max(440.0, 22.0 * len(ranked) + 60)
    if shown.operations > 0:
        content = _plane(shown, numbers, height)
    else:  # a gather or a permutation only moves bytes
        content = [words(78, 100, "No operations, so that there is no rate to draw.", fill=FAINT)]
    return canvas(height, ROOFLINE, [*content, *_resource_list(ranked, numbers, 678)])


def _plane(shown: Roofline, numbers: dict[str, int], height: float) -> list[Element]:
    """Axes, diagonals, levels and stems."""
    items: tuple[Roof | Peak, ...] = (*shown.roofs, *shown.peaks)
    limits = [item.limit for item in items if item.used > 0.02]
    tallest = max((*limits, *(peak.peak for peak in shown.peaks), shown.reached))
    widths = [roof.intensity for roof in shown.roofs] or [1.0]
    plane = Plane(78, 12, 560, height - 66, min(widths) / 5, max(widths) * 5, shown.reached / 8, tallest * 3)
    levels, said = _ceilings(shown, plane, numbers)
    return [*_log_axes(plane), *_diagonals(shown.roofs, plane), *levels, *_stems(shown, plane, numbers), *said]


def _log_axes(plane: Plane) -> list[Element]:
    made = []
    right, bottom = plane.left + plane.width, plane.top + plane.height
    for value in decades(plane.x_from, plane.x_to):
        if plane.x_from <= value <= plane.x_to:
            x = plane.x(value)
            made += [line(x, plane.top, x, bottom), words(x, bottom + 17, number(value), "middle", FAINT, 12)]
    for value in decades(plane.y_from, plane.y_to):
        if plane.y_from <= value <= plane.y_to:
            y = plane.y(value)
            made += [line(plane.left, y, right, y), words(plane.left - 6, y + 4, format_operations(value), "end", FAINT, 12)]
    made.append(
        words(plane.left + plane.width / 2, bottom + 38, "operational intensity at the resource [op/B]", "middle", FAINT, 12)
    )
    made += [line(plane.left, bottom, right, bottom, INK), line(plane.left, plane.top, plane.left, bottom, INK)]
    return made


def _diagonals(roofs: Sequence[Roof], plane: Plane) -> list[Element]:
    """One line per bandwidth, worded where it leaves the axes."""
    made = []
    before = math.inf  # where the one before starts on the left, so that words do not lie on words
    for bandwidth in sorted({roof.bandwidth for roof in roofs if math.isfinite(roof.bandwidth)}):
        first = max(plane.x_from, plane.y_from / bandwidth)
        last = min(plane.x_to, plane.y_to / bandwidth)
        if first >= last:
            continue
        x1, y1, x2, y2 = plane.x(first), plane.y(first * bandwidth), plane.x(last), plane.y(last * bandwidth)
        made.append(line(x1, y1, x2, y2, BLUE, stroke_width=1))
        turn = f"rotate({math.degrees(math.atan2(y2 - y1, x2 - x1)):.2f} {x1:.2f} {y1:.2f}) translate(12 -4)"
        if x1 > plane.left or before - y1 > 18:
            text = shortened(format_rate(bandwidth), math.hypot(x2 - x1, y2 - y1) - 12, 11)
            made.append(words(x1, y1, text, "start", BLUE, 11, transform=turn, **HALO))
            before = y1 if x1 <= plane.left else before
    return made


def _ceilings(shown: Roofline, plane: Plane, numbers: dict[str, int]) -> tuple[list[Element], list[Element]]:
    """What engines allow, and what is reached: lines and words."""
    rows = [(shown.reached, f"reached {format_operations(shown.reached)}", HIGHLIGHT, "none")]
    several = sum(peak.peak > 0 for peak in shown.peaks) > 1
    for peak in shown.peaks:
        if peak.peak:
            text = f"peak {format_operations(peak.peak)}"
            rows.append((peak.peak, f"{peak.name}, {text}" if several else text, FAINT, "none"))
        if plane.y_from < peak.limit < plane.y_to:
            text = f"({numbers[peak.name]}) {peak.name} in this plan {format_operations(peak.limit)}"
            rows.append((peak.limit, text, INK, "6 4"))
    made, said = [], []
    lowest = math.inf
    left, right = plane.left, plane.left + plane.width
    for value, text, stroke, dashes in sorted(rows):
        y = plane.y(value)
        thick = 2 if stroke == HIGHLIGHT else 1.25
        made.append(line(left, y, right, y, stroke, stroke_width=thick, stroke_dasharray=dashes))
        if stroke == FAINT:  # a peak is worded on the left, below the diagonals' upper ends, or where no mark is in the way
            wide = width_of(text, 12)
            marks = [(plane.x(roof.intensity), plane.y(min(roof.limit, plane.y_to))) for roof in shown.roofs]
            places = range(int(left) + 8, max(int(right - wide), int(left) + 9), 20)
            free = (place for place in places if not _covered(marks, place, wide, y))
            said.append(words(next(free, left + 8), y - 5, text, "start", stroke, 12, **HALO))
            continue
        # what is reached stands below its line, all else above, and clear of the one before
        place = y + 15 if value == shown.reached else min(y - 5, lowest - 15)
        weight = "bold" if stroke == HIGHLIGHT else "normal"
        said.append(words(right - 4, place, text, "end", stroke, 12, font_weight=weight, **HALO))
        lowest = y if value == shown.reached else place
    return made, said


def _covered(marks: Sequence[tuple[float, float]], place: float, wide: float, y: float) -> bool:
    """Whether a mark or its stem, which leads down from it, is behind words of that width above a line at ``y``."""
    return any(place - 8 < x < place + wide + 8 and top < y + 6 for x, top in marks)


HALO: dict[str, str | float] = {"stroke": PAPER, "stroke_width": 4, "paint_order": "stroke"}
"""Keeps words readable on top of lines."""


def _stems(shown: Roofline, plane: Plane, numbers: dict[str, int]) -> list[Element]:
    """From what is reached up to what each resource would allow, each with its number."""
    made = []
    base = plane.y(shown.reached)
    groups: list[list[tuple[float, float, int]]] = []  # marks that lie so close that they share their words
    for roof in sorted(shown.roofs, key=lambda item: item.limit):
        x, top = plane.x(roof.intensity), plane.y(min(roof.limit, plane.y_to))
        colour = HIGHLIGHT if numbers[roof.name] == 1 else BLUE
        tip = (
            f"{roof.name}\n{roof.intensity:.4g} op/B, {format_rate(roof.bandwidth)}\n"
            f"alone it would allow {format_operations(roof.limit)}; busy {percent(roof.used, 1.0)}"
        )
        if roof.limit > plane.y_to:  # off the scale
            mark = el("path", el("title", tip), d=f"M{x:.2f} {top:.2f}l5 9h-10z", fill=colour, stroke=PAPER)
        else:
            mark = el("circle", el("title", tip), cx=x, cy=top, r=5, fill=colour, stroke=PAPER)
        made += [line(x, base, x, top, colour, stroke_width=1, stroke_dasharray="2 2"), mark]
        made.append(el("circle", cx=x, cy=base, r=3, fill=HIGHLIGHT))
        group = next((group for group in groups if math.hypot(x - group[-1][0], top - group[-1][1]) < 13), None)
        if group is None:
            groups.append(group := [])
        group.append((x, top, numbers[roof.name]))
    for group in groups:
        others = [mark for other in groups if other is not group for mark in other]
        right, height = max(mark[0] for mark in group), sum(mark[1] for mark in group) / len(group)
        text = ", ".join(str(mark[2]) for mark in sorted(group, key=lambda mark: mark[2]))
        overlapping = any(right < x < right + 24 + width_of(text, 11) and abs(y - height) < 14 for x, y, _ in others)
        place, anchor = (min(mark[0] for mark in group) - 8, "end") if overlapping else (right + 8, "start")
        made.append(words(place, max(height + 4, plane.top + 9), text, anchor, BLUE, 11, font_weight="bold", **HALO))
    return made


def _resource_list(ranked: Sequence[Roof | Peak], numbers: dict[str, int], left: float) -> list[Element]:
    """The resources by how busy they are."""
    columns = (left, left + 20, left + 230, left + 310, left + 326)
    bar = WIDTH - columns[4] - 4
    made = [
        words(columns[1], 26, "resource", fill=FAINT, size=12),
        words(columns[2], 26, "op/B", "end", FAINT, 12),
        words(columns[3], 26, "bandwidth", "end", FAINT, 12),
        words(columns[4], 26, "busy", fill=FAINT, size=12),
    ]
    for item in ranked:
        y = 26.0 + 22 * numbers[item.name]
        if isinstance(item, Roof):
            made.append(words(columns[2], y, number(item.intensity), "end", size=12))
            made.append(words(columns[3], y, format_rate(item.bandwidth), "end", size=12))
        colour = HIGHLIGHT if numbers[item.name] == 1 else BLUE
        made += [
            words(columns[0] + 12, y, str(numbers[item.name]), "end", colour, 12, font_weight="bold"),
            words(columns[1], y, shortened(item.name, 150, 12), size=12),
            box(columns[4], y - 11, bar * item.used, 14, "#b9d7ea" if colour == BLUE else "#f2c4a2"),
            words(columns[4] + 4, y, percent(item.used, 1.0), size=12),
        ]
    return made


def front_plot(points: Sequence[tuple[float, float]], marks: Sequence[Mark]) -> Element:
    """The front as a staircase (time [s] to the right, energy [J] up) and named plans as diamonds.

    A plan so far away that the front would shrink to a few pixels is named below the plot instead.
    """
    near, far = _near(points, _joined(marks))
    times, energies = (sorted(pair[axis] for pair in (*points, *((t, e) for _, t, e in near))) for axis in (0, 1))
    height = 400.0 if far else 376.0
    left, top, width, depth = 96.0, 16.0, WIDTH - 130, 316.0
    t0, t1 = _padded(times[0], times[-1])
    e0, e1 = _padded(energies[0], energies[-1])

    def x(time: float) -> float:
        return left + width * (time - t0) / (t1 - t0)

    def y(energy: float) -> float:
        return top + depth * (1 - (energy - e0) / (e1 - e0))

    content: list[Element] = []
    for time in ticks_within(t0, t1, 8):
        content += [
            line(x(time), top, x(time), top + depth),
            words(x(time), top + depth + 18, format_time(time), "middle", FAINT, 12),
        ]
    for energy in ticks_within(e0, e1, 6):
        at = y(energy)
        content += [line(left, at, left + width, at), words(left - 6, at + 4, format_energy(energy), "end", FAINT, 12)]
    content += [line(left, top + depth, left + width, top + depth, INK), line(left, top, left, top + depth, INK)]
    content += [words(left + width / 2, top + depth + 38, "time", "middle", FAINT, 12)]
    middle = top + depth / 2
    content += [words(14, middle, "energy", "middle", FAINT, 12, transform=f"rotate(-90 14 {middle:.2f})")]
    ordered = sorted(points)
    corners = [f"M{x(ordered[0][0]):.2f} {y(ordered[0][1]):.2f}"]
    corners += [f"H{x(time):.2f}V{y(energy):.2f}" for time, energy in ordered[1:]]
    content.append(el("path", d="".join(corners), fill="none", stroke=BLUE, stroke_width=1.5))
    for time, energy in ordered:
        tip = f"{format_time(time)}, {format_energy(energy)}"
        content.append(el("circle", el("title", tip), cx=x(time), cy=y(energy), r=4.5, fill=BLUE, stroke=PAPER))
    for name, time, energy in near:
        px, py = x(time), y(energy)
        tip = f"{name}\n{format_time(time)}, {format_energy(energy)}"
        shape = f"M{px:.2f} {py - 8:.2f}l8 8l-8 8l-8 -8z"
        content.append(el("path", el("title", tip), d=shape, fill=HIGHLIGHT, stroke=PAPER))
        anchor, shift = ("end", -12) if px > left + width * 0.7 else ("start", 12)
        content.append(words(px + shift, py - 6, name, anchor, HIGHLIGHT, 12, font_weight="bold", **HALO))
    if far:
        text = "outside the drawn range: " + "; ".join(f"{name} ({format_time(t)}, {format_energy(e)})" for name, t, e in far)
        content.append(words(left, height - 6, shortened(text, width, 12), fill=FAINT, size=12))
    return canvas(height, "Time-energy front", content)


def _joined(marks: Sequence[Mark]) -> list[Mark]:
    """Plans of the same cost as one mark."""
    names: dict[tuple[float, float], list[str]] = {}
    for name, time, energy in marks:
        names.setdefault((time, energy), []).append(name)
    return [(", ".join(same), time, energy) for (time, energy), same in names.items()]


def _near(points: Sequence[tuple[float, float]], marks: Sequence[Mark]) -> tuple[list[Mark], list[Mark]]:
    """Marks within reach of the front, and the others."""
    near: list[Mark] = []
    far: list[Mark] = []
    times, energies = (_reach([point[axis] for point in points]) for axis in (0, 1))
    for name, time, energy in marks:
        inside = times[0] <= time <= times[1] and energies[0] <= energy <= energies[1]
        (near if inside else far).append((name, time, energy))
    return near, far


def _reach(values: Sequence[float]) -> tuple[float, float]:
    least, most = min(values), max(values)
    margin = 1.5 * max(most - least, 0.05 * most)
    return least - margin, most + margin


def _padded(least: float, most: float) -> tuple[float, float]:
    margin = 0.06 * (most - least) or 0.05 * most or 1.0
    return max(least - margin, 0.0), most + margin
