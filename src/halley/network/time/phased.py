"""Times of collectives on lanes, of any number of ranks: no table is written, so that a thousand ranks cost what four do.

On one lane a collective takes the least of its algorithms' closed forms (`halley.network.time.forms`), or what a communication
library was measured to take, never below these. Over several lanes it goes through one after the other, in any order, in one
piece or in pieces that follow each other (`halley.formulas.lanes.phased_time`): reduce-scatters on the way in, all-gathers on the
way back. Payloads are shared out without rounding between lanes. Which orders, pieces and algorithms are ever the fastest is
found once, on payloads of every power of two; the time is the least of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, permutations
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.lanes import around_ring_bytes, phased_time
from halley.formulas.numbers import Number, floor_div, minimum
from halley.formulas.software import overlaid_time
from halley.ir.hardware import Axis, Link, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS, Cut, Setting
from halley.network.algorithms.hierarchical import Order, balanced_orders
from halley.network.algorithms.tables import WHOLE, Kind, Transfer
from halley.network.fit.overlay import Overlay
from halley.network.graph.groups import group
from halley.network.graph.lanes import Crossed, Lane
from halley.network.graph.topologies import build
from halley.network.time.evaluate import layout
from halley.network.time.forms import FORMS, Form
from halley.network.time.schedules import Schedule, laid_out

_K, _T = CollectiveKind, Topology

Time: TypeAlias = Callable[[Number], Number]
"""Time [s] of a payload [B], as `halley.network.time.collective.CONVENTIONS` counts it: numbers and arrays."""

PAYLOADS: NDArray[np.float64] = np.ldexp(1.0, np.arange(45))
"""Payloads [B] on which algorithms are compared: 1 B to 16 TiB."""
PIECES = (1, 4, 16, 64)
"""Into how many pieces a payload is cut that go through several lanes behind each other."""
CHAINED = tuple(2**power for power in range(9))
"""Into how many pieces an algorithm on one lane cuts a payload, where it leaves that open."""
SHARES = 12
"""Parts of a payload that are distributed to orders of the lanes."""
PERMUTED = 3
"""Lanes up to which all their orders are tried; of more, those by bandwidth."""
COUNTED = 256
"""Most ranks of an axis whose messages are counted one by one."""

_SHARING = {
    _K.ALL_REDUCE: True,
    _K.REDUCE_SCATTER: True,
    _K.ALL_GATHER: True,
    _K.ALL_TO_ALL: False,
    _K.BROADCAST: False,
    _K.REDUCE: False,
    _K.SCATTER: True,
    _K.GATHER: True,
}
"""Collectives that go through several lanes, and whether each lane is left with its ranks' share of the payload."""
_BACKWARDS = (_K.ALL_GATHER, _K.REDUCE, _K.GATHER)
"""They end on the lane on which their counterparts begin."""


@dataclass(frozen=True, eq=False, slots=True)
class Dimension:
    """A lane, and the communication library that runs on it, if one was measured there. Compared by identity: whoever makes them
    makes equal ones once."""

    lane: Lane
    library: Overlay | None = None

    @property
    def size(self) -> int:
        return self.lane.size


@dataclass(frozen=True, slots=True)
class _Formed:
    """An algorithm with a closed form."""

    form: Form
    ranks: int
    chunks: int
    link: Link

    def __call__(self, size: Number) -> Number:
        return self.form.time(self.ranks, self.chunks, size, self.link)


