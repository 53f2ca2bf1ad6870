"""Times of algorithms on one lane: a fixed time and a time per byte each, for payloads that are divided without rounding.

Chunks are equal and need not be whole bytes, so the time of a step table is linear in the payload (docs/decisions/0054). It
comes from a closed form (`halley.network.time.forms`) or from the table counted on the graph. A collective takes the least of
these lines, or what a communication library was measured to take, never below them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.formulas.lanes import around_ring_bytes
from halley.formulas.numbers import Number, floor_div
from halley.formulas.software import overlaid_time
from halley.ir.hardware import Axis, Topology
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.circuits import SERVED as ON_CIRCUITS
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.fit.overlay import Overlay
from halley.network.graph.groups import group
from halley.network.graph.lanes import SIMPLE, Crossed, Lane
from halley.network.graph.topologies import build
from halley.network.time.evaluate import Layout, layout
from halley.network.time.forms import FORMS, Form
from halley.network.time.schedules import COUNTED_PIECES, DGX_1_SCHEDULE, Schedule, counted, is_pieced, side_by_side

_K, _T = CollectiveKind, Topology
_GATHERS = (_K.ALL_GATHER, _K.REDUCE_SCATTER)

MAX_COUNTED_RANKS = 256
"""Most ranks of an axis whose messages are counted one by one, where its topology has no closed forms."""
MAX_TABLED_RANKS = 64
"""Most ranks of a line, ring, switch or full axis on which algorithms without a closed form are counted."""
CHAINED = tuple(range(1, 257))
"""Numbers of pieces into which a closed form cuts a payload, where the algorithm leaves that open."""


@dataclass(frozen=True, slots=True)
class ScheduleTime:
    """The time of a schedule: ``latency`` [s] of all steps, start-ups among it; ``posting`` [s]: what the busiest rank takes to
    post its messages; ``up`` and ``down`` [s/B]: transfer on the links from the ranks and to them, per byte of the payload.
    They differ only for algorithms of one step in which switches add or copy."""

    schedule: Schedule
    steps: int
    latency: float
    posting: float
    up: float
    down: float

    @property
    def fixed(self) -> float:
        return self.latency + self.posting

    @property
    def pairs(self) -> float:
        """The posting of an algorithm whose messages go straight to the ranks that need them, all at once. Beside others of the
        kind on the same ranks they are the same messages."""
        return self.posting if self.steps == 1 and self.schedule.algorithm in ("direct", "one-shot") else 0.0

    @property
    def each(self) -> float:
        return max(self.up, self.down)

    def time(self, size: Number) -> Number:
        """[s]."""
        return self.fixed + self.each * size


class Demand(NamedTuple):
    """What one phase asks for [s]: latency; posting, but for what phases side by side pay once, and that (`ScheduleTime.pairs`);
    transfer from the ranks and to them."""

    latency: Number
    posting: Number
    pairs: Number
    up: Number
    down: Number


@dataclass(frozen=True, eq=False)
class Lines:
    """Schedules that serve one collective on one network. Those that another one equals or beats in both the fixed time and the
    time per byte are left out of ``kept``."""

    every: tuple[ScheduleTime, ...]

    @cached_property
    def kept(self) -> tuple[ScheduleTime, ...]:
        found: list[ScheduleTime] = []
        for line in sorted(self.every, key=lambda line: (line.fixed, line.each, line.up + line.down)):
            if not found or line.each < found[-1].each:
                found.append(line)
        return tuple(found)

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        """[7, lines] latency, posting, pairs, up, down, fixed, each."""
        return np.array([(i.latency, i.posting, i.pairs, i.up, i.down, i.fixed, i.each) for i in self.kept]).T

    def _places(self, size: Number) -> NDArray[np.intp]:
        fixed, each = self._table[5:]
        found: NDArray[np.intp] = np.argmin(fixed + np.multiply.outer(size, each), axis=-1)
        return found

    def fastest(self, size: float) -> ScheduleTime:
        """The line of least time."""
        kept = self.kept
        return kept[0] if len(kept) == 1 else kept[int(self._places(size))]

    def time(self, size: Number) -> Number:
        """[s], of a payload [B] or an array."""
        if isinstance(size, np.ndarray):
            fixed, each = self._table[5:]
            least: Number = (fixed + np.multiply.outer(size, each)).min(axis=-1)
            return least
        return self.fastest(size).time(size)

    def demand(self, size: Number) -> Demand:
        """Of the line of least time."""
        if isinstance(size, np.ndarray):
            latency, posting, pairs, up, down = self._table[:5, self._places(size)]
            return Demand(latency, posting - pairs, pairs, up * size, down * size)
        line = self.fastest(size)
        return Demand(line.latency, line.posting - line.pairs, line.pairs, line.up * size, line.down * size)


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """What a library takes, never below what the links allow. Nobody knows which part of it is latency, so that phases beside
    others take turns with it."""

    library: Overlay
    kind: CollectiveKind
    ranks: int
    links: Lines

    def time(self, size: Number) -> Number:
        """[s], of a payload [B] or an array."""
        return overlaid_time(self.library.time(self.kind, self.ranks, size), self.links.time(size))

    def demand(self, size: Number) -> Demand:
        """All of the time counts as transfer."""
        time = self.time(size)
        return Demand(0.0, 0.0, 0.0, time, time)


OnLane: TypeAlias = Lines | Measured


@dataclass(frozen=True, eq=False, slots=True)
class MeasuredLane:
    """A lane, and the communication library that runs on it, if one was measured there. Compared by identity: whoever makes them
    makes equal ones once."""

    lane: Lane
    library: Overlay | None = None

    @property
    def size(self) -> int:
        return self.lane.size

    @property
    def axis(self) -> Axis:
        """The axis that the lane is, or that it is cut from."""
        return self.lane.axis if isinstance(self.lane, Crossed) else self.lane


@lru_cache(maxsize=1 << 14)
def on_lane(kind: CollectiveKind, dimension: MeasuredLane, startup: float = 0.0) -> OnLane:
    """A collective on one lane. ``startup`` [s] of every step. Raises BadInput: a lane without closed forms of more than
    `MAX_COUNTED_RANKS` ranks."""
    links = lines(kind, dimension.lane, startup)
    if dimension.library is None or not dimension.library.serves(kind):
        return links
    return Measured(dimension.library, kind, dimension.size, links)


@lru_cache(maxsize=1 << 14)
def lines(kind: CollectiveKind, lane: Lane, startup: float = 0.0) -> Lines:
    """Every schedule on one lane. Raises BadInput as `on_lane`."""
    if isinstance(lane, Axis) and _plain(lane):
        return Lines((*_formed(kind, lane, startup), *_tabled(kind, lane, startup)))
    found = tuple(_counted(kind, lane if isinstance(lane, Crossed) else Crossed(lane, lane.size, 1), startup))
    return Lines((*found, *_chained(kind, lane, startup)) if isinstance(lane, Axis) else found)


def _plain(axis: Axis) -> bool:
    """Whether closed forms hold there."""
    return axis.topology in SIMPLE and not axis.one_way and (not axis.multipath or axis.topology is _T.SWITCH)


def _direct_exchanges(times: int, uncut: bool = False) -> Form:
    """Direct exchanges on a ring, so many times; ``uncut``: of the whole payload, not of a share for each."""
    return Form(
        lambda n, k: times,
        lambda n, k, payload: times * around_ring_bytes(n, n * payload if uncut else payload),
        lambda n, k: times * floor_div(n, 2),
        lambda n, k: times * (n - 1),
    )


def _two_shot(links: int, chunks: int, messages: int, n: int) -> Form:
    """Scatter and all-gather, or reduce-scatter and gather: ``chunks`` of n on the busiest link each time."""
    return Form(lambda *_: 2, lambda n_, k, payload: 2 * chunks * payload / n, lambda *_: 2 * links, lambda *_: messages)


def _digits(radix: int, n: int, links: int, full: bool) -> Form:
    """An all-to-all in digits: a step for each digit, in which blocks of equal digits travel together."""
    blocks = messages = steps = 0
    place = 1
    while place < n:
        counts = [sum(away // place % radix == digit for away in range(1, n)) for digit in range(1, radix)]
        blocks += max(counts) if full else sum(counts)
        messages += sum(count > 0 for count in counts)
        steps, place = steps + 1, place * radix
    return Form(lambda *_: steps, lambda n_, k, payload: blocks * payload / n, lambda *_: links * steps, lambda *_: messages)


def _of_equal_chunks(kind: CollectiveKind, axis: Axis) -> Iterator[tuple[str, Form]]:
    """What `FORMS` lacks, as it is exact for chunks of any sizes."""
    n = axis.size
    if axis.topology is _T.RING:
        if kind in (*_GATHERS, _K.ALL_TO_ALL):
            yield "direct", _direct_exchanges(1)
        elif kind is _K.ALL_REDUCE:
            yield "direct", _direct_exchanges(2)
            yield "one-shot", _direct_exchanges(1, uncut=True)
    elif axis.topology in (_T.FULL, _T.SWITCH) and n > 1:
        full = axis.topology is _T.FULL
        links = 1 if full else 2
        if kind in (_K.BROADCAST, _K.REDUCE):
            yield "two-shot", _two_shot(links, 1 if full else n - 1, 2 * (n - 1) if kind is _K.BROADCAST else n, n)
        elif kind is _K.ALL_TO_ALL:
            for name, radix in (("bruck", 2), ("bruck-4", 4), ("bruck-8", 8)):
                yield name, _digits(radix, n, links, full)


def _forms(kind: CollectiveKind, axis: Axis) -> dict[str, Form]:
    """The closed forms of algorithms that the axis' ranks and switches can run, by name."""
    found = dict(_of_equal_chunks(kind, axis))
    for name, item in ALGORITHMS.items():
        form = FORMS.get((kind, name, axis.topology))
        if form is not None and not item.unfit(kind, axis.size) and not (item.network and not _served(kind, axis, name)):
            found[name] = form
    return found


