"""Phases: how the work, the transfers and the latencies of a subtree become its time (docs/model.md, "Time")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from halley.cost.estimate import Resource
from halley.cost.movement import HoldTransfer
from halley.cost.resources import Busy
from halley.formulas.numbers import Number, maximum, minimum, positive
from halley.formulas.timing import (
    in_flight_time,
    least_phase_time,
    longest,
    phase_time,
    port_phase_time,
    revisit_time,
    total,
    visits_time,
    waiting_revisits,
    waiting_time,
)


@dataclass(frozen=True, slots=True)
class RampResource:
    """A resource in the first fills or last drains of a phase: after which ``latency`` [s] it begins, how long it is busy
    (``time`` [s]), which ``step`` [s] of the work follows its last fill or comes before its first drain, and how many tensors it
    moves. ``there``: 1; 0 where an open number of buffers leaves it out, and all times are 0 then."""

    latency: Number
    time: Number
    step: Number
    there: Number
    tensors: int = 1

    def scaled(self, factor: Number) -> RampResource:
        """The same where the factor is 1; left out where it is 0."""
        return RampResource(factor * self.latency, factor * self.time, factor * self.step, factor * self.there, self.tensors)

    def beside(self, other: RampResource) -> RampResource:
        """Together with another tensor of the same Hold."""
        latency, there = maximum(self.latency, other.latency), maximum(self.there, other.there)
        return RampResource(latency, self.time + other.time, self.step, there, self.tensors + other.tensors)

    def inside(self, outer: RampResource) -> RampResource:
        """Together with transfers of a Hold further out: what follows the last of them all follows those further in."""
        latency, there = maximum(self.latency, outer.latency), maximum(self.there, outer.there)
        step = self.step + (1 - self.there) * outer.step
        return RampResource(latency, self.time + outer.time, step, there, self.tensors + outer.tensors)


@dataclass(frozen=True, slots=True)
class Ramp:
    """The first fills, or the last drains, of one entry of a phase. ``chains``: of each tensor, how long it takes [s] through all
    Holds; ``ports``: the resources that are busy meanwhile."""

    chains: Mapping[str, Number] = field(default_factory=dict)
    ports: Mapping[Resource, RampResource] = field(default_factory=dict)

    @property
    def time(self) -> Number:
        """All of it [s]: transfers run side by side, and share their ports."""
        shared = (port.latency + port.time for port in self.ports.values() if port.tensors > 1)
        return longest((*self.chains.values(), *shared))

    def scaled(self, factor: Number) -> Ramp:
        """The same where the factor is 1; nothing where it is 0."""
        if type(factor) is int:
            return self if factor else EMPTY
        chains = {name: factor * time for name, time in self.chains.items()}
        return Ramp(chains, {name: port.scaled(factor) for name, port in self.ports.items()})

    def joined(self, other: Ramp) -> Ramp:
        """Together with the ramp of a Hold further out, the same tensor's transfers one after the other."""
        chains, ports = dict(self.chains), dict(self.ports)
        for name, time in other.chains.items():
            chains[name] = chains.get(name, 0) + time
        for resource, port in other.ports.items():
            ports[resource] = ports[resource].inside(port) if resource in ports else port
        return Ramp(chains, ports)

    def after(
        self, transfers: Mapping[str, HoldTransfer], visit: Callable[[Resource], Number], there: Number, sized: bool
    ) -> Ramp:
        """With the transfers of one more Hold, which run side by side; where it is not ``there`` (0 instead of 1), without.
        ``visit``: what is done in one visit [s] beside what a resource does in it. Without ``sized`` transfers take only their
        latency."""
        if type(there) is int and not there:
            return self
        chains: dict[str, Number] = {}
        ports: dict[Resource, RampResource] = {}
        for name, transfer in transfers.items():
            if not transfer.round:
                continue
            chains[name] = there * (transfer.once if sized else transfer.latency)
            for resource, time in transfer.round.items():
                here = there * transfer.uses[resource]
                port = RampResource(transfer.latency, time if sized else 0, visit(resource), 1).scaled(here)
                ports[resource] = ports[resource].beside(port) if resource in ports else port
        return self.joined(Ramp(chains, ports))


EMPTY = Ramp()
"""Nothing to fill or to drain."""

SomeVisits = TypeVar("SomeVisits", "HoldVisits", "AccumulatorVisits")


def _scaled(visits: SomeVisits, factor: Number, *times: str) -> SomeVisits:
    """The same visits with these times multiplied, those of them that are not left out."""
    found = ((name, getattr(visits, name)) for name in times)
    return replace(visits, **{name: factor * time for name, time in found if time is not None})