@dataclass(frozen=True, slots=True)
class _Counted:
    """An algorithm whose messages were counted on a graph: ``fixed`` [s], ``each`` [s/B]."""

    fixed: float
    each: float

    def __call__(self, size: Number) -> Number:
        return self.fixed + self.each * size


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a library takes, never below what the links allow."""

    library: Overlay
    kind: CollectiveKind
    ranks: int
    links: Time

    def __call__(self, size: Number) -> Number:
        return overlaid_time(self.library.time(self.kind, self.ranks, size), self.links(size))


@dataclass(frozen=True, slots=True)
class _Fastest:
    """The least of several times."""

    times: tuple[Time, ...]

    def __call__(self, size: Number) -> Number:
        first, *others = self.times
        found = first(size)
        for time in others:
            found = minimum(found, time(size))
        return found


_Phase: TypeAlias = tuple[Time, int, int]
"""The time of a phase, the ranks that share the payload by then, and the place of the dimension that it uses."""


@dataclass(frozen=True, slots=True)
class _Way:
    """Through the dimensions in phases, in several orders at once, each with its share of the payload, in pieces."""

    orders: tuple[tuple[float, tuple[_Phase, ...]], ...]
    pieces: int

    def __call__(self, size: Number) -> Number:
        places = 1 + max(place for _, phases in self.orders for *_, place in phases)
        rows = []
        for number in range(len(self.orders[0][1])):
            row: list[Number] = [0.0] * places
            for share, phases in self.orders:
                time, ranks, place = phases[number]
                row[place] = row[place] + time(size * (share / (ranks * self.pieces)))
            rows.append(row)
        return phased_time(rows, self.pieces)


def fastest(times: Sequence[Time]) -> Time:
    """The least of the times; those that are never the least on `PAYLOADS` are left out."""
    if len(times) == 1:
        return times[0]
    table = np.stack([np.broadcast_to(time(PAYLOADS), PAYLOADS.shape) for time in times])
    kept = sorted(set(np.argmin(table, axis=0).tolist()))
    return times[kept[0]] if len(kept) == 1 else _Fastest(tuple(times[index] for index in kept))


@lru_cache(maxsize=1 << 14)
def collective_time(kind: CollectiveKind, dimensions: tuple[Dimension, ...]) -> Time:
    """The time of a collective over the product of the dimensions, as a function of the payload.

    >>> ring = Dimension(Axis("x", 4, Topology.RING, Link(2.0, 5.0)))
    >>> collective_time(CollectiveKind.ALL_REDUCE, (ring,))(240), collective_time(CollectiveKind.ALL_REDUCE, ())(240)
    (140.0, 0.0)

    Raises BadInput: a collective that does not go through several lanes; `Crossed` lanes of more than `COUNTED` ranks.
    """
    if not dimensions:
        return _nothing
    if len(dimensions) == 1:
        return _on_one(kind, dimensions[0])
    if kind not in _SHARING:
        expected = f"one of {', '.join(_SHARING)}"
        raise BadInput(Fault(f"collective over {len(dimensions)} axes", expected, str(kind), "keep it to one axis"))
    shared = [{order: 1.0} for order in _orders(dimensions)]
    shared.append(_turned(len(dimensions)))
    if _SHARING[kind] and len(dimensions) <= PERMUTED:
        shared.append(_balanced(dimensions))
    ways = [tuple((share, _phases(kind, dimensions, order)) for order, share in shares.items()) for shares in shared]
    return fastest([_Way(way, pieces) for way in ways for pieces in PIECES])


def _nothing(size: Number) -> Number:
    return 0.0 * size


def _phases(kind: CollectiveKind, dimensions: tuple[Dimension, ...], order: Order) -> tuple[_Phase, ...]:
    """All-reduce: in by reduce-scatters, turn on the last dimension, back by all-gathers. The others: one way."""
    sharing = _SHARING[kind]
    shared = [prod(dimensions[d].size for d in order[:place]) if sharing else 1 for place in range(len(order))]
    if kind is not _K.ALL_REDUCE:
        found = [(_on_one(kind, dimensions[d]), ranks, d) for d, ranks in zip(order, shared, strict=True)]
        return tuple(reversed(found)) if kind in _BACKWARDS else tuple(found)
    *first, (last, ranks) = zip(order, shared, strict=True)
    inwards = [(_on_one(_K.REDUCE_SCATTER, dimensions[d]), ranks, d) for d, ranks in first]
    back = [(_on_one(_K.ALL_GATHER, dimensions[d]), ranks, d) for d, ranks in reversed(first)]
    return (*inwards, (_on_one(kind, dimensions[last]), ranks, last), *back)


def _orders(dimensions: tuple[Dimension, ...]) -> list[Order]:
    """Orders that may differ in time."""
    places = range(len(dimensions))
    if len(dimensions) <= PERMUTED:
        different = {tuple(dimensions[d] for d in order): order for order in permutations(places)}
        return list(different.values())
    widest = tuple(sorted(places, key=lambda d: -_axis(dimensions[d].lane).link.bandwidth))
    return [widest, widest[::-1]]


def _turned(count: int) -> dict[Order, float]:
    """Each dimension is the first of an equal share."""
    return {tuple((first + place) % count for place in range(count)): 1 / count for first in range(count)}


def _balanced(dimensions: tuple[Dimension, ...]) -> dict[Order, float]:
    """Shares of the payload that take orders of their own, so that all dimensions work about equally long."""
    shape = [item.size for item in dimensions]
    orders = balanced_orders(shape, [sending_bandwidth(_axis(item.lane), item.size) for item in dimensions], SHARES)
    return {order: orders.count(order) / SHARES for order in dict.fromkeys(orders)}


def sending_bandwidth(axis: Axis, ranks: int) -> float:
    """Bandwidth with which a rank of so many on an axis sends into it [B/s]: all its links in lines, rings and full ones, else
    one."""
    links = {_T.FULL: ranks - 1, _T.RING: 1 if ranks == 2 or axis.one_way else 2, _T.LINE: 1, _T.SWITCH: 1}
    return axis.link.bandwidth * links.get(axis.topology, 1)


def _axis(lane: Lane) -> Axis:
    return lane.axis if isinstance(lane, Crossed) else lane


@lru_cache(maxsize=1 << 14)
def _on_one(kind: CollectiveKind, dimension: Dimension) -> Time:
    lane = dimension.lane
    if isinstance(lane, Crossed) or lane.one_way or (lane.multipath and lane.topology is not _T.SWITCH):
        links = fastest(list(_counted(kind, lane if isinstance(lane, Crossed) else Crossed(lane, lane.size, 1))))
    else:
        links = fastest(list(_formed(kind, lane)))
    if dimension.library is None or not dimension.library.serves(kind):
        return links
    return _Measured(dimension.library, kind, lane.size, links)


def _around(times: int, uncut: bool = False) -> Form:
    """Direct exchanges on a ring, so many times; ``uncut``: of the whole payload, not of a share for each."""
    return Form(
        lambda n, k: times,
        lambda n, k, payload: times * around_ring_bytes(n, n * payload if uncut else payload),
        lambda n, k: times * floor_div(n, 2),
        lambda n, k: times * (n - 1),
    )


_AROUND: dict[Kind, tuple[Form, ...]] = {
    _K.ALL_TO_ALL: (_around(1),),
    _K.ALL_GATHER: (_around(1),),
    _K.REDUCE_SCATTER: (_around(1),),
    _K.ALL_REDUCE: (_around(2), _around(1, uncut=True)),
}
"""Direct exchanges on a ring, for equal chunks: what `FORMS` lacks, as it is exact for all."""


def _formed(kind: CollectiveKind, axis: Axis) -> Iterator[Time]:
    """Algorithms with a closed form on the axis whose messages its switches can serve."""
    if axis.topology is _T.RING:
        yield from (_Formed(form, axis.size, axis.size, axis.link) for form in _AROUND.get(kind, ()))
    for name, item in ALGORITHMS.items():
        form = FORMS.get((kind, name, axis.topology))
        if form is None or item.unfit(kind, axis.size) or (item.network and not _served(kind, axis, name)):
            continue
        open_ = kind in WHOLE and item.cut(kind) in (Cut.PIECES, Cut.SHARED_PIECES)
        for pieces in CHAINED if open_ else (1,):
            yield _Formed(form, axis.size, item.chunks(kind, axis.size, pieces), axis.link)


@lru_cache(maxsize=1024)
def _served(kind: CollectiveKind, axis: Axis, name: str) -> bool:
    """Whether the axis' switch can do what the algorithm asks of it; that does not depend on the ranks, so three are asked."""
    few = replace(axis, size=3)
    try:
        laid_out(group((few,), range(few.size)), kind, Schedule(name))
    except BadInput:
        return False
    return True