def _formed(kind: CollectiveKind, axis: Axis, startup: float) -> Iterator[ScheduleTime]:
    for name, form in _forms(kind, axis).items():
        item = ALGORITHMS[name]
        for pieces in CHAINED if is_pieced(kind, name) else (1,):
            yield _of_form(kind, axis, form, Schedule(name, pieces), item.chunks(kind, axis.size, pieces), startup)


def _chained(kind: CollectiveKind, axis: Axis, startup: float) -> Iterator[ScheduleTime]:
    """Chains in any number of pieces on rings that are one-way or multipath: their messages go to neighbours, one way."""
    if axis.topology is _T.RING and axis.size > 2 and (kind is _K.BROADCAST or (kind is _K.REDUCE and not axis.one_way)):
        form = FORMS[kind, "pipelined", _T.RING]
        yield from (_of_form(kind, axis, form, Schedule("pipelined", pieces), pieces, startup) for pieces in CHAINED)


def _of_form(kind: Kind, axis: Axis, form: Form, schedule: Schedule, chunks: int, startup: float) -> ScheduleTime:
    """Of a payload that every chunk and rank divides, so that a form for whole bytes rounds nothing."""
    n, link = axis.size, axis.link
    payload = float(chunks * n)
    each = float(form.bytes(n, chunks, payload)) / payload / link.bandwidth
    up = down = each
    if schedule.algorithm == "multicast" and kind in _GATHERS:
        own = 1 / n / link.bandwidth
        up, down = (own, each) if kind is _K.ALL_GATHER else (each, own)
    steps = int(form.steps(n, chunks))
    latency = steps * startup + float(form.hops(n, chunks)) * link.latency
    return ScheduleTime(schedule, steps, latency, float(form.messages(n, chunks)) * link.overhead, up, down)


