"""The anatomy of a plan's time in words."""

from __future__ import annotations

from halley.cost.anatomy import TimeBreakdown, anatomy
from halley.cost.estimate import Estimate
from halley.cost.figures import resource_name
from halley.ir.mapping import Node
from halley.report.table import percent

RAMPS = "first fills and last drains"
SERIAL = "fills and drains of single buffers"
STAGES = "filling and draining the pipeline"
LATENCY = "latency of transfers"
LEAST_SHARE = 1e-12
"""Share of a time below which a part is what rounding leaves of a difference."""


def causes(tree: Node, estimate: Estimate) -> dict[str, float]:
    """Seconds by cause, in the order in which they are drawn: work, waiting for bytes, latency, ramps, collectives. They add up
    to the estimate's time."""
    parts = anatomy(tree, estimate).total
    found = {resource_name(resource): time for resource, time in parts.compute.items()}
    found |= {f"waiting for {resource_name(resource)}": time for resource, time in parts.bandwidth.items()}
    found |= {LATENCY: parts.latency, RAMPS: parts.ramps, SERIAL: parts.serial, STAGES: parts.stages}
    found |= {f"collectives on {resource_name(resource)}": time for resource, time in parts.collective.items()}
    return {cause: time for cause, time in found.items() if time > LEAST_SHARE * float(estimate.time)}


def summary(parts: TimeBreakdown) -> str:
    """The five kinds of time in one line; kinds without any are left out.

    >>> summary(TimeBreakdown(compute={("engine", "mxu"): 3.0}, ramps=1.0))
    'compute 75.0 %, compulsory stall 25.0 %'
    """
    kinds = (
        ("compute", parts.computing),
        ("compulsory stall", parts.compulsory),
        ("bandwidth stall", parts.stalling),
        ("latency", parts.latency),
        ("exposed collectives", parts.exposed),
    )
    return ", ".join(f"{name} {percent(time, parts.time)}" for name, time in kinds if time > LEAST_SHARE * parts.time) or "none"
