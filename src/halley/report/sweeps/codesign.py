"""A co-design in words and tables: the best design beside the base, its budgets, and what they cost."""

from __future__ import annotations

import math
from typing import Any

from halley.ir.hardware import Chip
from halley.ir.system import System
from halley.report.hardware import area_table
from halley.report.sweeps import facts
from halley.report.table import Table
from halley.sweeps.codesign import CodesignResult
from halley.sweeps.figures import figure_text
from halley.version import halley_version

FORMAT = "halley.codesign-answer/1"


def title(result: CodesignResult) -> str:
    """What was asked."""
    study = result.study
    mix = ", ".join(facts.weighted(part.name, part.weight) for part in study.workloads)
    budgets = ", ".join(f"{name} at most {figure_text(name, most)}" for name, most in result.budgets.items())
    return f"{study.name}: least {study.objective.value} of {mix}; {budgets}"


def verdict(result: CodesignResult) -> str:
    """How far the best design is proven, and of how many."""
    sweep = result.sweep
    return f"{facts.verdict(sweep)}, of {len(sweep.outcomes):,} that keep the budgets, of {result.study.points:,} in the study"


def design_table(result: CodesignResult) -> Table:
    """The best design beside the base."""
    best, objective = result.best, result.study.objective.value
    rows: list[tuple[str, str, str, str]] = []
    if best is not None:
        base = result.base_setting
        rows += [(axis, base.get(axis, ""), _first(value), "") for axis, value in best.design.setting.items()]
        for name, most in result.budgets.items():
            before = figure_text(name, result.base[name]) if name in result.base else ""
            value = best.design.figures[name]
            share = f"{100 * value / most:.0f} % of {figure_text(name, most)}" if most else ""
            rows.append((name, before, figure_text(name, value), share))
        for name in (part.name for part in result.study.workloads):
            own, known = best.answers.get(name), result.base_answers.get(name)
            if own is not None:
                rows.append((f"{name}: {objective}", *_pair(result, known.value if known else math.inf, own.value)))
        if len(result.study.workloads) > 1:
            rows.append((f"all: {objective}", *_pair(result, result.base_value, best.value)))
    if not any(row[1].strip("-") for row in rows):  # the base is no design by itself
        return Table("Best design", ("", "best", ""), tuple((name, *rest) for name, _, *rest in rows), frozenset({1}))
    return Table("Best design", ("", "base", "best", ""), tuple(rows), frozenset({1, 2}))


def _first(value: str) -> str:
    """Of linked values the first, which the axis is about."""
    return value.partition(" / ")[0]


def _pair(result: CodesignResult, before: float, after: float) -> tuple[str, str, str]:
    gain = f"{before / after:.3g} x" if 0 < after < math.inf and before < math.inf else ""
    return facts.value_text(result.sweep, before), facts.value_text(result.sweep, after), gain


def relaxed_table(result: CodesignResult) -> Table:
    """What larger budgets would give, one at a time."""
    best = result.best
    rows = []
    listed: dict[str, float] = {}
    for each in result.relaxed:
        if each.factor < math.inf and each.value >= listed.get(each.figure, best.value if best is not None else math.inf):
            continue  # no better than the row before
        listed[each.figure] = each.value
        gain = f"{best.value / each.value:.3g} x" if best is not None and 0 < each.value < math.inf else ""
        budget = "none" if math.isinf(each.factor) else figure_text(each.figure, result.budgets[each.figure] * each.factor)
        changed = best.design.setting if best is not None else {}
        differs = ", ".join(f"{axis} {_first(value)}" for axis, value in each.setting.items() if changed.get(axis) != value)
        rows.append((each.figure, budget, f"{each.designs:,}", facts.value_text(result.sweep, each.value), gain, differs))
    head = ("budget", "at most", "designs", result.study.objective.value, "gain", "what changes")
    return Table("With one larger budget", head, tuple(rows), frozenset({1, 2, 3, 4}))


def tables(result: CodesignResult) -> list[Table]:
    """All of them."""
    found = [design_table(result)]
    if result.best is not None:
        subject = result.best.design.subject
        chip = subject.chip if isinstance(subject, System) else subject
        area = area_table(chip) if isinstance(chip, Chip) else None
        found += [area] if area is not None else []
    return [*found, *([relaxed_table(result)] if result.relaxed else [])]


def document(result: CodesignResult) -> dict[str, Any]:
    """The co-design as plain data."""
    best, study = result.best, result.study
    return {
        "schema": FORMAT,
        "provenance": {"halley": halley_version()},
        "study": {
            "name": study.name,
            "workloads": {part.name: {**part.given, "weight": part.weight} for part in study.workloads},
            "objective": study.objective.value,
            "points": study.points,
        },
        "budgets": dict(result.budgets),
        "certificate": {
            "verdict": verdict(result),
            "gap": facts.finite(result.sweep.gap),
            "done": result.sweep.done,
            "designs": len(result.sweep.outcomes),
            "searches": result.sweep.searches,
        },
        "best": None if best is None else facts.design_document(result.sweep, best),
        "base": {
            "figures": dict(result.base),
            "value": facts.finite(result.base_value),
            "workloads": {name: facts.finite(answer.value) for name, answer in result.base_answers.items()},
        },
        "relaxed": [
            {
                "figure": each.figure,
                "factor": facts.finite(each.factor),
                "designs": each.designs,
                "value": facts.finite(each.value),
                "setting": dict(each.setting),
            }
            for each in result.relaxed
        ],
    }
