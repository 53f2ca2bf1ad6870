"""The anatomy of a plan's time in words, in the order in which it is drawn: work, waiting for bytes, ramps, collectives."""

from __future__ import annotations

from halley.cost.anatomy import anatomy
from halley.io.result import resource_name
from halley.report.table import Table, percent
from halley.search.result import Solution
from halley.units import format_time

RAMPS = "first fills and last drains"
SERIAL = "fills and drains of single buffers"
STAGES = "filling and draining the pipeline"


def causes(plan: Solution) -> dict[str, float]:
    """Seconds by cause; they add up to the plan's time."""
    parts = anatomy(plan.plan, plan.estimate).total
    found = {resource_name(resource): time for resource, time in parts.compute.items()}
    found |= {f"waiting for {resource_name(resource)}": time for resource, time in parts.bandwidth.items()}
    found |= {RAMPS: parts.ramps, SERIAL: parts.serial, STAGES: parts.stages}
    found |= {f"collectives on {resource_name(resource)}": time for resource, time in parts.collective.items()}
    # less is what rounding leaves of a difference of times
    return {cause: time for cause, time in found.items() if time > 1e-12 * float(plan.estimate.time)}


def causes_table(plan: Solution) -> Table:
    """Time by cause."""
    whole = float(plan.estimate.time)
    rows = tuple((cause, format_time(time), percent(time, whole)) for cause, time in causes(plan).items())
    return Table("Where the time goes", ("cause", "time", "share"), rows, frozenset({1, 2}))
