"""The cluster with its axes, from the outermost to one chip, and what the plan splits over each."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from halley.report.draw import FAINT, GRID, INK, OTHER, PALETTE, PAPER, WIDTH, box, canvas, ink_on, legend, line, shortened, words
from halley.sharding.axes import Role, SubAxis
from halley.training.plan import TrainingResult
from halley.units import format_rate, format_time

ROW, BAR = 64.0, 26.0
"""Height of a row with the lines to the next one, and of its cells [px]."""
LEFT, RIGHT = 150.0, 210.0
"""Width of the words on both sides [px]."""
MOST_CELLS = 32
"""Cells that are drawn of a row; the last one stands for the rest."""
WHAT = {Role.DATA: "batch (DP)", Role.PIPELINE: "layers (PP)", Role.MODEL: "ops (TP, SP, CP, EP)"}


def cluster_picture(result: TrainingResult) -> Element:
    """A row for each part of an axis, the outermost first: its members as cells, coloured by what is split over them. Each row
    is the inside of one member of the row above; the last row is one chip."""
    parts = result.plan.assignment
    fills = dict(zip(Role, PALETTE, strict=False))
    used = [role for role in Role if any(part.role is role for part in parts)]
    made, top = legend([(WHAT[role], fills[role]) for role in used], LEFT, 4, WIDTH - LEFT)
    top += 10
    for part in parts:
        made += _row(result, part, top, fills[part.role])
        top += ROW
    width = WIDTH - LEFT - RIGHT
    chip = result.problem.system.chip.name
    made += [
        box(LEFT, top, width, BAR, PAPER, f"one {chip}", stroke=INK),
        words(LEFT + width / 2, top + 17, f"1 {chip}", "middle"),
    ]
    return canvas(top + BAR + 6, "The cluster, its axes, and what is split over each", made)


def _row(result: TrainingResult, part: SubAxis, top: float, fill: str) -> Iterator[Element]:
    axis = next(axis for axis in result.problem.system.axes if axis.name == part.axis)
    width = WIDTH - LEFT - RIGHT
    cells = min(part.size, MOST_CELLS)
    each = width / cells
    for cell in range(cells):
        rest = part.size - MOST_CELLS + 1 if cell == MOST_CELLS - 1 and part.size > MOST_CELLS else 0
        colour, text = (OTHER, f"+{rest}") if rest else (fill, str(cell))
        x = LEFT + cell * each
        yield box(x, top, each, BAR, colour, f"{part.axis}: {text} of {part.size}", stroke=PAPER, stroke_width=1)
        yield words(x + each / 2, top + 17, shortened(text, each, 11), "middle", ink_on(colour), 11, pointer_events="none")
    name = part.axis if part.size == axis.size else f"{part.axis}, {part.size} of {axis.size}"
    yield words(LEFT - 8, top + 17, shortened(name, LEFT - 12), "end")
    link = f"{format_rate(axis.link.bandwidth)}, {format_time(axis.link.latency)}"
    yield words(LEFT + width + 10, top + 11, f"{part.size} by {axis.topology}", size=12)
    yield words(LEFT + width + 10, top + 25, link, fill=FAINT, size=12)
    # what is inside the first member is drawn below
    yield line(LEFT, top + BAR, LEFT, top + ROW, GRID)
    yield line(LEFT + each, top + BAR, LEFT + width, top + ROW, GRID)
