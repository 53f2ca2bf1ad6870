"""An estimate as plain data: the names of resources, units of objectives, every figure of a mapping."""

from __future__ import annotations

from typing import Any

from halley.cost.anatomy import anatomy
from halley.cost.estimate import Estimate, Resource
from halley.formulas.energy import sustained_time
from halley.ir.hardware import Chip
from halley.ir.mapping import Node

UNITS: dict[str, str] = {"time": "s", "energy": "J", "edp": "J s"}
"""Unit of each objective."""


def resource_name(resource: Resource) -> str:
    """One word or two for a resource, as files and tables have it.

    >>> resource_name(("read", "dram")), resource_name(("axis", "cluster", "x")), resource_name(("engine", "matrix"))
    ('read dram', 'network cluster.x', 'matrix engine')
    """
    match resource:
        case ("engine", name):
            return f"{name} engine"
        case ("port", level, way):
            return f"{level} port {way}"
        case ("dma", memory):
            return f"{memory} DMA"
        case ("axis", level, axis):
            return f"network {level}.{axis}"
        case _:
            return " ".join(resource)


def sustained(chip: Chip, estimate: Estimate) -> float:
    """Time [s] of one run of a mapping where runs follow each other without a pause: more than its time where the chip would
    draw more than its power limit."""
    return float(sustained_time(estimate.time, estimate.energy_of_actions, chip.power_limit - chip.static_power))


def estimate_document(tree: Node, estimate: Estimate) -> dict[str, Any]:
    """The content of a mapping's estimate: numbers by name, units in the keys."""
    traffic: dict[str, dict[str, float]] = {}
    for key, accesses in (("read_B", estimate.reads()), ("write_B", estimate.writes())):
        for (memory, _, _), amount in accesses.items():
            entry = traffic.setdefault(memory, {"read_B": 0.0, "write_B": 0.0})
            entry[key] += float(amount)
    return {
        "time_s": float(estimate.time),
        "energy_J": float(estimate.energy),
        "energy_by_J": {name: float(value) for name, value in estimate.energy_by.items()},
        "busy_s": {resource_name(resource): float(value) for resource, value in estimate.busy.items()},
        "footprint_B": {memory: float(value) for memory, value in estimate.footprint.items()},
        "traffic": traffic,
        "anatomy_s": _anatomy_document(tree, estimate),
    }


def _anatomy_document(tree: Node, estimate: Estimate) -> dict[str, Any]:
    parts = anatomy(tree, estimate).total
    return {
        "compute": {resource_name(resource): time for resource, time in parts.compute.items()},
        "ramps": parts.ramps,
        "serial": parts.serial,
        "stages": parts.stages,
        "latency": parts.latency,
        "bandwidth": {resource_name(resource): time for resource, time in parts.bandwidth.items()},
        "collective": {resource_name(resource): time for resource, time in parts.collective.items()},
    }
