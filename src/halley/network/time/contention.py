"""Collectives and other traffic at once, on links that they share.

An execution goes through stages: a delay, in which it uses no link, then bytes on some links. Bytes flow like a fluid: a stage
that runs at the rate x moves all its bytes at the share x of the speed that it would have alone, and so takes from every link x
times what it would take alone. Links that several stages want are shared max-min fairly in these rates: none can be raised
without lowering one that is not above it. (Proportional stages: Chowdhury et al., SIGCOMM 2014; the fair shares of several
resources: Ghodsi et al., NSDI 2011.) Whenever a stage ends, the shares are found anew.

Alone, a stage takes its delay and the time of its busiest link, as in `halley.network.time.evaluate`; with others at least that.
Not modelled: queues and lost packets, priorities, and the order in which a switch serves its inputs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.hierarchical import Phased
from halley.network.algorithms.tables import Kind, Pattern
from halley.network.graph.graph import Graph
from halley.network.graph.routes import routing_matrix
from halley.network.time.evaluate import layout
from halley.network.time.schedules import Schedule, side_by_side
from halley.network.time.traffic import slot_loads

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

RELATIVE_ROUNDING = 1e-9
"""Relative difference of times and of loads that counts as rounding."""


@dataclass(frozen=True, eq=False)
class Stage:
    """A delay [s] without traffic, then ``loads`` [n] bytes on ``edges`` [n] of the graph."""

    delay: float
    edges: Integers
    loads: Floats

    def alone(self, graph: Graph) -> float:
        """Time of the busiest link on an idle network [s], without the delay."""
        return float(np.max(self.loads / graph.bandwidths[self.edges], initial=0.0))


@dataclass(frozen=True, eq=False)
class ConcurrentRun:
    """Stages one after the other, from ``start`` [s] on."""

    name: str
    stages: tuple[Stage, ...]
    start: float = 0.0

    def alone(self, graph: Graph) -> float:
        """Time on an idle network [s]."""
        return sum(stage.delay + stage.alone(graph) for stage in self.stages)

    def loads(self, graph: Graph) -> Floats:
        """[edges] bytes on every link, all stages together."""
        loads = np.zeros(len(graph.edges))
        for stage in self.stages:
            np.add.at(loads, stage.edges, stage.loads)
        return loads


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an execution: its time from its start to its end and what it would have taken alone [s]; ``shared``: links
    that others have bytes for as well; ``waited``: by link that was full, the seconds that it cost, longest first."""

    name: str
    start: float
    time: float
    alone: float
    shared: tuple[int, ...]
    waited: Mapping[int, float]

    @property
    def slowdown(self) -> float:
        """Time over time alone; 1 where both are 0."""
        return self.time / self.alone if self.alone else 1.0


@dataclass(frozen=True, slots=True)
class SharePeriod:
    """A time [s] in which nothing changes: by execution, the share of its own speed that it has (1 during a delay), and the full
    link that holds it up, if one does."""

    start: float
    stop: float
    rates: Mapping[int, float]
    held: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Contention:
    """``outcomes`` in the order of the executions; ``bound`` [s]: no sharing of the links ends all of them earlier."""

    outcomes: tuple[Outcome, ...]
    intervals: tuple[SharePeriod, ...]
    bound: float

    @property
    def end(self) -> float:
        """When the last one has ended [s]."""
        return max(item.start + item.time for item in self.outcomes)


