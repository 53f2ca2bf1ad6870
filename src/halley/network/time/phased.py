"""Times of collectives on lanes, of any number of ranks: the one module that `halley collective`, plans and shardings ask.

On one lane a collective takes the least of its algorithms' times (`halley.network.time.lines`), or what a communication library
was measured to take. Over several lanes, a hierarchical schedule uses one lane after the other, in any order, with the whole
payload or with pipelined pieces (`halley.formulas.lanes.phased_time`), or all lanes at once. Payloads are divided without
rounding. No step table of all ranks is written, so that the number of ranks does not matter to the effort; algorithms that need
a table are candidates up to `MAX_FLAT_RANKS` ranks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import permutations
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput
from halley.formulas.lanes import phased_time, slot_time
from halley.formulas.numbers import Number, minimum
from halley.ir.hardware import Axis, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.hierarchical import SERVED, Order, Part, Phase, Phased, Run, balanced_orders, other_phases, phases
from halley.network.algorithms.tables import Kind
from halley.network.graph.groups import Group, group
from halley.network.graph.lanes import lanes
from halley.network.time.lines import Demand, Lines, MeasuredLane, OnLane, ScheduleTime, line_of, lines, on_lane
from halley.network.time.schedules import Schedule, counted, flat_schedules

_K, _T = CollectiveKind, Topology

Time: TypeAlias = Callable[[Number], Number]
"""Time [s] of a payload [B], as `halley.network.time.collective.CONVENTIONS` counts it: numbers and arrays."""
Dimensions: TypeAlias = tuple[MeasuredLane, ...]
Matrix: TypeAlias = list[list[Number]]

PIECES = (1, 4, 16, 64)
"""Into how many pieces a payload is cut that go through several lanes behind each other."""
GRID: NDArray[np.float64] = np.exp2(np.arange(0, 44.5, 0.5))
"""Payloads [B] between which ways are ruled out: 1 B to 16 TiB."""
GRID_LIST = GRID.tolist()
PAYLOAD_SHARES = 12
"""Parts of a payload that are distributed to orders of the lanes."""
MAX_PERMUTED_LANES = 3
"""Lanes up to which all their orders are tried; of more, those by bandwidth."""
MAX_FLAT_RANKS = 16
"""Most ranks of several lanes for which algorithms that need a table of all ranks are candidates."""
_SHARING = (_K.ALL_REDUCE, _K.REDUCE_SCATTER, _K.ALL_GATHER, _K.SCATTER, _K.GATHER)
"""Collectives of which each lane is left with its ranks' share of the payload."""
_GATHERS = (_K.ALL_GATHER, _K.REDUCE_SCATTER)