def _counted(kind: CollectiveKind, lane: Crossed) -> Iterator[Time]:
    """Every algorithm without needs of switches, run by all groups in step on the axis' graph; chunks without rounding."""
    axis = lane.axis
    if axis.size > COUNTED:
        where = f"axis {axis.name}, a {axis.topology} of {axis.size} ranks in groups of {lane.size}"
        expected = f"at most {COUNTED} ranks where messages have to be counted one by one"
        remedy = "describe it as several axes: rings, lines, switches, full ones"
        raise BadInput(Fault(where, expected, str(axis.size), remedy))
    graph, groups = build(axis), lane.groups
    for item in ALGORITHMS.values():
        if item.unfit(kind, lane.size) or item.network:
            continue
        chunks = item.chunks(kind, lane.size)
        steps = item.make[kind](Setting(lane.size, chunks))
        table = tuple(
            tuple(
                Transfer(ranks[t.source], ranks[t.target], t.chunk + place * chunks, t.combine)
                for place, ranks in enumerate(groups)
                for t in step
            )
            for step in steps
        )
        laid = layout(graph, kind, table, chunks * len(groups))
        cut = chunks // lane.size if kind is _K.ALL_TO_ALL else chunks
        rows = np.add.reduceat(laid.counts, laid.row_starts) / (cut * laid.row_bandwidths)
        ends = [*laid.step_starts.tolist(), len(rows)]
        yield _Counted(float(laid.latencies.sum()), sum(float(rows[a:b].max(initial=0.0)) for a, b in pairwise(ends)))