def collective_execution(
    name: str,
    graph: Graph,
    kind: Kind,
    groups: Sequence[Sequence[int]],
    schedule: Schedule,
    size: float,
    *,
    startup: float = 0.0,
    start: float = 0.0,
    line: bool = False,
    slots: Sequence[float] = (),
) -> ConcurrentRun:
    """A collective of ``size`` bytes, run by each group of ranks at once, in step, over the routes of the whole network.

    ``line``: the groups have no link from their last rank to their first. ``slots`` [s]: of a schedule that goes through several
    dimensions, what each slot takes alone (`halley.network.time.collective.slot_times`); what of it is no transfer on the
    busiest link counts as delay. Raises BadInput: as `Schedule.steps` and
    `halley.network.time.evaluate.layout`; groups of different sizes.

    >>> from halley.ir.hardware import Axis, Link, Topology
    >>> from halley.network.graph.topologies import build
    >>> ring = build(Axis("x", 4, Topology.RING, Link(10.0)))
    >>> args = ring, CollectiveKind.ALL_GATHER, [range(4)], Schedule("ring"), 40
    >>> both = concurrent([collective_execution(name, *args) for name in "ab"], ring)
    >>> [(item.alone, item.time) for item in both.outcomes]
    [(3.0, 6.0), (3.0, 6.0)]
    """
    ranks = len(groups[0])
    if any(len(group) != ranks for group in groups):
        sizes = ", ".join(sorted({str(len(group)) for group in groups}))
        raise BadInput(Fault(f"{name}, groups", "groups of one size", sizes))
    if isinstance(schedule.algorithm, Phased):
        loads = list(slot_loads(graph, groups, schedule.algorithm, size))
        return ConcurrentRun(name, tuple(_slot(graph, *pair) for pair in zip(loads, slots, strict=True)), start)
    chunks = schedule.chunks(kind, ranks)
    steps = side_by_side(schedule.steps(kind, ranks, line), groups, chunks)
    each = 0.0 if kind is Pattern.BARRIER else size / (chunks // ranks if kind is CollectiveKind.ALL_TO_ALL else chunks)
    laid = layout(graph, kind, steps, chunks * len(groups))
    rows = np.add.reduceat(laid.counts, laid.row_starts) * each if len(laid.row_starts) else np.zeros(0)
    ends = np.append(laid.step_starts, len(rows))
    stages = tuple(
        Stage(startup + float(laid.delays[step]), laid.row_edges[begin:end], rows[begin:end].astype(float))
        for step, (begin, end) in enumerate(pairwise(ends))
    )
    return ConcurrentRun(name, stages, start)


def _slot(graph: Graph, loads: Floats, time: float) -> Stage:
    """All phases of a slot as one stage that takes as long."""
    edges = np.flatnonzero(loads)
    stage = Stage(0.0, edges, loads[edges])
    return replace(stage, delay=max(time - stage.alone(graph), 0.0))


def message(
    name: str, graph: Graph, source: int, target: int, size: int, startup: float = 0.0, start: float = 0.0
) -> ConcurrentRun:
    """One message of ``size`` bytes from rank to rank. Raises BadInput: ranks that are not there or not joined."""
    strange = [rank for rank in (source, target) if not 0 <= rank < graph.ranks]
    if strange or source == target:
        got = f"{source} and {target}"
        raise BadInput(Fault(f"{name}, ends", f"two different ranks from 0 to {graph.ranks - 1}", got))
    matrix = routing_matrix(graph, [(source, target)])
    loads = matrix.loads(float(size))
    edges = np.flatnonzero(loads)
    posting = graph.overheads[edges[graph.tails[edges] == source]].max()
    return ConcurrentRun(name, (Stage(startup + float(posting + matrix.latency[0]), edges, loads[edges]),), start)


def concurrent(executions: Sequence[ConcurrentRun], graph: Graph, background: Floats | None = None) -> Contention:
    """Run all executions at once. ``background`` [edges]: shares of the links' bandwidths that other traffic takes throughout.

    Raises BadInput: nothing to run, two of one name, a start before 0, background that leaves a link nothing.
    """
    available = _available_shares(executions, graph, background)
    intervals = tuple(_run(executions, graph, available))
    loads = np.stack([item.loads(graph) for item in executions])
    busy = loads.sum(axis=0) / (graph.bandwidths * available)
    bound = max(float(busy.max(initial=0.0)), *(item.start + item.alone(graph) for item in executions))
    outcomes = []
    for index, item in enumerate(executions):
        mine = [span for span in intervals if index in span.rates]
        time = mine[-1].stop - item.start if mine else 0.0
        others = np.delete(loads, index, axis=0).any(axis=0)
        shared = tuple(np.flatnonzero((loads[index] > 0) & others).tolist())
        outcomes.append(Outcome(item.name, item.start, time, item.alone(graph), shared, _waits(index, mine)))
    return Contention(tuple(outcomes), intervals, bound)


def _waits(index: int, spans: Sequence[SharePeriod]) -> dict[int, float]:
    """By the link that held an execution up, the seconds that it lost there, most first."""
    waited: dict[int, float] = defaultdict(float)
    for span in spans:
        if index in span.held:
            waited[span.held[index]] += (span.stop - span.start) * (1 - span.rates[index])
    least = RELATIVE_ROUNDING * sum(
        span.stop - span.start for span in spans
    )  # two events at about one time leave a sliver between them
    ordered = sorted(waited.items(), key=lambda pair: -pair[1])
    return {edge: seconds for edge, seconds in ordered if seconds > least}


def _available_shares(executions: Sequence[ConcurrentRun], graph: Graph, background: Floats | None) -> Floats:
    """[edges] the share of each link that the background leaves."""
    faults = []
    names = [item.name for item in executions]
    if not executions:
        faults.append(Fault("concurrent executions", "at least one", "none"))
    for twice in sorted({name for name in names if names.count(name) > 1}):
        faults.append(Fault("concurrent executions", "a name of its own for each", f"{twice!r} twice"))
    for item in executions:
        if not 0 <= item.start < math.inf:
            faults.append(Fault(f"{item.name}, start", "a time of at least 0", f"{item.start:g} s"))
    available = np.ones(len(graph.edges)) if background is None else 1.0 - np.asarray(background, dtype=np.float64)
    if available.shape != (len(graph.edges),):
        faults.append(Fault("background", f"a share for each of {len(graph.edges)} links", f"shape {available.shape}"))
    elif not ((available > 0) & (available <= 1)).all():
        faults.append(Fault("background", "shares from 0 to below 1", f"{1 - available.min():g} to {1 - available.max():g}"))
    if faults:
        raise BadInput(faults)
    return available


@dataclass(slots=True)
class _Runner:
    """How far an execution is. ``left`` [s]: of the present delay, or of the present transfer at its own speed."""

    execution: ConcurrentRun
    graph: Graph
    left: float
    stage: int = -1
    moving: bool = False

    @property
    def done(self) -> bool:
        return self.stage >= len(self.execution.stages)

    @property
    def present(self) -> Stage:
        return self.execution.stages[self.stage]

    def advance(self) -> None:
        """Go on to the next part that takes time."""
        while not self.left and not self.done:
            if self.stage >= 0 and not self.moving:
                self.moving, self.left = True, self.present.alone(self.graph)
            else:
                self.stage, self.moving = self.stage + 1, False
                self.left = 0.0 if self.done else self.present.delay


def _run(executions: Sequence[ConcurrentRun], graph: Graph, available: Floats) -> Iterator[SharePeriod]:
    """From event to event: the intervals in which nothing changes."""
    runners = [_Runner(item, graph, item.start) for item in executions]
    wants = _Wants(graph)
    now = 0.0
    while True:
        for runner in runners:
            runner.advance()
        active = [index for index, runner in enumerate(runners) if not runner.done]
        if not active:
            return
        moving = [index for index in active if runners[index].moving]
        rates, held = dict.fromkeys(active, 1.0), {}
        if moving:
            shares, limits = fair_rates(np.stack([wants.of(runners[index].present) for index in moving]), available)
            rates |= dict(zip(moving, shares.tolist(), strict=True))
            held = {index: limit for index, limit in zip(moving, limits.tolist(), strict=True) if limit >= 0}
        ends = {index: runners[index].left / rates[index] for index in active}
        span = min(ends.values())
        started = {index: rates[index] for index in active if runners[index].stage >= 0}
        if started:
            yield SharePeriod(now, now + span, started, held)
        now += span
        for index in active:
            over = ends[index] <= span * (1 + RELATIVE_ROUNDING)
            runners[index].left = 0.0 if over else runners[index].left - span * rates[index]


class _Wants:
    """By stage, the share of each link's time [edges] that it takes at its own speed; computed once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[int, Floats] = {}

    def of(self, stage: Stage) -> Floats:
        found = self.known.get(id(stage))
        if found is None:
            found = np.zeros(len(self.graph.edges))
            np.add.at(found, stage.edges, stage.loads / self.graph.bandwidths[stage.edges])
            found = self.known[id(stage)] = found / found.max()
        return found


def fair_rates(demands: Floats, available: Floats) -> tuple[Floats, Integers]:
    """Max-min fair rates [n], each at most 1, and the link that holds each up [n], -1 where none does: all grow alike; when a
    link is full, those that want it stay as they are.

    ``demands`` [n, links]: the share of each link that a rate of 1 takes; ``available`` [links]: the share that there is.

    >>> rates, links = fair_rates(np.array([[1.0, 0.0], [1.0, 0.5], [0.0, 1.0]]), np.ones(2))
    >>> rates.tolist(), links.tolist()
    ([0.5, 0.5, 0.75], [0, 0, 1])
    """
    rates, limits = np.zeros(len(demands)), np.full(len(demands), -1)
    growing = np.ones(len(demands), dtype=bool)
    contested = np.flatnonzero(demands.sum(axis=0) > available)
    wanted, left = demands[:, contested], available[contested]
    level = 0.0
    while growing.any() and level < 1.0:
        load = wanted[growing].sum(axis=0)
        steps = np.divide(left, load, out=np.full_like(left, np.inf), where=load > 0)
        step = min(1.0 - level, float(steps.min(initial=np.inf)))
        level += step
        rates[growing] = level
        stopped = (wanted > 0) & (steps <= step * (1 + RELATIVE_ROUNDING)) & growing[:, None]
        for index in np.flatnonzero(stopped.any(axis=1)):
            limits[index] = contested[np.argmax(np.where(stopped[index], wanted[index], 0.0))]
        growing &= ~stopped.any(axis=1)
        left = np.maximum(left - step * load, 0.0)
    return rates, limits
