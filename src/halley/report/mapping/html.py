"""Results of mappings as HTML, for notebooks. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np

from halley.cost.estimate import Estimate
from halley.cost.figures import resource_name
from halley.mapping.result import Result, Solution
from halley.report.html_tables import table_html
from halley.report.mapping.facts import energy_table, plan_text, problem_text, result_tables, verdict
from halley.report.table import Table, percent
from halley.units import format_bytes, format_energy, format_time


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
    """Let notebooks show `Solution` and `Estimate` as tables.

    A registration: cost and search know nothing of reports. `Estimate` of a batch (arrays) keeps its plain form.
    """
    for kind, function in ((Solution, solution_html), (Estimate, estimate_html)):
        setattr(kind, "_repr_html_", function)  # noqa: B010  (a name that the classes do not declare)
