"""Collectives on networks: what one costs, how far that is from the least possible, and which schedule is best.

Sizes, S: the vector of one rank (all-reduce, broadcast, reduce, point-to-point), the gathered or unreduced whole (all-gather,
gather, reduce-scatter, scatter), all that one rank sends, its own block among it (all-to-all), what all ranks hold together
(shift). A barrier has none. S is a whole number of bytes; chunks are cut off in ceil(S / chunks) bytes, so that the last ones
may be shorter or empty. Roots are rank 0; a point-to-point message goes from there to the last rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halley.answer import relative_gap
from halley.errors import BadInput, Fault, InternalError
from halley.formulas.numbers import Number
from halley.formulas.software import sent_bytes
from halley.ir.hardware import Axis, Link
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.bounds.collectives import Bound, demand_bound, lower_bound
from halley.network.graph.graph import Graph
from halley.network.graph.groups import Group
from halley.network.graph.groups import group as members_of
from halley.network.time.curve import Curve
from halley.network.time.dimension_forms import DimensionForm, adds, dimension_form
from halley.network.time.evaluate import Evaluation, Layout, evaluate
from halley.network.time.forms import FORMS, Form
from halley.network.time.schedules import Schedule, laid_out, schedules

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

BLOCK = 8192
"""Sizes that are priced at a time, so that what comes between stays in the cache."""

BELOW = 1e-9
"""Rounding that a time may lie below its bound by, relative."""


@dataclass(frozen=True, eq=False, slots=True)
class CollectiveCost:
    """Cost of one collective by one schedule.

    ``time`` [s]; ``steps``; ``link_bytes`` [edges] [B]; ``byte_hops`` [B]; ``energy`` [J] on the links; ``bound``: the least
    time that any algorithm takes, with its reasons; ``limiting``: the link that works longest, (source, target), None where
    nothing moves; ``closed``: whether the time has a closed form; ``convention``: what ``size`` [B] counts; ``algbw`` = size
    / time and ``busbw`` [B/s] as nccl-tests define them, 0 for a barrier.
    """

    kind: Kind
    schedule: Schedule
    ranks: int
    size: int
    time: float
    steps: int
    link_bytes: NDArray[np.int64] | NDArray[np.float64]
    byte_hops: float
    energy: float
    bound: Bound
    limiting: tuple[int, int] | None
    closed: bool

    @property
    def gap(self) -> float:
        """How far the time is from the bound, relative to it."""
        return relative_gap(self.time, self.bound.value)

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
class Price:
    """Time of one schedule as a function of the payload: by a formula in n, c and S where there is one, else piece by piece.

    ``cut``: chunks of one payload; ``fixed`` [s]: start-ups, posting and latencies of all steps; ``links``: the rest of the time;
    None where ``form`` gives both, in chunks of ``link``.
    """

    ranks: int
    cut: int
    startup: float
    form: Form | None = None
    link: Link | None = None
    fixed: float = 0.0
    links: Curve | None = None

    def __call__(self, size: Number) -> Number:
        """Time [s] of a payload [B] or an array of them."""
        if not isinstance(size, np.ndarray) or size.size <= BLOCK:
            return self._time(size)
        times = [self._time(size.ravel()[begin : begin + BLOCK]) for begin in range(0, size.size, BLOCK)]
        return np.concatenate(times).reshape(size.shape)

    def _time(self, size: Number) -> Number:
        if self.form is not None and self.link is not None:
            return self.form.time(self.ranks, self.cut, size, self.link, self.startup)
        return self.fixed if self.links is None else self.fixed + self.links(size)

    def bytes(self, size: Number) -> Number:
        """Bytes on the busiest link of each step, summed [B]: whole numbers where all links are equal."""
        if self.form is not None:
            return self.form.bytes(self.ranks, self.cut, size)
        return 0 * size if self.links is None else self.links.bytes(size)


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective to be costed. ``algorithm``: a name or a `Schedule`; ``startup`` [s] comes before every step.

    >>> from halley.ir.hardware import Topology
    >>> ring = (Axis("x", 4, Topology.RING, Link(100e9, 1e-6)),)
    >>> cost = Collective(CollectiveKind.ALL_REDUCE, "ring", ring, 4_000_000).cost()
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
        return Bound(tuple(part for part in parts if part.name == "latency"))
    return lower_bound(kind, graph, size, start_up=startup, lockstep=True)


def _cost(kind: Kind, team: Group, schedule: Schedule, size: int, startup: float, bound: Bound) -> CollectiveCost:
    laid = laid_out(team, kind, schedule)
    found = evaluate(laid, laid.sizes(size), startup)
    return _judged(kind, team, schedule, size, laid, found, bound)


def _judged(
    kind: Kind, team: Group, schedule: Schedule, size: int, laid: Layout, found: Evaluation, bound: Bound
) -> CollectiveCost:
    """The cost, once its time is known to be possible."""
    if found.time < bound.value * (1 - BELOW):
        where = f"{kind} of {size} B by {schedule.name} on {team.graph.name}"
        raise InternalError(Fault(where, f"at least {bound.value:g} s ({bound.why})", f"{found.time:g} s"))
    edge = None if found.limiting is None else team.graph.edges[found.limiting]
    return CollectiveCost(
        kind,
        schedule,
        team.graph.ranks,
        size,
        found.time,
        laid.steps,
        found.link_bytes,
        found.byte_hops,
        found.energy,
        bound,
        None if edge is None else (edge.source, edge.target),
        _is_closed(kind, team, schedule),
    )


def _form(kind: Kind, team: Group, schedule: Schedule) -> Form | None:
    """The formula: of plain algorithms on one axis, whose switches can do what they need."""
    if team.axes is None or len(team.axes) != 1 or schedule.order or not isinstance(schedule.algorithm, str):
        return None
    axis, form = team.axes[0], FORMS.get((kind, schedule.algorithm, team.axes[0].topology))
    if form is None or axis.one_way or axis.multipath or axis.size < 2:
        return None
    return form if not ALGORITHMS[schedule.algorithm].network or adds(schedule.algorithm, axis) else None


@lru_cache(maxsize=4096)
def _is_closed(kind: Kind, team: Group, schedule: Schedule) -> bool:
    return _form(kind, team, schedule) is not None or _over_dimensions(kind, team, schedule) is not None


def _over_dimensions(kind: Kind, team: Group, schedule: Schedule) -> DimensionForm | None:
    return None if team.axes is None else dimension_form(kind, team.axes, schedule)


@lru_cache(maxsize=4096)
def price(kind: Kind, team: Group, schedule: Schedule, startup: float = 0.0) -> Price:
    """The schedule's time as a function of the payload, for many sizes: found once, remembered. Raises BadInput: a schedule that
    the network does not serve.

    >>> from halley.ir.hardware import Topology
    >>> team = team_of((Axis("x", 4, Topology.RING, Link(2.0, 5.0)),))
    >>> price(CollectiveKind.ALL_REDUCE, team, Schedule("ring"))(np.array([242.0, 240.0])).tolist()
    [213.0, 210.0]
    """
    ranks = team.graph.ranks
    form = _form(kind, team, schedule)
    if form is not None and team.axes is not None:
        schedule.check(kind, ranks)
        cut = schedule.chunks(kind, ranks) // (ranks if kind is _K.ALL_TO_ALL else 1)
        return Price(ranks, cut, startup, form, team.axes[0].link)
    over = _over_dimensions(kind, team, schedule)
    if over is not None:
        links = over.links()
        return Price(ranks, links.cut, startup, fixed=over.fixed(startup), links=links)
    laid = laid_out(team, kind, schedule)
    return Price(ranks, laid.cut, startup, fixed=laid.steps * startup + float(laid.latencies.sum()), links=laid.curve)


def candidates(kind: Kind, network: Network, size: int, startup: float = 0.0) -> tuple[CollectiveCost, ...]:
    """The cost of every schedule that the network offers, fastest first; of equals, the one with fewer
    byte-hops.

    Raises BadInput as `Collective.cost`.
    """
    team = team_of(network)
    check_size(kind, size)
    bound = bound_of(kind, team, size, startup)
    found = [_cost(kind, team, item, size, startup, bound) for item in schedules(kind, team, size, startup)]
    return tuple(sorted(found, key=lambda cost: (cost.time, cost.byte_hops)))


def best(kind: Kind, network: Network, size: int, startup: float = 0.0) -> CollectiveCost:
    """The fastest of the `candidates`."""
    return candidates(kind, network, size, startup)[0]


@lru_cache(maxsize=1 << 20)
def best_time(kind: Kind, network: Network, size: int, startup: float = 0.0) -> float:
    """Time [s] of the fastest schedule, remembered: what a search asks for. Give a `Group` (`team_of`) or a `Graph`, which are
    found at once; axes have to be compared."""
    return best(kind, network, size, startup).time


def exchange(counts: ArrayLike, algorithm: str | Schedule, network: Network, startup: float = 0.0) -> CollectiveCost:
    """Cost of an all-to-all of uneven blocks, as between experts: rank i sends ``counts[i, j]`` bytes to rank j.

    The size of the cost is the most that one rank sends. Raises BadInput: counts that are no [ranks, ranks] table of whole
    numbers, none of them below 0, or all of them 0 off the diagonal; an algorithm that cuts blocks.

    >>> from halley.ir.hardware import Topology
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
    return _judged(_K.ALL_TO_ALL, team, schedule, int(table.sum(axis=1).max()), laid, found, bound)
