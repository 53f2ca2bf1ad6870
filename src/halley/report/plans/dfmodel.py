"""A training plan in the view of DFModel as tables."""

from __future__ import annotations

import math

from halley.dfmodel.plan import DFModelResult
from halley.report.mapping.plots import format_operations
from halley.report.plans.graph import PARTS, partition_tables
from halley.report.plans.plan import account_table, bill_rows
from halley.report.plans.words import system_words
from halley.report.table import Table, percent
from halley.sharding.axes import assignment_text
from halley.units import format_bytes, format_time

ASSIGNMENTS_SHOWN = 10
"""Other assignments that a table shows."""


def dfmodel_headline(result: DFModelResult) -> str:
    """The model and what it is trained on."""
    problem = result.problem
    return (
        f"{problem.shape.name} on {system_words(problem.system)}, "
        f"{problem.batch:,} sequences of {problem.sequence:,} tokens an iteration, in the view of DFModel"
    )


def dfmodel_verdict(result: DFModelResult) -> str:
    """What is proven."""
    return f"optimal: no choice of whole axes and microbatch is faster ({result.choices:,} choices, {result.seconds:.2g} s)"


def dfmodel_tables(result: DFModelResult) -> list[Table]:
    """The plan, its account, its partitions, the other assignments."""
    problem, rate = result.problem, result.problem.work / result.time
    fused = "concurrent, streaming to each other" if problem.fused else "one by one"
    rows = [
        ("iteration", format_time(result.time)),
        ("utilisation", f"{percent(result.utilisation, 1)} of {format_operations(problem.peak)}"),
        ("axes", assignment_text(result.choice.assignment)),
        ("microbatch", f"{result.choice.microbatch} sequences"),
        ("kernels", f"{fused}; {len(result.layer.partitions)} partitions of a layer, forward and backward"),
        ("memory", f"{format_bytes(result.memory)} of {format_bytes(problem.chip.dram)} on a chip"),
        *bill_rows(rate, result.bill),
    ]
    return [
        Table("The best plan", ("", ""), tuple(rows), strong=frozenset({0})),
        account_table("Where the time goes", result.account, result.time, PARTS),
        *(partition_tables(result.layer.partitions, problem.chip.tiles) if problem.fused else ()),
        _others(result),
    ]


def _others(result: DFModelResult) -> Table:
    rows = []
    for item in result.candidates[: ASSIGNMENTS_SHOWN + 1]:
        time = "-" if math.isinf(item.time) else f"{'' if item.exact else 'at least '}{format_time(item.time)}"
        rows.append((assignment_text(item.assignment), time, item.reason or ("" if item.exact else "ruled out by its bound")))
    title = f"Assignments of axes, the fastest first ({len(result.candidates)} in all)"
    return Table(title, ("axes", "time", ""), tuple(rows), frozenset({1}), frozenset({0}))
