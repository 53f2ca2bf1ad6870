"""What a plan of training moves, as tables: what work waits for, what a chip sends, and the hierarchical roofline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from halley.report.mapping.plots import format_operations
from halley.report.plans.words import role_words
from halley.report.table import Table, percent
from halley.sharding.axes import Role
from halley.sharding.loads import ResourceLoad
from halley.training.plan import Plan, PlanCost
from halley.units import format_bytes, format_rate, format_time

ROUNDING = 1e-9
"""Share of a time below which a part of it is rounding."""

EXPOSED: Mapping[str, str] = {
    "sharding": "gathering parameters, scattering gradients in each pass",
    "reduction": "sum of gradients",
    "gather": "gathering updated parameters",
    "transfer": "transfers between stages",
}
"""What work waits for, where it has no name as a collective."""


def traffic_tables(plan: Plan, cost: PlanCost) -> Iterator[Table]:
    """All tables of this module; those without rows are left out."""
    for table in (_exposed(plan, cost), _sent(plan, cost), _loads(plan, cost)):
        if table.rows:
            yield table


def _exposed(plan: Plan, cost: PlanCost) -> Table:
    found = sorted((item for item in cost.exposed if item.time > ROUNDING * cost.time), key=lambda item: -item.time)
    rows = [
        (
            role_words(item.role, plan, cost),
            EXPOSED.get(item.kind, item.kind),
            format_time(item.time),
            percent(item.time, cost.time),
        )
        for item in found
    ]
    strong = frozenset[int]()
    if len(rows) > 1:
        whole = sum(item.time for item in found)
        strong = frozenset({len(rows)})
        rows.append(("in all", "", format_time(whole), percent(whole, cost.time)))
    title = "Exposed communication (collectives of ops are part of the passes)"
    return Table(title, ("chips", "for", "time", "share"), tuple(rows), frozenset({2, 3}), strong)


def _sent(plan: Plan, cost: PlanCost) -> Table:
    rows = tuple(
        (
            role_words(item.role, plan, cost),
            item.kind,
            " ".join(item.axes),
            f"{item.count:,.6g}",
            format_bytes(item.bytes),
            format_bytes(item.total),
        )
        for item in sorted(cost.traffic, key=lambda item: -item.total)
    )
    head = ("chips", "collective", "over", "times", "bytes of each", "a chip sends")
    return Table("What a chip of the busiest stage sends in an iteration", head, rows, frozenset({3, 4, 5}))


def _loads(plan: Plan, cost: PlanCost) -> Table:
    operations = sum(load.demand for load in cost.loads if load.unit == "op")
    rows = tuple(row for load in cost.loads if load.demand for row in _load(load, operations, plan, cost))
    head = ("resource", "asked for", "it has", "intensity", "least time", "share")
    title = "Hierarchical roofline: demand of an iteration on each resource of a chip"
    return Table(title, head, rows, frozenset({1, 2, 3, 4, 5}))


def _load(load: ResourceLoad, operations: float, plan: Plan, cost: PlanCost) -> Iterator[tuple[str, ...]]:
    """A resource, and what of it each asks for, where there are several."""
    times = format_time(load.time), percent(load.time, cost.time)
    if load.unit != "B":
        yield load.resource, format_operations(load.demand).removesuffix("/s"), format_operations(load.capacity), "", *times
        return
    intensity = f"{operations / load.demand:,.0f} op/B"
    yield load.resource, format_bytes(load.demand), format_rate(load.capacity), intensity, *times
    roles = {str(role): role_words(role, plan, cost) for role in Role}
    for name, size in load.parts.items() if len(load.parts) > 1 else ():
        time = size / load.capacity
        yield f"  {roles.get(name, name)}", format_bytes(size), "", "", format_time(time), percent(time, cost.time)
