"""A sweep as one self-contained HTML file: scatter plots, parallel coordinates, front, table.

The plots are drawn here, and again by the page's script where the reader chooses other axes, marks points, or searches the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element

from halley.report.document import document
from halley.report.draw import FAINT, GRID, HIGHLIGHT, PALETTE, byte_base, canvas, line, ticks_within, words
from halley.report.html_tables import table
from halley.report.markup import el
from halley.report.sweeps import facts
from halley.report.table import Table, gap_text
from halley.sweeps.explore import Standing
from halley.sweeps.figures import UNITS, figure_text
from halley.sweeps.run import DesignOutcome, SweepResult
from halley.sweeps.values import unit_symbol
from halley.units import counted

ROWS_LIMIT = 2_000
"""Most designs of the page's table; a browser becomes slow beyond."""

ParallelAxis: TypeAlias = tuple[str, list[list[float | str]], Callable[[DesignOutcome], float]]
"""Of parallel coordinates: the name of an axis, its ticks, and where a design is on it, from 0 to 1."""

WIDTH, HEIGHT = 560.0, 360.0
LEFT, RIGHT, TOP, BOTTOM = 74.0, 14.0, 12.0, 46.0


def sweep_page(result: SweepResult) -> str:
    """The whole sweep as HTML; its numbers stand in it as JSON."""
    shown = _shown(result)
    proven = result.gap <= result.study.gap + 1e-12 and bool(result.front)
    left_out = len(result.outcomes) - len(shown)
    note = f" The table has the {len(shown):,} best designs; the CSV file has all." if left_out else ""
    sections = [
        el(
            "section",
            el("h2", "Designs"),
            el(
                "p",
                f"Each point is a design with a known {facts.noun(result)}; those of the front are orange. Drag a rectangle to "
                "mark points in both plots and keep their rows in the table; click a point to see its design.",
                class_="faint",
            ),
            el("div", *_plots(result, shown), class_="plots"),
            el("h3", "Parallel coordinates"),
            el(
                "p",
                "Each line is a design. Drag along an axis to mark the lines that pass there, along others to narrow them; click "
                "an axis to drop its mark, a line to see its design.",
                class_="faint",
            ),
            el("div", el("svg"), id="parallel", class_="scroll"),
            el("div", id="picked", hidden="hidden"),
            id="designs",
        ),
        el("section", el("h2", "Front"), _wide(facts.front_table(result)), id="front"),
        el(
            "section",
            el("h2", "All designs"),
            el("p", f"Search by any word or number; click a head to sort.{note}", class_="faint"),
            el(
                "p",
                el("input", type="search", id="search", placeholder="search", aria_label="Search the table"),
                el("span", "", id="matches", class_="faint"),
                class_="tools",
            ),
            _rows(result, shown),
            id="all",
        ),
        el("section", el("h2", "Certificate"), *map(table, _certificate(result)), id="certificate"),
    ]
    header = [
        el("p", "Halley sweep", class_="kicker"),
        el("h1", facts.title(result)),
        el("div", el("strong", facts.verdict(result)), class_="verdict" if proven else "verdict open"),
        el("dl", *_tiles(result), class_="tiles"),
    ]
    data = facts.answer_document(result) | {"page": _data(result, shown)}
    data["mappings"] = facts.mappings(result, shown)
    data["designs"] = [facts.design_document(result, outcome) for outcome in shown]
    return document(
        facts.title(result), header, sections, data, "sweep.json", f"Halley {data['provenance']['halley']}.", ("sweep.js",)
    )


def _shown(result: SweepResult) -> list[DesignOutcome]:
    """The designs of the table: those of the front first, then the others by value, then by bound."""
    ordered = sorted(result.outcomes, key=lambda o: (not o.on_front, o.value, o.bound, o.design.number))
    return ordered[:ROWS_LIMIT]


def _dimensions(result: SweepResult) -> list[tuple[str, str]]:
    """What a plot may have as an axis: key and words."""
    study = result.study
    numeric = [axis.name for axis in study.axes if axis.name in result.outcomes[0].design.figures]
    every = dict.fromkeys((*study.minimised, *numeric, *facts.given_figures(result), *study.own))
    return [("value", study.objective.value), *((name, name) for name in every if name in result.outcomes[0].design.figures)]


def _unit(result: SweepResult, key: str) -> str:
    """The SI unit of what a plot may have as an axis; "" for a plain number, and for the value, which has its own."""
    study = result.study
    steps = (step[0] for axis in study.axes if axis.name == key for step in axis.steps)
    return UNITS.get(key) or unit_symbol(steps, study.base.clock)