@dataclass(frozen=True, eq=False)
class Way:
    """A way through the dimensions: parts of the payload, each with phases and what each of these takes on its lane, in pieces.
    Every phase takes the algorithm that is fastest for its payload."""

    shape: tuple[int, ...]
    parts: tuple[tuple[Fraction, tuple[tuple[Phase, OnLane], ...]], ...]
    pieces: int
    axes: tuple[str, ...] = ()
    lines: frozenset[int] = frozenset()

    def time(self, size: Number) -> Number:
        """[s], of a payload [B] or an array."""
        return phased_time(*self.demands(size), self.pieces)

    def waiting(self, size: float) -> float:
        """What of the time is start-ups, posting and latency [s]."""
        postings, pairs, latencies, ups, _ = self.demands(size)
        nothing = [[0.0] * len(row) for row in ups]
        return float(phased_time(postings, pairs, latencies, nothing, nothing, self.pieces))

    @cached_property
    def _divided(self) -> list[list[tuple[Phase, OnLane, float]]]:
        """By phase, for every part, the lane's times and what its payload is multiplied by."""
        by_part = [[(phase, on, self._factor(share, phase)) for phase, on in own] for share, own in self.parts]
        return [list(own) for own in zip(*by_part, strict=True)]

    def _factor(self, share: Fraction, phase: Phase) -> float:
        return float(share / (phase.divisor(self.shape) * self.pieces))

    def demands(self, size: Number) -> tuple[list[Number], Matrix, Matrix, Matrix, Matrix]:
        """What `phased_time` asks for: postings by phase; posting of pairs, latencies, transfers by phase and dimension."""
        known: dict[tuple[int, float], Demand] = {}
        larger = np.maximum if isinstance(size, np.ndarray) else max
        postings: list[Number] = []
        rows: tuple[Matrix, Matrix, Matrix, Matrix] = ([], [], [], [])
        for parts in self._divided:
            posting: Number = 0.0
            empty: list[Number] = [0.0] * len(self.shape)
            pairs, latency, up, down = (list(empty) for _ in range(4))
            for phase, on, share in parts:
                key = id(on), share
                if key not in known:
                    known[key] = on.demand(size * share)
                found, d = known[key], phase.dimension
                posting = posting + found.posting
                pairs[d], latency[d] = larger(pairs[d], found.pairs), larger(latency[d], found.latency)
                up[d], down[d] = up[d] + found.up, down[d] + found.down
            postings.append(posting)
            for row, mine in zip(rows, (pairs, latency, up, down), strict=True):
                row.append(mine)
        return postings, *rows

    def slots(self, size: float) -> list[float]:
        """[s] of every slot."""
        rows = self.demands(size)
        spans = [(max(0, slot - self.pieces + 1), slot + 1) for slot in range(len(rows[0]) + self.pieces - 1)]
        postings, *matrices = rows
        return [float(slot_time(postings[a:b], *(matrix[a:b] for matrix in matrices))) for a, b in spans]

    def schedule(self, size: float) -> Schedule:
        """The algorithms that are fastest for this payload. Only of lanes without a library."""
        parts = tuple(
            Part(share, tuple(self._run(phase, on, size * self._factor(share, phase)) for phase, on in own))
            for share, own in self.parts
        )
        return Schedule(Phased(self.shape, parts, self.pieces, self.axes, self.lines))

    @staticmethod
    def _run(phase: Phase, on: OnLane, size: float) -> Run:
        assert isinstance(on, Lines), "schedules are of known algorithms"
        found = on.fastest(size).schedule
        assert isinstance(found.algorithm, str), "one algorithm along a dimension"
        return Run(phase, found.algorithm, found.pieces)

    def steps(self, size: float) -> int:
        """Steps of all slots, of the phase that has most in each."""
        longest = [max(on.fastest(size * share).steps for _, on, share in own if isinstance(on, Lines)) for own in self._divided]
        spans = ((max(0, slot - self.pieces + 1), slot + 1) for slot in range(len(longest) + self.pieces - 1))
        return sum(max(longest[a:b]) for a, b in spans)


@dataclass(frozen=True, eq=False)
class Times:
    """Every candidate of a collective on some lanes: single schedules and ways through the lanes."""

    singles: OnLane | None
    ways: tuple[Way, ...] = ()

    def time(self, size: Number) -> Number:
        """Of the fastest candidate [s]; a payload [B] or an array."""
        found: Number = np.inf if self.singles is None else self.singles.time(size)
        for way in self._close(size):
            found = minimum(found, way.time(size))
        return found

    def _close(self, size: Number) -> Sequence[Way]:
        """The ways that may be the fastest for some of these payloads."""
        if len(self.ways) < 2:
            return self.ways
        if not isinstance(size, np.ndarray):
            place = bisect_right(GRID_LIST, size) - 1
            return self._by_interval[place] if 0 <= place < len(self._by_interval) else self.ways
        places = np.unique(np.searchsorted(GRID, size, "right") - 1).tolist()
        if not places or places[0] < 0 or places[-1] >= len(self._by_interval):
            return self.ways
        return list(dict.fromkeys(way for place in places for way in self._by_interval[place]))

    @cached_property
    def _by_interval(self) -> list[list[Way]]:
        """For payloads between two of `GRID`: times grow with the payload, so a way that takes longer for the lower end than the
        fastest one for the upper end is never the fastest between them. Measured times may fall where a library changes
        protocols; there the ways are those that are no slower at one end than the fastest at the slower end."""
        table = np.stack([np.broadcast_to(way.time(GRID), GRID.shape) for way in self.ways])
        lower, upper = table[:, :-1], table[:, 1:]
        limit = np.maximum(lower.min(axis=0), upper.min(axis=0))
        close = (lower <= limit) | (upper <= limit)
        return [[way for way, near in zip(self.ways, column, strict=True) if near] for column in close.T.tolist()]


