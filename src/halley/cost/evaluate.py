"""Evaluation of a mapping: one fold over the tree for the events and the time of every node (docs/model.md, "Time").

`evaluate` traverses the tree once, in execution order. With tiles that are arrays it costs a batch of mappings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from halley.cost.affine import counter_of
from halley.cost.checks import check_bursts, check_engines
from halley.cost.collective import SINGLE, Shared, exchange, hold_at
from halley.cost.compute import compute
from halley.cost.counting import AxisName, Counter, CountingScope, EnclosingHold, Loop, Sums
from halley.cost.estimate import BarrierTimes, Estimate, Moving, NodeCost, Resource
from halley.cost.events import Event, LinkTraffic, Path, Work
from halley.cost.footprint import footprint
from halley.cost.movement import SHARDING_KINDS, Body, HoldTransfer, drain, fill, refill, refills
from halley.cost.phases import NO_RAMPS, Barriers, HandOver, Ramp, Ramps, ReturningSums, SubtreeCost
from halley.cost.prefetch import ChildPhases, PrefetchedRamps
from halley.cost.resources import Busy, added, depth_of, energy_of, meets, shared_engines
from halley.cost.visits import VisitTimes, several_buffers, single_buffer
from halley.formulas.energy import static_energy
from halley.formulas.numbers import Number, ceil_div, maximum, positive
from halley.formulas.terms import Term
from halley.formulas.timing import (
    buffered_time,
    contended_time,
    delayed_time,
    longest,
    pipeline_time,
    share_of_rounds,
    stall_time,
    total,
)
from halley.ir.axis_groups import with_axis_groups
from halley.ir.hardware import Chip
from halley.ir.mapping import (
    Collective,
    CollectiveKind,
    Compute,
    Hold,
    Node,
    Overlap,
    Parallel,
    Pipeline,
    Sequence,
    Spatial,
    Temporal,
    walk,
)
from halley.ir.masks import mask_over
from halley.ir.workload import Workload
from halley.rewrite.prefetch import handed_over, in_lockstep, is_single, makes_steps
from halley.rewrite.rounds import hands_over, rounds_apart, starts_together

Shares = Mapping[int, tuple[Mapping[AxisName, int], Mapping[AxisName, int]]]
"""By child of a `Parallel` or `Pipeline`: the number of members of the axis that it has, and the first of them."""


def evaluate(
    workload: Workload,
    chip: Chip,
    tree: Node,
    only: Path | None = None,
    totals: bool = True,
    times: bool = True,
    held: Node | None = None,
    sums: Sums | None = None,
    least: bool = False,
    ramps: bool = True,
    once: bool = False,
    rough: bool = False,
    uneven: bool = False,
) -> Estimate:
    """Cost of a mapping, which must be legal (`halley.rewrite.legality.check`); capacity is not checked here.

    Tiles may be arrays that broadcast together: the result then has an entry per mapping. They may be terms: the result is then
    their arithmetic. Two splits inside one distributed Hold are the same split only if their tiles are the same array or term;
    entries of different arrays that happen to be equal get the footprint of different splits.

    ``only``: path of a node; the result is then that node's contribution: its time as a phase, its events and their energy. The
    footprint remains that of the whole tree. Without ``totals``, energy and total traffic are not valid; without ``times``, only
    energy (without leakage) and footprint are valid. ``held``: another tree for the footprint, if the evaluated tree omits users
    of its Holds. ``sums``: cache of sums from earlier trees of the same workload, for terms.

    Lower bounds, all without the barriers of lockstep memories: ``least``: times that hold for any non-zero number of buffers
    where that is open (not with rounds). Without ``ramps``: first fills and last drains take only their latency. ``once``: costs
    that hold for any order of the loops in time, with every tensor moved once and every node entered once (not with rounds).
    ``rough``: times without terms for ragged visits of a Hold, shared ports, and waits for drains, which make expressions long.

    ``uneven``: the time is at least that of the full tiles of a loop and of its smaller last ones, one after the other: where
    different resources limit them, no buffer evens that out. Numbers and arrays only.
    """
    nodes = tuple(walk(tree))
    chip = with_axis_groups(chip, [node for _, node in nodes])
    paths = {node.op: path for path, node in nodes if isinstance(node, Compute)}
    check_engines(workload, chip, paths)
    check_bursts(workload, chip)
    counter = counter_of(workload, chip, totals, times, sums)
    counter.once, counter.least = once, not ramps
    fold = _Fold(counter, paths, only, least, ramps, rough or least or once, uneven)
    root = fold.visit(tree, CountingScope())
    asked = fold.nodes[only or ()]
    events = [event for event in fold.events if event.path[: len(asked.path)] == asked.path] if only else fold.events
    energy_by = _energy(chip, events, asked.time)
    return Estimate(
        time=asked.time,
        energy=total(energy_by.values()),
        energy_by=energy_by,
        busy=root.busy if only is None else asked.busy,
        footprint=footprint(fold.counter, tree if held is None else held, fold.body),
        events=tuple(events),
        nodes=fold.nodes,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Sharded:
    """A tensor is sharded over an axis: computed inside a split of one of its dims, or sharded evenly (``even``) by a collective.
    ``loops``: the loops from the root to that split."""

    dim: str
    loops: tuple[Loop, ...]
    even: bool = False


def _nothing(resource: Resource) -> int:
    """No work in a visit: a lower bound for any order of the loops and any tile sizes."""
    return 0


class _Fold:
    def __init__(
        self,
        counter: Counter,
        paths: Mapping[str, Path],
        only: Path | None,
        least: bool,
        ramps: bool,
        rough: bool,
        uneven: bool,
    ) -> None:
        self.workload, self.chip, self.only = counter.workload, counter.chip, only
        self.least, self.ramps = least, ramps
        self.bounds = rough or not ramps
        self.uneven = uneven
        chip = self.chip
        self.counter = counter
        self.visits = VisitTimes(counter, ramps, rough)
        self.body = Body(self.counter)
        self.events: list[Event] = []
        self.nodes: dict[Path, NodeCost] = {}
        self.moving: dict[Path, tuple[Moving, ...]] = {}
        self.paths = paths
        self.shared: dict[tuple[str, AxisName], _Sharded | Shared | None] = {}
        self.joined: dict[str, frozenset[AxisName]] = {}  # axes over which what was computed has been combined or moved
        self.lockstep = in_lockstep(chip)
        self.prefetched: PrefetchedRamps | None = None  # ramps of prefetched Holds of the current child; None outside sequences
        self.phases: Number = 1  # entries of the enclosing phase
        self.stale: set[str] = set()  # accumulators whose running maximum has moved since they were last touched

    def visit(self, node: Node, scope: CountingScope) -> SubtreeCost:
        cost = self._cost(node, scope)
        if self.only is not None and scope.path != self.only:
            return cost
        time = self.phase(cost, scope)
        self.nodes[scope.path] = NodeCost(
            path=scope.path,
            entries=self.counter.entries(scope),
            work=cost.work,
            busy=cost.busy,
            filling=cost.up.time,
            waiting=cost.waiting,
            ramp_down=cost.down.time,
            time=time,
            barriers=self._barrier_times(cost, scope),
            latency=self._latency(cost, time, scope),
            ends={name: transfers for name, (transfers, _) in cost.ends().items()} if self.only is None else {},
            moving=self.moving.get(scope.path, ()),
        )
        return cost

    def _barrier_times(self, cost: SubtreeCost, scope: CountingScope) -> BarrierTimes | None:
        """What the barriers in a node cost; None if there are none, or if only a part of the tree is evaluated."""
        if cost.barriers is None or self.only is not None:
            return None
        own, ramps = cost.barriers, cost.barriers.ramps
        time = own.time(self.counter.entries(scope), cost.busy)
        waiting, ahead = own.waiting(cost.busy), self._ahead(cost, scope)
        return BarrierTimes(own.steps, own.work, ramps.up.time, waiting, ramps.down.time, time, ahead)

    def _latency(self, cost: SubtreeCost, time: Number, scope: CountingScope) -> Number:
        """Time [s] by which visits of Holds lengthen a phase; 0 if only a part of the tree is evaluated."""
        if self.only is not None or not cost.visits:
            return 0
        ahead = time if cost.barriers is None else self._ahead(cost, scope)
        return ahead - self._ahead(replace(cost, visits=()), scope)

    def _ahead(self, cost: SubtreeCost, scope: CountingScope) -> Number:
        """The time of a node as a phase without barriers [s]."""
        return self.phase(replace(cost, barriers=None), scope)

    def phase(self, cost: SubtreeCost, scope: CountingScope) -> Number:
        """The time of a node as a phase [s]."""
        return cost.time(self.counter.entries(scope), self.least) if self.counter.times else 0

    def _cost(self, node: Node, scope: CountingScope) -> SubtreeCost:
        match node:
            case Temporal():
                mask = mask_over(self.workload, node.dim) if node.visible else None
                inside = scope.inside(0).with_loop(Loop(node.dim, node.tile, None, path=scope.path, mask=mask))
                apart = mask is None and not self.bounds and self.counter.times and self._reduces(node.dim)
                aside = self._aside() if apart else None
                before = self._aside() if self.uneven and mask is None else None
                cost = self.visit(node.body, inside)
                if before is not None:
                    cost = self._with_uneven_tiles(before, node, scope, inside, cost)
                if not cost.fetches and not cost.stores:
                    return cost
                trips = self.visits.trips(inside, len(scope.loops))
                if aside is not None and any(node.dim in sums.dims for sums in cost.returning):
                    alone = aside.visit(node.body, scope.inside(0).with_loop(inside.loops[-1].first))
                    cost = cost.by_iterations(node.dim, alone, self.counter.entries(scope), trips)
                fetches, stores = (
                    tuple(replace(moved, again=moved.again * trips) for moved in side) for side in (cost.fetches, cost.stores)
                )
                return replace(cost, fetches=fetches, stores=stores)
            case Spatial():
                loop = Loop(node.dim, node.tile, (node.level, node.axis), path=scope.path)
                return self.visit(node.body, scope.inside(0).with_loop(loop))
            case Hold():
                return self._hold(node, scope)
            case Compute():
                return self._compute(node, scope)
            case Collective():
                return self._collective(node, scope)
            case Sequence():
                found = self._phases(node.children, scope, {}, handed_over(node, self.workload) if node.prefetch else None)
                if not node.prefetch:
                    work = total(found.times)
                    return SubtreeCost(work, found.busy, barriers=found.barriers(work))
                first, last = found.prefetched[0], found.prefetched[-1]
                between = Ramps(first.barriers.up, last.barriers.down)
                barriers = found.barriers(total(found.times), ramps=between)
                return SubtreeCost(total(found.ahead), found.busy, first.ramps.up, last.ramps.down, barriers)
            case Overlap() | Parallel():
                found = self._phases(node.children, scope, self._shares(node) if isinstance(node, Parallel) else {})
                slowest, hand_over = longest(found.times), self._hand_over(node, found.times, scope)
                barriers = found.barriers(slowest, self.counter.entries(scope), hand_over=hand_over)
                work = maximum(slowest, self._contended(node, found, scope))
                return SubtreeCost(work, found.busy, barriers=barriers, hand_over=hand_over)
            case Pipeline():
                inside = scope.with_loop(Loop(node.dim, node.tile, None, path=scope.path))
                found = self._phases(node.children, inside, self._shares(node))
                entries = self.counter.entries(inside)
                tiles = entries / self.counter.entries(scope)
                work = pipeline_time(found.times, tiles)
                return SubtreeCost(work, found.busy, barriers=found.barriers(work, entries))

    def _aside(self) -> _Fold:
        """A fold in the same state, whose records are of no use."""
        made = copy(self)
        made.events, made.nodes, made.moving, made.uneven = [], {}, {}, False
        made.shared, made.joined, made.stale = dict(self.shared), dict(self.joined), set(self.stale)
        return made

    def _reduces(self, dim: str) -> bool:
        """Whether an op reduces a dim."""
        return any(dim in self.workload.reduced(op) for op in self.workload.ops)

    def _with_uneven_tiles(
        self, before: _Fold, node: Temporal, scope: CountingScope, inside: CountingScope, cost: SubtreeCost
    ) -> SubtreeCost:
        """The cost of a loop whose last tile is smaller: its full tiles, and then the others. Transfers of one part run ahead
        into the other as far as there are buffers."""
        counter, loops = self.counter, inside.loops
        if self._reduces(node.dim):
            return cost  # the first tile fills no partial sums, so the others are not like it
        tiles = counter.visits(node.dim, loops, frozenset())
        more = counter.first_tile(node.dim, loops) * tiles / counter.covered(node.dim, loops, frozenset()) - 1
        trips = self.visits.trips(inside, len(scope.loops))
        apart = (np.asarray(more) > 1e-9) & (np.asarray(trips) > 1)
        if not apart.any():
            return cost
        first = before.visit(node.body, scope.inside(0).with_loop(loops[-1].first))
        full = np.where(np.asarray(trips) % 1 == 0, np.maximum(np.asarray(trips) - 1, 1), 1)
        entries = counter.entries(scope)
        ones = {name: full * time for name, time in first.busy.items()}
        rest = {name: time - ones.get(name, 0) for name, time in cost.busy.items()}
        others = cost.part(maximum(cost.work - full * first.work, 0), rest, entries)
        both = cost.part(full * first.work, ones, entries) + others
        return replace(cost, apart=maximum(cost.apart, np.where(apart, both, 0.0)))

    def _returning(
        self, node: Hold, scope: CountingScope, fills: Mapping[str, HoldTransfer], several: Number
    ) -> Iterator[ReturningSums]:
        """The partial sums that a Hold loads again in a loop over a reduced dim."""
        for name, transfer in fills.items():
            written = self.body.writer(node.body, name)
            if written is None or not transfer.events:
                continue
            dims = tuple(self.workload.reduced(written[0]))
            times = refills(self.counter, scope.loops, dims)
            loads = times + 1 - positive(times)
            once = {name: time / loads for name, time in self.counter.resources.busy(transfer.events).items()}
            yield ReturningSums(dims, once, several)

    def _contended(self, node: Overlap | Parallel, found: ChildPhases, scope: CountingScope) -> Number:
        """Time [s] of children that wait for each other at engines and ports. Children of a `Parallel` have separate ones."""
        if isinstance(node, Parallel) or not self.counter.times:
            return 0
        ops = [[self.workload.op(n.op) for _, n in walk(child) if isinstance(n, Compute)] for child in node.children]

        result: Number = 0
        engines = shared_engines(self.chip, ops)
        for name, users in engines.items():
            if starts_together(users, ops):
                result = maximum(result, contended_time([found.times[at] for at in users], found.busy.get(name, 0)))
        met: dict[int, Number] = {}
        for pair in combinations((at for at, own in enumerate(ops) if own), 2):
            first, second = (found.uses[at] for at in pair)
            common = [name for name in first if name in second and meets(self.chip, name, pair, engines)]
            apart = rounds_apart(pair, ops)
            share = share_of_rounds(self.counter.entries(scope) / self.phases, apart) if apart > 1 else 1
            product = share * longest(first[name] * second[name] for name in common)
            met |= {at: met.get(at, 0) + product for at in pair}
        return maximum(result, longest(delayed_time(found.times[at], product) for at, product in met.items()))

    def _hand_over(self, node: Overlap | Parallel, times: list[Number], scope: CountingScope) -> HandOver | None:
        """Children that hand over: the enclosing phase pays their pipeline fill and drain. Bounds of all tile sizes omit them, as
        smaller tiles are handed over sooner."""
        if not self.ramps or not hands_over(node, self.workload):
            return None
        return HandOver(tuple(times), tuple(map(self.body.names, node.children)), self.counter.entries(scope))

    def _shares(self, node: Parallel | Pipeline) -> Shares:
        name = (node.level, node.axis)
        return {index: ({name: share}, {name: sum(node.shares[:index])}) for index, share in enumerate(node.shares)}

    def _phases(
        self, children: tuple[Node, ...], scope: CountingScope, shares: Shares, waits: frozenset[str] | None = None
    ) -> ChildPhases:
        """Each child as a phase of its own, and their combined busy times; disjoint members are busy concurrently. ``waits``: in
        a sequence with prefetch, the tensors that are not prefetched."""
        times: list[Number] = []
        ahead: list[Number] = []
        uses: list[Busy] = []
        busy: Busy = {}
        steps: list[Number] = []
        some: list[Number] = []
        outer, phases = self.prefetched, self.phases
        prefetched = [PrefetchedRamps(waits or frozenset()) for _ in children]
        disjoint = self.chip.levels.index(self.chip.level(next(iter(shares[0][0]))[0])) if shares else None
        for index, child in enumerate(children):
            own_share, first = shares.get(index, ({}, {}))
            inside = scope.inside(index)
            if shares:
                firsts = {axis: scope.firsts.get(axis, 0) + begin for axis, begin in first.items()}
                inside = replace(inside, shares={**scope.shares, **own_share}, firsts={**scope.firsts, **firsts})
            self.prefetched = None if waits is None else prefetched[index]
            self.phases = entries = self.counter.entries(inside)
            cost = self.visit(child, inside)
            times.append(self.phase(cost, inside))
            uses.append(cost.busy)
            ahead.append(times[-1] if cost.barriers is None else self._ahead(cost, inside))
            if cost.barriers is not None:
                some.append(cost.barriers.some)
            steps.append(entries if cost.barriers is None else cost.barriers.steps + (1 - cost.barriers.some) * entries)
            for resource, amount in cost.busy.items():
                own = disjoint is not None and depth_of(self.chip, resource) >= disjoint
                before = busy.get(resource, 0)
                busy[resource] = maximum(before, amount) if own else before + amount
        self.prefetched, self.phases = outer, phases
        return ChildPhases(times, ahead, uses, busy, total(steps) if some else None, longest(some), prefetched)

    def _inside(self, node: Hold, scope: CountingScope) -> tuple[SubtreeCost, PrefetchedRamps | None]:
        """The cost of a Hold's body, and the ramps of its prefetched Holds; None if the body is a phase of its own."""
        outer, phases, single = self.prefetched, self.phases, single_buffer(node.buffers)
        self.prefetched = prefetched = None if outer is None or is_single(node) else PrefetchedRamps(outer.waits)
        self.phases = phases + single * (self.counter.entries(scope) - phases)
        inner = self.visit(node.body, scope)
        self.prefetched, self.phases = outer, phases
        return inner, prefetched

    def _ramps(self, node: Hold, body: Ramps, prefetched: Ramps, own: Callable[[Ramps], Ramps]) -> tuple[Ramps, Ramps]:
        """The ramps of the phase around a Hold, and those that are prefetched: ``body`` and ``prefetched`` are those inside, and
        ``own`` extends one of them by those of the Hold."""
        if self.prefetched is None:
            return own(body), NO_RAMPS
        if not self.prefetched.waits.isdisjoint(node.names):
            return own(body), prefetched
        return body, own(prefetched)

    def _hold(self, node: Hold, scope: CountingScope) -> SubtreeCost:
        depth = self.chip.depth(node.memory)
        opened = {name: EnclosingHold(node, node.memory, depth, scope.loops, scope.holds.get(name)) for name in node.names}
        fills, drains = self._fills_and_drains(node, scope, opened)
        inner, prefetched = self._inside(node, scope.inside(0).with_holds(opened))
        transfers = (*fills.values(), *drains.values())
        moved = self._record(event for transfer in transfers for event in transfer.events)
        if not self.counter.times:
            return inner
        busy = added(inner.busy, moved)
        if self.chip.memory(node.memory).dma:
            busy = added(busy, {("dma", node.memory): self.visits.serial(scope, transfers)})
        entries = self.counter.entries(scope)
        single, several = single_buffer(node.buffers), several_buffers(node.buffers)
        visit = inner.visit(entries) if self.ramps and not self.counter.once else _nothing
        # with one buffer it is a phase of its own; in another order of the loops, what moves inside it may move around it
        open_ = inner.phase(1 if self.counter.once else 1 - single)
        open_prefetched = NO_RAMPS if prefetched is None else prefetched.ramps.scaled(1 - single)

        def with_own(ramps: Ramps) -> Ramps:
            up, down = ramps.up, ramps.down
            return Ramps(up.after(fills, visit, several, self.ramps), down.after(drains, visit, several, self.ramps))

        ramps, early = self._ramps(node, Ramps(open_.up, open_.down), open_prefetched, with_own)
        soon = frozenset((*early.up.ports, *early.down.ports))
        barriers = self._barriers(node, inner, prefetched, scope, fills.values(), drains.values(), with_own)
        if self.prefetched is not None:
            self.prefetched.ramps = early
            if barriers is None:
                self.prefetched.barriers = early
        # with one buffer, fills further in belong to the work
        within, stored = ((), ()) if is_single(node) else (inner.fetches, inner.stores)
        if type(single) is not int:
            within, stored = (tuple(moved.scaled(1 - single) for moved in side) for side in (within, stored))
        fetches = (*within, *self.visits.moves(node, fills, several))
        stores = (*stored, *self.visits.moves(node, drains, several))
        visits, self.moving[scope.path] = self.visits.of(node, inner, scope, fills, drains, fetches, stored)
        # bounds of all tile sizes: of children on successive rounds, smaller tiles have more rounds, in all of these buffers
        rounds = not self.ramps and type(node.buffers) is int
        if rounds or (self.prefetched is not None and self.prefetched.waits.isdisjoint(node.names)):
            visits = tuple(replace(own, runs_on=True) for own in visits)
        drained = added(open_.drains, self.visits.drained(drains.values(), several))
        ahead, returning = self._across_iterations(node, scope, inner, fills, moved)
        if type(node.buffers) is int and node.buffers > 1:
            handed = inner.hand_over
            ramped = inner.work, busy, ramps.up, ramps.down
            return SubtreeCost(*ramped, barriers, handed, visits, drained, fetches, soon, ahead, inner.apart, stores, returning)
        serial = self.visits.serial(scope, transfers)
        if self.counter.once or (self.least and isinstance(node.buffers, Term)):
            work = inner.work + single * serial
            return SubtreeCost(work, busy, ramps.up, ramps.down, visits=visits, drains=drained, fetches=fetches, stores=stores)
        inside = inner if prefetched is None else inner.not_prefetched(prefetched.ramps, prefetched.barriers)
        work = buffered_time(single, inside.time(entries, self.least), inner.work, serial)
        handed = open_.hand_over
        ramped = work, busy, ramps.up, ramps.down
        apart = inner.apart * (1 - single)
        return SubtreeCost(*ramped, barriers, handed, visits, drained, fetches, soon, ahead, apart, stores, returning)

    def _fills_and_drains(
        self, node: Hold, scope: CountingScope, opened: Mapping[str, EnclosingHold]
    ) -> tuple[dict[str, HoldTransfer], dict[str, HoldTransfer]]:
        """By tensor, the transfers on entry to a Hold, and those on exit of what its body writes."""
        fills: dict[str, HoldTransfer] = {}
        drains: dict[str, HoldTransfer] = {}
        for name, hold in opened.items():
            written = self.body.writer(node.body, name)
            if written is None:
                fills[name] = fill(self.counter, scope, hold, name, self.body)
            else:
                fills[name] = refill(self.counter, scope, hold, name, written[0], self.body)
                drains[name] = drain(self.counter, scope, hold, name, written[0], self.body)
        if self.chip.memory(node.memory).dma:
            fills = {name: transfer.with_engine(("dma", node.memory)) for name, transfer in fills.items()}
            drains = {name: transfer.with_engine(("dma", node.memory)) for name, transfer in drains.items()}
        return fills, drains

    def _across_iterations(
        self, node: Hold, scope: CountingScope, inner: SubtreeCost, fills: Mapping[str, HoldTransfer], moved: Busy
    ) -> tuple[Busy, tuple[ReturningSums, ...]]:
        """Of a Hold and the Holds inside it: the transfers [s] that run ahead of the work, and the partial sums that are loaded
        again."""
        if self.bounds:
            return {}, ()
        entries, single, several = self.counter.entries(scope), single_buffer(node.buffers), several_buffers(node.buffers)
        if not self.uneven:
            moved = self.counter.resources.busy(event for transfer in fills.values() for event in transfer.events)
        own = {name: several * (node.buffers - 1) * time / entries for name, time in moved.items()}
        ahead = added({name: (1 - single) * time for name, time in inner.ahead.items()}, own)
        if is_single(node):
            return ahead, ()
        again = (replace(sums, there=sums.there * (1 - single)) for sums in inner.returning)
        return ahead, (*again, *self._returning(node, scope, fills, several))

    def _barriers(
        self, node: Hold, inner: SubtreeCost, prefetched: PrefetchedRamps | None, scope: CountingScope,
        fills: Iterable[HoldTransfer], drains: Iterable[HoldTransfer], with_own: Callable[[Ramps], Ramps],
    ) -> Barriers | None:  # fmt: skip
        """A Hold between barriers; None if neither the Hold nor its body has any.

        The buffers of a lockstep memory swap at a barrier: each transfer overlaps one step, which it may stall. The body of the
        innermost such Hold is one step, a phase of its own. Its first fill and its last drain are ramps, which stall no step.
        Inside a Hold with one buffer, which is a phase of its own, barriers do not count for the Holds around it."""
        inside = inner.barriers
        swaps = node.memory in self.lockstep
        if self.bounds or is_single(node) or (inside is None and not swaps):
            return None
        single, several = single_buffer(node.buffers), several_buffers(node.buffers)
        early, step = NO_RAMPS, inner
        if prefetched is not None:
            step = inner.not_prefetched(prefetched.ramps, prefetched.barriers)
            early = prefetched.barriers.scaled(1 - single)
        if inside is None:
            inside = Barriers(0, 0, some=0)
        outer = inside.scaled(inside.some * (1 - single))
        if not swaps:
            ramps, early = self._ramps(node, outer.ramps, early, with_own)
            made = replace(outer, ramps=ramps)
        else:
            entries = self.counter.entries(scope)
            work, steps = maximum(inside.work, (1 - inside.some) * step.time(entries)), maximum(inside.steps, entries)
            up, down = (self.visits.serial(scope, transfers) / entries for transfers in (fills, drains))
            fill_stall = stall_time(up, work, steps)
            work = work + entries * fill_stall
            drain_stall = stall_time(down, work, steps)
            work = work + entries * drain_stall
            own = Ramps(Ramp({"": up - fill_stall}), Ramp({"": down - drain_stall})).scaled(several)
            early = NO_RAMPS if makes_steps(node, self.lockstep) else early
            ramps, early = self._ramps(node, outer.ramps, early, lambda ramps: ramps.joined(own))
            some, steps = maximum(several, outer.some), several * steps + (1 - several) * outer.steps
            made = Barriers(maximum(several * work, outer.work), steps, ramps, outer.hand_over, some)
        if self.prefetched is not None:
            self.prefetched.barriers = early
        return made

    def _compute(self, node: Compute, scope: CountingScope) -> SubtreeCost:
        op = self.workload.op(node.op)
        common: tuple[Loop, ...] = ()
        if op.scaled_by:
            source = self.workload.producer(op.scaled_by)
            other = self.paths.get(source.name, ()) if source else ()
            common = tuple(loop for loop in scope.loops if other[: len(loop.path)] == loop.path)
        events = compute(self.counter, scope, op, node.array, common)
        for name in op.outputs:
            self.stale.discard(name)
            self.joined[name] = frozenset()
            self._place(name, scope)
        time = total(event.time for event in events if isinstance(event, Work))
        return SubtreeCost(time, self._record(events))

    def _place(self, name: str, scope: CountingScope) -> None:
        """Record how a computed tensor is sharded over the axes."""
        dims = self.workload.tensors[name].dims
        for axis in self.counter.axis_depth:
            loop = next((x for x in scope.loops if x.axis == axis and x.dim in dims), None)
            self.shared[name, axis] = _Sharded(loop.dim, scope.loops[: scope.loops.index(loop) + 1]) if loop else None

    def _even_sharding(self, dim: str, axis: AxisName, scope: CountingScope) -> _Sharded:
        """The even sharding of a dim by a collective in a scope."""
        whole = self.counter.reach(dim, tuple(loop.first for loop in scope.loops), self.counter.axis_depth[axis])
        share = Loop(dim, ceil_div(whole, self.counter.axis_size(axis, scope)), axis)
        return _Sharded(dim, (*scope.loops, share), even=True)

    def _sharding_at(self, tensor: str, axis: AxisName, scope: CountingScope) -> Shared | None:
        """How a tensor is sharded over an axis, in a scope outside the split: (dim, tile)."""
        found = self.shared.get((tensor, axis))
        if not isinstance(found, _Sharded):
            return found
        if found.even and all(loop in scope.loops for loop in found.loops[:-1] if loop.dim == found.dim):
            return (found.dim, None)
        loops = tuple(loop.first if loop in scope.loops else loop for loop in found.loops)
        return (found.dim, self.counter.reach(found.dim, loops, self.counter.axis_depth[axis]))

    def _collective(self, node: Collective, scope: CountingScope) -> SubtreeCost:
        axis = (node.level, node.axis)
        if self.counter.axis_size(axis, scope) == 1:
            return SubtreeCost()
        name = node.tensors[0]
        joined = self.joined.get(name, frozenset())
        events = exchange(self.counter, scope, node, name in self.stale, self._sharding_at(name, axis, scope), joined, self.body)
        self.joined.update(dict.fromkeys(node.tensors, joined | {axis}))
        self.stale.difference_update(node.tensors)
        self.stale.update(n for op in self.workload.ops if op.scaled_by in node.tensors for n in op.outputs if n in self.joined)
        for tensor in node.tensors:
            if node.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST):
                self.shared[tensor, axis] = None
            elif node.kind in SHARDING_KINDS:
                self.shared[tensor, axis] = self._even_sharding(node.dim, axis, scope)
            elif node.kind is not CollectiveKind.SHIFT:
                self.shared[tensor, axis] = SINGLE
        rescaling = total(event.time for event in events if isinstance(event, Work))
        moving = total(event.time for event in events if isinstance(event, LinkTraffic))
        memory = hold_at(scope, name, self.counter.axis_depth[axis]).memory
        occupied: Busy = {("dma", memory): moving} if self.counter.times and self.chip.memory(memory).dma else {}
        return SubtreeCost(rescaling + moving, added(self._record(events), occupied))

    def _record(self, events: Iterable[Event]) -> Busy:
        events = list(events)
        self.events.extend(events)
        return self.counter.resources.busy(events) if self.counter.times else {}


def _energy(chip: Chip, events: Iterable[Event], time: Number) -> dict[str, Number]:
    """Energy [J] by component: each memory, each network, each engine, leakage."""
    result: dict[str, Number] = {}
    for event in events:
        key, energy = energy_of(chip, event)
        result[key] = result.get(key, 0) + energy
    result["static"] = static_energy(chip.static_power, time)
    return result