@lru_cache(maxsize=1024)
def _served(kind: CollectiveKind, axis: Axis, name: str) -> bool:
    """Whether the axis' switch can do what the algorithm asks of it; that does not depend on the ranks, so three are asked."""
    few = replace(axis, size=3)
    try:
        counted(group((few,), range(few.size)), kind, Schedule(name))
    except BadInput:
        return False
    return True


def outdone(kind: Kind, axis: Axis) -> dict[str, str]:
    """Algorithms that another one equals or beats whatever the payload, so that they are no candidates, and what they need. Of
    all-reduces on a switch in which a rank sends and receives one message at a time, `bruck` has the fewest steps and the fewest
    bytes. Without a ring no block comes from the other side: `bidirectional` has no more bytes on a line, `direct` on a switch or
    full axis."""
    found: dict[str, str] = {}
    if kind is _K.ALL_REDUCE and axis.topology is _T.SWITCH:
        found |= dict.fromkeys(("tree", "double-tree"), "another topology, as bruck is never slower here")
    if axis.topology is not _T.RING:
        found["bidirectional-halved"] = "a ring, as bidirectional or direct is never slower here"
    return found


def _tabled(kind: CollectiveKind, axis: Axis, startup: float) -> Iterator[ScheduleTime]:
    """Algorithms without a closed form, whose tables are counted on the axis."""
    if not 1 < axis.size <= MAX_TABLED_RANKS:
        return
    team = group((axis,), range(axis.size))
    known = {name for name in ALGORITHMS if (kind, name, axis.topology) in FORMS}.union(_forms(kind, axis))
    known |= outdone(kind, axis).keys()
    for name, item in ALGORITHMS.items():
        if name not in known and not item.unfit(kind, axis.size) and not item.network:
            for pieces in COUNTED_PIECES if is_pieced(kind, name) else (1,):
                schedule = Schedule(name, pieces)
                yield line_of(counted(team, kind, schedule), schedule, startup)


