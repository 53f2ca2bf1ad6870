"""Groups of kernels that run as one, as a table."""

from __future__ import annotations

from collections.abc import Iterator

from halley.report.table import Table
from halley.training.fusion.plan import joined_groups
from halley.training.plan import PlanCost, TrainingResult
from halley.units import format_time


def fusion_tables(result: TrainingResult) -> Iterator[Table]:
    """The groups of the best plan, with the kernels apart beside them; nothing where groups were not asked for."""
    if result.problem.fusions is not None:
        rows = tuple(_rows(result.cost))
        head = ("part of the model", "kernels", "as one", "apart", "saved")
        title = "Kernels that run as one, in one microbatch" if rows else "No kernels run as one: apart they take no longer"
        yield Table(title, head, rows, frozenset({2, 3, 4}))


def _rows(cost: PlanCost) -> Iterator[tuple[str, ...]]:
    for each in joined_groups(cost):
        saved = format_time(each.apart - each.time)
        yield each.part, each.fusion.name, format_time(each.time), format_time(each.apart), saved
