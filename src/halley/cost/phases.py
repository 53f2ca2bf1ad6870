"""Phases: the time of a subtree from its work, transfers and latencies (docs/model.md, "Time")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """A resource in the first fills or last drains of a phase: the ``latency`` [s] before it starts, its busy ``time`` [s], the
    ``step`` [s] of work after its last fill or before its first drain, and the number of ``tensors`` that it moves. ``there``: 1;
    0 if an open number of buffers omits the Hold, and all times are then 0."""

    latency: Number
    time: Number
    step: Number
    there: Number
    tensors: int = 1

    def scaled(self, factor: Number) -> RampResource:
        """The same for a factor of 1; omitted for 0."""
        return RampResource(factor * self.latency, factor * self.time, factor * self.step, factor * self.there, self.tensors)

    def beside(self, other: RampResource) -> RampResource:
        """Combined with another tensor of the same Hold."""
        latency, there = maximum(self.latency, other.latency), maximum(self.there, other.there)
        return RampResource(latency, self.time + other.time, self.step, there, self.tensors + other.tensors)

    def inside(self, outer: RampResource) -> RampResource:
        """Combined with transfers of an outer Hold; the work after the last transfer is that of the inner Hold."""
        latency, there = maximum(self.latency, outer.latency), maximum(self.there, outer.there)
        step = self.step + (1 - self.there) * outer.step
        return RampResource(latency, self.time + outer.time, step, there, self.tensors + outer.tensors)


@dataclass(frozen=True, slots=True)
class Ramp:
    """The first fills, or the last drains, of one entry of a phase. ``chains``: by tensor, the time [s] of its transfers through
    all Holds; ``ports``: the resources that these transfers use."""

    chains: Mapping[str, Number] = field(default_factory=dict)
    ports: Mapping[Resource, RampResource] = field(default_factory=dict)

    @property
    def time(self) -> Number:
        """Time [s]: transfers are concurrent, and share their ports."""
        shared = (port.latency + port.time for port in self.ports.values() if port.tensors > 1)
        return longest((*self.chains.values(), *shared))

    def scaled(self, factor: Number) -> Ramp:
        """The same for a factor of 1; empty for 0."""
        if type(factor) is int:
            return self if factor else EMPTY
        chains = {name: factor * time for name, time in self.chains.items()}
        return Ramp(chains, {name: port.scaled(factor) for name, port in self.ports.items()})

    def joined(self, other: Ramp) -> Ramp:
        """Combined with the ramp of an outer Hold; transfers of the same tensor are sequential."""
        chains, ports = dict(self.chains), dict(self.ports)
        for name, time in other.chains.items():
            chains[name] = chains.get(name, 0) + time
        for resource, port in other.ports.items():
            ports[resource] = ports[resource].inside(port) if resource in ports else port
        return Ramp(chains, ports)

    def after(
        self, transfers: Mapping[str, HoldTransfer], visit: Callable[[Resource], Number], there: Number, sized: bool
    ) -> Ramp:
        """The ramp extended by the concurrent transfers of one more Hold, if that is ``there`` (1; else 0). ``visit``: the work
        [s] of one visit beyond a resource's busy time in it. Without ``sized``, transfers take only their latency."""
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
                # a DMA engine is occupied during the latency
                latency, busy = (0, transfer.latency + time) if resource[0] == "dma" else (transfer.latency, time)
                port = RampResource(latency, busy if sized else 0, visit(resource), 1).scaled(here)
                ports[resource] = ports[resource].beside(port) if resource in ports else port
        return self.joined(Ramp(chains, ports))


EMPTY = Ramp()
"""Nothing to fill or to drain."""


@dataclass(frozen=True, slots=True)
class Ramps:
    """First fills (``up``) and last drains (``down``) of one entry of a phase."""

    up: Ramp = EMPTY
    down: Ramp = EMPTY

    def scaled(self, factor: Number) -> Ramps:
        """The same for a factor of 1; empty for 0."""
        return Ramps(self.up.scaled(factor), self.down.scaled(factor))

    def joined(self, other: Ramps) -> Ramps:
        """Combined with the ramps of an outer Hold."""
        return Ramps(self.up.joined(other.up), self.down.joined(other.down))


