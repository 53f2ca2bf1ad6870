"""Collectives over several dimensions of a product network: one after the other, each with an algorithm of its own.

Rank r has one coordinate per dimension, row-major (the first changes slowest). A reduce-scatter goes through the dimensions in
order, every phase working on what the phases before left: after dimension d a rank has the chunks whose owner has its coordinate
there. An all-gather is that backwards, an all-reduce both (BlueConnect: Cho et al., IBM J. Res. Dev. 63, 2019). An all-to-all
moves blocks to the right coordinate of one dimension after the other; broadcast and scatter fill one dimension after the other.

A payload may be cut into pieces that take the dimensions in orders of their own (Themis: Rashidi et al., ISCA 2022) or follow
each other phase by phase, so that several dimensions work at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from typing import TypeAlias

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.collectives import dimension_time
from halley.ir.mapping import CollectiveKind
from halley.network.algorithms import ALGORITHMS
from halley.network.algorithms.algorithm import Cut, Setting, mirror, table_of
from halley.network.algorithms.tables import Kind, Steps, Transfer

_K = CollectiveKind

Coordinates: TypeAlias = tuple[int, ...]
Order: TypeAlias = tuple[int, ...]
"""Dimensions, the first to be used first."""
Chunks: TypeAlias = Callable[[Coordinates, int], Sequence[int]]
"""(coordinates of a rank of the line, chunk of the dimension's own table) -> chunks of the whole."""

SERVED = (_K.ALL_REDUCE, _K.REDUCE_SCATTER, _K.ALL_GATHER, _K.ALL_TO_ALL, _K.BROADCAST, _K.REDUCE, _K.SCATTER, _K.GATHER)


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """How a collective goes through the dimensions.

    ``shape``: ranks per dimension. ``algorithms``: per dimension, the name of one that serves the phases of the kind
    (all-gather for an all-reduce and its halves). ``orders``: one per piece. ``staggered``: piece p sets out p phases after
    the first; else all at once. ``turning``: the all-reduce of the last dimension, in place of its reduce-scatter and
    all-gather; "" for these. ``lines``: dimensions without a link that closes the ring. ``axes``: what the dimensions are called.
    """

    shape: tuple[int, ...]
    algorithms: tuple[str, ...]
    orders: tuple[Order, ...]
    staggered: bool = True
    turning: str = ""
    lines: frozenset[int] = frozenset()
    axes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where, dimensions = f"collective over dimensions of {self.shape}", len(self.shape)
        faults = []
        if len(self.algorithms) != dimensions:
            faults.append(Fault(where, f"an algorithm for each of {dimensions} dimensions", str(len(self.algorithms))))
        if len(self.axes) not in (0, dimensions):
            faults.append(Fault(where, f"a name for each of {dimensions} dimensions, or none", str(len(self.axes))))
        if not self.orders:
            faults.append(Fault(where, "an order of the dimensions for each piece", "none"))
        for order in self.orders:
            if sorted(order) != list(range(dimensions)):
                faults.append(Fault(where, f"each of the dimensions 0 to {dimensions - 1} once", f"the order {order}"))
        for name in (*self.algorithms, *([self.turning] if self.turning else [])):
            if name not in ALGORITHMS:
                faults.append(Fault(where, "a known algorithm", repr(name), did_you_mean(name, ALGORITHMS)))
        if faults:
            raise BadInput(faults)

    @property
    def ranks(self) -> int:
        return math.prod(self.shape)

    @property
    def pieces(self) -> int:
        return len(self.orders)

    @property
    def name(self) -> str:
        """Such as ``ring on gpu, direct on node`` for a ring over the axis gpu, then direct over node.

        >>> Hierarchy((2, 3), ("direct", "ring"), ((1, 0),), axes=("node", "gpu")).name
        'ring on gpu, direct on node'
        """
        names = self.axes or tuple(f"dimension {d}" for d in range(len(self.shape)))
        first = ", ".join(f"{self.algorithms[d]} on {names[d]}" for d in self.orders[0])
        turning = f", turning by {self.turning}" if self.turning else ""
        balanced = "balanced" if len(set(self.orders)) > 1 else "pipelined"
        return first + turning + (f", {self.pieces} pieces {balanced}" if self.pieces > 1 else "")

    def chunks(self, kind: Kind) -> int:
        """Chunks of the table: shares, or blocks, in pieces; pieces alone where all ranks get the same.

        >>> Hierarchy((2, 3), ("ring", "ring"), ((1, 0), (0, 1))).chunks(CollectiveKind.ALL_REDUCE)
        12
        """
        shares = {_K.ALL_TO_ALL: self.ranks**2, _K.BROADCAST: 1, _K.REDUCE: 1}
        return shares.get(kind, self.ranks) * self.pieces if isinstance(kind, CollectiveKind) else 1

    def misfit(self, kind: Kind) -> tuple[str, str] | None:
        """(expected, got) where a dimension's algorithm does not serve the kind; None where all do."""
        if kind not in SERVED:
            return f"one of {', '.join(SERVED)}", str(kind)
        phase = phase_kind(kind)
        for extent, name in zip(self.shape, self.algorithms, strict=True):
            found = ALGORITHMS[name].unfit(phase, extent)
            if found:
                return found
            if phase is _K.BROADCAST and ALGORITHMS[name].cut(phase) is not Cut.UNCUT:
                return "algorithms that broadcast without cutting", name
        if self.turning:
            return ALGORITHMS[self.turning].unfit(_K.ALL_REDUCE, self.shape[self.orders[0][-1]])
        return None

    def steps(self, kind: Kind) -> Steps:
        """The table. Raises BadInput where a dimension's algorithm does not serve it."""
        misfit = self.misfit(kind)
        if misfit:
            raise BadInput(Fault(f"{kind} over dimensions of {self.shape}", *misfit))
        return _Phases(self, kind).table


def phase_kind(kind: Kind) -> CollectiveKind:
    """What a dimension runs, forwards or backwards."""
    match kind:
        case _K.ALL_TO_ALL:
            return _K.ALL_TO_ALL
        case _K.BROADCAST | _K.REDUCE:
            return _K.BROADCAST
        case _K.SCATTER | _K.GATHER:
            return _K.SCATTER
        case _:
            return _K.ALL_GATHER


@dataclass(frozen=True)
class _Phases:
    """One table in the making."""

    plan: Hierarchy
    kind: Kind

    @cached_property
    def table(self) -> Steps:
        """The phases of all pieces; those of one moment run side by side."""
        moments: dict[int, list[Steps]] = {}
        for piece, order in enumerate(self.plan.orders):
            delay = piece if self.plan.staggered else 0
            for number, phase in enumerate(self.phases(piece, order)):
                moments.setdefault(number + delay, []).append(phase)
        return table_of(step for moment in sorted(moments) for step in _side_by_side(moments[moment]))

    def phases(self, piece: int, order: Order) -> list[Steps]:
        match self.kind:
            case _K.ALL_GATHER:
                return self.gathering(piece, order)
            case _K.REDUCE_SCATTER:
                return self.backwards(self.gathering(piece, order), True)
            case _K.ALL_REDUCE:
                gather = self.gathering(piece, order)
                if not self.plan.turning:
                    return self.backwards(gather, True) + gather
                return [*self.backwards(gather[1:], True), self.turning(piece, order), *gather[1:]]
            case _K.ALL_TO_ALL:
                return [self.exchange(piece, order, place) for place in range(len(order))]
            case _K.BROADCAST | _K.SCATTER:
                return self.filling(piece, order)
            case _:
                return self.backwards(self.filling(piece, order), self.kind is _K.REDUCE)

    @staticmethod
    def backwards(phases: list[Steps], combine: bool) -> list[Steps]:
        return [mirror(phase, combine) for phase in reversed(phases)]

    def gathering(self, piece: int, order: Order) -> list[Steps]:
        """The all-gather: the last dimension first, so that its reverse takes them in order."""
        return [self.phase(order[place], self.owned(piece, order, place)) for place in reversed(range(len(order)))]

    def owned(self, piece: int, order: Order, place: int) -> Chunks:
        """Chunks whose owner has coordinate ``index`` in this dimension, and the line's in the dimensions before it."""

        def chunks(line: Coordinates, index: int) -> list[int]:
            fixed = {d: line[d] for d in order[:place]} | {order[place]: index}
            return [owner * self.plan.pieces + piece for owner in self.matching(fixed)]

        return chunks

    def turning(self, piece: int, order: Order) -> Steps:
        """The all-reduce of the last dimension, on the chunks that the dimensions before have left each rank."""
        dim = order[-1]
        item, extent = ALGORITHMS[self.plan.turning], self.plan.shape[dim]
        count = item.chunks(_K.ALL_REDUCE, extent, 1 if item.cut(_K.ALL_REDUCE) is Cut.SHARED_PIECES else extent)
        if item.cut(_K.ALL_REDUCE) is not Cut.UNCUT and count != extent:
            remedy = "use one that cuts into one chunk per rank, or not at all"
            raise BadInput(Fault(f"all-reduce of {extent} by {item.name}", f"{extent} chunks", str(count), remedy))
        shares = self.owned(piece, order, len(order) - 1)

        def together(line: Coordinates, _: int) -> list[int]:
            return [chunk for index in range(extent) for chunk in shares(line, index)]

        uncut = item.cut(_K.ALL_REDUCE) is Cut.UNCUT
        table = item.make[_K.ALL_REDUCE](Setting(extent, count, dim in self.plan.lines))
        return self.spread(dim, table, together if uncut else shares)

    def exchange(self, piece: int, order: Order, place: int) -> Steps:
        """Blocks from a rank with coordinate a to one with coordinate b cross from a to b; in the dimensions before they are
        where they go to, in those behind where they come from."""
        dim, ranks, extent = order[place], self.plan.ranks, self.plan.shape[order[place]]

        def chunks(line: Coordinates, pair: int) -> list[int]:
            a, b = divmod(pair, extent)
            sources = list(self.matching({d: line[d] for d in order[place + 1 :]} | {dim: a}))
            targets = list(self.matching({d: line[d] for d in order[:place]} | {dim: b}))
            return [(i * ranks + j) * self.plan.pieces + piece for i in sources for j in targets]

        return self.phase(dim, chunks)

    def filling(self, piece: int, order: Order) -> list[Steps]:
        """From rank 0 along the first dimension, from there along the next."""

        def chunks(place: int) -> Chunks:
            def found(line: Coordinates, index: int) -> Sequence[int]:
                if any(line[d] for d in order[place + 1 :]):
                    return ()  # nothing has reached these lines yet
                return [piece] if self.kind in (_K.BROADCAST, _K.REDUCE) else self.owned(piece, order, place)(line, index)

            return found

        return [self.phase(dim, chunks(place)) for place, dim in enumerate(order)]

    def phase(self, dim: int, chunks: Chunks) -> Steps:
        """The dimension's own table on every line along it."""
        item, extent, kind = ALGORITHMS[self.plan.algorithms[dim]], self.plan.shape[dim], phase_kind(self.kind)
        count = 1 if kind is _K.BROADCAST else item.chunks(kind, extent)
        return self.spread(dim, item.make[kind](Setting(extent, count, dim in self.plan.lines)), chunks)

    def spread(self, dim: int, table: Steps, chunks: Chunks) -> Steps:
        shape = self.plan.shape
        stride = math.prod(shape[dim + 1 :])
        found: list[list[Transfer]] = [[] for _ in table]
        for line in product(*(range(1 if d == dim else extent) for d, extent in enumerate(shape))):
            first = self.number(line)
            named = {t.chunk for step in table for t in step}
            travelling = {chunk: chunks(line, chunk) for chunk in named}
            for step, grown in zip(table, found, strict=True):
                for t in step:
                    source, target = first + t.source * stride, first + t.target * stride
                    grown += [Transfer(source, target, chunk, t.combine, t.shared) for chunk in travelling[t.chunk]]
        return table_of(found)

    def number(self, coordinates: Coordinates) -> int:
        result = 0
        for extent, coordinate in zip(self.plan.shape, coordinates, strict=True):
            result = result * extent + coordinate
        return result

    def matching(self, fixed: dict[int, int]) -> Iterator[int]:
        """Ranks with these coordinates."""
        choices = ([fixed[d]] if d in fixed else range(extent) for d, extent in enumerate(self.plan.shape))
        return (self.number(coordinates) for coordinates in product(*choices))


def _side_by_side(phases: Sequence[Steps]) -> Iterator[tuple[Transfer, ...]]:
    for number in range(max(map(len, phases))):
        yield tuple(t for phase in phases if number < len(phase) for t in phase[number])


def balanced_orders(shape: Sequence[int], bandwidths: Sequence[float], pieces: int) -> tuple[Order, ...]:
    """An order for each piece, such that the dimensions work about equally long: each piece in turn takes the order after
    which the busiest dimension is least busy. ``bandwidths``: B/s with which a rank sends into each dimension.

    >>> balanced_orders((4, 4), (1.0, 1.0), 2)
    ((0, 1), (1, 0))

    Source: the greedy schedule of Themis (Rashidi et al., ISCA 2022), here over all orders.
    """
    busy = [0.0] * len(shape)
    found = []
    for _ in range(pieces):
        options = [(_busier(busy, shape, bandwidths, order), order) for order in permutations(range(len(shape)))]
        busy, order = min(options, key=lambda option: (max(option[0]), sum(option[0]), option[1]))
        found.append(order)
    return tuple(found)


def _busier(busy: Sequence[float], shape: Sequence[int], bandwidths: Sequence[float], order: Order) -> list[float]:
    """Time that every dimension works, with one more piece of one byte that takes the dimensions in this order."""
    result, before = list(busy), 1
    for d in order:
        result[d] += dimension_time(shape[d], before, 1.0, bandwidths[d])
        before *= shape[d]
    return result