def _data(result: SweepResult, shown: Sequence[DesignOutcome]) -> dict[str, Any]:
    names = [key for key, _ in _dimensions(result)]
    study, parallel = result.study, _parallel(result, shown)
    return {
        "dimensions": [{"key": key, "name": words_, "unit": _unit(result, key)} for key, words_ in _dimensions(result)],
        "unit": facts.UNITS[study.objective],
        "minimised": ["value", *study.minimised],
        "points": [
            {
                "index": o.design.number,
                "front": o.on_front,
                "own": o.standing is Standing.SEARCHED,
                "x": [facts.finite(o.value) if name == "value" else o.design.figures[name] for name in names],
                "words": _tip(result, o),
                "at": [place(o) for _, _, place in parallel],
            }
            for o in shown
            if math.isfinite(o.value)
        ],
        "parallel": [{"name": name, "ticks": ticks} for name, ticks, _ in parallel],
    }


def _parallel(result: SweepResult, shown: Sequence[DesignOutcome]) -> list[ParallelAxis]:
    """The axes of the parallel coordinates: of the study, a step each; of figures and the value, from the least to the most."""
    study, found = result.study, list[ParallelAxis]()
    known = [outcome for outcome in shown if math.isfinite(outcome.value)]
    for axis, name in zip(study.axes, facts.short_names([axis.name for axis in study.axes]), strict=True):
        steps = {outcome.design.setting[axis.name]: outcome.design.figures.get(axis.name) for outcome in known}
        words = sorted(steps, key=lambda word, of=steps: (of[word] is None, of[word] or 0.0))  # type: ignore[misc]
        shares = {word: place / max(1, len(words) - 1) for place, word in enumerate(words)}
        found.append((name, [[share, word] for word, share in shares.items()], partial(_of_step, axis.name, shares)))
    for key in (*study.minimised, "value"):
        if key in [axis.name for axis in study.axes]:
            continue
        values = [_number(outcome, key) for outcome in known] or [0.0]
        least, most = min(values), max(values)
        ticks: list[list[float | str]] = [
            [share, facts.value_text(result, value) if key == "value" else figure_text(key, value)]
            for share, value in ((0.0, least), (1.0, most))
        ]
        name = study.objective.value if key == "value" else key
        found.append((name, ticks if most > least else ticks[:1], partial(_of_number, key, least, most)))
    return found


def _of_step(axis: str, shares: Mapping[str, float], outcome: DesignOutcome) -> float:
    return shares[outcome.design.setting[axis]]


def _of_number(key: str, least: float, most: float, outcome: DesignOutcome) -> float:
    return (_number(outcome, key) - least) / (most - least) if most > least else 0.0


def _number(outcome: DesignOutcome, key: str) -> float:
    return outcome.value if key == "value" else outcome.design.figures[key]


def _tip(result: SweepResult, outcome: DesignOutcome) -> str:
    setting = ", ".join(f"{name} {value}" for name, value in outcome.design.setting.items())
    figures = ", ".join(f"{name} {figure_text(name, outcome.design.figures[name])}" for name in result.study.minimised)
    reached = facts.value_text(result, outcome.value)
    return f"design {outcome.design.number}: {reached}{', ' + figures if figures else ''}\n{setting}\n{outcome.standing}"


def _plots(result: SweepResult, shown: Sequence[DesignOutcome]) -> list[Element]:
    """Two plots, side by side where the page is wide enough: value by the first figure, and by the second or an axis."""
    others = [key for key, _ in _dimensions(result) if key != "value"] or ["value"]
    first = result.study.minimised[0] if result.study.minimised else others[0]
    second = next((name for name in (*result.study.minimised[1:], *others) if name != first), first)
    return [_plot(result, shown, place, name) for place, name in enumerate((first, second))]


def _plot(result: SweepResult, shown: Sequence[DesignOutcome], place: int, across: str) -> Element:
    choices = [
        [
            el("option", name, value=key, **({"selected": "selected"} if key == chosen else {}))
            for key, name in _dimensions(result)
        ]
        for chosen in (across, "value")
    ]
    controls = el(
        "p",
        el("label", "across ", el("select", *choices[0], class_="across")),
        el("label", " up ", el("select", *choices[1], class_="up")),
        el("label", " ", el("input", type="checkbox", class_="log"), " log"),
        class_="tools",
    )
    return el("figure", controls, scatter(result, shown, across), class_="plot", data_place=str(place))


