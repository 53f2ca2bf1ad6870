"""One fold over the tree: every node's events, then its time (docs/model.md, "Time").

`evaluate` walks the tree once, in execution order. With tiles that are arrays it costs a whole batch of mappings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from halley.cost.ahead import Ahead, Phases
from halley.cost.checks import check_engines, check_lockstep
from halley.cost.compute import compute
from halley.cost.counting import AxisName, Counter, Loop, OpenHold, Scope, Sums
from halley.cost.estimate import Estimate, NodeCost, Resource
from halley.cost.events import Access, Crossing, Event, Passage, Path, Work
from halley.cost.exchange import SINGLE, Shared, exchange
from halley.cost.footprint import footprint
from halley.cost.movement import SHARDING, Body, Transfer, drain, fill, refill
from halley.cost.window import counter_of
from halley.formulas.energy import action_energy, static_energy
from halley.formulas.numbers import Number, ceil_div, maximum
from halley.formulas.terms import Term
from halley.formulas.timing import (
    buffered_time,
    busy_time,
    least_phase_time,
    longest,
    phase_time,
    pipeline_time,
    stall_time,
    total,
    waiting_time,
)
from halley.ir.hardware import Chip, Link, Memory
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
from halley.rewrite.prefetch import ends, in_lockstep, shared
from halley.rewrite.rounds import hands_over

Busy = dict[Resource, Number]

Shares = Mapping[int, tuple[Mapping[AxisName, int], Mapping[AxisName, int]]]
"""Per child of a `Parallel` or `Pipeline`: how many members of the axis it has, and which is the first."""


@dataclass(frozen=True, slots=True)
class _Cost:
    """Of a subtree: ``work`` [s], ``busy`` [s] by resource, ramps [s] that the enclosing phase pays on each entry; ``steps``:
    barriers in the work, None where transfers run ahead. ``handing``: of children in it that hand over, what they take one after
    the other [s], and in how many rounds."""

    work: Number = 0
    busy: Busy = field(default_factory=dict)
    up: Number = 0
    down: Number = 0
    steps: Number | None = None
    handing: tuple[Number, Number] | None = None

    @property
    def waiting(self) -> Number:
        """What the ends of the first and last round add to the ramp [s] of an entry, if this is a phase: as long as that is at
        work on one round alone, its busiest child or resource is not."""
        if self.handing is None:
            return 0
        in_turn, rounds = self.handing
        return waiting_time(in_turn, maximum(self.work, longest(self.busy.values())), rounds)


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
) -> Estimate:
    """Cost of a mapping, which must be legal (`halley.rewrite.legality.check`); capacity is not checked here.

    Tiles may be arrays that broadcast together: the result then has an entry per mapping; or terms: the result is then their
    arithmetic. Two splits inside one distributed Hold count as the same split only if their tiles are the same array or term;
    where others merely coincide in an entry, its footprint is that of different splits.
    With ``only``, the path of a node, the result is that node's share of the whole: its time as a phase, its own events and
    their energy (the footprint stays the whole tree's). The search asks for stages so,
    without ``totals`` where it minimises time (energy and total traffic are then not meaningful) and without ``times`` where it
    minimises energy and nothing leaks (only energy and footprint are meaningful then).
    ``held``: a tree to take the footprint of instead, where the costed one leaves out some that use its Holds. ``sums``: what
    earlier trees of the same workload found, for terms. ``least``: lower bounds of the times, which hold whatever number of
    buffers, but 0, stands for an open one (not with rounds). Without ``ramps``, first fills and last drains take only their
    latency, as if of tiles without size. ``once``: lower bounds that hold whatever order loops in time have, as if every tensor
    moved once and every node were entered once (not with rounds, nor with lockstep).
    """
    paths = {node.op: path for path, node in walk(tree) if isinstance(node, Compute)}
    check_engines(workload, chip, paths)
    check_lockstep(chip, tree)
    counter = counter_of(workload, chip, totals, times, sums)
    counter.once = once
    fold = _Fold(counter, paths, only, least, ramps)
    root = fold.visit(tree, Scope())
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
class Split:
    """A tensor was computed inside a split of one of its dims, or a collective shared it out evenly: the loops down to that."""

    dim: str
    loops: tuple[Loop, ...]
    even: bool = False


def depth_of(chip: Chip, resource: Resource) -> int:
    """The level that a resource belongs to, 0 the outermost."""
    match resource[0]:
        case "read" | "write" | "bus":
            return chip.depth(resource[1])
        case "engine":
            return len(chip.levels) - 1
        case _:
            return chip.levels.index(chip.level(resource[1]))


class _Fold:
    def __init__(self, counter: Counter, paths: Mapping[str, Path], only: Path | None, least: bool, ramps: bool) -> None:
        self.workload, self.chip, self.only, self.least, self.ramps = counter.workload, counter.chip, only, least, ramps
        chip = self.chip
        self.memories = {memory.name: memory for memory in chip.memories}
        self.ports = ports_of(chip)
        self.counter = counter
        self.body = Body(self.counter)
        self.events: list[Event] = []
        self.nodes: dict[Path, NodeCost] = {}
        self.paths = paths
        self.shared: dict[tuple[str, AxisName], Split | Shared | None] = {}
        self.joined: dict[str, frozenset[AxisName]] = {}  # axes over which what was computed has been combined or moved
        self.lockstep = in_lockstep(chip)
        self.ahead: Ahead | None = None  # where the ramps of Holds that run on go; None where none does
        self.stale: set[str] = set()  # accumulators whose running maximum has moved since they were last touched

    def visit(self, node: Node, scope: Scope) -> _Cost:
        cost = self._cost(node, scope)
        if self.only is not None and scope.path != self.only:
            return cost
        self.nodes[scope.path] = NodeCost(
            path=scope.path,
            entries=self.counter.entries(scope),
            work=cost.work,
            busy=cost.busy,
            filling=cost.up,
            waiting=cost.waiting,
            ramp_down=cost.down,
            time=self.phase(cost, scope),
            steps=cost.steps,
        )
        return cost

    def phase(self, cost: _Cost, scope: Scope) -> Number:
        if not self.counter.times:
            return 0
        entries, busy, up = self.counter.entries(scope), cost.busy.values(), cost.up + cost.waiting
        if cost.steps is None:
            return (least_phase_time if self.least else phase_time)(entries, up, cost.down, cost.work, busy)
        # in lockstep, the work has waited for transfers already, all but those of the ramps
        return maximum(phase_time(entries, up, cost.down, cost.work, ()), longest(busy))

    def _cost(self, node: Node, scope: Scope) -> _Cost:
        match node:
            case Temporal():
                mask = mask_over(self.workload, node.dim) if node.visible else None
                loop = Loop(node.dim, node.tile, None, path=scope.path, mask=mask)
                return self.visit(node.body, scope.inside(0).with_loop(loop))
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
                found = self._phases(node.children, scope, {}, shared(node, self.workload) if node.prefetch else None)
                up, down = (found.ahead[0].up, found.ahead[-1].down) if node.prefetch else (0, 0)
                return _Cost(total(found.times), found.busy, up, down, found.steps)
            case Overlap() | Parallel():
                found = self._phases(node.children, scope, self._shares(node) if isinstance(node, Parallel) else {})
                rounds = None if found.steps is None else self.counter.entries(scope)
                return _Cost(longest(found.times), found.busy, steps=rounds, handing=self._handing(node, found.times, scope))
            case Pipeline():
                inside = scope.with_loop(Loop(node.dim, node.tile, None, path=scope.path))
                found = self._phases(node.children, inside, self._shares(node))
                entries = self.counter.entries(inside)
                tiles = entries / self.counter.entries(scope)
                return _Cost(pipeline_time(found.times, tiles), found.busy, steps=None if found.steps is None else entries)

    def _handing(self, node: Overlap | Parallel, times: list[Number], scope: Scope) -> tuple[Number, Number] | None:
        """Children that hand over wait for their first round, or have done their last, in the phase around."""
        return (total(times), self.counter.entries(scope)) if hands_over(node, self.workload) else None

    def _shares(self, node: Parallel | Pipeline) -> Shares:
        name = (node.level, node.axis)
        return {index: ({name: share}, {name: sum(node.shares[:index])}) for index, share in enumerate(node.shares)}

    def _phases(
        self, children: tuple[Node, ...], scope: Scope, shares: Shares, waits: frozenset[str] | None = None
    ) -> Phases:
        """Each child as a phase of its own, and their busy times together: members that are disjoint work at once. ``waits``:
        where the children's first tiles come early, the tensors whose do not."""
        times: list[Number] = []
        busy: Busy = {}
        steps: list[Number] = []
        barriers, outer = False, self.ahead
        ahead = [Ahead(waits or frozenset()) for _ in children]
        disjoint = self.chip.levels.index(self.chip.level(next(iter(shares[0][0]))[0])) if shares else None
        for index, child in enumerate(children):
            own_share, first = shares.get(index, ({}, {}))
            inside = scope.inside(index)
            if shares:
                firsts = {axis: scope.firsts.get(axis, 0) + begin for axis, begin in first.items()}
                inside = replace(inside, shares={**scope.shares, **own_share}, firsts={**scope.firsts, **firsts})
            self.ahead = None if waits is None else ahead[index]
            cost = self.visit(child, inside)
            times.append(self.phase(cost, inside))
            barriers = barriers or cost.steps is not None
            steps.append(self.counter.entries(inside) if cost.steps is None else cost.steps)
            for resource, amount in cost.busy.items():
                own = disjoint is not None and depth_of(self.chip, resource) >= disjoint
                before = busy.get(resource, 0)
                busy[resource] = maximum(before, amount) if own else before + amount
        self.ahead = outer
        return Phases(times, busy, total(steps) if barriers else None, ahead)

    def _inside(self, node: Hold, scope: Scope) -> tuple[_Cost, Ahead | None]:
        """What is in a Hold, and what of its ramps runs on: none where the Hold ends phases."""
        outer = self.ahead
        self.ahead = ahead = None if outer is None or ends(node, self.lockstep) else Ahead(outer.waits)
        inner = self.visit(node.body, scope)
        self.ahead = outer
        return inner, ahead

    def _run_on(self, node: Hold, up: Number, down: Number, ahead: Ahead | None) -> tuple[Number, Number]:
        """The ramps that are left where those of the Hold, and ``ahead`` inside it, run on beside other children."""
        if self.ahead is None:
            return up, down
        if ahead is not None:
            self.ahead.add(ahead.up, ahead.down)
        if not self.ahead.waits.isdisjoint(node.names):
            return up, down
        self.ahead.add(up, down)
        return 0, 0

    def _hold(self, node: Hold, scope: Scope) -> _Cost:
        depth = self.chip.depth(node.memory)
        opened = {name: OpenHold(node, node.memory, depth, scope.loops, scope.holds.get(name)) for name in node.names}
        fills: list[Transfer] = []
        drains: list[Transfer] = []
        for name, hold in opened.items():
            written = self.body.writer(node.body, name)
            if written is None:
                fills.append(fill(self.counter, scope, hold, name, self.body))
            else:
                fills.append(refill(self.counter, scope, hold, name, written[0], self.body))
                drains.append(drain(self.counter, scope, hold, name, written[0], self.body))
        inner, ahead = self._inside(node, scope.inside(0).with_holds(opened))
        moved = self._record(event for transfer in (*fills, *drains) for event in transfer.events)
        if not self.counter.times:
            return inner
        busy = _added(inner.busy, moved)
        up, down = (total(t.one_tile if self.ramps else t.latency for t in transfers) for transfers in (fills, drains))
        if self.memories[node.memory].lockstep and node.buffers > 1:
            return self._lockstep(node, inner, ahead, busy, scope, fills, drains)
        if type(node.buffers) is int and node.buffers > 1:
            up, down = self._run_on(node, up, down, ahead)
            return _Cost(inner.work, busy, inner.up + up, inner.down + down, inner.steps, inner.handing)
        serial = total(self._serial(scope, transfers) for transfers in (fills, drains))
        # numbers or terms: 0 where nothing is held, 1 or 2
        single, double = node.buffers * (2 - node.buffers), node.buffers * (node.buffers - 1) / 2
        if self.least and isinstance(node.buffers, Term):
            up, down = self._run_on(node, double * up, double * down, ahead)
            return _Cost(inner.work + single * serial, busy, inner.up + up, inner.down + down)
        if inner.steps is not None or self.least:
            return _Cost(self.phase(inner, scope) + serial, busy)
        ramps = self.counter.entries(scope) * (inner.up + inner.waiting + inner.down)
        if ahead is not None:  # with one buffer, what is inside does not run on
            ramps = ramps + self.counter.entries(scope) * (ahead.up + ahead.down)
            ahead = Ahead(ahead.waits, (1 - single) * ahead.up, (1 - single) * ahead.down)
        work = buffered_time(single, ramps, inner.work, longest(inner.busy.values()), serial)
        handing = inner.handing and ((1 - single) * inner.handing[0], inner.handing[1])  # with one buffer, rounds end here
        up, down = self._run_on(node, double * up, double * down, ahead)
        return _Cost(work, busy, (1 - single) * inner.up + up, (1 - single) * inner.down + down, handing=handing)

    def _lockstep(
        self, node: Hold, inner: _Cost, ahead: Ahead | None, busy: Busy, scope: Scope,
        fills: list[Transfer], drains: list[Transfer],
    ) -> _Cost:  # fmt: skip
        """A double-buffered Hold whose buffers swap at a barrier: each transfer runs beside one step, which it may hold up. The
        innermost such Hold makes the steps: what is inside is a phase of its own. The first fill and the last drain are ramps,
        which hold up no step."""
        entries = self.counter.entries(scope)
        if inner.steps is None:
            inner = _Cost(self.phase(inner, scope), inner.busy, steps=entries)
        up, down = (self._serial(scope, transfers) / entries for transfers in (fills, drains))
        fill_stall = stall_time(up, inner.work, inner.steps)
        work = inner.work + entries * fill_stall
        drain_stall = stall_time(down, work, inner.steps)
        work = work + entries * drain_stall
        up, down = self._run_on(node, up - fill_stall, down - drain_stall, ahead)
        return _Cost(work, busy, inner.up + up, inner.down + down, inner.steps, inner.handing)

    def _serial(self, scope: Scope, transfers: list[Transfer]) -> Number:
        """Time of transfers that nothing hides: one after the other, each at its slowest port."""
        result: Number = 0
        for transfer in transfers:
            if transfer.events:
                latency = self.counter.entries(scope) * transfer.latency
                result = result + latency + longest(self._busy(transfer.events).values())
        return result

    def _compute(self, node: Compute, scope: Scope) -> _Cost:
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
        return _Cost(time, self._record(events))

    def _place(self, name: str, scope: Scope) -> None:
        """How the members share out a tensor that was just computed."""
        dims = self.workload.tensors[name].dims
        for axis in self.counter.axis_depth:
            loop = next((x for x in scope.loops if x.axis == axis and x.dim in dims), None)
            self.shared[name, axis] = Split(loop.dim, scope.loops[: scope.loops.index(loop) + 1]) if loop else None

    def _dealt(self, dim: str, axis: AxisName, scope: Scope) -> Split:
        """What a collective shares out evenly at a place."""
        whole = self.counter.reach(dim, tuple(loop.first for loop in scope.loops), self.counter.axis_depth[axis])
        share = Loop(dim, ceil_div(whole, self.counter.axis_size(axis, scope)), axis)
        return Split(dim, (*scope.loops, share), even=True)

    def _shared(self, tensor: str, axis: AxisName, scope: Scope) -> Shared | None:
        """How members share out a tensor at a place outside the split that did it."""
        found = self.shared.get((tensor, axis))
        if not isinstance(found, Split):
            return found
        if found.even and all(loop in scope.loops for loop in found.loops[:-1] if loop.dim == found.dim):
            return (found.dim, None)
        loops = tuple(loop.first if loop in scope.loops else loop for loop in found.loops)
        return (found.dim, self.counter.reach(found.dim, loops, self.counter.axis_depth[axis]))

    def _collective(self, node: Collective, scope: Scope) -> _Cost:
        axis = (node.level, node.axis)
        if self.counter.axis_size(axis, scope) == 1:
            return _Cost()
        name = node.tensors[0]
        joined = self.joined.get(name, frozenset())
        events = exchange(self.counter, scope, node, name in self.stale, self._shared(name, axis, scope), joined)
        self.joined.update(dict.fromkeys(node.tensors, joined | {axis}))
        self.stale.difference_update(node.tensors)
        self.stale.update(n for op in self.workload.ops if op.scaled_by in node.tensors for n in op.outputs if n in self.joined)
        for tensor in node.tensors:
            if node.kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST):
                self.shared[tensor, axis] = None
            elif node.kind in SHARDING:
                self.shared[tensor, axis] = self._dealt(node.dim, axis, scope)
            elif node.kind is not CollectiveKind.SHIFT:
                self.shared[tensor, axis] = SINGLE
        rescaling = total(event.time for event in events if isinstance(event, Work))
        moving = total(event.time for event in events if isinstance(event, Crossing))
        return _Cost(rescaling + moving, self._record(events))

    def _record(self, events: Iterable[Event]) -> Busy:
        events = list(events)
        self.events.extend(events)
        return self._busy(events) if self.counter.times else {}

    def _busy(self, events: Iterable[Event]) -> Busy:
        """Busy time of the critical instance of each resource."""
        busy: Busy = {}
        for event in events:
            resource, time = event_busy(event, self.memories, self.ports)
            busy[resource] = busy.get(resource, 0) + time
        return busy