NO_RAMPS = Ramps()
"""Nothing to fill and nothing to drain."""

SomeVisits = TypeVar("SomeVisits", "HoldVisits", "AccumulatorVisits")


def _scaled(visits: SomeVisits, factor: Number, *times: str) -> SomeVisits:
    """The same visits with these times multiplied, except for those that are None."""
    found = ((name, getattr(visits, name)) for name in times)
    return replace(visits, **{name: factor * time for name, time in found if time is not None})


@dataclass(frozen=True, slots=True)
class HoldVisits:
    """The visits of a ``group`` of tensors that share buffers: the sum of their times (``series`` [s]), their total number
    (``entries``), the number of ``buffers``, and the ``work`` [s] inside them. ``lead``, ``trail`` [s]: before the first and
    after the last one on an entry of the phase, while outer Holds of these tensors are filled and drained. ``before``: the part
    of the first visit [s] before any work starts; None if it is not computed. ``runs_on``: first fills and last drains overlap
    other phases. ``run``: the number of visits in a run of a loop with a smaller last tile; ``period``: least time [s] of such a
    run after another one."""

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
    trail: Number = 0

    @property
    def least(self) -> Number:
        """Least time [s], with all buffers always in use."""
        return in_flight_time(self.series, self.buffers)

    def time(self, entries: Number) -> Number:
        """Time [s] over all entries of a phase."""
        each, work = self.series / self.entries, self.work / self.entries
        visits = self.entries / entries
        once = visits_time(visits, self.buffers, each, work)
        if type(self.period) is not int:
            first = visits_time(minimum(self.run, visits), self.buffers, each, work)
            once = maximum(once, first + maximum(visits / self.run - 1, 0) * self.period)
        return entries * (self.lead + once)

    def scaled(self, factor: Number) -> HoldVisits:
        """The same with all times multiplied: by 0 or 1."""
        return _scaled(self, factor, "series", "work", "lead", "trail", "before", "period")


@dataclass(frozen=True, slots=True)
class AccumulatorVisits:
    """Repeated visits to partial sums, in a loop over a reduced dim: a visit waits for the drain of the previous visit to the
    same sums. ``again``: visits to each sum; ``beside``: number of tiles inside the loop, which do not wait for each other.
    ``moving``: the sum of the transfer times [s]; None if it is not computed. Other fields: see `HoldVisits`."""

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
    trail: Number = 0

    @property
    def least(self) -> int:
        """Least time [s] for any part of the loop in a phase."""
        return 0

    def time(self, entries: Number) -> Number:
        """Time [s] over all entries of a phase. A part of the loop may be outside the phase; a loop of one step has no
        revisits."""
        turns, some = self.entries / entries / self.beside, positive(self.again - 1)
        return entries * (self.lead + some * revisit_time(turns, self.again, self.series / self.entries))

    def gaps(self, entries: Number) -> Number:
        """Time [s] of the work including its waits, over all entries of a phase: between two visits to the same sums there is
        only the work of the other tiles."""
        assert self.moving is not None
        turns, each = self.entries / entries / self.beside, (self.moving - (self.beside - 1) * self.work) / self.entries
        return self.work + entries * waiting_revisits(turns, self.again) * maximum(each, 0)

    def scaled(self, factor: Number) -> AccumulatorVisits:
        """The same with all times multiplied: by 0 or 1."""
        return _scaled(self, factor, "series", "lead", "trail", "before", "moving", "work")


