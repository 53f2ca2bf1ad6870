"""A graph on a whole system as tables: its time, what limits it, what a chip keeps, how ops are split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from halley.graphs.plan import GraphPlan
from halley.graphs.searched import graph_kernels, searched_products
from halley.kernels.machine import machine
from halley.report.mapping.plots import format_operations
from halley.report.plans.plan import account_table, bill_rows
from halley.report.plans.sharding import sharding_tables
from halley.report.plans.traffic import ROUNDING
from halley.report.plans.words import system_words
from halley.report.table import Table, percent
from halley.sharding.axes import assignment_text
from halley.sharding.text import parallelisms
from halley.spatial.costs import Partition
from halley.units import format_bytes, format_time

PARTS: Mapping[str, str] = {
    "compute": "engines at work",
    "memory": "memory",
    "network": "collectives",
    "weights": "loading weights",
    "transfers": "waiting for transfers between stages",
    "bubble": "pipeline bubble",
    "gradients": "sum of gradients, not hidden",
}
"""What the parts of an account are."""


def graph_headline(plan: GraphPlan) -> str:
    """What runs on what."""
    problem = plan.problem
    said = f"{problem.workload.name} on {system_words(problem.system)}"
    if problem.searched is None:
        return said
    left = len(problem.searched.missing(graph_kernels(plan)))
    return f"{said}; products searched on {problem.system.chip.name}{f', {left} of them by formula' if left else ''}"


def graph_verdict(plan: GraphPlan) -> str:
    """What is proven."""
    proof = plan.certificate
    if proof.gap <= ROUNDING:
        return f"optimal: no sharding of the declared space takes less than {format_time(proof.bound)}"
    return f"no sharding of the declared space takes less than {format_time(proof.bound)}; gap {100 * proof.gap:.3g} %"


def graph_tables(plan: GraphPlan, ops: bool = False) -> list[Table]:
    """All that is to be said of a plan; ``ops``: how every op is split."""
    problem = plan.problem
    return [
        _figures(plan),
        account_table("Where the time goes", plan.account, plan.time, PARTS),
        _memory(plan),
        *_products(plan),
        *partition_tables(plan.partitions, problem.chip.tiles if plan.partitions else 0),
        *sharding_tables(problem.workload.name, plan.sharding, "the graph", ops),
        Table("Not searched", ("",), tuple((text,) for text in plan.certificate.left_out)),
    ]


def _figures(plan: GraphPlan) -> Table:
    problem, used = plan.problem, parallelisms(plan.sharding)
    rate = problem.work / plan.time
    rows = [
        ("time", format_time(plan.time)),
        ("rate", f"{format_operations(rate)}, {percent(plan.utilisation, 1)} of {format_operations(problem.peak)}"),
        ("axes", assignment_text(plan.assignment)),
        *((f"  {axis}", ", ".join(names) or "repeats all work") for axis, names in used.items()),
        *bill_rows(rate, plan.bill),
    ]
    return Table("The best plan", ("", ""), tuple(rows), strong=frozenset({0}))


def _products(plan: GraphPlan) -> Iterator[Table]:
    """The searched products, with the share of the peak that each reaches."""
    if known := searched_products(plan):
        rates = machine(plan.problem.system.chip)
        rows = tuple(
            (str(shape), format_time(cost.time), percent(shape.macs, cost.time * rates.mac_rate(shape.dtype)))
            for shape, cost in sorted(known.items(), key=lambda item: -item[1].time)
        )
        yield Table("Searched products, on one chip", ("product", "time", "of peak"), rows, frozenset({1, 2}))


def _memory(plan: GraphPlan) -> Table:
    held, capacity = plan.memory, plan.problem.capacity
    parts = (
        ("inputs", held.inputs),
        ("outputs", held.outputs),
        ("what passes between ops", held.working),
        ("in all", held.total),
    )
    rows = tuple((name, format_bytes(value), percent(value, capacity)) for name, value in parts)
    title = f"Memory of a chip, of {format_bytes(capacity)}"
    return Table(title, ("", "bytes", "of capacity"), rows, frozenset({1, 2}), frozenset({3}))


def partition_tables(partitions: Sequence[Partition], tiles: int) -> Iterator[Table]:
    """Concurrent kernels on a chip, one partition after the other."""
    if partitions:
        rows = tuple(
            (
                " ".join(part.names),
                f"{sum(part.tiles)} of {tiles}",
                format_time(part.compute),
                format_time(part.memory),
                format_time(part.network),
                part.bottleneck,
                format_bytes(part.sram),
            )
            for part in partitions
        )
        head = ("kernels side by side", "tiles", "compute", "memory", "network", "limit", "SRAM")
        yield Table("Partitions of a chip, in the order in which they run", head, rows, frozenset({1, 2, 3, 4, 6}))
