"""Two answers side by side: what they decide otherwise, and which parts of the time make the difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from halley.report.table import Table, percent, ratio

RELATIVE_ROUNDING = 1e-9
"""Share of the larger whole below which a difference is rounding."""

Decisions = Mapping[str, str]
"""What is decided, in words."""


NAMED_OPS = 3
"""Ops that a row names of those that are decided in the same way."""


def decisions_table(names: Sequence[str], first: Decisions, second: Decisions) -> Table:
    """The decisions that differ, one a row; ops of one part that differ in the same way share a row."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for key in dict.fromkeys((*first, *second)):
        before, after = first.get(key, "-"), second.get(key, "-")
        if before != after:
            part, op, name = key.rpartition("op ")
            grouped.setdefault((part if op else key, before, after), []).append(name if op else "")
    rows = tuple((part + _ops(ops), before, after) for (part, before, after), ops in grouped.items())
    return Table("Decisions that differ", ("", *names), rows or (("", "the same", "the same"),))


def _ops(names: Sequence[str]) -> str:
    """The ops of a row.

    >>> _ops(["scores"]), _ops(["a", "b", "c", "d", "e"]), _ops([""])
    ('op scores', '5 ops: a, b, c, ...', '')
    """
    if len(names) == 1:
        return f"op {names[0]}" if names[0] else ""
    return f"{len(names)} ops: {', '.join(names[:NAMED_OPS])}" + (", ..." if len(names) > NAMED_OPS else "")


def parts_table(
    names: Sequence[str],
    first: Mapping[str, float],
    second: Mapping[str, float],
    words: Mapping[str, str],
    show: Callable[[float], str],
    title: str = "",
) -> Table:
    """The parts of two wholes, those that change most first; differences add up to that of the wholes. ``title``: of parts that
    are no times."""
    whole, other = math.fsum(first.values()), math.fsum(second.values())
    least = RELATIVE_ROUNDING * max(whole, other)
    rows = [
        (words.get(key, key), show(first.get(key, 0.0)), show(second.get(key, 0.0)), signed(change, show))
        for key, change in changes(first, second)
        if abs(change) > least
    ]
    speed = f" ({ratio(whole / other)} as fast)" if other and not title else ""
    rows.append(("together", show(whole), show(other), signed(other - whole, show) + speed))
    title = title or f"Why {names[0]} takes {show(whole)} and {names[1]} {show(other)}"
    return Table(title, ("", *names, "change"), tuple(rows), frozenset({1, 2, 3}), frozenset({len(rows) - 1}))


def changes(first: Mapping[str, float], second: Mapping[str, float]) -> list[tuple[str, float]]:
    """By part, what it takes more in the second, the largest changes first."""
    found = [(key, second.get(key, 0.0) - first.get(key, 0.0)) for key in dict.fromkeys((*first, *second))]
    return sorted(found, key=lambda item: -abs(item[1]))


def signed(value: float, show: Callable[[float], str]) -> str:
    """A difference with its sign.

    >>> signed(-2.0, str), signed(0.0, str)
    ('-2.0', '0.0')
    """
    return f"{'-' if value < 0 else '+' if value > 0 else ''}{show(abs(value))}"


def parts_document(names: Sequence[str], first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, Any]:
    """The same as plain data."""
    parts = [{"part": key, "before_s": first.get(key, 0.0), "after_s": second.get(key, 0.0)} for key, _ in changes(first, second)]
    whole = {"before_s": math.fsum(first.values()), "after_s": math.fsum(second.values())}
    return {"before": names[0], "after": names[1], "time": {**whole, "parts": parts}}


def decisions_document(first: Decisions, second: Decisions) -> list[dict[str, str | None]]:
    """The decisions that differ."""
    keys = [key for key in dict.fromkeys((*first, *second)) if first.get(key) != second.get(key)]
    return [{"decision": key, "before": first.get(key), "after": second.get(key)} for key in keys]


def loads_table(title: str, busy: Mapping[str, float], time: float, show: Callable[[float], str]) -> Table:
    """How long each resource works of the whole ``time`` [s], the busiest first."""
    ordered = sorted(busy.items(), key=lambda item: -item[1])
    rows = tuple((name, show(value), percent(value, time)) for name, value in ordered)
    return Table(title, ("", "busy", "of the time"), rows, frozenset({1, 2}), frozenset({0} if rows else ()))
