"""Tables as HTML, for the page and for notebooks. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from xml.etree.ElementTree import Element

import numpy as np

from halley.cost.estimate import Estimate
from halley.cost.figures import resource_name
from halley.mapping.result import Result, Solution
from halley.report.mapping.facts import energy_table, plan_text, problem_text, result_tables, verdict
from halley.report.markup import el, html_text
from halley.report.table import Table, percent
from halley.units import format_bytes, format_energy, format_time

LONG = 24
"""Characters of a word from which on it may be broken, so that no table is wider than its page."""


def table(shown: Table, kind: str = "", titled: bool = True) -> Element:
    """A table as an element, with its title unless a heading says the same. ``kind``: its class; tables without a head are
    ``pairs``. What the alignment and the bold rows say is written on the cells, as notebooks bring no style sheet.

    >>> html_text(table(Table("t", ("a",), (("<b>",),))))
    '<table><caption>t</caption><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    headed = any(shown.head)
    kind = kind or ("" if headed else "pairs")
    made = el("table", **({"class": kind} if kind else {}))
    if titled and shown.title:
        made.append(el("caption", shown.title))
    if headed:
        made.append(el("thead", _row("th", shown.head, shown.right)))
    body = (_row("td", row, shown.right, index in shown.strong) for index, row in enumerate(shown.rows))
    made.append(el("tbody", *body))
    return made


def _row(tag: str, cells: Iterable[str], right: frozenset[int], strong: bool = False) -> Element:
    row = el("tr", **({"class": "strong", "style": "font-weight:600"} if strong else {}))
    for position, cell in enumerate(cells):
        long = any(len(word) > LONG for word in cell.split())
        aligned = {"class": "right", "style": "text-align:right"} if position in right else {"class": "long"} if long else {}
        # the indentation of a tree is its meaning
        words = cell.lstrip(" ")
        first, *further = ("\N{NO-BREAK SPACE}" * (len(cell) - len(words)) + words).split("\n")
        row.append(el(tag, first, *(part for line in further for part in (el("br"), line)), **aligned))
    return row


def table_html(shown: Table) -> str:
    """One table as text."""
    return html_text(table(shown))


def result_html(result: Result) -> str:
    """A result: what was asked, the verdict, and all its tables."""
    problem = result.problem
    head = f"<p><b>{escape(problem_text(problem.workload, problem.chip, problem.objective))}</b><br>{_about(result.best)}</p>"
    return head + _tables(result_tables(result, details=True))


def solution_html(solution: Solution) -> str:
    """A plan on its own."""
    return f"<p>{_about(solution)}</p>" + (estimate_html(solution.estimate) or "")


def estimate_html(estimate: Estimate) -> str | None:
    """An estimate without its plan: time, energy and its parts, busy resources, memories. None for a batch (arrays)."""
    if np.ndim(estimate.time):
        return None
    time = float(estimate.time)
    busy = sorted(((resource_name(name), float(value)) for name, value in estimate.busy.items()), key=lambda item: -item[1])
    whole = (("time", format_time(time)), ("energy", format_energy(float(estimate.energy))))
    works = tuple((name, format_time(value), percent(value, time)) for name, value in busy)
    live = tuple((name, format_bytes(float(value))) for name, value in estimate.footprint.items())
    return _tables(
        (
            Table("Estimate", ("quantity", "value"), whole),
            Table("Busy", ("resource", "time", "share"), works, frozenset({1, 2})),
            energy_table(estimate),
            Table("Footprint", ("memory", "bytes"), live, frozenset({1})),
        )
    )


def _about(solution: Solution) -> str:
    return f"{escape(plan_text(solution))}<br>{escape(verdict(solution.certificate))}"


def _tables(tables: Iterable[Table]) -> str:
    return "".join(map(table_html, tables))


def attach() -> None:
    """Let notebooks show `Result`, `Solution` and `Estimate` as tables.

    A registration: cost and search know nothing of reports. `Estimate` of a batch (arrays) keeps its plain form.
    """
    for kind, function in ((Result, result_html), (Solution, solution_html), (Estimate, estimate_html)):
        setattr(kind, "_repr_html_", function)  # noqa: B010  (a name that the classes do not declare)