@dataclass(frozen=True, slots=True)
class HoldVisits:
    """The visits of a ``group`` of tensors that share buffers: how long they take one after the other (``series`` [s]), how many
    there are in all (``entries``), in how many ``buffers``, how long the work inside them takes (``work`` [s]), and the ``lead``
    [s] of the first one on an entry of the phase, in which Holds further out are filled. ``before``: how much of the first one
    may pass before any work begins [s]; None where that is left out. ``runs_on``: first fills and last drains are beside
    other phases. ``run``: how many visits a run of a loop has whose last tile is smaller, and ``period``: how long such a run
    takes at least [s] where it follows another one."""

    group: tuple[str, ...]
    series: Number
    work: Number
    entries: Number
    buffers: Number
    lead: Number = 0
    before: Number | None = None
    runs_on: bool = False
    run: Number = 1
    period: Number = 0

    @property
    def least(self) -> Number:
        """Their least time [s]: with all buffers in use all the time."""
        return in_flight_time(self.series, self.buffers)

    def time(self, entries: Number) -> Number:
        """Their time [s] on all entries of a phase."""
        each, work = self.series / self.entries, self.work / self.entries
        visits = self.entries / entries
        once = visits_time(visits, self.buffers, each, work)
        if type(self.period) is not int:
            first = visits_time(minimum(self.run, visits), self.buffers, each, work)
            once = maximum(once, first + maximum(visits / self.run - 1, 0) * self.period)
        return entries * (self.lead + once)

    def scaled(self, factor: Number) -> HoldVisits:
        """The same with all times multiplied: by 0 or 1."""
        return _scaled(self, factor, "series", "work", "lead", "before", "period")


@dataclass(frozen=True, slots=True)
class AccumulatorVisits:
    """Visits to partial sums that wait for each other, as a sum comes back when it has left: those of a loop over a dim that is
    summed up, which comes ``again`` so often, with ``beside`` tiles inside it that do not wait for each other. ``moving``: how
    long their transfers take one after the other [s]; None where that is left out. The rest as of `HoldVisits`."""

    group: tuple[str, ...]
    series: Number
    entries: Number
    again: Number
    beside: Number
    lead: Number = 0
    before: Number | None = None
    moving: Number | None = None
    work: Number = 0
    runs_on: bool = False

    @property
    def least(self) -> int:
        """Their least time [s], whatever part of the loop lies in a phase."""
        return 0

    def time(self, entries: Number) -> Number:
        """Their time [s] on all entries of a phase. A loop may lie around the phase in part; one of a single step makes none."""
        turns, some = self.entries / entries / self.beside, positive(self.again - 1)
        return entries * (self.lead + some * revisit_time(turns, self.again, self.series / self.entries))

    def gaps(self, entries: Number) -> Number:
        """How long the work inside them takes and waits [s], on all entries of a phase: between two visits to the same sums there
        is only the work of the others."""
        assert self.moving is not None
        turns, each = self.entries / entries / self.beside, (self.moving - (self.beside - 1) * self.work) / self.entries
        return self.work + entries * waiting_revisits(turns, self.again) * maximum(each, 0)

    def scaled(self, factor: Number) -> AccumulatorVisits:
        """The same with all times multiplied: by 0 or 1."""
        return _scaled(self, factor, "series", "lead", "before", "moving", "work")


@dataclass(frozen=True, slots=True)
class HoldFills:
    """Fills of a Hold with so many ``buffers``: how long they keep each resource ``busy`` [s] in all, each after a ``latency``
    [s]. ``there``: 1; 0 where there are none, or not with each visit of the Holds around."""

    buffers: Number
    latency: Number
    busy: Busy
    there: Number = 1

    def scaled(self, factor: Number) -> HoldFills:
        """The same where the factor is 1; left out where it is 0."""
        return replace(self, there=factor * self.there)


@dataclass(frozen=True, slots=True)
class HandOver:
    """Children that hand over: what each takes in all [s], the tensors that it touches, and in how many rounds."""

    times: tuple[Number, ...]
    touched: tuple[frozenset[str], ...]
    rounds: Number

    def time_in_use(self, names: Iterable[str]) -> Number:
        """How long buffers of these tensors are in use [s], all rounds one after the other: from the first child that touches
        one of them to the last."""
        users = [index for index, touched in enumerate(self.touched) if not touched.isdisjoint(names)]
        return total(self.times[users[0] : users[-1] + 1]) if users else 0


