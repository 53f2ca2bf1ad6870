"""Collectives on networks: what one costs, how far that is from the least possible, and which schedule is best.

Sizes, S: the vector of one rank (all-reduce, broadcast, reduce, point-to-point), the gathered or unreduced whole (all-gather,
gather, reduce-scatter, scatter), all that one rank sends, its own block among it (all-to-all), what all ranks hold together
(shift). A barrier has none. S is a whole number of bytes; it is divided into equal chunks without rounding
(docs/decisions/0054). Roots are rank 0; a point-to-point message goes from there to the last rank.

Times are those of `halley.network.time.phased`, which plans ask as well. Networks that are no product of axes, and collectives
that it does not know, take the least of the step tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halley.answer import ROUNDING_GAP, relative_gap
from halley.errors import BadInput, Fault, InternalError
from halley.formulas.software import sent_bytes
from halley.ir.hardware import Axis
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.hierarchical import Phased
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.bounds.collectives import LATENCY, Bound, BoundPart, demand_bound, lower_bound
from halley.network.graph.graph import Graph
from halley.network.graph.groups import Group
from halley.network.graph.groups import group as members_of
from halley.network.graph.lanes import Crossed
from halley.network.graph.topologies import build
from halley.network.time.evaluate import evaluate
from halley.network.time.lines import MAX_TABLED_RANKS, Lines, ScheduleTime, line_of, lines, outdone
from halley.network.time.phased import MAX_FLAT_RANKS, Dimensions, MeasuredLane, Times, Way, dimensions_of, times
from halley.network.time.schedules import Schedule, laid_out, schedules, unable
from halley.network.time.traffic import link_bytes

_K, _P = CollectiveKind, Pattern

Network: TypeAlias = Graph | Group | tuple[Axis, ...]

CONVENTIONS: dict[Kind, str] = {
    _K.ALL_REDUCE: "the vector of one rank",
    _K.REDUCE: "the vector of one rank",
    _K.BROADCAST: "the vector of the root",
    _K.ALL_GATHER: "the gathered whole",
    _K.GATHER: "the gathered whole",
    _K.REDUCE_SCATTER: "the unreduced vector of one rank",
    _K.SCATTER: "all that the root has",
    _K.ALL_TO_ALL: "all that one rank sends, its own block among it",
    _K.SHIFT: "what all ranks hold together",
    _P.POINT_TO_POINT: "the message",
    _P.BARRIER: "nothing",
}
"""What the size of a collective counts."""

PASSES: dict[Kind, int] = {_K.ALL_REDUCE: 2, _K.ALL_GATHER: 1, _K.REDUCE_SCATTER: 1, _K.ALL_TO_ALL: 1}
"""Times that (n - 1) / n of the payload pass a rank's port, which relates bus to algorithm bandwidth as nccl-tests define it."""

RELATIVE_ROUNDING = 1e-9
"""Rounding that a time may lie below its bound by, relative."""


@dataclass(frozen=True, eq=False, slots=True)
class CollectiveCost:
    """Cost of one collective by one schedule.

    ``time`` [s]; ``waiting`` [s]: what of it is start-ups, posting and latency; ``steps``; ``link_bytes`` [edges] [B];
    ``byte_hops`` [B]; ``energy`` [J] on the links; ``bound``: the least time that any algorithm takes, with its reasons;
    ``limiting``: the link that works longest, (source, target), None where nothing moves; ``convention``: what ``size`` [B]
    counts; ``algbw`` = size / time and ``busbw`` [B/s] as nccl-tests define them, 0 for a barrier.
    """

    kind: Kind
    schedule: Schedule
    ranks: int
    size: int
    time: float
    waiting: float
    steps: int
    link_bytes: NDArray[np.float64]
    byte_hops: float
    energy: float
    bound: Bound
    limiting: tuple[int, int] | None

    @property
    def gap(self) -> float:
        """How far the time is from the bound, relative to it; 0 within rounding."""
        gap = relative_gap(self.time, self.bound.value)
        return gap if abs(gap) > ROUNDING_GAP else 0.0

    @property
    def algorithm(self) -> str:
        return self.schedule.name

    @property
    def convention(self) -> str:
        return CONVENTIONS[self.kind]

    @property
    def algbw(self) -> float:
        return self.size / self.time if self.time else 0.0

    @property
    def busbw(self) -> float:
        passes = PASSES.get(self.kind)
        if passes is None or not self.time:
            return self.algbw
        return float(sent_bytes(passes, self.ranks, self.size)) / self.time


