"""How well a fitted chip meets the operators that were measured: predicted over measured times, residuals, tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element

from halley.kernels.calibrate import ChipFit, Judgement, Prediction, errors
from halley.kernels.machine import SHARE_PARAMETERS
from halley.report.draw import FAINT, INK, PAPER, WIDTH, box, canvas, colours, decades, legend, line, words
from halley.report.mapping.plots import Plane
from halley.report.markup import el
from halley.report.table import Table
from halley.units import format_time

LEFT, TOP, SIDE, GAP = 74.0, 44.0, 400.0, 96.0
"""Of the square on the left: place and length of a side; and what lies between it and the residuals."""
EDGE_RESIDUAL = 0.4
"""Residual at the panel's edge; larger ones are drawn there."""


def operators_plot(title: str, fitted: Sequence[Prediction], held: Sequence[Prediction]) -> Element:
    """Predicted over measured times, and residuals over measured times: rings were fitted, dots were held out."""
    every = (*fitted, *held)
    shades = colours(item.row.operator for item in every)
    times = [time for item in every for time in (item.row.time, item.predicted)]
    marks = decades(min(times), max(times))
    low, high = marks[0], marks[-1] if len(marks) > 1 else 10 * marks[0]
    square = Plane(LEFT, TOP, SIDE, SIDE, low, high, low, high)
    across = Plane(LEFT + SIDE + GAP, TOP, WIDTH - LEFT - SIDE - GAP - 36, SIDE, low, high, low, high)
    content, _ = legend(shades.items(), LEFT, 8, WIDTH - LEFT)
    content += _square(square, marks) + _band(across, marks)
    for item in every:
        content += _marks(item, square, across, shades[item.row.operator], hollow=item in fitted)
    note = f"{title}; rings: rows of the fit, dots: rows held out"
    content.append(words(LEFT, TOP + SIDE + 60, note, fill=FAINT, size=12))
    return canvas(TOP + SIDE + 70, f"Measured and predicted operators: {title}", content)


def _square(plane: Plane, marks: Iterable[float]) -> list[Element]:
    """Grid, diagonal and words of predicted over measured."""
    bottom, right = plane.top + plane.height, plane.left + plane.width
    made = [words(plane.left + 4, plane.top - 6, "predicted over measured time", font_weight="bold")]
    for value in marks:
        made += [line(plane.left, plane.y(value), right, plane.y(value)), line(plane.x(value), plane.top, plane.x(value), bottom)]
        made.append(words(plane.left - 6, plane.y(value) + 4, format_time(value), "end", FAINT, 12))
        made.append(words(plane.x(value), bottom + 18, format_time(value), "middle", FAINT, 12))
    made.append(line(plane.left, bottom, right, plane.top, INK, stroke_width=1))
    made.append(words(plane.left + plane.width / 2, bottom + 38, "measured", "middle", FAINT, 12))
    return made


def _band(plane: Plane, marks: Iterable[float]) -> list[Element]:
    """Grid and words of the residuals."""
    bottom = plane.top + plane.height
    made = [words(plane.left + 4, plane.top - 6, "residual: predicted / measured - 1", font_weight="bold")]
    for value in marks:
        made.append(line(plane.x(value), plane.top, plane.x(value), bottom))
        made.append(words(plane.x(value), bottom + 18, format_time(value), "middle", FAINT, 12))
    for residual in (-EDGE_RESIDUAL, -0.2, -0.1, 0.0, 0.1, 0.2, EDGE_RESIDUAL):
        y = _height(plane, residual)
        made.append(line(plane.left, y, plane.left + plane.width, y, INK if residual == 0 else "#d9d9d9"))
        said = f"{100 * residual:+.0f} %" if residual else "0"
        made.append(words(plane.left - 6, y + 4, said, "end", FAINT, 12))
    made.append(words(plane.left + plane.width / 2, bottom + 38, "measured", "middle", FAINT, 12))
    return made


def _height(plane: Plane, residual: float) -> float:
    inside = min(max(residual, -EDGE_RESIDUAL), EDGE_RESIDUAL)
    return plane.top + plane.height * (1 - inside / EDGE_RESIDUAL) / 2


def _marks(item: Prediction, square: Plane, across: Plane, colour: str, hollow: bool) -> list[Element]:
    """The row in both panels; beyond the edge of the residuals as a bar."""
    said = f"measured {format_time(item.row.time)}, predicted {format_time(item.predicted)} ({100 * item.error:+.1f} %)"
    tip = f"{item.row.operator}: {said}"
    fill, stroke = (PAPER, colour) if hollow else (colour, PAPER)
    places = [(square.x(item.row.time), square.y(item.predicted))]
    x, y = across.x(item.row.time), _height(across, item.error)
    made = []
    if abs(item.error) > EDGE_RESIDUAL:
        made.append(box(x - 4, y - 2, 8, 4, colour, tip))
    else:
        places.append((x, y))
    for cx, cy in places:
        made.append(el("circle", el("title", tip), cx=cx, cy=cy, r=3.2, fill=fill, stroke=stroke, stroke_width=1))
    return made


def operators_tables(fit: ChipFit, judged: Judgement) -> list[Table]:
    """The parameters; and per operator the errors, beside those of simpler models on the same rows."""
    rows = [(name, f"{100 * getattr(fit.efficiency, name):.1f} %", _origin(fit, name)) for name in SHARE_PARAMETERS]
    rows += [(name, format_time(getattr(fit.efficiency, name)), _origin(fit, name)) for name in ("latency", "launch")]
    for name, host in fit.efficiency.hosts.items():
        rows.append((f"call of {name}", f"{format_time(host.call)} + {format_time(host.hidden)} beside", "fitted"))
    parameters = Table(f"{fit.chip}: parameters", ("parameter", "value", "origin"), tuple(rows), frozenset({1}))
    return [parameters, error_table(f"{fit.chip}: mean relative errors", judged)]


def _origin(fit: ChipFit, name: str) -> str:
    return "assumed: not determined by the rows" if name in fit.assumed else "fitted"


def error_table(title: str, judged: Judgement) -> Table:
    """Errors by operator: of the rows of the fit, of those held out, and of simpler models on the latter."""
    fitted, held = errors(judged.fitted), errors(judged.held)
    simple = {name: errors(found) for name, found in judged.baselines.items()}
    rows = []
    for operator in fitted:
        count = sum(item.row.operator == operator for item in (*judged.fitted, *judged.held))
        own = (_percent(fitted, operator), _percent(held, operator))
        rows.append((operator, str(count), *own, *(_percent(found, operator) for found in simple.values())))
    head = ("operator", "rows", "fitted", "held out", *simple)
    return Table(title, head, tuple(rows), frozenset(range(1, len(head))))


def _percent(found: Mapping[str, float], operator: str) -> str:
    return f"{100 * found[operator]:.1f} %" if operator in found else "-"