def line_of(laid: Layout, schedule: Schedule, startup: float = 0.0, cut: int | None = None) -> ScheduleTime:
    """The time of a table that is laid out; ``cut``: equal chunks of one payload, those of the layout unless given."""
    transfer = 0.0
    if laid.kind is not Pattern.BARRIER and len(laid.row_starts):
        rows = np.add.reduceat(laid.counts, laid.row_starts) / laid.row_bandwidths
        ends = [*laid.step_starts.tolist(), len(rows)]
        transfer = sum(float(rows[a:b].max(initial=0.0)) for a, b in pairwise(ends)) / (laid.cut if cut is None else cut)
    latency = laid.steps * startup + float(laid.latencies.sum())
    return ScheduleTime(schedule, laid.steps, latency, float(laid.postings.sum()), transfer, transfer)


def _counted(kind: CollectiveKind, lane: Crossed, startup: float) -> Iterator[ScheduleTime]:
    """Every algorithm, run by all groups in step on the axis' graph."""
    axis = lane.axis
    if axis.size > MAX_COUNTED_RANKS:
        where = f"axis {axis.name}, a {axis.topology} of {axis.size} ranks in groups of {lane.size}"
        expected = f"at most {MAX_COUNTED_RANKS} ranks where messages have to be counted one by one"
        remedy = "describe it as several axes: rings, lines, switches, fully connected"
        raise BadInput(Fault(where, expected, str(axis.size), remedy))
    able = any(switch.multicast or switch.reduction for switch in build(axis).switches)
    schedules = [
        Schedule(name, pieces)
        for name, item in ALGORITHMS.items()
        if not item.unfit(kind, lane.size) and (able or not item.network)
        for pieces in (COUNTED_PIECES if is_pieced(kind, name) and axis.size <= MAX_TABLED_RANKS else (1,))
    ]
    if axis.topology is _T.DGX_1 and lane.size == axis.size and kind in ON_CIRCUITS:
        schedules.append(DGX_1_SCHEDULE)
    for schedule in schedules:
        chunks = schedule.chunks(kind, lane.size)
        table = side_by_side(schedule.steps(kind, lane.size, False), lane.groups, chunks)
        try:
            laid = layout(build(axis), kind, table, chunks * len(lane.groups))
        except BadInput:
            continue  # the axis' switches cannot do it
        yield line_of(laid, schedule, startup, chunks // lane.size if kind is _K.ALL_TO_ALL else chunks)