@dataclass(frozen=True, slots=True)
class HoldMoves:
    """Fills of a ``tensor`` into a Hold with a number of ``buffers``, or drains: their total ``busy`` times [s] by resource, and
    the ``latency`` [s] of each. ``there``: 1; 0 if there are none. ``again``: their number for each visit of the outer Hold."""

    tensor: str
    buffers: Number
    latency: Number
    busy: Busy
    there: Number = 1
    again: Number = 1

    def scaled(self, factor: Number) -> HoldMoves:
        """The same for a factor of 1; omitted for 0."""
        return replace(self, there=factor * self.there)

    @property
    def single(self) -> Number:
        """1 if there is one fill for each visit of the outer Hold; else 0."""
        return 1 - positive(self.again - 1)

    @property
    def first(self) -> HoldMoves:
        """The first fill of each visit of the outer Hold."""
        return replace(self, busy={name: time / self.again for name, time in self.busy.items()}, again=1)


@dataclass(frozen=True, slots=True)
class ReturningSums:
    """Partial sums over ``dims`` that are loaded on all visits but the first. ``once``: busy time [s] by resource of one load of
    all of them. ``there``: 1; 0 if an open number of buffers omits the Hold."""

    dims: tuple[str, ...]
    once: Busy
    there: Number = 1


@dataclass(frozen=True, slots=True)
class HandOver:
    """Children that hand over: the total time [s] of each, the tensors that each accesses, and the number of rounds."""

    times: tuple[Number, ...]
    touched: tuple[frozenset[str], ...]
    rounds: Number

    def scaled(self, factor: Number) -> HandOver:
        """The same with all times multiplied: by 0 or 1."""
        return replace(self, times=tuple(factor * time for time in self.times))

    def time_in_use(self, names: Iterable[str]) -> Number:
        """Time [s] for which buffers of these tensors are in use, summed over all rounds: from the first child that accesses one
        of them to the last."""
        users = [index for index, touched in enumerate(self.touched) if not touched.isdisjoint(names)]
        return total(self.times[users[0] : users[-1] + 1]) if users else 0


@dataclass(frozen=True, slots=True)
class Barriers:
    """A subtree whose double buffers swap at barriers (docs/model.md, "Lockstep memories"): the number of ``steps`` between
    them, the ``work`` [s] of all steps with the stalls for their transfers, the ``ramps`` that no step hides, and the children
    that ``hand_over``. ``some``: 1; 0 if open numbers of buffers leave no barrier. The steps are then 0, and all times are at
    most those of the subtree without barriers."""

    work: Number
    steps: Number
    ramps: Ramps = NO_RAMPS
    hand_over: HandOver | None = None
    some: Number = 1

    def scaled(self, factor: Number) -> Barriers:
        """The same for a factor of 1; without barriers for 0."""
        hand_over = None if self.hand_over is None else self.hand_over.scaled(factor)
        return Barriers(factor * self.work, factor * self.steps, self.ramps.scaled(factor), hand_over, factor * self.some)

    def waiting(self, busy: Busy) -> Number:
        """Pipeline fill and drain [s] of children that hand over, per entry of the phase (see `SubtreeCost`)."""
        return _waiting(self.hand_over, self.work, busy, self.ramps)

    def time(self, entries: Number, busy: Busy) -> Number:
        """Time [s] of the subtree as a phase. The work includes all stalls for transfers, except for the ramps."""
        return phase_time(entries, self.ramps.up.time + self.waiting(busy), self.ramps.down.time, self.work, ())


def _waiting(hand_over: HandOver | None, work: Number, busy: Busy, ramps: Ramps) -> Number:
    """Time [s] per entry of a phase in which the busiest child, or the busiest resource outside the ramps, is idle in the first
    and last round."""
    if hand_over is None:
        return 0
    beside = (time for name, time in busy.items() if name not in ramps.up.ports and name not in ramps.down.ports)
    return waiting_time(total(hand_over.times), longest((work, *beside)), hand_over.rounds)


