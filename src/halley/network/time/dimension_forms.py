"""Closed forms on products of topologies: one dimension after the other, and direct exchanges whose messages cross all of them.

Both follow from the product alone, without a table or a graph. Rank numbers are row-major and no chunk is larger than the one
before it. So of all copies of one dimension, the one whose coordinates in the other dimensions are zero has most to carry, and
what its busiest link carries is a weighted sum over the chunks whose owners lie there, with the weights of that topology alone:

- one dimension after the other (`Hierarchy` in one piece): in phase p along dimension d, chunk k counts as the share of index
  k_d, if its coordinates in the dimensions before are zero; in an all-to-all as often as there are ranks in these together;
- direct, routed in dimension order: in one step all dimensions work. What crosses a link of dimension d comes from sources
  that share the coordinates not yet put right, and goes to targets that share those put right already.

The rank count may be far beyond what tables allow: n ranks take n log n operations, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.ir.hardware import Axis, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS, Cut
from halley.network.algorithms.hierarchical import Hierarchy, phase_kind
from halley.network.algorithms.tables import WHOLE, Kind
from halley.network.time.along import CROSSED, Along, along
from halley.network.time.curve import Curve, summed
from halley.network.time.schedules import Schedule

_K, _T = CollectiveKind, Topology
_GATHERS = (_K.ALL_GATHER, _K.REDUCE_SCATTER)

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """Steps of a collective. ``delay`` [s]: latencies and posting of all of them; ``loads``, to be added: of some steps together,
    how often each chunk crosses the links that may be the busiest, [links, chunks]; on slower links it counts more."""

    steps: int
    delay: float
    loads: tuple[Floats, ...]


@dataclass(frozen=True, eq=False, slots=True)
class DimensionForm:
    """The closed form: parts one after the other. ``bandwidth`` [B/s]: of the fastest links."""

    parts: tuple[Part, ...]
    bandwidth: float

    def fixed(self, startup: float) -> float:
        """Start-ups, posting and latencies of all steps [s]."""
        return sum(part.steps * startup + part.delay for part in self.parts)

    def links(self) -> Curve:
        """The rest of the time as a function of the payload."""
        return summed([load for part in self.parts for load in part.loads], self.bandwidth)


def dimension_form(kind: Kind, axes: tuple[Axis, ...], schedule: Schedule) -> DimensionForm | None:
    """The closed form of a schedule on the product of these axes; None where it is counted on the graph instead.

    >>> from halley.ir.hardware import Link
    >>> torus = tuple(Axis(name, 4, Topology.RING, Link(2.0, 5.0)) for name in "xy")
    >>> form = dimension_form(CollectiveKind.ALL_TO_ALL, torus, Schedule("direct"))
    >>> form.fixed(1.0), float(form.links()(1600))   # 1 + 2 blocks of 100 B, from 4 rows, on a link of 2 B/s
    (21.0, 600.0)
    """
    lines = tuple(axis for axis in _lines(axes) if axis.size > 1)
    if not lines or any(axis.one_way or axis.multipath for axis in lines):
        return None
    parts: list[Part] | None = None
    if isinstance(schedule.algorithm, Hierarchy):
        if _fits(kind, schedule.algorithm, axes):
            parts = _phases(kind, axes, schedule.algorithm)
    elif isinstance(schedule.algorithm, str) and not schedule.order:
        if len(lines) == 1 and lines[0].topology in CROSSED:
            parts = _alone(kind, schedule.algorithm, lines[0])
        elif schedule.algorithm == "direct":
            parts = _direct(kind, lines)
    return None if parts is None else DimensionForm(tuple(parts), _fastest(axes))


def _lines(axes: tuple[Axis, ...]) -> Iterator[Axis]:
    """The axes, with the pairs of a hypercube, the lines of a mesh, the rings of a torus in place of these."""
    for axis in axes:
        match axis.topology:
            case _T.HYPERCUBE:
                sizes, inner = (2,) * (axis.size.bit_length() - 1), _T.LINE
            case _T.MESH | _T.TORUS:
                sizes, inner = axis.shape, _T.LINE if axis.topology is _T.MESH else _T.RING
            case _:
                yield axis
                continue
        yield from (Axis(axis.name, size, inner, axis.link, multipath=axis.multipath) for size in sizes)


def _fastest(axes: tuple[Axis, ...]) -> float:
    return max(axis.link.bandwidth for axis in axes)


def _fits(kind: Kind, plan: Hierarchy, axes: tuple[Axis, ...]) -> bool:
    """Whether the plan is for these axes, in one piece."""
    lines = frozenset(place for place, axis in enumerate(axes) if axis.topology is _T.LINE)
    shape = tuple(axis.size for axis in axes)
    return plan.pieces == 1 and plan.shape == shape and min(shape) > 1 and plan.lines == lines and plan.misfit(kind) is None


def _alone(kind: Kind, name: str, axis: Axis) -> list[Part] | None:
    """On one axis."""
    item = ALGORITHMS.get(name)
    if item is None or item.unfit(kind, axis.size) or (kind in WHOLE and item.cut(kind) not in (Cut.SHARES, Cut.UNCUT)):
        return None
    found = along(kind, name, axis)
    if found is None:
        return None
    cut = 1 if kind in WHOLE and item.cut(kind) is Cut.UNCUT else axis.size
    return [_part(found, axis, axis.link.bandwidth, [load[:, :cut] for load in found.loads])]


def _part(found: Along, axis: Axis, fastest: float, loads: Iterable[Floats], times: int = 1) -> Part:
    """``times``: messages for each of those along the axis."""
    delay = found.beyond + found.hops * axis.link.latency + times * found.messages * axis.link.overhead
    return Part(found.steps, delay, tuple(load * (fastest / axis.link.bandwidth) for load in loads))


def _phases(kind: Kind, axes: tuple[Axis, ...], plan: Hierarchy) -> list[Part] | None:
    """One part for each dimension; of an all-reduce one each way."""
    (order,) = plan.orders
    kinds = (_K.REDUCE_SCATTER, _K.ALL_GATHER) if kind is _K.ALL_REDUCE else (kind,)
    tasks: list[tuple[Kind, int, str]] = []
    for each in kinds:
        places = range(len(order) - (1 if plan.turning else 0))
        tasks += [(each, place, plan.algorithms[order[place]]) for place in places]
    if plan.turning:
        if kind is not _K.ALL_REDUCE:
            return None
        tasks.append((kind, len(order) - 1, plan.turning))
    parts = []
    for each, place, name in tasks:
        axis = axes[order[place]]
        found = _of_phase(each, name, axis)
        if found is None or (ALGORITHMS[name].network and not adds(name, axis)):
            return None
        loads = (_spread(kind, load, plan.shape, order, place) for load in found.loads)
        parts.append(_part(found, axis, _fastest(axes), loads))
    return parts


def adds(name: str, axis: Axis) -> bool:
    """Whether the axis' switches can do what an algorithm in the network asks of them."""
    return axis.multicast and axis.reduction and not (name == "in-network" and axis.on_request)


