"""Least times of the visits of Holds, from waits for buffers, ports and partial sums (docs/model.md, "Time")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from halley.cost.counting import Counter, CountingScope
from halley.cost.estimate import Moving
from halley.cost.movement import HoldTransfer
from halley.cost.phases import AccumulatorVisits, HoldMoves, HoldVisits, SubtreeCost
from halley.cost.resources import Busy, added
from halley.formulas.numbers import Number, ceil_div, floor_div, maximum, minimum, positive
from halley.formulas.terms import Term
from halley.formulas.timing import longest, ragged_time, total
from halley.ir.mapping import Hold


def is_none(number: Number) -> bool:
    """Whether a number is a scalar 0, not an array or a term."""
    return isinstance(number, int | float) and not number


def single_buffer(buffers: Number) -> Number:
    """1 for a Hold of one buffer, else 0."""
    return minimum(buffers, 1) - several_buffers(buffers)


def several_buffers(buffers: Number) -> Number:
    """1 for a Hold of two or more buffers; 0 for one buffer, and for none, which omits the Hold."""
    return minimum(maximum(buffers - 1, 0), 1)


def _waits(transfer: HoldTransfer) -> bool:
    """Whether a transfer may have a latency."""
    return isinstance(transfer.latency, Term) or bool(np.any(transfer.latency))


def _starts(fetch: HoldMoves, buffers: Number) -> Number:
    """1 if a fill cannot start before a visit of a Hold with so many ``buffers``: its own Hold has no more of them; else 0."""
    return minimum(maximum(buffers - fetch.buffers + 1, 0), 1)


def _queued_time(visits: HoldVisits, entries: Number) -> Number:
    """Least time [s] of visits inside ``entries`` dependent visits of an outer Hold: each starts with as many inner visits in
    flight as there are buffers, and the remaining ones follow."""
    turns = ceil_div(visits.entries / entries, visits.buffers) - 1
    return entries * turns * visits.series / visits.entries


class VisitTimes:
    """Computes the visits of the Holds of one tree. Without ``ramps``, first fills and last drains take only their latency;
    ``rough``: weaker lower bounds with fewer terms."""

    def __init__(self, counter: Counter, ramps: bool, rough: bool) -> None:
        self.counter, self.workload, self.ramps, self.rough = counter, counter.workload, ramps, rough

    def of(
        self, node: Hold, inner: SubtreeCost, scope: CountingScope,
        fills: Mapping[str, HoldTransfer], drains: Mapping[str, HoldTransfer], fetches: tuple[HoldMoves, ...],
        stored: tuple[HoldMoves, ...],
    ) -> tuple[tuple[HoldVisits | AccumulatorVisits, ...], tuple[Moving, ...]]:  # fmt: skip
        """Visits of a Hold and of its inner Holds, and transfer times of its groups. A buffer of a group is in use from the start
        of the fill to the end of the work inside, or of the drain. Rough bounds omit a single transfer without latency, as its
        ports' busy time and the work already bound it."""
        if self.counter.once or (type(node.buffers) is int and node.buffers < 2):
            return (), ()
        single, several = single_buffer(node.buffers), several_buffers(node.buffers)
        found: list[HoldVisits | AccumulatorVisits] = []
        for visits in inner.visits:
            within = visits.scaled(1 - single)
            lead, trail = (self._once(several, moves, visits.group) for moves in (fills, drains))
            found.append(replace(within, lead=within.lead + lead, trail=within.trail + trail))
        entries, slots = self.counter.entries(scope), maximum(node.buffers, 1)
        moving: list[Moving] = []
        for group in node.tensors:
            coming = [fills[name] for name in group if name in fills and fills[name].events]
            going = [drains[name] for name in group if name in drains and drains[name].events]
            transfers = [*coming, *going]
            if not transfers or (self.rough and len(transfers) < 2 and not any(map(_waits, transfers))):
                continue
            fetching, storing = self.serial(scope, coming), self.serial(scope, going)
            sequential = fetching + storing
            moved = [total(map(self._carrying, side)) for side in (coming, going)]
            steps, larger = (0, 0) if self.rough else self._ragged(scope, group)
            if not is_none(larger):
                even = 1 - minimum(steps - floor_div(steps, slots) * slots, 1)
                fetching, storing = fetching + even * larger * moved[0], storing + even * larger * moved[1]
            inside = inner.steady if inner.hand_over is None else inner.hand_over.time_in_use(group)
            if going and inner.hand_over is None:
                inside = maximum(inside, self._until_stored(scope, inner, [own for own in stored if own.tensor in group]))
            moves, done = fetching, fetching + inside
            if fetches and coming:
                moves, done = self._fills_of_visit(node, inner, scope, fetches, fetching, positive(moved[0]), inside)
            own = moves + storing
            moving.append((group, own))
            before = None if self.rough else (moves if inner.hand_over else done - inner.work) / entries
            follows = inside if inner.hand_over else inner.steady_without([transfer.uses for transfer in transfers])
            visits = HoldVisits(group, done + storing, follows, entries, slots, before=before)
            if not is_none(larger):
                full = (1 + larger) / entries
                each = sequential / entries + (larger * total(moved) + (1 + larger) * inside) / entries
                period = ragged_time(steps, slots, each, full * longest((*moved, inside)))
                visits = replace(visits, run=maximum(steps, 1), period=positive(larger) * period)
            found.append(visits.scaled(several))
            if going and any(name in drains and fills[name].events for name in group):
                if not self.rough and not inner.hand_over:
                    inside = maximum(
                        inside, longest(_queued_time(own, entries) for own in inner.visits if isinstance(own, HoldVisits))
                    )
                    before = (moves + inside - inner.work) / entries
                for again, beside in self._returning(scope, group):
                    waits = () if inner.hand_over or self.rough else (own, inner.work)
                    returns = AccumulatorVisits(group, own + inside, entries, again, beside, 0, before, *waits)
                    found.append(returns.scaled(several))
        return tuple(found), tuple(moving)

    def _once(self, several: Number, moves: Mapping[str, HoldTransfer], group: Sequence[str]) -> Number:
        """Time [s] of one transfer of each tensor of a group, which precedes or follows all visits of their inner Holds."""
        return total(several * moves[name].once for name in group if name in moves and self.ramps)

    def _fills_of_visit(
        self, node: Hold, inner: SubtreeCost, scope: CountingScope, fetches: tuple[HoldMoves, ...],
        fetching: Number, some: Number, inside: Number,
    ) -> tuple[Number, Number]:  # fmt: skip
        """Time [s] of the fills on the visits of a Hold, and of these fills and the work ``inside`` that follows: its own take
        ``fetching``, others start together with them or follow further in. ``some``: 1 if its own move anything, else 0."""
        counted = self._started(fetches, node.buffers)
        together, through = self._shared(scope, counted), self._through(scope, fetches, node.buffers)
        if inner.hand_over:
            moves = maximum(fetching, some * maximum(together, through))
            return moves, moves + inside
        # the time inside includes some of these fills
        after = inner.steady_without([dict.fromkeys(fetch.busy, fetch.there) for fetch in counted])
        done = maximum(fetching + inside, some * maximum(together + after, through + inner.work))
        return maximum(fetching, some * maximum(together, through - (inside - inner.work))), done

    def _until_stored(self, scope: CountingScope, inner: SubtreeCost, stored: Sequence[HoldMoves]) -> Number:
        """Time [s] inside the visits of a Hold until the last drain of each from a Hold further in, which the Hold's own drain
        follows: the work, or a port that these drains do not use, and then one of them; or the first work and all of them."""
        seen = [own for own in stored if not is_none(own.there)]
        if not seen:
            return 0
        work = inner.steady_without([dict.fromkeys(own.busy, own.there) for own in seen])
        one = longest(own.there * self._alone(scope, own.first) for own in seen)
        every = longest(own.there * (work / own.again + self._alone(scope, own)) for own in seen)
        return maximum(work + one, every)

    def moves(self, node: Hold, transfers: Mapping[str, HoldTransfer], several: Number) -> Iterator[HoldMoves]:
        """The fills, or the drains, of a Hold with several buffers."""
        if self.rough or (type(several) is int and not several):
            return
        for name, transfer in transfers.items():
            if transfer.events:
                busy = self.counter.resources.busy(transfer.events)
                yield HoldMoves(name, node.buffers, transfer.latency, busy).scaled(several * positive(longest(busy.values())))

    def drained(self, drains: Iterable[HoldTransfer], several: Number) -> Busy:
        """Busy time [s] of each resource by the drains of a Hold with several buffers."""
        if self.rough or (type(several) is int and not several):
            return {}
        found = self.counter.resources.busy(event for transfer in drains for event in transfer.events)
        return {name: several * time for name, time in found.items()}

    def _started(self, fetches: Iterable[HoldMoves], buffers: Number) -> list[HoldMoves]:
        """The fills that start together on each visit of a Hold with ``buffers`` buffers; fills through the same port are then
        sequential. Fills of Holds with more buffers are excluded, as they may be done before."""
        return [fetch.scaled(_starts(fetch, buffers) * fetch.single) for fetch in fetches]

    def _through(self, scope: CountingScope, fetches: tuple[HoldMoves, ...], buffers: Number) -> Number:
        """Time [s] of the same fills and of the first ones of the same tensors further in, which follow them, on each visit.
        However many buffers there are, they cannot be done before the tensor is there."""
        outermost = {fetch.tensor: fetch for fetch in fetches}
        inner = [fetch.first for fetch in fetches if fetch is not outermost[fetch.tensor]]
        outer = [outermost[fetch.tensor] for fetch in inner]
        there = [own.there * _starts(own, buffers) for own in outer]
        lead = self._least(
            (some * fetch.there, self._alone(scope, own)) for some, fetch, own in zip(there, inner, outer, strict=True)
        )
        return lead + self._shared(scope, [fetch.scaled(some) for some, fetch in zip(there, inner, strict=True)])

    def _alone(self, scope: CountingScope, fetch: HoldMoves) -> Number:
        """Time [s] of fills that nothing delays."""
        return self.counter.entries(scope) * fetch.latency + longest(fetch.busy.values())

    def _shared(self, scope: CountingScope, fetches: Iterable[HoldMoves]) -> Number:
        """Time [s] of concurrent fills: the least latency, then the busiest port."""
        there = [fetch for fetch in fetches if not is_none(fetch.there)]
        busy = added(*({name: fetch.there * time for name, time in fetch.busy.items()} for fetch in there))
        return self.counter.entries(scope) * self._least((fetch.there, fetch.latency) for fetch in there) + longest(busy.values())

    def _least(self, some: Iterable[tuple[Number, Number]]) -> Number:
        """The minimum over the numbers that are there (1; else 0); 0 for none."""
        least: Number = 0
        seen: Number = 0
        for there, number in some:
            if is_none(there):
                continue
            smaller = seen * minimum(least, number) + (1 - seen) * number
            least = there * smaller + (1 - there) * least
            seen = maximum(seen, there)
        return least

    def _returning(self, scope: CountingScope, group: tuple[str, ...]) -> Iterator[tuple[Number, Number]]:
        """For each loop over a reduced dim: (visits to each sum, number of tiles of the other loops inside it)."""
        summed = {dim for name in group if (op := self.workload.producer(name)) for dim in self.workload.reduced(op)}
        again: Number = 1
        beside: Number = 1
        for at in range(len(scope.loops) - 1, -1, -1):
            loop = scope.loops[at]
            if loop.axis is not None:
                continue
            if loop.dim in summed:
                again = again * self.trips(scope, at)
                yield again, beside
            else:
                beside = beside * self.trips(scope, at)

    def trips(self, scope: CountingScope, at: int) -> Number:
        """Iterations per entry of the loop at an index of the scope's loops."""
        inside, outside = (self.counter.entries(scope.with_loops(scope.loops[:stop])) for stop in (at + 1, at))
        return inside / outside

    def _ragged(self, scope: CountingScope, group: tuple[str, ...]) -> tuple[Number, Number]:
        """(number of steps of the innermost loop around a Hold with more than one step, relative excess of its full tile over its
        average tile); (0, 0) if all its tiles of the group are equal."""
        steps: Number = 0
        larger: Number = 0
        innermost: Number = 1
        for at in range(len(scope.loops) - 1, -1, -1):
            loop, upto = scope.loops[at], scope.loops[: at + 1]
            if loop.axis is not None:
                continue
            if loop.mask is not None:
                break
            trips = self.trips(scope, at)
            if any(loop.dim in self.workload.tensors[name].dims for name in group):
                full, visits = self.counter.first_tile(loop.dim, upto), self.counter.visits(loop.dim, upto, frozenset())
                more = full * visits / self.counter.covered(loop.dim, upto, frozenset()) - 1
                if not is_none(more):
                    here = innermost * positive(trips - 1)
                    steps, larger = steps + here * trips, larger + here * more
            innermost = innermost * (1 - positive(trips - 1))
            if is_none(innermost):
                break
        return steps, larger

    def _carrying(self, transfer: HoldTransfer) -> Number:
        """Time [s] of a transfer at its slowest port, summed over all visits, without latencies."""
        return longest(self.counter.resources.busy(transfer.events).values())

    def serial(self, scope: CountingScope, transfers: Iterable[HoldTransfer]) -> Number:
        """Time [s] of sequential transfers without overlap, each at the speed of its slowest port."""
        result: Number = 0
        for transfer in transfers:
            if transfer.events:
                latency = self.counter.entries(scope) * transfer.latency
                result = result + latency + self._carrying(transfer)
        return result