@dataclass(frozen=True, slots=True)
class SubtreeCost:
    """Cost of a subtree: ``work`` [s], ``busy`` [s] by resource, and the ramps ``up`` and ``down`` that the enclosing phase pays
    on each entry. ``barriers``: the same where double buffers swap at barriers, else None. ``hand_over``: its children that hand
    over. ``visits``: visits of its Holds, limited by the number of buffers in flight. ``drains``: busy time [s] of drains by
    resource. ``fetches``, ``stores``: fills and drains of its Holds. ``early``: resources of prefetched ramps, which need not
    wait for others. ``ahead``: by resource, the time [s] of the transfers that may run ahead of the work, as far as there are
    buffers. ``apart``: least time [s] of iterations of a loop that differ, one after the other. ``returning``: partial sums
    that are loaded again."""

    work: Number = 0
    busy: Busy = field(default_factory=dict)
    up: Ramp = EMPTY
    down: Ramp = EMPTY
    barriers: Barriers | None = None
    hand_over: HandOver | None = None
    visits: tuple[HoldVisits | AccumulatorVisits, ...] = ()
    drains: Busy = field(default_factory=dict)
    fetches: tuple[HoldMoves, ...] = ()
    early: frozenset[Resource] = frozenset()
    ahead: Busy = field(default_factory=dict)
    apart: Number = 0
    stores: tuple[HoldMoves, ...] = ()
    returning: tuple[ReturningSums, ...] = ()

    def phase(self, several: Number) -> SubtreeCost:
        """The cost with ramps and rounds paid by the enclosing phase if ``several`` is 1, and without them if it is 0."""
        hand_over = None if self.hand_over is None else self.hand_over.scaled(several)
        drains = {name: several * time for name, time in self.drains.items()}
        return replace(self, up=self.up.scaled(several), down=self.down.scaled(several), hand_over=hand_over, drains=drains)

    def not_prefetched(self, ramps: Ramps, barriers: Ramps) -> SubtreeCost:
        """The cost with its prefetched ``ramps``, also those between ``barriers``, paid by the enclosing phase."""
        between = self.barriers
        if between is not None:
            between = replace(between, ramps=between.ramps.joined(barriers))
        visits = tuple(replace(own, runs_on=False) for own in self.visits)
        return replace(self, up=self.up.joined(ramps.up), down=self.down.joined(ramps.down), visits=visits, barriers=between)

    def part(self, work: Number, busy: Mapping[Resource, Number], entries: Number) -> Number:
        """Time [s] of some iterations of a loop with this ``work`` and ``busy`` times, without the transfers that run ahead."""
        return longest((work, *(time - entries * self.ahead.get(name, 0) for name, time in busy.items())))

    def by_iterations(self, dim: str, first: SubtreeCost, entries: Number, trips: Number) -> SubtreeCost:
        """The cost of a loop of ``trips`` over a reduced dim, entered ``entries`` times. The ``first`` iteration loads no partial
        sums, and the last one may be smaller. Where different resources limit them, they take longer than all iterations
        together: transfers run ahead into the iteration before only as far as there are buffers."""
        apart, between = self.apart, maximum(trips - 2, 0)
        others = {name: maximum(time - first.busy.get(name, 0), 0) for name, time in self.busy.items()}
        begin, left = self.part(first.work, first.busy, entries), maximum(self.work - first.work, 0)
        for sums in self.returning:
            if dim in sums.dims:
                work = between * first.work
                busy = {name: between * (first.busy.get(name, 0) + sums.once.get(name, 0)) for name in others}
                last = {name: maximum(time - busy[name], 0) for name, time in others.items()}
                end = self.part(maximum(left - work, 0), last, entries)
                rest = maximum(self.part(left, others, entries), self.part(work, busy, entries) + end)
                apart = maximum(apart, positive(trips - 1) * sums.there * (begin + rest))
        return replace(self, apart=apart)

    @property
    def steady(self) -> Number:
        """Time [s] in steady state, with full buffers: the maximum of its work and its busiest resource."""
        return longest((self.work, *self.busy.values()))

    def steady_without(self, uses: Sequence[Mapping[Resource, Number]]) -> Number:
        """The same without the busy times of the resources in ``uses`` (1; 0 for those that an open number of buffers omits)."""
        result: Number = self.work
        for name, time in self.busy.items():
            used = longest(each[name] for each in uses if name in each)
            result = maximum(result, (1 - used) * time)
        return result

    def visit(self, entries: Number) -> Callable[[Resource], Number]:
        """For one of ``entries`` visits: the work [s] during which a resource is not busy, as a function of the resource."""
        work = self.work if self.hand_over is None else total(self.hand_over.times)
        return lambda resource: maximum(work - self.busy.get(resource, 0), 0) / entries

    @property
    def in_flight(self) -> Number:
        """Least time [s] of the slowest visits."""
        return longest(visits.least for visits in self.visits)

    @property
    def waiting(self) -> Number:
        """Pipeline fill and drain [s] of children that hand over, per entry of the phase."""
        return _waiting(self.hand_over, self.work, self.busy, Ramps(self.up, self.down))

    def ends(self) -> dict[Resource, tuple[Number, Number]]:
        """Waits [s] of each resource of the ramps in one entry, before its first and after its last request: (for transfers, for
        the work of one visit)."""
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

    def step_beside_drains(self, resource: Resource, step: Number, entries: Number) -> Number:
        """The part of a ``step`` [s] of a resource of the ramps in which it waits for the work after its last fill. Drains of an
        earlier visit may run then, less the latency of the last drain, which comes after that work. A rough bound assumes several
        visits. Resources that an open number of buffers omits count as if they were not there."""
        if resource not in self.up.ports or resource not in self.down.ports:
            return step
        there, last = self.up.ports[resource].there, self.down.ports[resource]
        drained: Number = 2 * last.time
        if resource in self.drains:
            found = self.drains[resource]
            drained = minimum(found / entries + (1 - positive(found)) * drained, drained)
        return maximum(step + there * (last.time + last.latency) - there * drained, 0)

    def time(self, entries: Number, least: bool = False) -> Number:
        """Time [s] of the subtree as a phase. Barriers only delay transfers that could run ahead."""
        ahead = self._time_ahead(entries, least)
        return ahead if self.barriers is None else maximum(ahead, self.barriers.time(entries, self.busy))

    def _time_ahead(self, entries: Number, least: bool) -> Number:
        """The same without barriers: transfers run ahead as far as there are buffers."""
        up, down = self.up.time + self.waiting, self.down.time
        if least:
            return least_phase_time(entries, up, down, self.work, (*self.busy.values(), self.in_flight))
        ends = self.ends()
        beside = [time for name, time in self.busy.items() if name not in ends and name not in self.early]
        work = self.work if type(self.apart) is int else maximum(self.work, self.apart)
        result = maximum(phase_time(entries, up, down, work, beside), longest(self.busy[name] for name in self.early))
        for name, (transfers, step) in ends.items():
            waits = transfers + self.step_beside_drains(name, step, entries)
            result = maximum(result, port_phase_time(entries, waits, self.busy.get(name, 0)))
        for name in (name for name in self.drains if name in self.up.ports and name in self.down.ports):
            fills, port = self.up.ports[name].there, self.down.ports[name]  # fills: 0 if open numbers of buffers omit them all
            waits = port.there * self.up.time + port.latency + port.step
            result = maximum(result, port_phase_time(entries, fills * waits, fills * self.drains[name]))
        for visits in self.visits:
            last = down if self.down.chains.keys().isdisjoint(visits.group) else visits.trail
            time = visits.least if visits.runs_on else visits.time(entries)
            if visits.before is not None and not visits.runs_on:
                time = time + entries * maximum(self.up.time - visits.lead - visits.before, 0)
            result = maximum(result, port_phase_time(entries, last, maximum(visits.least, time)))
            if isinstance(visits, AccumulatorVisits) and visits.moving is not None and not visits.runs_on:
                result = maximum(result, port_phase_time(entries, up + last, visits.gaps(entries)))
        return result