@dataclass(frozen=True, slots=True)
class ScheduledCollective:
    """One collective to be costed. ``algorithm``: a name or a `Schedule`; ``startup`` [s] comes before every step.

    >>> from halley.ir.hardware import Link, Topology
    >>> ring = (Axis("x", 4, Topology.RING, Link(100e9, 1e-6)),)
    >>> cost = ScheduledCollective(CollectiveKind.ALL_REDUCE, "ring", ring, 4_000_000).cost()
    >>> f"{cost.time * 1e6:.0f} us, at least {cost.bound.value * 1e6:.0f} us, {cost.busbw / 1e9:.1f} GB/s"
    '66 us, at least 32 us, 90.9 GB/s'
    """

    kind: Kind
    algorithm: str | Schedule
    group: Network
    size: int
    startup: float = 0.0

    def cost(self) -> CollectiveCost:
        """Raises BadInput: an unknown or unfit algorithm, a size that is not a positive whole number (for a barrier: 0), a
        network in pieces; InternalError: a time below its bound."""
        team = team_of(self.group)
        check_size(self.kind, self.size)
        schedule = Schedule(self.algorithm) if isinstance(self.algorithm, str) else self.algorithm
        return _cost(self.kind, team, schedule, self.size, self.startup, bound_of(self.kind, team, self.size, self.startup))


def team_of(network: Network) -> Group:
    """The ranks that take part, with their axes if they have any; equal axes give the same group."""
    if isinstance(network, Group):
        return network
    return _whole(network) if isinstance(network, Graph) else _of_axes(network)


@lru_cache(maxsize=256)
def _whole(graph: Graph) -> Group:
    return Group(tuple(range(graph.ranks)), None, graph)


@lru_cache(maxsize=256)
def _of_axes(axes: tuple[Axis, ...]) -> Group:
    return members_of(axes, range(prod(axis.size for axis in axes)))


def check_size(kind: Kind, size: int) -> None:
    where = f"size of a {kind}"
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool):
        raise BadInput(Fault(where, "a whole number of bytes", repr(size)))
    if kind is _P.BARRIER and size:
        raise BadInput(Fault(where, "0 bytes", str(size), "a barrier carries nothing"))
    if kind is not _P.BARRIER and size < 1:
        raise BadInput(Fault(where, "at least 1 byte", str(size)))


def bound_of(kind: Kind, team: Group, size: int, startup: float = 0.0) -> Bound:
    """The least time that any algorithm takes in steps, with its reasons."""
    graph = team.graph
    if graph.ranks == 1:
        return Bound(())
    if kind is _P.POINT_TO_POINT:
        demands = np.zeros((graph.ranks, graph.ranks))
        demands[0, -1] = size
        return demand_bound(graph, demands, start_up=startup, lockstep=True)
    if kind is _P.BARRIER:
        # every rank has to hear of every other, as in an all-gather; nothing is transferred
        parts = lower_bound(_K.ALL_GATHER, graph, 1, start_up=startup).parts
        return Bound(tuple(part for part in parts if part.name == LATENCY))
    phased = (known := _times(kind, team, startup)) is not None and bool(known.ways)
    found = lower_bound(kind, graph, size, shares=[size / graph.ranks] * graph.ranks, start_up=startup, lockstep=not phased)
    return _side_by_side(found, kind, _dimensions(team), startup) if phased else found


def _side_by_side(found: Bound, kind: CollectiveKind, dimensions: Dimensions, startup: float) -> Bound:
    """With the transfers after the least latency of a dimension. Phases side by side hide the latency of one dimension behind the
    transfers of another, but each dimension takes its own latency and its transfers one after the other: B bytes over links of
    the bandwidths b_d in the dimensions take T >= (B + sum_d b_d lambda_d) / sum_d b_d >= B / sum_d b_d + min_d lambda_d."""
    least = min((_latency(kind, item, startup) for item in dimensions), key=lambda part: part.value)
    longest = max((part for part in found.parts if part.name != LATENCY), key=lambda part: part.value)
    steps = BoundPart(
        "steps", least.value + longest.value, f"latency of one dimension ({least.why}), then transfer ({longest.why})"
    )
    return Bound(tuple(sorted((*found.parts, steps), key=lambda part: -part.value)))


@lru_cache(maxsize=4096)
def _latency(kind: CollectiveKind, dimension: MeasuredLane, startup: float) -> BoundPart:
    """The least latency of a collective along one dimension."""
    axis, lane = dimension.axis, dimension.lane
    groups = lane.groups if isinstance(lane, Crossed) else (tuple(range(lane.size)),)
    graph = build(lane if isinstance(lane, Axis) else axis)
    shares = [1.0] * lane.size
    bounds = [lower_bound(kind, graph, lane.size, own, shares=shares, start_up=startup) for own in groups]
    return min((part for bound in bounds for part in bound.parts if part.name == LATENCY), key=lambda part: part.value)


