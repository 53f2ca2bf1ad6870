"""A sweep in words and tables: the front, what became of every design, the best designs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from halley.io.files.save import dumps
from halley.mapping.problem import Objective
from halley.report.rows import Row
from halley.report.table import Table, gap_text
from halley.sweeps.explore import Standing
from halley.sweeps.figures import UNITS as FIGURE_UNITS
from halley.sweeps.figures import figure_text, left_out
from halley.sweeps.run import DesignOutcome, SweepResult
from halley.units import counted, format_energy, format_time
from halley.version import halley_version

UNITS = {Objective.TIME: "s", Objective.ENERGY: "J", Objective.EDP: "Js"}
FORMAT = "halley.sweep-answer/1"
SMALLEST_GAP = 1e-6
"""The least gap that tables and verdicts state."""


def title(result: SweepResult) -> str:
    """What was asked."""
    study = result.study
    asked = ", ".join((study.objective.value, *study.minimised))
    names = ", ".join(weighted(part.name, part.weight) for part in study.workloads)
    designs = counted(len(result.outcomes), "design")
    if result.sampled:
        designs += f" of {result.sampled:,}"
    return f"{study.name}: {designs}, {names}; minimised: {asked}"


def weighted(name: str, weight: float) -> str:
    """A workload with how often it counts."""
    return name if weight == 1 else f"{weight:g} x {name}"


def verdict(result: SweepResult) -> str:
    """How far the front is proven."""
    count = len(result.front)
    points = f"a front of {count:,} designs" if count != 1 else "one best design"
    open_ = counted(result.count(Standing.OPEN), "open design")
    if result.sampled and count:
        return f"{points} of {len(result.outcomes):,} that were chosen; nothing is known of the other {_others(result):,}"
    if not count:
        return f"nothing is known yet; {open_}" if result.count(Standing.OPEN) else f"no design has a {noun(result)}"
    if not result.study.minimised and result.gap == 0:
        return f"exact: no design has less {result.study.objective.value} than the best"
    if result.gap <= result.study.gap + 1e-12 or (result.done and not result.limited):
        if result.gap == 0:
            return f"exact: {points}; no other design is better in everything that is minimised"
        word = result.study.objective.value
        others = f" with no more {', '.join(result.study.minimised)}" if result.study.minimised else ""
        proven = f"proven to {exactness(result.gap)}: {points}; no design{others} has less {word} by more than that"
        own = "" if result.gap <= result.study.gap + 1e-12 else f" (a search for a {noun(result)} ends with a gap of its own)"
        return proven + own
    if not result.done:
        return f"not finished: {points} so far; {open_}"
    return f"{points}; the time limit left a gap of {gap_text(result.gap)} to the bounds"


def _others(result: SweepResult) -> int:
    return result.sampled - len(result.outcomes)


def effort(result: SweepResult) -> str:
    """How much of the study was searched."""
    designs, workloads = len(result.outcomes), len(result.study.workloads)
    touched = sum(bool(outcome.answers) for outcome in result.outcomes)
    share = 100 * touched / max(1, designs)
    return (
        f"{counted(result.searches, 'search')} of {designs * workloads:,} in {format_time(result.seconds)} of processor time; "
        f"{touched:,} of {counted(designs, 'design')} searched at least in part ({share:.1f} %)"
    )


def noun(result: SweepResult) -> str:
    """What is searched for a design."""
    return "mapping" if result.study.of_chips else "plan"


def given_figures(result: SweepResult) -> list[str]:
    """Figures that every design has, without those of the study."""
    return [name for name in FIGURE_UNITS if all(name in outcome.design.figures for outcome in result.outcomes)]


def omissions(result: SweepResult) -> list[str]:
    """What prices and powers that the study uses leave out, in sentences."""
    study, found = result.study, []
    for name in ("price", "power"):
        formulas = (*study.own.values(), *study.where)
        if name in study.minimised or any(name in formula.names for formula in formulas):
            parts = dict.fromkeys(part for outcome in result.outcomes for part in left_out(outcome.design.subject, name))
            if parts:
                found.append(f"{name} leaves out {', '.join(parts)}, for which none is stated")
    return found


def value_text(result: SweepResult, value: float) -> str:
    """A value of the objective."""
    if math.isinf(value):
        return "-"
    match result.study.objective:
        case Objective.TIME:
            return format_time(value)
        case Objective.ENERGY:
            return format_energy(value)
        case Objective.EDP:
            return f"{value:.4g} Js"


def front_table(result: SweepResult) -> Table:
    """The designs of the front."""
    return designs_table("Front" if result.study.minimised else "Best design", result, [result.outcomes[i] for i in result.front])


def best_table(result: SweepResult, count: int) -> Table:
    """The designs with the least values that are known."""
    known = sorted((o for o in result.outcomes if math.isfinite(o.value)), key=lambda o: (o.value, o.design.number))
    return designs_table(f"The {min(count, len(known)):,} best known", result, known[:count])


def designs_table(name: str, result: SweepResult, outcomes: list[DesignOutcome]) -> Table:
    """Designs with their axes, figures and values, and how far each value is proven unless all are exact."""
    study = result.study
    axes = [axis.name for axis in study.axes]
    bounded = [figure for figure in (*given_figures(result), *study.own) if any(figure in rule.names for rule in study.where)]
    figures = [figure for figure in dict.fromkeys((*study.minimised, *bounded)) if figure not in axes]
    inexact = any(outcome.gap for outcome in outcomes)
    proven = ("proven to",) if inexact else ()
    head = ("#", *short_names(axes), *figures, study.objective.value, *proven, "bound", "searches")
    rows = tuple(
        (
            f"{outcome.design.number}",
            *(outcome.design.setting[axis] for axis in axes),
            *(figure_text(figure, outcome.design.figures[figure]) for figure in figures),
            value_text(result, outcome.value),
            *((exactness(outcome.gap),) if inexact else ()),
            value_text(result, outcome.bound),
            origin_text(result, outcome),
        )
        for outcome in outcomes
    )
    last = len(head) - 1
    return Table(name, head, rows, frozenset(range(last)), spare=frozenset({last - 1, last}))


def exactness(gap: float) -> str:
    """How far a value is proven; what is not exact never looks so.

    >>> exactness(0.0), exactness(1e-8), exactness(0.004)
    ('exact', '0.0001 %', '0.4 %')
    """
    return gap_text(max(gap, SMALLEST_GAP)) if gap else "exact"


def short_names(names: Sequence[str]) -> tuple[str, ...]:
    """Dotted names without what they need not have to differ, but with two words at least.

    >>> short_names(["glb.capacity", "engines.matrix.rows", "a.x.size", "b.x.size"])
    ('glb.capacity', 'matrix.rows', 'a.x.size', 'b.x.size')
    """
    found = []
    for name in names:
        words = name.split(".")
        ends = (".".join(words[-length:]) for length in range(2, len(words) + 1))
        found.append(next((end for end in ends if sum(f".{other}".endswith(f".{end}") for other in names) == 1), name))
    return tuple(found)


def origin_text(result: SweepResult, outcome: DesignOutcome) -> str:
    """Where the mappings of a design come from."""
    others = sorted({of for of in _origins(result, outcome).values() if of not in (None, outcome.design.number)})
    if not others:
        return "its own" if outcome.answers else "none"
    named = ", ".join(map(str, others[:3]))
    return f"mappings of {named}" + (" and its own" if len(others) < len(outcome.mappings_of) else "")


def _origins(result: SweepResult, outcome: DesignOutcome) -> dict[str, int | None]:
    """By workload, the number of the design whose mapping reaches the value; None: no mapping is known."""
    return {part: number(result, place) if place >= 0 else None for part, place in outcome.mappings_of.items()}


def number(result: SweepResult, place: int) -> int:
    """The number of the design at a place among the outcomes."""
    return result.outcomes[place].design.number


def standings_table(result: SweepResult) -> Table:
    """What became of the designs."""
    rows = tuple((word.value, f"{result.count(word):,}") for word in Standing if result.count(word))
    return Table("What became of the designs", ("", "designs"), rows, frozenset({1}))


def why(result: SweepResult, outcome: DesignOutcome) -> str:
    """Why a design was not searched further, in a sentence; "" where it was."""
    if outcome.standing is Standing.INFEASIBLE:
        return outcome.reason
    cover = outcome.cover
    if cover is None or result.outcomes[cover.by] is outcome:
        return ""
    least = f"no {noun(result)} takes less than {value_text(result, cover.bound)}"
    figures = f", with no more {', '.join(result.study.minimised)}" if result.study.minimised else ""
    return f"{least}; design {number(result, cover.by)} takes {value_text(result, cover.value)}{figures}"


def sheet(result: SweepResult) -> list[Row]:
    """Every design as a row of bare numbers in SI units, under heads."""
    study, unit = result.study, UNITS[result.study.objective]
    axes = [axis.name for axis in study.axes]
    figures = [name for name in (*given_figures(result), *study.own) if name not in axes]
    own = [f"{part.name}_{study.objective.value}_{unit}" for part in study.workloads]
    head = (
        "design",
        *axes,
        *figures,
        f"{study.objective.value}_{unit}",
        f"bound_{unit}",
        *own,
        "standing",
        "front",
        "by",
        "seconds",
    )
    return [tuple(head), *(_sheet_row(result, outcome, axes, figures) for outcome in result.outcomes)]


def _sheet_row(result: SweepResult, outcome: DesignOutcome, axes: list[str], figures: list[str]) -> Row:
    design = outcome.design
    cover = outcome.cover
    return (
        design.number,
        *(design.figures.get(axis, design.setting[axis]) for axis in axes),
        *(design.figures[figure] for figure in figures),
        outcome.value if math.isfinite(outcome.value) else "",
        outcome.bound if math.isfinite(outcome.bound) else "",
        *(_found(outcome, part.name) for part in result.study.workloads),
        outcome.standing.name.lower(),
        int(outcome.on_front),
        number(result, cover.by) if cover is not None and result.outcomes[cover.by] is not outcome else "",
        outcome.seconds,
    )


def _found(outcome: DesignOutcome, workload: str) -> float | str:
    answer = outcome.answers.get(workload)
    return answer.value if answer is not None and math.isfinite(answer.value) else ""


def answer_document(result: SweepResult) -> dict[str, Any]:
    """The sweep as plain data: the study, its certificate, every design, and the mappings of the front."""
    study = result.study
    return {
        "schema": FORMAT,
        "provenance": {"halley": halley_version()},
        "study": {
            "name": study.name,
            "workloads": {part.name: {**part.given, "weight": part.weight} for part in study.workloads},
            "axes": [axis.name for axis in study.axes],
            "minimised": [study.objective.value, *study.minimised],
            "gap": study.gap,
            "time_limit": study.time_limit,
        },
        "certificate": {
            "verdict": verdict(result),
            "gap": None if result.sampled else finite(result.gap),
            "sampled_of": result.sampled or None,
            "done": result.done,
            "searches": result.searches,
            "seconds": result.seconds,
            "designs": {word.name.lower(): result.count(word) for word in Standing},
        },
        "front": [number(result, place) for place in result.front],
        "designs": [design_document(result, outcome) for outcome in result.outcomes],
        "mappings": mappings(result, [result.outcomes[place] for place in result.front]),
    }


def design_document(result: SweepResult, outcome: DesignOutcome) -> dict[str, Any]:
    """A design as plain data."""
    return {
        "index": outcome.design.number,
        "setting": dict(outcome.design.setting),
        "figures": dict(outcome.design.figures),
        "value": finite(outcome.value),
        "bound": finite(outcome.bound),
        "gap": finite(outcome.gap),
        "standing": outcome.standing.name.lower(),
        "on_front": outcome.on_front,
        "why": why(result, outcome),
        "mappings_of": _origins(result, outcome),
        "seconds": outcome.seconds,
    }


def mappings(result: SweepResult, outcomes: Iterable[DesignOutcome]) -> dict[str, dict[str, Any]]:
    """By design and workload, the mappings that these designs use, or their plans."""
    used = {(of, part) for outcome in outcomes for part, of in outcome.mappings_of.items() if of >= 0}
    found: dict[str, dict[str, Any]] = {}
    for place, part in sorted(used):
        answer = result.outcomes[place].answers[part]
        found.setdefault(str(number(result, place)), {})[part] = {
            "mapping": answer.mapping,
            "variant": answer.variant,
            "time": answer.time,
            "energy": finite(answer.energy),
            "ended": answer.ended,
        }
    return found


def finite(value: float) -> float | None:
    """A number that JSON can hold; None for infinity."""
    return value if math.isfinite(value) else None


def json_text(result: SweepResult) -> str:
    """The document as text."""
    return dumps(answer_document(result))


def columns(rows: list[Row]) -> Mapping[str, list[Any]]:
    """The sheet by columns; empty cells are None."""
    head, *body = rows
    return {str(name): [None if row[place] == "" else row[place] for row in body] for place, name in enumerate(head)}