def event_busy(event: Event, memories: Mapping[str, Memory], ports: Mapping[str, Link]) -> tuple[Resource, Number]:
    """The resource that an event keeps busy, and for how long [s] in the critical instance. ``memories`` by name, ``ports`` by
    level."""
    match event:
        case Access():
            memory = memories[event.memory]
            bandwidth = memory.read_bandwidth if event.is_read else memory.write_bandwidth
            way = "bus" if memory.shared_bus else "read" if event.is_read else "write"
            return (way, event.memory), busy_time(event.critical, bandwidth)
        case Passage():
            return ("port", event.level, "down" if event.down else "up"), busy_time(event.critical, ports[event.level].bandwidth)
        case Crossing():
            return ("axis", event.level, event.axis), event.time
        case Work():
            return ("engine", event.engine), event.time


def ports_of(chip: Chip) -> dict[str, Link]:
    """The port of each level that has one, by level."""
    return {level.name: level.network.port for level in chip.levels if level.network and level.network.port}


def _added(first: Busy, second: Busy) -> Busy:
    result = dict(first)
    for resource, amount in second.items():
        result[resource] = result.get(resource, 0) + amount
    return result


def _energy(chip: Chip, events: Iterable[Event], time: Number) -> dict[str, Number]:
    """Energy [J] by component: each memory, each network, each engine, leakage."""
    result: dict[str, Number] = {}
    for event in events:
        key, energy = event_energy(chip, event)
        result[key] = result.get(key, 0) + energy
    result["static"] = static_energy(chip.static_power, time)
    return result


def event_energy(chip: Chip, event: Event) -> tuple[str, Number]:
    """(component, energy [J]) of one event."""
    match event:
        case Access():
            memory = chip.memory(event.memory)
            return event.memory, action_energy(event.total, memory.read_energy if event.is_read else memory.write_energy)
        case Passage():
            network = chip.level(event.level).network
            port = network.port if network else None
            return f"{event.level} port", action_energy(event.total, port.energy if port else 0.0)
        case Crossing():
            return f"{event.level} network", action_energy(event.total, chip.axis(event.level, event.axis).link.energy)
        case Work():
            if chip.matrix is not None and event.engine == chip.matrix.name:
                return event.engine, action_energy(event.count, chip.matrix.energy.get(event.dtype, 0.0))
            energy = chip.vector.energy.get(event.function, 0.0) if chip.vector else 0.0
            return event.engine, action_energy(event.count, energy)