def _cost(kind: Kind, team: Group, schedule: Schedule, size: int, startup: float, bound: Bound) -> CollectiveCost:
    """The cost of a schedule that is given."""
    if isinstance(schedule.algorithm, Phased):
        return _of_way(kind, team, _way(team, schedule.algorithm, startup), size, bound)
    schedule.check(kind, team.graph.ranks)
    known = _times(kind, team, startup)
    single = [] if known is None else [line for line in _singles(known) if line.schedule == schedule]
    return _of_line(kind, team, single[0] if single else line_of(laid_out(team, kind, schedule), schedule, startup), size, bound)


def _of_line(kind: Kind, team: Group, line: ScheduleTime, size: int, bound: Bound) -> CollectiveCost:
    return _judged(kind, team, line.schedule, size, (float(line.time(size)), line.fixed, line.steps), bound)


def _of_way(kind: Kind, team: Group, way: Way, size: int, bound: Bound) -> CollectiveCost:
    time = float(way.time(size)), way.waiting(size), way.steps(size)
    return _judged(kind, team, way.schedule(size), size, time, bound)


def _way(team: Group, schedule: Phased, startup: float) -> Way:
    """The phases with the algorithms that the schedule names."""
    dimensions = _dimensions(team)
    if tuple(item.size for item in dimensions) != schedule.shape:
        where = f"collective over dimensions of {schedule.shape}"
        raise BadInput(Fault(where, "a network of these dimensions", str(tuple(item.size for item in dimensions))))
    parts = []
    for part in schedule.parts:
        phases = []
        for phase, name, pieces in part.runs:
            every = lines(phase.kind, dimensions[phase.dimension].lane, startup).every
            found = tuple(line for line in every if line.schedule == Schedule(name, pieces))
            if not found:
                axis = dimensions[phase.dimension].axis.name
                raise BadInput(Fault(f"{phase.kind} by {name} on {axis}", "an algorithm with a time there", f"{pieces} pieces"))
            phases.append((phase, Lines(found)))
        parts.append((part.share, tuple(phases)))
    return Way(schedule.shape, tuple(parts), schedule.pieces, schedule.axes, schedule.lines)


def _judged(
    kind: Kind,
    team: Group,
    schedule: Schedule,
    size: int,
    time: tuple[float, float, int],
    bound: Bound,
    crossing: NDArray[np.float64] | None = None,
) -> CollectiveCost:
    """The cost, once its time is known to be possible. ``time``: the time, what of it is waiting, and the steps."""
    graph = team.graph
    if time[0] < bound.value * (1 - RELATIVE_ROUNDING):
        where = f"{kind} of {size} B by {schedule.name} on {graph.name}"
        raise InternalError(Fault(where, f"at least {bound.value:g} s ({bound.why})", f"{time[0]:g} s"))
    loads = link_bytes(team, kind, schedule, size) if crossing is None else crossing
    busy = loads / graph.bandwidths
    edge = graph.edges[int(np.argmax(busy))] if busy.any() else None
    ends = None if edge is None else (edge.source, edge.target)
    energy = float(loads @ graph.energies)
    return CollectiveCost(kind, schedule, graph.ranks, size, *time, loads, float(loads.sum()), energy, bound, ends)


def _dimensions(team: Group) -> Dimensions:
    """The lanes that the group is the product of; none if it is no product."""
    return () if team.axes is None or team.graph.ranks == 1 else dimensions_of(team.axes)


@lru_cache(maxsize=4096)
def _times(kind: Kind, team: Group, startup: float) -> Times | None:
    """What plans ask; None for networks and collectives whose step tables are counted instead."""
    dimensions = _dimensions(team)
    if not dimensions or not isinstance(kind, CollectiveKind):
        return None
    try:
        return times(kind, dimensions, startup)
    except BadInput:
        return None


def _singles(known: Times) -> tuple[ScheduleTime, ...]:
    return known.singles.every if isinstance(known.singles, Lines) else ()


def candidates(kind: Kind, network: Network, size: int, startup: float = 0.0) -> tuple[CollectiveCost, ...]:
    """The cost of every schedule that the network offers, fastest first; of equals, the one with fewer
    byte-hops.

    Raises BadInput as `ScheduledCollective.cost`.
    """
    team = team_of(network)
    check_size(kind, size)
    bound = bound_of(kind, team, size, startup)
    known = _times(kind, team, startup)
    if known is None:
        found = [_cost(kind, team, item, size, startup, bound) for item in schedules(kind, team, size, startup)]
    else:
        fastest: dict[object, ScheduleTime] = {}
        for line in _singles(known):
            name = line.schedule.algorithm, line.schedule.order
            if name not in fastest or line.time(size) < fastest[name].time(size):
                fastest[name] = line
        found = [_of_line(kind, team, line, size, bound) for line in fastest.values()]
        found += [_of_way(kind, team, way, size, bound) for way in known.ways]
    named: dict[str, CollectiveCost] = {}
    for cost in sorted(found, key=lambda cost: (cost.time, cost.byte_hops)):
        named.setdefault(cost.algorithm, cost)
    return tuple(named.values())


