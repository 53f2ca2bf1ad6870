"""What the event simulation found: percentiles of latency."""

from __future__ import annotations

from typing import Any

from halley.report.table import Table
from halley.serving.simulate import Simulated, TimeHistogram
from halley.units import format_time

SHARES = (0.5, 0.9, 0.95, 0.99)


def events_table(found: Simulated, chips: int, closed: bool = False) -> Table:
    """Mean and percentiles of the times of requests, throughput, preemptions. ``closed``: a closed loop."""

    def row(name: str, times: TimeHistogram) -> tuple[str, ...]:
        return (name, format_time(times.mean), *(format_time(times.percentile(share)) for share in SHARES))

    rows = (
        row("TTFT", found.ttft),
        row("TPOT", found.tpot),
        row("end to end", found.latency),
        ("tokens/s out", f"{found.output:,.1f}", f"{found.output / chips:,.1f}", *[""] * (len(SHARES) - 1)),
    )
    swapped = f" ({found.swapped:,} of them swapped)" if found.swapped else ""
    title = (
        f"By events: {found.requests:,} requests in {format_time(found.time)}, {found.steps:,} steps, "
        f"{found.preempted:,} preempted{swapped}; throughput of all and of one chip"
    )
    if closed:
        title += "; all users start at once, so that their first prompts wait for each other"
    head = ("", "mean", *(f"{100 * share:g} %" for share in SHARES))
    return Table(title, head, rows, frozenset(range(1, len(head))))


def events_document(found: Simulated) -> dict[str, Any]:
    """The same as plain data, in SI units."""
    times = {"ttft_s": found.ttft, "tpot_s": found.tpot, "latency_s": found.latency}
    shown = {
        name: {"mean": item.mean} | {f"p{100 * share:g}": item.percentile(share) for share in SHARES}
        for name, item in times.items()
    }
    counts = {"requests": found.requests, "output_tokens": found.tokens, "time_s": found.time, "preempted": found.preempted}
    counts |= {"swapped": found.swapped} if found.swapped else {}
    return shown | counts | {"output_tokens_per_s": found.output}