@lru_cache(maxsize=1 << 14)
def times(kind: CollectiveKind, dimensions: Dimensions, startup: float = 0.0) -> Times:
    """Every candidate over at least one dimension. ``startup`` [s] of every step. Raises BadInput as `collective_time`."""
    if len(dimensions) == 1:
        return Times(on_lane(kind, dimensions[0], startup))
    shape = tuple(item.size for item in dimensions)
    axes = tuple(item.axis.name for item in dimensions)
    closed = frozenset(place for place, item in enumerate(dimensions) if item.lane is item.axis and item.axis.topology is _T.LINE)
    found: dict[tuple[object, int], Way] = {}
    for shares in _orders(kind, dimensions):
        for pieces in PIECES:
            for variant in _variants(kind, tuple(shares)):
                parts = tuple(
                    (share, tuple((phase, on_lane(phase.kind, dimensions[phase.dimension], startup)) for phase in own))
                    for share, own in zip(shares.values(), variant, strict=True)
                )
                key = tuple((share, tuple(phase for phase, _ in own)) for share, own in parts), pieces
                found.setdefault(key, Way(shape, parts, pieces, axes, closed))
    measured = any(item.library for item in dimensions)
    singles = () if measured else (*_at_once(kind, dimensions, startup), *_flat(kind, dimensions, startup))
    return Times(Lines(singles) if singles else None, tuple(found.values()))


def _variants(kind: CollectiveKind, orders: tuple[Order, ...]) -> Iterator[tuple[tuple[Phase, ...], ...]]:
    """The phases of each order, for every way of taking the dimensions."""
    yield tuple(phases(kind, order) for order in orders)
    yield from zip(*(other_phases(kind, order) for order in orders), strict=True)


@lru_cache(maxsize=1 << 14)
def collective_time(kind: CollectiveKind, dimensions: Dimensions, startup: float = 0.0) -> Time:
    """The time of a collective over the product of the dimensions, as a function of the payload. ``startup`` [s] of every step.

    >>> from halley.ir.hardware import Link
    >>> ring = MeasuredLane(Axis("x", 4, Topology.RING, Link(2.0, 5.0)))
    >>> collective_time(CollectiveKind.ALL_REDUCE, (ring,))(240), collective_time(CollectiveKind.ALL_REDUCE, ())(240)
    (110.0, 0.0)

    Raises BadInput: a collective that does not go through several lanes; lanes without closed forms of more than
    `halley.network.time.lines.COUNTED` ranks.
    """
    return times(kind, dimensions, startup).time if dimensions else _nothing


def _nothing(size: Number) -> Number:
    return 0.0 * size


@lru_cache(maxsize=1024)
def dimensions_of(axes: tuple[Axis, ...]) -> Dimensions:
    """The lanes that whole axes are, without libraries; equal axes give the same objects."""
    return tuple(_dimension(lane) for axis in axes for lane in lanes(axis, axis.size, 1))


@lru_cache(maxsize=1024)
def _dimension(lane: Axis) -> MeasuredLane:
    return MeasuredLane(lane)


def _orders(kind: CollectiveKind, dimensions: Dimensions) -> list[dict[Order, Fraction]]:
    """Shares of the payload by the order that they take: one order for all, each dimension the first of an equal share, and
    shares so that all dimensions work about equally long."""
    found = [{order: Fraction(1)} for order in _single_orders(dimensions)]
    count = len(dimensions)
    found.append({tuple((first + place) % count for place in range(count)): Fraction(1, count) for first in range(count)})
    if kind in (*_SHARING, _K.BROADCAST, _K.REDUCE) and count <= MAX_PERMUTED_LANES:
        shape = [item.size for item in dimensions]
        orders = balanced_orders(shape, [sending_bandwidth(item.axis, item.size) for item in dimensions], PAYLOAD_SHARES)
        found.append({order: Fraction(orders.count(order), PAYLOAD_SHARES) for order in dict.fromkeys(orders)})
    return found


