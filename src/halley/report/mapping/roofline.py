"""The roofline of a plan over every resource: how much each one could carry, and how much of it is used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from halley.cost.estimate import Estimate, Resource
from halley.cost.events import Access, Work
from halley.cost.figures import resource_name
from halley.ir.hardware import Axis, Chip
from halley.network.graph.topologies import build
from halley.report.mapping.activity import activity, resources


@dataclass(frozen=True, slots=True)
class Roof:
    """One resource that moves bytes.

    ``bandwidth`` [B/s] of all its instances together; ``moved`` [B] over all of them; ``intensity`` = operations / moved [op/B];
    ``busy`` [s] of the critical instance; ``limit`` = operations / busy [op/s], what the plan would reach if nothing else took
    time; ``used`` = busy / time of the plan.
    """

    resource: Resource
    name: str
    bandwidth: float
    moved: float
    intensity: float
    busy: float
    limit: float
    used: float


@dataclass(frozen=True, slots=True)
class Peak:
    """One engine. ``peak`` [op/s] of the matrix engines at the rate of the dtype in use (0 for the vector engine, whose rates
    differ by function); ``busy``, ``limit`` and ``used`` as of a `Roof`."""

    name: str
    peak: float
    busy: float
    limit: float
    used: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """``operations`` of the plan, a multiply-accumulate being 2; ``reached`` = operations / time [op/s]; roofs in chip order."""

    operations: float
    reached: float
    roofs: tuple[Roof, ...]
    peaks: tuple[Peak, ...]


def roofline(chip: Chip, estimate: Estimate) -> Roofline:
    """Where a plan stands under each of its limits."""
    time = float(estimate.time)
    work = {function: float(count) for function, count in estimate.work().items()}
    operations = sum(count * (2 if function == "mac" else 1) for function, count in work.items())
    moved: dict[Resource, float] = {}
    for event in estimate.events:
        if not isinstance(event, Work):
            resource = activity(chip, event)[0]
            moved[resource] = moved.get(resource, 0.0) + float(event.moved if isinstance(event, Access) else event.total)
    roofs, peaks = [], []
    known = resources(chip)
    for resource in (*known, *(part for part in estimate.busy if part not in known)):  # parts of axes
        busy = float(estimate.busy.get(resource, 0.0))
        name = resource_name(resource)
        if resource[0] == "engine":
            if busy > 0:
                peaks.append(Peak(name, _peak(chip, resource, estimate), busy, operations / busy, busy / time))
        elif (amount := moved.get(resource, 0.0)) > 0 and busy > 0:
            wide, limit = bandwidth(chip, resource), operations / busy
            roofs.append(Roof(resource, name, wide, amount, operations / amount, busy, limit, busy / time))
    return Roofline(operations, operations / time, tuple(roofs), tuple(peaks))


def joined_roofline(parts: Sequence[tuple[Roofline, float, float]]) -> Roofline:
    """Of kernels that run one after the other on one chip: for each its roofline, how often it runs, and its time [s]. A resource
    that some of them leave idle counts with the time of all."""
    whole = sum(count * time for _, count, time in parts)
    operations = sum(count * item.operations for item, count, _ in parts)
    roofs: dict[str, list[tuple[Roof, float]]] = {}
    peaks: dict[str, list[tuple[Peak, float]]] = {}
    for item, count, _ in parts:
        for roof in item.roofs:
            roofs.setdefault(roof.name, []).append((roof, count))
        for peak in item.peaks:
            peaks.setdefault(peak.name, []).append((peak, count))
    made_roofs, made_peaks = [], []
    for same in roofs.values():
        moved, busy = (sum(count * getattr(roof, name) for roof, count in same) for name in ("moved", "busy"))
        first = same[0][0]
        limits = operations / moved, busy, operations / busy, busy / whole
        made_roofs.append(Roof(first.resource, first.name, first.bandwidth, moved, *limits))
    for name, uses in peaks.items():
        busy = sum(count * peak.busy for peak, count in uses)
        made_peaks.append(Peak(name, max(peak.peak for peak, _ in uses), busy, operations / busy, busy / whole))
    return Roofline(operations, operations / whole, tuple(made_roofs), tuple(made_peaks))


def instances(chip: Chip, depth: int) -> int:
    """How many siblings of the level at this depth the chip has in all."""
    return math.prod(level.count for level in chip.levels[: depth + 1])


def bandwidth(chip: Chip, resource: Resource) -> float:
    """Bandwidth [B/s] of all instances of a resource together; of an axis, of all its links in both directions."""
    match resource:
        case ("read" | "bus", name):
            return instances(chip, chip.depth(name)) * chip.memory(name).read_bandwidth
        case ("write", name):
            return instances(chip, chip.depth(name)) * chip.memory(name).write_bandwidth
        case ("port", level, _):
            network = chip.level(level).network
            port = network.port if network else None
            return instances(chip, chip.levels.index(chip.level(level))) * port.bandwidth if port else 0.0
        case ("axis", level, name):
            axis = chip.axis(level, name)
            rows = instances(chip, chip.levels.index(chip.level(level))) // axis.size
            return rows * links(axis) * axis.link.bandwidth
        case _:
            return 0.0


def links(axis: Axis) -> int:
    """Directed links along an axis.

    >>> from halley.ir.hardware import Link, Topology
    >>> links(Axis("x", 4, Topology.LINE, Link(1.0))), links(Axis("x", 4, Topology.RING, Link(1.0)))
    (6, 8)
    """
    # the axes of a chip may copy and add, whatever joins them
    return len(build(replace(axis, multicast=False, reduction=False)).edges)


def _peak(chip: Chip, resource: Resource, estimate: Estimate) -> float:
    """Peak [op/s] of all matrix engines for the dtype that the plan uses most."""
    engine = chip.matrix
    if engine is None or resource != ("engine", engine.name):
        return 0.0
    counts: dict[str, float] = {}
    for event in estimate.events:
        if isinstance(event, Work) and event.engine == engine.name:
            counts[event.dtype] = counts.get(event.dtype, 0.0) + float(event.count)
    rate = engine.rate.get(max(counts, key=lambda dtype: counts[dtype]), 1.0) if counts else 1.0
    return 2 * instances(chip, len(chip.levels) - 1) * engine.rows * engine.cols * rate * engine.clock