def _of_phase(kind: Kind, name: str, axis: Axis) -> Along | None:
    """A phase. What runs backwards may go by another name then, with as many messages."""
    forwards = _K.ALL_REDUCE if kind is _K.ALL_REDUCE else phase_kind(kind)
    return along(kind, name, axis) or along(forwards, name, axis)


def _spread(kind: Kind, load: Floats, shape: tuple[int, ...], order: Sequence[int], place: int) -> Floats:
    """[links, chunks] of the whole from [links, shares] of the dimension at a place of the order."""
    if phase_kind(kind) is _K.BROADCAST:
        return load[:, :1]
    coordinates = np.unravel_index(np.arange(prod(shape)), shape)
    here = np.all([coordinates[d] == 0 for d in order[:place]], axis=0)
    times = prod(shape[d] for d in order[:place]) if kind is _K.ALL_TO_ALL else 1
    return times * np.where(here, load[:, coordinates[order[place]]], 0.0)


def _direct(kind: Kind, axes: tuple[Axis, ...]) -> list[Part] | None:
    """Every rank to every other, the last dimension first: all dimensions in one step."""
    if kind is _K.ALL_REDUCE:
        halves = [_direct(half, axes) for half in (_K.REDUCE_SCATTER, _K.ALL_GATHER)]
        return [part for half in halves if half for part in half] if all(halves) else None
    if kind not in (*_GATHERS, _K.ALL_TO_ALL):
        return None
    shape, sides = tuple(axis.size for axis in axes), []
    for place, axis in enumerate(axes):
        found = along(kind, "direct", axis)
        if found is None:
            return None
        before, behind = tuple(range(place)), tuple(range(place + 1, len(axes)))
        fixed, free = (before, before) if kind is _K.ALL_GATHER else (behind, behind)
        (load,) = found.loads
        load = prod(shape[d] for d in free) * _spread(_K.ALL_GATHER, load, shape, (*fixed, place), len(fixed))
        sides.append(_part(found, axis, _fastest(axes), (load,), prod(shape[:place])))
    return [Part(1, sum(side.delay for side in sides), (np.concatenate([side.loads[0] for side in sides]),))]
