"""What more of each parameter buys, as lines, a table and plain data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict

from halley.io.results.envelope import Plain
from halley.products.sensitivity import ChangedValue, Effect, Sensitivity
from halley.report.table import Table
from halley.units import (
    format_bytes,
    format_energy,
    format_energy_per_byte,
    format_frequency,
    format_power,
    format_rate,
    format_time,
)

SCHEMA = "halley.sensitivity/1"
"""Name and version of the document."""

LEAST_RELATIVE_EFFECT = 5e-5
"""Smaller relative effects are none."""

LARGE_SHARE = 0.1
"""Share of the largest effect from which it is said that a parameter's value is assumed."""

BAR_CHARACTERS = 8
"""Characters of the longest bar."""

FORMATS: dict[str, Callable[[float], str]] = {
    "B": format_bytes,
    "B/s": format_rate,
    "Hz": format_frequency,
    "s": format_time,
    "J": format_energy,
    "J/B": format_energy_per_byte,
    "W": format_power,
    "J s": lambda value: f"{value:.4g} J s",
}


def sensitivity_lines(found: Sensitivity) -> tuple[str, ...]:
    """What was asked, and how to read the table."""
    size = f"{100 * found.change:g} %"
    lines = [
        f"{found.title}: {found.objective} {FORMATS[found.unit](found.value)}",
        f"Each parameter alone {size} better (more of it, or less latency or energy), or worse: the change of the "
        f"{found.objective} of this plan, and of the best plan then.",
    ]
    without = [item.parameter.name for item in found.effects if _largest(item, found) < LEAST_RELATIVE_EFFECT]
    if without:
        lines.append(f"No effect: {', '.join(without)}.")
    large = [item for item in found.effects if _largest(item, found) >= max(LEAST_RELATIVE_EFFECT, LARGE_SHARE * _most(found))]
    for item in large:
        if reason := found.assumed.get(item.parameter.name):
            lines.append(f"The {item.parameter.name} is assumed, not published: {reason}.")
    if found.stopped:
        lines.append("Stopped early: '-' was not searched, and ranges that were not found are left out; raise the time limit.")
    return tuple(lines)


def sensitivity_table(found: Sensitivity) -> Table:
    """A row for each parameter that has an effect."""
    effects = [item for item in found.effects if _largest(item, found) >= LEAST_RELATIVE_EFFECT]
    longest = _most(found)
    rows = [
        (
            item.parameter.name,
            FORMATS[item.parameter.unit](item.parameter.value),
            *_cells(item.better, found.value),
            *_cells(item.worse, found.value),
            "█" * max(1, round(BAR_CHARACTERS * min(_largest(item, found) / longest, 1))),
        )
        for item in effects
    ]
    head = ("parameter", "value", "better: this", "best", "worse: this", "best", "effect")
    return Table(f"Change of the {found.objective}", head, tuple(rows), frozenset({1, 2, 3, 4, 5}), spare=frozenset({6}))


def ranges_table(found: Sensitivity) -> Table:
    """A row for each parameter whose range was found: how far it may move before the plan changes."""
    rows = []
    for item in found.effects:
        if (held := item.range) is not None:
            value, words = item.parameter.value, FORMATS[item.parameter.unit]
            ends = [words(value * factor) for factor in (held.least, held.most)]
            tried = ["holds" if factor is None else f"changes by {words(value * factor)}" for factor in (held.below, held.above)]
            rows.append((item.parameter.name, words(value), ends[0], tried[0], ends[1], tried[1]))
    head = ("parameter", "value", "holds from", "below", "holds to", "above")
    return Table("Values with which this plan stays the best", head, tuple(rows), frozenset({1, 2, 4}))


def _most(found: Sensitivity) -> float:
    """The largest finite effect."""
    return max((size for item in found.effects if math.isfinite(size := _largest(item, found))), default=1.0)


def _largest(effect: Effect, found: Sensitivity) -> float:
    """The larger relative effect of the two changes, of the best plan where it was searched."""
    sizes = []
    for change in (effect.better, effect.worse):
        value = change.kept if change.best is None else change.best
        sizes.append(abs(value / found.value - 1) if value is not None else 0.0)
    return max(sizes)


def _cells(change: ChangedValue, value: float) -> tuple[str, str]:
    return _cell(change.kept, value), _cell(change.best, value)


def _cell(known: float | None, value: float) -> str:
    if known is None:
        return "-"
    if math.isinf(known):
        return "no fit"
    share = 100 * (known / value - 1)
    return "0 %" if abs(share) < 0.005 else f"{share:+.2f} %"


def sensitivity_document(found: Sensitivity) -> Plain:
    """As plain data, in SI units."""
    return {
        "schema": SCHEMA,
        "title": found.title,
        "objective": found.objective,
        "unit": found.unit,
        "value": found.value,
        "bound": found.bound,
        "change": found.change,
        "stopped": found.stopped,
        "assumed": dict(found.assumed),
        "parameters": [
            {
                "name": item.parameter.name,
                "value": item.parameter.value,
                "unit": item.parameter.unit,
                "better": _change(item.better),
                "worse": _change(item.worse),
                **({} if item.range is None else {"range": asdict(item.range)}),
            }
            for item in found.effects
        ],
    }


def _change(change: ChangedValue) -> Plain:
    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    return {
        "factor": change.factor,
        "this_plan": finite(change.kept),
        "this_plan_fits": change.kept != math.inf,
        "best_plan": finite(change.best),
        "bound": finite(change.bound),
        "proven_without_search": change.proven,
        "same_plan": change.same_plan,
    }
