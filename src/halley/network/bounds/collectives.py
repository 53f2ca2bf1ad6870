"""Lower bounds of collectives on any network: times that no algorithm beats, each with its reason.

A bound holds for every algorithm that Halley can express: any number of steps, any routes, several at once, any number of
messages in flight at a rank; ranks copy and add, switches as far as they are able to. Sizes follow the conventions of the
collectives: S is the vector of one rank (all-reduce, broadcast, reduce), the gathered or unreduced whole (all-gather, gather,
reduce-scatter, scatter), all that one rank sends (all-to-all), what all members hold together (shift).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.collectives import cut_bound
from halley.ir.mapping import CollectiveKind
from halley.network.bounds.cuts import check_reach, tightest_cut
from halley.network.bounds.demands import Demands, check_demands, cut_up, demand_parts, exchange
from halley.network.bounds.partitions import partition_part
from halley.network.bounds.reasons import Bound, BoundPart, crossing_words
from halley.network.bounds.shortest import all_distances
from halley.network.graph.graph import Graph
from halley.units import format_time

__all__ = ["LATENCY", "Bound", "BoundPart", "demand_bound", "lower_bound"]

LATENCY = "latency"
"""Name of the part that bounds the fixed delays alone."""

_K = CollectiveKind
_GIVING = (_K.GATHER, _K.ALL_GATHER)
_TAKING = (_K.SCATTER, _K.REDUCE_SCATTER, _K.ALL_TO_ALL)
"""Kinds whose shares are what members give, or take: who has none is not waited for."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A collective as its bounds see it: the members' ranks, the share of each [B], the root's rank. ``turned``: all links were
    turned round."""

    graph: Graph
    group: tuple[int, ...]
    size: float
    shares: tuple[float, ...]
    root: int
    turned: bool = False

    @property
    def back(self) -> _Task:
        """With all links turned round: what is gathered there is scattered here, what is spread there is reduced here."""
        edges = tuple(replace(edge, source=edge.target, target=edge.source) for edge in self.graph.edges)
        graph = Graph(self.graph.name, self.graph.ranks, edges, self.graph.switches)
        return replace(self, graph=graph, turned=not self.turned)

    def words(self, inside: Collection[int], crossing: float, into: bool) -> str:
        """`crossing_words` on the network as it is."""
        graph = self.back.graph if self.turned else self.graph
        return crossing_words(graph, inside, crossing, into != self.turned)


def lower_bound(
    kind: CollectiveKind,
    graph: Graph,
    size: float,
    group: Sequence[int] | None = None,
    *,
    root: int | None = None,
    shares: Sequence[float] | None = None,
    start_up: float = 0.0,
    ports: int | None = None,
    lockstep: bool = False,
) -> Bound:
    """The least time [s] that a collective of ``size`` bytes takes among the ranks of ``group`` (all, unless given).

    ``root``: of a broadcast, reduce, gather or scatter (the group's first unless given). ``shares`` [B]: what each member gives
    to a gather, all-gather or shift, keeps of a scatter or reduce-scatter, gets from each in an all-to-all; unless given,
    ``size`` is cut as chunks are. ``start_up`` [s] per step. ``ports``: messages that a rank sends at once, if that is limited.
    ``lockstep``: latency and transfer add up, as they do where steps wait for each other; otherwise one may hide the other.

    Raises BadInput for sizes that are not above zero, a group that is not of the graph's ranks, members that cannot reach each
    other. Ranks out of the group pass messages on and do nothing else.

    >>> from halley.ir.hardware import Link
    >>> from halley.network.graph.graph import Edge
    >>> ring = Graph("ring", 4, tuple(Edge(i, (i + d) % 4, Link(10.0)) for i in range(4) for d in (1, -1)))
    >>> bound = lower_bound(CollectiveKind.ALL_GATHER, ring, 80)
    >>> bound.value, bound.why
    (3.0, '60 B have to reach rank 0 over 2 links of 10 B/s each')
    """
    task = _task(kind, graph, size, group, root, shares)
    if ports is not None and ports < 1:
        raise BadInput(Fault(f"{kind} on network {graph.name}", "at least one port per rank", str(ports)))
    waits = _waits(kind, task)
    if not waits.who.any():
        return Bound(())
    latency = _latency(waits, start_up * _least_steps(kind, task, ports))
    return Bound.of(latency, _TRANSFERS[kind](task), lockstep)


def demand_bound(graph: Graph, demands: Demands, *, start_up: float = 0.0, lockstep: bool = False) -> Bound:
    """The least time [s] in which rank i sends ``demands[i, j]`` bytes to rank j, for all pairs ([ranks, ranks]).

    Takes milliseconds; `halley.network.bounds.flow.concurrent_flow` finds the exact transfer time. Raises BadInput for amounts
    that are negative or endless, demands of a rank to itself, and ranks that cannot reach each other.
    """
    check_demands(graph, demands)
    return Bound.of(_latency(_Waits(graph, demands > 0), start_up), demand_parts(graph, demands), lockstep)


def _task(
    kind: CollectiveKind,
    graph: Graph,
    size: float,
    group: Sequence[int] | None,
    root: int | None,
    shares: Sequence[float] | None,
) -> _Task:
    """The checked input; every fault at once."""
    where = f"{kind} on network {graph.name}"
    faults = []
    if kind not in _TRANSFERS:
        faults.append(Fault(where, "a collective that has bounds", str(kind), did_you_mean(str(kind), map(str, _TRANSFERS))))
    if not (size > 0 and math.isfinite(size)):
        faults.append(Fault(where, "a size above zero", f"{size:g} B"))
    members = tuple(range(graph.ranks)) if group is None else tuple(group)
    strangers = [member for member in members if not 0 <= member < graph.ranks]
    if not members or strangers:
        faults.append(Fault(where, f"a group of ranks 0 to {graph.ranks - 1}", str(strangers[0]) if strangers else "no rank"))
    if len(set(members)) < len(members):
        faults.append(Fault(where, "each rank once in the group", "a rank twice"))
    if root is not None and root not in members:
        faults.append(Fault(where, "a root of the group", f"rank {root}", "add it to the group"))
    if shares is not None and (len(shares) != len(members) or not all(0 <= share < math.inf for share in shares)):
        got = f"{len(shares)} shares, the least {min(shares, default=0):g} B"
        faults.append(Fault(where, f"{len(members)} shares, none below zero", got))
    elif shares is not None and not math.isclose(math.fsum(shares), size, rel_tol=1e-9):
        faults.append(Fault(where, f"shares that make up the size of {size:g} B", f"{math.fsum(shares):g} B"))
    if faults:
        raise BadInput(faults)
    given = tuple(shares) if shares is not None else cut_up(size, len(members))
    return _Task(graph, members, size, given, members[0] if root is None else root)


def _least_steps(kind: CollectiveKind, task: _Task, ports: int | None) -> int:
    """A step multiplies the ranks that a message has reached by at most ports + 1 (telephone model; Chan et al., Concurr. Comput.
    19, 2007); without a limit, or where switches copy or add, one step may do. A shift has one message per rank."""
    if ports is None or kind is _K.SHIFT or any(switch.multicast or switch.reduction for switch in task.graph.switches):
        return 1
    steps, reached = 0, 1
    while reached < len(task.group):
        steps, reached = steps + 1, reached * (ports + 1)
    return steps


@dataclass(frozen=True, slots=True)
class _Waits:
    """``who[i, j]``: rank j cannot end before something of rank i has come."""

    graph: Graph
    who: NDArray[np.bool_]


def _waits(kind: CollectiveKind, task: _Task) -> _Waits:
    who = np.zeros((task.graph.ranks, task.graph.ranks), dtype=bool)
    sharing = [member for member, share in zip(task.group, task.shares, strict=True) if share > 0]
    sources = [task.root] if kind in (_K.BROADCAST, _K.SCATTER) else sharing if kind in _GIVING else task.group
    targets = [task.root] if kind in (_K.REDUCE, _K.GATHER) else sharing if kind in _TAKING else task.group
    who[np.ix_(sources, targets)] = True
    if kind is _K.SHIFT:
        who[:] = _shifted(task) > 0
    np.fill_diagonal(who, False)
    check_reach(task.graph, {int(source): np.flatnonzero(row).tolist() for source, row in enumerate(who) if row.any()})
    return _Waits(task.graph, who)


def _latency(waits: _Waits, starting: float) -> BoundPart:
    """The two ranks furthest apart in the time that the links' latencies take, behind the least number of starts."""
    sources = np.flatnonzero(waits.who.any(axis=1))
    distance = all_distances(waits.graph, waits.graph.latencies, sources)[:, : waits.graph.ranks]
    apart = np.where(waits.who[sources], distance, -1.0)
    row, target = np.unravel_index(int(np.argmax(apart)), apart.shape)
    far = float(apart[row, target])
    started = f", after {format_time(starting)} of starts" if starting else ""
    why = f"something of rank {sources[row]} has to come to rank {target}, {format_time(far)} away{started}"
    return BoundPart(LATENCY, far + starting, why)


def _gathering(task: _Task) -> Iterator[BoundPart]:
    return _spreading(task, dict(zip(task.group, task.shares, strict=True)), task.group)


def _to_root(task: _Task) -> Iterator[BoundPart]:
    return _spreading(task, dict(zip(task.group, task.shares, strict=True)), [task.root])


def _from_root(task: _Task) -> Iterator[BoundPart]:
    return _spreading(task, {task.root: task.size}, task.group)


def _spreading(task: _Task, weights: dict[int, float], targets: Sequence[int]) -> Iterator[BoundPart]:
    """Whole copies of what starts somewhere, wanted by each target: the slowest target on its own links, the tightest cut."""
    total = math.fsum(weights.values())
    entering = np.zeros(task.graph.vertices)
    np.add.at(entering, [edge.target for edge in task.graph.edges], task.graph.bandwidths)
    wanted = {target: total - weights.get(target, 0.0) for target in targets}
    times = {target: float(cut_bound(amount, entering[target])) for target, amount in wanted.items() if amount > 0}
    slowest = max(times, key=lambda target: times[target])
    yield BoundPart("node", times[slowest], task.words({slowest}, wanted[slowest], into=True))
    cut = tightest_cut(task.graph, weights, targets)
    outside = set(range(task.graph.vertices)) - cut.inside
    near = min((outside, True), (cut.inside, False), key=lambda side: sum(vertex < task.graph.ranks for vertex in side[0]))
    yield BoundPart("cut", float(cut.time), task.words(near[0], float(cut.crossing), into=near[1]))


def _backwards(parts: Callable[[_Task], Iterator[BoundPart]]) -> Callable[[_Task], Iterator[BoundPart]]:
    """The same bounds with time turned round: what combines on its way is what spreads on the way back."""

    def turned(task: _Task) -> Iterator[BoundPart]:
        yield from parts(task.back)

    return turned


def _all_reducing(task: _Task) -> Iterator[BoundPart]:
    """It holds a broadcast from any member and a reduce to any; and parts of the network are entered twice (`partition_part`)."""
    yield from _from_root(task)
    yield from _backwards(_from_root)(task)
    part = partition_part(task.graph, task.group, task.size)
    if part is not None:
        yield part


def _exchanging(task: _Task) -> Iterator[BoundPart]:
    return demand_parts(task.graph, exchange(task.graph, task.group, task.shares))


def _shifting(task: _Task) -> Iterator[BoundPart]:
    return demand_parts(task.graph, _shifted(task))


def _shifted(task: _Task) -> Demands:
    demands = np.zeros((task.graph.ranks, task.graph.ranks))
    demands[task.group[:-1], task.group[1:]] = task.shares[:-1]
    return demands


_TRANSFERS: dict[CollectiveKind, Callable[[_Task], Iterator[BoundPart]]] = {
    _K.ALL_GATHER: _gathering,
    _K.REDUCE_SCATTER: _backwards(_gathering),
    _K.GATHER: _to_root,
    _K.SCATTER: _backwards(_to_root),
    _K.BROADCAST: _from_root,
    _K.REDUCE: _backwards(_from_root),
    _K.ALL_REDUCE: _all_reducing,
    _K.ALL_TO_ALL: _exchanging,
    _K.SHIFT: _shifting,
}
