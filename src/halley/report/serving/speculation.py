"""Rounds of speculative decoding by window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halley.report.table import Table, ratio
from halley.serving.speculation import Round
from halley.units import format_time


def speculation_table(rounds: Sequence[Round]) -> Table:
    """Each window: tokens of a round, its time, TPOT, and the speed-up over decoding without a draft."""
    best = max(range(len(rounds)), key=lambda place: rounds[place].speedup)
    rows = tuple(
        (
            f"{item.window}",
            f"{item.tokens:.2f}",
            format_time(item.drafting),
            format_time(item.verifying),
            format_time(item.tpot),
            ratio(item.speedup),
        )
        for item in rounds
    )
    head = ("window", "tokens a round", "draft", "verification", "TPOT", "speed-up")
    return Table("Speculative decoding at the batch of this deployment", head, rows, frozenset(range(6)), frozenset({best}))


def speculation_document(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """The same as plain data, in SI units."""
    return [
        {
            "window": item.window,
            "tokens": item.tokens,
            "drafting_s": item.drafting,
            "verifying_s": item.verifying,
            "tpot_s": item.tpot,
            "speedup": item.speedup,
        }
        for item in rounds
    ]