def scatter(result: SweepResult, shown: Sequence[DesignOutcome], across: str) -> Element:
    """The value of designs by one of their figures; those of the front joined by a line."""
    known = [outcome for outcome in shown if math.isfinite(outcome.value)]
    xs = [outcome.value if across == "value" else outcome.design.figures[across] for outcome in known]
    ys = [outcome.value for outcome in known]
    left, right, low, high = *_range(xs), *_range(ys)
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + wide * (x - left) / (right - left), TOP + tall * (1 - (y - low) / (high - low))

    content: list[Element] = []
    unit = _unit(result, across)
    for tick in ticks_within(left, right, 5, byte_base(right) if unit == "B" else 1.0):
        x, _ = at(tick, low)
        text = facts.value_text(result, tick) if across == "value" else figure_text(across, tick, unit)
        place, anchor = (x, "middle") if x < LEFT + wide - 20 else (x + RIGHT, "end")  # not beyond the edge
        content += [line(x, TOP, x, TOP + tall, GRID), words(place, TOP + tall + 18, text, anchor, FAINT, 12)]
    for tick in ticks_within(low, high, 5):
        _, y = at(left, tick)
        content += [line(LEFT, y, LEFT + wide, y, GRID), words(LEFT - 6, y + 4, facts.value_text(result, tick), "end", FAINT, 12)]
    name = result.study.objective.value if across == "value" else across
    content.append(words(LEFT + wide / 2, HEIGHT - 8, name, "middle", FAINT, 12))
    best = sorted((x, y) for x, y, outcome in zip(xs, ys, known, strict=True) if outcome.on_front)
    # of a front in more dimensions, the part that is a front in these two
    front = [point for place, point in enumerate(best) if all(point[1] < other[1] for other in best[:place])]
    front = front if across in result.study.minimised else []
    if len(front) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in front))
        content.append(el("polyline", points=path, fill="none", stroke=HIGHLIGHT, stroke_width=1))
    for x, y, outcome in zip(reversed(xs), reversed(ys), reversed(known), strict=True):
        cx, cy = at(x, y)
        fill = HIGHLIGHT if outcome.on_front else PALETTE[0] if outcome.standing is Standing.SEARCHED else PALETTE[5]
        content.append(
            el(
                "circle",
                el("title", _tip(result, outcome)),
                cx=cx,
                cy=cy,
                r=5 if outcome.on_front else 3.5,
                fill=fill,
                data_design=str(outcome.design.number),
            )
        )
    return canvas(HEIGHT, f"{result.study.objective.value} by {name}", content, WIDTH)


def _range(values: Sequence[float]) -> tuple[float, float]:
    least, most = min(values, default=0.0), max(values, default=1.0)
    margin = (most - least) * 0.05 or abs(most) * 0.1 or 1.0
    return least - margin, most + margin


def _rows(result: SweepResult, shown: Sequence[DesignOutcome]) -> Element:
    """The table of designs; numbers to sort by stand on the cells."""
    study = result.study
    axes = [axis.name for axis in study.axes]
    figures = [name for name in study.minimised if name not in axes]
    head = ["#", *facts.short_names(axes), *figures, study.objective.value, "bound", "what became of it"]
    made = el(
        "table",
        el("thead", el("tr", *(el("th", name, scope="col", class_="right" if name != head[-1] else "left") for name in head))),
        class_="sortable",
    )
    body = el("tbody")
    for outcome in shown:
        design = outcome.design
        cells: list[tuple[str, float | None]] = [(f"{design.number}", float(design.number))]
        cells += [(design.setting[axis], design.figures.get(axis)) for axis in axes]
        cells += [(figure_text(name, design.figures[name]), design.figures[name]) for name in figures]
        cells += [(facts.value_text(result, each), each) for each in (outcome.value, outcome.bound)]
        row = el("tr", data_design=str(design.number), **({"class": "strong"} if outcome.on_front else {}))
        for text, number in cells:
            row.append(el("td", text, class_="right", **({"data_n": repr(number)} if number is not None else {})))
        standing = "on the front" if outcome.on_front else str(outcome.standing)
        row.append(el("td", standing, title=facts.why(result, outcome)))
        body.append(row)
    made.append(body)
    return el("div", made, class_="scroll")


def _wide(shown: Table) -> Element:
    return el("div", table(shown, titled=False), class_="scroll")


def _certificate(result: SweepResult) -> list[Table]:
    study = result.study
    limit = "none" if study.time_limit is None else f"{study.time_limit:g} s"
    pairs = (
        ("verdict", facts.verdict(result)),
        ("gap of the front", gap_text(result.gap)),
        ("effort", facts.effort(result)),
        ("asked of each search", f"gap {gap_text(study.gap)}, time limit {limit}"),
        (
            "method",
            "designs in the order of their lower bounds; a design is excluded when a known point has no larger figure, and "
            "a value within the gap of its bound. Bounds: compulsory work and traffic over all fusions, and searches of designs "
            "that are no worse. Mappings found on one design are costed on others of its structure.",
        ),
    )
    excluded = [o for o in result.outcomes if o.standing in (Standing.EXCLUDED, Standing.PARTLY)]
    some = tuple((f"{o.design.number}", facts.why(result, o)) for o in excluded[:20])
    head = f"Excluded by bounds: {counted(len(excluded), 'design')}" + (", of which 20" if len(excluded) > 20 else "")
    tables = [Table("", ("", ""), pairs), facts.standings_table(result)]
    return [*tables, Table(head, ("design", "why"), some)] if some else tables


def _tiles(result: SweepResult) -> list[Element]:
    best = result.best
    touched = sum(bool(outcome.answers) for outcome in result.outcomes)
    shown = [
        ("designs", f"{len(result.outcomes):,}"),
        ("searched, at least in part", f"{touched:,}"),
        ("on the front", f"{len(result.front):,}"),
        (f"least {result.study.objective.value}", facts.value_text(result, best.value) if best else "-"),
        ("gap of the front", gap_text(result.gap)),
    ]
    return [el("div", el("dt", name), el("dd", value)) for name, value in shown]