@dataclass(frozen=True, slots=True)
class SubtreeCost:
    """Of a subtree: ``work`` [s], ``busy`` [s] by resource, ramps that the enclosing phase pays on each entry; ``steps``:
    barriers in the work, None where transfers run ahead. ``hand_over``: of children in it that hand over. ``visits``: those of
    tensors that share buffers, of which no more are under way at once than there are buffers."""

    work: Number = 0
    busy: Busy = field(default_factory=dict)
    up: Ramp = EMPTY
    down: Ramp = EMPTY
    steps: Number | None = None
    hand_over: HandOver | None = None
    visits: tuple[HoldVisits | AccumulatorVisits, ...] = ()
    drains: Busy = field(default_factory=dict)
    fetches: tuple[HoldFills, ...] = ()

    def phase(self, several: Number) -> SubtreeCost:
        """What the phase around it has of its ramps and rounds: all where ``several`` is 1, nothing where it is 0."""
        hand_over = self.hand_over
        if hand_over is not None:
            hand_over = replace(hand_over, times=tuple(several * time for time in hand_over.times))
        drains = {name: several * time for name, time in self.drains.items()}
        return replace(self, up=self.up.scaled(several), down=self.down.scaled(several), hand_over=hand_over, drains=drains)

    @property
    def steady(self) -> Number:
        """How long all of it takes [s] once its buffers are full: the slower of its work and its busiest resource. What visits
        inside wait for runs ahead of the visits around them."""
        return longest((self.work, *self.busy.values()))

    def visit(self, entries: Number) -> Callable[[Resource], Number]:
        """What is left of the work of one of so many visits [s] while a resource is not busy."""
        work = self.work if self.hand_over is None else total(self.hand_over.times)
        return lambda resource: maximum(work - self.busy.get(resource, 0), 0) / entries

    @property
    def in_flight(self) -> Number:
        """The longest of the visits [s], at least."""
        return longest(visits.least for visits in self.visits)

    @property
    def waiting(self) -> Number:
        """What the ends of the first and last round add to the ramp [s] of an entry, if this is a phase: as long as that is at
        work on one round alone, its busiest child, or resource that is in no ramp, is not."""
        if self.hand_over is None:
            return 0
        beside = (time for name, time in self.busy.items() if name not in self.up.ports and name not in self.down.ports)
        return waiting_time(total(self.hand_over.times), longest((self.work, *beside)), self.hand_over.rounds)

    def ends(self) -> dict[Resource, tuple[Number, Number]]:
        """What each resource of the ramps waits for on an entry [s], before its first request and after its last one: for
        transfers, and for the work of one visit."""
        up, down = self.up.time, self.down.time
        result: dict[Resource, tuple[Number, Number]] = {}
        for resource in dict.fromkeys((*self.up.ports, *self.down.ports)):
            first, last = self.up.ports.get(resource), self.down.ports.get(resource)
            before, step, there = (first.latency + (1 - first.there) * up, first.step, first.there) if first else (up, 0, 0)
            after = down
            if last:
                after, step = (1 - last.there) * down, step + (1 - there) * last.step
            result[resource] = before + after, step
        return result

    def time(self, entries: Number, least: bool = False) -> Number:
        """All of it as a phase [s]."""
        up, down = self.up.time + self.waiting, self.down.time
        if self.steps is not None:  # the work has waited for transfers already, all but those of the ramps
            return maximum(phase_time(entries, up, down, self.work, ()), longest(self.busy.values()))
        if least:
            return least_phase_time(entries, up, down, self.work, (*self.busy.values(), self.in_flight))
        ends = self.ends()
        result = phase_time(entries, up, down, self.work, [time for name, time in self.busy.items() if name not in ends])
        for name, (transfers, step) in ends.items():
            result = maximum(result, port_phase_time(entries, transfers + step, self.busy.get(name, 0)))
        for name in (name for name in self.drains if name in self.up.ports and name in self.down.ports):
            port = self.down.ports[name]
            waits = port.there * self.up.time + port.latency + port.step
            result = maximum(result, port_phase_time(entries, waits, self.drains[name]))
        for visits in self.visits:
            last = down if self.down.chains.keys().isdisjoint(visits.group) else 0
            time = visits.least if visits.runs_on else visits.time(entries)
            if visits.before is not None and not visits.runs_on:
                time = time + entries * maximum(self.up.time - visits.lead - visits.before, 0)
            result = maximum(result, port_phase_time(entries, last, maximum(visits.least, time)))
            if isinstance(visits, AccumulatorVisits) and visits.moving is not None and not visits.runs_on:
                result = maximum(result, port_phase_time(entries, up + last, visits.gaps(entries)))
        return result
