"""Collectives over whole axes as in DFModel (arXiv 2412.16432, published code): bandwidth only, no latency.

A chip sends on all its links of an axis at once. Over several axes, an all-gather proceeds axis by axis on the remaining part,
an all-to-all axis by axis on all of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import permutations

from halley.errors import BadInput, Fault
from halley.formulas.collectives import cut_bound, dimension_time, gather_bound
from halley.formulas.timing import busy_time, total
from halley.ir.hardware import Axis, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System

INJECTION_BANDWIDTH: dict[Topology, Callable[[Axis], float]] = {
    Topology.RING: lambda axis: 2 * axis.link.bandwidth,
    # as in the published code: the switch reduces, so each byte passes a chip's port once
    Topology.SWITCH: lambda axis: 2 * axis.link.bandwidth,
    Topology.FULL: lambda axis: (axis.size - 1) * axis.link.bandwidth,
}
"""What a chip sends into an axis while all its links are busy [B/s], for gathers and reductions."""


def _ring_exchange(axis: Axis, size: float) -> float:
    half = axis.size * axis.size // 4
    return float(cut_bound(half * size / axis.size, 2 * axis.link.bandwidth))


ALL_TO_ALL_TIME: dict[Topology, Callable[[Axis, float], float]] = {
    Topology.RING: _ring_exchange,
    Topology.SWITCH: lambda axis, size: float(gather_bound(axis.size, size, axis.link.bandwidth)),
    Topology.FULL: lambda axis, size: float(gather_bound(axis.size, size, INJECTION_BANDWIDTH[Topology.FULL](axis))),
}
"""Time of an all-to-all [s] in which each chip sends ``size`` bytes: limited by the bisection of a ring, by the port of a
switch."""

GATHERS_PER_COLLECTIVE = {CollectiveKind.ALL_GATHER: 1, CollectiveKind.REDUCE_SCATTER: 1, CollectiveKind.ALL_REDUCE: 2}
"""Number of all-gathers or reduce-scatters that a collective consists of."""


def check_axes(axes: Iterable[Axis]) -> None:
    """Raises BadInput: axes of topologies that DFModel does not model, all at once."""
    known = ", ".join(INJECTION_BANDWIDTH)
    unknown = [axis for axis in axes if axis.topology not in INJECTION_BANDWIDTH]
    faults = [Fault(f"axis {axis.name}", f"one of {known}", str(axis.topology)) for axis in unknown]
    if faults:
        raise BadInput(faults)


def collective_time(kind: CollectiveKind, axes: tuple[Axis, ...], size: float) -> float:
    """Time [s] of a collective over the product of axes, in the fastest order of the axes; ``size`` [B] as in
    `halley.network.time.collective.CONVENTIONS`.

    >>> from halley.ir.hardware import Link
    >>> ring = Axis("x", 8, Topology.RING, Link(25e9))
    >>> collective_time(CollectiveKind.ALL_REDUCE, (ring,), 200e9) == 7 / 8 * 8
    True

    Raises BadInput: another kind of collective.
    """
    return float(total(axis_times(kind, axes, size).values()))


def axis_times(kind: CollectiveKind, axes: tuple[Axis, ...], size: float) -> dict[str, float]:
    """The times of `collective_time` by axis [s]. Raises BadInput: another kind of collective."""
    if kind is CollectiveKind.ALL_TO_ALL:
        return {axis.name: ALL_TO_ALL_TIME[axis.topology](axis, size) for axis in axes}
    if kind not in GATHERS_PER_COLLECTIVE:
        raise BadInput(
            Fault("collective in the view of DFModel", f"{', '.join(GATHERS_PER_COLLECTIVE)} or all-to-all", str(kind))
        )
    orders = (_gather(order, size) for order in permutations(axes))
    best = min(orders, key=lambda times: total(times.values()))
    return {name: GATHERS_PER_COLLECTIVE[kind] * time for name, time in best.items()}


def _gather(axes: tuple[Axis, ...], size: float) -> dict[str, float]:
    found, before = {}, 1
    for axis in axes:
        found[axis.name] = float(dimension_time(axis.size, before, size, INJECTION_BANDWIDTH[axis.topology](axis)))
        before *= axis.size
    return found


def transfer_time(axes: tuple[Axis, ...], size: float) -> float:
    """Time [s] of a message to the next pipeline stage, over the slowest of the axes of the stages; 0 without any."""
    return max((float(busy_time(size, axis.link.bandwidth)) for axis in axes), default=0.0)


def mesh_time(system: System) -> Callable[[CollectiveKind, tuple[str, ...], int], float]:
    """The times as a `halley.sharding.layouts.CollectiveTime`, over the system's axes by name."""
    named = {axis.name: axis for axis in system.axes}
    known: dict[tuple[CollectiveKind, tuple[str, ...], int], float] = {}

    def time(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        key = kind, axes, size
        if key not in known:
            known[key] = collective_time(kind, tuple(named[name] for name in axes), size)
        return known[key]

    return time
