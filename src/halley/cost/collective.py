"""Events of a `Collective`: bytes on each link, accesses of the members' memories, time (docs/model.md, "Collectives")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import product

from halley.cost.compute import rescale
from halley.cost.counting import Axes, AxisName, Counter, CountingScope, EnclosingHold, Loop
from halley.cost.events import Access, Event, LinkTraffic, Work
from halley.cost.movement import Body
from halley.formulas.collectives import collective_time, step_overhead, streamed_time
from halley.formulas.numbers import Number, ceil_div, maximum, minimum
from halley.formulas.terms import Term
from halley.ir.hardware import Axis, Memory, Topology
from halley.ir.mapping import Collective, CollectiveKind
from halley.ir.workload import MONOIDS, OpKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.tables import share
from halley.network.time.axis import Port, Profile, Rates, Streams, busiest, profile, streams

Shared = tuple[str, Number | None]
"""The dim that is sharded along an axis, and the tile of each member: None for an even sharding."""

SINGLE: Shared = ("", None)
"""Member 0 has the whole tensor."""

FLAT_PAYLOAD_KINDS = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE, CollectiveKind.BROADCAST)
"""Kinds whose payload is one flat vector per member, divided into chunks."""


def exchange(
    counter: Counter, scope: CountingScope, node: Collective, stale: bool, shared: Shared | None, joined: Axes, body: Body
) -> tuple[Event, ...]:
    """All events of a Collective over all visits. ``stale``: a rescaled tensor's maximum has changed since its last access.
    ``shared``: how the tensors are sharded before it, (dim, tile), None if every member has all. ``joined``: axes over which a
    collective has already combined them. ``body``: the accesses of each subtree."""
    axis = counter.chip.axis(node.level, node.axis)
    name = (node.level, node.axis)
    size = counter.axis_size(name, scope)
    events: list[Event] = []
    for tensor in node.tensors:
        producer = counter.workload.producer(tensor)
        if stale and producer is not None and producer.scaled_by:
            held = hold_at(scope, tensor, counter.axis_depth[name])
            reduced = counter.workload.reduced(producer)
            inside = _splits_inside(counter, body, held, tensor, reduced)
            there = replace(scope, loops=(*scope.loops, *inside), holds={**scope.holds, tensor: held})
            members = _members(counter, there, reduced, joined, held.depth)
            events += rescale(counter, there, producer, tensor, producer.scaled_by, (members, 1), held.depth)
    # part of a ring is a line
    topology = Topology.LINE if axis.topology is Topology.RING and size < axis.size else axis.topology
    shape = profile(node.kind, node.algorithm, topology, size)
    moved = _Moved(counter, scope, node, name, size, topology, shape, shared)
    events += moved.accesses()
    events.append(moved.crossing())
    events += moved.combining()
    return tuple(events)


def hold_at(scope: CountingScope, tensor: str, depth: int) -> EnclosingHold:
    """The innermost Hold of the tensor in a memory of that depth, on which a collective operates."""
    hold = scope.holds[tensor]
    while hold.depth > depth and hold.parent is not None:
        hold = hold.parent
    return hold


def _splits_inside(counter: Counter, body: Body, held: EnclosingHold, tensor: str, reduced: tuple[str, ...]) -> tuple[Loop, ...]:
    """Splits of reduced dims between a Hold and the op that computes the tensor: members that idle there have no part of it. Of
    the loops enclosing the splits, only the first tile: no later one is larger."""
    written = body.writer(held.node.body, tensor)
    own = counter.upto(held.depth)
    loops = [loop for loop in written[1].loops if loop.dim in reduced] if written else []
    return tuple(loop if loop.axis else loop.first for loop in loops if not loop.axis or loop.axis in own)


def _members(counter: Counter, scope: CountingScope, reduced: tuple[str, ...], joined: Axes, depth: int) -> Number:
    """Number of members that hold an accumulator, along all axes that split a reduced dim: the active members, or all members of
    an axis over which a collective has combined it."""
    result: Number = 1
    for dim in reduced:
        splits = tuple(loop for loop in scope.loops if loop.dim == dim and (loop.axis or loop.first_only))
        result = result * counter.visits(dim, splits, counter.upto(depth) - joined)
    for axis in {loop.axis for loop in scope.loops if loop.dim in reduced and loop.axis in joined and loop.axis}:
        result = result * counter.axis_size(axis, scope)
    return result


class _Moved:
    """Bytes of the chunks of one collective, summed over visits and over groups of members along other axes."""

    def __init__(
        self,
        counter: Counter,
        scope: CountingScope,
        node: Collective,
        name: AxisName,
        size: int,
        topology: Topology,
        shape: Profile,
        shared: Shared | None,
    ) -> None:
        self.counter, self.scope, self.node, self.name, self.size, self.shape = counter, scope, node, name, size, shape
        self.topology, self.shared = topology, shared
        tensors = [counter.workload.tensors[t] for t in node.tensors]
        self.dims = tensors[0].dims
        self.word = sum(t.word for t in tensors)
        others = counter.upto(counter.axis_depth[name]) - {name}
        self.groups = self._repeats(others)
        self.visits_of_one = self._repeats(frozenset())
        self.own_boxes = self._boxes(frozenset()) if counter.times else []
        self.all_boxes = self._boxes(others) if counter.totals else []

    def _repeats(self, across: frozenset[AxisName]) -> Number:
        """How often a payload moves: iterations of loops over other dims, times groups of members along axes that do not split
        the payload. Idle groups count too."""
        result: Number = 1
        for dim in dict.fromkeys(loop.dim for loop in self.scope.loops):
            if dim not in self.dims:
                result = result * self.counter.visits(dim, self.scope.loops, frozenset())
        splitting = {loop.axis for loop in self.scope.loops if loop.dim in self.dims}
        for name in across - splitting:
            result = result * self.counter.axis_size(name, self.scope)
        return result

    def _boxes(self, summed: frozenset[AxisName]) -> list[tuple[tuple[Number, ...], Number]]:
        """((size per dim), count) of the payload boxes."""
        per_dim = [self.counter.sizes(dim, self._loops_of(dim), summed) for dim in self.dims]
        result = []
        for combination in product(*per_dim):
            count: Number = 1
            for _, times in combination:
                count = count * times
            result.append((tuple(size for size, _ in combination), count))
        return result

    def _loops_of(self, dim: str) -> tuple[Loop, ...]:
        """Loops of the dim, without the split over the collective's own axis if the payload is distributed by that split."""
        loops = tuple(loop for loop in self.scope.loops if loop.dim == dim)
        if self.node.kind in FLAT_PAYLOAD_KINDS or self.node.kind is CollectiveKind.REDUCE_SCATTER:
            return loops
        return tuple(loop for loop in loops if loop.axis != self.name)

    def chunk(self, box: Sequence[Number], index: int) -> Number:
        """Elements of one chunk for one payload box."""
        node, size = self.node, self.size
        if node.kind in FLAT_PAYLOAD_KINDS:
            elements = _prod(box)
            return share(elements, ceil_div(elements, size), index)
        if node.kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER):
            return self._part(box, (node.dim, None), index) * self._rest(box, node.dim)
        if self.shared is None:  # a shift of a replicated tensor
            return _prod(box)
        if self.shared == SINGLE:
            return 0 if index else _prod(box)
        source = self.shared[0]
        if node.kind is not CollectiveKind.ALL_TO_ALL:
            return self._part(box, self.shared, index) * self._rest(box, source)
        give, take = divmod(index, size)
        if source == node.dim:
            held, wanted = ([self._part(box, shared, i) for i in range(size)] for shared in (self.shared, (node.dim, None)))
            return _common(held, give, wanted, take) * self._rest(box, source)
        held_part, wanted_part = self._part(box, self.shared, give), self._part(box, (node.dim, None), take)
        return held_part * wanted_part * self._rest(box, source, node.dim)

    def _part(self, box: Sequence[Number], shared: Shared, index: int) -> Number:
        """Points of a sharded dim that a member has."""
        dim, tile = shared
        extent = box[self.dims.index(dim)]
        return share(extent, ceil_div(extent, self.size) if tile is None else tile, index)

    def _rest(self, box: Sequence[Number], *without: str) -> Number:
        return _prod(extent for dim, extent in zip(self.dims, box, strict=True) if dim not in without)

    @cached_property
    def totals(self) -> list[Number]:
        """Elements per chunk index, over all visits and groups."""
        return [
            _sum([self.chunk(box, index) * count * self.groups for box, count in self.all_boxes])
            for index in range(len(self.shape.sends))
        ]

    @cached_property
    def payload(self) -> Number:
        """Elements of all chunks together."""
        result: Number = 0
        for box, count in self.all_boxes:
            result = result + _prod(box) * count * self.groups
        return result

    def _weighted_sum(self, counts: Sequence[int], word: int) -> Number:
        """The sum over chunks of count x elements x ``word``, over all visits and groups."""
        alike = len(set(counts)) == 1 or self.counter.least  # lower bound: all elements may be in the chunk with the least count
        if alike and self.node.kind not in (CollectiveKind.SHIFT, CollectiveKind.ALL_TO_ALL):
            return min(counts) * self.payload * word
        result: Number = 0
        for times, chunk in zip(counts, self.totals, strict=True):
            if times:
                result = result + times * chunk * word
        return result

    def accesses(self) -> Iterator[Access]:
        node, scope = self.node, self.scope
        for tensor in node.tensors:
            word = self.counter.workload.tensors[tensor].word
            memory = hold_at(scope, tensor, self.counter.axis_depth[self.name]).memory
            for cause, counts, is_read in (
                ("send", self.shape.sends, True),
                ("combine", self.shape.combines, True),
                ("receive", self.shape.receives, False),
            ):
                total = self._weighted_sum(counts, word)
                # the time of a collective includes its memory accesses, so it adds no busy time at the ports
                yield Access(scope.path, memory, tensor, cause, is_read, total, 0)

    def crossing(self) -> LinkTraffic:
        axis = self.counter.chip.axis(self.node.level, self.node.axis)
        total = self._weighted_sum(self.shape.moves, self.word)
        first = self.scope.firsts.get(self.name, 0)
        links: tuple[tuple[tuple[int, int], Number], ...] = ()
        if not isinstance(total, Term):  # costs do not depend on the bytes of single links
            links = tuple(
                ((source + first, target + first), self._weighted_sum(counts, self.word))
                for (source, target), counts in zip(self.shape.links, self.shape.crossings, strict=True)
            )
        overhead, found = self._overhead(axis), self._streams(axis)
        time: Number = 0
        for box, count in self.own_boxes:
            chunk = partial(self.chunk, box)
            if found is None:
                load = self.shape.busiest_bytes(chunk) * self.word
                once = collective_time(self.shape.hops, axis.link.latency, 1, load, axis.link.bandwidth)
            else:
                memories = busiest(((1, found.members),), chunk)
                once = streamed_time(self.shape.hops, axis.link.latency, busiest(found.links, chunk), memories)
            time = time + (once + overhead) * count * self.visits_of_one
        return LinkTraffic(self.scope.path, self.node.level, self.node.axis, total, links, time)

    def _overhead(self, axis: Axis) -> float:
        """Time [s] of one execution that depends neither on its bytes nor on hops."""
        vector, given = self.counter.chip.vector, axis.exchange
        adder = given.adder if ALGORITHMS[self.node.algorithm].network else vector.latency if vector else 0.0
        return float(step_overhead(self.shape.steps, given.startup, given.barrier, self.shape.additions, adder))

    def _streams(self, axis: Axis) -> Streams | None:
        """Time [s] per element on links and in memories; None if only links limit the collective."""
        words: dict[str, int] = {}
        for tensor in self.node.tensors:
            memory = hold_at(self.scope, tensor, self.counter.axis_depth[self.name]).memory
            words[memory] = words.get(memory, 0) + self.counter.workload.tensors[tensor].word
        rates = exchange_rates(axis, {self.counter.chip.memory(memory): word for memory, word in words.items()})
        return streams(self.node.kind, self.node.algorithm, self.topology, self.size, rates)

    def combining(self) -> Iterator[Work]:
        """The monoid's work per combined element; it is assumed to keep up with the link, so it costs energy but no time."""
        engine = self.counter.chip.vector
        if engine is None or not any(self.shape.adds):
            return
        elements = self._weighted_sum(self.shape.adds, 1)
        for function, count in self.monoid_work().items():
            yield Work(self.scope.path, engine.name, function, "", elements * count, 0)

    def monoid_work(self) -> dict[str, float]:
        workload = self.counter.workload
        producer = workload.producer(self.node.tensors[0])
        if producer is None or producer.kind is OpKind.CONTRACT or not producer.monoid:
            return {"add": 1.0 * len(self.node.tensors)}
        return dict(MONOIDS[producer.monoid].work)


