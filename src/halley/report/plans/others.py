"""Other plans than the best one, and why they are slower."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from halley.report.plans.words import plan_words
from halley.report.table import Table
from halley.training.plan import Alternative, TrainingResult
from halley.units import format_time

REASONS_SHOWN = 4
"""Parts of the account that are named for each alternative; the others are summed up."""

LEAST_REASON_SHARE = 1e-3
"""Share of the best time below which a part alone is no reason."""

SHORT: Mapping[str, str] = {
    "host": "launches",
    "sharding": "ZeRO in passes",
    "reduction": "gradients",
    "step": "optimizer",
    "gather": "parameters",
}
"""Parts of the account in a word, where their keys are none."""

BETWEEN = "lower bound only: may be faster than plans below"


def others_table(result: TrainingResult) -> Iterator[Table]:
    """The alternatives in the order of their times, and from where on there may be others between them."""
    best, count = result.cost.time, len(result.alternatives)
    found = [
        (item.cost.time, (f"{place}. {plan_words(item.plan)}", format_time(item.cost.time), _slower(item, best), why(item, best)))
        for place, item in enumerate(result.alternatives, 1)
    ]
    last = max((time for time, _ in found), default=0.0)
    unknown = ((result.untimed, "plans that were not timed"), (result.unfit, "plans not resolved: no tried sharding fits"))
    for bound, words in unknown:
        if bound < last:
            share = 100 * (bound / best - 1)
            more = f"at least {share:.2f} %" if share > 0 else "within the gap"
            found.append((bound, (words, f"from {format_time(bound)}", more, BETWEEN)))
    found.sort(key=lambda each: each[0])
    rows = ((plan_words(result.plan, result.cost), format_time(best), "", "the best"), *(row for _, row in found))
    if count:
        title = "The next best, and why it is slower"
        if count > 1:
            title = f"The {count} next best kinds of plan, and why they are slower"
        if math.isinf(result.untimed) and math.isinf(result.unfit):
            title += " (no other kind fits)"
        yield Table(title, ("plan", "time", "slower by", "why"), rows, frozenset({1, 2}), frozenset({0}))


def _slower(item: Alternative, best: float) -> str:
    more = item.cost.time - best
    return f"+{format_time(more)} ({100 * more / best:.2f} %)"


def why(alternative: Alternative, best: float) -> str:
    """By what parts of the account a plan is slower, the largest first, then what it saves; they add up to the difference."""
    named = [(key, time) for key, time in alternative.slower if abs(time) > LEAST_REASON_SHARE * best][:REASONS_SHOWN]
    rest = math.fsum(time for key, time in alternative.slower if key not in dict(named))
    said = [(SHORT.get(key, key), time) for key, time in named]
    said.sort(key=lambda each: -each[1])
    if rest and (abs(rest) > LEAST_REASON_SHARE * best / 10 or not said):
        said.append(("other", rest))
    return "; ".join(f"{'-' if time < 0 else '+'}{format_time(abs(time))} {name}" for name, time in said)
