"""Breakdown of an estimate: its time by cause, exactly, and its energy by component (docs/model.md, "Anatomy").

The times of the nodes are those of the estimate; this module only attributes them to causes, so the parts add up by construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from halley.cost.estimate import Estimate, Resource
from halley.cost.events import LinkTraffic, Path, Work
from halley.formulas.numbers import Number
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, children

Seconds = Mapping[Resource, float]


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """Times [s] that add up to ``time``.

    ``compute``: busy engines, by engine. ``ramps``: first fills and last drains of each phase. ``serial``: fills and drains of
    Holds with one buffer, which the work does not overlap. ``stages``: fill and drain of pipelines of stages. ``latency``: time
    by which the visits of Holds, limited by the number of buffers in flight, exceed work and resources of their phase.
    ``bandwidth``: by resource, the time by which the busiest one exceeds the work of its phase. ``collective``: by axis, the
    exposed time of collectives.
    """

    compute: Seconds = field(default_factory=dict)
    ramps: float = 0.0
    serial: float = 0.0
    stages: float = 0.0
    latency: float = 0.0
    bandwidth: Seconds = field(default_factory=dict)
    collective: Seconds = field(default_factory=dict)

    @property
    def computing(self) -> float:
        return sum(self.compute.values())

    @property
    def compulsory(self) -> float:
        """Stalls that more bandwidth shortens but cannot remove: fills and drains that no work overlaps."""
        return self.ramps + self.serial + self.stages

    @property
    def stalling(self) -> float:
        """Bandwidth stall over all resources."""
        return sum(self.bandwidth.values())

    @property
    def exposed(self) -> float:
        """Exposed collective time over all axes."""
        return sum(self.collective.values())

    @property
    def time(self) -> float:
        return self.computing + self.compulsory + self.latency + self.stalling + self.exposed

    def __add__(self, other: TimeBreakdown) -> TimeBreakdown:
        return TimeBreakdown(
            _sum(self.compute, other.compute),
            self.ramps + other.ramps,
            self.serial + other.serial,
            self.stages + other.stages,
            self.latency + other.latency,
            _sum(self.bandwidth, other.bandwidth),
            _sum(self.collective, other.collective),
        )

    def less(self, hidden: float) -> TimeBreakdown:
        """The breakdown without ``hidden`` seconds of other causes than compute: taken first from collectives, then from
        bandwidth stalls, latency and compulsory stalls, in proportion within each kind."""
        collective = min(hidden, self.exposed)
        bandwidth = min(hidden - collective, self.stalling)
        latency = min(hidden - collective - bandwidth, self.latency)
        compulsory = min(hidden - collective - bandwidth - latency, self.compulsory)
        kept = 1 - compulsory / self.compulsory if self.compulsory else 0.0
        return TimeBreakdown(
            self.compute,
            self.ramps * kept,
            self.serial * kept,
            self.stages * kept,
            self.latency - latency,
            _scaled(self.bandwidth, self.stalling - bandwidth),
            _scaled(self.collective, self.exposed - collective),
        )


@dataclass(frozen=True, slots=True)
class Anatomy:
    """``total``: breakdown of the estimate's time [s]. ``phases``: that of each phase by path, including the phases inside it; a
    phase that overlaps others may take longer than its part of the total. ``energy`` [J] by component."""

    total: TimeBreakdown
    phases: Mapping[Path, TimeBreakdown]
    energy: Mapping[str, float]


def anatomy(tree: Node, estimate: Estimate) -> Anatomy:
    """The breakdown of an estimate of one mapping (not of a batch).

    The time of a phase is its ramps, the work inside, the time by which its busiest resource exceeds that work, and the time by
    which visits of Holds exceed both. If the busiest resource is an engine or an axis, the excess counts as compute or
    collective. Children of `Overlap` share engines: time counts as compute while any of them computes, which hides collectives
    first, then the other causes. Of children on disjoint members, the longest counts.
    """
    found = _Anatomist(estimate)
    total = found.phase((), tree)
    return Anatomy(total, found.phases, {name: float(energy) for name, energy in estimate.energy_by.items()})


class _Anatomist:
    def __init__(self, estimate: Estimate) -> None:
        self.nodes = estimate.nodes
        self.phases: dict[Path, TimeBreakdown] = {}
        self.leaves: dict[Path, TimeBreakdown] = {}
        for event in estimate.events:
            if isinstance(event, Work):
                part = TimeBreakdown(compute={("engine", event.engine): float(event.time)})
            elif isinstance(event, LinkTraffic):
                part = TimeBreakdown(collective={("axis", event.level, event.axis): float(event.time)})
            else:
                continue
            self.leaves[event.path] = self.leaves.get(event.path, TimeBreakdown()) + part

    def phase(self, path: Path, node: Node, ahead: bool = False) -> TimeBreakdown:
        """The breakdown of a node as a phase: ramps, work, and the excess of its busiest resource. ``ahead``: without
        barriers."""
        cost = self.nodes[path]
        time = cost.barriers.ahead if ahead and cost.barriers is not None else cost.time
        account = cost if ahead else cost.limiting
        stalled = account is not cost
        ramps = float(cost.entries) * (float(account.ramp_up) + float(account.ramp_down))
        parts = self.work(path, node, stalled) + TimeBreakdown(ramps=ramps)
        excess = float(time) - ramps - float(account.work)
        latency = 0.0 if stalled else min(max(excess, 0.0), float(cost.latency))
        parts = parts + TimeBreakdown(latency=latency)
        if excess > latency and cost.busy:
            parts = parts + _waiting(busiest(cost.busy), excess - latency)
        self.phases.setdefault(path, parts)
        return parts

    def work(self, path: Path, node: Node, stalled: bool) -> TimeBreakdown:
        """The breakdown of a node's work, without costs that the enclosing phase pays; ``stalled``: of the work between barriers,
        with the stalls of their steps."""
        inside = (*path, 0)
        match node:
            case Temporal() | Spatial():
                return self.work(inside, node.body, stalled)
            case Hold() if node.buffers > 1:
                return self._between_barriers(path, node) if stalled else self.work(inside, node.body, False)
            case Hold():
                serial = float(self.nodes[path].work) - float(self.nodes[inside].time)
                return self.phase(inside, node.body) + TimeBreakdown(serial=max(serial, 0.0))
            case Sequence():
                found = [self.phase(at, child) for at, child in _inner(path, node)]
                if node.prefetch and not stalled:
                    found = [self.phase(at, child, ahead=True) for at, child in _inner(path, node)]
                return sum(found, TimeBreakdown())
            case Overlap():
                return self._overlapped(path, node) + (TimeBreakdown() if stalled else self._stages(path, node))
            case Parallel():
                return self._longest(path, node)
            case Pipeline():
                return self._longest(path, node) + self._stages(path, node)
            case Compute() | Collective():
                return self.leaves.get(path, TimeBreakdown())

    def _between_barriers(self, path: Path, node: Hold) -> TimeBreakdown:
        """The breakdown of the steps in a Hold's body, and of their stalls for its transfers."""
        inside, cost = (*path, 0), self.nodes[path]
        inner, between = self.nodes[inside], cost.barriers
        if inner.barriers is None:  # the body is one step
            base, parts = inner.time, self.phase(inside, node.body)
        else:
            base, parts = inner.barriers.work, self.work(inside, node.body, True)
        stall = 0.0 if between is None else float(between.work) - float(base)
        moved = {resource: float(busy) - float(inner.busy.get(resource, 0)) for resource, busy in cost.busy.items()}
        return parts + (_waiting(busiest(moved), stall) if stall > 0 else TimeBreakdown())

    def _stages(self, path: Path, node: Overlap | Pipeline) -> TimeBreakdown:
        """Time by which a node's work exceeds its longest child: waits for the other children."""
        slowest = max(float(self.nodes[at].time) for at, _ in _inner(path, node))
        return TimeBreakdown(stages=max(float(self.nodes[path].work) - slowest, 0.0))

    def _overlapped(self, path: Path, node: Overlap) -> TimeBreakdown:
        """The breakdown of the longest child, with compute of another child replacing the causes that it hides."""
        found = [(float(self.nodes[at].time), self.phase(at, child)) for at, child in _inner(path, node)]
        _, longest = max(found, key=lambda item: item[0])
        computing = max((parts for _, parts in found), key=lambda parts: parts.computing)
        if computing.computing <= longest.computing:
            return longest
        rest = longest.less(computing.computing - longest.computing)
        return replace(rest, compute=computing.compute)

    def _longest(self, path: Path, node: Parallel | Pipeline) -> TimeBreakdown:
        found = [(float(self.nodes[at].time), self.phase(at, child)) for at, child in _inner(path, node)]
        return max(found, key=lambda item: item[0])[1]


def busiest(busy: Mapping[Resource, Number]) -> Resource:
    """The busiest resource; of several equal ones, the first by name.

    >>> busiest({("read", "dram"): 3.0, ("engine", "mxu"): 5.0})
    ('engine', 'mxu')
    """
    return max(sorted(busy), key=lambda resource: float(busy[resource]))


def _waiting(resource: Resource, time: float) -> TimeBreakdown:
    """The breakdown of time that a resource adds to a phase."""
    match resource[0]:
        case "engine":
            return TimeBreakdown(compute={resource: time})
        case "axis":
            return TimeBreakdown(collective={resource: time})
        case _:
            return TimeBreakdown(bandwidth={resource: time})


def _inner(path: Path, node: Node) -> Iterator[tuple[Path, Node]]:
    for index, child in enumerate(children(node)):
        yield (*path, index), child


def _sum(first: Seconds, second: Seconds) -> Seconds:
    return {resource: first.get(resource, 0.0) + second.get(resource, 0.0) for resource in {**first, **second}}


def _scaled(times: Seconds, total: float) -> Seconds:
    """The times scaled so that they add up to the total."""
    whole = sum(times.values())
    return {resource: time * total / whole for resource, time in times.items()} if whole else {}