def exchange_rates(axis: Axis, words: Mapping[Memory, int]) -> Rates:
    """Time per element on an axis and in the memories of its members; ``words``: bytes of an element in each memory.

    >>> from halley.ir.hardware import Link
    >>> axis = Axis("x", 4, Topology.LINE, Link(8.0))
    >>> exchange_rates(axis, {Memory("buffer", 1024.0, 16.0, 4.0): 2})
    Rates(link=0.25, added=0.25, ports=(Port(read=0.125, write=0.5, shared=False),))
    """
    word, added = sum(words.values()), min(axis.link.bandwidth, axis.exchange.add_bandwidth)
    ports = (Port(own / m.read_bandwidth, own / m.write_bandwidth, m.shared_bus) for m, own in words.items())
    return Rates(word / axis.link.bandwidth, word / added, tuple(ports))


def _common(held: Sequence[Number], i: int, wanted: Sequence[Number], j: int) -> Number:
    """Number of points in the intersection of part i of one partition of a range and part j of another.

    >>> [_common([5, 1], 0, [3, 3], j) for j in (0, 1)]
    [3, 2]
    """
    start = maximum(_sum(held[:i]), _sum(wanted[:j]))
    stop = minimum(_sum(held[: i + 1]), _sum(wanted[: j + 1]))
    return maximum(stop - start, 0)


def _sum(terms: Sequence[Number]) -> Number:
    result: Number = 0
    for term in terms:
        result = result + term
    return result


def _prod(factors: Sequence[Number] | Iterator[Number]) -> Number:
    result: Number = 1
    for factor in factors:
        result = result * factor
    return result