def best(kind: Kind, network: Network, size: int, startup: float = 0.0) -> CollectiveCost:
    """The fastest of the `candidates`."""
    return candidates(kind, network, size, startup)[0]


@lru_cache(maxsize=1 << 20)
def best_time(kind: Kind, network: Network, size: int, startup: float = 0.0) -> float:
    """Time [s] of the fastest schedule, remembered: what a search asks for. Give a `Group` (`team_of`) or a `Graph`, which are
    found at once; axes have to be compared."""
    team = team_of(network)
    check_size(kind, size)
    known = _times(kind, team, startup)
    return best(kind, team, size, startup).time if known is None else float(known.time(size))


def fastest_of(kind: Kind, team: Group, name: str, size: int, startup: float = 0.0) -> Schedule | None:
    """The schedule of an algorithm with as many pieces as are fastest, if its times are known without its table."""
    known = _times(kind, team, startup)
    own = [] if known is None else [line for line in _singles(known) if line.schedule.name.split(",")[0] == name]
    return min(own, key=lambda line: float(line.time(size))).schedule if own else None


def slot_times(team: Group, schedule: Schedule, size: int, startup: float = 0.0) -> tuple[float, ...]:
    """[s] of every slot of a schedule that goes through several dimensions; () of others."""
    if not isinstance(schedule.algorithm, Phased):
        return ()
    return tuple(_way(team, schedule.algorithm, startup).slots(size))


def not_tried(kind: Kind, team: Group) -> dict[str, str]:
    """Algorithms that serve the collective and are no candidates on this network, and what they need.

    >>> from halley.ir.hardware import Link, Topology
    >>> pod = tuple(Axis(name, 8, Topology.FULL, Link(1.0)) for name in "xy")
    >>> not_tried(CollectiveKind.SCATTER, team_of(pod))
    {'linear': 'at most 16 ranks on several axes, 64 on one (tables); --algorithm asks for it', 'binomial': 'at most 16 ranks on \
several axes, 64 on one (tables); --algorithm asks for it'}
    """
    found, known = unable(kind, team), _times(kind, team, 0.0)
    if known is not None:
        tried = {line.schedule.algorithm for line in _singles(known)}
        needed = f"at most {MAX_FLAT_RANKS} ranks on several axes, {MAX_TABLED_RANKS} on one (tables); --algorithm asks for it"
        dimensions = _dimensions(team)
        worse = outdone(kind, dimensions[0].axis) if len(dimensions) == 1 else {}
        left = [name for name, item in ALGORITHMS.items() if not item.unfit(kind, team.graph.ranks) and name not in tried]
        found |= {name: worse.get(name, needed) for name in left if name not in found}
    return found


def exchange(counts: ArrayLike, algorithm: str | Schedule, network: Network, startup: float = 0.0) -> CollectiveCost:
    """Cost of an all-to-all of uneven blocks, as between experts: rank i sends ``counts[i, j]`` bytes to rank j.

    The size of the cost is the most that one rank sends. Raises BadInput: counts that are no [ranks, ranks] table of whole
    numbers, none of them below 0, or all of them 0 off the diagonal; an algorithm that cuts blocks.

    >>> from halley.ir.hardware import Link, Topology
    >>> pair = (Axis("x", 2, Topology.LINE, Link(2.0)),)
    >>> exchange([[0, 6], [2, 0]], "direct", pair).time
    3.0
    """
    team = team_of(network)
    ranks, table = team.graph.ranks, np.asarray(counts)
    where = f"all-to-all on {team.graph.name}"
    if table.shape != (ranks, ranks) or not np.issubdtype(table.dtype, np.integer):
        got = f"{table.dtype} of shape {table.shape}"
        raise BadInput(Fault(where, f"whole numbers for {ranks} x {ranks} ranks", got))
    if (table < 0).any():
        raise BadInput(Fault(where, "counts of at least 0", str(table.min())))
    demands = table.astype(np.float64)
    np.fill_diagonal(demands, 0.0)
    schedule = Schedule(algorithm) if isinstance(algorithm, str) else algorithm
    laid = laid_out(team, _K.ALL_TO_ALL, schedule)
    if laid.chunks != ranks * ranks:
        raise BadInput(Fault(where, "an algorithm that moves whole blocks", schedule.name))
    bound = demand_bound(team.graph, demands, start_up=startup, lockstep=True)
    found = evaluate(laid, table.ravel(), startup)
    time = found.time, laid.steps * startup + float(laid.delays.sum()), laid.steps
    size = int(table.sum(axis=1).max())
    return _judged(_K.ALL_TO_ALL, team, schedule, size, time, bound, found.link_bytes.astype(np.float64))