def _single_orders(dimensions: Dimensions) -> list[Order]:
    """Orders that may differ in time."""
    places = range(len(dimensions))
    if len(dimensions) <= MAX_PERMUTED_LANES:
        different = {tuple(dimensions[d] for d in order): order for order in permutations(places)}
        return list(different.values())
    widest = tuple(sorted(places, key=lambda d: -dimensions[d].axis.link.bandwidth))
    return [widest, widest[::-1]]


def sending_bandwidth(axis: Axis, ranks: int) -> float:
    """Bandwidth with which a rank of so many on an axis sends into it [B/s]: all its links in lines, rings and full ones, else
    one."""
    links = {_T.FULL: ranks - 1, _T.RING: 1 if ranks == 2 or axis.one_way else 2, _T.LINE: 1, _T.SWITCH: 1}
    return axis.link.bandwidth * links.get(axis.topology, 1)


def _at_once(kind: CollectiveKind, dimensions: Dimensions, startup: float) -> Iterator[ScheduleTime]:
    """Direct exchanges in which messages cross all dimensions, the last first, as networks route them."""
    ranks = prod(item.size for item in dimensions)
    for name in ("direct", "one-shot"):
        if name in ALGORITHMS and not ALGORITHMS[name].unfit(kind, ranks):
            halves = _GATHERS if kind is _K.ALL_REDUCE and name == "direct" else (kind,)
            found = [_crossing(half, name, dimensions, startup) for half in halves]
            if all(found):
                yield _added(Schedule(name), [line for line in found if line is not None])


def _added(schedule: Schedule, parts: Sequence[ScheduleTime]) -> ScheduleTime:
    """One after the other."""
    each = sum(line.each for line in parts)
    steps, latency, posting = (sum(getattr(line, name) for line in parts) for name in ("steps", "latency", "posting"))
    return ScheduleTime(schedule, steps, latency, posting, each, each)


def _crossing(kind: CollectiveKind, name: str, dimensions: Dimensions, startup: float) -> ScheduleTime | None:
    """One step. Each link of a dimension carries what it carries in that dimension's own exchange, as often as messages of other
    coordinates take it, of shares as small as all ranks make them."""
    latency = posting = transfer = 0.0
    for place, item in enumerate(dimensions):
        line = next((i for i in lines(kind, item.lane).every if i.schedule == Schedule(name)), None)
        if line is None:
            return None
        before, behind = (prod(other.size for other in part) for part in (dimensions[:place], dimensions[place + 1 :]))
        overhead = item.axis.link.overhead
        if kind in (_K.REDUCE, _K.GATHER):
            posting = max(posting, overhead)
        else:
            posting += before * (item.size - 1) * overhead
        times = {_K.ALL_REDUCE: before * behind, _K.BROADCAST: before, _K.REDUCE: behind}.get(kind, 1)
        divisor = {_K.SCATTER: behind, _K.GATHER: before}.get(kind, 1)
        latency += line.latency
        transfer = max(transfer, line.each * times / divisor)
    return ScheduleTime(Schedule(name), 1, startup + latency, posting, transfer, transfer)


def _flat(kind: Kind, dimensions: Dimensions, startup: float) -> Iterator[ScheduleTime]:
    """Algorithms that need a table of all ranks."""
    team = flat_group(dimensions)
    if team is None or team.graph.ranks > MAX_FLAT_RANKS:
        return
    for schedule in flat_schedules(kind, team):
        if schedule.algorithm not in ("direct", "one-shot"):
            try:
                yield line_of(counted(team, kind, schedule), schedule, startup)
            except BadInput:
                continue  # the switches cannot do it


@lru_cache(maxsize=1024)
def flat_group(dimensions: Dimensions) -> Group | None:
    """The ranks of all dimensions on the product of their axes; None where one is a part of an axis without a topology."""
    whole = all(item.size == item.axis.size for item in dimensions)
    if not whole or prod(item.size for item in dimensions) > MAX_FLAT_RANKS:
        return None
    axes = tuple(replace(item.axis, name=f"{place}") for place, item in enumerate(dimensions))
    return group(axes, range(prod(axis.size for axis in axes)))


__all__ = [
    "MAX_FLAT_RANKS",
    "SERVED",
    "MeasuredLane",
    "Times",
    "Way",
    "collective_time",
    "dimensions_of",
    "sending_bandwidth",
    "times",
]
